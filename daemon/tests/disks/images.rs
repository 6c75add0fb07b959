//! Images from folders and from web servers that misbehave.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::sync::{Arc, Mutex};

use sha2::{Digest, Sha256};

use super::bench::{Bench, Loop, MIB};

/// What a server does with one request.
#[derive(Debug, Clone, Copy)]
enum Act {
    /// Gives so many bytes of what was asked for, and then breaks the connection off.
    Cut(usize),
    /// Gives all of what was asked for.
    Give,
    /// Gives everything, whatever was asked for.
    GiveWhole,
    Status(u16),
    /// Says nothing more.
    Hang,
}

/// A web server with one file.
struct Server {
    url: String,
    /// The `Range` of each request; empty for none.
    ranges: Arc<Mutex<Vec<String>>>,
}

impl Server {
    /// Does these things, one for each connection, and the last of them for all others.
    fn start(image: Vec<u8>, acts: &[Act]) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("loopback has a port");
        let url = format!("http://{}/images", listener.local_addr().expect("it is bound"));
        let ranges = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&ranges);
        let mut acts: VecDeque<_> = acts.iter().copied().collect();
        std::thread::spawn(move || {
            let mut open = Vec::new();
            for stream in listener.incoming() {
                let Ok(mut stream) = stream else { return };
                let mut lines = BufReader::new(stream.try_clone().expect("a socket")).lines();
                let mut range = String::new();
                while let Some(Ok(line)) = lines.next().filter(|line| line.as_ref().is_ok_and(|line| !line.is_empty()))
                {
                    if let Some(value) = line.to_lowercase().strip_prefix("range: bytes=") {
                        value.clone_into(&mut range);
                    }
                }
                seen.lock().expect("no panic").push(range.clone());
                let act = if acts.len() > 1 { acts.pop_front().expect("two") } else { acts[0] };
                let from = match act {
                    Act::GiveWhole => 0,
                    _ => range.trim_end_matches('-').parse().unwrap_or(0),
                };
                let body = &image[from..];
                let head = if from > 0 {
                    let (last, all) = (image.len() - 1, image.len());
                    format!("HTTP/1.1 206 Partial Content\r\nContent-Range: bytes {from}-{last}/{all}\r\n")
                } else {
                    "HTTP/1.1 200 OK\r\n".into()
                };
                let head = format!("{head}ETag: \"v1\"\r\nContent-Length: {}\r\nConnection: close\r\n\r\n", body.len());
                // A client that has gone is its own affair.
                let _ = match act {
                    Act::Cut(bytes) => stream
                        .write_all(head.as_bytes())
                        .and_then(|()| stream.write_all(&body[..bytes.min(body.len())])),
                    Act::Give | Act::GiveWhole => {
                        stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(body))
                    }
                    Act::Status(status) => {
                        write!(stream, "HTTP/1.1 {status} No\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
                    }
                    Act::Hang => {
                        open.push(stream);
                        continue;
                    }
                };
            }
        });
        Self { url, ranges }
    }
}

/// Bytes that no two places share.
fn image(len: usize) -> (Vec<u8>, String) {
    let bytes: Vec<u8> = (0_u32..).flat_map(u32::to_le_bytes).take(len).collect();
    let sha256 = hex::encode(Sha256::digest(&bytes));
    (bytes, sha256)
}

fn bench(source: &str) -> (Bench, Loop) {
    let mut bench = Bench::real();
    bench.images.sources = vec![source.to_owned()];
    let disk = bench.loop_of("disk", 16 * MIB);
    disk.fill(0xa5);
    (bench, disk)
}

