//! The disks of the machine and what uses them, out of sysfs and procfs.
//!
//! **Invariant:** a use that could not be looked up is an error and never "nobody": a device is free only when everything that may
//! use it was read.

use std::fs;
use std::io::{self, ErrorKind};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use bc_runtime::capability::{Answer, Error, block_devices};
use rustix::fs::{major, minor};

use crate::capability::inventory::vital_product_serial;

/// The unit of sysfs's `size`, whatever the device's own block size.
const SECTOR_BYTES: u64 = 512;

/// How a device takes commands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Bus {
    Nvme,
    /// SATA, which the kernel shows as SCSI of the vendor `ATA`.
    Ata,
    /// Another piece of hardware.
    Other,
    /// Made of other devices or of files: loops, device mapper, RAID, memory.
    Software,
}

impl Bus {
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Nvme => "nvme",
            Self::Ata => "ata",
            Self::Other => "other",
            Self::Software => "software",
        }
    }
}

/// Major and minor number.
type Number = (u32, u32);

/// A whole device, no partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Disk {
    /// Its name in sysfs.
    pub(super) name: String,
    /// `/dev/…`, as grants and payloads name it.
    pub(super) path: String,
    /// The file to open: the same below the machine's root.
    pub(super) node: PathBuf,
    pub(super) number: Number,
    pub(super) size_bytes: u64,
    pub(super) model: Option<String>,
    pub(super) serial: Option<String>,
    pub(super) bus: Bus,
    pub(super) is_read_only: bool,
    pub(super) rotational: Option<bool>,
    /// The most that one request discards or zeroes, bytes; 0 is none, `None` unknown.
    pub(super) discard_max_bytes: Option<u64>,
    pub(super) write_zeroes_max_bytes: Option<u64>,
    pub(super) users: Vec<String>,
}

impl Disk {
    pub(super) fn record(&self) -> block_devices::Device {
        block_devices::Device {
            path: self.path.clone(),
            size_bytes: self.size_bytes,
            model: self.model.clone(),
            serial: self.serial.clone(),
            users: self.users.clone(),
        }
    }
}

/// All disks below a root, by name.
pub(super) fn all(root: &Path) -> Answer<Vec<Disk>> {
    let folder = root.join("sys/block");
    let mut names = entries(&folder).map_err(|error| unread(&folder, &error))?;
    names.sort();
    let uses = Uses::read(root, &names)?;
    let mut disks = Vec::new();
    for name in names {
        if let Some(disk) = disk(root, &name, &uses)? {
            disks.push(disk);
        }
    }
    Ok(disks)
}

/// One of them. Errors `not-found`.
pub(super) fn find(root: &Path, path: &str) -> Answer<Disk> {
    let found = all(root)?.into_iter().find(|disk| disk.path == path);
    found.ok_or_else(|| {
        let message = format!("there is no disk {path}: the whole device has to be named, as `devices` lists it");
        Error::new("not-found", message)
    })
}

/// Other namespaces of the same NVMe controller.
pub(super) fn siblings(root: &Path, disk: &Disk) -> Answer<Vec<String>> {
    let Some(controller) = controller(&disk.name) else { return Ok(Vec::new()) };
    let folder = root.join("sys/block");
    let names = entries(&folder).map_err(|error| unread(&folder, &error))?;
    // With multipath, `nvme0c1n1` is a hidden path to `nvme0n1`, and no namespace of its own.
    let is_sibling = |name: &String| *name != disk.name && self::controller(name) == Some(controller);
    Ok(names.into_iter().filter(is_sibling).map(|name| format!("/dev/{name}")).collect())
}

/// `nvme0` of `nvme0n1`; none of a path or of another device.
fn controller(name: &str) -> Option<&str> {
    let number = name.strip_prefix("nvme")?;
    let end = number.find(|c: char| !c.is_ascii_digit())?;
    let namespace = number[end..].strip_prefix('n')?;
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    (end > 0 && is_number(namespace)).then(|| &name[.."nvme".len() + end])
}

