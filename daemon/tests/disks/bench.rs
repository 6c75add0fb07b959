//! Loop devices, a folder that plays a machine around them, and disk tools that a test scripts.
//!
//! **Invariant:** every loop device that was made is detached, and every mount undone, however the test ends.

use std::fs;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bc_daemon::capability::block_devices::{Disks, Doing, Images, Tools};
use bc_daemon::capability::process::PATH;
use bc_runtime::Watcher;
use bc_runtime::capability::block_devices::{EraseReport, EraseRequest, ImageReport, ImageRequest, SampleReport};
use bc_runtime::capability::{Answer, BlockDevices};
use bc_runtime::v1::wit::log::Level;
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;

pub(crate) const MIB: u64 = 1024 * 1024;

/// Runs a program that must succeed; answers what it printed.
#[expect(clippy::disallowed_methods, reason = "these tests need real loop devices")]
pub(crate) fn sh(program: &str, argv: &[&str]) -> String {
    let out = Command::new(program).args(argv).output().unwrap_or_else(|error| panic!("{program}: {error}"));
    assert!(
        out.status.success(),
        "{program} {argv:?}: {}\n(these tests need root, /dev/loop-control, and losetup, mount and mkfs.ext4)",
        String::from_utf8_lossy(&out.stderr)
    );
    String::from_utf8(out.stdout).expect("text").trim().to_owned()
}

/// A loop device over a file.
pub(crate) struct Loop {
    /// `/dev/loop…`
    pub(crate) path: String,
    pub(crate) file: PathBuf,
    mounts: Vec<PathBuf>,
}

impl Loop {
    /// Over a new sparse file.
    pub(crate) fn new(file: &Path, bytes: u64) -> Self {
        fs::File::create(file).and_then(|it| it.set_len(bytes)).expect("a file is made");
        let path = sh("losetup", &["-f", "--show", file.to_str().expect("text")]);
        Self { path, file: file.to_owned(), mounts: Vec::new() }
    }

    /// Makes a file system on it and mounts it.
    pub(crate) fn mount(&mut self, at: &Path) {
        fs::create_dir_all(at).expect("a folder");
        sh("mkfs.ext4", &["-q", "-F", &self.path]);
        sh("mount", &[&self.path, at.to_str().expect("text")]);
        self.mounts.push(at.to_owned());
    }

    pub(crate) fn fill(&self, byte: u8) {
        let bytes = fs::metadata(&self.file).expect("it is there").len();
        let file = fs::File::options().write(true).open(&self.path).expect("it opens");
        let piece = vec![byte; 65_536];
        for at in (0..bytes).step_by(piece.len()) {
            file.write_all_at(&piece[..piece.len().min(usize::try_from(bytes - at).expect("small"))], at)
                .expect("written");
        }
        file.sync_all().expect("synced");
    }

    pub(crate) fn bytes(&self, offset: u64, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        fs::File::open(&self.file).and_then(|file| file.read_exact_at(&mut bytes, offset)).expect("it reads");
        bytes
    }

    fn number(&self) -> String {
        let number = fs::metadata(&self.path).expect("it is there").rdev();
        format!("{}:{}", rustix::fs::major(number), rustix::fs::minor(number))
    }
}

impl Drop for Loop {
    #[expect(clippy::disallowed_methods, reason = "what was made is unmade")]
    fn drop(&mut self) {
        for mount in &self.mounts {
            let _ = Command::new("umount").arg(mount).status();
        }
        let _ = Command::new("losetup").args(["-d", &self.path]).status();
    }
}

/// A file system in memory of so many MiB.
pub(crate) struct Memory(pub(crate) PathBuf);

impl Memory {
    pub(crate) fn new(at: PathBuf, mib: u64) -> Self {
        fs::create_dir_all(&at).expect("a folder");
        sh("mount", &["-t", "tmpfs", "-o", &format!("size={mib}m"), "tmpfs", at.to_str().expect("text")]);
        Self(at)
    }
}

impl Drop for Memory {
    #[expect(clippy::disallowed_methods, reason = "what was made is unmade")]
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

/// What the disks say while they work.
#[derive(Default)]
pub(crate) struct Heard {
    pub(crate) progress: Mutex<Vec<(u64, Option<u64>, String)>>,
    /// Called off when something is heard that holds these words.
    calls_off: Mutex<Option<(String, CancellationToken)>>,
}

impl Watcher for Heard {
    fn log(&self, _: Level, _: &str, _: &str, _: &str) {}

    fn progress(&self, done: u64, total: Option<u64>, _: &str, message: &str) {
        self.progress.lock().expect("no panic").push((done, total, message.to_owned()));
        if let Some((words, token)) = &*self.calls_off.lock().expect("no panic")
            && message.contains(words.as_str())
        {
            token.cancel();
        }
    }

    fn now_ms(&self) -> u64 {
        1
    }

