//! Bundles of a played node.

use std::collections::BTreeMap;
use std::io::Read as _;

use serde_json::Value;

use super::*;
use crate::archive;

/// A file of a played node.
#[derive(Clone)]
struct Log {
    content: Vec<u8>,
    modified_ms: u64,
    /// What is left of it once it has been listed.
    becomes: Option<Vec<u8>>,
}

#[derive(Default)]
struct Played {
    files: BTreeMap<String, Log>,
    programs: BTreeMap<&'static str, (Vec<u8>, Option<Exit>)>,
    /// What NVIDIA's script writes.
    report: Option<Vec<u8>>,
    ran: Vec<String>,
}

fn error(code: &str) -> Error {
    Error { code: code.into(), native: None, message: format!("it is {code}") }
}

impl Played {
    fn with(mut self, path: &str, modified_ms: u64, content: impl Into<Vec<u8>>) -> Self {
        self.files.insert(path.into(), Log { content: content.into(), modified_ms, becomes: None });
        self
    }

    fn says(mut self, program: &'static str, said: impl Into<Vec<u8>>, exit: Option<Exit>) -> Self {
        self.programs.insert(program, (said.into(), exit));
        self
    }
}

impl Node for Played {
    fn entries(&mut self, folder: &str) -> Result<Vec<Entry>, Error> {
        let mut entries: BTreeMap<String, Entry> = BTreeMap::new();
        for (path, log) in &self.files {
            let Some(rest) = path.strip_prefix(folder).and_then(|rest| rest.strip_prefix('/')) else { continue };
            let (name, file_type) = match rest.split_once('/') {
                Some((name, _)) => (name, FileType::Folder),
                None => (rest, FileType::File),
            };
            let (size_bytes, modified_ms) = (log.content.len() as u64, Some(log.modified_ms));
            entries.insert(name.into(), Entry { name: name.into(), file_type, size_bytes, modified_ms });
        }
        if entries.is_empty() { Err(error("not-found")) } else { Ok(entries.into_values().collect()) }
    }

    fn read(&mut self, file: &str, offset: u64, max_bytes: u32) -> Result<Vec<u8>, Error> {
        assert!(max_bytes as usize <= PIECE);
        let log = self.files.get_mut(file).ok_or_else(|| error("not-found"))?;
        if let Some(becomes) = log.becomes.take() {
            log.content = becomes;
        }
        let from = usize::try_from(offset).expect("small").min(log.content.len());
        let to = (from + max_bytes as usize).min(log.content.len());
        Ok(log.content[from..to].to_vec())
    }

    fn inventory(&mut self) -> Result<String, Error> {
        Ok("{}".into())
    }

    fn stream(&mut self, program: &str, argv: &[String], _: u64, take: &mut dyn FnMut(&[u8])) -> Result<Exit, Error> {
        self.ran.push(format!("{program} {}", argv.join(" ")));
        let (said, exit) = self.programs.get(program).ok_or_else(|| error("not-found"))?;
        said.chunks(1000).for_each(take);
        exit.clone().ok_or_else(|| error("unkillable"))
    }

    fn run(&mut self, program: &str, argv: &[String], _: u64) -> Result<Exit, Error> {
        self.ran.push(format!("{program} {}", argv.join(" ")));
        let (_, exit) = self.programs.get(program).ok_or_else(|| error("not-found"))?.clone();
        if let Some(content) = self.report.clone() {
            let log = Log { content, modified_ms: 9_000_000, becomes: None };
            self.files.insert(format!("{NVIDIA_REPORT}.gz"), log);
        }
        exit.ok_or_else(|| error("unkillable"))
    }

    fn tell(&mut self, _: &str) {}
}

fn plan(sources: &[Source], max_bytes: u64) -> Plan {
    Plan { sources: sources.to_vec(), since_s: 3_600, patterns: vec!["*".into()], max_bytes }
}

/// The manifest and the files of a bundle, which the bundle has room for.
struct Bundle {
    manifest: Value,
    files: BTreeMap<String, Vec<u8>>,
    truncated: bool,
}

