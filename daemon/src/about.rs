//! What the daemon says of itself to everybody who may read its files: `public/about.json` below the state directory.
//!
//! **Invariant:** nothing in it is a secret: no key, no certificate, no token, no payload.

use std::fs;
use std::io;
use std::path::Path;

use bc_proto::abi::HOST_ABI;
use serde_json::json;

use crate::identity::Identity;
use crate::kinds::Kinds;

/// The folder, below the state directory, of what is no secret.
const PUBLIC: &str = "public";

/// Writes it, whole or not at all.
pub fn write(state_dir: &Path, identity: &Identity, boot: &str, role: &str, kinds: &Kinds) -> io::Result<()> {
    let folder = state_dir.join(PUBLIC);
    fs::create_dir_all(&folder)?;
    let loaded = kinds.loaded();
    let kinds: Vec<_> = loaded
        .iter()
        .map(|kind| json!({ "name": kind.name, "version": kind.version.to_string(), "digest": kind.digest }))
        .collect();
    let about = json!({
        "version": env!("CARGO_PKG_VERSION"),
        "hostAbi": HOST_ABI.to_string(),
        "node": identity.card.node.to_string(),
        "incarnation": identity.card.incarnation,
        "role": role,
        "boot": boot,
        "kindsAtStart": kinds,
    });
    let file = tempfile::NamedTempFile::new_in(&folder)?;
    serde_json::to_writer_pretty(&file, &about)?;
    file.persist(folder.join("about.json")).map(drop).map_err(|error| error.error)
}
