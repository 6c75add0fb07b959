//! Which files of a plugin directory are served? Load, replace, keep, retire or refuse, decided from what they say they are.
//!
//! **Invariant:** a kind that is served stays served until a sound file takes its place or its files are gone, and every
//! file is either served, a copy of what is served, or refused with a reason.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use semver::Version;
use serde::Serialize;

/// A version of a kind, as one component.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Release {
    /// The kind's name.
    pub kind: String,
    /// Its version.
    pub version: Version,
    /// SHA-256 of the component, 64 lower-case hex digits.
    pub digest: String,
}

impl fmt::Display for Release {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.kind, self.version)
    }
}

/// Why a file cannot be served.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rejection {
    /// What it says it is, where it says so legibly.
    pub release: Option<Release>,
    /// The rule that it breaks.
    pub reason: String,
    /// What to do about it.
    pub remedy: String,
}

/// A release and the file that it was read from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Served {
    /// The file's name in the directory.
    pub file: String,
    /// What it held when it was loaded.
    pub release: Release,
}

/// What a directory holds, by file name.
pub type Directory = BTreeMap<String, Result<Release, Rejection>>;

/// What is served, by kind.
pub type Serving = BTreeMap<String, Served>;

/// What to do about one kind or one file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Serve a kind that was not served.
    Load(Served),
    /// Serve another release for new commands.
    Replace {
        /// The release that runs to the end of its commands.
        old: Served,
        /// The release that takes over.
        new: Served,
    },
    /// Go on as before. The file is where the release is found now, or was found last.
    Keep(Served),
    /// Serve the kind no more.
    Retire(Served),
    /// Do not serve a file.
    Refuse {
        /// Its name.
        file: String,
        /// Why.
        rejection: Rejection,
        /// What is served in its place.
        stays: Option<Release>,
    },
}

/// Decides what to do: one action for each kind that is or will be served, then one refusal for each file that is not.
///
/// The highest version wins. Different components of one version are ambiguous: neither is taken. While a served kind's own
/// file, or its update, is refused, only a higher version takes its place. Without that, what the directory holds now counts:
/// an older version in the same file, or alone left, is how an operator rolls back.
pub fn decide(serving: &Serving, directory: &Directory) -> Vec<Action> {
    let mut kinds: BTreeMap<&str, Vec<File<'_>>> = serving.keys().map(|kind| (kind.as_str(), Vec::new())).collect();
    for (file, found) in directory {
        if let Ok(release) = found {
            kinds.entry(&release.kind).or_default().push(File { name: file, release });
        }
    }
    let mut actions = Vec::new();
    let mut refusals = Vec::new();
    for (kind, files) in kinds {
        let old = serving.get(kind);
        let ranked = rank(&files);
        let action = choose(old, &files, &ranked, old.is_some_and(|old| is_held(old, directory)));
        let next = action.as_ref().and_then(serves);
        refusals.extend(files.iter().filter_map(|file| refuse(*file, &ranked, next)));
        actions.extend(action);
    }
    let after = after(&actions);
    for (file, found) in directory {
        let Err(rejection) = found else { continue };
        let meant = rejection.release.as_ref().and_then(|release| after.get(&release.kind));
        let stays = meant.or_else(|| after.values().find(|served| served.file == *file));
        refusals.push(Action::Refuse {
            file: file.clone(),
            rejection: rejection.clone(),
            stays: stays.map(|served| served.release.clone()),
        });
    }
    actions.extend(refusals);
    actions
}

/// What is served once the actions are done.
pub fn after(actions: &[Action]) -> Serving {
    actions.iter().filter_map(serves).map(|served| (served.release.kind.clone(), served.clone())).collect()
}

/// What an action leaves served.
fn serves(action: &Action) -> Option<&Served> {
    match action {
        Action::Load(new) | Action::Replace { new, .. } => Some(new),
        Action::Keep(old) => Some(old),
        Action::Retire(_) | Action::Refuse { .. } => None,
    }
}

/// A sound file.
#[derive(Clone, Copy)]
struct File<'a> {
    name: &'a str,
    release: &'a Release,
}

impl File<'_> {
    fn served(self) -> Served {
        Served { file: self.name.to_owned(), release: self.release.clone() }
    }
}

/// One kind's files: the best, and what above it is ambiguous.
struct Ranked<'a> {
    best: Option<File<'a>>,
    ambiguous: Vec<Vec<File<'a>>>,
}

fn rank<'a>(files: &[File<'a>]) -> Ranked<'a> {
    let mut sorted = files.to_vec();
    sorted.sort_by(|a, b| b.release.version.cmp_precedence(&a.release.version));
    let mut ambiguous = Vec::new();
    for equals in sorted.chunk_by(|a, b| a.release.version.cmp_precedence(&b.release.version).is_eq()) {
        if equals.iter().all(|file| file.release.digest == equals[0].release.digest) {
            return Ranked { best: Some(equals[0]), ambiguous };
        }
        ambiguous.push(equals.to_vec());
    }
    Ranked { best: None, ambiguous }
}

/// Whether a served kind's own file went bad, or it is gone and a file that cannot be served was to take its place.
fn is_held(old: &Served, directory: &Directory) -> bool {
    match directory.get(&old.file) {
        Some(found) => found.is_err(),
        None => directory.values().any(
            |found| matches!(found, Err(Rejection { release: Some(release), .. }) if release.kind == old.release.kind),
        ),
    }
}

fn choose(old: Option<&Served>, files: &[File<'_>], ranked: &Ranked<'_>, held: bool) -> Option<Action> {
    let Some(old) = old else { return ranked.best.map(|best| Action::Load(best.served())) };
    let guarded = held || !ranked.ambiguous.is_empty();
    let rises = |best: &File<'_>| best.release.version.cmp_precedence(&old.release.version).is_gt();
    match ranked.best.filter(|best| !guarded || rises(best)) {
        Some(best) if best.release.digest != old.release.digest => {
            Some(Action::Replace { old: old.clone(), new: best.served() })
        }
        None if !guarded => Some(Action::Retire(old.clone())),
        _ => {
            let mut copies = files.iter().filter(|file| file.release.digest == old.release.digest);
            let moved = copies.clone().all(|file| file.name != old.file).then(|| copies.next()).flatten();
            Some(Action::Keep(moved.map_or_else(|| old.clone(), |file| file.served())))
        }
    }
}

/// A sound file's refusal, unless it is what is served.
fn refuse(file: File<'_>, ranked: &Ranked<'_>, next: Option<&Served>) -> Option<Action> {
    if next.is_some_and(|next| next.release.digest == file.release.digest) {
        return None;
    }
    let rivals = ranked.ambiguous.iter().find(|equals| equals.iter().any(|rival| rival.name == file.name));
    let (reason, remedy) = match (rivals, next) {
        (Some(equals), _) => {
            let names: BTreeSet<_> = equals.iter().map(|rival| rival.name).collect();
            let names = names.into_iter().collect::<Vec<_>>().join(" and ");
            (
                format!("{names} are different components of {}", file.release),
                "keep one of them, or give one a higher version",
            )
        }
        (None, Some(next)) => (
            format!("{} from {} is served instead", next.release, next.file),
            "remove the file that is not wanted, or give the wanted one a higher version",
        ),
        (None, None) => unreachable!("a kind with an unambiguous file is served"),
    };
    Some(Action::Refuse {
        file: file.name.to_owned(),
        rejection: Rejection { release: Some(file.release.clone()), reason, remedy: remedy.to_owned() },
        stays: next.map(|next| next.release.clone()),
    })
}

#[cfg(test)]
mod tests;
