//! The table `[pki]` of a server's settings: what is signed, who approves, whom nodes trust.
//!
//! **Invariant:** a key that others could read is not used, and what is wrong names the key of the table and its rule.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail, ensure};
use bc_host::trust;
use bc_proto::rules::approval::{Approver, BadPolicy, Policy, Requirement};
use bc_proto::rules::trust::Publisher;
use bc_proto::sign::{PublicKey, WorkerKey};
use serde::Deserialize;

use crate::pki::keys;

/// The table.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
pub(crate) struct Pki {
    /// The root's private key, PEM.
    command_signing: Option<PathBuf>,
    /// In its place a worker key that the root's owner certifies each day, PEM; the certificate lies beside it.
    worker_key: Option<PathBuf>,
    /// Roots that nodes trust besides, 64 hexadecimal digits each.
    command_signing_roots: Vec<String>,
    /// The trust bundle's version is never below this.
    trust_version: u64,
    /// How many destructive commands outside batches a node accepts in an hour.
    unbatched_destructive_per_hour: u32,
    /// Who may approve.
    approvers: Vec<Person>,
    /// How many of whom it takes.
    require: Vec<Requirement>,
    /// Who signs kinds.
    publishers: Vec<Person>,
}

/// Somebody with a key.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Person {
    name: String,
    key: String,
    #[serde(default)]
    groups: Vec<String>,
}

impl Pki {
    /// This table with the root's key from a flag, where one was given.
    pub(super) fn over(self, command_signing: Option<PathBuf>) -> Self {
        Self { command_signing: command_signing.or(self.command_signing), ..self }
    }

    /// Reads the keys, and checks all of it at a time, milliseconds since the Unix epoch.
    pub(crate) fn checked(self, now_ms: u64) -> anyhow::Result<trust::Settings> {
        ensure!(
            self.command_signing.is_none() || self.worker_key.is_none(),
            "pki.worker-key: takes the place of pki.command-signing; give one of the two"
        );
        let command_signing = self
            .command_signing
            .as_deref()
            .map(|path| keys::secret(path).context("pki.command-signing"))
            .transpose()?;
        let mut roots = Vec::new();
        for (at, text) in self.command_signing_roots.iter().enumerate() {
            let root = key(text).with_context(|| format!("pki.command-signing-roots[{at}]"))?;
            ensure!(!roots.contains(&root), "pki.command-signing-roots[{at}]: {root} is listed twice");
            roots.push(root);
        }
        let worker = self.worker_key.as_deref().map(|path| worker(path, &roots, now_ms)).transpose()?;
        ensure!(
            roots.is_empty() || command_signing.is_some() || worker.is_some(),
            "pki.command-signing-roots: needs pki.command-signing beside it; nodes would trust roots that sign nothing"
        );
        let publishers = self.publishers.into_iter().enumerate().map(|(at, person)| {
            let field = format!("pki.publishers[{at}]");
            ensure!(person.groups.is_empty(), "{field}.groups: publishers have none");
            let key = key(&person.key).with_context(|| format!("{field}.key"))?;
            ensure!(!person.name.is_empty(), "{field}.name: must not be empty");
            Ok(Publisher { name: person.name, key })
        });
        let publishers = publishers.collect::<anyhow::Result<Vec<_>>>()?;
        let mut names: BTreeMap<PublicKey, &str> = BTreeMap::new();
        for publisher in &publishers {
            if names.insert(publisher.key, &publisher.name).is_some_and(|name| name != publisher.name) {
                bail!("pki.publishers: the key {} is listed for two names", publisher.key);
            }
        }
        Ok(trust::Settings {
            command_signing,
            worker,
            command_signing_roots: roots,
            approvers: policy(self.approvers, self.require)?,
            unbatched_destructive_per_hour: self.unbatched_destructive_per_hour,
            publishers,
            trust_version: self.trust_version,
        })
    }
}

