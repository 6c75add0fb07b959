//! Why a plugin directory cannot be served, and what to do about it.
//!
//! **Invariant:** a file in the directory is never the reason.

use std::io;
use std::path::PathBuf;

/// The directory cannot be served.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the messages say it")]
pub enum OpenError {
    #[error("the plugin directory {} cannot be read: {error}", dir.display())]
    Unreadable { dir: PathBuf, error: io::Error },
    #[error("the plugin directory {} cannot be watched: {error}", dir.display())]
    Unwatchable { dir: PathBuf, error: notify::Error },
}

impl OpenError {
    /// What to do about it.
    pub fn remedy(&self) -> String {
        match self {
            Self::Unreadable { dir, error } => match error.kind() {
                io::ErrorKind::NotFound => format!("create it (`mkdir -p {}`), or name another one", dir.display()),
                io::ErrorKind::PermissionDenied => "let the user that bcd runs as read and search it".into(),
                _ => "name a directory that holds component files".into(),
            },
            Self::Unwatchable { error, .. } => match error.kind {
                notify::ErrorKind::MaxFilesWatch => "raise the sysctl fs.inotify.max_user_watches".into(),
                _ => "raise the sysctl fs.inotify.max_user_instances, or end programs that watch files".into(),
            },
        }
    }
}
