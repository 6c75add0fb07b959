use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use bc_proto::manifest::Lane;
use bc_proto::rules::slots::Trial;
use uuid::Uuid;

use super::*;

struct Bench {
    upgrades: Upgrades,
    lanes: Lanes,
    store: Store,
    asked: Arc<Asked>,
    _folder: tempfile::TempDir,
}

fn release() -> Release {
    Release { version: "9.9.9".into(), sha256: "ab".repeat(32) }
}

impl Bench {
    fn new(running: Running) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let (store, lanes) = (Store::new(folder.path().into()), Lanes::default());
        let upgrades = Upgrades::new(Parts {
            store: store.clone(),
            running,
            settings: config::Upgrade::default(),
            trust: Trust::default(),
            supervisor: None,
            lanes: lanes.clone(),
        });
        Self { upgrades, lanes, store, asked: Arc::default(), _folder: folder }
    }

    /// A command whose time is over after so long.
    fn command(&self, within: Duration) -> OfCommand {
        OfCommand {
            upgrades: self.upgrades.clone(),
            command: CommandId::from_uuid(Uuid::from_u128(1)),
            until: Instant::now() + within,
            asked: Arc::clone(&self.asked),
            cancel: CancellationToken::new(),
        }
    }

    fn carry_out(&self) -> Result<(), String> {
        let intent = self.asked.take().expect("something was asked for");
        self.upgrades.carry_out(CommandId::from_uuid(Uuid::from_u128(1)), &intent).map_err(|not_done| not_done.code)
    }

    fn stage(&self) {
        self.store.change::<io::Error>(|slots| Ok(slots.stage(release()))).expect("written");
    }
}

#[test]
fn a_switch_waits_for_other_runs_and_then_the_release_is_on_trial_and_the_daemon_stops() {
    let bench = Bench::new(Running::default());
    let command = bench.command(Duration::ZERO);
    assert_eq!(command.switch().expect_err("nothing is staged").code, "nothing-staged");
    bench.stage();
    let run = bench.lanes.try_take(Lane::Bulk).expect("all are free");
    command.switch().expect("it is staged");
    assert_eq!(bench.carry_out(), Err("busy".into()));
    assert!(!bench.upgrades.restart().is_cancelled());
    assert_eq!(bench.store.read().expect("readable").expect("written").trial, None, "nothing was changed");

    drop(run);
    command.switch().expect("it is staged still");
    assert_eq!(bench.carry_out(), Ok(()));
    assert!(bench.upgrades.restart().is_cancelled());
    let trial = bench.store.read().expect("readable").expect("written").trial;
    assert_eq!(trial, Some(Trial { release: release(), starts: 0, deadline_ms: None }));
    assert_eq!(command.switch().expect_err("one is tried").code, "nothing-staged");
}

#[test]
fn what_another_process_asked_for_is_not_carried_out() {
    let bench = Bench::new(Running::default());
    bench.stage();
    bench.asked.ask(Intent::Switch { version: "9.9.9".into() }).expect("the first");
    assert_eq!(bench.carry_out(), Err("interrupted".into()));
}

#[test]
fn a_release_on_trial_is_confirmed_on_the_disk_and_can_be_taken_back() {
    let bench = Bench::new(Running {
        sha256: Some(release().sha256),
        installed: "/usr/bin/bcd".into(),
        deadline_ms: Some(u64::MAX),
    });
    bench.stage();
    bench.store.change(|slots| slots.switch().map_err(io::Error::other)).expect("staged");
    let command = bench.command(Duration::ZERO);
    assert!(bench.upgrades.on_trial() && command.state().expect("known").unconfirmed);
    assert_eq!(command.stage("9.9.10", &"cd".repeat(32)).expect_err("one is tried").code, "on-trial");
    command.confirm().expect("written");
    assert!(!bench.upgrades.on_trial() && !command.state().expect("known").unconfirmed);
    let confirmed = bench.store.read().expect("readable").expect("written");
    assert_eq!(confirmed.version_of(&confirmed.confirmed), "9.9.9");

    command.roll_back().expect("the installed one worked before");
    assert_eq!(bench.carry_out(), Ok(()));
    let back = bench.store.read().expect("readable").expect("written");
    assert_eq!(back.version_of(&back.confirmed), VERSION);
}

#[test]
fn only_versions_and_digests_are_staged() {
    let command = Bench::new(Running::default()).command(Duration::ZERO);
    for (version, sha256) in [("nine", "ab".repeat(32)), ("9.9.9", "AB".repeat(32)), ("9.9.9", "ab".repeat(31))] {
        assert_eq!(command.stage(version, &sha256).expect_err("refused").code, "invalid", "{version} {sha256}");
    }
}

#[test]
fn a_release_that_nobody_can_send_is_a_failure_with_a_code() {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let command = Bench::new(Running::default()).command(Duration::ZERO);
    let _entered = runtime.enter();
    assert_eq!(command.stage("9.9.9", &"ab".repeat(32)).expect_err("no session").code, "offline");
    command.cancel.cancel();
    assert_eq!(command.stage("9.9.9", &"ab".repeat(32)).expect_err("called off").code, "cancelled");
}

#[test]
fn a_file_is_kept_only_with_its_name_and_is_executable_by_its_owner() {
    let bench = Bench::new(Running::default());
    let sha256 = release().sha256;
    bench.store.draft(&sha256).expect("a draft");
    assert!(!bench.store.binary(&sha256).exists());
    bench.store.keep(&sha256).expect("kept");
    let mode = fs::metadata(bench.store.binary(&sha256)).expect("it is there").permissions().mode();
    assert_eq!(mode & 0o777, 0o700);
}