fn disk(root: &Path, name: &str, uses: &Uses) -> Answer<Option<Disk>> {
    let folder = root.join("sys/block").join(name);
    let text = |file: &str| optional(&folder.join(file));
    let number_of = |file: &str| Ok::<_, Error>(text(file)?.and_then(|text| text.parse::<u64>().ok()));
    let size_bytes = number_of("size")?.unwrap_or(0).saturating_mul(SECTOR_BYTES);
    let is_hidden = text("hidden")?.as_deref() == Some("1");
    let Some(number) = text("dev")?.as_deref().and_then(device_number) else { return Ok(None) };
    // A loop without a file, a reader without a medium.
    if size_bytes == 0 || is_hidden {
        return Ok(None);
    }
    let vendor = text("device/vendor")?;
    let is_software = ["loop", "ram", "zram", "dm-", "md", "nbd"].iter().any(|kind| name.starts_with(kind))
        || !folder.join("device").exists();
    let bus = match vendor.as_deref() {
        _ if is_software => Bus::Software,
        _ if name.starts_with("nvme") => Bus::Nvme,
        Some("ATA") => Bus::Ata,
        _ => Bus::Other,
    };
    let page = fs::read(folder.join("device/vpd_pg80")).ok();
    let serial = match page.as_deref().and_then(vital_product_serial) {
        Some(serial) => Some(serial),
        None => text("device/serial")?.or(text("serial")?),
    };
    let model = text("device/model")?.or(text("device/name")?);
    let path = format!("/dev/{}", name.replace('!', "/"));
    Ok(Some(Disk {
        node: root.join(path.trim_start_matches('/')),
        number,
        size_bytes,
        model,
        serial,
        bus,
        is_read_only: text("ro")?.as_deref() == Some("1"),
        rotational: text("queue/rotational")?.map(|flag| flag == "1"),
        discard_max_bytes: number_of("queue/discard_max_bytes")?,
        write_zeroes_max_bytes: number_of("queue/write_zeroes_max_bytes")?,
        users: uses.of(&folder, name, number)?,
        name: name.to_owned(),
        path,
    }))
}

/// What uses devices.
struct Uses {
    mounts: Vec<Mount>,
    /// Paths as `swapon` was given them, and their numbers.
    swaps: Vec<(String, Option<Number>)>,
    /// Loop devices and the files behind them.
    loops: Vec<(String, String)>,
}

#[derive(Debug, PartialEq, Eq)]
struct Mount {
    number: Option<Number>,
    point: String,
    source: String,
}

impl Uses {
    fn read(root: &Path, names: &[String]) -> Answer<Self> {
        let file = root.join("proc/self/mountinfo");
        let text = fs::read_to_string(&file).map_err(|error| unread(&file, &error))?;
        let mounts = text.lines().filter_map(mount).collect();
        // A kernel without swap has no such file.
        let swaps = optional(&root.join("proc/swaps"))?.unwrap_or_default();
        let path_of = |line: &str| line.split_whitespace().next().map(unescape);
        let swaps = swaps.lines().skip(1).filter_map(path_of);
        let swaps = swaps.map(|path| (path.clone(), number_of(&root.join(path.trim_start_matches('/'))))).collect();
        let mut loops = Vec::new();
        for name in names.iter().filter(|name| name.starts_with("loop")) {
            if let Some(file) = optional(&root.join("sys/block").join(name).join("loop/backing_file"))? {
                loops.push((name.clone(), file));
            }
        }
        Ok(Self { mounts, swaps, loops })
    }

