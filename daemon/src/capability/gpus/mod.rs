//! Who uses the GPUs, and resetting them: what stands behind `better-compute:host/gpus`.
//!
//! A reset wants everybody off the GPU: persistence mode, services that hold GPUs, and this daemon's own NVML. They are taken off
//! first and put back afterwards.
//!
//! **Invariant:** what a reset switched off is switched on again on every way out of it, that of the process included; and nothing
//! is switched off before it is known that nothing uses the GPUs.

mod cured;
mod holders;
mod taken;
mod tools;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use bc_proto::rules::holds::{self, InUse};
use bc_proto::rules::reset::{self, Exit, Health, Readings, Target, Verdict};
use bc_proto::spec::NodeSpec;
use bc_proto::xid::Report;
use bc_runtime::capability::gpus::{Hold, PassThrough, ResetOutcome};
use bc_runtime::capability::nvml::Identity;
use bc_runtime::capability::{Answer, Error, Gpus, Inventory, Nvml};

pub use self::cured::Cured;
use self::taken::{Shelf, Taken, put_back};
pub use self::tools::Tools;
use crate::capability::nvml::NvmlLibrary;
use crate::spec::{self, Held};

/// How long a question of this daemon's own to NVML may go on when a reset begins.
const ASIDE: Duration = Duration::from_secs(20);

/// What the capability works with.
pub struct Machine {
    /// The driver.
    pub nvml: Arc<NvmlLibrary>,
    /// Collected anew after a reset.
    pub inventory: Arc<dyn Inventory>,
    /// GPUs that a reset cured.
    pub cured: Arc<Cured>,
    /// The programs.
    pub tools: Tools,
    /// Services that hold GPUs, in the order in which they are stopped.
    pub services: Vec<String>,
    /// The root of `proc` and `dev`.
    pub root: PathBuf,
    /// What outlives the process; `None` for nothing.
    pub state_dir: Option<PathBuf>,
}

/// The GPUs of this machine.
pub struct MachineGpus {
    machine: Machine,
    /// What the daemon holds; a process that is no daemon reads it from the disk.
    held: OnceLock<Held>,
    shelf: Shelf,
    /// One reset at a time: another would be in its way.
    turn: Mutex<()>,
}

impl MachineGpus {
    /// Touches nothing yet.
    pub fn new(machine: Machine) -> Self {
        let shelf = Shelf::new(machine.state_dir.as_deref());
        Self { machine, held: OnceLock::new(), shelf, turn: Mutex::default() }
    }

    /// From now on it counts what the daemon holds. The first one counts.
    pub fn follow(&self, held: Held) {
        let _ = self.held.set(held);
    }

    /// Puts back what a reset had switched off when its process ended. Blocks.
    pub fn put_back_leftovers(&self) {
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        self.put_back_kept();
    }

    fn put_back_kept(&self) {
        match self.shelf.read() {
            Ok(taken) if taken.is_empty() => {}
            Ok(taken) => {
                tracing::warn!(?taken, "a reset of GPUs was cut off: what it had switched off is switched on again");
                put_back(&taken, &self.machine.tools, &self.shelf);
            }
            Err(error) => tracing::error!(%error, "whether a reset of GPUs left something switched off cannot be read"),
        }
    }

    fn spec(&self) -> Answer<Arc<NodeSpec>> {
        if let Some(held) = self.held.get() {
            return Ok(held.now());
        }
        let Some(state_dir) = &self.machine.state_dir else { return Ok(Arc::default()) };
        let unknown = |error| Error::new("holds-unknown", format!("what this node holds cannot be read: {error}"));
        Ok(Arc::new(spec::kept(state_dir).map_err(unknown)?.unwrap_or_default()))
    }