#[tokio::test(flavor = "multi_thread")]
async fn an_image_is_written_and_read_back_and_the_rest_of_the_disk_stays() {
    for len in [1, 4096, 5_000_001, 4 * 1024 * 1024, 16 * 1024 * 1024] {
        let (bytes, sha256) = image(len);
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::create_dir(folder.path().join("os")).expect("a folder");
        std::fs::write(folder.path().join("os/a.img"), &bytes).expect("written");
        let (bench, disk) = bench(&format!("file://{}", folder.path().display()));
        let report = bench.write(&disk.path, "os/a.img", &sha256).await.expect("it is written");
        assert_eq!((report.bytes_written, report.verified, &report.sha256), (len as u64, true, &sha256));
        let disk = disk.bytes(0, 16 * 1024 * 1024);
        assert!(disk[..len] == bytes[..] && disk[len..].iter().all(|byte| *byte == 0xa5), "{len}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_download_that_breaks_off_is_gone_on_with_where_it_broke() {
    let (bytes, sha256) = image(9_000_000);
    let server = Server::start(bytes.clone(), &[Act::Status(503), Act::Cut(5_000_000), Act::Cut(3_000_000), Act::Give]);
    let (bench, disk) = bench(&server.url);
    let report = bench.write(&disk.path, "a.img", &sha256).await.expect("it is written");
    assert_eq!((report.bytes_written, report.verified), (9_000_000, true));
    assert!(disk.bytes(0, 9_000_000) == bytes);
    let ranges = server.ranges.lock().expect("no panic").clone();
    let starts: Vec<u64> = ranges.iter().map(|range| range.trim_end_matches('-').parse().unwrap_or(0)).collect();
    assert_eq!((starts[0], starts[1]), (0, 0));
    // What was on the wire when it broke may be lost; nothing that came is asked for again.
    assert!(starts[2] > 0 && starts[2] <= 5_000_000 && starts[3] > starts[2] && starts[3] <= 8_000_000, "{starts:?}");
    // One that gives no parts gives it whole again.
    let server = Server::start(bytes, &[Act::Cut(5_000_000), Act::GiveWhole]);
    let (bench, disk) = self::bench(&server.url);
    assert!(bench.write(&disk.path, "a.img", &sha256).await.expect("it is written").verified);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_image_is_said_to_be_one_and_cannot_be_booted() {
    let (bytes, _) = image(9_000_000);
    let server = Server::start(bytes, &[Act::Give]);
    let (bench, disk) = bench(&server.url);
    let (code, message) = bench.write(&disk.path, "a.img", &"0".repeat(64)).await.expect_err("another digest");
    assert_eq!(code, "wrong-digest");
    assert!(message.contains("holds a wrong image") && message.contains("were zeroed"), "{message}");
    let disk = disk.bytes(0, 16 * 1024 * 1024);
    let mib = 1024 * 1024;
    assert!(disk[..mib].iter().chain(&disk[15 * mib..]).all(|byte| *byte == 0), "both ends are zero");
    assert!(disk[mib..2 * mib].iter().any(|byte| *byte != 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_had_leaves_the_disk_as_it_was() {
    let (bytes, sha256) = image(17 * 1024 * 1024);
    let cases: [(&[Act], &str); 5] = [
        (&[Act::Status(404)], "not-found"),
        (&[Act::Status(403)], "source"),
        (&[Act::Status(302)], "source"),
        (&[Act::Give], "too-large"),
        (&[Act::Hang], "source"),
    ];
    for (acts, expected) in cases {
        let server = Server::start(bytes.clone(), acts);
        let (mut bench, disk) = bench(&server.url);
        bench.images.stall = std::time::Duration::from_millis(50);
        let (code, message) = bench.write(&disk.path, "a.img", &sha256).await.expect_err(expected);
        assert_eq!(code, expected, "{acts:?}: {message}");
        assert!(message.contains("nothing was written"), "{message}");
        assert!(disk.bytes(0, 16 * 1024 * 1024).iter().all(|byte| *byte == 0xa5), "{acts:?}");
    }
    let (bench, disk) = bench("file:///nowhere");
    for (image, digest, expected) in [
        ("../etc/passwd", sha256.as_str(), "invalid-image"),
        ("a.img", "12", "invalid-image"),
        ("a.img", sha256.as_str(), "not-found"),
    ] {
        assert_eq!(bench.write(&disk.path, image, digest).await.expect_err(expected).0, expected);
    }
    let bench = Bench::real();
    assert_eq!(bench.write(&disk.path, "a.img", &sha256).await.expect_err("no sources").0, "no-source");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_download_that_never_comes_on_is_given_up_and_cannot_be_booted() {
    let (bytes, sha256) = image(9_000_000);
    let server = Server::start(bytes, &[Act::Cut(6_000_000), Act::Status(500)]);
    let (bench, disk) = bench(&server.url);
    let (code, message) = bench.write(&disk.path, "a.img", &sha256).await.expect_err("the server breaks");
    assert_eq!(code, "source");
    assert!(message.contains("500") && message.contains("holds no whole image"), "{message}");
    assert!(disk.bytes(0, 1024 * 1024).iter().all(|byte| *byte == 0));
    assert_eq!(server.ranges.lock().expect("no panic").len(), 10);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancelled_deployment_cannot_be_booted() {
    let (bytes, sha256) = image(9_000_000);
    let server = Server::start(bytes, &[Act::Give]);
    let (bench, disk) = bench(&server.url);
    bench.call_off_at("is written to", &bench.cancel);
    let (code, message) = bench.write(&disk.path, "a.img", &sha256).await.expect_err("it is called off");
    assert_eq!(code, "cancelled");
    assert!(message.contains("holds no whole image"), "{message}");
    assert!(disk.bytes(0, 1024 * 1024).iter().all(|byte| *byte == 0));
}

/// The most memory that this process ever had, bytes.
fn peak_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("a status");
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).expect("the peak");
    line.split_whitespace().nth(1).and_then(|kib| kib.parse::<u64>().ok()).expect("a number") * 1024
}

#[tokio::test(flavor = "multi_thread")]
async fn a_64_gib_disk_and_a_large_image_need_no_memory() {
    let folder = tempfile::tempdir().expect("a folder");
    let len = 512 * MIB;
    std::fs::File::create(folder.path().join("a.img")).and_then(|file| file.set_len(len)).expect("a sparse image");
    let mut hash = Sha256::new();
    let piece = vec![0; 1024 * 1024];
    (0..512).for_each(|_| hash.update(&piece));
    let sha256 = hex::encode(hash.finalize());
    let mut bench = Bench::real();
    bench.images.sources = vec![format!("file://{}", folder.path().display())];
    let disk = bench.loop_of("disk", 64 * 1024 * MIB);
    let before = peak_bytes();
    let report = bench.write(&disk.path, "a.img", &sha256).await.expect("it is written");
    assert_eq!((report.bytes_written, report.verified), (len, true));
    assert_eq!(bench.sample(&disk.path, 500).await.nonzero, 0);
    let grown = peak_bytes() - before;
    assert!(grown < 48 * MIB, "it took {} MiB", grown / MIB);
}
