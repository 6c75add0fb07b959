//! The log on a real Postgres.

use bc_proto::audit::{Decider, Entry};
use bc_proto::batch::{Approval, Leaf};
use bc_proto::id::{BatchId, CommandId, NodeId};
use bc_proto::manifest::Lane;
use bc_proto::merkle::{Tree, verify, verify_consistency};
use bc_proto::rules::receipt::{self, Trusted};
use bc_proto::rules::state::Event;
use bc_proto::sign::SecretKey;
use serde_json::json;
use sha2::{Digest as _, Sha256};
use sqlx::{AssertSqlSafe, PgPool};
use time::OffsetDateTime;
use tokio::task::JoinSet;

use super::{Error, Grown, consistency, grow, head, inclusion};
use crate::batches::{self, Created, Proposal};
use crate::bundles::Destination;
use crate::queue::enqueue::NewCommand;
use crate::queue::settle::Report;
use crate::queue::{self, enqueue};
use crate::store::events::Cursor;
use crate::store::kinds::Digest;
use crate::store::transparency::{self, Kept};
use crate::store::unix_ms;
use crate::testing::{Fleet, approver_key, at, command, greeting, two_of_a_and_one_of_b};
use crate::trust::Signer;
use crate::world::World;

pub(crate) fn signer() -> Signer {
    Signer::new(SecretKey::from_seed([5; 32]), World::new(|| at(0), |bytes| bytes.fill(6)))
}

/// Steps until all that is committed is logged; answers how many entries were added. Transactions of other tests, in other
/// databases, hold events back as well.
pub(crate) async fn catch_up(fleet: &Fleet, signer: &Signer, now: OffsetDateTime) -> usize {
    let mut all = 0;
    loop {
        match grow(&fleet.pool, signer, Cursor::default(), now).await.expect("a database") {
            Grown::Read { added, is_full, is_held_back, .. } => {
                all += added;
                if !is_full && !is_held_back {
                    return all;
                }
            }
            Grown::Elsewhere => {}
            Grown::NotByUs => panic!("it is ours"),
        }
        tokio::task::yield_now().await;
    }
}

pub(crate) async fn kept(fleet: &Fleet) -> Vec<Kept> {
    transparency::entries(&mut *fleet.db().await, 0, 10_000).await.expect("a database")
}

async fn entries(fleet: &Fleet) -> Vec<Entry> {
    let read = |it: Kept| serde_json::from_slice(&it.body).expect("an entry");
    kept(fleet).await.into_iter().map(read).collect()
}

/// The heads come to the entries, each entry's proof holds, and every head continues those before.
async fn check(fleet: &Fleet) -> u64 {
    let mut db = fleet.db().await;
    let kept = kept(fleet).await;
    let leaves: Vec<Vec<u8>> = kept.iter().map(|it| it.body.clone()).collect();
    let newest = head(&mut db).await.expect("a database");
    assert_eq!(newest.size, leaves.len() as u64);
    assert_eq!(newest.root, hex::encode(Tree::new(leaves.clone()).root()));
    let indices: Vec<u64> = kept.iter().map(|it| it.index).collect();
    assert_eq!(indices, (0..newest.size).collect::<Vec<_>>(), "without gaps");
    let (root, proofs) = inclusion(&mut db, newest.size, &indices).await.expect("all is there");
    for ((index, leaf), proof) in indices.iter().zip(&leaves).zip(&proofs) {
        verify(&root, newest.size, leaf, *index, proof).expect("it is in there");
    }
    let sizes: Vec<i64> =
        sqlx::query_scalar("select size from log_heads order by size").fetch_all(&mut *db).await.expect("a database");
    for from in sizes {
        let from = u64::try_from(from).expect("a size");
        let (old, new, proof) = consistency(&mut db, from, newest.size).await.expect("all is there");
        verify_consistency(from, &old, newest.size, &new, &proof).expect("it only grew");
    }
    newest.size
}

/// Runs a command to its success.
async fn succeed(fleet: &Fleet, node: &NodeId, queued: &CommandId, result: &[u8]) {
    let epoch = fleet.hello(&greeting(node), at(0)).await.epoch;
    let report = Report {
        node: *node,
        epoch,
        command: *queued,
        event: Event::ReportedSucceeded,
        reason: String::new(),
        result: result.to_vec(),
        at: Some(at(5)),
        node_sig: Vec::new(),
        attested_by: None,
    };
    let settled = queue::settle(&mut *fleet.db().await, &[report], at(6)).await.expect("a database");
    assert_eq!(settled.now, [*queued]);
}

