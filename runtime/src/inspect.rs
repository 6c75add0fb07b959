//! Reading a component without running or compiling it: its digest, manifest, imports and exports.
//!
//! **Invariant:** no byte sequence makes this panic, and it costs time and memory linear in the file, which is bounded.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use bc_proto::canonical::sha256_hex;
use bc_proto::manifest::{self, Invalid, Manifest};
use bc_proto::rules::admission::{self, Obstacle};
use wasmparser::{Parser, Payload};

/// The largest component that is read. A Python interpreter with its library is about 12 MiB compressed into a component;
/// Rust kinds have about 100 KiB.
pub const MAX_COMPONENT_BYTES: u64 = 64 * 1024 * 1024;

/// How deep modules and components may lie inside each other. Composed components have three or four levels; the time to
/// compile grows with the square of the depth.
const MAX_DEPTH: usize = 32;

/// How many types in one section may lie inside others. wasmparser's reader calls itself for each level, and a file of 300 KB
/// can have 100,000: the stack would end, and with it the process. An imported interface is one type in none.
const MAX_INNER_TYPES: usize = 256;

/// A component as it declares itself.
#[derive(Debug, Clone)]
pub struct Inspected {
    /// SHA-256 of the file, 64 lower-case hex digits: the kind's identity.
    pub digest: String,
    /// The file.
    pub bytes: Vec<u8>,
    /// What it says it is.
    pub manifest: Manifest,
    /// Names of the interfaces that it imports.
    pub imports: BTreeSet<String>,
    /// Names of the interfaces that it exports.
    pub exports: BTreeSet<String>,
}

/// Why a component was not taken.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the messages say it")]
pub enum Rejected {
    #[error("the file cannot be read: {0}")]
    Unreadable(std::io::Error),
    #[error("it has more than {} MiB", MAX_COMPONENT_BYTES / 1024 / 1024)]
    TooLarge,
    #[error("it is not WebAssembly: it does not start with `\\0asm`")]
    NotWebAssembly,
    #[error("it is a core module, not a component")]
    CoreModule,
    #[error("it is damaged or cut off: {0}")]
    Damaged(String),
    #[error("its components or their types lie too deep inside each other")]
    TooDeep,
    #[error("it carries no manifest (custom section `{}`)", manifest::SECTION)]
    NoManifest,
    #[error("it carries {0} manifests; exactly one is allowed")]
    ManyManifests(usize),
    #[error(transparent)]
    Manifest(Invalid),
    #[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
    Faults(Vec<Obstacle>),
    #[error("it does not compile: {0}")]
    Compile(String),
    #[error("it does not link: {0}")]
    Link(String),
}

/// A file that was not taken.
#[derive(Debug, thiserror::Error)]
#[error("{}: {rejected}", file.display())]
pub struct LoadError {
    /// The file.
    pub file: PathBuf,
    /// The rule that it breaks.
    pub rejected: Rejected,
}

impl Rejected {
    /// What to do about it.
    pub fn remedy(&self) -> String {
        match self {
            Self::Unreadable(_) => "check the path and its permissions".into(),
            Self::TooLarge => {
                "build it in release mode, strip debug information, and stream data instead of embedding it".into()
            }
            Self::NotWebAssembly => "give the `.wasm` file that `better-compute kind build` wrote".into(),
            Self::CoreModule | Self::NoManifest => "pack it with `better-compute kind build`".into(),
            Self::TooDeep => "compose it of fewer components".into(),
            Self::Damaged(_) => "copy or build the file again".into(),
            Self::ManyManifests(_) => "pack the unpacked component once".into(),
            Self::Manifest(_) => "correct kind.toml and build again".into(),
            Self::Faults(obstacles) => obstacles.iter().map(Obstacle::remedy).collect::<Vec<_>>().join("; "),
            Self::Compile(_) => {
                "build it with a toolchain that targets the component model without threads, GC and memory64".into()
            }
            Self::Link(_) => "build it against the WIT of this release (wit/host and wit/kind)".into(),
        }
    }
}

impl Inspected {
    /// Reads a file.
    pub fn read(file: &Path) -> Result<Self, LoadError> {
        read_bounded(file).and_then(Self::from_bytes).map_err(|rejected| LoadError { file: file.to_owned(), rejected })
    }

    /// Reads a file's bytes, as many as a component may have, and looks at none of them.
    pub fn read_bytes(file: &Path) -> Result<Vec<u8>, LoadError> {
        read_bounded(file).map_err(|rejected| LoadError { file: file.to_owned(), rejected })
    }

