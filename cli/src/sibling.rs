//! The other programs of this project, which are installed beside this one.
//!
//! **Invariant:** a program is looked for beside this one alone, never in PATH: versions do not mix.

use std::io;
use std::path::PathBuf;

/// Where a program of this project is.
pub(crate) fn path(name: &str) -> io::Result<PathBuf> {
    let this = std::env::current_exe()?;
    let path = this.with_file_name(name);
    if path.is_file() {
        return Ok(path);
    }
    Err(io::Error::new(
        io::ErrorKind::NotFound,
        format!("{} is not there; it belongs beside this program", path.display()),
    ))
}
