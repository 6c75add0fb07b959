//! Rows that somebody wrote past the control plane, and those who read them before acting on them.
//!
//! **Invariant:** a row that was written so is there; that it says so makes nothing true.

use std::collections::BTreeSet;

use bc_proto::manifest::Lane;
use bc_proto::merkle::Tree;
use bc_proto::rules::receipt::{self, Trusted};
use bc_proto::rules::remediation;
use bc_proto::rules::state::State;
use bc_proto::rules::trust::TrustBundle;
use bc_proto::sign::PublicKey;
use bc_proto::wire::Deliver;
use sqlx::AssertSqlSafe;

use super::super::attest::{say, signed};
use super::*;
use crate::audit::tests::{catch_up, kept, signer};
use crate::audit::{self, certificate};
use crate::store::events::Cursor;
use crate::testing::{at, greeting};

const UNBELIEVED: &str = "a row that nobody believes";

/// The root of the signer that logs and orders.
fn roots() -> [PublicKey; 1] {
    [SecretKey::from_seed([5; 32]).public()]
}

async fn change(fleet: &Fleet, sql: String) {
    let behind = format!("set session_replication_role = replica; {sql}; reset session_replication_role");
    sqlx::raw_sql(AssertSqlSafe(behind)).execute(&fleet.pool).await.expect("a superuser may");
}

/// A result in `settled` that came on no session.
struct Forged {
    node_sig: Option<Vec<u8>>,
    by: Option<Fingerprint>,
    result: &'static str,
    is_reported: bool,
}

impl Forged {
    /// Writes it as the statement of the control plane would, event and all.
    async fn write(&self, site: &Site, id: CommandId) -> Result<(), sqlx::Error> {
        let insert = "with gone as (
                delete from in_flight f using commands c
                where c.id = $1 and f.node_id = c.node_id and f.seq = c.seq
                returning c.id, c.tenant_id, c.node_id, c.seq
            ), written as (
                insert into settled (node_id, seq, state, reason, result, settled_at, reported_at, node_sig, attested_by)
                select node_id, seq, 'succeeded', '', $2, now(), case when $5 then now() end, $3, $4 from gone
            )
            insert into events (tenant_id, node_id, command_id, topic, body, at)
            select tenant_id, node_id, id, 'command.settled', jsonb_build_object('commandId', $6), now() from gone";
        let insert = sqlx::query(insert).bind(id.uuid()).bind(self.result.as_bytes()).bind(&self.node_sig);
        let insert = insert.bind(self.by.as_ref().map(|it| &it[..])).bind(self.is_reported).bind(id.to_string());
        insert.execute(&site.fleet.pool).await.map(drop)
    }
}