    fn role(&self) -> String {
        "ramdisk".into()
    }
}

/// A machine with disks, and one run on it.
pub(crate) struct Bench {
    pub(crate) folder: TempDir,
    pub(crate) images: Images,
    pub(crate) heard: Arc<Heard>,
    pub(crate) cancel: CancellationToken,
    pub(crate) over: CancellationToken,
    root: PathBuf,
}

impl Bench {
    /// A folder that plays a machine without disks.
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let root = folder.path().join("root");
        for folder in ["sys/block", "proc/self", "dev"] {
            fs::create_dir_all(root.join(folder)).expect("a folder");
        }
        fs::create_dir(folder.path().join("tools")).expect("a folder");
        fs::write(root.join("proc/self/mountinfo"), "").expect("written");
        Self {
            root,
            folder,
            images: Images { stall: Duration::from_secs(5), retry: Duration::from_millis(2), ..Images::default() },
            heard: Arc::default(),
            cancel: CancellationToken::new(),
            over: CancellationToken::new(),
        }
    }

    /// This machine itself.
    pub(crate) fn real() -> Self {
        Self { root: "/".into(), ..Self::new() }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    pub(crate) fn loop_of(&self, name: &str, bytes: u64) -> Loop {
        Loop::new(&self.path(name), bytes)
    }

    /// Lets a loop device play a drive of this name.
    pub(crate) fn drive(&self, name: &str, behind: &Loop, serial: Option<&str>) {
        let folder = self.root.join("sys/block").join(name);
        fs::create_dir_all(folder.join("device")).expect("a folder");
        let sectors = fs::metadata(&behind.file).expect("it is there").len() / 512;
        let vendor = if name.starts_with("sd") { "ATA     " } else { "" };
        let files = [
            ("dev", behind.number()),
            ("size", sectors.to_string()),
            ("device/model", "ACME Drive 1   ".into()),
            ("device/vendor", vendor.into()),
            ("device/serial", serial.unwrap_or_default().into()),
        ];
        for (file, text) in files {
            fs::write(folder.join(file), text).expect("written");
        }
        symlink(&behind.path, self.root.join("dev").join(name)).expect("a link");
    }

    /// A tool: a script that is called with `$DIR`, a folder for its state. It writes down how it was called.
    pub(crate) fn tool(&self, name: &str, script: &str) {
        let file = self.path("tools").join(name);
        let dir = self.folder.path().display();
        let text = format!(
            "#!/bin/sh\nDIR={dir}\necho \"$0 $*\" | sed 's|.*/tools/||; s|{dir}/root||' >> $DIR/calls\n{script}\n"
        );
        fs::write(&file, text).expect("written");
        fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).expect("it may run");
    }

    /// How the tools were called, a line each.
    pub(crate) fn calls(&self) -> Vec<String> {
        let text = fs::read_to_string(self.path("calls")).unwrap_or_default();
        text.lines().map(ToOwned::to_owned).collect()
    }

    /// The run is called off when something is said of it.
    pub(crate) fn call_off_at(&self, words: &str, token: &CancellationToken) {
        *self.heard.calls_off.lock().expect("no panic") = Some((words.to_owned(), token.clone()));
    }

    /// Asks the disks, on a thread that may block.
    pub(crate) async fn ask<T: Send + 'static>(
        &self,
        ask: impl FnOnce(&dyn BlockDevices) -> Answer<T> + Send + 'static,
    ) -> Result<T, (String, String)> {
        let tools = Tools { path: format!("{}:{PATH}", self.path("tools").display()), poll: Duration::from_millis(5) };
        let supervisor = Some(env!("CARGO_BIN_EXE_bcd").into());
        let disks = Disks::new(self.root.clone(), supervisor, tools, &self.images).expect("the sources fit");
        let doing = Doing { watcher: self.heard.clone(), cancel: self.cancel.clone(), over: self.over.clone() };
        let of_run = disks.of(doing);
        let answer = tokio::task::spawn_blocking(move || ask(&*of_run)).await.expect("no panic");
        answer.map_err(|error| (error.code, error.message))
    }

    pub(crate) async fn erase(
        &self,
        device: &str,
        serial: Option<&str>,
        method: &str,
    ) -> Result<EraseReport, (String, String)> {
        let request = EraseRequest { device: device.into(), serial: serial.map(Into::into), method: method.into() };
        self.ask(move |disks| disks.erase(&request)).await
    }

    pub(crate) async fn write(&self, device: &str, image: &str, sha256: &str) -> Result<ImageReport, (String, String)> {
        let request = ImageRequest { device: device.into(), serial: None, image: image.into(), sha256: sha256.into() };
        self.ask(move |disks| disks.write_image(&request)).await
    }

    pub(crate) async fn sample(&self, device: &str, count: u32) -> SampleReport {
        let device = device.to_owned();
        self.ask(move |disks| disks.sample(&device, count, 7)).await.expect("it reads")
    }

    pub(crate) async fn identify(&self, device: &str) -> serde_json::Value {
        let device = device.to_owned();
        let text = self.ask(move |disks| disks.identify(&device)).await.expect("it is there");
        serde_json::from_str(&text).expect("JSON")
    }
}
