//! When to look again: file system events, until they come to rest.
//!
//! The parent directory is watched as well, for the directory itself being put in place anew: a deployment that swaps a
//! symbolic link or renames a whole directory changes no file in the old one.
//!
//! **Invariant:** reading the directory causes no event that counts, and without one nothing runs.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use notify::event::{AccessKind, AccessMode};
use notify::{Event, EventKind, RecommendedWatcher, RecursiveMode, Watcher};
use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};

/// How long nothing may change before the directory is read: several files that are copied together are seen together.
const QUIET: Duration = Duration::from_millis(200);

/// How long changes may go on before the directory is read nevertheless.
const LONGEST: Duration = Duration::from_secs(2);

/// A directory under watch, until it is dropped.
pub(super) struct Watch {
    dir: PathBuf,
    watcher: RecommendedWatcher,
    seen: Arc<Seen>,
}

/// What the watcher's thread tells: no queue, so that a storm of events costs no memory.
#[derive(Default)]
struct Seen {
    changed: Notify,
    /// The directory itself was replaced or removed: what is watched is no longer what its path names.
    moved: AtomicBool,
}

impl Watch {
    /// Begins to watch; `dir` is absolute.
    pub(super) fn start(dir: &Path) -> notify::Result<Self> {
        let seen = Arc::new(Seen::default());
        let (heard, of) = (Arc::clone(&seen), dir.to_owned());
        let mut watcher = notify::recommended_watcher(move |event| heard.event(event, &of))?;
        watcher.watch(dir, RecursiveMode::NonRecursive)?;
        if let Some(parent) = dir.parent()
            && let Err(error) = watcher.watch(parent, RecursiveMode::NonRecursive)
        {
            tracing::debug!(%error, "a plugin directory that is replaced as a whole will not be noticed");
        }
        Ok(Self { dir: dir.to_owned(), watcher, seen })
    }

    /// Tells it that something changed that is no file.
    pub(super) fn teller(&self) -> impl Fn() + use<> {
        let seen = Arc::clone(&self.seen);
        move || seen.changed.notify_one()
    }

    /// Returns when something changed and came to rest.
    pub(super) async fn settled(&mut self) {
        settled(&self.seen.changed).await;
        if self.seen.moved.swap(false, Ordering::AcqRel) {
            // It is gone when the directory is; then the parent tells of the next one.
            self.watcher.unwatch(&self.dir).ok();
            if let Err(error) = self.watcher.watch(&self.dir, RecursiveMode::NonRecursive) {
                tracing::debug!(%error, "the plugin directory is gone for now");
            }
        }
    }
}

impl Seen {
    fn event(&self, event: notify::Result<Event>, dir: &Path) {
        match event {
            Err(error) => tracing::warn!(%error, "an event of the plugin directory may be lost"),
            Ok(event) if event.need_rescan() => self.moved.store(true, Ordering::Release),
            Ok(event) if !changes(event.kind) => return,
            Ok(event) if event.paths.iter().any(|path| path == dir) => self.moved.store(true, Ordering::Release),
            Ok(event) if event.paths.iter().any(|path| path.parent() == Some(dir)) => {}
            // The parent's other entries.
            Ok(_) => return,
        }
        self.changed.notify_one();
    }
}

/// Whether something is different afterwards: opening and reading are events too, and a rescan does both.
fn changes(kind: EventKind) -> bool {
    match kind {
        EventKind::Access(access) => access == AccessKind::Close(AccessMode::Write),
        _ => true,
    }
}

async fn settled(changed: &Notify) {
    changed.notified().await;
    let latest = Instant::now() + LONGEST;
    while Instant::now() < latest {
        let quiet = latest.min(Instant::now() + QUIET);
        if timeout_at(quiet, changed.notified()).await.is_err() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::sleep;

    use super::*;

    /// How long it takes to settle when something changes this often, so many times. Time is simulated.
    async fn after_changes(every: Duration, times: u32) -> Duration {
        let changed = Arc::new(Notify::new());
        let source = Arc::clone(&changed);
        tokio::spawn(async move {
            for _ in 0..times {
                source.notify_one();
                sleep(every).await;
            }
        });
        let started = Instant::now();
        settled(&changed).await;
        started.elapsed()
    }

    #[tokio::test(start_paused = true)]
    async fn changes_settle_once_they_pause_or_last_too_long() {
        let ms = Duration::from_millis;
        assert_eq!(after_changes(ms(100), 1).await, ms(200));
        assert_eq!(after_changes(ms(100), 5).await, ms(600));
        assert_eq!(after_changes(ms(300), 5).await, ms(200));
        assert_eq!(after_changes(ms(150), 1000).await, ms(2000));
    }

    #[test]
    fn reading_does_not_count_as_a_change_and_neighbours_do_not_either() {
        let dir = Path::new("/plugins");
        let heard = |kind, path: &str| {
            let seen = Seen::default();
            seen.event(Ok(Event::new(kind).add_path(path.into())), dir);
            let waiting = std::pin::pin!(seen.changed.notified()).as_mut().enable();
            (waiting, seen.moved.into_inner())
        };
        let open = EventKind::Access(AccessKind::Open(AccessMode::Any));
        let written = EventKind::Access(AccessKind::Close(AccessMode::Write));
        let created = EventKind::Create(notify::event::CreateKind::Any);
        assert_eq!(heard(open, "/plugins/a.wasm"), (false, false));
        assert_eq!(heard(open, "/plugins"), (false, false));
        assert_eq!(heard(written, "/plugins/a.wasm"), (true, false));
        assert_eq!(heard(created, "/plugins"), (true, true));
        assert_eq!(heard(created, "/elsewhere"), (false, false));
    }
}
