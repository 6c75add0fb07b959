//! Replacing the daemon: what stands behind `better-compute:host/upgrade`, the switch itself, and the probation after it.
//!
//! **Invariant:** a binary is staged only when its digest is the one that was asked for, a publisher whom this node trusts vouches for
//! it, and it has said which version it is. A switch happens while nothing else runs.

mod fetch;
mod probation;

use std::collections::HashMap;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use arc_swap::ArcSwapOption;
use bc_proto::id::CommandId;
use bc_proto::rules::daemon::Intent;
use bc_proto::rules::slots::{Nowhere, Release, Slots};
use bc_runtime::capability::{Answer, Capabilities, Error, Upgrade, upgrade};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tonic::transport::Channel;

use self::fetch::Failed;
use super::commanded::{Asked, Commanded, Provider};
use crate::config;
use crate::lanes::Lanes;
use crate::shell::{NotDone, Terminal};
use crate::slots::{Running, Store, VERSION};
use crate::trust::Trust;

/// How often it is looked whether other runs are over.
const PACE: Duration = Duration::from_millis(20);

/// The daemon's own binaries; clones are handles to one.
#[derive(Clone)]
pub struct Upgrades(Arc<Inner>);

struct Inner {
    store: Store,
    running: Running,
    settings: config::Upgrade,
    trust: Trust,
    /// Runs what was fetched, to hear its version.
    supervisor: Option<PathBuf>,
    lanes: Lanes,
    session: ArcSwapOption<Session>,
    /// The epoch of the session that is open.
    opened: watch::Sender<Option<u64>>,
    /// What commands of this process asked for, and until when it may be waited for others.
    wishes: Mutex<HashMap<CommandId, Wish>>,
    /// The running release has shown that it works, and that is durable.
    confirmed: CancellationToken,
    /// The daemon is to stop, and to begin anew as the installed binary, which chooses.
    restart: CancellationToken,
}

struct Session {
    epoch: u64,
    channel: Channel,
}

#[derive(Debug, Clone, Copy)]
struct Wish {
    until: Instant,
    is_back: bool,
}

/// What they are made of.
pub struct Parts {
    /// The binaries.
    pub store: Store,
    /// Which of them this process is.
    pub running: Running,
    /// What the node's operator decides about them.
    pub settings: config::Upgrade,
    /// Whom the node trusts.
    pub trust: Trust,
    /// What supervises programs.
    pub supervisor: Option<PathBuf>,
    /// The worker pools: a switch waits until they are idle.
    pub lanes: Lanes,
}

impl Upgrades {
    /// There is no session yet.
    pub fn new(parts: Parts) -> Self {
        let Parts { store, running, settings, trust, supervisor, lanes } = parts;
        Self(Arc::new(Inner {
            store,
            running,
            settings,
            trust,
            supervisor,
            lanes,
            session: ArcSwapOption::empty(),
            opened: watch::Sender::new(None),
            wishes: Mutex::default(),
            confirmed: CancellationToken::new(),
            restart: CancellationToken::new(),
        }))
    }

    /// A session was opened: binaries come through it from now on.
    pub(crate) fn attach(&self, epoch: u64, channel: Channel) {
        self.0.session.store(Some(Arc::new(Session { epoch, channel })));
        self.0.opened.send_replace(Some(epoch));
    }

    /// It is over, if it still was the one.
    pub(crate) fn detach(&self, epoch: u64) {
        let current = self.0.session.load();
        if current.as_ref().is_some_and(|session| session.epoch == epoch) {
            self.0.session.compare_and_swap(&*current, None);
        }
        self.0.opened.send_if_modified(|opened| opened.take_if(|opened| *opened == epoch).is_some());
    }

    /// Cancelled when the daemon is to stop and to begin anew.
    pub(crate) fn restart(&self) -> CancellationToken {
        self.0.restart.clone()
    }
}

impl Provider for Upgrades {
    fn provide(&self, command: &Commanded<'_>, capabilities: &mut Capabilities) {
        let of_command = || -> Arc<dyn Upgrade> {
            Arc::new(OfCommand {
                upgrades: self.clone(),
                command: command.deliver.command,
                until: Instant::now() + Duration::from_millis(command.deliver.timeout_ms),
                asked: Arc::clone(&command.asked),
                cancel: command.cancel.clone(),
            })
        };
        capabilities.upgrade.get_or_insert_with(of_command);
    }
}

/// What one command may do with them.
struct OfCommand {
    upgrades: Upgrades,
    command: CommandId,
    /// The end of its time.
    until: Instant,
    asked: Arc<Asked>,
    cancel: CancellationToken,
}

impl OfCommand {
    fn ask(&self, version: &str, is_back: bool) -> Answer<()> {
        self.asked.ask(Intent::Switch { version: version.to_owned() })?;
        let mut wishes = self.upgrades.0.wishes.lock().unwrap_or_else(PoisonError::into_inner);
        wishes.insert(self.command, Wish { until: self.until, is_back });
        Ok(())
    }

    fn slots(&self) -> Answer<Slots> {
        let slots = self.upgrades.0.store.read().map_err(|error| unreadable(&error))?;
        Ok(slots.unwrap_or_else(|| Slots::of(VERSION)))
    }
}

fn unreadable(error: &io::Error) -> Error {
    let message = format!("what is remembered of the daemon's binaries cannot be read or written: {error}");
    error.raw_os_error().map_or_else(|| Error::new("io", &message), |number| Error::native("io", number, &message))
}

