//! Promise 25: whatever happened to the compiled-code cache, the kind loads.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::thread;

use bc_runtime::{CacheCounts, Config, Engine, Inspected};
use bc_tests::hand_made;
use better_compute::kind::pack;
use proptest::prelude::*;
use tempfile::TempDir;

/// A kind of a few hundred bytes, so that compiling it again and again is cheap; another version is another digest.
fn kind(version: u64) -> Inspected {
    let mut manifest = hand_made::manifest();
    manifest.version.minor = version;
    let component = hand_made::component(&hand_made::core_module("", ""), &[]);
    Inspected::from_bytes(pack::embed(component, &manifest)).expect("it is a kind")
}

/// Loads a kind as a process that starts anew does, and says what the cache did.
fn load(dir: &Path, kind: &Inspected) -> CacheCounts {
    let engine = Engine::new(&Config { cache_dir: Some(dir.to_owned()), ..Config::default() }).expect("an engine");
    engine.load(kind).unwrap_or_else(|rejected| panic!("a cache never fails a kind: {rejected}"));
    engine.cache_counts().expect("the directory is of use")
}

const HIT: CacheCounts = CacheCounts { hits: 1, absent: 0, damaged: 0 };
const ABSENT: CacheCounts = CacheCounts { hits: 0, absent: 1, damaged: 0 };
const DAMAGED: CacheCounts = CacheCounts { hits: 0, absent: 0, damaged: 1 };

/// A cache that holds the kind.
fn filled(kind: &Inspected) -> (TempDir, PathBuf) {
    let dir = tempfile::tempdir().expect("a directory");
    assert_eq!(load(dir.path(), kind), ABSENT);
    let file = compiled(dir.path(), kind);
    (dir, file)
}

/// Where its compiled code is: in the one folder of this engine's compatibility.
fn compiled(dir: &Path, kind: &Inspected) -> PathBuf {
    let folders = fs::read_dir(dir).expect("it is there").map(|entry| entry.expect("it can be read").path());
    let folder = folders.into_iter().find(|path| path.is_dir()).expect("the engine made it");
    folder.join(&kind.digest).with_extension("cwasm")
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).expect("it is there").permissions().mode() & 0o777
}

#[test]
fn promise_25_a_second_load_is_a_hit_and_the_cache_is_private() {
    let kind = kind(1);
    let (dir, file) = filled(&kind);
    assert_eq!(load(dir.path(), &kind), HIT);
    assert_eq!(mode(dir.path()), 0o700);
    assert_eq!(mode(file.parent().expect("a folder")), 0o700);
    assert_eq!(mode(&dir.path().join("key")), 0o600);
    let folder = fs::read_dir(file.parent().expect("a folder")).expect("it can be read");
    assert_eq!(folder.count(), 1, "no temporary file stays");
}

#[test]
fn promise_25_a_directory_that_others_could_write_to_is_made_private() {
    let dir = tempfile::tempdir().expect("a directory");
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o777)).expect("it is ours");
    load(dir.path(), &kind(1));
    assert_eq!(mode(dir.path()), 0o700);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn promise_25_any_damaged_byte_is_a_miss_and_is_repaired(place: prop::sample::Index, flip in 1..=u8::MAX) {
        let kind = kind(1);
        let (dir, file) = filled(&kind);
        let mut bytes = fs::read(&file).expect("it was stored");
        let place = place.index(bytes.len());
        bytes[place] ^= flip;
        fs::write(&file, bytes).expect("it is ours");
        prop_assert_eq!(load(dir.path(), &kind), DAMAGED);
        prop_assert_eq!(load(dir.path(), &kind), HIT);
    }

    #[test]
    fn promise_25_a_cut_file_is_a_miss(length: prop::sample::Index) {
        let kind = kind(1);
        let (dir, file) = filled(&kind);
        let bytes = fs::read(&file).expect("it was stored");
        fs::write(&file, &bytes[..length.index(bytes.len())]).expect("it is ours");
        prop_assert_eq!(load(dir.path(), &kind), DAMAGED);
    }
}

#[test]
fn promise_25_a_file_in_anothers_name_is_a_miss() {
    let (one, other) = (kind(1), kind(2));
    let (dir, file) = filled(&one);
    fs::copy(&file, compiled(dir.path(), &other)).expect("it is ours");
    assert_eq!(load(dir.path(), &other), DAMAGED);
}

#[test]
fn promise_25_a_file_under_another_nodes_key_is_a_miss() {
    let kind = kind(1);
    let ((_other_node, whole), (dir, file)) = (filled(&kind), filled(&kind));
    fs::copy(whole, file).expect("both are ours");
    assert_eq!(load(dir.path(), &kind), DAMAGED);
}

#[test]
fn promise_25_a_damaged_key_is_a_miss_and_is_replaced() {
    let kind = kind(1);
    for key in [&b""[..], b"short", &[7; 32], &[7; 33]] {
        let (dir, _) = filled(&kind);
        let path = dir.path().join("key");
        fs::write(&path, key).expect("it is ours");
        assert_eq!(load(dir.path(), &kind), DAMAGED, "{key:?}");
        assert_eq!(load(dir.path(), &kind), HIT, "{key:?}");
        assert_eq!((mode(&path), fs::read(&path).expect("it is there").len()), (0o600, 32));
    }
}

#[test]
fn promise_25_something_else_in_a_files_place_is_a_miss() {
    let kind = kind(1);
    let (dir, file) = filled(&kind);
    fs::remove_file(&file).expect("it is ours");
    fs::create_dir(&file).expect("it is ours");
    assert_eq!(load(dir.path(), &kind), DAMAGED);
}

#[test]
fn promise_25_a_directory_that_goes_away_is_a_miss() {
    let kind = kind(1);
    let dir = tempfile::tempdir().expect("a directory");
    let engine = Engine::new(&Config { cache_dir: Some(dir.path().into()), ..Config::default() }).expect("an engine");
    fs::remove_dir_all(dir.path()).expect("it is ours");
    engine.load(&kind).map(drop).expect("it is compiled");
    assert_eq!(engine.cache_counts(), Some(ABSENT));
}

#[test]
fn promise_25_a_directory_of_no_use_leaves_an_engine_without_a_cache() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("file");
    fs::write(&file, "not a directory").expect("it is ours");
    let key = dir.path().join("keyless/key");
    fs::create_dir_all(&key).expect("it is ours");
    for unusable in [file, dir.path().join("keyless")] {
        let engine = Engine::new(&Config { cache_dir: Some(unusable), ..Config::default() }).expect("an engine");
        engine.load(&kind(1)).map(drop).expect("it is compiled");
        assert_eq!(engine.cache_counts(), None);
    }
}

#[test]
fn promise_25_engines_that_share_a_directory_do_not_disturb_each_other() {
    let dir = tempfile::tempdir().expect("a directory");
    let kinds: Vec<_> = (1..=3).map(kind).collect();
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for kind in kinds.iter().cycle().take(12) {
                    assert_eq!(load(dir.path(), kind).damaged, 0);
                }
            });
        }
    });
    for kind in &kinds {
        assert_eq!(load(dir.path(), kind), HIT);
    }
}
