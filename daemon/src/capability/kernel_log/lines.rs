//! Lines out of a stream that may be endless, hang, or hold one endless line.
//!
//! **Invariant:** memory is bounded by [`MAX_LINE_BYTES`], work by [`MAX_TOTAL_BYTES`] and, over a pipe, by a deadline.

use std::{
    io::{self, BufRead, Read},
    os::fd::{AsFd, BorrowedFd},
    time::{Duration, Instant},
};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// The longest line taken; what exceeds it is skipped. Ours: journald's JSON of one kernel message (at most 8 KiB, and up to
/// five bytes for each where it is no text) stays far below it.
pub(super) const MAX_LINE_BYTES: usize = 256 * 1024;

/// The most bytes taken of one log. Ours: a few hundred thousand messages, more than a healthy node logs in a year.
pub(super) const MAX_TOTAL_BYTES: u64 = 256 * 1024 * 1024;

/// How reading ended.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Extent {
    /// Lines that were cut off at [`MAX_LINE_BYTES`].
    pub(super) long_lines: u64,
    /// Whether [`MAX_TOTAL_BYTES`] was reached before the end.
    pub(super) cut_off: bool,
}

impl Extent {
    /// What it means for the reader of the report.
    pub(super) fn problems(&self) -> Vec<String> {
        let long =
            (self.long_lines > 0).then(|| format!("{} lines were longer than {MAX_LINE_BYTES} bytes", self.long_lines));
        let cut = self.cut_off.then(|| format!("only the first {MAX_TOTAL_BYTES} bytes of the log were read"));
        long.into_iter().chain(cut).collect()
    }
}

/// Calls `take` with each line, without its line feed.
pub(super) fn each(mut reader: impl BufRead, mut take: impl FnMut(&[u8])) -> io::Result<Extent> {
    let mut extent = Extent::default();
    let mut total = 0;
    let mut line = Vec::new();
    loop {
        line.clear();
        let read = reader.by_ref().take(MAX_LINE_BYTES as u64 + 1).read_until(b'\n', &mut line)?;
        if read == 0 {
            return Ok(extent);
        }
        total += read as u64;
        if line.last() == Some(&b'\n') {
            line.pop();
        } else if read > MAX_LINE_BYTES {
            extent.long_lines += 1;
            total += reader.skip_until(b'\n')? as u64;
        }
        take(&line);
        if total > MAX_TOTAL_BYTES {
            extent.cut_off = true;
            return Ok(extent);
        }
    }
}

/// A pipe that is read until a deadline, after which reads fail with [`io::ErrorKind::TimedOut`].
pub(super) struct Timed<R> {
    pipe: R,
    deadline: Instant,
}

impl<R: Read + AsFd> Timed<R> {
    pub(super) fn new(pipe: R, deadline: Instant) -> Self {
        Self { pipe, deadline }
    }
}

impl<R: Read + AsFd> Read for Timed<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        wait_readable(self.pipe.as_fd(), self.deadline)?;
        self.pipe.read(buffer)
    }
}

fn wait_readable(pipe: BorrowedFd<'_>, deadline: Instant) -> io::Result<()> {
    let left = deadline.saturating_duration_since(Instant::now());
    if left > Duration::ZERO {
        let timeout = Timespec::try_from(left).map_err(|_| io::ErrorKind::InvalidInput)?;
        match poll(&mut [PollFd::new(&pipe, PollFlags::IN)], Some(&timeout)) {
            Ok(ready) if ready > 0 => return Ok(()),
            // `BufRead` asks again.
            Err(rustix::io::Errno::INTR) => return Err(io::ErrorKind::Interrupted.into()),
            Err(errno) => return Err(errno.into()),
            Ok(_) => {}
        }
    }
    Err(io::ErrorKind::TimedOut.into())
}

#[cfg(test)]
mod tests {
    use std::{
        io::{self, Read},
        time::Instant,
    };

    use super::{Extent, MAX_LINE_BYTES, Timed, each};

    #[test]
    fn a_line_without_end_is_cut_and_told() {
        let text = [b"a\n".as_slice(), &vec![b'x'; 3 * MAX_LINE_BYTES], b"\nb"].concat();
        let mut lengths = Vec::new();
        let extent = each(&text[..], |line| lengths.push(line.len())).expect("memory is readable");
        assert_eq!((lengths, extent), (vec![1, MAX_LINE_BYTES + 1, 1], Extent { long_lines: 1, cut_off: false }));
    }

    #[test]
    fn a_pipe_that_stays_silent_times_out() {
        let (reader, _writer) = io::pipe().expect("a pipe");
        let error = Timed::new(reader, Instant::now()).read(&mut [0]).expect_err("nothing is written");
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    }
}
