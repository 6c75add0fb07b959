//! `kind new`: a folder that builds as it is. The SDK and the WIT files are put beside it, so that it needs no checkout of
//! this repository and keeps building when this repository moves on.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, bail};
use clap::{Args, ValueEnum};
use include_dir::{Dir, include_dir};

use crate::output;

static SDK: Dir<'_> = include_dir!("$CARGO_MANIFEST_DIR/../plugins/sdk");
static WIT: Dir<'_> = include_dir!("$CARGO_MANIFEST_DIR/../wit");
const WORKSPACE: &str = include_str!("../../../plugins/Cargo.toml");
const LOCK: &str = include_str!("../../../plugins/Cargo.lock");
const MANIFEST: &str = include_str!("../../template/kind.toml");
const PACKAGE: &str = include_str!("../../template/package.toml");
const GLUE: &str = include_str!("../../template/lib.rs");
const BODY: &str = include_str!("../../template/body.rs");

/// The arguments.
#[derive(Debug, Args)]
pub struct New {
    /// The kind's name, for example `site.fans`
    name: String,
    /// The language
    #[arg(long, value_enum, default_value_t = Lang::Rust)]
    lang: Lang,
    /// The folder; by default the name with dots as dashes
    #[arg(long, value_name = "DIR")]
    folder: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Lang {
    Rust,
}

impl New {
    pub(super) fn execute(self) -> anyhow::Result<ExitCode> {
        let Lang::Rust = self.lang;
        let package = self.name.replace('.', "-").to_lowercase();
        let folder = self.folder.unwrap_or_else(|| PathBuf::from(&package));
        // The name is checked by the rules of the manifest that it is for.
        let quoted = toml::Value::from(self.name.as_str()).to_string();
        let manifest = MANIFEST.replace("\"{{name}}\"", &quoted);
        bc_proto::manifest::Manifest::from_toml(&manifest)?;
        if folder.exists() {
            bail!("{} exists; name another folder with --folder", folder.display());
        }
        let write = |path: &str, text: &str| write(&folder.join(path), text.as_bytes());
        write("kind.toml", &manifest)?;
        write("Cargo.toml", &workspace(&package)?)?;
        // Cargo takes from it the versions of what the new package needs, and drops the rest at the first build.
        write("Cargo.lock", LOCK)?;
        write("src/lib.rs", &GLUE.replace("{{name}}", &self.name))?;
        write("src/body.rs", BODY)?;
        write(".gitignore", "target/\ndist/\n")?;
        copy(&SDK, &folder.join("vendor/sdk"))?;
        copy(&WIT, &folder.join("wit"))?;
        let shown = folder.display();
        output::say(&format!(
            "{shown} is ready. Next:\n  better-compute kind build {shown}\n  better-compute kind run \
             {shown}/dist/{}.wasm --payload '{{\"name\": \"you\"}}'",
            self.name
        ));
        Ok(ExitCode::SUCCESS)
    }
}

/// The guests' own workspace file with other members: versions, lints and profile are those that the SDK is tested with.
fn workspace(package: &str) -> anyhow::Result<String> {
    let mut workspace: toml::Table = WORKSPACE.parse()?;
    workspace["workspace"]["members"] = toml::Value::try_from(["vendor/sdk"])?;
    workspace["workspace"]["dependencies"]["sdk"]["path"] = toml::Value::from("vendor/sdk");
    let package: toml::Table = PACKAGE.replace("{{package}}", package).parse()?;
    workspace.extend(package);
    Ok(toml::to_string(&workspace)?)
}

fn copy(from: &Dir<'_>, to: &Path) -> anyhow::Result<()> {
    for file in from.files() {
        write(&to.join(file.path().file_name().expect("a file has a name")), file.contents())?;
    }
    from.dirs().try_for_each(|dir| copy(dir, &to.join(dir.path().file_name().expect("a folder below has a name"))))
}

fn write(path: &Path, bytes: &[u8]) -> anyhow::Result<()> {
    let folder = path.parent().expect("files lie in a folder");
    fs::create_dir_all(folder)
        .and_then(|()| fs::write(path, bytes))
        .with_context(|| format!("{} cannot be written", path.display()))
}
