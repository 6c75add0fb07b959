//! What is the matter with this node: looked at when a session opens, after a spec came and after each run, and said when it
//! changed.
//!
//! **Invariant:** where nothing happens nothing is looked at; and what could not be asked stays as it was last known.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use bc_proto::wire::{self, MAX_CONDITIONS, v1};
use bc_runtime::capability::{Answer, Nvml};
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::{Desired, host};
use crate::server_time::ServerTime;
use crate::session::Outbox;

/// A GPU has rows that its next reset remaps.
pub const ROW_REMAP_PENDING: &str = "RowRemapPending";
/// The host's settings take a boot.
pub const REBOOT_REQUIRED: &str = "RebootRequired";
/// The last spec that came does not count.
pub const SPEC_REJECTED: &str = "SpecRejected";

/// How long the driver may take to answer. One that hangs keeps nothing else from being said.
const DRIVER: Duration = Duration::from_secs(10);
/// The longest message, bytes.
const MESSAGE_BYTES: usize = 1_024;

/// Has the node looked at; clones are handles to one.
#[derive(Debug, Clone, Default)]
pub struct Looks(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    again: Notify,
    is_new_session: AtomicBool,
}

impl Looks {
    /// Something happened that may have changed them.
    pub fn again(&self) {
        self.0.again.notify_one();
    }

    /// A session is open, which does not know them yet.
    pub fn opened(&self) {
        self.0.is_new_session.store(true, Ordering::Release);
        self.again();
    }
}

/// Whether the rows of each GPU wait for a reset; an error where it could not be asked.
type Rows = Answer<Vec<(String, Answer<bool>)>>;

/// Looks.
pub struct Conditions {
    /// When to.
    pub looks: Looks,
    /// The spec.
    pub desired: Desired,
    /// The root of `proc` and `sys`.
    pub root: PathBuf,
    /// The driver, if there is one.
    pub nvml: Option<Arc<dyn Nvml>>,
    /// Server time.
    pub time: ServerTime,
    /// Where they are said.
    pub outbox: Outbox,
}

/// Conditions by type and subject: why, and since when.
type Known = BTreeMap<(&'static str, String), (String, u64)>;

impl Conditions {
    /// Looks whenever it is told to, until the daemon stops.
    pub async fn run(self, stop: CancellationToken) {
        let (mut known, mut said) = (Known::new(), None);
        let mut asking = None;
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                () = self.looks.0.again.notified() => {}
            }
            let is_new_session = self.looks.0.is_new_session.swap(false, Ordering::AcqRel);
            let rows = self.rows(&mut asking).await;
            known = self.look(&known, rows);
            if is_new_session || said.as_ref() != Some(&known) {
                let conditions = known.iter().take(MAX_CONDITIONS).map(|((kind, subject), (message, since_ms))| {
                    let (kind, subject, since_ms) = ((*kind).to_owned(), subject.clone(), *since_ms);
                    wire::Condition { kind, subject, message: message.clone(), since_ms }.into()
                });
                let conditions = v1::Conditions { conditions: conditions.collect() };
                // Without a session it is said on the next one.
                self.outbox.say(v1::from_node::Frame::Conditions(conditions));
                said = Some(known.clone());
            }
        }
    }

    /// Asks the driver, on a thread of its own; `None` while it does not answer.
    async fn rows(&self, asking: &mut Option<JoinHandle<Rows>>) -> Option<Rows> {
        let nvml = Arc::clone(self.nvml.as_ref()?);
        let ask = asking.get_or_insert_with(|| tokio::task::spawn_blocking(move || pending(nvml.as_ref())));
        let answered = tokio::time::timeout(DRIVER, ask).await.ok()?;
        *asking = None;
        answered.ok()
    }

    fn look(&self, before: &Known, rows: Option<Rows>) -> Known {
        let now_ms = self.time.at(Instant::now());
        let mut now: BTreeMap<(&'static str, String), String> = BTreeMap::new();
        match rows {
            Some(Ok(rows)) => {
                for (gpu, answer) in rows {
                    match answer {
                        Ok(true) => {
                            let message = "rows of its memory wait for a reset to be remapped".to_owned();
                            now.insert((ROW_REMAP_PENDING, gpu), message);
                        }
                        Ok(false) => {}
                        Err(_) => now.extend(rows_of(before, Some(&gpu))),
                    }
                }
            }
            Some(Err(_)) | None => now.extend(rows_of(before, None)),
        }
        let differ = host::differences(&self.root, &self.desired.held().now().host);
        if !differ.is_empty() {
            now.insert((REBOOT_REQUIRED, String::new()), differ.join("; "));
        }
        if let Some(why) = self.desired.rejected() {
            now.insert((SPEC_REJECTED, String::new()), why);
        }
        let since = |key: &(&'static str, String)| before.get(key).map_or(now_ms, |(_, since_ms)| *since_ms);
        let with_time = now.into_iter().map(|(key, mut message)| {
            message.truncate(message.floor_char_boundary(MESSAGE_BYTES));
            let since_ms = since(&key);
            (key, (message, since_ms))
        });
        with_time.collect()
    }
}

/// What was known of the rows of a GPU, or of all of them.
fn rows_of(known: &Known, gpu: Option<&str>) -> Vec<((&'static str, String), String)> {
    let is_of = |(kind, subject): &(&str, String)| *kind == ROW_REMAP_PENDING && gpu.is_none_or(|gpu| subject == gpu);
    let of = known.iter().filter(|(key, _)| is_of(key));
    of.map(|(key, (message, _))| (key.clone(), message.clone())).collect()
}

/// Asks for the rows of every GPU that says who it is.
fn pending(nvml: &dyn Nvml) -> Rows {
    let gpus = nvml.devices()?.into_iter().filter_map(|device| device.identity.ok());
    Ok(gpus
        .map(|gpu| {
            let rows = nvml.remapped_rows(&gpu.uuid).map(|rows| rows.pending);
            (gpu.uuid, rows)
        })
        .collect())
}
