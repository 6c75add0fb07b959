//! What happened to the plugin directory's kinds, as a fact for people and programs.
//!
//! **Invariant:** a change is told after it took effect.

use std::fmt;
use std::path::{Path, PathBuf};

use bc_proto::rules::plugins::{Action, Rejection, Release};
use serde::{Serialize, Serializer};

use crate::metrics;

/// A change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case", tag = "change")]
pub enum Change {
    /// A kind is served that was not.
    Loaded {
        /// The component.
        #[serde(serialize_with = "as_shown")]
        file: PathBuf,
        /// What it holds.
        #[serde(flatten)]
        release: Release,
    },
    /// New commands get another release; running ones end on the one they started on.
    Replaced {
        /// The component that took over.
        #[serde(serialize_with = "as_shown")]
        file: PathBuf,
        /// What it holds.
        #[serde(flatten)]
        release: Release,
        /// What was served before.
        previous: Release,
    },
    /// A kind is served no more: its file is gone.
    Retired {
        /// The component that it was loaded from.
        #[serde(serialize_with = "as_shown")]
        file: PathBuf,
        /// What it held.
        #[serde(flatten)]
        release: Release,
    },
    /// A file is not served.
    Refused {
        /// The file; the directory itself when that cannot be read.
        #[serde(serialize_with = "as_shown")]
        file: PathBuf,
        /// What it says it is, where it says so legibly.
        #[serde(flatten)]
        release: Option<Release>,
        /// The rule that it breaks.
        reason: String,
        /// What to do about it.
        remedy: String,
        /// What goes on being served in its place.
        serving: Option<Release>,
    },
}

impl Change {
    /// The change that an action makes, if it makes one.
    pub(super) fn of(action: Action, dir: &Path) -> Option<Self> {
        Some(match action {
            Action::Keep(_) => return None,
            Action::Load(new) => Self::Loaded { file: dir.join(new.file), release: new.release },
            Action::Replace { old, new } => {
                Self::Replaced { file: dir.join(new.file), release: new.release, previous: old.release }
            }
            Action::Retire(old) => Self::Retired { file: dir.join(old.file), release: old.release },
            Action::Refuse { file, rejection: Rejection { release, reason, remedy }, stays } => {
                Self::Refused { file: dir.join(file), release, reason, remedy, serving: stays }
            }
        })
    }

    /// The file that it is about.
    pub fn file(&self) -> &Path {
        match self {
            Self::Loaded { file, .. }
            | Self::Replaced { file, .. }
            | Self::Retired { file, .. }
            | Self::Refused { file, .. } => file,
        }
    }

    /// The change as one line of JSON.
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).expect("a change has string keys and no maps")
    }

    /// Writes it to this process's own log.
    pub(super) fn log(&self) {
        metrics::plugins_changed(match self {
            Self::Loaded { .. } => "loaded",
            Self::Replaced { .. } => "replaced",
            Self::Retired { .. } => "retired",
            Self::Refused { .. } => "refused",
        });
        if let Self::Refused { remedy, .. } = self {
            tracing::warn!(remedy, "{self}");
        } else {
            tracing::info!("{self}");
        }
    }
}

/// Paths need not be UTF-8; a change has to be told nevertheless.
fn as_shown<S: Serializer>(path: &Path, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&path.display())
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let file = self.file().display();
        match self {
            Self::Loaded { release, .. } => write!(f, "loaded {release} from {file}"),
            Self::Replaced { release, previous, .. } => write!(f, "replaced {previous} by {release} from {file}"),
            Self::Retired { release, .. } => write!(f, "retired {release}: {file} is gone"),
            Self::Refused { reason, serving, .. } => {
                write!(f, "refused {file}: {reason}")?;
                serving.as_ref().map_or(Ok(()), |release| write!(f, "; {release} stays"))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn release(version: &str) -> Release {
        Release { kind: "diag.nvml".into(), version: version.parse().expect("semver"), digest: "ab".repeat(32) }
    }

    #[test]
    fn promise_27_every_change_names_file_and_reason() {
        let file = || PathBuf::from("/plugins/diag.nvml.wasm");
        let refused = |release, serving| Change::Refused {
            file: file(),
            release,
            reason: "it is damaged".into(),
            remedy: "copy it again".into(),
            serving,
        };
        let changes = [
            Change::Loaded { file: file(), release: release("1.0.0") },
            Change::Replaced { file: file(), release: release("2.0.0"), previous: release("1.0.0") },
            Change::Retired { file: file(), release: release("2.0.0") },
            refused(None, None),
            refused(Some(release("2.0.0")), Some(release("1.0.0"))),
        ];
        insta::assert_snapshot!(changes.map(|change| format!("{change}\n{}\n", change.to_json())).concat());
    }
}
