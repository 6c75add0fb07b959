//! The table `[support-bundles]` of a server's settings: the S3 store that nodes upload to.
//!
//! **Invariant:** the table holds no key, but where one is: a file that only its owner can read, or a variable of the
//! environment. What is wrong in it names the key and its rule, and never a secret.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail, ensure};
use bc_host::bundles::{MAX_BYTES, Settings, Store};
use bytesize::ByteSize;
use serde::Deserialize;

/// The table; what is absent has a default, or is asked for.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
pub(crate) struct Bundles {
    /// `https://s3.example`, as nodes and this server reach it.
    endpoint: Option<String>,
    /// What signatures name; `us-east-1` by default.
    region: Option<String>,
    /// The bucket, which is there.
    bucket: Option<String>,
    /// `endpoint/bucket/key` rather than `bucket.endpoint/key`.
    path_style: bool,
    /// The most bytes of one bundle; `256MiB` by default.
    max_bytes: Option<ByteSize>,
    /// A file with the access key's name.
    access_key_id_file: Option<PathBuf>,
    /// In its place a variable of the environment.
    access_key_id_env: Option<String>,
    /// A file with the access key.
    secret_access_key_file: Option<PathBuf>,
    /// In its place a variable of the environment.
    secret_access_key_env: Option<String>,
    /// Certificates of the only authorities that the store's may come from, PEM.
    ca_file: Option<PathBuf>,
}

impl Bundles {
    /// Reads the keys, and checks all of it.
    pub(crate) fn checked(self, variable: impl Fn(&str) -> Option<String>) -> anyhow::Result<Settings> {
        let needed = |text: Option<String>, key: &str, example: &str| {
            text.with_context(|| format!("support-bundles.{key}: is missing; for example {example}"))
        };
        let settings = Settings {
            endpoint: needed(self.endpoint, "endpoint", "endpoint = \"https://s3.example\"")?,
            region: self.region.unwrap_or_else(|| "us-east-1".to_owned()),
            bucket: needed(self.bucket, "bucket", "bucket = \"support\"")?,
            path_style: self.path_style,
            max_bytes: self.max_bytes.map_or(MAX_BYTES, |size| size.as_u64()),
            access_key_id: credential(
                "access-key-id",
                self.access_key_id_file.as_deref(),
                self.access_key_id_env.as_deref(),
                &variable,
            )?,
            secret_access_key: credential(
                "secret-access-key",
                self.secret_access_key_file.as_deref(),
                self.secret_access_key_env.as_deref(),
                &variable,
            )?,
            ca_pem: self
                .ca_file
                .map(|path| {
                    fs::read(&path)
                        .with_context(|| format!("support-bundles.ca-file: {} cannot be read", path.display()))
                })
                .transpose()?,
        };
        // Whatever is wrong is said before anything starts.
        Store::new(settings.clone())?;
        Ok(settings)
    }
}

/// The bits of a file's mode that let others than its owner do something.
const OTHERS: u32 = 0o077;

/// A credential from one of its two places.
fn credential(
    key: &str,
    file: Option<&Path>,
    name: Option<&str>,
    variable: impl Fn(&str) -> Option<String>,
) -> anyhow::Result<String> {
    let text = match (file, name) {
        (Some(path), None) => private(path).with_context(|| format!("support-bundles.{key}-file"))?,
        (None, Some(name)) => variable(name)
            .with_context(|| format!("support-bundles.{key}-env: the environment has no variable {name}"))?,
        (Some(_), Some(_)) => bail!("support-bundles.{key}-env: takes the place of {key}-file; give one of the two"),
        (None, None) => bail!(
            "support-bundles.{key}-file: is missing; name a file with it that only its owner can read, or a variable of the \
             environment with {key}-env"
        ),
    };
    Ok(text.trim_end_matches(['\r', '\n']).to_owned())
}