fn bundle(node: &mut Played, plan: &Plan) -> Bundle {
    let about = About {
        command_id: "cmd_1".into(),
        node_id: "node_1".into(),
        attempt: 1,
        server_time_ms: 5,
        since_s: plan.since_s,
    };
    let Collected { files, skipped, problems, truncated } = collect(node, plan, &about);
    let mut bytes = Vec::new();
    let put = &mut |piece: &[u8]| {
        bytes.extend_from_slice(piece);
        Ok::<_, ()>(())
    };
    archive::write(files, &skipped, &problems, put).expect("it is written");
    assert!(bytes.len() as u64 <= plan.max_bytes, "{} bytes of {}", bytes.len(), plan.max_bytes);
    let raw = zstd::decode_all(&bytes[..]).expect("zstd reads it");
    let mut archive = tar::Archive::new(&raw[..]);
    let mut files = BTreeMap::new();
    for entry in archive.entries().expect("tar reads it") {
        let mut entry = entry.expect("a good header");
        let mut content = Vec::new();
        entry.read_to_end(&mut content).expect("all of it");
        files.insert(entry.path().expect("a path").display().to_string(), content);
    }
    let manifest = files.remove("manifest.json").expect("it has one");
    let manifest: Value = serde_json::from_slice(&manifest).expect("JSON");
    for file in manifest["files"].as_array().expect("a list") {
        let content = &files[file["path"].as_str().expect("a path")];
        assert_eq!(file["bytes"], content.len());
        assert_eq!(file["sha256"], sha256(content).as_str());
    }
    Bundle { manifest, files, truncated }
}

fn sha256(bytes: &[u8]) -> String {
    use sha2::Digest as _;
    crate::pieces::hex(&sha2::Sha256::digest(bytes))
}

fn noise(bytes: usize, seed: u64) -> Vec<u8> {
    let mut state = seed | 1;
    let step = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()[0]
    };
    std::iter::repeat_with(step).take(bytes).collect()
}

#[test]
fn every_source_has_its_file() {
    let mut node = Played { report: Some(b"gz".to_vec()), ..Played::default() }
        .with("/var/log/syslog", 5_000_000, "s")
        .with("/var/log/app/a.log", 4_000_000, "a")
        .with("/var/log/journal/x/system.journal", 5_000_000, "binary")
        .with("/var/log/old.log", 1_000, "o")
        .with("/var/lib/bcd/public/about.json", 1, "{}")
        .says("journalctl", "j\n", Some(Exit::Well))
        .says("dmesg", "d\n", Some(Exit::Well))
        .says("nvidia-bug-report.sh", "", Some(Exit::Well));
    let all = bundle(&mut node, &plan(&Source::ALL, MAX_BYTES));
    let names: Vec<_> = all.files.keys().map(String::as_str).collect();
    assert_eq!(
        names,
        [
            "daemon/about.json",
            "daemon/bcd.log",
            "daemon/command.json",
            "daemon/inventory.json",
            "files/var/log/app/a.log",
            "files/var/log/syslog",
            "journal/system.log",
            "kernel/dmesg.log",
            "nvidia/nvidia-bug-report.log.gz",
        ]
    );
    assert_eq!(all.files["nvidia/nvidia-bug-report.log.gz"], b"gz");
    assert_eq!(all.manifest["problems"], serde_json::json!([]));
    let skipped = all.manifest["skipped"].to_string();
    assert!(skipped.contains("1 files below /var/log were changed last before") && !skipped.contains("system.journal"));
    assert!(
        node.ran.contains(&"journalctl --no-pager --quiet --output=short-iso --lines=1000000 --since=-3600s".into())
    );
    assert!(!all.truncated);
}

#[test]
fn a_source_that_is_not_there_costs_itself_alone() {
    let all = bundle(&mut Played::default().with("/var/log/a", 1, "a"), &plan(&Source::ALL, MAX_BYTES));
    let skipped = all.manifest["skipped"].as_array().expect("a list");
    let of = |source: &str| {
        skipped.iter().any(|it| it["source"] == source && it["reason"].to_string().contains("not-found"))
    };
    assert!(["daemon", "kernel", "nvidia", "journal"].into_iter().all(of), "{skipped:?}");
    assert_eq!(all.files["files/var/log/a"], b"a");
}

#[test]
fn what_a_program_said_before_it_failed_is_kept_with_the_reason() {
    for (exit, reason) in [
        (Some(Exit::Badly("ended with code 1: no".into())), "dmesg ended with code 1: no"),
        (Some(Exit::TimedOut), "dmesg was stopped after 30 s"),
        (None, "it is unkillable (unkillable)"),
    ] {
        let mut node = Played::default().says("dmesg", "half", exit.clone());
        let all = bundle(&mut node, &plan(&[Source::Kernel], MAX_BYTES));
        assert_eq!(all.files["kernel/dmesg.log"], b"half");
        assert!(all.manifest["problems"][0].to_string().contains(reason), "{}", all.manifest);
        let mut node = Played::default().says("dmesg", "", exit);
        let nothing = bundle(&mut node, &plan(&[Source::Kernel], MAX_BYTES));
        assert!(nothing.files.is_empty() && nothing.manifest["skipped"][0]["reason"].to_string().contains(reason));
    }
}

