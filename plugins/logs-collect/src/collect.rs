//! What goes into the bundle, and how much of it.
//!
//! Lengths are decided when a folder is listed, and that much is read, from the end of a file to its beginning: what a log grows by
//! meanwhile is not in the bundle. What a file lost meanwhile is not filled up: the file is marked as truncated, with a problem.
//!
//! **Invariant:** what is kept has at most the bytes that were allowed, and where there is no room it is the oldest that goes.

use sdk::files::{Entry, FileType};
use sdk::{Error, describe};
use serde::{Deserialize, Serialize};

use crate::archive::{File, Skipped, fits};
use crate::pieces::{PIECE, Pieces};
use crate::select::{Choice, FOLDER, Found, NVIDIA_REPORT, choose, newest_first};

/// The most that a bundle may have, whatever the destination takes: it is kept in memory until its manifest is known.
pub(crate) const MAX_BYTES: u64 = 256 * 1024 * 1024;
/// With less there is no room for the manifest and something of each source.
pub(crate) const MIN_BYTES: u64 = 1024 * 1024;

/// Of the bundle, for its manifest.
const FOR_MANIFEST: usize = 128 * 1024;
/// Of the bundle, for each file's header and its line in the manifest.
const FOR_FILE: usize = 512;
/// The most files of `/var/log`.
const MAX_FILES: usize = 1_000;
/// The most folders that are looked into.
const MAX_FOLDERS: usize = 1_000;
/// The most that is read of all files together, before it is compressed: it costs time to read and room to unpack.
const MAX_RAW: u64 = 512 * 1024 * 1024;
/// How many of what is skipped are named; the rest is counted.
const MAX_SKIPPED: usize = 500;
/// A rest of the bundle that is too small to begin a file with.
const CRUMB: usize = 4096;
/// The most lines of the journal: about 150 MB.
const JOURNAL_LINES: &str = "--lines=1000000";
const JOURNAL_MS: u64 = 3 * 60_000;
const DMESG_MS: u64 = 30_000;
/// NVIDIA's script may run for very long, or freeze.
const NVIDIA_MS: u64 = 4 * 60_000;
/// What the daemon says of itself to everybody.
const PUBLIC: &str = "/var/lib/bcd/public";

#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Source {
    Daemon,
    Kernel,
    Nvidia,
    Journal,
    Files,
}

impl Source {
    /// In the order in which they are collected: the small and the telling first.
    pub(crate) const ALL: [Self; 5] = [Self::Daemon, Self::Kernel, Self::Nvidia, Self::Journal, Self::Files];

    fn name(self) -> &'static str {
        match self {
            Self::Daemon => "daemon",
            Self::Kernel => "kernel",
            Self::Nvidia => "nvidia",
            Self::Journal => "journal",
            Self::Files => "files",
        }
    }
}

/// How a program ended.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum Exit {
    Well,
    Badly(String),
    TimedOut,
}

/// The node, as this kind sees it.
pub(crate) trait Node {
    fn entries(&mut self, folder: &str) -> Result<Vec<Entry>, Error>;
    fn read(&mut self, file: &str, offset: u64, max_bytes: u32) -> Result<Vec<u8>, Error>;
    fn inventory(&mut self) -> Result<String, Error>;
    /// Runs a program that only reads, and hands on what it says.
    fn stream(
        &mut self,
        program: &str,
        argv: &[String],
        timeout_ms: u64,
        take: &mut dyn FnMut(&[u8]),
    ) -> Result<Exit, Error>;
    fn run(&mut self, program: &str, argv: &[String], timeout_ms: u64) -> Result<Exit, Error>;
    /// Says how far it is.
    fn tell(&mut self, message: &str);
}

/// What one file may take of what is left: one that is huge leaves something to those that are older.
#[derive(Clone, Copy)]
enum Share {
    All,
    Half,
}

/// What is asked for.
pub(crate) struct Plan {
    pub(crate) sources: Vec<Source>,
    pub(crate) since_s: u64,
    pub(crate) patterns: Vec<String>,
    pub(crate) max_bytes: u64,
}

/// The run itself, for whoever reads the bundle.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct About {
    pub(crate) command_id: String,
    pub(crate) node_id: String,
    pub(crate) attempt: u32,
    pub(crate) server_time_ms: u64,
    pub(crate) since_s: u64,
}

/// What was collected.
#[derive(Default)]
pub(crate) struct Collected {
    pub(crate) files: Vec<File>,
    pub(crate) skipped: Vec<Skipped>,
    pub(crate) problems: Vec<String>,
    /// Something had no room.
    pub(crate) truncated: bool,
}

/// Collects it all.
pub(crate) fn collect(node: &mut impl Node, plan: &Plan, about: &About) -> Collected {
    let room = usize::try_from(plan.max_bytes).unwrap_or(usize::MAX).saturating_sub(FOR_MANIFEST);
    let mut work = Work { node, plan, room, raw: MAX_RAW, not_named: 0, out: Collected::default() };
    for source in Source::ALL.into_iter().filter(|source| plan.sources.contains(source)) {
        work.node.tell(source.name());
        match source {
            Source::Daemon => work.daemon(about),
            Source::Kernel => work.kernel(),
            Source::Nvidia => work.nvidia(),
            Source::Journal => work.journal(),
            Source::Files => work.files(),
        }
    }
    if work.not_named > 0 {
        let reason = format!("{} more are not named", work.not_named);
        work.out.skipped.push(Skipped { path: None, source: None, reason });
    }
    work.out
}

