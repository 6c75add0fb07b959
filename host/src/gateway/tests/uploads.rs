//! The URLs that nodes upload to, over real TLS and against a real S3 server.

use bc_proto::manifest::Lane;
use bc_proto::sign::SecretKey;
use bc_proto::wire::Upload;
use bc_proto::wire::v1::{UploadRequest, to_node};
use real_s3::{ACCESS_KEY_ID, SECRET_ACCESS_KEY, Server};
use reqwest::{Method, StatusCode};
use tempfile::TempDir;

use super::*;
use crate::bundles::tests::{send, served, settings};
use crate::bundles::{Destination, support_bundle_key};
use crate::trust::Signer;

/// A site with a store.
struct Stored {
    site: Site,
    _folder: TempDir,
    server: Server,
}

impl Stored {
    async fn new() -> Self {
        let (folder, server, store) = served();
        let mut site = Site::new().await;
        site.bundles = Some(store);
        Self { site, _folder: folder, server }
    }

    /// A command that uploads, and its object's key.
    async fn queue(&self, node: NodeId) -> (CommandId, String) {
        let kind = self.site.fleet.kind(Lane::Bulk, &["retry-safe"]).await;
        let new = command(&node, kind);
        let key = support_bundle_key(node, &new.idempotency_key);
        let object = format!("{}/support/{key}", self.server.endpoint());
        let upload = Some(Destination { object, max_bytes: 1000 });
        (self.site.queue(NewCommand { upload, ..new }).await, key)
    }
}

fn upload(deliver: v1::Deliver) -> Upload {
    Upload::try_from(deliver.upload.expect("it uploads")).expect("it is right")
}

async fn refresh(site: &Site, replica: &Replica, machine: &Machine, command: &str) -> Result<Upload, Status> {
    let mut client = replica.client(&site.authority, Some(&machine.identity));
    let answer = client.refresh_upload(UploadRequest { command_id: command.into() }).await?;
    Ok(Upload::try_from(answer.into_inner()).expect("it is right"))
}

#[tokio::test]
async fn a_command_comes_with_a_url_that_uploads_and_a_fresh_one_is_for_the_same_object() {
    let stored = Stored::new().await;
    let site = &stored.site;
    let replica = site.replica("one").await;
    let machine = site.machine(&replica).await;
    let mut link = machine.open(&site.authority, &replica).await.expect("it may enter");
    let (command, key) = stored.queue(machine.node()).await;
    replica.tell_work(machine.node());
    let first = upload(link.delivered().await);
    assert_eq!(first.object, format!("{}/support/{key}", stored.server.endpoint()));
    assert_eq!(first.max_bytes, 1000);
    let now_ms = crate::store::unix_ms(site.world().now());
    let lasts_ms = first.url_expires_ms - now_ms;
    assert!((24 * 60_000..=25 * 60_000).contains(&lasts_ms), "ten minutes to wait, and fifteen: {lasts_ms}");
    assert_eq!(send(Method::PUT, first.url.expose(), "first").await, StatusCode::OK);
    assert_eq!(std::fs::read(stored.server.object(&key)).expect("it is there"), b"first");

    // Past the first one's end, while the command goes on.
    site.ahead.store(3600, Ordering::Relaxed);
    let fresh = refresh(site, &replica, &machine, &command.to_string()).await.expect("it is in flight");
    assert_eq!((&fresh.object, fresh.max_bytes), (&first.object, first.max_bytes));
    assert_ne!(fresh.url, first.url);
    let lasts_ms = fresh.url_expires_ms - crate::store::unix_ms(site.world().now());
    assert!((14 * 60_000..=15 * 60_000).contains(&lasts_ms), "fifteen minutes from now: {lasts_ms}");
    site.ahead.store(0, Ordering::Relaxed);
    let fresh = refresh(site, &replica, &machine, &command.to_string()).await.expect("it is in flight");
    assert_eq!(send(Method::PUT, fresh.url.expose(), "second").await, StatusCode::OK);

    // The same command on another session comes with a URL of its own.
    drop(link);
    let mut again = machine.open(&site.authority, &replica).await.expect("it may enter");
    let replayed = upload(again.delivered().await);
    assert_eq!(replayed.object, first.object);
    assert!(replayed.url_expires_ms > 0 && send(Method::PUT, replayed.url.expose(), "third").await == StatusCode::OK);
    assert_eq!(std::fs::read(stored.server.object(&key)).expect("it is there"), b"third");

    // Nothing that allows to write stands in a row.
    let tables = "select string_agg(t::text, ' ') from (select row_to_json(c)::text from commands c union all \
                  select row_to_json(e)::text from events e union all select row_to_json(f)::text from in_flight f) t";
    let rows: String = sqlx::query_scalar(tables).fetch_one(&site.fleet.pool).await.expect("rows");
    assert!(rows.contains(&key));
    for secret in ["X-Amz", ACCESS_KEY_ID, SECRET_ACCESS_KEY] {
        assert!(!rows.contains(secret), "{rows}");
    }
}