fn policy(people: Vec<Person>, require: Vec<Requirement>) -> anyhow::Result<Option<Policy>> {
    if people.is_empty() {
        ensure!(require.is_empty(), "pki.require: needs pki.approvers; nobody could approve");
        return Ok(None);
    }
    let mut approvers: Vec<Approver> = Vec::new();
    for (at, Person { name, key: text, groups }) in people.into_iter().enumerate() {
        ensure!(!name.is_empty(), "pki.approvers[{at}].name: must not be empty");
        let key = key(&text).with_context(|| format!("pki.approvers[{at}].key"))?;
        let twice = approvers.iter().any(|it| it.name == name && it.key == key);
        ensure!(!twice, "pki.approvers[{at}].key: {name} has this key already");
        approvers.push(Approver { name, key, groups });
    }
    let policy = Policy { approvers, require };
    policy.check().map_err(|bad| match bad {
        BadPolicy::AsksForNobody => anyhow::anyhow!("pki.require: must ask for at least one approver"),
        BadPolicy::CannotBeMet => anyhow::anyhow!("pki.require: no set of the people in pki.approvers can meet it"),
        BadPolicy::KeyOfTwo(key) => anyhow::anyhow!("pki.approvers: the key {key} is listed for two names"),
    })?;
    Ok(Some(policy))
}

/// A public key as 64 hexadecimal digits or as PEM.
fn key(text: &str) -> anyhow::Result<PublicKey> {
    let key = if text.trim_start().starts_with("-----") { PublicKey::from_pem(text)? } else { text.parse()? };
    Ok(key)
}

/// A worker key with the certificate that lies beside it.
fn worker(path: &Path, roots: &[PublicKey], now_ms: u64) -> anyhow::Result<(WorkerKey, bc_proto::sign::SecretKey)> {
    let secret = keys::secret(path).context("pki.worker-key")?;
    let file = keys::certificate_of(path);
    let name = file.display();
    let text = std::fs::read_to_string(&file).with_context(|| format!("pki.worker-key: {name} cannot be read"))?;
    let worker: WorkerKey =
        serde_json::from_str(&text).with_context(|| format!("pki.worker-key: {name} is no certificate"))?;
    ensure!(worker.key == secret.public(), "pki.worker-key: {name} certifies another key");
    let believed = worker.verify(roots);
    believed.with_context(|| format!("pki.worker-key: {name} is not from a root in pki.command-signing-roots"))?;
    let holds = worker.not_before_ms <= now_ms && now_ms < worker.not_after_ms;
    ensure!(holds, "pki.worker-key: {name} is not valid now; make another with `better-compute pki issue-worker`");
    Ok((worker, secret))
}

#[cfg(test)]
mod tests {
    use bc_proto::sign::SecretKey;

    use super::*;

    fn hex(seed: u8) -> String {
        SecretKey::from_seed([seed; 32]).public().to_string()
    }

    fn check(text: &str) -> Result<trust::Settings, String> {
        let pki: Pki = toml::from_str(text).map_err(|error| error.to_string())?;
        pki.checked(1_000).map_err(|error| format!("{error:#}"))
    }

    fn person(table: &str, name: &str, key: &str) -> String {
        format!("[[{table}]]\nname = '{name}'\nkey = '{key}'\ngroups = ['a']\n")
    }

    #[test]
    fn a_table_that_fits_becomes_settings() {
        let folder = tempfile::tempdir().expect("a folder");
        let root = folder.path().join("root.pem");
        keys::write(&root, &SecretKey::from_seed([1; 32])).expect("written");
        let text = format!(
            "command-signing = '{}'\ncommand-signing-roots = ['{}']\ntrust-version = 7\n\
             unbatched-destructive-per-hour = 2\n[[require]]\ngroup = 'a'\ncount = 2\n{}{}",
            root.display(),
            hex(2),
            person("approvers", "anna", &hex(3)),
            person("approvers", "ben", &hex(4)),
        );
        let settings = check(&text).expect("it fits");
        assert_eq!(settings.bundle().expect("there is something").roots.len(), 2);
        assert_eq!((settings.trust_version, settings.unbatched_destructive_per_hour), (7, 2));
        assert!(!settings.requires_batches());
        assert!(check("").expect("nothing is asked").bundle().is_none());
    }