    /// The users of a disk and of its partitions, each once.
    fn of(&self, folder: &Path, name: &str, number: Number) -> Answer<Vec<String>> {
        let mut parts = vec![(name.to_owned(), Some(number), folder.to_owned())];
        for part in entries(folder).map_err(|error| unread(folder, &error))? {
            let folder = folder.join(&part);
            if folder.join("partition").exists() {
                let number = optional(&folder.join("dev"))?.as_deref().and_then(device_number);
                parts.push((part, number, folder));
            }
        }
        let mut users = Vec::new();
        for (name, number, folder) in parts {
            let path = format!("/dev/{}", name.replace('!', "/"));
            let is_it = |other: &Option<Number>, source: &str| (other.is_some() && *other == number) || source == path;
            let mounted = self.mounts.iter().filter(|mount| is_it(&mount.number, &mount.source));
            users.extend(mounted.map(|mount| format!("{path} is mounted at {}", mount.point)));
            if self.swaps.iter().any(|(swap, number)| is_it(number, swap)) {
                users.push(format!("{path} is swap"));
            }
            let behind = self.loops.iter().filter(|(_, file)| *file == path);
            users.extend(behind.map(|(name, _)| format!("{path} is behind /dev/{name}")));
            match entries(&folder.join("holders")) {
                Ok(holders) => users.extend(holders.into_iter().map(|holder| format!("{path} is held by {holder}"))),
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                Err(error) => return Err(unread(&folder.join("holders"), &error)),
            }
        }
        users.sort();
        users.dedup();
        Ok(users)
    }
}

/// One line of `/proc/self/mountinfo`: id, parent, numbers, root, mount point, options, optional fields, `-`, type, source.
fn mount(line: &str) -> Option<Mount> {
    let (before, after) = line.split_once(" - ")?;
    let mut before = before.split(' ');
    let number = device_number(before.nth(2)?);
    let point = unescape(before.nth(1)?);
    Some(Mount { number, point, source: unescape(after.split(' ').nth(1)?) })
}

