use std::io::Write;

use proptest::prelude::*;
use serde_json::json;
use sha2::{Digest as _, Sha256};

use super::*;

/// Enough for every bundle here.
const ROOM: u64 = 16 << 20;

/// A bundle of these files, as nodes make them.
pub(crate) fn bundle(files: &[(&str, &[u8])]) -> Vec<u8> {
    let listed: Vec<_> = files
        .iter()
        .map(|(path, bytes)| {
            let sha256 = hex::encode(Sha256::digest(bytes));
            json!({ "path": path, "bytes": bytes.len(), "sha256": sha256, "truncated": false, "source": "test" })
        })
        .collect();
    let skipped = json!([{ "path": "/var/log/secret", "reason": "denied" }]);
    with_manifest(&json!({ "version": 1, "files": listed, "skipped": skipped, "problems": [] }), files)
}

fn with_manifest(manifest: &Value, files: &[(&str, &[u8])]) -> Vec<u8> {
    let manifest = manifest.to_string();
    let entries = std::iter::once((MANIFEST, manifest.as_bytes())).chain(files.iter().copied());
    compressed(&tar(entries))
}

fn tar<'a>(entries: impl IntoIterator<Item = (&'a str, &'a [u8])>) -> Vec<u8> {
    let mut builder = tar::Builder::new(Vec::new());
    for (path, bytes) in entries {
        let mut header = tar::Header::new_gnu();
        header.set_size(bytes.len() as u64);
        header.set_mode(0o600);
        builder.append_data(&mut header, path, bytes).expect("in memory");
    }
    builder.into_inner().expect("in memory")
}

fn compressed(bytes: &[u8]) -> Vec<u8> {
    zstd::encode_all(bytes, 3).expect("in memory")
}

fn read(bundle: &[u8], most: u64, path: &str) -> Result<(File, Vec<u8>), Bad> {
    let (mut found, mut bytes) = (None, Vec::new());
    file(
        bundle,
        most,
        path,
        |file| {
            found = Some(file.clone());
            true
        },
        |piece| {
            assert!(piece.len() <= PIECE);
            bytes.extend(piece);
            true
        },
    )?;
    Ok((found.expect("it was found before it was read"), bytes))
}

#[test]
fn files_are_listed_and_read_whatever_their_names_and_sizes() {
    let long = format!("var/log/{}", "long-name/".repeat(30));
    let large = vec![7; 3 * PIECE + 1];
    let files: [(&str, &[u8]); 4] = [("a.log", b"first"), (&long, b"second"), ("empty", b""), ("large", &large)];
    let bundle = bundle(&files);
    let manifest = manifest(&bundle[..], ROOM).expect("a bundle");
    assert_eq!(manifest.files.iter().map(|file| file.path.as_str()).collect::<Vec<_>>(), files.map(|(path, _)| path));
    assert_eq!(manifest.skipped[0]["reason"], "denied");
    for (path, bytes) in files {
        let (file, read) = read(&bundle, ROOM, path).expect("it is there");
        assert_eq!((file.path.as_str(), file.bytes), (path, bytes.len() as u64));
        assert!(read == bytes, "{path}");
    }
    let missing = read(&bundle, ROOM, "b.log").expect_err("it is not there");
    assert!(matches!(missing, Bad::NoFile(_)), "{missing}");
    let missing = read(&bundle, ROOM, MANIFEST).expect_err("it lists itself nowhere");
    assert!(matches!(missing, Bad::NoFile(_)), "{missing}");
}

#[test]
fn the_manifest_is_read_without_what_follows_it() {
    let mut noise = vec![0; 4 << 20];
    getrandom::fill(&mut noise).expect("random bytes");
    let bundle = bundle(&[("noise", &noise)]);
    manifest(&bundle[..64 << 10], ROOM).expect("it stands at the beginning");
    let cut = read(&bundle[..1 << 20], ROOM, "noise").expect_err("it was cut");
    assert!(matches!(cut, Bad::Format(_)), "{cut}");
}

