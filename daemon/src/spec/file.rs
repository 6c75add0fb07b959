//! The spec on the disk: SHA-256 of all that follows, the node's id, and the document as it came, each on a line of its own.
//!
//! **Invariant:** the file holds one spec as a whole, the old one or the new one, wherever a crash comes; what does not read back
//! as it was written, or is of another node, is set aside and never deleted.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use bc_proto::canonical;
use bc_proto::id::NodeId;
use bc_proto::spec::NodeSpec;

/// The file, below the state directory.
const FILE: &str = "spec";

pub(super) struct SpecFile {
    path: PathBuf,
    node: NodeId,
}

impl SpecFile {
    pub(super) fn new(state_dir: &Path, node: NodeId) -> Self {
        Self { path: state_dir.join(FILE), node }
    }

    /// The spec that is kept; `None` for none, for one that was damaged, and for that of the node which this machine was before:
    /// its generations say nothing here.
    pub(super) fn read(&self) -> io::Result<Option<NodeSpec>> {
        let bytes = match fs::read(&self.path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        if let Some(spec) = self.parse(&bytes) {
            return Ok(Some(spec));
        }
        // Named after its contents: another damaged one does not take its place.
        let aside = self.path.with_extension(format!("damaged-{}", &canonical::sha256_hex(&bytes)[..16]));
        fs::rename(&self.path, &aside)?;
        self.sync_folder()?;
        tracing::error!(aside = %aside.display(), "the spec on the disk is damaged or of another node; it is set aside");
        Ok(None)
    }

    /// The spec that is kept, without setting anything aside: one that does not read is an error.
    pub(super) fn look(&self) -> io::Result<Option<NodeSpec>> {
        match fs::read(&self.path) {
            Ok(bytes) => match self.parse(&bytes) {
                Some(spec) => Ok(Some(spec)),
                None => Err(io::Error::other(format!("{} is damaged or of another node", self.path.display()))),
            },
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Keeps a document in place of the one before.
    pub(super) fn write(&self, document: &[u8]) -> io::Result<()> {
        let draft = self.path.with_extension("new");
        let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&draft)?;
        let rest = [self.node.to_string().as_bytes(), b"\n", document].concat();
        file.write_all(canonical::sha256_hex(&rest).as_bytes())?;
        file.write_all(b"\n")?;
        file.write_all(&rest)?;
        file.sync_all()?;
        fs::rename(&draft, &self.path)?;
        self.sync_folder()
    }

    fn sync_folder(&self) -> io::Result<()> {
        match self.path.parent() {
            Some(folder) => File::open(folder)?.sync_all(),
            None => Ok(()),
        }
    }

    fn parse(&self, bytes: &[u8]) -> Option<NodeSpec> {
        let (sum, rest) = bytes.split_at_checked(64)?;
        let rest = rest.strip_prefix(b"\n")?;
        if canonical::sha256_hex(rest).as_bytes() != sum {
            return None;
        }
        let document = rest.strip_prefix(self.node.to_string().as_bytes())?.strip_prefix(b"\n")?;
        serde_json::from_slice(document).ok()
    }
}