/// The kernel writes spaces and the like as three octal digits.
fn unescape(text: &str) -> String {
    let mut parts = text.split('\\');
    let mut bytes = parts.next().unwrap_or_default().as_bytes().to_vec();
    for part in parts {
        if let Some(byte) = part.get(..3).and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            bytes.push(byte);
            bytes.extend(&part.as_bytes()[3..]);
        } else {
            bytes.push(b'\\');
            bytes.extend(part.as_bytes());
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

fn device_number(text: &str) -> Option<Number> {
    let (major, minor) = text.split_once(':')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

/// The numbers of a device's file.
pub(super) fn number_of(file: &Path) -> Option<Number> {
    let metadata = fs::metadata(file).ok().filter(|metadata| metadata.file_type().is_block_device())?;
    Some((major(metadata.rdev()), minor(metadata.rdev())))
}

fn entries(folder: &Path) -> io::Result<Vec<String>> {
    let names = fs::read_dir(folder)?.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()));
    names.collect()
}

/// A file's text without the space around it; `None` where there is no such file, or nothing in it.
fn optional(file: &Path) -> Answer<Option<String>> {
    match fs::read(file) {
        Ok(bytes) => {
            let text = String::from_utf8_lossy(&bytes);
            let text = text.trim_matches(|c: char| c.is_whitespace() || c == '\0');
            Ok((!text.is_empty()).then(|| text.to_owned()))
        }
        // A device that goes while it is looked at has no files either.
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => Ok(None),
        Err(error) if matches!(error.raw_os_error(), Some(19 | 6)) => Ok(None),
        Err(error) => Err(unread(file, &error)),
    }
}

fn unread(file: &Path, error: &io::Error) -> Error {
    let message = format!("{} cannot be read: {error}", file.display());
    error.raw_os_error().map_or_else(|| Error::new("io", &message), |number| Error::native("io", number, &message))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_mount_is_read_with_its_odd_names() {
        let line = r"36 35 259:3 / /mnt/a\040b rw,noatime master:1 - ext4 /dev/nvme0n1p1 rw";
        let expected = Mount { number: Some((259, 3)), point: "/mnt/a b".into(), source: "/dev/nvme0n1p1".into() };
        assert_eq!(mount(line), Some(expected));
        assert_eq!(mount("nothing"), None);
        assert_eq!(unescape(r"a\9b\"), r"a\9b\");
    }

    #[test]
    fn namespaces_of_a_controller_are_told_from_paths_to_them() {
        assert_eq!(controller("nvme10n2"), Some("nvme10"));
        for name in ["nvme0c1n1", "nvme0", "nvmen1", "sda", "nvme0n1p1"] {
            assert_eq!(controller(name), None, "{name}");
        }
    }

    fn write(root: &Path, files: &[(&str, &str)]) {
        for (name, text) in files {
            let file = root.join(name);
            fs::create_dir_all(file.parent().expect("a folder")).expect("made");
            fs::write(file, text).expect("written");
        }
    }

    #[test]
    fn every_use_of_a_disk_and_of_its_partitions_is_told() {
        let root = tempfile::tempdir().expect("a folder");
        let root = root.path();
        write(
            root,
            &[
                ("sys/block/nvme0n1/dev", "259:0\n"),
                ("sys/block/nvme0n1/size", "2048\n"),
                ("sys/block/nvme0n1/device/model", "Disk One   \n"),
                ("sys/block/nvme0n1/device/serial", "S1  \n"),
                ("sys/block/nvme0n1/nvme0n1p1/partition", "1\n"),
                ("sys/block/nvme0n1/nvme0n1p1/dev", "259:1\n"),
                ("sys/block/nvme0n1/nvme0n1p1/holders/dm-0", ""),
                ("sys/block/nvme0n1/nvme0n1p2/partition", "2\n"),
                ("sys/block/nvme0n1/nvme0n1p2/dev", "259:2\n"),
                ("sys/block/nvme1n1/dev", "259:9\n"),
                ("sys/block/nvme1n1/size", "2048\n"),
                ("sys/block/nvme1n1/device/model", "Disk Two\n"),
                ("sys/block/loop0/dev", "7:0\n"),
                ("sys/block/loop0/size", "0\n"),
                ("sys/block/loop0/loop/backing_file", "/dev/nvme0n1p2\n"),
                (
                    "proc/self/mountinfo",
                    "1 2 259:1 / /boot rw - ext4 /dev/nvme0n1p1 rw\n3 4 0:40 / /data rw - btrfs /dev/nvme0n1p2 rw\n",
                ),
                ("proc/swaps", "Filename Type Size Used Priority\n/dev/nvme0n1p2 partition 1 0 -2\n"),
            ],
        );
        let disks = all(root).expect("everything can be read");
        let [first, second] = &disks[..] else { panic!("two disks: {disks:?}") };
        assert_eq!(
            (first.bus, first.serial.as_deref(), first.model.as_deref()),
            (Bus::Nvme, Some("S1"), Some("Disk One"))
        );
        assert_eq!(first.size_bytes, 1024 * 1024);
        assert_eq!(
            first.users,
            [
                "/dev/nvme0n1p1 is held by dm-0",
                "/dev/nvme0n1p1 is mounted at /boot",
                "/dev/nvme0n1p2 is behind /dev/loop0",
                "/dev/nvme0n1p2 is mounted at /data",
                "/dev/nvme0n1p2 is swap",
            ]
        );
        assert_eq!((second.users.len(), second.serial.as_deref()), (0, None));
        assert_eq!(find(root, "/dev/nvme0n1p1").expect_err("a partition").code, "not-found");

        fs::remove_file(root.join("proc/self/mountinfo")).expect("it is there");
        assert_eq!(all(root).expect_err("nobody knows what is mounted").code, "io");
    }

    proptest! {
        #[test]
        fn no_line_makes_it_panic(line in ".{0,80}") {
            let _ = (mount(&line), unescape(&line), controller(&line), device_number(&line));
        }
    }
}