async fn destructive(fleet: &Fleet) -> Digest {
    fleet.kind(Lane::Control, &["destructive"]).await
}

#[tokio::test]
async fn destructive_commands_and_their_ends_are_logged_in_order_and_others_are_not() {
    let fleet = Fleet::new().await;
    let (node, harmless, kind) = (fleet.node().await, fleet.kind(Lane::Control, &[]).await, destructive(&fleet).await);
    let other = fleet.enqueue(&node, harmless).await;
    let first = fleet.enqueue(&node, kind).await;
    let second = fleet.enqueue(&node, kind).await;
    succeed(&fleet, &node, &other.id, b"{}").await;
    queue::cancel(&mut *fleet.db().await, &Signer::none(), fleet.tenant, second.id, at(3)).await.expect("a database");
    succeed(&fleet, &node, &first.id, b"{\"done\":true}").await;
    let added = catch_up(&fleet, &Signer::none(), at(10)).await;
    assert_eq!(added, 5, "{:?}", entries(&fleet).await);
    let [
        Entry::CommandQueued(one),
        Entry::CommandQueued(two),
        Entry::CommandSettled(gone),
        Entry::CancelRequested(wish),
        Entry::CommandSettled(done),
    ] = <[Entry; 5]>::try_from(entries(&fleet).await).expect("five entries")
    else {
        panic!("{:?}", entries(&fleet).await);
    };
    assert_eq!((wish.command, wish.node, wish.at_ms), (second.id, node, unix_ms(at(3))));
    assert_eq!((one.command, two.command), (first.id, second.id));
    let payload = bc_proto::canonical::to_vec(&json!({"n": 1.50, "text": "é\u{0}"})).expect("JSON");
    assert_eq!(one.payload_sha256, hex::encode(Sha256::digest(payload)));
    assert_eq!((one.node, one.tenant, one.incarnation, one.at_ms), (node, fleet.tenant, 1, unix_ms(at(0))));
    assert_eq!((one.kind_digest, one.not_after_ms), (hex::encode(kind), unix_ms(at(600))));
    assert_eq!((gone.command, gone.state.as_str(), gone.decided_by), (second.id, "cancelled", Decider::ControlPlane));
    assert_eq!((done.command, done.state.as_str(), done.decided_by), (first.id, "succeeded", Decider::Node));
    assert_eq!(done.result_sha256, Some(hex::encode(Sha256::digest(b"{\"done\":true}"))));
    for it in kept(&fleet).await {
        let text = String::from_utf8(it.body).expect("text");
        assert!(!text.contains('é') && !text.contains("done"), "neither payload nor result stand in it: {text}");
    }
    assert_eq!(check(&fleet).await, 5);
}

#[tokio::test]
async fn what_is_said_of_batches_is_logged_whole() {
    let fleet = Fleet::new().await;
    let mut facts =
        json!({ "batchId": "batch_00000000000000000000000001", "documentSha256": "ab", "reason": "retired" });
    let event = "insert into events (tenant_id, topic, body, at) values ($1, $2, $3, $4)";
    for topic in ["batch.created", "batch.rejected", "node.joined"] {
        let event = sqlx::query(event).bind(fleet.tenant.uuid()).bind(topic).bind(&facts).bind(at(1));
        event.execute(&fleet.pool).await.expect("a database");
    }
    assert_eq!(catch_up(&fleet, &Signer::none(), at(2)).await, 2);
    let [Entry::Batch(made), Entry::Batch(rejected)] = <[Entry; 2]>::try_from(entries(&fleet).await).expect("two")
    else {
        panic!("batches");
    };
    assert_eq!((made.topic.as_str(), rejected.topic.as_str()), ("batch.created", "batch.rejected"));
    assert_eq!(made.batch.map(|it| it.to_string()).as_deref(), facts["batchId"].as_str());
    facts.as_object_mut().expect("an object").remove("documentSha256");
    assert_eq!((made.facts, made.document_sha256.as_deref()), (facts, Some("ab")));
}