    /// The GPUs that hold what is named, each by the name in the spec. Errs `hold-not-resolved` where it is not known of which GPU a
    /// MIG instance is: it could be of any.
    fn parents(&self, spec: &NodeSpec) -> Answer<BTreeMap<String, String>> {
        let named = spec.holds.iter().map(|hold| &hold.gpu);
        let named = named.chain(spec.instances.iter().flat_map(|instance| &instance.pass_through));
        let (mut parents, mut instances) = (BTreeMap::new(), None);
        for name in named {
            let Some(of) = name.get(..4).filter(|start| start.eq_ignore_ascii_case("MIG-")).map(|_| &name[4..]) else {
                parents.insert(name.clone(), name.clone());
                continue;
            };
            // The older form names its GPU: `MIG-GPU-<uuid>/<gi>/<ci>`.
            if let Some((gpu, _)) = of.split_once('/') {
                parents.insert(name.clone(), gpu.to_owned());
                continue;
            }
            if instances.is_none() {
                instances = Some(self.machine.nvml.mig_instances()?);
            }
            let found = instances.iter().flatten().find(|(_, of)| of.iter().any(|it| it.eq_ignore_ascii_case(name)));
            let Some((gpu, _)) = found else {
                let message = format!("{name} is held, and NVML does not say of which GPU it is: it could be of any");
                return Err(Error::new("hold-not-resolved", message));
            };
            parents.insert(name.clone(), gpu.clone());
        }
        Ok(parents)
    }

    /// Whether nothing in the spec names a GPU, an instance of it or a slot.
    fn check_free(&self, gpus: &[String]) -> Answer<()> {
        let spec = self.spec()?;
        let parents = self.parents(&spec)?;
        let parts = |gpu: &String| -> Vec<String> {
            let of = parents.iter().filter(|(_, parent)| parent.eq_ignore_ascii_case(gpu));
            of.map(|(name, _)| name.clone()).collect()
        };
        let used: Vec<String> = gpus
            .iter()
            .filter_map(|gpu| holds::is_free(&spec, gpu, &parts(gpu)).err())
            .map(|it: InUse| it.to_string())
            .collect();
        if used.is_empty() { Ok(()) } else { Err(Error::new("gpu-busy", used.join("; "))) }
    }

    /// The identities of these GPUs. Errs `not-found` with all that the driver does not list.
    fn identities(&self, gpus: &[String]) -> Answer<Vec<Identity>> {
        let devices = self.machine.nvml.devices()?;
        let listed: Vec<Identity> = devices.into_iter().filter_map(|device| device.identity.ok()).collect();
        let find = |gpu: &&String| listed.iter().find(|it| it.uuid == **gpu);
        let missing: Vec<&str> = gpus.iter().filter(|gpu| find(gpu).is_none()).map(String::as_str).collect();
        if !missing.is_empty() {
            let message = format!("the driver does not list {}: nothing was done", missing.join(", "));
            return Err(Error::new("not-found", message));
        }
        Ok(gpus.iter().filter_map(|gpu| find(&gpu).cloned()).collect())
    }

    /// Refuses GPUs that programs work on, and names them.
    fn check_unused(&self, gpus: &[Identity]) -> Answer<()> {
        let mut used = Vec::new();
        for gpu in gpus {
            for process in self.machine.nvml.processes(&gpu.uuid)? {
                let name = holders::name(&self.machine.root, process.pid);
                used.push(format!("{} is used by process {} ({name}, {})", gpu.uuid, process.pid, process.context));
            }
        }
        if used.is_empty() { Ok(()) } else { Err(Error::new("gpu-busy", used.join("; "))) }
    }

    /// What has to be switched off; changes nothing.
    fn to_take(&self, gpus: &[Identity]) -> Answer<Taken> {
        let tools = &self.machine.tools;
        let mut services = Vec::new();
        for service in &self.machine.services {
            if tools.is_active(service)? {
                services.push(service.clone());
            }
        }
        let persistence = gpus.iter().filter(|gpu| gpu.persistence == Some(true)).map(|gpu| gpu.uuid.clone()).collect();
        Ok(Taken { persistence, services })
    }

