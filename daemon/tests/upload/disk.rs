//! A disk that is full, which really is one.

use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Instant;

use bc_daemon::capability::upload::{Refresh, Settings, Uploads};
use bc_daemon::server_time::ServerTime;
use bc_proto::id::CommandId;
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::store::Store;
use crate::{ControlPlane, MINUTE_MS, NOW_MS, settings};

/// A disk of 8 MiB, until it is dropped.
struct SmallDisk(TempDir);

#[expect(clippy::disallowed_methods, reason = "disks are mounted by programs of the system")]
fn system(program: &str, arguments: &[&str]) -> Result<(), String> {
    let said = Command::new(program).args(arguments).output().map_err(|error| format!("{program}: {error}"))?;
    if said.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&said.stderr).into_owned()) }
}

fn text(path: &Path) -> &str {
    path.to_str().expect("paths of tests are text")
}

impl SmallDisk {
    /// None, and said so, where none can be mounted.
    fn mount() -> Option<Self> {
        let folder = tempfile::tempdir().expect("a folder");
        match system("mount", &["-t", "tmpfs", "-o", "size=8m,mode=700", "tmpfs", text(folder.path())]) {
            Ok(()) => Some(Self(folder)),
            Err(error) => {
                let shown =
                    format!("NOT TESTED: a full disk needs a disk of its own, and none can be mounted: {error}\n");
                std::io::stderr().write_all(shown.as_bytes()).expect("standard error is open");
                None
            }
        }
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = system("umount", &["-l", text(self.0.path())]);
    }
}

async fn full(keep_free_bytes: u64) {
    let Some(disk) = SmallDisk::mount() else { return };
    let store = Store::start(NOW_MS, &[]).await;
    let time = ServerTime::unknown(Instant::now());
    time.set(NOW_MS, Instant::now());
    let settings = Settings { keep_free_bytes, ..settings(&disk.0.path().join("spool")) };
    let refresh: Arc<dyn Refresh> = ControlPlane::giving(vec![]);
    let uploads = Uploads::new(settings, refresh, time).expect("TLS can be set up");
    let destination = store.upload(NOW_MS, NOW_MS + 15 * MINUTE_MS);
    let command = CommandId::from_uuid(Uuid::nil());
    let upload = uploads.of(command, Some(destination), None, CancellationToken::new());
    let handle = upload.begin("text/plain").expect("there is room for a beginning");
    let piece = vec![1; 64 * 1024];
    let (written, error) =
        (0..).find_map(|at| Some((at, upload.write(handle, &piece).err()?))).expect("it is a small disk");
    assert!(error.code == "no-space" && error.message.contains("free space"), "{}", error.message);
    assert_eq!(error.native, Some(28), "ENOSPC");
    let wanted = (8 * 1024 * 1024 - keep_free_bytes) / piece.len() as u64;
    assert!((wanted - 2..=wanted).contains(&written), "{written} pieces were taken");
    // Nothing is half done: the spool is gone, its bytes are free again, and nothing was sent.
    assert_eq!(upload.finish(handle).expect_err("it is gone").code, "not-found");
    fs::write(disk.0.path().join("filler"), vec![1; 7 * 1024 * 1024]).expect("the disk has room again");
    assert_eq!(store.seen().len(), 0);
    if keep_free_bytes > 1024 * 1024 {
        assert_eq!(upload.begin("text/plain").expect_err("there is none left").code, "no-space");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn promise_05_a_full_disk_ends_an_upload_and_leaves_nothing() {
    full(0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn promise_05_an_upload_leaves_the_last_of_a_disk_to_the_node() {
    full(2 * 1024 * 1024).await;
}
