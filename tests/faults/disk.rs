//! The disk of a node: full, and damaged.

use std::fs::{self, File};
use std::io::Write as _;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use bc_tests::cluster::{COUNT, Cluster, node::Node};

/// A small disk under a node's state.
struct SmallDisk(PathBuf);

#[expect(clippy::disallowed_methods, reason = "disks are mounted by programs of the system")]
fn system(program: &str, arguments: &[&str]) -> Result<(), String> {
    let said = Command::new(program).args(arguments).output().map_err(|error| format!("{program}: {error}"))?;
    if said.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&said.stderr).into_owned()) }
}

impl SmallDisk {
    /// Moves a folder onto a disk of its own.
    fn under(folder: &Path) -> Result<Self, String> {
        let before = folder.with_extension("before");
        let text = |path: &Path| path.to_str().expect("paths of tests are text").to_owned();
        fs::rename(folder, &before).and_then(|()| fs::create_dir(folder)).map_err(|error| error.to_string())?;
        system("mount", &["-t", "tmpfs", "-o", "size=48m,mode=700", "tmpfs", &text(folder)])?;
        let disk = Self(folder.to_owned());
        system("cp", &["-a", &format!("{}/.", text(&before)), &text(folder)])?;
        Ok(disk)
    }

    /// Leaves no byte.
    fn fill(&self) {
        let mut file = File::create(self.0.join("filler")).expect("there is room for a name");
        let full = (0..).find_map(|_| file.write_all(&[1; 4096]).err()).expect("it is small");
        assert_eq!(full.kind(), std::io::ErrorKind::StorageFull);
        while file.write_all(&[1]).is_ok() {}
    }