    /// Everybody off, the reset, and everybody on again.
    fn reset_unused(&self, gpus: &[Identity]) -> Answer<(Vec<Verdict>, Vec<String>)> {
        let tools = &self.machine.tools;
        let taken = self.to_take(gpus)?;
        self.shelf.write(&taken).map_err(|error| {
            let message =
                format!("what has to be switched on again cannot be kept, so nothing was switched off: {error}");
            Error::new("not-kept", message)
        })?;
        let off = Off { gpus: self, taken: Some(taken) };
        let done = off.all().and_then(|()| {
            let aside = self.machine.nvml.stand_aside(ASIDE)?;
            let names: Vec<String> = gpus.iter().map(|gpu| gpu.uuid.clone()).collect();
            tracing::info!(gpus = ?names, "resetting GPUs");
            let said = tools.reset(&names)?;
            drop(aside);
            Ok(said)
        });
        let verdicts = done.map(|said| {
            let targets = |gpu: &Identity| Target { uuid: gpu.uuid.clone(), pci: gpu.pci_address.clone() };
            let targets: Vec<Target> = gpus.iter().map(targets).collect();
            let mut verdicts = reset::read(&targets, said.exit, &said.text);
            self.name_holders(gpus, &mut verdicts);
            if said.exit != Exit::Code(0) {
                tracing::warn!(said = said.told(), "the reset of GPUs was not a full success");
            }
            verdicts
        });
        // Read before anything is switched on: what the driver logs from then on counts.
        let logged = verdicts.is_ok().then(|| self.machine.nvml.xids()).and_then(Result::ok);
        let problems = off.end();
        match verdicts {
            Ok(verdicts) => {
                self.cure(gpus, &verdicts, logged.as_deref());
                Ok((verdicts, problems))
            }
            Err(error) if problems.is_empty() => Err(error),
            Err(error) => Err(Error { message: format!("{}; {}", error.message, problems.join("; ")), ..error }),
        }
    }

    /// Adds who has the devices open where the tool says that they are in use.
    fn name_holders(&self, gpus: &[Identity], verdicts: &mut [Verdict]) {
        let is_busy = |verdict: &Verdict| matches!(verdict, Verdict::NotReset(reset::Code::GpuBusy, _));
        if !verdicts.iter().any(is_busy) {
            return;
        }
        let minors: Vec<u32> = gpus.iter().filter_map(|gpu| gpu.minor).collect();
        let open = holders::of_devices(&self.machine.root, &minors);
        for (gpu, verdict) in gpus.iter().zip(verdicts) {
            let names = gpu.minor.and_then(|minor| open.get(&minor));
            if let (Verdict::NotReset(reset::Code::GpuBusy, words), Some(names)) = (verdict, names) {
                words.push_str("; it is open in ");
                words.push_str(&names.join(", "));
            }
        }
    }

    /// What the log says of GPUs that are healthy since their reset does not count any more.
    fn cure(&self, gpus: &[Identity], verdicts: &[Verdict], logged: Option<&str>) {
        if let Err(error) = self.machine.inventory.rescan(&["gpus".to_owned()]) {
            tracing::warn!(error = error.message, "the inventory of the GPUs was not collected anew");
        }
        let Some(log) = logged.and_then(|text| serde_json::from_str::<Report>(text).ok()) else { return };
        let was_reset = gpus.iter().zip(verdicts).filter(|(_, verdict)| matches!(verdict, Verdict::Reset(_)));
        let healthy = was_reset.filter(|(gpu, _)| self.health(&gpu.uuid) == Health::Healthy);
        self.machine.cured.add(healthy.filter_map(|(gpu, _)| Some((gpu.uuid.clone(), log.last_ms_of(&gpu.uuid)?))));
    }

    fn health(&self, gpu: &str) -> Health {
        fn supported<T>(answer: Answer<T>) -> Result<Option<T>, String> {
            match answer {
                Ok(value) => Ok(Some(value)),
                Err(error) if error.code == "not-supported" => Ok(None),
                Err(error) => Err(error.message),
            }
        }
        let nvml = &self.machine.nvml;
        let is_it = |uuid: &str| uuid == gpu;
        let listed = nvml.devices().map_err(|error| error.message);
        reset::health(&Readings {
            is_listed: listed
                .map(|all| all.iter().filter_map(|it| it.identity.as_ref().ok()).any(|it| is_it(&it.uuid))),
            rows: supported(nvml.remapped_rows(gpu)).map(|rows| rows.map(|rows| (rows.pending, rows.failure))),
            recovery_action: supported(nvml.recovery_action(gpu)),
        })
    }
}

/// What is switched off. Dropping it switches it on again.
struct Off<'a> {
    gpus: &'a MachineGpus,
    taken: Option<Taken>,
}

