//! `cargo xtask package`: the two programs as Debian packages, made with Debian's own `dpkg-deb`.
//!
//! **Invariant:** a package holds what `packaging/` and the build hold, and nothing that was written for it alone; installing it starts
//! nothing that was not configured.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anyhow::Context;
use xshell::{Shell, cmd};

use crate::say;

/// A package: its name, and where its files go.
struct Package {
    name: &'static str,
    files: &'static [File],
}

/// Where a file comes from below the root, where it goes, and its mode.
struct File(&'static str, &'static str, u32);

const SERVER: Package = Package {
    name: "better-compute",
    files: &[
        File("packaging/systemd/better-compute.service", "usr/lib/systemd/system/better-compute.service", 0o644),
        File("packaging/sysusers/better-compute.conf", "usr/lib/sysusers.d/better-compute.conf", 0o644),
        File("LICENSE", "usr/share/doc/better-compute/copyright", 0o644),
    ],
};

const NODE: Package = Package {
    name: "bcd",
    files: &[
        File("packaging/systemd/bcd.service", "usr/lib/systemd/system/bcd.service", 0o644),
        File("packaging/debian/bcd/bcd.toml", "etc/bcd/bcd.toml", 0o644),
        File("LICENSE", "usr/share/doc/bcd/copyright", 0o644),
    ],
};

/// Builds both programs in a profile and packs them into `target/packages`; answers where the packages are.
pub(crate) fn run(shell: &Shell, profile: &str) -> anyhow::Result<()> {
    cmd!(shell, "cargo build --locked --profile {profile} --package better-compute --package bc-daemon").run()?;
    let built = crate::root().join("target").join(if profile == "dev" { "debug" } else { profile });
    for package in pack(shell, &built, &crate::root().join("target/packages"))? {
        say(&package.display().to_string());
    }
    Ok(())
}

/// Packs the programs of a folder.
fn pack(shell: &Shell, built: &Path, out: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let root = crate::root();
    let generated = out.join("generated");
    // The programs describe themselves: manual pages and completions cannot lag behind them.
    fs::create_dir_all(&generated)?;
    let program = built.join("better-compute");
    cmd!(shell, "{program} generate --out {generated}").quiet().run()?;
    let mut packages = Vec::new();
    for package in [SERVER, NODE] {
        let name = package.name;
        let stage = out.join(name);
        if stage.exists() {
            fs::remove_dir_all(&stage)?;
        }
        for File(from, to, mode) in package.files {
            place(&root.join(from), &stage.join(to), *mode)?;
        }
        place(&built.join(name), &stage.join("usr/bin").join(name), 0o755)?;
        for (from, to) in [
            (format!("{name}.bash"), format!("usr/share/bash-completion/completions/{name}")),
            (format!("_{name}"), format!("usr/share/zsh/vendor-completions/_{name}")),
            (format!("{name}.fish"), format!("usr/share/fish/vendor_completions.d/{name}.fish")),
        ] {
            place(&generated.join(from), &stage.join(to), 0o644)?;
        }
        for page in fs::read_dir(generated.join("man"))? {
            let page = page?.path();
            let file = page.file_name().unwrap_or_default().to_string_lossy().into_owned();
            let of_this = file.strip_prefix(name).is_some_and(|rest| rest.starts_with(['.', '-']));
            if of_this {
                let to = stage.join("usr/share/man/man1").join(file);
                place(&page, &to, 0o644)?;
                // Without the time in the header: the same build gives the same package.
                cmd!(shell, "gzip --no-name --best --force {to}").quiet().run()?;
            }
        }
        packages.push(build(shell, name, &stage, out)?);
    }
    Ok(packages)
}