#[test]
fn nvidias_partial_report_is_kept_and_one_of_before_is_not_passed_off() {
    let path = format!("{NVIDIA_REPORT}.gz");
    let mut stopped = Played { report: Some(b"part".to_vec()), ..Played::default() }.with(&path, 1, "before").says(
        "nvidia-bug-report.sh",
        "",
        Some(Exit::TimedOut),
    );
    let all = bundle(&mut stopped, &plan(&[Source::Nvidia], MAX_BYTES));
    assert_eq!(all.files["nvidia/nvidia-bug-report.log.gz"], b"part");
    assert!(all.manifest["problems"][0].to_string().contains("was stopped after 240 s"));

    let mut nothing = Played::default().with(&path, 1, "before").says("nvidia-bug-report.sh", "", Some(Exit::TimedOut));
    let all = bundle(&mut nothing, &plan(&[Source::Nvidia], MAX_BYTES));
    assert!(all.files.is_empty());
    assert!(all.manifest["skipped"][0]["reason"].to_string().contains("wrote no report"), "{}", all.manifest);
}

#[test]
fn promise_17_a_log_that_grows_meanwhile_is_in_it_as_long_as_it_was() {
    let mut node = Played::default().with("/var/log/a", 1, noise(PIECE + 10, 3));
    let log = node.files.get_mut("/var/log/a").expect("it is there");
    let before = log.content.clone();
    log.becomes = Some([&before[..], b"and more"].concat());
    let all = bundle(&mut node, &plan(&[Source::Files], MAX_BYTES));
    assert!(all.files["files/var/log/a"] == before && !all.truncated);
    assert_eq!(all.manifest["problems"], serde_json::json!([]));
}

#[test]
fn promise_17_a_log_that_shrinks_meanwhile_is_marked() {
    let mut node = Played::default().with("/var/log/a", 1, noise(2 * PIECE + 10, 3));
    node.files.get_mut("/var/log/a").expect("it is there").becomes = Some(b"rotated".to_vec());
    let all = bundle(&mut node, &plan(&[Source::Files], MAX_BYTES));
    assert_eq!(all.files["files/var/log/a"], b"rotated");
    assert_eq!(all.manifest["files"][0]["truncated"], true);
    assert!(all.manifest["problems"][0].to_string().contains("became shorter"));
}

#[test]
fn the_newest_is_kept_where_there_is_no_room() {
    let (new, old) = (noise(3 * PIECE, 5), noise(PIECE, 6));
    let mut node = Played::default().with("/var/log/new", 2_000_000, new.clone()).with("/var/log/old", 1_000_000, old);
    let all = bundle(&mut node, &plan(&[Source::Files], 2 * PIECE as u64));
    let kept = &all.files["files/var/log/new"];
    assert!(kept.len() > PIECE / 3 && new.ends_with(kept), "{} bytes of the end", kept.len());
    assert!(all.truncated && all.manifest["files"][0]["truncated"] == true);
    assert!(all.files["files/var/log/old"].len() == PIECE, "a huge log leaves something to the older ones");

    let mut node = Played::default().says("journalctl", noise(5 * PIECE, 8), Some(Exit::Well));
    let all = bundle(&mut node, &plan(&[Source::Journal], 3 * PIECE as u64));
    assert!(all.truncated && noise(5 * PIECE, 8).ends_with(&all.files["journal/system.log"]));
    assert!(all.files["journal/system.log"].len() >= PIECE);
}

#[test]
fn the_journal_leaves_half_of_the_room_to_the_files() {
    let mut node = Played::default().with("/var/log/a", 1, noise(PIECE, 1)).says(
        "journalctl",
        noise(9 * PIECE, 2),
        Some(Exit::Well),
    );
    let all = bundle(&mut node, &plan(&[Source::Journal, Source::Files], 4 * PIECE as u64));
    assert_eq!(all.files["files/var/log/a"].len(), PIECE);
}

#[test]
fn many_files_are_bounded_and_counted() {
    let mut node = Played::default();
    for at in 0..2_000_u64 {
        node = node.with(&format!("/var/log/{at:04}"), at, "x");
    }
    let all = bundle(&mut node, &plan(&[Source::Files], MIN_BYTES));
    assert!(all.files.len() <= MAX_FILES && all.files.len() > 500, "{}", all.files.len());
    assert!(all.files.contains_key("files/var/log/1999") && !all.files.contains_key("files/var/log/0000"));
    let skipped = all.manifest["skipped"].as_array().expect("a list");
    assert_eq!(skipped.len(), MAX_SKIPPED + 1);
    assert!(skipped[MAX_SKIPPED]["reason"].to_string().contains("more are not named"));
}