fn nowhere(nowhere: &Nowhere) -> Error {
    let code = match nowhere {
        Nowhere::NothingStaged => "nothing-staged",
        Nowhere::NothingBefore => "nothing-before",
        Nowhere::OnTrial(_) => "on-trial",
    };
    Error::new(code, nowhere.to_string())
}

impl Upgrade for OfCommand {
    fn state(&self) -> Answer<upgrade::Slots> {
        let slots = self.slots()?;
        let staged = slots.staged.map(|staged| staged.version);
        Ok(upgrade::Slots { running: VERSION.to_owned(), staged, unconfirmed: self.upgrades.on_trial() })
    }

    fn stage(&self, version: &str, sha256: &str) -> Answer<()> {
        let release = checked(version, sha256)?;
        let (slots, Inner { store, .. }) = (self.slots()?, &*self.upgrades.0);
        if let Some(trial) = slots.trial {
            return Err(nowhere(&Nowhere::OnTrial(trial.release.version)));
        }
        if slots.staged.as_ref() == Some(&release) && store.is_whole(&release) {
            return Ok(());
        }
        // The gate gives this call a thread that may block.
        tokio::runtime::Handle::current().block_on(async {
            tokio::select! {
                biased;
                () = self.cancel.cancelled() => Err(Failed::Cancelled),
                fetched = self.upgrades.fetch(&release) => fetched,
            }
        })?;
        let slots = store.change::<io::Error>(|slots| Ok(slots.stage(release.clone())));
        let slots = slots.map_err(|error| Error::from(Failed::from(error)))?;
        if let Err(error) = store.tidy(&slots, None) {
            tracing::warn!(%error, "old releases are not removed for now");
        }
        Ok(())
    }

    fn switch(&self) -> Answer<()> {
        let slots = self.slots()?;
        let staged = slots.staged.clone().ok_or_else(|| nowhere(&Nowhere::NothingStaged))?;
        slots.switch().map_err(|it| nowhere(&it))?;
        self.ask(&staged.version, false)
    }

    fn confirm(&self) -> Answer<()> {
        self.upgrades.confirm().map_err(|error| unreadable(&error))
    }

    fn roll_back(&self) -> Answer<()> {
        let slots = self.slots()?;
        self.ask(slots.back().map_err(|it| nowhere(&it))?, true)
    }
}

/// What was asked for, in the form in which it is compared.
fn checked(version: &str, sha256: &str) -> Answer<Release> {
    if version.parse::<semver::Version>().is_err() {
        return Err(Error::new("invalid", format!("version: `{version}` is no semantic version")));
    }
    if sha256.len() != 64 || !sha256.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f')) {
        return Err(Error::new("invalid", "sha256: must be 64 hexadecimal digits in lower case"));
    }
    Ok(Release { version: version.to_owned(), sha256: sha256.to_owned() })
}

impl Terminal for Upgrades {
    fn carry_out(&self, command: CommandId, intent: &Intent) -> Result<(), NotDone> {
        let Intent::Switch { version } = intent else {
            return Err(NotDone { code: "not-offered".into(), message: "this changes versions alone".into() });
        };
        let Inner { store, wishes, lanes, restart, .. } = &*self.0;
        let wish = wishes.lock().unwrap_or_else(PoisonError::into_inner).remove(&command);
        let Some(wish) = wish else {
            let message = "it was asked for by another process".into();
            return Err(NotDone { code: "interrupted".into(), message });
        };
        while !lanes.is_idle() {
            if Instant::now() >= wish.until {
                let message =
                    format!("other runs were not over in time, so version {version} was not switched to; try again");
                return Err(NotDone { code: "busy".into(), message });
            }
            std::thread::sleep(PACE);
        }
        let changed = store.change(|slots| {
            let slots = if wish.is_back { slots.roll_back() } else { slots.switch() };
            slots.map_err(|it| nowhere(&it)).map_err(NotChanged)
        });
        changed.map_err(|NotChanged(Error { code, message, .. })| NotDone { code, message })?;
        tracing::info!(version, "the daemon stops, to go on as this version");
        restart.cancel();
        Ok(())
    }

    fn on_trial(&self) -> bool {
        self.0.running.deadline_ms.is_some() && !self.0.confirmed.is_cancelled()
    }
}

struct NotChanged(Error);

impl From<io::Error> for NotChanged {
    fn from(error: io::Error) -> Self {
        Self(unreadable(&error))
    }
}

/// For runs that no control plane asked for: they replace nothing.
#[derive(Debug, Clone, Copy)]
pub struct NoUpgrades;

impl NoUpgrades {
    fn refused<T>() -> Answer<T> {
        Err(Error::new("not-offered", "only a command that a control plane sent changes the daemon"))
    }
}

impl Upgrade for NoUpgrades {
    fn state(&self) -> Answer<upgrade::Slots> {
        Ok(upgrade::Slots { running: VERSION.to_owned(), staged: None, unconfirmed: false })
    }

    fn stage(&self, _: &str, _: &str) -> Answer<()> {
        Self::refused()
    }

    fn switch(&self) -> Answer<()> {
        Self::refused()
    }

    fn confirm(&self) -> Answer<()> {
        Self::refused()
    }

    fn roll_back(&self) -> Answer<()> {
        Self::refused()
    }
}

#[cfg(test)]
mod tests;
