//! The certificate authority's key and certificate on disk: `authority.pem` and `authority.key` in the state folder, which
//! several replicas may share.
//!
//! **Invariant:** an authority is made once: whoever makes it holds the folder's lock, and the certificate appears last.

use std::fs::{self, File};
use std::io;
use std::path::Path;

use anyhow::{Context, bail};
use bc_host::pki::Authority;
use time::OffsetDateTime;

use crate::contexts::write_private;

/// The authority of the folder; a new one where there is none. `serial` names its certificate then.
pub fn open(folder: &Path, serial: [u8; 16], now: OffsetDateTime) -> anyhow::Result<Authority> {
    let name = folder.display();
    fs::create_dir_all(folder).with_context(|| format!("{name} cannot be made"))?;
    let lock = folder.join("authority.lock");
    let lock = File::create(&lock).with_context(|| format!("{} cannot be opened", lock.display()))?;
    lock.lock().with_context(|| format!("{name} cannot be locked"))?;
    let (certificate, key) = (folder.join("authority.pem"), folder.join("authority.key"));
    match (read(&certificate)?, read(&key)?) {
        (Some(certificate), Some(key)) => {
            Authority::open(&certificate, &key).with_context(|| format!("the authority in {name} is damaged"))
        }
        (Some(_), None) => bail!(
            "{} is missing, and {} is there: restore it from a backup. With a new authority every node would have to join again",
            key.display(),
            certificate.display()
        ),
        // A key without a certificate was never used: its maker did not get to the end.
        (None, _) => {
            let (authority, made) = Authority::create(serial, now)?;
            write_private(&key, made.as_bytes()).with_context(|| format!("{} cannot be written", key.display()))?;
            write_private(&certificate, authority.certificate_pem().as_bytes())
                .with_context(|| format!("{} cannot be written", certificate.display()))?;
            Ok(authority)
        }
    }
}

fn read(path: &Path) -> anyhow::Result<Option<String>> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error).with_context(|| format!("{} cannot be read", path.display())),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    const NOW: OffsetDateTime = OffsetDateTime::UNIX_EPOCH.saturating_add(time::Duration::days(20_000));

    #[test]
    fn replicas_that_start_together_share_one_authority() {
        let folder = tempfile::tempdir().expect("a folder");
        let open = |serial: u8| open(folder.path(), [serial; 16], NOW).expect("an authority");
        let certificates: Vec<_> = std::thread::scope(|scope| {
            let replicas: Vec<_> = (1..=4).map(|serial| scope.spawn(move || open(serial))).collect();
            replicas.into_iter().map(|it| it.join().expect("no panic").certificate_der().to_vec()).collect()
        });
        assert!(certificates.iter().all(|it| *it == certificates[0]));
        assert_eq!(open(9).certificate_der(), certificates[0]);
        let mode = fs::metadata(folder.path().join("authority.key")).expect("a file").permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }

    #[test]
    fn a_lost_key_is_not_replaced_silently_and_a_half_made_authority_is_made_again() {
        let folder = tempfile::tempdir().expect("a folder");
        let first = open(folder.path(), [1; 16], NOW).expect("an authority");
        fs::remove_file(folder.path().join("authority.key")).expect("removed");
        let refused = open(folder.path(), [2; 16], NOW).map(drop).expect_err("the key is gone").to_string();
        assert!(refused.contains("restore it from a backup"), "{refused}");

        fs::remove_file(folder.path().join("authority.pem")).expect("removed");
        fs::write(folder.path().join("authority.key"), "half").expect("written");
        let second = open(folder.path(), [2; 16], NOW).expect("a new one");
        assert_ne!(first.certificate_der(), second.certificate_der());
    }
}
