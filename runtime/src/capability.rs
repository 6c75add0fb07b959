//! What a node can do for a kind: one trait per WIT interface, in that interface's own words.
//!
//! The methods block, but for `Http`. The gate runs each on a thread of its own with the call's deadline, so that a driver that hangs costs
//! the run its lane slot and nothing else. Implementations live in the daemon; tests and replay need none.
//!
//! **Invariant:** an implementation trusts nobody for permission: grants were checked by the gate before it is called.

use std::sync::Arc;

use async_trait::async_trait;

pub use crate::v1::Error;
pub use crate::v1::http;
pub use crate::v1::wit::{block_devices, files, gpus, nvml, process, upgrade, upload};

/// A capability's answer: the fact, or why it could not be had.
pub type Answer<T> = Result<T, Error>;

impl Error {
    /// An error that no layer below numbered.
    pub fn new(code: impl Into<String>, message: impl Into<String>) -> Self {
        Self { code: code.into(), native: None, message: message.into() }
    }

    /// An error with the number that the layer below gave.
    pub fn native(code: impl Into<String>, native: i32, message: impl Into<String>) -> Self {
        Self { code: code.into(), native: Some(native), message: message.into() }
    }
}

/// `better-compute:host/inventory`.
pub trait Inventory: Send + Sync {
    /// Names of the sections, in the order they are shown.
    fn sections(&self) -> Vec<String>;
    /// The named sections (empty: all) as collected last, as JSON.
    fn collected(&self, sections: &[String]) -> Answer<String>;
    /// The same, collected anew.
    fn rescan(&self, sections: &[String]) -> Answer<String>;
}

/// `better-compute:host/nvml`.
pub trait Nvml: Send + Sync {
    /// The driver's management interface.
    fn driver(&self) -> Answer<nvml::DriverInfo>;
    /// Every index the driver counts, lost GPUs included.
    fn devices(&self) -> Answer<Vec<nvml::Device>>;
    /// Counts of memory errors.
    fn ecc_errors(&self, uuid: &str) -> Answer<nvml::EccCounts>;
    /// Row remapping.
    fn remapped_rows(&self, uuid: &str) -> Answer<nvml::RowRemapping>;
    /// Widths in lanes, generations as in "PCIe 5".
    fn pcie_link(&self, uuid: &str) -> Answer<nvml::Link>;
    /// Programs that hold the GPU.
    fn processes(&self, uuid: &str) -> Answer<Vec<nvml::Process>>;
    /// Field 230.
    fn recovery_action(&self, uuid: &str) -> Answer<u32>;
    /// GPU errors in this boot's kernel log, as JSON.
    fn xids(&self) -> Answer<String>;
}

/// `better-compute:host/gpus`.
pub trait Gpus: Send + Sync {
    /// Live holds from the node's desired state.
    fn holds(&self) -> Answer<Vec<gpus::Hold>>;
    /// GPUs that virtual machines have.
    fn pass_throughs(&self) -> Answer<Vec<gpus::PassThrough>>;
    /// Resets the named GPUs together.
    fn reset(&self, gpus: &[String]) -> Answer<Vec<gpus::ResetOutcome>>;
}

/// `better-compute:host/system`.
pub trait System: Send + Sync {
    /// The kernel's id of this boot.
    fn boot_id(&self) -> Answer<String>;
    /// Registers the intent to reboot once the result is durable.
    fn reboot(&self, reason: &str) -> Answer<()>;
}

/// `better-compute:host/process`. Dropping it kills what it started.
pub trait Process: Send + Sync {
    /// Runs a program to its end.
    fn run(&self, request: &process::Request) -> Answer<process::Outcome>;
    /// Starts a program.
    fn start(&self, request: &process::Request) -> Answer<u32>;
    /// New output of a started program; `None` at the end of the stream.
    fn read(&self, handle: u32, output: process::OutputStream, max_bytes: u32) -> Answer<Option<Vec<u8>>>;
    /// Waits for the end of a started program.
    fn wait(&self, handle: u32) -> Answer<process::Outcome>;
    /// Kills a started program's whole tree.
    fn kill(&self, handle: u32) -> Answer<()>;
}

