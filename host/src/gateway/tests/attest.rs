//! Attested results: what settles a command, and what does not.

use bc_proto::manifest::Lane;
use bc_proto::rules::attest;
use bc_proto::wire::Update;

use super::*;
use crate::attestation::{self, NotAttested};
use crate::store::{events, node_certificates};

/// What an honest node says of the end of a command.
pub(super) fn signed(key: &SecretKey, command: CommandId, report: v1::Report) -> v1::Update {
    let from_node::Frame::Update(update) = update(command, report) else { panic!("an update") };
    let checked = Update::try_from(update.clone()).expect("it is right");
    let node_sig = attest::sign(key, &checked).expect("it is an end").as_bytes().to_vec();
    v1::Update { node_sig, ..update }
}

pub(super) async fn say(link: &Link, update: v1::Update) {
    link.say(from_node::Frame::Update(update)).await;
}

impl Site {
    /// The reasons why results of a command were refused, in the order of their events.
    pub(super) async fn refusals(&self, command: CommandId) -> Vec<String> {
        // Waits until all of them can be seen.
        self.fleet.events().await;
        let all = events::after(&mut *self.fleet.db().await, events::Cursor::default(), 10_000).await;
        let all = all.expect("a database").into_iter();
        all.filter(|it| it.topic == "command.result-refused" && it.body["commandId"] == command.to_string())
            .map(|it| it.body["reason"].as_str().expect("a reason").to_owned())
            .collect()
    }

    pub(super) async fn attested(&self, command: CommandId) -> Result<Fingerprint, NotAttested> {
        let found = attestation::of(&mut *self.fleet.db().await, command).await.expect("a database");
        found.map(|attested| attested.fingerprint)
    }

    pub(super) async fn revoke(&self, node: NodeId, fingerprint: Option<Fingerprint>) -> Vec<Fingerprint> {
        let mut tx = self.fleet.pool.begin().await.expect("a transaction");
        let revoked = node_certificates::revoke(&mut tx, node, fingerprint, self.world().now()).await;
        tx.commit().await.expect("a commit");
        revoked.expect("a database")
    }
}

async fn started(traits: &[&str]) -> (Site, Replica, Machine, Digest) {
    let site = Site::new().await;
    let replica = site.replica("one").await;
    let machine = site.machine(&replica).await;
    let kind = site.fleet.kind(Lane::Control, traits).await;
    (site, replica, machine, kind)
}

#[tokio::test]
async fn a_signed_result_settles_its_command_and_every_reader_can_check_it() {
    let (site, replica, machine, kind) = started(&["attested"]).await;
    let mut link = machine.open(&site.authority, &replica).await.expect("it may enter");
    for (report, state) in [
        (v1::Report::Succeeded, "succeeded"),
        (v1::Report::Failed, "failed"),
        (v1::Report::Cancelled, "cancelled"),
        (v1::Report::Rejected, "rejected"),
    ] {
        let id = site.enqueue(machine.node(), kind).await;
        replica.tell_work(machine.node());
        link.delivered().await;
        assert_eq!(site.attested(id).await, Err(NotAttested::Unsigned), "it is not over");
        say(&link, signed(&machine.key, id, report)).await;
        assert_eq!(link.acknowledged().await.command_ids, [id.to_string()]);
        assert_eq!(site.state(id).await, state);
        assert_eq!(site.attested(id).await, Ok(machine.fingerprint));
        // Told again after its credits were given back: what it is, is looked up.
        say(&link, signed(&machine.key, id, report)).await;
        assert_eq!(link.acknowledged().await.command_ids, [id.to_string()]);
    }
}

