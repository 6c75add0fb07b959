//! What the drives do by themselves, with scripts that answer as nvme-cli and hdparm do.

use super::bench::{Bench, Loop, MIB};

const CONTROLLER: &str = r#"echo '{"vid":5197,"sn":"S1","mn":"ACME Drive 1","oacs":23,"fna":4,"sanicap":1610612739}'"#;

/// A sanitize that runs for two looks and then ends like `$END`.
const SANITIZES: &str = r#"
log() { echo "{\"nvme0n1\":{\"sprog\":$1,\"sstat\":{\"global_erased\":0,\"no_cmplted_passes\":0,\"status\":\"($2) Words.\"},\"cdw10_info\":2}}"; }
case "$1" in
id-ctrl) CONTROLLER ;;
sanitize) echo 0 > $DIR/looks ;;
sanitize-log)
    [ -f $DIR/looks ] || { log 65535 0; exit; }
    looks=$(($(cat $DIR/looks) + 1)); echo $looks > $DIR/looks
    if [ $looks -le 2 ]; then log $((looks * 20000)) 2; else log 65535 END; fi ;;
format) FORMAT ;;
esac"#;

fn nvme(end: u32, format: &str) -> (Bench, Loop) {
    let bench = Bench::new();
    let disk = bench.loop_of("disk", MIB);
    disk.fill(0xa5);
    bench.drive("nvme0n1", &disk, Some("S1"));
    let script = SANITIZES.replace("CONTROLLER", CONTROLLER).replace("END", &end.to_string()).replace("FORMAT", format);
    bench.tool("nvme", &script);
    (bench, disk)
}

