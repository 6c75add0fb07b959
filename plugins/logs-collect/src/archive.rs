//! The bundle: a zstd-compressed tar, whose first entry is `manifest.json`.
//!
//! **Invariant:** what the manifest says of a file is what lies in the bundle under its path.

use serde::Serialize;

use crate::pieces::{Kept, compressed};

/// The size of a tar block.
const BLOCK: usize = 512;
/// The manifest's form. A reader refuses those that it does not know.
const VERSION: u32 = 1;

/// A file of the bundle.
pub(crate) struct File {
    pub(crate) path: String,
    pub(crate) source: &'static str,
    pub(crate) kept: Kept,
}

/// What is not in the bundle.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
pub(crate) struct Skipped {
    /// The file on the node.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) path: Option<String>,
    /// The source, where it is not one file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) source: Option<&'static str>,
    pub(crate) reason: String,
}

#[derive(Serialize)]
struct Manifest<'a> {
    version: u32,
    files: Vec<Entry<'a>>,
    skipped: &'a [Skipped],
    problems: &'a [String],
}

#[derive(Serialize)]
struct Entry<'a> {
    path: &'a str,
    bytes: u64,
    sha256: &'a str,
    truncated: bool,
    source: &'a str,
}

/// Whether a path can be told by a tar header.
pub(crate) fn fits(path: &str) -> bool {
    header(path, 0).is_some()
}

/// Writes it all.
pub(crate) fn write<E>(
    files: Vec<File>,
    skipped: &[Skipped],
    problems: &[String],
    put: &mut impl FnMut(&[u8]) -> Result<(), E>,
) -> Result<(), E> {
    let entries = files.iter().map(|file| Entry {
        path: &file.path,
        bytes: file.kept.bytes,
        sha256: &file.kept.sha256,
        truncated: file.kept.truncated,
        source: file.source,
    });
    let manifest = Manifest { version: VERSION, files: entries.collect(), skipped, problems };
    let manifest = serde_json::to_vec(&manifest).expect("text and numbers are JSON");
    let mut between = header("manifest.json", manifest.len() as u64).expect("the path is short").to_vec();
    between.extend_from_slice(&manifest);
    pad(&mut between, manifest.len() as u64);
    for File { path, kept, .. } in files {
        between.extend_from_slice(&header(&path, kept.bytes).expect("paths that do not fit were skipped"));
        put(&compressed(&between))?;
        between.clear();
        for frame in kept.frames {
            put(&frame)?;
        }
        pad(&mut between, kept.bytes);
    }
    between.resize(between.len() + 2 * BLOCK, 0);
    put(&compressed(&between))
}

fn pad(to: &mut Vec<u8>, bytes: u64) {
    let over = usize::try_from(bytes % BLOCK as u64).expect("it is less than a block");
    to.resize(to.len() + (BLOCK - over) % BLOCK, 0);
}

/// A header of the format `ustar` (POSIX.1-1988). `None` for a path that it has no room for.
fn header(path: &str, bytes: u64) -> Option<[u8; BLOCK]> {
    const NAME: usize = 100;
    const PREFIX: usize = 155;
    let (prefix, name) = if path.len() <= NAME {
        ("", path)
    } else {
        let is_cut = |at: &usize| *at <= PREFIX && *at > 0 && path.len() - at - 1 <= NAME && at + 1 < path.len();
        let at = path.match_indices('/').map(|(at, _)| at).find(is_cut)?;
        (&path[..at], &path[at + 1..])
    };
    if name.is_empty() || bytes >= 1 << 33 || path.contains('\0') {
        return None;
    }
    let mut block = [0; BLOCK];
    let mut put = |at: usize, text: &[u8]| block[at..at + text.len()].copy_from_slice(text);
    put(0, name.as_bytes());
    put(100, b"0000644\0");
    put(108, b"0000000\0");
    put(116, b"0000000\0");
    put(124, format!("{bytes:011o}\0").as_bytes());
    put(136, b"00000000000\0");
    put(148, b"        ");
    put(156, b"0");
    put(257, b"ustar\x0000");
    put(345, prefix.as_bytes());
    let sum: u32 = block.iter().map(|byte| u32::from(*byte)).sum();
    block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    Some(block)
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use super::*;
    use crate::pieces::Pieces;

    fn file(path: &str, content: &[u8]) -> File {
        let mut pieces = Pieces::new(usize::MAX);
        pieces.append(content);
        File { path: path.into(), source: "files", kept: pieces.finish().0 }
    }

    #[test]
    fn tar_and_zstd_read_it_and_the_manifest_comes_first() {
        let long = format!("files/var/log/{}/{}.log", "d".repeat(120), "n".repeat(90));
        let files = vec![file("a.log", b"hello"), file("empty", b""), file(&long, &[7; 1024]), file("b", &[1; 512])];
        let skipped = [Skipped { path: None, source: Some("nvidia"), reason: "not there".into() }];
        let mut bundle = Vec::new();
        let put = &mut |bytes: &[u8]| {
            bundle.extend_from_slice(bytes);
            Ok::<_, ()>(())
        };
        write(files, &skipped, &["p".into()], put).expect("it is written");
        let raw = zstd::decode_all(&bundle[..]).expect("zstd reads it");
        assert_eq!(raw.len() % BLOCK, 0);
        let mut archive = tar::Archive::new(&raw[..]);
        let mut seen = Vec::new();
        for entry in archive.entries().expect("tar reads it") {
            let mut entry = entry.expect("a good header");
            let mut content = Vec::new();
            entry.read_to_end(&mut content).expect("all of it");
            seen.push((entry.path().expect("a path").display().to_string(), content));
        }
        assert_eq!(seen[0].0, "manifest.json");
        let manifest: serde_json::Value = serde_json::from_slice(&seen[0].1).expect("JSON");
        assert_eq!(manifest["version"], 1);
        assert_eq!(manifest["skipped"][0], serde_json::json!({ "source": "nvidia", "reason": "not there" }));
        assert_eq!(manifest["files"].as_array().map(Vec::len), Some(4));
        for (at, (path, content)) in seen[1..].iter().enumerate() {
            assert_eq!(manifest["files"][at]["path"], path.as_str());
            assert_eq!(manifest["files"][at]["bytes"], content.len());
        }
        assert_eq!((seen[1].1.as_slice(), &seen[3].0), (&b"hello"[..], &long));
    }

    #[test]
    fn a_path_that_tar_cannot_tell_does_not_fit() {
        assert!(fits("a") && fits(&format!("{}/{}", "d".repeat(155), "n".repeat(100))));
        assert!(!fits(&"n".repeat(101)) && !fits(&format!("{}/x", "d".repeat(156))) && !fits("a\0b"));
    }
}