    fn clear(&self) {
        fs::remove_file(self.0.join("filler")).expect("it was filled");
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // Lazily: the daemon may still have it open when the test fails.
        let _ = system("umount", &["-l", self.0.to_str().expect("paths of tests are text")]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn promise_06_a_full_disk_is_refused_before_any_effect_and_results_have_room() {
    let mut cluster = Cluster::start(1, 1).await;
    let Cluster { api, nodes, .. } = &mut cluster;
    let node = &mut nodes[0];
    node.kill();
    let disk = match SmallDisk::under(&node.path("state")) {
        Ok(disk) => disk,
        Err(error) => {
            let shown =
                format!("NOT TESTED: a full disk needs a disk of its own, and none can be mounted here: {error}\n");
            std::io::stderr().write_all(shown.as_bytes()).expect("standard error is open");
            return;
        }
    };
    node.start();
    node.hang_driver(true);
    let before = api.run(&node.id, COUNT.name, "before", Node::counted(0, 0)).await;
    node.hangs(1).await;
    node.hang_driver(false);
    disk.fill();
    // What is accepted has room for its result; the reserve is for that, and what comes after it is spent is refused.
    let mut was_refused = false;
    for gpu in 1..8 {
        let command = api.run(&node.id, COUNT.name, &format!("full-{gpu}"), Node::counted(gpu, 0)).await;
        let settled = api.settled(&command).await;
        match (settled.state.as_str(), settled.reason.as_str()) {
            ("succeeded", "") => assert!(!was_refused && node.count(gpu) == 1, "{settled:?}"),
            ("rejected", "NO_SPACE") => {
                assert_eq!(node.count(gpu), 0);
                was_refused = true;
            }
            other => panic!("{other:?}"),
        }
    }
    assert!(was_refused);
    let _pipe = node.release();
    assert_eq!(api.settled(&before).await.state, "succeeded");
    assert_eq!(node.count(0), 1);
    // A daemon that starts on the full disk goes on as well.
    node.start();
    let refused = api.run(&node.id, COUNT.name, "restarted", Node::counted(1, 0)).await;
    let settled = api.settled(&refused).await;
    assert_eq!((settled.state.as_str(), settled.reason.as_str()), ("rejected", "NO_SPACE"));
    disk.clear();
    let after = api.run(&node.id, COUNT.name, "after", Node::counted(0, 0)).await;
    assert_eq!(api.settled(&after).await.state, "succeeded");
    assert_eq!(node.count(0), 2);
    node.kill();
}

#[derive(Debug, Clone, Copy)]
enum Damage {
    /// Cut to this part of its length.
    Cut(f64),
    /// One bit of the byte at this part of its length.
    Flip(f64),
}

impl Damage {
    fn inflict(self, path: &Path) {
        let file = File::options().read(true).write(true).open(path).expect("it is there");
        let bytes = file.metadata().expect("it is there").len();
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a part of a small file")]
        let at = |part: f64| ((bytes as f64 * part) as u64).min(bytes - 1);
        match self {
            Self::Cut(part) => file.set_len(at(part)).expect("it can be cut"),
            Self::Flip(part) => {
                let mut byte = [0];
                file.read_exact_at(&mut byte, at(part)).expect("it is there");
                file.write_all_at(&[byte[0] ^ 0x10], at(part)).expect("it is there");
            }
        }
    }
}

fn set_aside(node: &Node) -> usize {
    let state = fs::read_dir(node.path("state")).expect("it is there").filter_map(Result::ok);
    let names = state.map(|entry| entry.file_name().to_string_lossy().into_owned());
    names.filter(|name| name.contains(".before-") && !name.ends_with("-wal") && !name.ends_with("-shm")).count()
}

#[tokio::test(flavor = "multi_thread")]
async fn promise_07_a_daemon_with_a_damaged_journal_starts_and_says_what_it_lost() {
    use Damage::{Cut, Flip};
    let mut cluster = Cluster::start(1, 1).await;
    let Cluster { api, nodes, .. } = &mut cluster;
    let node = &mut nodes[0];
    let mut lost = 0;
    for (case, (file, damage)) in [
        ("journal.sqlite", Cut(0.0)),
        ("journal.sqlite", Cut(0.5)),
        ("journal.sqlite", Flip(0.0)),
        ("journal.sqlite", Flip(0.01)),
        ("journal.sqlite", Flip(0.5)),
        // Not its end: a log whose last transaction is missing cannot be told from a power cut, as `log.rs` says.
        ("journal.sqlite-wal", Flip(0.0)),
        ("journal.sqlite-wal", Flip(0.1)),
        ("journal.sqlite-wal", Flip(0.3)),
        ("journal.sqlite-wal", Flip(0.5)),
    ]
    .into_iter()
    .enumerate()
    {
        let gpu = u32::try_from(case % 7).expect("few");
        let (count, aside) = (node.count(gpu), set_aside(node));
        let key = format!("{file} {damage:?}");
        // Transactions of others, for the log to be about more than this command.
        for earlier in 0..4 {
            let command = api.run(&node.id, COUNT.name, &format!("{key} {earlier}"), Node::counted(7, 0)).await;
            assert_eq!(api.settled(&command).await.state, "succeeded");
        }
        let command = api.run(&node.id, COUNT.name, &key, Node::counted(gpu, 600_000)).await;
        node.has_counted(gpu, count + 1).await;
        node.kill();
        damage.inflict(&node.path("state").join(file));
        node.start();
        let settled = api.settled(&command).await;
        // Damage in a place that holds nothing loses nothing.
        let is_lost = set_aside(node) > aside;
        lost += usize::from(is_lost);
        let reason = if is_lost { "journal-lost" } else { "interrupted" };
        assert_eq!(settled.reason, reason, "{key}: {settled:?}");
        assert_eq!(node.count(gpu), count + 1, "{key}");
    }
    assert!(lost >= 5, "only {lost} were noticed");
    let after = api.run(&node.id, COUNT.name, "after", Node::counted(7, 0)).await;
    assert_eq!(api.settled(&after).await.state, "succeeded");
}
