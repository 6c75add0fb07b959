//! What the commands write reads back.

use std::os::unix::fs::PermissionsExt;

use super::*;

#[test]
fn a_root_certifies_a_worker_and_is_rotated_offline() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = |name: &str| folder.path().join(name);
    PkiCommand::Init(Init { out: at("one"), json: true }).execute().expect("made");
    let root = at("one").join(ROOT);
    assert_eq!(fs::metadata(&root).expect("a file").permissions().mode() & 0o777, 0o600);
    let again = PkiCommand::Init(Init { out: at("one"), json: true }).execute();
    assert!(again.is_err(), "a root is never written over");

    let issue = || IssueWorker { root: root.clone(), key: at("worker.pem"), json: true }.execute();
    issue().expect("certified");
    let text = fs::read_to_string(keys::certificate_of(&at("worker.pem"))).expect("a file");
    let first: WorkerKey = serde_json::from_str(&text).expect("a certificate");
    first.verify(&[keys::secret(&root).expect("a key").public()]).expect("the root certified it");
    let shown = show::describe(&text, first.not_before_ms).expect("it is shown");
    assert_eq!((&shown["is"], &shown["holdsNow"]), (&json!("worker key"), &json!(true)));
    assert_eq!(show::describe(&text, first.not_after_ms).expect("it is shown")["holdsNow"], json!(false));
    issue().expect("the same key for another day");

    PkiCommand::Rotate(Rotate { root: root.clone(), out: at("two"), json: true }).execute().expect("made");
    let public = fs::read_to_string(at("two").join(PUBLIC)).expect("a file");
    let shown = show::describe(&public, 0).expect("it is shown");
    assert_eq!(shown["publicKey"], json!(keys::secret(&at("two").join(ROOT)).expect("a key").public()));

    let settings = format!("drain = '1s'\n[pki]\ncommand-signing = '{}'\n", root.display());
    let shown = show::describe(&settings, 0).expect("it is shown");
    assert_eq!((&shown["signs"], &shown["bundle"]["roots"][0]), (&json!(true), &shown["signingRoot"]));
    assert!(show::describe("{\"x\": 1}", 0).is_err());
}