/// Writes the control files, and makes the package of a stage.
fn build(shell: &Shell, name: &str, stage: &Path, out: &Path) -> anyhow::Result<PathBuf> {
    let templates = crate::root().join("packaging/debian").join(name);
    // Debian orders `~` before everything, as semver orders `-`.
    let version = env!("CARGO_PKG_VERSION").replace('-', "~");
    let architecture = cmd!(shell, "dpkg --print-architecture").quiet().read()?;
    let libc = cmd!(shell, "getconf GNU_LIBC_VERSION").quiet().read()?;
    let libc = libc.strip_prefix("glibc ").context("the build machine has no glibc")?;
    let size = cmd!(shell, "du --summarize --apparent-size --block-size=1024 {stage}").quiet().read()?;
    let size = size.split_whitespace().next().unwrap_or_default();
    let control = fs::read_to_string(templates.join("control"))?
        .replace("@VERSION@", &version)
        .replace("@ARCHITECTURE@", &architecture)
        .replace("@LIBC@", &format!("libc6 (>= {libc})"))
        .replace("@SIZE@", size);
    let controls = stage.join("DEBIAN");
    fs::create_dir_all(&controls)?;
    fs::write(controls.join("control"), control)?;
    for script in ["postinst", "prerm", "postrm"] {
        place(&templates.join(script), &controls.join(script), 0o755)?;
    }
    if templates.join("conffiles").exists() {
        place(&templates.join("conffiles"), &controls.join("conffiles"), 0o644)?;
    }
    let package = out.join(format!("{name}_{version}_{architecture}.deb"));
    cmd!(shell, "dpkg-deb --root-owner-group -Zxz -z1 --build {stage} {package}").quiet().ignore_stdout().run()?;
    Ok(package)
}

fn place(from: &Path, to: &Path, mode: u32) -> anyhow::Result<()> {
    if let Some(folder) = to.parent() {
        fs::create_dir_all(folder)?;
    }
    fs::copy(from, to).with_context(|| format!("{} cannot be packed", from.display()))?;
    Ok(fs::set_permissions(to, fs::Permissions::from_mode(mode))?)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Over the programs that the tests use: `cargo xtask test` has built them.
    #[test]
    fn packages_hold_programs_that_run_units_pages_and_completions() {
        let shell = Shell::new().expect("a shell");
        let out = crate::root().join("target/tmp/packages");
        let packages = pack(&shell, &crate::root().join("target/debug"), &out).expect("packed");
        assert_eq!(packages.len(), 2);
        for (package, name) in packages.iter().zip(["better-compute", "bcd"]) {
            let there = out.join("unpacked").join(name);
            fs::create_dir_all(&there).expect("a folder");
            cmd!(shell, "dpkg-deb --extract {package} {there}").run().expect("it unpacks");
            let program = there.join("usr/bin").join(name);
            let version = cmd!(shell, "{program} --version").read().expect("it runs");
            assert!(version.ends_with(env!("CARGO_PKG_VERSION")), "{version}");
            let completions = there.join("usr/share/bash-completion/completions").join(name);
            cmd!(shell, "bash --norc -c")
                .arg(format!("source {} && complete -p {name}", completions.display()))
                .ignore_stdout()
                .run()
                .expect("bash completes it");
            let page = there.join(format!("usr/share/man/man1/{name}.1.gz"));
            let page = cmd!(shell, "gzip --decompress --stdout {page}").read().expect("a page");
            assert!(page.contains(".SH SYNOPSIS") && page.contains(name), "{page}");
            let unit = there.join(format!("usr/lib/systemd/system/{name}.service"));
            let unit = fs::read_to_string(unit).expect("a unit");
            assert!(unit.contains(&format!("ExecStart=/usr/bin/{name} ")), "{unit}");
            let fields = cmd!(shell, "dpkg-deb --field {package} Package Version Depends").read().expect("its fields");
            assert!(fields.contains(&format!("Package: {name}")) && fields.contains("libc6 (>= "), "{fields}");
            for script in ["postinst", "prerm", "postrm"] {
                let script = out.join(name).join("DEBIAN").join(script);
                cmd!(shell, "sh -n {script}").run().expect("a script that parses");
            }
        }
        fs::remove_dir_all(&out).expect("removed");
    }
}