#[tokio::test(flavor = "multi_thread")]
async fn promise_34_a_sanitize_is_waited_for_and_its_log_is_the_report_s() {
    for (method, action) in [("nvme-sanitize-block", "-a 2"), ("nvme-sanitize-crypto", "-a 4")] {
        let (bench, _disk) = nvme(1, "exit 1");
        // A cancel does not stop it: the drive goes on, and its end is worth knowing.
        bench.call_off_at("is sanitized", &bench.cancel);
        let report = bench.erase("/dev/nvme0n1", Some("S1"), method).await.expect("it ends well");
        assert_eq!((report.method.as_str(), report.level.as_str()), (method, "purge"));
        assert_eq!((report.serial.as_deref(), report.model.as_deref()), (Some("S1"), Some("ACME Drive 1")));
        let log = report.device_log.expect("a log");
        assert!(log.contains(r#""status":"(1) Words.""#), "{log}");
        assert!(bench.cancel.is_cancelled());
        let calls = bench.calls();
        assert!(calls.contains(&format!("nvme sanitize /dev/nvme0n1 {action}")), "{calls:?}");
        let heard = bench.heard.progress.lock().expect("no panic");
        assert_eq!(heard[0], (20_000, Some(65_536), "/dev/nvme0n1 is sanitized".into()));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sanitize_that_the_drive_calls_failed_is_one() {
    let (bench, _disk) = nvme(3, "exit 1");
    let (code, message) = bench.erase("/dev/nvme0n1", Some("S1"), "nvme-sanitize-block").await.expect_err("it fails");
    assert_eq!(code, "erase-failed");
    assert!(message.contains("(3) Words."), "{message}");
}

#[tokio::test(flavor = "multi_thread")]
async fn promise_34_a_refused_format_is_not_supported_and_never_one_without_an_erase() {
    let refuses = "echo 'NVMe status: Invalid Command Opcode: A reserved coded value (0x4001)' >&2; exit 1";
    let (bench, _disk) = nvme(1, refuses);
    for (method, ses) in [("nvme-format-user", "--ses=1"), ("nvme-format-crypto", "--ses=2")] {
        let (code, message) = bench.erase("/dev/nvme0n1", Some("S1"), method).await.expect_err("it is refused");
        assert_eq!(code, "not-supported", "{message}");
        let formats: Vec<_> = bench.calls().into_iter().filter(|call| call.starts_with("nvme format")).collect();
        assert!(formats.last().expect("one").contains(ses), "{formats:?}");
    }
    assert!(bench.calls().iter().all(|call| !call.contains("--ses=0") && !call.starts_with("nvme sanitize ")));
    let (bench, _disk) = nvme(1, "echo 'Success formatting namespace:1'");
    let report = bench.erase("/dev/nvme0n1", Some("S1"), "nvme-format-user").await.expect("it succeeds");
    assert_eq!((report.level.as_str(), report.device_log), ("purge", None));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_would_reach_another_namespace_is_not_offered() {
    let (bench, _disk) = nvme(1, "exit 0");
    let other = bench.loop_of("other", MIB);
    bench.drive("nvme0n2", &other, Some("S1"));
    let identity = bench.identify("/dev/nvme0n1").await;
    let names = |list: &str| {
        identity[list].as_array().expect("a list").iter().map(|it| it["method"].to_string()).collect::<Vec<_>>()
    };
    assert_eq!(
        names("methods"),
        [r#""nvme-format-user""#, r#""nvme-format-crypto""#, r#""zero-out""#, r#""overwrite""#]
    );
    let (code, message) =
        bench.erase("/dev/nvme0n1", Some("S1"), "nvme-sanitize-block").await.expect_err("it reaches further");
    assert_eq!(code, "not-supported");
    assert!(message.contains("/dev/nvme0n2"), "{message}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tool_that_hangs_is_ended_with_its_run() {
    let (bench, _disk) = nvme(1, "touch $DIR/hangs; exec sleep 1000");
    let (hangs, over) = (bench.path("hangs"), bench.over.clone());
    tokio::spawn(async move {
        while !hangs.exists() {
            tokio::task::yield_now().await;
        }
        over.cancel();
    });
    let erased = bench.erase("/dev/nvme0n1", Some("S1"), "nvme-format-user");
    let erased = tokio::time::timeout(std::time::Duration::from_secs(20), erased);
    let (code, message) = erased.await.expect("it ends").expect_err("it was killed");
    assert_eq!(code, "tool-failed", "{message}");
    assert!(message.contains("signal 9"), "{message}");
}

#[tokio::test(flavor = "multi_thread")]
async fn without_the_tool_the_drive_s_own_methods_are_not_offered() {
    let (bench, disk) = nvme(1, "exit 0");
    bench.tool("nvme", "exit 1");
    let identity = bench.identify("/dev/nvme0n1").await;
    assert_eq!(identity["methods"].as_array().map(Vec::len), Some(2), "{identity}");
    assert!(
        identity["unsupported"][0]["reason"].as_str().expect("a reason").contains("could not be asked"),
        "{identity}"
    );
    drop(disk);
}

/// A drive whose security has this state; `ERASE` is what its erase does.
fn ata(frozen: &str, erase: &str) -> (Bench, Loop) {
    let bench = Bench::new();
    let disk = bench.loop_of("disk", MIB);
    bench.drive("sda", &disk, Some("A1"));
    let script = r#"
case "$*" in
-I*)
    enabled="	not	enabled"; [ -f $DIR/locked ] && enabled="		enabled"
    printf 'ATA device, with non-removable media\nCommands/features:\n\t   *\tSANITIZE feature set\n\t   *\tBLOCK_ERASE_EXT command\nSecurity: \n\tMaster password revision code = 65534\n\t\tsupported\n%s\n\tnot\tlocked\n\tFROZEN\tfrozen\n\tnot\texpired: security count\n\t\tsupported: enhanced erase\n' "$enabled" ;;
*security-set-pass*) touch $DIR/locked ;;
*security-erase*) @ERASE@ ;;
*security-disable*) rm -f $DIR/locked ;;
*sanitize-block-erase*) echo 0 > $DIR/looks; printf 'Issuing SANITIZE_BLOCK_ERASE command\nOperation started in background\n' ;;
*sanitize-status*)
    looks=$(($(cat $DIR/looks) + 1)); echo $looks > $DIR/looks
    if [ $looks -le 1 ]; then printf 'Sanitize status:\n    State:    SD2 Sanitize operation In Process\n    Progress: 0x41c2 (25%%)\n'
    else printf 'Sanitize status:\n    State:    SD0 Sanitize Idle\n    Last Sanitize Operation Completed Without Error\n'; fi ;;
esac"#;
    bench.tool("hdparm", &script.replace("FROZEN", frozen).replace("@ERASE@", erase));
    (bench, disk)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_frozen_drive_says_what_to_do() {
    let (bench, _disk) = ata("", "exit 0");
    let (code, message) = bench.erase("/dev/sda", Some("A1"), "ata-secure-erase").await.expect_err("it is frozen");
    assert_eq!(code, "not-supported");
    assert!(message.contains("frozen") && message.contains("suspend and resume"), "{message}");
    assert!(bench.calls().iter().all(|call| call.starts_with("hdparm -I")), "{:?}", bench.calls());
    let report = bench.erase("/dev/sda", Some("A1"), "ata-sanitize").await.expect("its sanitize is not");
    assert_eq!(report.level, "purge");
    assert!(report.device_log.expect("a log").contains("Completed Without Error"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_secure_erase_leaves_no_password_behind_however_it_ends() {
    let (bench, _disk) = ata("not", "rm -f $DIR/locked");
    let report = bench.erase("/dev/sda", Some("A1"), "ata-secure-erase").await.expect("it ends well");
    assert_eq!(report.level, "purge", "it was the enhanced one: {:?}", bench.calls());
    assert!(bench.calls().iter().all(|call| !call.contains("security-disable")), "an erase takes it off by itself");

    let (bench, _disk) = ata("not", "echo 'SECURITY_ERASE: Input/output error' >&2; exit 5");
    let (code, message) = bench.erase("/dev/sda", Some("A1"), "ata-secure-erase").await.expect_err("it fails");
    assert_eq!(code, "erase-failed", "{message}");
    assert!(!bench.path("locked").exists(), "{:?}", bench.calls());

    let (bench, _disk) = ata("not", "exec sleep 1000");
    bench.call_off_at("erases itself", &bench.over);
    let ended = tokio::time::timeout(
        std::time::Duration::from_secs(20),
        bench.erase("/dev/sda", Some("A1"), "ata-secure-erase"),
    );
    ended.await.expect("it ends").expect_err("it was killed");
    assert!(!bench.path("locked").exists(), "{:?}", bench.calls());
}