#[tokio::test]
async fn a_step_that_crashes_before_its_commit_leaves_nothing_and_the_next_logs_once() {
    let fleet = Fleet::new().await;
    let (node, kind) = (fleet.node().await, destructive(&fleet).await);
    for round in 1..=3 {
        fleet.enqueue(&node, kind).await;
        fleet.events().await;
        for _ in 0..2 {
            let mut tx = fleet.pool.begin().await.expect("a transaction");
            let grown = super::grow::step(&mut tx, &signer(), Cursor::default(), at(1)).await.expect("a database");
            assert!(matches!(grown, Grown::Read { added: 1, .. }), "{grown:?}");
            tx.rollback().await.expect("a rollback");
        }
        assert_eq!(catch_up(&fleet, &signer(), at(1)).await, 1);
        assert_eq!(catch_up(&fleet, &signer(), at(1)).await, 0);
        assert_eq!(check(&fleet).await, round);
    }
}

#[tokio::test]
async fn replicas_that_work_at_once_log_each_event_once_and_a_nodes_in_order() {
    const EACH: usize = 25;
    let fleet = Fleet::new().await;
    let kind = destructive(&fleet).await;
    let mut queueing = JoinSet::new();
    let mut orders = Vec::new();
    for _ in 0..3 {
        let (node, pool) = (fleet.node().await, fleet.pool.clone());
        let commands: Vec<_> = (0..EACH).map(|_| command(&node, kind)).collect();
        orders.push(commands.iter().map(|it| it.id).collect::<Vec<_>>());
        queueing.spawn(async move {
            for command in commands {
                let mut tx = pool.begin().await.expect("a transaction");
                enqueue(&mut tx, &Signer::none(), command, at(0)).await.expect("a database");
                tokio::task::yield_now().await;
                tx.commit().await.expect("a commit");
            }
        });
    }
    let replica = |pool: PgPool| async move {
        let mut all = 0;
        for _ in 0..40 {
            if let Grown::Read { added, .. } =
                grow(&pool, &signer(), Cursor::default(), at(1)).await.expect("a database")
            {
                all += added;
            }
        }
        all
    };
    let (one, two) = tokio::join!(replica(fleet.pool.clone()), replica(fleet.pool.clone()));
    queueing.join_all().await;
    let rest = catch_up(&fleet, &signer(), at(1)).await;
    assert_eq!(one + two + rest, 3 * EACH);
    let logged: Vec<CommandId> = entries(&fleet).await.iter().filter_map(Entry::command).collect();
    for order in orders {
        let of_node: Vec<_> = logged.iter().copied().filter(|it| order.contains(it)).collect();
        assert_eq!(of_node, order);
    }
    assert_eq!(check(&fleet).await, 3 * EACH as u64);
}

#[tokio::test]
async fn a_stretch_without_anything_for_the_log_is_passed_for_good() {
    let fleet = Fleet::new().await;
    let add = "insert into events (tenant_id, topic, body, at) select $1, 'node.joined', '{}', $2 from generate_series(1, $3)";
    let add = |count: i32| sqlx::query(add).bind(fleet.tenant.uuid()).bind(at(0)).bind(count);
    add(1_000).execute(&fleet.pool).await.expect("a database");
    assert_eq!(catch_up(&fleet, &Signer::none(), at(1)).await, 0);
    let position = transparency::position(&mut *fleet.db().await).await.expect("a database");
    assert_ne!(position, Cursor::default(), "a full stretch is not read again");
    add(1).execute(&fleet.pool).await.expect("a database");
    catch_up(&fleet, &Signer::none(), at(1)).await;
    let after = transparency::position(&mut *fleet.db().await).await.expect("a database");
    assert_eq!(after, position, "a few events cost no write");
}

#[tokio::test]
async fn the_database_refuses_to_rewrite_the_log() {
    let fleet = Fleet::new().await;
    let (node, kind) = (fleet.node().await, destructive(&fleet).await);
    fleet.enqueue(&node, kind).await;
    fleet.enqueue(&node, kind).await;
    catch_up(&fleet, &signer(), at(1)).await;
    for (table, column) in [("log_entries", "body"), ("log_nodes", "hash"), ("log_heads", "root")] {
        let statements = [
            format!("update {table} set {column} = {column}"),
            format!("delete from {table}"),
            format!("truncate {table}"),
        ];
        for statement in statements {
            let refused = sqlx::query(AssertSqlSafe(statement.clone())).execute(&fleet.pool).await;
            let refused = refused.expect_err(&statement).to_string();
            assert!(refused.contains("only grows") && refused.contains(table), "{refused}");
        }
    }
    assert_eq!(check(&fleet).await, 2);
}