    #[test]
    fn what_is_wrong_names_its_key_and_its_rule() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = |name: &str, text: &str, mode| {
            use std::os::unix::fs::PermissionsExt;
            let path = folder.path().join(name);
            std::fs::write(&path, text).expect("written");
            std::fs::set_permissions(&path, PermissionsExt::from_mode(mode)).expect("set");
            format!("command-signing = '{}'", path.display())
        };
        let pem = SecretKey::from_seed([1; 32]).to_pem();
        let require = "[[require]]\ncount = 1\n";
        let p256 = rcgen::KeyPair::generate().expect("a key");
        let one = person("approvers", "anna", &hex(3));
        for (text, expected) in [
            (file("open", &pem, 0o640), "pki.command-signing: "),
            (file("open", &pem, 0o640), "can be read by others"),
            (file("p256", &p256.serialize_pem(), 0o600), "this is not an Ed25519 key"),
            (file("text", "x", 0o600), "this is no PRIVATE KEY in PEM"),
            ("command-signing = '/nowhere/root.pem'".into(), "pki.command-signing: /nowhere/root.pem cannot be read"),
            (format!("command-signing-roots = ['{}']", hex(1)), "pki.command-signing-roots: needs pki.command-signing"),
            ("command-signing-roots = ['12']".into(), "pki.command-signing-roots[0]: a public key is written as 64"),
            (format!("command-signing-roots = ['{0}', '{0}']", hex(1)), "pki.command-signing-roots[1]: "),
            (require.into(), "pki.require: needs pki.approvers"),
            (one.clone(), "pki.require: must ask for at least one approver"),
            (format!("{one}[[require]]\ncount = 2\n"), "pki.require: no set of the people"),
            (format!("{require}{one}{one}"), "pki.approvers[1].key: anna has this key already"),
            (format!("{require}{one}{}", person("approvers", "ben", &hex(3))), "is listed for two names"),
            (format!("{require}{}", person("approvers", "", &hex(3))), "pki.approvers[0].name"),
            (format!("{require}{}", person("approvers", "x", "zz")), "pki.approvers[0].key: a public key is written"),
            (
                format!(
                    "{require}{}",
                    person("approvers", "x", &p256.public_key_pem().replace('\n', "\\n")).replace('\'', "\"")
                ),
                "not an Ed25519 key",
            ),
            (person("publishers", "x", &hex(3)), "pki.publishers[0].groups: publishers have none"),
            (person("publishers", "", &hex(3)).replace("groups = ['a']", ""), "pki.publishers[0].name"),
            ("command-sining = 'x'".into(), "unknown field"),
        ] {
            let refused = check(&text).map(drop).expect_err(expected);
            assert!(refused.contains(expected), "{text}: {refused}");
        }
    }

    #[test]
    fn a_worker_key_takes_the_root_s_place_for_its_day() {
        let folder = tempfile::tempdir().expect("a folder");
        let (path, root) = (folder.path().join("worker.pem"), SecretKey::from_seed([1; 32]));
        let secret = SecretKey::from_seed([2; 32]);
        keys::write(&path, &secret).expect("written");
        let text = |root: u8| format!("worker-key = '{}'\ncommand-signing-roots = ['{}']", path.display(), hex(root));
        let certify = |key: PublicKey, from| {
            let worker = WorkerKey::certify(&root, key, from);
            std::fs::write(keys::certificate_of(&path), serde_json::to_string(&worker).expect("JSON"))
                .expect("written");
        };
        assert!(check(&text(1)).map(drop).expect_err("no certificate").contains("cannot be read"));
        certify(secret.public(), 0);
        let settings = check(&text(1)).expect("it fits");
        assert_eq!(settings.worker.expect("it is there").0.key, secret.public());
        assert!(check(&text(3)).map(drop).expect_err("another root").contains("root that is not trusted"));
        certify(secret.public(), 5_000);
        assert!(check(&text(1)).map(drop).expect_err("too early").contains("is not valid now"));
        certify(root.public(), 0);
        assert!(check(&text(1)).map(drop).expect_err("another key").contains("certifies another key"));
    }
}
