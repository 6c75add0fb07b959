//! The harness itself: that its kind counts, and that its database comes back.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;

use bc_tests::cluster::database::Database;
use bc_tests::cluster::node::Node;
use bc_tests::machine::Machine;

#[test]
fn each_run_of_the_counting_kind_is_on_disk_once() {
    let machine = Machine::changed(|state| state.trace = None);
    let trace = machine.path("driver.trace");
    machine.node.update(|state| state.trace = Some(trace.clone())).expect("the state is written");
    for (gpu, runs) in [(0, 1), (3, 2)] {
        for _ in 0..runs {
            machine.result("test.count", &Node::counted(gpu, 0));
        }
    }
    assert_eq!([0, 1, 3].map(|gpu| bc_tests::cluster::node::count(&trace, gpu)), [1, 0, 2]);
}

#[test]
fn a_killed_database_comes_back_over_its_disk() {
    let folder = tempfile::Builder::new().permissions(Permissions::from_mode(0o711)).tempdir().expect("a folder");
    let mut database = Database::start(&folder.path().join("pg"));
    for _ in 0..2 {
        database.kill();
        database.restart();
    }
    let log = std::fs::read_to_string(folder.path().join("pg/log")).expect("it writes a log");
    assert_eq!(log.matches("database system was not properly shut down").count(), 2, "{log}");
}