/// `better-compute:host/upload`. Dropping it throws away what was spooled.
pub trait Upload: Send + Sync {
    /// Opens the upload.
    fn begin(&self, content_type: &str) -> Answer<u32>;
    /// Appends; answers the bytes left under the cap.
    fn write(&self, handle: u32, bytes: &[u8]) -> Answer<u64>;
    /// Sends what was spooled.
    fn finish(&self, handle: u32) -> Answer<upload::Receipt>;
    /// Throws the spool away.
    fn abort(&self, handle: u32) -> Answer<()>;
}

/// `better-compute:host/block-devices`.
pub trait BlockDevices: Send + Sync {
    /// All of them.
    fn devices(&self) -> Answer<Vec<block_devices::Device>>;
    /// Identity and features, as JSON.
    fn identify(&self, device: &str) -> Answer<String>;
    /// Reads samples to see whether they are zero.
    fn sample(&self, device: &str, count: u32, seed: u64) -> Answer<block_devices::SampleReport>;
    /// Erases everything by exactly the method asked for.
    fn erase(&self, request: &block_devices::EraseRequest) -> Answer<block_devices::EraseReport>;
    /// Streams an image onto the device.
    fn write_image(&self, request: &block_devices::ImageRequest) -> Answer<block_devices::ImageReport>;
}

/// `better-compute:host/secrets`.
pub trait Secrets: Send + Sync {
    /// The value behind one of the command's references.
    fn get(&self, secret_ref: &str) -> Answer<String>;
}

/// `better-compute:host/upgrade`.
pub trait Upgrade: Send + Sync {
    /// Where the daemon stands.
    fn state(&self) -> Answer<upgrade::Slots>;
    /// Fetches, checks and stages a binary.
    fn stage(&self, version: &str, sha256: &str) -> Answer<()>;
    /// Registers the intent to restart into the staged binary.
    fn switch(&self) -> Answer<()>;
    /// Ends the probation of the running binary.
    fn confirm(&self) -> Answer<()>;
    /// Registers the intent to go back.
    fn roll_back(&self) -> Answer<()>;
}

/// `better-compute:host/files`. Links that lead out of the granted folders are not followed: implementations open folders as
/// capabilities, and get the granted ones when they are made.
pub trait Files: Send + Sync {
    /// The entries of a folder, in order of their names.
    fn entries(&self, folder: &str) -> Answer<Vec<files::Entry>>;
    /// Up to so many bytes of a file.
    fn read(&self, file: &str, offset: u64, max_bytes: u32) -> Answer<Vec<u8>>;
}

/// `wasi:http`. What is dropped while it is awaited is given up.
#[async_trait]
pub trait Http: Send + Sync {
    /// Sends one request and takes the whole answer, within the request's limits. Redirects are not followed.
    async fn send(&self, request: http::Request) -> Answer<http::Response>;
}

/// What one node offers for one run. `None` is "this node has no such capability": nothing links behind it, and a kind that
/// imports it is refused when it is loaded.
#[derive(Clone, Default)]
pub struct Capabilities {
    /// The machine's inventory.
    pub inventory: Option<Arc<dyn Inventory>>,
    /// NVIDIA's management library.
    pub nvml: Option<Arc<dyn Nvml>>,
    /// Holds and resets.
    pub gpus: Option<Arc<dyn Gpus>>,
    /// The node itself.
    pub system: Option<Arc<dyn System>>,
    /// Allow-listed programs.
    pub process: Option<Arc<dyn Process>>,
    /// The command's upload destination.
    pub upload: Option<Arc<dyn Upload>>,
    /// Disks.
    pub block_devices: Option<Arc<dyn BlockDevices>>,
    /// The command's secrets.
    pub secrets: Option<Arc<dyn Secrets>>,
    /// The daemon's own binaries.
    pub upgrade: Option<Arc<dyn Upgrade>>,
    /// The node's files.
    pub files: Option<Arc<dyn Files>>,
    /// Requests to other servers.
    pub http: Option<Arc<dyn Http>>,
}
