//! `kind build`: cargo, encoder, manifest, and a first look at the result.

use std::fs;
use std::io::BufReader;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use anyhow::{Context, bail};
use bc_proto::manifest::Manifest;
use bc_runtime::{Config, Engine, Inspected};
use cargo_metadata::{Message, MetadataCommand};
use clap::Args;

use super::{pack, try_out};
use crate::output;

const TARGET: &str = "wasm32-unknown-unknown";

/// The arguments.
#[derive(Debug, Args)]
pub struct Build {
    /// Folders that hold a kind.toml and a cargo package
    #[arg(default_value = ".")]
    folders: Vec<PathBuf>,
    /// Where the components go; by default `dist` in each folder
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Print one JSON object per kind
    #[arg(long)]
    json: bool,
}

impl Build {
    pub(super) fn execute(self) -> anyhow::Result<ExitCode> {
        let engine = Engine::new(&Config::default())?;
        for folder in &self.folders {
            let built = build(folder, self.out.as_deref(), &engine)
                .with_context(|| format!("{} was not built", folder.display()))?;
            output::say(&if self.json { built.to_json() } else { built.to_string() });
        }
        Ok(ExitCode::SUCCESS)
    }
}

struct Built {
    file: PathBuf,
    component: Inspected,
}

impl Built {
    fn to_json(&self) -> String {
        let Self { file, component } = self;
        serde_json::json!({
            "kind": component.manifest.name,
            "version": component.manifest.version,
            "file": file,
            "sha256": component.digest,
            "bytes": component.bytes.len(),
            "imports": component.imports,
        })
        .to_string()
    }
}

impl std::fmt::Display for Built {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { file, component } = self;
        let Manifest { name, version, .. } = &component.manifest;
        write!(f, "{name} {version}  {} bytes  sha256:{}  {}", component.bytes.len(), component.digest, file.display())
    }
}

fn build(folder: &Path, out: Option<&Path>, engine: &Engine) -> anyhow::Result<Built> {
    let declaration = folder.join("kind.toml");
    let text = fs::read_to_string(&declaration).with_context(|| format!("{} cannot be read", declaration.display()))?;
    let manifest = Manifest::from_toml(&text).with_context(|| declaration.display().to_string())?;
    let module = compile(folder)?;
    let bytes = fs::read(&module).with_context(|| format!("{} cannot be read", module.display()))?;
    let component = pack::component(&bytes).with_context(|| format!("{} is not a kind's module", module.display()))?;
    let component = Inspected::from_bytes(pack::embed(component, &manifest))?;
    if let Err(wrong) = try_out(engine, &component) {
        bail!("the kind does not keep its own declaration:\n  {}", wrong.join("\n  "));
    }
    let out = out.map_or_else(|| folder.join("dist"), Path::to_owned);
    fs::create_dir_all(&out).with_context(|| format!("{} cannot be made", out.display()))?;
    let file = out.join(&manifest.name).with_added_extension("wasm");
    fs::write(&file, &component.bytes).with_context(|| format!("{} cannot be written", file.display()))?;
    Ok(Built { file, component })
}

/// Compiles the package in release mode and says where its module is. Paths of this machine are mapped away, so that they do
/// not end up in panic messages.
#[expect(clippy::disallowed_methods, reason = "building is running cargo")]
fn compile(folder: &Path) -> anyhow::Result<PathBuf> {
    let manifest = folder
        .join("Cargo.toml")
        .canonicalize()
        .with_context(|| format!("{} has no Cargo.toml; `better-compute kind new` writes one", folder.display()))?;
    let metadata = MetadataCommand::new().manifest_path(&manifest).no_deps().exec()?;
    let mut flags: Vec<String> =
        std::env::var("RUSTFLAGS").map(|f| f.split_whitespace().map(Into::into).collect()).unwrap_or_default();
    flags.push(format!("--remap-path-prefix={}=/kind", metadata.workspace_root));
    if let Some(home) = std::env::home_dir() {
        let cargo_home = std::env::var_os("CARGO_HOME").map_or_else(|| home.join(".cargo"), PathBuf::from);
        flags.push(format!("--remap-path-prefix={}=/cargo", cargo_home.display()));
    }
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
        .args([
            "build",
            "--release",
            "--target",
            TARGET,
            "--message-format",
            "json-render-diagnostics",
            "--manifest-path",
        ])
        .arg(&manifest)
        .env("CARGO_ENCODED_RUSTFLAGS", flags.join("\u{1f}"))
        .stdout(Stdio::piped())
        .spawn()
        .context("cargo cannot be started")?;
    let messages = BufReader::new(cargo.stdout.take().expect("it was asked for"));
    let mut module = None;
    for message in Message::parse_stream(messages) {
        if let Message::CompilerArtifact(artifact) = message?
            && artifact.manifest_path.as_std_path() == manifest
        {
            module = artifact.filenames.into_iter().find(|file| file.extension() == Some("wasm")).or(module);
        }
    }
    if !cargo.wait()?.success() {
        bail!("cargo did not succeed; if it misses the target, run `rustup target add {TARGET}`");
    }
    let Some(module) = module else {
        bail!("cargo built no module; kind crates need crate-type = [\"cdylib\"] in [lib]");
    };
    Ok(module.into())
}