/// A file that nobody but its owner can read.
fn private(path: &Path) -> anyhow::Result<String> {
    let name = path.display();
    let mode = fs::metadata(path).with_context(|| format!("{name} cannot be read"))?.mode();
    ensure!(
        mode & OTHERS == 0,
        "{name} can be read by others than its owner (mode {:04o}), and whoever has it reads and writes every bundle\n  → \
         chmod 600 {name}",
        mode & 0o7777
    );
    fs::read_to_string(path).with_context(|| format!("{name} cannot be read as text"))
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    const GOOD: &str = "endpoint = 'https://s3.example'\nbucket = 'support'\naccess-key-id-env = 'ID'\n\
                        secret-access-key-env = 'SECRET'\n";

    fn read(text: &str) -> anyhow::Result<Settings> {
        let variable = |name: &str| match name {
            "ID" => Some("AKIA".to_owned()),
            "SECRET" => Some("hush-hush".to_owned()),
            "EMPTY" => Some(String::new()),
            "TWO" => Some("hush hush".to_owned()),
            _ => None,
        };
        toml::from_str::<Bundles>(text)?.checked(variable)
    }

    #[test]
    fn what_is_absent_has_its_default_and_keys_come_from_files_or_the_environment() {
        let settings = read(GOOD).expect("it fits");
        assert_eq!(
            (settings.region.as_str(), settings.max_bytes, settings.path_style),
            ("us-east-1", 256 << 20, false)
        );
        assert!(!format!("{settings:?}").contains("hush"));
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("secret");
        fs::write(&path, "from-a-file\n").expect("written");
        let text = |path: &Path| {
            GOOD.replace("secret-access-key-env = 'SECRET'", &format!("secret-access-key-file = '{}'", path.display()))
        };
        fs::set_permissions(&path, Permissions::from_mode(0o640)).expect("its owner may");
        let refused = format!("{:#}", read(&text(&path)).expect_err("others can read it"));
        assert!(refused.contains("chmod 600") && !refused.contains("from-a-file"), "{refused}");
        fs::set_permissions(&path, Permissions::from_mode(0o600)).expect("its owner may");
        assert_eq!(read(&text(&path)).expect("it fits").secret_access_key, "from-a-file");
        assert!(read(&text(&folder.path().join("gone"))).is_err());
    }

    #[test]
    fn what_is_wrong_names_its_key_and_rule_and_no_secret() {
        let with = |from: &str, to: &str| {
            assert!(GOOD.contains(from), "{from}");
            GOOD.replace(from, to)
        };
        let more = |line: &str| format!("{GOOD}{line}\n");
        for (text, words) in [
            (with("endpoint = 'https://s3.example'\n", ""), "support-bundles.endpoint: is missing"),
            (with("https://s3.example", "s3.example"), "support-bundles.endpoint: must be a URL"),
            (with("https://s3.example", "ftp://s3.example"), "support-bundles.endpoint: must begin with https://"),
            (
                with("https://s3.example", "http://s3.example"),
                "support-bundles.endpoint: must begin with https://: bundles",
            ),
            (with("https://s3.example", "https://u:hush@s3.example"), "support-bundles.endpoint: must hold no user"),
            (with("https://s3.example", "https://s3.example/?a=b"), "support-bundles.endpoint: must end with its path"),
            (with("https://s3.example", "https://127.0.0.1:9000"), "support-bundles.path-style: must be true"),
            (with("bucket = 'support'\n", ""), "support-bundles.bucket: is missing"),
            (with("'support'", "'Sup/port'"), "support-bundles.bucket: must have 3 to 63 characters"),
            (more("region = ''"), "support-bundles.region: must be a region's name"),
            (more("region = 'a/b'"), "support-bundles.region: must be a region's name"),
            (more("max-bytes = '1KiB'"), "support-bundles.max-bytes: must be between 64KiB and 5GiB"),
            (more("max-bytes = '6GiB'"), "support-bundles.max-bytes: must be between 64KiB and 5GiB"),
            (with("access-key-id-env = 'ID'\n", ""), "support-bundles.access-key-id-file: is missing"),
            (with("'SECRET'", "'GONE'"), "support-bundles.secret-access-key-env: the environment has no variable GONE"),
            (with("'SECRET'", "'EMPTY'"), "support-bundles.secret-access-key: must be one word"),
            (with("'SECRET'", "'TWO'"), "support-bundles.secret-access-key: must be one word"),
            (more("secret-access-key-file = '/x'"), "support-bundles.secret-access-key-env: takes the place of"),
            (more("ca-file = '/nowhere.pem'"), "support-bundles.ca-file: /nowhere.pem cannot be read"),
            (more("ca-file = '/dev/null'"), "support-bundles.ca-file: must hold certificates in PEM"),
            (more("secret-access-key = 'plain'"), "unknown field `secret-access-key`"),
        ] {
            let refused = format!("{:#}", read(&text).expect_err(&text));
            assert!(refused.contains(words), "{text}: {refused}");
            assert!(!refused.contains("hush"), "{refused}");
        }
    }
}
