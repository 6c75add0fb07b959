//! Writing an image onto a whole device.
//!
//! **Invariant:** a device that does not hold the whole, right image after the first byte was written has its beginning and its end
//! zeroed, so that it cannot be booted by accident; an error says so, or says that it could not be done.

use bc_runtime::capability::block_devices::{ImageReport, ImageRequest};
use bc_runtime::capability::{Answer, Error};
use sha2::{Digest, Sha256};

use super::OfRun;
use super::disk_io::{ALIGN_BYTES, Buffer, CHUNK_BYTES, Device};
use super::list::Disk;
use super::source::{Sink, Sources};

/// What is zeroed at either end of a device that must not be booted: the partition tables and the first stage of a boot loader.
const SPOILED_BYTES: u64 = 1024 * 1024;

impl OfRun {
    pub(super) fn deploy(&self, sources: &Sources, request: &ImageRequest) -> Answer<ImageReport> {
        let wanted = request.sha256.to_ascii_lowercase();
        if wanted.len() != 64 || !wanted.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err(Error::new("invalid-image", "the field `sha256` is to have 64 hex digits"));
        }
        let disk = self.claimed(&request.device, request.serial.as_deref())?;
        if disk.is_read_only {
            return Err(Error::new("io", format!("{} is read-only", disk.path)));
        }
        let mut writer = Writer::new(self, &disk, &request.image)?;
        let written = sources.fetch(self, &request.image, &mut writer).and_then(|()| writer.finish());
        let checked = written.and_then(|sha256| {
            if sha256 == wanted {
                return Ok(());
            }
            let message = format!(
                "the {} bytes of `{}` have the SHA-256 {sha256}, and {wanted} is wanted: {} holds a wrong image",
                writer.taken, request.image, disk.path
            );
            Err(Error::new("wrong-digest", message))
        });
        if let Err(error) = checked {
            return Err(writer.spoil(error));
        }
        let bytes_written = writer.taken;
        let verified = match read_back(self, &disk, bytes_written) {
            Ok(sha256) => sha256 == wanted,
            Err(error) => return Err(writer.spoil(error)),
        };
        if !verified {
            let _ = writer.spoil(Error::new("io", ""));
        }
        Ok(ImageReport { bytes_written, sha256: wanted, verified })
    }
}

/// Takes an image's bytes, hashes them and writes them.
struct Writer<'a> {
    run: &'a OfRun,
    disk: &'a Disk,
    device: Device<'a>,
    buffer: Buffer,
    filled: usize,
    /// How many bytes are on the device; a multiple of the buffer's size.
    flushed: u64,
    taken: u64,
    total: Option<u64>,
    hash: Sha256,
    /// Whether the device is no more what it was.
    is_touched: bool,
    message: String,
}

impl<'a> Writer<'a> {
    fn new(run: &'a OfRun, disk: &'a Disk, image: &str) -> Answer<Self> {
        Ok(Self {
            run,
            disk,
            device: Device::write(disk)?,
            buffer: Buffer::new(CHUNK_BYTES),
            filled: 0,
            flushed: 0,
            taken: 0,
            total: None,
            hash: Sha256::new(),
            is_touched: false,
            message: format!("{image} is written to {}", disk.path),
        })
    }

    fn fits(&self, bytes: u64) -> Answer<()> {
        if bytes <= self.disk.size_bytes {
            return Ok(());
        }
        let message =
            format!("the image has at least {bytes} bytes, and {} has {}", self.disk.path, self.disk.size_bytes);
        Err(Error::new("too-large", message))
    }

    fn flush(&mut self, len: usize) -> Answer<()> {
        self.run.go_on()?;
        self.is_touched = true;
        self.device.write_at(&self.buffer.bytes()[..len], self.flushed)?;
        self.flushed += self.filled as u64;
        self.filled = 0;
        self.run.progress(self.flushed, self.total, "bytes", &self.message);
        Ok(())
    }

