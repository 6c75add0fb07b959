//! Which GPU sits at which PCI address, remembered: the kernel's log names GPUs by address, and a lost one cannot be asked.
//!
//! **Invariant:** an address has one UUID and a UUID one address, those seen last. The file is a convenience: whatever is
//! wrong with it is logged, and never an error.

use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
    sync::{Mutex, MutexGuard, PoisonError},
};

/// UUIDs by address (`dddd:bb:dd`), in memory and in a JSON file.
pub(super) struct Addresses {
    known: Mutex<BTreeMap<String, String>>,
    file: Option<PathBuf>,
}

impl Addresses {
    pub(super) fn load(file: Option<&Path>) -> Self {
        let read = |file| Ok(serde_json::from_slice(&fs::read(file)?)?);
        let known = file.map(|file| read(file).map_err(|error: io::Error| (file, error)));
        let known = match known.transpose() {
            Ok(known) => known.unwrap_or_default(),
            Err((_, error)) if error.kind() == io::ErrorKind::NotFound => BTreeMap::new(),
            Err((file, error)) => {
                tracing::warn!(file = %file.display(), %error, "known GPU addresses cannot be read; starting with none");
                BTreeMap::new()
            }
        };
        Self { known: Mutex::new(known), file: file.map(Path::to_owned) }
    }

    pub(super) fn uuid_of(&self, pci: &str) -> Option<String> {
        self.known().get(&key(pci)?).cloned()
    }

    /// Takes in pairs of address and UUID.
    pub(super) fn learn<'seen>(&self, seen: impl Iterator<Item = (&'seen str, &'seen str)>) {
        let mut known = self.known();
        let before = known.clone();
        for (address, uuid) in seen.filter_map(|(pci, uuid)| Some((key(pci)?, uuid))) {
            known.retain(|_, other| other != uuid);
            known.insert(address, uuid.to_owned());
        }
        if let Some(file) = self.file.as_ref().filter(|_| *known != before)
            && let Err(error) = store(file, &known)
        {
            tracing::warn!(file = %file.display(), %error, "known GPU addresses cannot be stored");
        }
    }

    fn known(&self) -> MutexGuard<'_, BTreeMap<String, String>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Called under the lock, so that one process has one writer.
fn store(file: &Path, known: &BTreeMap<String, String>) -> io::Result<()> {
    let complete = file.with_added_extension("new");
    fs::write(&complete, serde_json::to_vec(known)?)?;
    fs::rename(complete, file)
}

/// `dddd:bb:dd` from any spelling: eight digits of domain (NVML) or four (kernel), either case, with or without function.
fn key(pci: &str) -> Option<String> {
    let address = pci.split_once('.').map_or(pci, |(address, _function)| address);
    let mut parts = address.split(':').map(|part| u32::from_str_radix(part, 16));
    let (domain, bus, device) = (parts.next()?.ok()?, parts.next()?.ok()?, parts.next()?.ok()?);
    parts.next().is_none().then(|| format!("{domain:04x}:{bus:02x}:{device:02x}"))
}

#[cfg(test)]
mod tests {
    use super::Addresses;

    #[test]
    fn any_spelling_of_an_address_finds_its_gpu() {
        let addresses = Addresses::load(None);
        addresses.learn([("0000:1b:00.0", "GPU-1")].into_iter());
        for spelling in ["0000:1b:00.0", "0000:1b:00", "00000000:1B:00.0"] {
            assert_eq!(addresses.uuid_of(spelling).as_deref(), Some("GPU-1"), "{spelling}");
        }
        for other in ["0001:1b:00.0", "1b:00.0", "", "0000:zz:00"] {
            assert_eq!(addresses.uuid_of(other), None, "{other}");
        }
    }

    #[test]
    fn a_gpu_moved_or_replaced_is_known_where_it_was_seen_last() {
        let addresses = Addresses::load(None);
        addresses.learn([("0000:1b:00.0", "GPU-1"), ("0000:43:00.0", "GPU-2")].into_iter());
        addresses.learn([("0000:43:00.0", "GPU-1")].into_iter());
        assert_eq!(addresses.uuid_of("0000:43:00").as_deref(), Some("GPU-1"));
        assert_eq!(addresses.uuid_of("0000:1b:00"), None);
    }

    #[test]
    fn a_damaged_file_counts_as_empty_and_is_written_anew() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let file = folder.path().join("addresses.json");
        std::fs::write(&file, b"{\"0000:1b:00\":").expect("written");
        let addresses = Addresses::load(Some(&file));
        assert_eq!(addresses.uuid_of("0000:1b:00"), None);
        addresses.learn([("0000:1b:00.0", "GPU-1")].into_iter());
        assert_eq!(Addresses::load(Some(&file)).uuid_of("0000:1b:00").as_deref(), Some("GPU-1"));
    }
}
