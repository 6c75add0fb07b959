//! Disks, with real loop devices, scripted disk tools and the kinds that use them.

mod bench;
mod images;
mod kinds;
mod tools;

use bench::{Bench, MIB, Memory};

#[tokio::test(flavor = "multi_thread")]
async fn a_loop_device_is_erased_and_reads_zero() {
    let bench = Bench::real();
    let disk = bench.loop_of("disk", 16 * MIB + 512);
    let listed = bench.ask(|disks| disks.devices()).await.expect("all are listed");
    let device = listed.iter().find(|device| device.path == disk.path).expect("it is listed");
    assert_eq!((device.size_bytes, &device.serial, device.users.len()), (16 * MIB + 512, &None, 0));
    let identity = bench.identify(&disk.path).await;
    assert_eq!(identity["bus"], "software");
    assert_eq!(identity["methods"].as_array().map(Vec::len), Some(2), "{identity}");
    assert_eq!(identity["unsupported"].as_array().map(Vec::len), Some(6), "{identity}");
    for method in ["overwrite", "zero-out"] {
        disk.fill(0xa5);
        let sampled = bench.sample(&disk.path, 32).await;
        assert_eq!((sampled.read, sampled.nonzero), (32, 32));
        let report = bench.erase(&disk.path, None, method).await.expect("it is erased");
        assert_eq!((report.method.as_str(), report.level.as_str()), (method, "clear"));
        assert_eq!(bench.sample(&disk.path, 32).await.nonzero, 0);
        assert!(disk.bytes(0, 16 * 1024 * 1024 + 512).iter().all(|byte| *byte == 0), "all of it");
    }
    let heard = bench.heard.progress.lock().expect("no panic");
    let (done, total, _) = heard.last().expect("something is said");
    assert_eq!((*done, *total), (16 * MIB + 512, Some(16 * MIB + 512)));
}

#[tokio::test(flavor = "multi_thread")]
async fn one_old_byte_is_found_where_it_is_looked_for() {
    let bench = Bench::real();
    let disk = bench.loop_of("disk", MIB);
    let write = std::fs::File::options().write(true).open(&disk.path).expect("it opens");
    std::os::unix::fs::FileExt::write_all_at(&write, &[1], MIB - 1).expect("written");
    write.sync_all().expect("synced");
    assert_eq!(bench.sample(&disk.path, 2).await.nonzero, 1, "the last sample ends with the device");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mounted_device_is_refused_and_left_alone() {
    let bench = Bench::real();
    let mut disk = bench.loop_of("disk", 16 * MIB);
    disk.mount(&bench.path("mounted"));
    std::fs::write(bench.path("mounted/file"), "precious").expect("written");
    for method in ["overwrite", "zero-out"] {
        let (code, message) = bench.erase(&disk.path, None, method).await.expect_err("it is in use");
        assert_eq!(code, "in-use");
        assert!(message.contains("is mounted at"), "{message}");
    }
    let (code, _) = bench.write(&disk.path, "a.img", &"0".repeat(64)).await.expect_err("it is in use");
    assert_eq!(code, "in-use");

    // And where sysfs and procfs tell nothing of it, the kernel does.
    let blind = Bench::new();
    blind.drive("nvme0n1", &disk, Some("S1"));
    let (code, _) = blind.erase("/dev/nvme0n1", Some("S1"), "overwrite").await.expect_err("it is held");
    assert_eq!(code, "in-use");
    assert_eq!(std::fs::read_to_string(bench.path("mounted/file")).expect("it is there"), "precious");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_the_named_device_or_method_is_refused() {
    let bench = Bench::new();
    let disk = bench.loop_of("disk", MIB);
    disk.fill(0xa5);
    bench.drive("vda", &disk, Some("S1"));
    for (device, serial, method, expected) in [
        ("/dev/vda", Some("S2"), "overwrite", "wrong-serial"),
        ("/dev/vda", None, "overwrite", "wrong-serial"),
        ("/dev/vdb", Some("S1"), "overwrite", "not-found"),
        ("/dev/vda", Some("S1"), "shred", "not-supported"),
        ("/dev/vda", Some("S1"), "nvme-sanitize-block", "not-supported"),
        ("/dev/vda", Some("S1"), "ata-secure-erase", "not-supported"),
    ] {
        let (code, message) = bench.erase(device, serial, method).await.expect_err(expected);
        assert_eq!(code, expected, "{message}");
    }
    // Another device has taken its name since.
    std::fs::write(bench.root().join("sys/block/vda/dev"), "7:999").expect("written");
    assert_eq!(bench.erase("/dev/vda", Some("S1"), "overwrite").await.expect_err("another").0, "gone");
    std::fs::remove_file(bench.root().join("dev/vda")).expect("it is there");
    assert_eq!(bench.erase("/dev/vda", Some("S1"), "overwrite").await.expect_err("none").0, "gone");
    assert!(disk.bytes(0, 1024 * 1024).iter().all(|byte| *byte == 0xa5), "nothing was changed");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_write_that_fails_is_told_with_its_place() {
    let bench = Bench::real();
    let memory = Memory::new(bench.path("memory"), 2);
    let disk = bench::Loop::new(&memory.0.join("disk"), 32 * MIB);
    let (code, message) = bench.erase(&disk.path, None, "overwrite").await.expect_err("there is no room for it");
    assert_eq!(code, "io", "{message}");
    assert!(message.contains("could not be"), "{message}");
    drop(disk);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancel_stops_an_overwrite_between_two_pieces() {
    let bench = Bench::real();
    let disk = bench.loop_of("disk", 16 * MIB);
    disk.fill(0xa5);
    bench.call_off_at("is overwritten", &bench.cancel);
    let (code, message) = bench.erase(&disk.path, None, "overwrite").await.expect_err("it is called off");
    assert_eq!(code, "cancelled");
    assert!(message.contains("4194304 of 16777216 bytes"), "{message}");
    assert_eq!(disk.bytes(4 * MIB - 1, 2), [0, 0xa5]);
}
