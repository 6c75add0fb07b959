//! GPUs that a reset of this boot cured: what the kernel logged of them before does not count any more.
//!
//! **Invariant:** it holds for the boot in which it was written, and no longer: times in the log begin anew with each.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::{fs, io};

use bc_proto::xid::Report;
use bc_runtime::capability::Answer;
use serde::{Deserialize, Serialize};

use super::taken::write_whole;

/// The file, below the state directory.
const FILE: &str = "gpu-resets.json";

/// By GPU, the time of the last line before its reset, in milliseconds since boot.
#[derive(Debug)]
pub struct Cured {
    file: Option<PathBuf>,
    boot: Option<String>,
    known: Mutex<BTreeMap<String, u64>>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Kept {
    boot: String,
    last_ms: BTreeMap<String, u64>,
}

impl Cured {
    /// Goes on with what is kept of this boot. `boot_id` is a file; a boot without a name keeps nothing.
    pub fn open(state_dir: Option<&Path>, boot_id: &Path) -> Self {
        let file = state_dir.map(|dir| dir.join(FILE));
        let boot = fs::read_to_string(boot_id).ok().map(|text| text.trim().to_owned()).filter(|boot| !boot.is_empty());
        let kept = file.as_deref().map(|file| fs::read(file).and_then(|bytes| Ok(serde_json::from_slice(&bytes)?)));
        let known = match kept {
            Some(Ok(Kept { boot: of, last_ms })) if Some(&of) == boot.as_ref() => last_ms,
            Some(Err(error)) if error.kind() != io::ErrorKind::NotFound => {
                tracing::warn!(%error, "which GPUs were reset in this boot cannot be read; starting with none");
                BTreeMap::new()
            }
            _ => BTreeMap::new(),
        };
        Self { file, boot, known: Mutex::new(known) }
    }

    fn known(&self) -> MutexGuard<'_, BTreeMap<String, u64>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes in GPUs that are healthy since a reset, with the time of the last line before it.
    pub(super) fn add(&self, cured: impl Iterator<Item = (String, u64)>) {
        let mut known = self.known();
        known.extend(cured);
        if let (Some(file), Some(boot)) = (&self.file, &self.boot) {
            let kept = Kept { boot: boot.clone(), last_ms: known.clone() };
            let written =
                serde_json::to_vec(&kept).map_err(io::Error::other).and_then(|bytes| write_whole(file, &bytes));
            if let Err(error) = written {
                tracing::warn!(%error, "which GPUs were reset cannot be kept: after a restart of bcd their errors count again");
            }
        }
    }

    /// The document of `nvml.xids` without what does not count any more. One that does not read stays as it is.
    pub fn applied(&self, document: Answer<String>) -> Answer<String> {
        let text = document?;
        let known = self.known();
        if known.is_empty() {
            return Ok(text);
        }
        let Ok(mut report) = serde_json::from_str::<Report>(&text) else { return Ok(text) };
        report.leave_out(&|gpu| known.get(gpu).copied());
        Ok(serde_json::to_string(&report).unwrap_or(text))
    }
}