#[tokio::test]
async fn a_result_that_the_node_did_not_sign_so_changes_nothing_and_is_told_once() {
    let (site, replica, machine, kind) = started(&["attested"]).await;
    let mut link = machine.open(&site.authority, &replica).await.expect("it may enter");
    let [id, other] = [site.enqueue(machine.node(), kind).await, site.enqueue(machine.node(), kind).await];
    replica.tell_work(machine.node());
    link.delivered().await;
    link.delivered().await;
    let good = signed(&machine.key, id, v1::Report::Succeeded);
    let forged = signed(&SecretKey::from_seed([9; 32]), id, v1::Report::Succeeded);
    let of_other = signed(&machine.key, other, v1::Report::Succeeded).node_sig;
    let bad = [
        ("missing", v1::Update { node_sig: Vec::new(), ..good.clone() }),
        ("truncated", v1::Update { node_sig: good.node_sig[..63].to_vec(), ..good.clone() }),
        ("too long", v1::Update { node_sig: [&good.node_sig[..], &[0]].concat(), ..good.clone() }),
        ("forged", forged),
        ("replayed", v1::Update { node_sig: of_other, ..good.clone() }),
        ("swapped result", v1::Update { result: br#"{"n":2}"#.to_vec(), ..good.clone() }),
        ("swapped end", v1::Update { report: v1::Report::Failed.into(), ..good.clone() }),
        ("unsigned rejection", v1::Update { report: v1::Report::Rejected.into(), node_sig: vec![], ..good.clone() }),
        ("unsigned cancel", v1::Update { report: v1::Report::Cancelled.into(), node_sig: vec![], ..good.clone() }),
    ];
    // Each by itself, so that no other report of the batch can stand for it; and twice.
    for (what, update) in bad.iter().chain(&bad) {
        say(&link, update.clone()).await;
        link.say(ack(other)).await;
        let (what, probe) = (*what, site.enqueue(machine.node(), kind).await);
        replica.tell_work(machine.node());
        link.delivered().await;
        say(&link, signed(&machine.key, probe, v1::Report::Succeeded)).await;
        assert_eq!(link.acknowledged().await.command_ids, [probe.to_string()], "{what}");
        assert_eq!(site.state(id).await, "dispatched", "{what}");
    }
    assert_eq!(site.refusals(id).await, ["signature-missing", "signature-size", "signature-wrong"]);
    assert_eq!(site.refusals(other).await, [] as [&str; 0]);

    say(&link, good).await;
    assert_eq!(link.acknowledged().await.command_ids, [id.to_string()], "the true one counts still");
    assert_eq!(site.attested(id).await, Ok(machine.fingerprint));
}

#[tokio::test]
async fn a_forged_result_beside_the_true_one_takes_nothing_from_it() {
    let (site, replica, machine, kind) = started(&["attested"]).await;
    let mut link = machine.open(&site.authority, &replica).await.expect("it may enter");
    let mut ids = Vec::new();
    for _ in 0..8 {
        ids.push(site.enqueue(machine.node(), kind).await);
    }
    replica.tell_work(machine.node());
    for _ in &ids {
        link.delivered().await;
    }
    // As many as are checked elsewhere than here, in one batch or several.
    for id in &ids {
        say(&link, signed(&SecretKey::from_seed([9; 32]), *id, v1::Report::Failed)).await;
        say(&link, signed(&machine.key, *id, v1::Report::Succeeded)).await;
    }
    for id in &ids {
        site.reaches(*id, "succeeded").await;
        assert_eq!(site.attested(*id).await, Ok(machine.fingerprint));
    }
}

#[tokio::test]
async fn other_kinds_settle_without_a_signature_and_keep_none() {
    let (site, replica, machine, kind) = started(&[]).await;
    let mut link = machine.open(&site.authority, &replica).await.expect("it may enter");
    let [bare, with] = [site.enqueue(machine.node(), kind).await, site.enqueue(machine.node(), kind).await];
    replica.tell_work(machine.node());
    link.report(bare, v1::Report::Succeeded).await;
    site.reaches(bare, "succeeded").await;
    say(&link, signed(&SecretKey::from_seed([9; 32]), with, v1::Report::Succeeded)).await;
    site.reaches(with, "succeeded").await;
    assert_eq!(site.attested(with).await, Err(NotAttested::Unsigned));
    drop(link.end());
}

#[tokio::test]
async fn only_keys_that_count_attest() {
    let (site, replica, machine, kind) = started(&["attested"]).await;
    let stranger = site.machine(&replica).await;
    let renewed = machine.renew(&site.authority, &replica).await.expect("it is renewed");
    let mut link = machine.open(&site.authority, &replica).await.expect("it may enter");
    let next = async |link: &mut Link, key: &SecretKey| {
        let id = site.enqueue(machine.node(), kind).await;
        replica.tell_work(machine.node());
        link.delivered().await;
        say(link, signed(key, id, v1::Report::Succeeded)).await;
        id
    };
    // Before and after a renewal, whichever certificate the session was opened with.
    for key in [&machine, &renewed] {
        let id = next(&mut link, &key.key).await;
        link.acknowledged().await;
        assert_eq!(site.attested(id).await, Ok(key.fingerprint));
    }
    let id = next(&mut link, &stranger.key).await;
    let last = next(&mut link, &renewed.key).await;
    assert_eq!(link.acknowledged().await.command_ids, [last.to_string()]);
    assert_eq!(site.refusals(id).await, ["signature-wrong"], "another node's");

    // A revoked key attests nothing from then on; what it attested before stands.
    assert_eq!(site.revoke(machine.node(), Some(machine.fingerprint)).await, [machine.fingerprint]);
    let mut link = renewed.open(&site.authority, &replica).await.expect("the renewed one may enter");
    assert_eq!(link.delivered().await.command_id, id.to_string());
    let revoked = next(&mut link, &machine.key).await;
    let last = next(&mut link, &renewed.key).await;
    assert_eq!(link.acknowledged().await.command_ids, [last.to_string()]);
    assert_eq!(site.refusals(revoked).await, ["signature-wrong"]);
    assert_eq!(site.attested(last).await, Ok(renewed.fingerprint));
}

#[tokio::test]
async fn what_the_control_plane_settles_is_never_attested() {
    let site = Site::new().await;
    let replica = site.replica("one").await;
    let token = site.token(None, Some(vec!["other".into()])).await;
    let machine = Machine::join(&site.authority, &replica, &token).await.expect("it may join");
    let kind = site.fleet.kind(Lane::Control, &["attested", "self-terminating"]).await;
    // A refusal at dispatch, for the node's restricted identity.
    let refused = site.enqueue(machine.node(), kind).await;
    let mut link = machine.open(&site.authority, &replica).await.expect("it may enter");
    site.reaches(refused, "rejected").await;
    assert_eq!(site.attested(refused).await, Err(NotAttested::Unsigned));
    let found = crate::store::commands::find(&mut *site.fleet.db().await, site.fleet.tenant, refused).await;
    assert_eq!(found.expect("a database").expect("it is there").reported_at, None, "not the node's word");
    drop(link.end());

    // A reboot that a hello proves.
    let free = site.machine(&replica).await;
    link = free.open(&site.authority, &replica).await.expect("it may enter");
    let rebooted = site.enqueue(free.node(), kind).await;
    replica.tell_work(free.node());
    link.delivered().await;
    let again = Machine { boot: 2, ..free.clone() };
    again.open(&site.authority, &replica).await.expect("it may enter");
    assert_eq!(site.state(rebooted).await, "succeeded");
    assert_eq!(site.attested(rebooted).await, Err(NotAttested::Unsigned));
}

#[tokio::test]
async fn a_reader_finds_out_what_was_changed_in_the_rows() {
    let (site, replica, machine, kind) = started(&["attested"]).await;
    let mut link = machine.open(&site.authority, &replica).await.expect("it may enter");
    let id = site.enqueue(machine.node(), kind).await;
    replica.tell_work(machine.node());
    link.delivered().await;
    say(&link, signed(&machine.key, id, v1::Report::Succeeded)).await;
    link.acknowledged().await;
    let read = async || {
        let rows = crate::store::attestations::find_many(&mut *site.fleet.db().await, &[id]).await;
        rows.expect("a database").pop().expect("it is signed")
    };
    let good = read().await;
    assert_eq!(attestation::verify(&good), Ok(machine.fingerprint));
    let stranger = site.machine(&replica).await;
    let wrong = Err(NotAttested::Signature(bc_proto::sign::Error::Wrong(bc_proto::sign::Purpose::CommandUpdate)));
    let check = |change: &dyn Fn(&mut crate::store::attestations::SignedResult)| {
        let mut changed = good.clone();
        change(&mut changed);
        attestation::verify(&changed)
    };
    assert_eq!(check(&|it| it.result = b"{}".to_vec()), wrong);
    assert_eq!(check(&|it| it.state = bc_proto::rules::state::State::Failed), wrong);
    assert_eq!(check(&|it| it.command = CommandId::from_uuid(uuid())), wrong);
    assert_eq!(check(&|it| it.node = stranger.node()), Err(NotAttested::AnotherNode));
    assert_eq!(check(&|it| it.fingerprint = stranger.fingerprint), Err(NotAttested::NoCertificate));
    assert_eq!(check(&|it| it.certificate = None), Err(NotAttested::NoCertificate));
    assert_eq!(check(&|it| it.revoked_at = Some(it.settled_at)), Err(NotAttested::Revoked));
    assert_eq!(
        check(&|it| it.revoked_at = Some(it.settled_at + time::Duration::seconds(1))),
        Ok(machine.fingerprint),
        "it counted then"
    );
    site.revoke(machine.node(), None).await;
    assert_eq!(site.attested(id).await, Ok(machine.fingerprint), "what was attested before a revocation stands");
}