    /// Reads a component's bytes.
    pub fn from_bytes(bytes: Vec<u8>) -> Result<Self, Rejected> {
        if bytes.len() as u64 > MAX_COMPONENT_BYTES {
            return Err(Rejected::TooLarge);
        }
        if !bytes.starts_with(b"\0asm") {
            return Err(Rejected::NotWebAssembly);
        }
        if !Parser::is_component(&bytes) {
            return Err(if Parser::is_core_wasm(&bytes) {
                Rejected::CoreModule
            } else {
                Rejected::Damaged("its header names an unknown layer or version".into())
            });
        }
        let outline = Outline::read(&bytes)?;
        let manifest = match outline.manifests.as_slice() {
            [] => return Err(Rejected::NoManifest),
            [section] => Manifest::from_json(section).map_err(Rejected::Manifest)?,
            many => return Err(Rejected::ManyManifests(many.len())),
        };
        let Outline { imports, exports, .. } = outline;
        Ok(Self { digest: sha256_hex(&bytes), manifest, imports, exports, bytes })
    }

    /// What is wrong with the component wherever it is loaded: a manifest that does not declare what is imported, a missing
    /// export, an import that this host ABI does not have.
    pub fn faults(&self) -> Vec<Obstacle> {
        admission::faults(&self.manifest, &self.imports, &self.exports)
    }

    /// What stands against loading it on one node.
    pub fn obstacles(&self, site: &admission::Site<'_>) -> Vec<Obstacle> {
        admission::obstacles(&self.manifest, &self.imports, &self.exports, site)
    }
}

/// Reads at most the limit, so that a file that is far too large, or grows while it is read, costs nothing.
fn read_bounded(file: &Path) -> Result<Vec<u8>, Rejected> {
    let file = File::open(file).map_err(Rejected::Unreadable)?;
    let length = file.metadata().map_err(Rejected::Unreadable)?.len();
    if length > MAX_COMPONENT_BYTES {
        return Err(Rejected::TooLarge);
    }
    let mut bytes = Vec::with_capacity(usize::try_from(length).unwrap_or(0));
    file.take(MAX_COMPONENT_BYTES + 1).read_to_end(&mut bytes).map_err(Rejected::Unreadable)?;
    Ok(bytes)
}

#[derive(Default)]
struct Outline<'a> {
    manifests: Vec<&'a [u8]>,
    imports: BTreeSet<String>,
    exports: BTreeSet<String>,
}

impl<'a> Outline<'a> {
    /// Only the outermost component counts: sections of the modules and components inside it are skipped.
    fn read(bytes: &'a [u8]) -> Result<Self, Rejected> {
        let damaged = |error: wasmparser::BinaryReaderError| Rejected::Damaged(error.to_string());
        let mut outline = Self::default();
        let mut depth = 0;
        for payload in Parser::new(0).parse_all(bytes) {
            match payload.map_err(damaged)? {
                Payload::ModuleSection { .. } | Payload::ComponentSection { .. } if depth == MAX_DEPTH => {
                    return Err(Rejected::TooDeep);
                }
                Payload::ModuleSection { .. } | Payload::ComponentSection { .. } => depth += 1,
                Payload::End(_) => depth = depth.saturating_sub(1),
                Payload::CustomSection(section) if depth == 0 && section.name() == manifest::SECTION => {
                    outline.manifests.push(section.data());
                }
                Payload::ComponentTypeSection(section) if inner_types(&bytes[section.range()]) > MAX_INNER_TYPES => {
                    return Err(Rejected::TooDeep);
                }
                Payload::ComponentImportSection(section) if depth == 0 => {
                    for import in section {
                        outline.imports.insert(import.map_err(damaged)?.name.name.to_owned());
                    }
                }
                Payload::ComponentExportSection(section) if depth == 0 => {
                    for export in section {
                        outline.exports.insert(export.map_err(damaged)?.name.name.to_owned());
                    }
                }
                _ => {}
            }
        }
        Ok(outline)
    }
}

/// How many types lie inside others in a section, without reading it: a declaration of a type, 1, that is one of a component,
/// 0x41, or of an instance, 0x42. At most too many, where a name happens to hold these bytes.
fn inner_types(section: &[u8]) -> usize {
    section.windows(2).filter(|bytes| matches!(bytes, [1, 0x41 | 0x42])).count()
}