/// What the node of a machine signed of an end.
fn of(machine: &Machine, id: CommandId, report: v1::Report) -> Forged {
    let node_sig = Some(signed(&machine.key, id, report).node_sig);
    Forged { node_sig, by: Some(machine.fingerprint), result: r#"{"n":1}"#, is_reported: true }
}

/// What makes an attempt on a command.
type Forge<'a> = Box<dyn Fn(CommandId) -> Forged + Send + Sync + 'a>;

pub(super) async fn results() -> Table {
    let mut table = Table::new("Results, written into `settled` by the owner of a gateway");
    let site = Site::new().await;
    let replica = site.replica("one").await;
    let lives = Lives::new(&site, &replica).await;
    let stranger = site.machine(&replica).await;
    let kind = site.fleet.kind(Lane::Control, &["attested", "destructive"]).await;
    let machines = [&lives.present, &lives.revoked, &lives.earlier, &stranger];
    let mut link = lives.present.open(&site.authority, &replica).await.expect("it may enter");
    let attacker = SecretKey::from_seed([9; 32]);
    let own = &lives.present;
    let other = CommandId::from_uuid(uuid());
    let success = v1::Report::Succeeded;
    let attempts: Vec<(&str, Forge<'_>)> = vec![
        ("no signature", Box::new(|id| Forged { node_sig: None, by: None, ..of(own, id, success) })),
        ("64 zero bytes", Box::new(|id| Forged { node_sig: Some(vec![0; 64]), ..of(own, id, success) })),
        ("the attacker's key, under the name of the node's certificate", {
            Box::new(|id| Forged { node_sig: Some(signed(&attacker, id, success).node_sig), ..of(own, id, success) })
        }),
        ("another node's key and certificate", Box::new(|id| of(&stranger, id, success))),
        ("the key of a revoked certificate", Box::new(|id| of(&lives.revoked, id, success))),
        ("the key of the node's earlier life", Box::new(|id| of(&lives.earlier, id, success))),
        ("a certificate that is not there", Box::new(|id| Forged { by: Some([3; 32]), ..of(own, id, success) })),
        ("the signature of another command's result", Box::new(|_| of(own, other, success))),
        ("the failure that the node signed, as success", Box::new(|id| of(own, id, v1::Report::Failed))),
        ("another result under the node's signature", {
            Box::new(|id| Forged { result: r#"{"n":2}"#, ..of(own, id, success) })
        }),
    ];
    for (attempt, forge) in attempts {
        let id = site.enqueue(own.node(), kind).await;
        replica.tell_work(own.node());
        link.delivered().await;
        forge(id).write(&site, id).await.expect("nothing keeps it from being written");
        assert_eq!(site.state(id).await, "succeeded");
        let refused = site.attested(id).await.expect_err(attempt);
        let outcome = remediation::Outcome::of(State::Succeeded, "", site.attested(id).await.is_ok());
        assert_eq!(outcome, remediation::Outcome::Ambiguous);
        let receipt = receipt_of(&site, id, &machines).await;
        let words = format!("attestation: {refused}. Remediation: `{outcome:?}`. Receipt: {receipt}");
        table.row(attempt, &words, UNBELIEVED);
        // The true one comes too late, and gives its place on the session back.
        say(&link, signed(&own.key, id, v1::Report::Failed)).await;
        assert_eq!(link.acknowledged().await.command_ids, [id.to_string()]);
    }
    let no_certificate: Forge<'_> = Box::new(|id| Forged { by: None, ..of(own, id, success) });
    let not_reported: Forge<'_> = Box::new(|id| Forged { is_reported: false, ..of(own, id, success) });
    let cut: Forge<'_> = Box::new(|id| Forged {
        node_sig: of(own, id, success).node_sig.map(|it| it[1..].to_vec()),
        ..of(own, id, success)
    });
    for (attempt, forge) in [
        ("a signature without a certificate", no_certificate),
        ("a signature on what the control plane settled itself", not_reported),
        ("a signature that is cut short", cut),
    ] {
        let id = site.enqueue(own.node(), kind).await;
        replica.tell_work(own.node());
        link.delivered().await;
        let before = site.rows().await;
        let refused = forge(id).write(&site, id).await.expect_err(attempt);
        let constraint = refused.as_database_error().and_then(|it| it.constraint()).expect("a constraint").to_owned();
        assert_eq!(site.rows().await, before);
        say(&link, signed(&own.key, id, v1::Report::Failed)).await;
        assert_eq!(link.acknowledged().await.command_ids, [id.to_string()]);
        assert_eq!(site.attested(id).await, Ok(own.fingerprint), "the true one counts");
        table.row(attempt, &format!("the constraint `{constraint}`"), NOTHING);
    }
    table
}

/// What a verifier says of a command's receipt.
async fn receipt_of(site: &Site, id: CommandId, machines: &[&Machine]) -> String {
    site.fleet.events().await;
    catch_up(&site.fleet, &signer(), at(10)).await;
    let mut db = site.fleet.db().await;
    let made = audit::receipt(&mut db, site.fleet.tenant, id).await.expect("a database").expect("it is logged");
    let now_ms = crate::store::unix_ms(site.world().now());
    let ca = site.authority.certificate_der();
    let node = made.node_certificate.as_ref().map(|text| {
        let der = base64::engine::general_purpose::STANDARD.decode(text).expect("base64");
        certificate::node_key(ca, &der, now_ms).expect("the authority issued it")
    });
    let verified = receipt::verify(&made, Trusted { roots: &roots(), node, now_ms: crate::store::unix_ms(at(20)) });
    match verified {
        Ok(proven) => match proven.outcome.expect("it is over").attested {
            receipt::Attested::Yes => "says that the node signed: it does not know of revocations".into(),
            attested => format!("attested: {attested}"),
        },
        Err(refused) => {
            let nodes = machines.iter().map(|it| it.node().to_string());
            nodes.fold(refused.to_string(), |text, node| text.replace(&node, "another node"))
        }
    }
}

pub(super) async fn commands() -> Table {
    let mut table = Table::new("Commands, changed in `commands` by the owner of a gateway");
    let fleet = Fleet::new().await;
    let elsewhere = fleet.kind(Lane::Control, &["retry-safe"]).await;
    let trust = TrustBundle { version: 1, roots: roots().to_vec(), ..TrustBundle::NONE };
    let judge = |deliver: &Deliver| {
        let came = Deliver::try_from(v1::Deliver::from(deliver.clone())).expect("it is right");
        trust.signature(&came, &BTreeSet::new(), crate::store::unix_ms(at(1)))
    };
    let attempts = [
        ("the signature taken away", "signature = null, worker_key = null".to_owned()),
        ("another payload", "payload = '{}'".to_owned()),
        ("another payload, with its hash", "payload = '{}', payload_hash = sha256('{}')".to_owned()),
        ("another kind", "kind = 'test.other'".to_owned()),
        ("another component", format!("kind_digest = '\\x{}'", hex::encode(elsewhere))),
        ("a later end", "not_after = not_after + interval '1 hour'".to_owned()),
        ("a spec generation that it does not ask for", "min_generation = 1".to_owned()),
        ("a batch that it does not belong to", "batch_id = gen_random_uuid()".to_owned()),
        ("another time of signing", "created_at = created_at - interval '1 second'".to_owned()),
        ("another id", "id = gen_random_uuid()".to_owned()),
        ("another signature", "signature = sha512(signature)".to_owned()),
    ];
    for (attempt, sql) in attempts {
        let (node, kind) = (fleet.node().await, fleet.kind(Lane::Control, &[]).await);
        let new = command(&node, kind);
        let queued = queue::enqueue(&mut *fleet.db().await, &signer(), new, at(0)).await.expect("a database");
        assert!(matches!(queued, Outcome::Queued(_)), "{queued:?}");
        let epoch = fleet.hello(&greeting(&node), at(0)).await.epoch;
        let claimed = fleet.claim(&node, epoch, at(1)).await;
        judge(&claimed[0].deliver).expect("the true one passes");
        change(&fleet, format!("update commands set {sql} where node_id = '{}'", node.uuid())).await;
        let replayed = fleet.hello(&greeting(&node), at(2)).await.replay;
        assert_eq!(replayed.len(), 1, "{attempt}");
        let distrust = judge(&replayed[0].deliver).expect_err(attempt);
        let refused = format!("the node's rule: `{}`: {}", distrust.refusal, distrust.why);
        table.row(attempt, &refused, "a row that no node runs: the command is dropped");
    }
    table
}

pub(super) async fn log() -> Table {
    let mut table = Table::new("The transparency log, changed by the owner of its database");
    for sql in [
        "update log_entries set body = body where index = 1",
        "delete from log_entries where index = 1",
        "truncate log_nodes",
        "update log_heads set root = root",
    ] {
        let fleet = logged().await;
        let before = kept(&fleet).await;
        let refused = sqlx::query(sql).execute(&fleet.pool).await.expect_err(sql);
        assert_eq!(kept(&fleet).await, before);
        let words = refused.as_database_error().expect("the database says so").message().to_owned();
        table.row(&format!("`{sql}`"), &words, NOTHING);
    }
    // The entry that a receipt is asked for: an inner hash shows in the proofs that lead past it.
    for (attempt, asked, sql) in [
        ("one body, behind the triggers", 1, "update log_entries set body = body || ' ' where index = 1"),
        (
            "one body and its hash, behind the triggers",
            1,
            "update log_entries set body = body || ' ', leaf_hash = sha256('\\x00'::bytea || body || ' ') where index = 1",
        ),
        ("one hash, behind the triggers", 2, "update log_nodes set hash = sha256('x') where level = 1"),
        ("one entry, taken out behind the triggers", 1, "delete from log_entries where index = 1"),
        ("the head's root, behind the triggers", 1, "update log_heads set root = sha256('x')"),
        (
            "the head's signature, behind the triggers",
            1,
            "update log_heads set signature = jsonb_set(signature, '{signature}', to_jsonb(repeat('00', 64)))",
        ),
    ] {
        let fleet = logged().await;
        let id: sqlx::types::Uuid = sqlx::query_scalar("select command_id from log_entries where index = $1")
            .bind(asked)
            .fetch_one(&fleet.pool)
            .await
            .expect("a database");
        change(&fleet, sql.to_owned()).await;
        table.row(attempt, &found(&fleet, CommandId::from_uuid(id)).await.join(". "), "a log that shows it");
    }
    table
}

/// Three commands in a log that is signed.
async fn logged() -> Fleet {
    let fleet = Fleet::new().await;
    let (node, kind) = (fleet.node().await, fleet.kind(Lane::Control, &["destructive"]).await);
    for _ in 0..3 {
        fleet.enqueue(&node, kind).await;
    }
    assert_eq!(catch_up(&fleet, &signer(), at(1)).await, 3);
    assert_eq!(found(&fleet, CommandId::from_uuid(uuid())).await, [] as [&str; 0], "it is right");
    fleet
}

/// What is wrong with a log, for whoever recomputes it, asks for a receipt, and for the next step that adds to it.
async fn found(fleet: &Fleet, about: CommandId) -> Vec<String> {
    let mut db = fleet.db().await;
    let mut found = Vec::new();
    let head = audit::head(&mut db).await.expect("a database");
    let leaves: Vec<Vec<u8>> = kept(fleet).await.into_iter().map(|it| it.body).collect();
    if head.root != hex::encode(Tree::new(leaves).root()) {
        found.push("Recomputed: the entries do not come to the head's root".into());
    }
    let signature = head.signature.as_ref().expect("it is signed");
    let now_ms = crate::store::unix_ms(at(20));
    if let Err(refused) = signature.verify(&head.body(), &roots(), now_ms) {
        found.push(format!("Head: {refused}"));
    }
    match audit::receipt(&mut db, fleet.tenant, about).await {
        Ok(Some(made)) => {
            if let Err(refused) = receipt::verify(&made, Trusted { roots: &roots(), node: None, now_ms }) {
                found.push(format!("Receipt: {refused}"));
            }
        }
        Ok(None) => {}
        Err(refused) => found.push(format!("Receipt: {refused}")),
    }
    if let Err(refused) = audit::grow(&fleet.pool, &signer(), Cursor::default(), at(2)).await {
        found.push(format!("The log's writer: {refused}"));
    }
    found
}
