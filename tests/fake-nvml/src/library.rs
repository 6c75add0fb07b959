//! Finding what this crate builds: the shared object and the program.
//!
//! **Invariant:** a library handed to a test is a copy, not a link: the loader tells libraries apart by file, and each copy
//! looks for its state beside itself.

use std::{
    env, fmt, fs, io,
    path::{Path, PathBuf},
};

/// The environment variable that names the built shared object where it is not beside the running program.
pub const LIBRARY_VARIABLE: &str = "FAKE_NVML_LIBRARY";

/// A build product of this crate is not where the running program looks for it.
#[derive(Debug)]
pub struct NotBuilt {
    file: &'static str,
    looked_in: Vec<PathBuf>,
}

impl fmt::Display for NotBuilt {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} is not in any of {:?}: run `cargo build -p fake-nvml`", self.file, self.looked_in)
    }
}

impl std::error::Error for NotBuilt {}

/// The shared object of the build that the running program belongs to, or `$FAKE_NVML_LIBRARY`.
pub fn library_path() -> Result<PathBuf, NotBuilt> {
    match env::var_os(LIBRARY_VARIABLE) {
        Some(path) => Ok(PathBuf::from(path)),
        // Cargo puts a dependency's shared object only in `deps`, where a newer one may be than one folder up.
        None => find("libfake_nvml.so", &["deps", "", ".."]),
    }
}

/// The fake `nvidia-smi` of the same build. Only `cargo build -p fake-nvml` (or `--workspace`) makes it.
pub fn nvidia_smi_path() -> Result<PathBuf, NotBuilt> {
    find("nvidia-smi", &["", ".."])
}

/// Writes a copy of the library to `to`, for a state of its own beside it.
pub fn write_library(to: &Path) -> io::Result<()> {
    write_library_without(to, &[])
}

/// The same, without some of its functions, as older drivers are: their names are overwritten in the symbol table, so that
/// looking them up fails.
pub fn write_library_without(to: &Path, functions: &[&str]) -> io::Result<()> {
    let mut library = fs::read(library_path().map_err(io::Error::other)?)?;
    for function in functions {
        let name: Vec<u8> = [b"\0", function.as_bytes(), b"\0"].concat();
        let mut from = 0;
        while let Some(found) = library[from..].windows(name.len()).position(|window| window == name) {
            library[from + found + 1] = b'?';
            from += found + name.len() - 1;
        }
        if from == 0 {
            return Err(io::Error::new(io::ErrorKind::NotFound, format!("the library has no {function}")));
        }
    }
    fs::write(to, library)
}

fn find(file: &'static str, below_program: &[&str]) -> Result<PathBuf, NotBuilt> {
    let program = env::current_exe().unwrap_or_default();
    let folder = program.parent().unwrap_or(Path::new("."));
    let looked_in: Vec<PathBuf> = below_program.iter().map(|part| folder.join(part)).collect();
    let found = looked_in.iter().map(|folder| folder.join(file)).find(|path| path.is_file());
    found.ok_or(NotBuilt { file, looked_in })
}
