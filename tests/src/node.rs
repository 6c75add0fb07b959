//! A node whose answers a test scripts.

use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex};

use bc_runtime::capability::{Answer, Capabilities, Error, Gpus, Nvml, Secrets, System, gpus, nvml};
use tokio::sync::Notify;

/// The value of the one secret that a [`Node`] has.
pub const SECRET: &str = "correct horse battery staple";

type Script = Box<dyn Fn(&str) -> Answer<()> + Send + Sync>;

/// Answers `nvml`, `gpus`, `system` and `secrets`, each call after the test's script had its say about it.
pub struct Node {
    script: Script,
    calls: Mutex<Vec<String>>,
}

impl Node {
    /// A node on which everything works.
    pub fn quiet() -> Arc<Self> {
        Self::scripted(|_| Ok(()))
    }

    /// A node that hands the name of each call, `gpus.reset`, to the script first; its error becomes the answer.
    pub fn scripted(script: impl Fn(&str) -> Answer<()> + Send + Sync + 'static) -> Arc<Self> {
        Arc::new(Self { script: Box::new(script), calls: Mutex::default() })
    }

    /// What it offers to a run.
    pub fn capabilities(self: &Arc<Self>) -> Capabilities {
        Capabilities {
            nvml: Some(self.clone()),
            gpus: Some(self.clone()),
            system: Some(self.clone()),
            secrets: Some(self.clone()),
            ..Capabilities::default()
        }
    }

    /// The calls that reached it, in order.
    pub fn calls(&self) -> Vec<String> {
        self.calls.lock().expect("no caller panics while it holds this").clone()
    }

    fn called(&self, name: &str) -> Answer<()> {
        self.calls.lock().expect("no caller panics while it holds this").push(name.to_owned());
        (self.script)(name)
    }
}

/// A call that hangs, as in a driver, until the test lets go of its [`Held`].
pub struct Hang {
    begun: Arc<Notify>,
    released: Mutex<Receiver<()>>,
}

/// The test's end of a [`Hang`]. Dropping it lets the call return.
pub struct Held {
    begun: Arc<Notify>,
    _release: Sender<()>,
}

/// Makes a call that hangs.
pub fn hang() -> (Hang, Held) {
    let (release, released) = mpsc::channel();
    let begun = Arc::new(Notify::new());
    (Hang { begun: Arc::clone(&begun), released: Mutex::new(released) }, Held { begun, _release: release })
}

impl Hang {
    /// Blocks the thread until it is let go.
    pub fn block(&self) {
        self.begun.notify_one();
        let let_go = self.released.lock().expect("one call at a time").recv();
        assert!(let_go.is_err(), "nothing is ever sent");
    }
}

impl Held {
    /// Waits until the call has begun.
    pub async fn begun(&self) {
        self.begun.notified().await;
    }
}

impl Nvml for Node {
    fn driver(&self) -> Answer<nvml::DriverInfo> {
        self.called("nvml.driver")?;
        Ok(nvml::DriverInfo { version: "570.124.06".into(), nvml_version: "12.570".into(), cuda_version: None })
    }
    fn devices(&self) -> Answer<Vec<nvml::Device>> {
        self.called("nvml.devices").map(|()| Vec::new())
    }
    fn ecc_errors(&self, uuid: &str) -> Answer<nvml::EccCounts> {
        self.called("nvml.ecc-errors").and(Err(no_gpu(uuid)))
    }
    fn remapped_rows(&self, uuid: &str) -> Answer<nvml::RowRemapping> {
        self.called("nvml.remapped-rows").and(Err(no_gpu(uuid)))
    }
    fn pcie_link(&self, uuid: &str) -> Answer<nvml::Link> {
        self.called("nvml.pcie-link").and(Err(no_gpu(uuid)))
    }
    fn processes(&self, uuid: &str) -> Answer<Vec<nvml::Process>> {
        self.called("nvml.processes").and(Err(no_gpu(uuid)))
    }
    fn recovery_action(&self, uuid: &str) -> Answer<u32> {
        self.called("nvml.recovery-action").and(Err(no_gpu(uuid)))
    }
    fn xids(&self) -> Answer<String> {
        self.called("nvml.xids").map(|()| "[]".into())
    }
}

impl Gpus for Node {
    fn holds(&self) -> Answer<Vec<gpus::Hold>> {
        self.called("gpus.holds").map(|()| Vec::new())
    }
    fn pass_throughs(&self) -> Answer<Vec<gpus::PassThrough>> {
        self.called("gpus.pass-throughs").map(|()| Vec::new())
    }
    fn reset(&self, _: &[String]) -> Answer<Vec<gpus::ResetOutcome>> {
        self.called("gpus.reset").map(|()| Vec::new())
    }
}

impl System for Node {
    fn boot_id(&self) -> Answer<String> {
        self.called("system.boot-id").map(|()| "00000000-0000-4000-8000-000000000000".into())
    }
    fn reboot(&self, _: &str) -> Answer<()> {
        self.called("system.reboot")
    }
}

impl Secrets for Node {
    fn get(&self, _: &str) -> Answer<String> {
        self.called("secrets.get").map(|()| SECRET.into())
    }
}

fn no_gpu(uuid: &str) -> Error {
    Error::new("not-found", format!("this node has no GPU {uuid}"))
}