#[tokio::test]
async fn nothing_is_added_to_a_log_that_was_changed_behind_the_triggers_back() {
    for (change, expected) in [
        ("update log_entries set leaf_hash = sha256('x') where index = 2", "do not come to the root"),
        ("update log_nodes set hash = sha256('x') where level = 1", "do not come to the root"),
        ("delete from log_nodes", "are missing"),
        ("delete from log_entries where index = 2", "are missing"),
        ("update log_heads set root = sha256('x')", "do not come to the root"),
    ] {
        let fleet = Fleet::new().await;
        let (node, kind) = (fleet.node().await, destructive(&fleet).await);
        for _ in 0..3 {
            fleet.enqueue(&node, kind).await;
        }
        catch_up(&fleet, &signer(), at(1)).await;
        let behind = format!("set session_replication_role = replica; {change}; reset session_replication_role");
        sqlx::raw_sql(AssertSqlSafe(behind)).execute(&fleet.pool).await.expect("a superuser may");
        fleet.enqueue(&node, kind).await;
        fleet.events().await;
        let refused = grow(&fleet.pool, &signer(), Cursor::default(), at(2)).await.expect_err(change);
        assert!(matches!(refused, Error::Changed { size: 3 } | Error::Missing { size: 3 }), "{refused:?}");
        assert!(refused.to_string().contains(expected), "{change}: {refused}");
    }
}

#[tokio::test]
async fn a_log_that_is_signed_grows_only_under_a_signature() {
    let fleet = Fleet::new().await;
    let (node, kind) = (fleet.node().await, destructive(&fleet).await);
    let roots = [SecretKey::from_seed([5; 32]).public()];
    let of = async || head(&mut *fleet.db().await).await.expect("a database");
    fleet.enqueue(&node, kind).await;
    catch_up(&fleet, &Signer::none(), at(1)).await;
    assert_eq!((of().await.size, of().await.signature), (1, None));

    // Keys that come later sign what is there.
    assert_eq!(catch_up(&fleet, &signer(), at(2)).await, 0);
    let head = of().await;
    let signature = head.signature.expect("it is signed now");
    signature.verify(&head.body(), &roots, unix_ms(at(2))).expect("it holds");
    assert_eq!(head.size, 1);

    fleet.enqueue(&node, kind).await;
    fleet.events().await;
    let without = grow(&fleet.pool, &Signer::none(), Cursor::default(), at(3)).await.expect("a database");
    assert_eq!((without, of().await.size), (Grown::NotByUs, 1));
    assert_eq!(catch_up(&fleet, &signer(), at(3)).await, 1);
    assert_eq!(check(&fleet).await, 2);
}

#[tokio::test]
async fn a_receipt_shows_order_and_end_and_is_made_for_its_own_tenant_alone() {
    let fleet = Fleet::new().await;
    let (node, kind) = (fleet.node().await, destructive(&fleet).await);
    let queued = fleet.enqueue(&node, kind).await;
    let mut db = fleet.db().await;
    assert!(super::receipt(&mut db, fleet.tenant, queued.id).await.expect("a database").is_none(), "not logged yet");
    let roots = [SecretKey::from_seed([5; 32]).public()];
    let trusted = Trusted { roots: &roots, node: None, now_ms: unix_ms(at(20)) };
    catch_up(&fleet, &signer(), at(1)).await;
    let open = super::receipt(&mut db, fleet.tenant, queued.id).await.expect("a database").expect("it is logged");
    assert_eq!(receipt::verify(&open, trusted).expect("it holds").outcome, None);

    fleet.enqueue(&node, kind).await;
    succeed(&fleet, &node, &queued.id, b"{\"done\":true}").await;
    // Over, and not logged yet: the receipt is still that of before.
    assert_eq!(super::receipt(&mut db, fleet.tenant, queued.id).await.expect("a database"), Some(open));
    catch_up(&fleet, &signer(), at(10)).await;
    let whole = super::receipt(&mut db, fleet.tenant, queued.id).await.expect("a database").expect("it is logged");
    let proven = receipt::verify(&whole, trusted).expect("it holds");
    assert_eq!((proven.command, proven.node, proven.is_head_signed), (queued.id, node, true));
    assert_eq!(proven.outcome.map(|it| it.state).as_deref(), Some("succeeded"));
    let other = bc_proto::id::TenantId::from_uuid(crate::testing::uuid());
    assert!(super::receipt(&mut db, other, queued.id).await.expect("a database").is_none());
}

