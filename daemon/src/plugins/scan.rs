//! Reading the directory: each component's release, or why it cannot be served here.
//!
//! **Invariant:** one component is in memory at a time, and only regular files directly in the directory are opened: a pipe
//! never blocks a rescan, a folder is never followed.

use std::io;
use std::path::Path;

use bc_proto::rules::admission::Obstacle;
use bc_proto::rules::plugins::{Directory, Rejection, Release, Served};
use bc_proto::rules::publishing::KindSignature;
use bc_runtime::{Inspected, Kind, Rejected};

use crate::kinds::signature::{self, NotTaken};
use crate::node::Node;

/// Looks at every `*.wasm` that is not hidden.
pub(super) fn directory(dir: &Path, node: &Node) -> io::Result<Directory> {
    let mut found = Directory::new();
    for entry in std::fs::read_dir(dir)? {
        let path = entry?.path();
        let Some(name) = path.file_name() else { continue };
        if path.extension().is_none_or(|extension| extension != "wasm") || name.as_encoded_bytes().starts_with(b".") {
            continue;
        }
        let release = match name.to_str() {
            Some(_) => look(&path, node),
            None => Some(Err(rejection("its name is not UTF-8", "rename it"))),
        };
        if let Some(release) = release {
            found.insert(name.to_string_lossy().into_owned(), release);
        }
    }
    Ok(found)
}

/// Compiles what was found. The file is read anew: its bytes were not kept.
pub(super) fn load(dir: &Path, new: &Served, node: &Node) -> Result<(Kind, Option<KindSignature>), Box<Rejection>> {
    let of = |not_taken: &NotTaken| Box::new(Rejection { release: Some(new.release.clone()), ..because(not_taken) });
    let publishers = &node.trust.now().publishers;
    let (component, signature) = signature::read(&dir.join(&new.file), publishers).map_err(|error| of(&error))?;
    if component.digest != new.release.digest {
        return Err(Box::new(rejection(
            "it changed while it was read",
            "nothing: it is read again once it is written",
        )));
    }
    let kind = node.engine.load(&component).map_err(|rejected| of(&rejected.into()))?;
    Ok((kind, signature))
}

/// `None` for what is not a file of the directory: a folder, or a file that is gone by now.
fn look(path: &Path, node: &Node) -> Option<Result<Release, Rejection>> {
    match std::fs::metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return None,
        Err(error) => return Some(Err(because(&Rejected::Unreadable(error).into()))),
        Ok(metadata) if metadata.is_dir() => return None,
        Ok(metadata) if !metadata.is_file() => {
            return Some(Err(rejection("it is not a regular file", "replace it by the component itself")));
        }
        Ok(_) => {}
    }
    let component = match signature::read(path, &node.trust.now().publishers) {
        Err(NotTaken::Rejected(Rejected::Unreadable(error))) if error.kind() == io::ErrorKind::NotFound => {
            return None;
        }
        Err(not_taken) => return Some(Err(because(&not_taken))),
        Ok((component, _)) => component,
    };
    let obstacles = node.obstacles(&component);
    let Inspected { manifest, digest, .. } = component;
    let release = Release { kind: manifest.name, version: manifest.version, digest };
    if obstacles.is_empty() {
        return Some(Ok(release));
    }
    let mut remedies: Vec<_> = obstacles.iter().map(Obstacle::remedy).collect();
    remedies.dedup();
    Some(Err(Rejection {
        reason: obstacles.iter().map(Obstacle::to_string).collect::<Vec<_>>().join("; "),
        remedy: remedies.join("\n"),
        release: Some(release),
    }))
}

fn because(not_taken: &NotTaken) -> Rejection {
    Rejection { release: None, reason: not_taken.to_string(), remedy: not_taken.remedy() }
}

fn rejection(reason: &str, remedy: &str) -> Rejection {
    Rejection { release: None, reason: reason.into(), remedy: remedy.into() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;

    #[test]
    fn only_regular_component_files_are_looked_at() {
        let dir = tempfile::tempdir().expect("a temporary folder");
        let path = |name: &str| dir.path().join(name);
        for name in ["a.wasm", ".hidden.wasm", "a.wasm.part", "notes.txt"] {
            std::fs::write(path(name), "junk").expect("a file");
        }
        std::fs::create_dir(path("folder.wasm")).expect("a folder");
        std::fs::write(path("folder.wasm/inner.wasm"), "junk").expect("a file");
        std::os::unix::fs::symlink(path("notes.txt"), path("linked.wasm")).expect("a link");
        std::os::unix::fs::symlink(path("gone"), path("dangling.wasm")).expect("a link");
        let mode = rustix::fs::Mode::RUSR;
        rustix::fs::mkfifoat(rustix::fs::CWD, path("pipe.wasm"), mode).expect("a pipe");

        let node = Node::new(&Config::default()).expect("a node");
        let found = directory(dir.path(), &node).expect("it is there");
        let reason = |found: &Result<Release, Rejection>| found.as_ref().expect_err("junk").reason.clone();
        let found: Vec<_> = found.iter().map(|(file, found)| (file.as_str(), reason(found))).collect();
        let junk = "it is not WebAssembly: it does not start with `\\0asm`".to_owned();
        let pipe = "it is not a regular file".to_owned();
        assert_eq!(found, [("a.wasm", junk.clone()), ("linked.wasm", junk), ("pipe.wasm", pipe)]);
    }
}