struct Work<'a, N> {
    node: &'a mut N,
    plan: &'a Plan,
    /// What is left of the bundle.
    room: usize,
    /// What may still be read of files.
    raw: u64,
    not_named: usize,
    out: Collected,
}

impl<N: Node> Work<'_, N> {
    fn skip(&mut self, path: Option<String>, source: Option<Source>, reason: String) {
        if self.out.skipped.len() < MAX_SKIPPED {
            self.out.skipped.push(Skipped { path, source: source.map(Source::name), reason });
        } else {
            self.not_named += 1;
        }
    }

    fn skip_source(&mut self, source: Source, reason: String) {
        self.skip(None, Some(source), reason);
    }

    fn keep(&mut self, source: Source, path: String, pieces: Pieces) {
        let (kept, used) = pieces.finish();
        self.room = self.room.saturating_sub(used + FOR_FILE);
        self.out.truncated |= kept.truncated;
        self.out.files.push(File { path, source: source.name(), kept });
    }

    fn text(&mut self, source: Source, path: &str, text: &str) {
        let mut pieces = Pieces::new(self.room);
        pieces.append(text.as_bytes());
        self.keep(source, path.to_owned(), pieces);
    }

    fn daemon(&mut self, about: &About) {
        let about = serde_json::to_string_pretty(about).expect("text and numbers are JSON");
        self.text(Source::Daemon, "daemon/command.json", &about);
        match self.node.inventory() {
            Ok(inventory) => self.text(Source::Daemon, "daemon/inventory.json", &inventory),
            Err(error) => self.skip_source(Source::Daemon, format!("the inventory: {}", describe(&error))),
        }
        match self.node.entries(PUBLIC) {
            Ok(entries) => {
                for entry in entries.into_iter().filter(|entry| entry.file_type == FileType::File) {
                    let path = format!("daemon/{}", entry.name);
                    let found =
                        Found { path: format!("{PUBLIC}/{}", entry.name), bytes: entry.size_bytes, modified_ms: None };
                    self.file(Source::Daemon, path, &found, Share::All);
                }
            }
            Err(error) => self.skip_source(Source::Daemon, describe(&error).to_string()),
        }
        let argv = self.journal_argv(&["--unit=bcd.service"]);
        self.program(Source::Daemon, "daemon/bcd.log", "journalctl", &argv, JOURNAL_MS, self.room / 4);
    }

    fn kernel(&mut self) {
        let argv = ["--decode", "--time-format", "iso"].map(str::to_owned);
        self.program(Source::Kernel, "kernel/dmesg.log", "dmesg", &argv, DMESG_MS, self.room / 4);
    }

    fn journal(&mut self) {
        let is_last = !self.plan.sources.contains(&Source::Files);
        let allowed = if is_last { self.room } else { self.room / 2 };
        let argv = self.journal_argv(&[]);
        self.program(Source::Journal, "journal/system.log", "journalctl", &argv, JOURNAL_MS, allowed);
    }

    /// The span goes back from now by the node's own clock, which also wrote the entries.
    fn journal_argv(&self, more: &[&str]) -> Vec<String> {
        let since = format!("--since=-{}s", self.plan.since_s);
        let all = ["--no-pager", "--quiet", "--output=short-iso", JOURNAL_LINES, &since];
        all.iter().chain(more).map(|argument| (*argument).to_owned()).collect()
    }

    /// What a program says becomes a file.
    fn program(&mut self, source: Source, path: &str, program: &str, argv: &[String], timeout_ms: u64, allowed: usize) {
        let mut pieces = Pieces::new(allowed);
        let mut is_empty = true;
        let ended = self.node.stream(program, argv, timeout_ms, &mut |bytes| {
            is_empty &= bytes.is_empty();
            pieces.append(bytes);
        });
        let why = match ended {
            Ok(Exit::Well) => None,
            Ok(Exit::Badly(how)) => Some(format!("{program} {how}")),
            Ok(Exit::TimedOut) => Some(format!("{program} was stopped after {} s", timeout_ms / 1000)),
            Err(error) => Some(format!("{program}: {}", describe(&error))),
        };
        match why {
            Some(why) if is_empty => self.skip_source(source, why),
            Some(why) => {
                self.out.problems.push(format!("{path} is not whole: {why}"));
                self.keep(source, path.to_owned(), pieces);
            }
            None => self.keep(source, path.to_owned(), pieces),
        }
    }

    fn nvidia(&mut self) {
        let report = format!("{NVIDIA_REPORT}.gz");
        let before = self.find(&report);
        let argv = ["--safe-mode", "--output-file", NVIDIA_REPORT].map(str::to_owned);
        let ended = self.node.run("nvidia-bug-report.sh", &argv, NVIDIA_MS);
        let why = match ended {
            Ok(Exit::Well) => None,
            Ok(Exit::Badly(how)) => Some(format!("nvidia-bug-report.sh {how}")),
            Ok(Exit::TimedOut) => Some(format!("nvidia-bug-report.sh was stopped after {} s", NVIDIA_MS / 1000)),
            Err(error) => {
                return self.skip_source(Source::Nvidia, format!("nvidia-bug-report.sh: {}", describe(&error)));
            }
        };
        // A report of an earlier run is not passed off as one of now.
        if let Some(found) = self.find(&report).filter(|after| before.as_ref() != Some(after)) {
            if let Some(why) = why {
                self.out.problems.push(format!("nvidia/nvidia-bug-report.log.gz is not whole: {why}"));
            }
            self.file(Source::Nvidia, "nvidia/nvidia-bug-report.log.gz".to_owned(), &found, Share::Half);
        } else {
            let why = why.unwrap_or_else(|| "nvidia-bug-report.sh ended well".to_owned());
            self.skip_source(Source::Nvidia, format!("{why}, and wrote no report"));
        }
    }

    fn find(&mut self, path: &str) -> Option<Found> {
        let entries = self.node.entries(FOLDER).ok()?;
        let entry = entries.into_iter().find(|entry| format!("{FOLDER}/{}", entry.name) == path)?;
        (entry.file_type == FileType::File).then(|| Found {
            path: path.to_owned(),
            bytes: entry.size_bytes,
            modified_ms: entry.modified_ms,
        })
    }

    fn files(&mut self) {
        let (files, old) = newest_first(self.walk(), self.plan.since_s);
        if old > 0 {
            let reason = format!("{old} files below {FOLDER} were changed last before the time that was asked for");
            self.skip_source(Source::Files, reason);
        }
        let last = files.len().saturating_sub(1);
        for (at, found) in files.into_iter().enumerate() {
            let path = format!("files{}", found.path);
            if !fits(&path) {
                self.skip(Some(found.path), None, "its path is too long for a tar".into());
            } else if at >= MAX_FILES || self.room < 2 * CRUMB || self.raw < 2 * PIECE as u64 {
                self.out.truncated = true;
                self.skip(Some(found.path), None, "newer files leave no room for it".into());
            } else {
                self.file(Source::Files, path, &found, if at == last { Share::All } else { Share::Half });
            }
        }
    }

    /// All files that are asked for.
    fn walk(&mut self) -> Vec<Found> {
        let mut found = Vec::new();
        let (mut folders, mut seen) = (vec![FOLDER.to_owned()], 0);
        while let Some(folder) = folders.pop() {
            seen += 1;
            if seen > MAX_FOLDERS {
                self.skip(Some(folder), None, format!("there are more than {MAX_FOLDERS} folders"));
                continue;
            }
            let entries = match self.node.entries(&folder) {
                Ok(entries) => entries,
                Err(error) => {
                    self.skip(Some(folder), None, describe(&error).to_string());
                    continue;
                }
            };
            for entry in &entries {
                match choose(&folder, entry, &self.plan.patterns) {
                    Choice::Take(file) => found.push(file),
                    Choice::Descend(folder) => folders.push(folder),
                    Choice::Ignore => {}
                    Choice::Skip(path, reason) => self.skip(Some(path), None, reason),
                }
            }
        }
        found
    }

    /// One file as long as it was when it was found, from its end as far as there is room.
    fn file(&mut self, source: Source, path: String, found: &Found, share: Share) {
        let (room, mut raw) = match share {
            Share::All => (self.room, self.raw),
            Share::Half => (self.room / 2, self.raw / 2),
        };
        let mut pieces = Pieces::new(room.saturating_sub(FOR_FILE));
        let (mut end, mut shrank, mut any) = (found.bytes, false, false);
        while end > 0 {
            let start = (end - 1) / PIECE as u64 * PIECE as u64;
            if raw < end - start {
                pieces.cut();
                break;
            }
            let wanted = u32::try_from(end - start).expect("pieces are small");
            let bytes = match self.node.read(&found.path, start, wanted) {
                Ok(bytes) => bytes,
                Err(error) if any => {
                    self.out.problems.push(format!("{path} is not whole: {}", describe(&error)));
                    pieces.cut();
                    break;
                }
                Err(error) => return self.skip(Some(found.path.clone()), None, describe(&error).to_string()),
            };
            raw -= bytes.len() as u64;
            self.raw -= bytes.len() as u64;
            shrank |= bytes.len() < wanted as usize;
            let mut newest = &bytes[..];
            let mut is_whole = true;
            while !pieces.prepend(newest) && newest.len() > CRUMB {
                is_whole = false;
                newest = &newest[newest.len() / 2..];
            }
            any = true;
            if !is_whole {
                break;
            }
            end = start;
        }
        if shrank {
            self.out.problems.push(format!("{path} became shorter while it was read: what it lost is missing"));
            pieces.cut();
        }
        self.keep(source, path, pieces);
    }
}

#[cfg(test)]
#[path = "collect_tests.rs"]
mod tests;
