//! The WIT packages: they parse, and what was released does not change.
//!
//! `wit/released.toml` holds, for each released package, the SHA-256 of its interfaces without their documentation. Words may
//! be improved; a record, a function or a name may not: components in the field were built against them.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fs;
use std::path::Path;

use anyhow::Context;
use sha2::{Digest, Sha256};
use wit_component::{OutputToString, WitPrinter};
use wit_parser::Resolve;

use crate::say;

const RECORD: &str = "wit/released.toml";

/// What is wrong with the WIT packages.
pub(super) fn broken(root: &Path) -> anyhow::Result<Vec<String>> {
    let released = released(root)?;
    let packages = packages(root)?;
    let mut broken = Vec::new();
    for (package, digest) in &packages {
        match released.get(package) {
            None => broken.push(format!("{package}: not recorded; `cargo xtask tidy release-wit` does it")),
            Some(recorded) if recorded != digest => broken.push(format!(
                "{package}: a released interface was changed; put the change into a new version beside it"
            )),
            Some(_) => {}
        }
    }
    let gone = released.keys().filter(|package| !packages.contains_key(*package));
    broken.extend(gone.map(|package| format!("{package}: a released package is gone")));
    Ok(broken)
}

/// Adds the packages that have no record. Never changes one.
pub(crate) fn release(root: &Path) -> anyhow::Result<()> {
    let mut released = released(root)?;
    for (package, digest) in packages(root)? {
        if let Entry::Vacant(unrecorded) = released.entry(package) {
            say(&format!("{} is now released", unrecorded.key()));
            unrecorded.insert(digest);
        }
    }
    let header = "# SHA-256 of each released WIT package without its documentation. `cargo xtask tidy release-wit` adds lines;\n\
                  # none is ever changed.\n";
    Ok(fs::write(root.join(RECORD), header.to_owned() + &toml::to_string(&released)?)?)
}

fn released(root: &Path) -> anyhow::Result<BTreeMap<String, String>> {
    match fs::read_to_string(root.join(RECORD)) {
        Ok(text) => toml::from_str(&text).with_context(|| RECORD.to_owned()),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(BTreeMap::new()),
        Err(error) => Err(error).with_context(|| RECORD.to_owned()),
    }
}

/// Package name with version → digest, for every folder `wit/<name>/<version>`.
fn packages(root: &Path) -> anyhow::Result<BTreeMap<String, String>> {
    let mut packages = BTreeMap::new();
    // One for all: a minor version holds its additions alone, and names types of the version before.
    let mut resolve = Resolve::new();
    for name in folders(&root.join("wit"))? {
        for version in folders(&name)? {
            let (id, _) =
                resolve.push_path(&version).with_context(|| format!("{} does not parse", version.display()))?;
            let mut printer = WitPrinter::new(OutputToString::default());
            printer.emit_docs(false);
            printer.print(&resolve, id, &[])?;
            let text = String::from(printer.output);
            packages.insert(resolve.packages[id].name.to_string(), hex::encode(Sha256::digest(text)));
        }
    }
    Ok(packages)
}

fn folders(folder: &Path) -> anyhow::Result<Vec<std::path::PathBuf>> {
    let entries = fs::read_dir(folder).with_context(|| format!("{} cannot be read", folder.display()))?;
    let mut paths = entries.map(|entry| Ok(entry?.path())).collect::<anyhow::Result<Vec<_>>>()?;
    paths.retain(|path| path.is_dir());
    paths.sort();
    Ok(paths)
}
