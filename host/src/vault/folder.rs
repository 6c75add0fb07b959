//! The folder with the secrets' values: a file for each, `DIR/<tenant>/<reference>`.
//!
//! **Invariant:** only a regular file is read that nobody but its owner can read, and no reference leads out of its tenant's
//! folder.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use bc_proto::id::TenantId;
use bc_proto::secret::{self, MAX_BYTES, SecretValue};
use rustix::fs::{CWD, Mode, OFlags, openat};

/// Why there is no value. No message holds one.
#[derive(Debug, thiserror::Error)]
pub(super) enum Error {
    #[error("there is no such file")]
    NotFound,
    #[error("the reference is none")]
    BadRef,
    #[error("it is no regular file")]
    NotAFile,
    #[error("others than its owner may read or write it (mode {0:o}); let its owner alone: chmod 600")]
    Exposed(u32),
    #[error("it cannot be read: {0}")]
    Unreadable(io::Error),
    #[error(transparent)]
    NotAValue(#[from] secret::Error),
}

/// The value behind a tenant's reference.
pub(super) fn read(dir: &Path, tenant: TenantId, secret_ref: &str) -> Result<SecretValue, Error> {
    let path = path(dir, tenant, secret_ref).ok_or(Error::BadRef)?;
    // A link could lead to another tenant's secret, and a pipe would never end.
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let file = openat(CWD, &path, flags, Mode::empty()).map_err(|error| match error {
        rustix::io::Errno::NOENT => Error::NotFound,
        rustix::io::Errno::LOOP => Error::NotAFile,
        error => Error::Unreadable(error.into()),
    })?;
    let file = File::from(file);
    let metadata = file.metadata().map_err(Error::Unreadable)?;
    if !metadata.is_file() {
        return Err(Error::NotAFile);
    }
    if metadata.mode() & 0o077 != 0 {
        return Err(Error::Exposed(metadata.mode() & 0o777));
    }
    let most = MAX_BYTES as u64 + 3;
    let mut bytes = Vec::with_capacity(usize::try_from(metadata.len().min(most)).unwrap_or(0) + 1);
    file.take(most).read_to_end(&mut bytes).map_err(Error::Unreadable)?;
    Ok(SecretValue::from_bytes(bytes)?)
}

fn path(dir: &Path, tenant: TenantId, secret_ref: &str) -> Option<PathBuf> {
    secret::is_ref(secret_ref).then(|| dir.join(tenant.to_string()).join(secret_ref))
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::{PermissionsExt, symlink};

    use sqlx::types::Uuid;

    use super::*;

    fn put(path: &Path, value: &str, mode: u32) {
        fs::write(path, value).expect("a file");
        fs::set_permissions(path, Permissions::from_mode(mode)).expect("its owner may");
    }

    #[test]
    fn a_value_is_read_from_a_private_file_and_nothing_else() {
        let folder = tempfile::tempdir().expect("a folder");
        let (mine, other) = (TenantId::from_uuid(Uuid::from_u128(1)), TenantId::from_uuid(Uuid::from_u128(2)));
        let of = |tenant: TenantId, name: &str| folder.path().join(tenant.to_string()).join(name);
        for tenant in [mine, other] {
            fs::create_dir(folder.path().join(tenant.to_string())).expect("a folder");
        }
        put(&of(mine, "good"), "12345678\n", 0o600);
        put(&of(mine, "read-only"), "12345678", 0o400);
        put(&of(mine, "group"), "12345678", 0o640);
        put(&of(mine, "world"), "12345678", 0o604);
        put(&of(mine, "short"), "1234567", 0o600);
        put(&of(mine, "long"), &"x".repeat(MAX_BYTES + 1), 0o600);
        put(&of(other, "theirs"), "12345678", 0o600);
        symlink(of(other, "theirs"), of(mine, "linked")).expect("a link");
        fs::create_dir(of(mine, "folder")).expect("a folder");
        rustix::fs::mknodat(CWD, of(mine, "pipe"), rustix::fs::FileType::Fifo, Mode::RUSR, 0).expect("a pipe");

        for good in ["good", "read-only"] {
            assert_eq!(read(folder.path(), mine, good).expect(good).expose(), "12345678");
        }
        let mut said = String::new();
        let away = format!("../{other}/theirs");
        for bad in
            ["group", "world", "short", "long", "linked", "folder", "pipe", "gone", "theirs", "", "..", "a/b", &away]
        {
            let refused = read(folder.path(), mine, bad).expect_err(bad);
            said += &format!("{}: {refused}\n", bad.replace(&other.to_string(), "<other>"));
        }
        insta::assert_snapshot!(said);
    }
}
