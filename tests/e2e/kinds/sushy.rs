//! The BMC kinds against an independent Redfish service: the emulator of sushy-tools, which `cargo xtask setup` installs.

use std::fs;
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};

use bc_tests::cluster::until;
use bc_tests::programs;
use serde_json::json;

use super::remote::{code, result, run};

const SYSTEM: &str = "c7a5fdbd-cdaf-9455-926a-d65c16db1809";

/// The emulator with one system that is on. It ends when it is dropped.
struct Emulator {
    child: Child,
    origin: String,
    _folder: tempfile::TempDir,
}

impl Drop for Emulator {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Emulator {
    #[expect(clippy::disallowed_methods, reason = "this test is about a program")]
    async fn start() -> Self {
        let program = programs::repository().join("target/sushy/venv/bin/sushy-emulator");
        assert!(program.is_file(), "{} is missing: run `cargo xtask setup`", program.display());
        let folder = tempfile::tempdir().expect("a folder");
        let port = TcpListener::bind("127.0.0.1:0").and_then(|it| it.local_addr()).expect("a port").port();
        let config = folder.path().join("sushy.conf");
        let state = folder.path().join("state");
        fs::create_dir(&state).expect("a folder");
        let text = format!(
            "SUSHY_EMULATOR_LISTEN_IP = '127.0.0.1'\nSUSHY_EMULATOR_LISTEN_PORT = {port}\n\
             SUSHY_EMULATOR_STATE_DIR = '{}'\nSUSHY_EMULATOR_FAKE_DRIVER = True\n\
             SUSHY_EMULATOR_FAKE_SYSTEMS = [{{'uuid': '{SYSTEM}', 'name': 'one', 'power_state': 'On', \
             'external_notifier': False, 'nics': [{{'mac': '00:5c:52:31:3a:9c', 'ip': '172.22.0.100'}}]}}]\n",
            state.display()
        );
        fs::write(&config, text).expect("a file");
        let child =
            Command::new(program).arg("--config").arg(&config).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        let mut emulator =
            Self { child: child.expect("it starts"), origin: format!("http://127.0.0.1:{port}"), _folder: folder };
        until("the emulator listens", || {
            assert!(emulator.child.try_wait().expect("a child").is_none(), "the emulator ended");
            TcpStream::connect(("127.0.0.1", port)).is_ok()
        })
        .await;
        emulator
    }
}

#[tokio::test]
async fn an_independent_redfish_service_is_switched_off_and_on() {
    let bmc = Emulator::start().await;
    for (action, state) in [("ForceOff", "Off"), ("On", "On")] {
        let payload = json!({ "bmc": bmc.origin, "action": action });
        let report = run("metal.bmc.power", &[&bmc.origin], payload).await;
        let result = result(&report);
        assert_eq!((&result["after"], &result["verified"]), (&json!(state), &json!("state")), "{result}");
        assert_eq!(result["system"], SYSTEM);
    }
    let report =
        run("metal.bmc.power", &[&bmc.origin], json!({ "bmc": bmc.origin, "system": "2", "action": "On" })).await;
    assert_eq!(code(&report), "no-such-system");
}

#[tokio::test]
async fn an_independent_redfish_service_is_told_what_to_boot() {
    let bmc = Emulator::start().await;
    let payload = json!({ "bmc": bmc.origin, "target": "Pxe", "enabled": "Continuous" });
    let report = run("metal.boot.set", &[&bmc.origin], payload).await;
    assert_eq!((&result(&report)["target"], &result(&report)["enabled"]), (&json!("Pxe"), &json!("Continuous")));
    // The emulator does not keep Once, and that is not passed over.
    let payload = json!({ "bmc": bmc.origin, "target": "Cd", "enabled": "Once" });
    assert_eq!(code(&run("metal.boot.set", &[&bmc.origin], payload).await), "not-kept");
    let report = run("metal.bmc.sensors", &[&bmc.origin], json!({ "bmc": bmc.origin })).await;
    assert!(result(&report)["readings"].is_array());
}