#[test]
fn a_bomb_is_refused_before_it_is_expanded() {
    let zeros = vec![0; 64 << 20];
    let bomb = bundle(&[("zeros", &zeros), ("after", b"x")]);
    assert!(bomb.len() < 64 << 10, "it is small: {}", bomb.len());
    for path in ["zeros", "after"] {
        let mut count = 0;
        let refused = file(
            &bomb[..],
            ROOM,
            path,
            |_| true,
            |piece| {
                count += piece.len();
                true
            },
        );
        assert!(matches!(refused, Err(Bad::Bomb(ROOM))), "{path}: {refused:?}");
        assert!(count as u64 <= ROOM, "{count}");
    }
    // One whose manifest is the bomb, and one whose names are.
    let manifest_bomb = compressed(&tar([(MANIFEST, &zeros[..])]));
    let refused = manifest(&manifest_bomb[..], u64::MAX).expect_err("it is too large");
    assert!(refused.to_string().contains("more than 4194304 bytes"), "{refused}");
    let listed = json!({ "version": 1, "files": [{ "path": "x", "bytes": 1 }] }).to_string();
    let mut bytes = tar([(MANIFEST, listed.as_bytes())]);
    // Without the two empty blocks at its end, so that more can follow.
    bytes.truncate(bytes.len() - 1024);
    let mut header = tar::Header::new_gnu();
    header.set_entry_type(EntryType::GNULongName);
    header.set_size(zeros.len() as u64);
    header.set_cksum();
    bytes.extend(header.as_bytes());
    bytes.extend(&zeros);
    let refused = read(&compressed(&bytes), u64::MAX, "x").expect_err("a name of 64 MiB");
    assert!(refused.to_string().contains("more than 65536 bytes"), "{refused}");
}

#[test]
fn a_window_that_takes_too_much_memory_is_refused() {
    let mut encoder = zstd::Encoder::new(Vec::new(), 3).expect("an encoder");
    encoder.window_log(27).expect("it can be asked for");
    // Without a known size the window stands in the frame as it was asked for.
    let mut noise = vec![0; 1 << 20];
    getrandom::fill(&mut noise).expect("random bytes");
    let listed = json!({ "version": 1, "files": [] }).to_string();
    encoder.write_all(&tar([(MANIFEST, listed.as_bytes()), ("noise", &noise)])).expect("in memory");
    let bundle = encoder.finish().expect("in memory");
    let refused = manifest(&bundle[..], ROOM).expect_err("128 MiB");
    assert!(matches!(refused, Bad::Format(_)), "{refused}");
}

#[test]
fn what_is_no_bundle_says_what_is_wrong_with_it() {
    let good = json!({ "version": 1, "files": [{ "path": "a", "bytes": 3 }] });
    let newer = json!({ "version": 2, "files": [] });
    for (what, bytes, words) in [
        ("nothing", Vec::new(), "no support bundle"),
        ("text", b"no bundle at all".to_vec(), "no support bundle"),
        ("no tar", compressed(&[7; 2048]), "no support bundle"),
        ("an empty tar", compressed(&[0; 1024]), "it is empty"),
        ("no manifest", compressed(&tar([("a", &b"abc"[..])])), "its first entry is not manifest.json"),
        ("no JSON", compressed(&tar([(MANIFEST, &b"{"[..])])), "its manifest.json cannot be read"),
        ("newer", with_manifest(&newer, &[]), "it is of version 2"),
        ("another size", with_manifest(&good, &[("a", b"four")]), "a has 4 bytes, and its manifest says 3"),
        ("not there", with_manifest(&good, &[("b", b"abc")]), "its manifest lists a, but it is not there"),
    ] {
        let refused = read(&bytes, ROOM, "a").expect_err(what).to_string();
        assert!(refused.contains(words), "{what}: {refused}");
    }
}

#[test]
fn a_source_that_breaks_is_no_damaged_bundle() {
    struct Broken<'a>(&'a [u8]);
    impl Read for Broken<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            match self.0.read(buffer)? {
                0 => Err(io::Error::other("the connection broke")),
                read => Ok(read),
            }
        }
    }
    let mut noise = vec![0; 1 << 20];
    getrandom::fill(&mut noise).expect("random bytes");
    let bundle = bundle(&[("noise", &noise)]);
    let cut = file(Broken(&bundle[..512 << 10]), ROOM, "noise", |_| true, |_| true).expect_err("it broke");
    assert!(matches!(&cut, Bad::Source(why) if why.contains("the connection broke")), "{cut:?}");
    let gone = file(&bundle[..], ROOM, "noise", |_| true, |_| false).expect_err("nobody wants it");
    assert!(matches!(gone, Bad::Gone), "{gone:?}");
}

proptest! {
    #[test]
    fn no_bytes_make_it_panic(bytes: Vec<u8>, flips in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8)) {
        let _ = manifest(&bytes[..], ROOM);
        let _ = manifest(&compressed(&bytes)[..], ROOM);
        // A tar that is nearly right gets further.
        let listed = json!({ "version": 1, "files": [{ "path": "a", "bytes": 3 }] }).to_string();
        let mut nearly = tar([(MANIFEST, listed.as_bytes()), ("a", &b"abc"[..])]);
        for (at, byte) in flips {
            *at.get_mut(&mut nearly[..]) = byte;
        }
        let _ = read(&compressed(&nearly), ROOM, "a");
    }
}