#[tokio::test]
async fn a_fresh_url_is_for_the_nodes_own_command_while_it_runs() {
    let stored = Stored::new().await;
    let site = &stored.site;
    let replica = site.replica("one").await;
    let (machine, other) = (site.machine(&replica).await, {
        let token = site.token(None, None).await;
        let key = KeyPair::generate_for(&rcgen::PKCS_ED25519).expect("a key");
        let mut joining = request(&token, &key);
        joining.name = "another".into();
        let answer = replica.client(&site.authority, None).join(joining).await.expect("it may join").into_inner();
        let node = answer.node_id.parse().expect("an id");
        Machine::with(Peer { node, incarnation: answer.incarnation }, &answer.certificate_chain[0], &key)
    });
    let mut link = machine.open(&site.authority, &replica).await.expect("it may enter");
    let (command, _) = stored.queue(machine.node()).await;
    let id = command.to_string();
    let said = |answer: Result<Upload, Status>| {
        let status = answer.expect_err("it is refused");
        (status.code(), status.message().to_owned())
    };
    let early = said(refresh(site, &replica, &machine, &id).await);
    assert_eq!(early, (Code::FailedPrecondition, "the command is not in flight".into()));
    replica.tell_work(machine.node());
    link.delivered().await;
    refresh(site, &replica, &machine, &id).await.expect("it is in flight");
    let theirs = said(refresh(site, &replica, &other, &id).await);
    assert_eq!(theirs, (Code::NotFound, "the node has no such command".into()));
    let unknown = said(refresh(site, &replica, &machine, &CommandId::from_uuid(uuid()).to_string()).await);
    assert_eq!(unknown, theirs, "what another node has is told apart from nothing");
    for bad in ["", "cmd_x", "node_00000000000000000000000001"] {
        let refused = said(refresh(site, &replica, &machine, bad).await);
        assert_eq!(refused, (Code::InvalidArgument, "UploadRequest.command_id: must be cmd_…".into()), "{bad}");
    }
    let plain = site.fleet.kind(Lane::Control, &[]).await;
    let plain = site.enqueue(machine.node(), plain).await;
    replica.tell_work(machine.node());
    assert_eq!(link.delivered().await.upload, None);
    let nothing = said(refresh(site, &replica, &machine, &plain.to_string()).await);
    assert_eq!(nothing, (Code::FailedPrecondition, "the command uploads nothing".into()));
    link.report(command, v1::Report::Succeeded).await;
    link.acknowledged().await;
    let over = said(refresh(site, &replica, &machine, &id).await);
    assert_eq!(over, early);
    let mut nobody = replica.client(&site.authority, None);
    let nobody = nobody.refresh_upload(UploadRequest { command_id: id.clone() }).await.expect_err("no certificate");
    assert_eq!(nobody.code(), Code::Unauthenticated);
    let mut tx = site.fleet.pool.begin().await.expect("a database");
    queue::life::delete(&mut tx, machine.node(), site.world().now()).await.expect("a database");
    tx.commit().await.expect("a database");
    let revoked = said(refresh(site, &replica, &machine, &id).await);
    assert_eq!(revoked.0, Code::Unauthenticated, "{}", revoked.1);
}