impl Off<'_> {
    /// Switches it off: services first, since they may switch persistence mode on.
    fn all(&self) -> Answer<()> {
        let tools = &self.gpus.machine.tools;
        let taken = self.taken.iter();
        for service in taken.clone().flat_map(|taken| &taken.services) {
            let failed =
                |why| Error::new("service-not-stopped", format!("the service {service} still holds GPUs: {why}"));
            tools.set_service(service, false).map_err(failed)?;
        }
        for gpu in taken.flat_map(|taken| &taken.persistence) {
            let failed = |why| Error::new("persistence-not-off", format!("persistence mode still holds {gpu}: {why}"));
            tools.set_persistence(gpu, false).map_err(failed)?;
        }
        Ok(())
    }

    /// Switches it on again, and says what could not be.
    fn end(mut self) -> Vec<String> {
        self.put_back()
    }

    fn put_back(&mut self) -> Vec<String> {
        let taken = self.taken.take();
        taken.map(|taken| put_back(&taken, &self.gpus.machine.tools, &self.gpus.shelf)).unwrap_or_default()
    }
}

impl Drop for Off<'_> {
    fn drop(&mut self) {
        self.put_back();
    }
}

impl Gpus for MachineGpus {
    fn holds(&self) -> Answer<Vec<Hold>> {
        let spec = self.spec()?;
        let parents = self.parents(&spec)?;
        let hold = |hold: &bc_proto::spec::Hold| Hold {
            gpu: parents.get(&hold.gpu).unwrap_or(&hold.gpu).clone(),
            held: hold.slot.map_or_else(|| hold.gpu.clone(), |slot| format!("{}/slot-{slot}", hold.gpu)),
            assignment: hold.allocation.to_string(),
        };
        Ok(spec.holds.iter().map(hold).collect())
    }

    fn pass_throughs(&self) -> Answer<Vec<PassThrough>> {
        let spec = self.spec()?;
        let parents = self.parents(&spec)?;
        let of = |instance: &bc_proto::spec::Instance| -> Vec<PassThrough> {
            let gpus = instance.pass_through.iter().map(|it| parents.get(it).unwrap_or(it).clone());
            gpus.map(|gpu| PassThrough { gpu, instance: instance.id.clone() }).collect()
        };
        Ok(spec.instances.iter().flat_map(of).collect())
    }

    /// Errs when none was reset: with the code and words of each, nothing being left switched off. Where one was reset, or where it
    /// could not be known, the answer has a line for each: the message of one that was not reset begins with a code and a colon,
    /// `could-not-be-known` where that is so.
    fn reset(&self, gpus: &[String]) -> Answer<Vec<ResetOutcome>> {
        if gpus.is_empty() {
            return Err(Error::new("invalid-argument", "no GPU is named: that would reset all of them"));
        }
        if let Some((_, twice)) = gpus.iter().enumerate().find(|(at, gpu)| gpus[..*at].contains(gpu)) {
            return Err(Error::new("invalid-argument", format!("{twice} is named twice")));
        }
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        self.put_back_kept();
        let identities = self.identities(gpus)?;
        self.check_free(gpus)?;
        self.check_unused(&identities)?;
        let (verdicts, problems) = self.reset_unused(&identities)?;
        if let Some(code) = code_of_none(&verdicts) {
            let told = gpus.iter().zip(&verdicts).map(|(gpu, verdict)| format!("{gpu}: {verdict}"));
            return Err(Error::new(code.to_string(), told.chain(problems).collect::<Vec<_>>().join("; ")));
        }
        let outcomes = gpus.iter().zip(verdicts).map(|(gpu, verdict)| ResetOutcome {
            gpu: gpu.clone(),
            reset: matches!(verdict, Verdict::Reset(_)),
            message: std::iter::once(verdict.to_string())
                .chain(problems.iter().cloned())
                .collect::<Vec<_>>()
                .join("; "),
        });
        Ok(outcomes.collect())
    }
}

/// Why none was reset, where that is known of all: the first reason that is one of its own.
fn code_of_none(verdicts: &[Verdict]) -> Option<reset::Code> {
    let codes: Option<Vec<reset::Code>> = verdicts
        .iter()
        .map(|verdict| match verdict {
            Verdict::NotReset(code, _) => Some(*code),
            Verdict::Reset(_) | Verdict::Unknown(_) => None,
        })
        .collect();
    let codes = codes.filter(|codes| !codes.contains(&reset::Code::ResetIncomplete))?;
    codes.iter().find(|code| **code != reset::Code::RefusedTogether).or_else(|| codes.first()).copied()
}