    /// Writes what is left; answers the digest of everything.
    fn finish(&mut self) -> Answer<String> {
        if self.filled > 0 {
            // The rest of the last block keeps what it holds.
            let whole = self.filled.next_multiple_of(ALIGN_BYTES);
            let left = usize::try_from(self.disk.size_bytes - self.flushed).unwrap_or(whole);
            let len = whole.min(left);
            let block = self.filled / ALIGN_BYTES * ALIGN_BYTES;
            if len > self.filled {
                let mut last = Buffer::new(ALIGN_BYTES);
                let kept = &mut last.bytes_mut()[..len - block];
                self.device.read_at(kept, self.flushed + block as u64)?;
                let filled = self.filled;
                self.buffer.bytes_mut()[filled..len].copy_from_slice(&kept[filled - block..]);
            }
            self.flush(len)?;
        }
        self.device.sync()?;
        Ok(hex::encode(self.hash.clone().finalize()))
    }

    /// Zeroes both ends of a device that was touched. The error, with what became of the device.
    fn spoil(&self, error: Error) -> Error {
        if !self.is_touched {
            return Error { message: format!("{}; nothing was written to {}", error.message, self.disk.path), ..error };
        }
        let size = self.disk.size_bytes;
        let len = SPOILED_BYTES.min(size);
        let zeroes = Buffer::new(CHUNK_BYTES);
        let zeroes = &zeroes.bytes()[..usize::try_from(len).unwrap_or(CHUNK_BYTES).min(CHUNK_BYTES)];
        let spoiled = self.device.write_at(zeroes, 0).and_then(|()| self.device.write_at(zeroes, size - len));
        let became = match spoiled.and_then(|()| self.device.sync()) {
            Ok(()) => "its first and last MiB were zeroed, so that it cannot be booted".to_owned(),
            Err(error) => format!("its partition table could not be zeroed ({}): do not boot it", error.message),
        };
        let message = format!("{}; {} holds no whole image, and {became}", error.message, self.disk.path);
        Error { message, ..error }
    }
}

impl Sink for Writer<'_> {
    fn begin(&mut self, total: Option<u64>) -> Answer<()> {
        if let Some(total) = total {
            self.fits(total)?;
        }
        (self.filled, self.flushed, self.taken, self.total, self.hash) = (0, 0, 0, total, Sha256::new());
        Ok(())
    }

    fn take(&mut self, mut bytes: &[u8]) -> Answer<()> {
        self.fits(self.taken + bytes.len() as u64)?;
        self.hash.update(bytes);
        self.taken += bytes.len() as u64;
        while !bytes.is_empty() {
            let count = bytes.len().min(CHUNK_BYTES - self.filled);
            let filled = self.filled;
            self.buffer.bytes_mut()[filled..filled + count].copy_from_slice(&bytes[..count]);
            self.filled += count;
            bytes = &bytes[count..];
            if self.filled == CHUNK_BYTES {
                self.flush(CHUNK_BYTES)?;
            }
        }
        Ok(())
    }

    fn taken(&self) -> u64 {
        self.taken
    }
}

/// The digest of a device's first bytes, read from the device.
fn read_back(run: &OfRun, disk: &Disk, bytes: u64) -> Answer<String> {
    let device = Device::read(disk)?;
    device.drop_cache();
    let mut buffer = Buffer::new(CHUNK_BYTES);
    let mut hash = Sha256::new();
    let mut done = 0;
    while done < bytes {
        run.go_on()?;
        let wanted = usize::try_from(bytes - done).unwrap_or(CHUNK_BYTES).min(CHUNK_BYTES);
        let left = usize::try_from(disk.size_bytes - done).unwrap_or(CHUNK_BYTES);
        device.read_at(&mut buffer.bytes_mut()[..wanted.next_multiple_of(ALIGN_BYTES).min(left)], done)?;
        hash.update(&buffer.bytes()[..wanted]);
        done += wanted as u64;
        run.progress(done, Some(bytes), "bytes", &format!("{} is read back", disk.path));
    }
    Ok(hex::encode(hash.finalize()))
}