#[tokio::test]
async fn a_gateway_that_cannot_sign_for_the_object_delivers_the_command_without_the_right() {
    let mut stored = Stored::new().await;
    let queueing = stored.site.replica("queues").await;
    let machine = stored.site.machine(&queueing).await;
    drop(queueing);
    let (command, key) = stored.queue(machine.node()).await;
    let object = format!("{}/support/{key}", stored.server.endpoint());
    let elsewhere = Store::new(crate::bundles::Settings { bucket: "another".into(), ..settings(&stored.server) });
    let elsewhere = elsewhere.expect("the settings keep the rules");
    for (bundles, why) in
        [(None, "this gateway has no [support-bundles]"), (Some(elsewhere), "[support-bundles] changed")]
    {
        stored.site.bundles = bundles;
        let replica = stored.site.replica("two").await;
        let mut link = machine.open(&stored.site.authority, &replica).await.expect("it may enter");
        replica.tell_work(machine.node());
        let came = upload(link.delivered().await);
        assert_eq!((came.url.expose(), came.url_expires_ms), (object.as_str(), 0), "as it was signed, and no more");
        assert_eq!(send(Method::PUT, came.url.expose(), "x").await, StatusCode::FORBIDDEN);
        let refused = refresh(&stored.site, &replica, &machine, &command.to_string()).await.expect_err("it cannot");
        assert_eq!(refused.code(), Code::FailedPrecondition);
        assert!(refused.message().contains(why), "{}", refused.message());
    }
}

#[tokio::test]
async fn the_object_is_signed_with_the_command_and_the_url_is_not() {
    let stored = Stored::new().await;
    let site = &stored.site;
    let root = SecretKey::from_seed([5; 32]);
    let trust = bc_proto::rules::trust::TrustBundle {
        version: 1,
        roots: vec![root.public()],
        ..bc_proto::rules::trust::TrustBundle::NONE
    };
    let replica = site.replica("one").await;
    let machine = site.machine(&replica).await;
    let mut link = machine.open(&site.authority, &replica).await.expect("it may enter");
    let kind = site.fleet.kind(Lane::Bulk, &[]).await;
    let object = format!("{}/support/support-bundles/n/k.bundle", stored.server.endpoint());
    let new = NewCommand {
        not_after: site.world().now() + Duration::from_mins(10),
        upload: Some(Destination { object: object.clone(), max_bytes: 1000 }),
        ..command(&machine.node(), kind)
    };
    let now = site.world().now();
    let signer = Signer::new(root, site.world());
    queue::enqueue(&mut *site.fleet.db().await, &signer, new, now).await.expect("a database");
    replica.tell_work(machine.node());
    let to_node::Frame::Deliver(deliver) = link.next().await else { panic!("no delivery") };
    let judge = |change: &dyn Fn(&mut v1::Upload)| {
        let mut deliver = deliver.clone();
        change(deliver.upload.as_mut().expect("it uploads"));
        let came = bc_proto::wire::Deliver::try_from(deliver).expect("it is right");
        let now_ms = crate::store::unix_ms(now);
        trust.signature(&came, &std::collections::BTreeSet::new(), now_ms).is_ok()
    };
    assert!(judge(&|_| {}));
    assert!(judge(&|upload| upload.url = format!("{object}?another=signature")), "a gateway makes the URL");
    assert!(!judge(&|upload| upload.max_bytes += 1));
    assert!(!judge(&|upload| {
        upload.object = "https://evil.example/k".into();
        upload.url = "https://evil.example/k?x=1".into();
    }));
}