#[tokio::test]
async fn a_receipt_holds_every_approval_of_its_batch_those_that_expired_and_were_renewed_among_them() {
    let fleet = Fleet::new().await;
    let (node, kind) = (fleet.node().await, destructive(&fleet).await);
    let settings = two_of_a_and_one_of_b();
    let mut db = fleet.db().await;
    let scope = [false, true].map(|binds_payload| {
        let payload = bc_proto::canonical::to_vec(&command(&node, kind).payload).expect("JSON");
        let payload_sha256 = binds_payload.then(|| bc_proto::canonical::sha256_hex(&payload));
        Leaf { subject: node.to_string(), kind: "test.control-destructive".into(), payload_sha256 }
    });
    let proposal = Proposal {
        id: BatchId::from_uuid(crate::testing::uuid()),
        tenant: fleet.tenant,
        requested_by: "module/remediation".into(),
        idempotency_key: "k".into(),
        reason: "retired".into(),
        scope: scope.into(),
        lasts: time::Duration::hours(1),
    };
    let Created::New(batch) = batches::create(&mut db, &proposal, at(0)).await.expect("a database") else {
        panic!("it is new")
    };
    let document = batch.document;
    let approvals = [(1, 0, 50), (2, 1, 2_000), (3, 2, 2_000), (1, 60, 2_000)].map(|(number, from, until)| {
        Approval::sign(&approver_key(number), &document, unix_ms(at(from)), unix_ms(at(until)))
    });
    let mut queued = None;
    for (approval, now) in approvals.iter().zip([1, 2, 3, 61]) {
        let mut tx = fleet.pool.begin().await.expect("a transaction");
        let approved = batches::approve(&mut tx, &settings, fleet.tenant, proposal.id, approval, at(now)).await;
        tx.commit().await.expect("a commit");
        if approved.expect("it counts").tally.is_met && queued.is_none() {
            let upload = Some(Destination { object: "https://s3.example/b/k".into(), max_bytes: 5 });
            let new =
                NewCommand { batch: Some(proposal.id), requested_by: "ann".into(), upload, ..command(&node, kind) };
            queued = Some(new.id);
            let mut tx = fleet.pool.begin().await.expect("a transaction");
            batches::enqueue(&mut tx, &settings, &signer(), vec![new], at(10)).await.expect("in its scope");
            tx.commit().await.expect("a commit");
        }
    }
    let queued = queued.expect("three are enough");
    catch_up(&fleet, &signer(), at(70)).await;
    let order = entries(&fleet).await.into_iter().find_map(|it| match it {
        Entry::CommandQueued(order) => Some(order),
        _ => None,
    });
    let order = order.expect("it was queued");
    assert_eq!(order.requested_by.as_deref(), Some("ann"));
    let upload = order.upload.expect("it is logged where its file goes");
    assert_eq!((upload.object.as_str(), upload.max_bytes), ("https://s3.example/b/k", 5));
    let receipt = super::receipt(&mut db, fleet.tenant, queued).await.expect("a database").expect("it is logged");
    let approved = receipt.approved.as_ref().expect("it belongs to a batch");
    assert_eq!((&approved.document, &approved.approvals[..]), (&document, &approvals[..]));
    assert!(approved.binds_payload && approved.index == 1, "the leaf that says more");
    let roots = [SecretKey::from_seed([5; 32]).public()];
    let trusted = Trusted { roots: &roots, node: None, now_ms: unix_ms(at(100_000)) };
    let proven = receipt::verify(&receipt, trusted).expect("it holds long after");
    assert!(proven.is_command_signed);
    let mut approvers = [1, 2, 3].map(|number| approver_key(number).public());
    approvers.sort();
    assert_eq!(proven.approvers, approvers, "each once");
}
