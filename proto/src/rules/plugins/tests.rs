//! The decision table, and what holds for every directory and every history.

use proptest::prelude::*;

use super::*;

/// `name version/digest`: a sound file's content, or what a rejected one says it is.
fn release(text: &str) -> Release {
    let (kind, rest) = text.split_once(' ').expect("kind, then version");
    let (version, digest) = rest.split_once('/').expect("version, then digest");
    Release { kind: kind.into(), version: version.parse().expect("semver"), digest: digest.into() }
}

/// `file: content, …`, where content is a release, `!` (illegible) or `!` and a release.
fn directory(text: &str) -> Directory {
    let entries = text.split(", ").filter(|entry| !entry.is_empty());
    entries
        .map(|entry| {
            let (file, content) = entry.split_once(": ").expect("file, then content");
            let found = match content.strip_prefix('!') {
                None => Ok(release(content)),
                Some(claim) => Err(Rejection {
                    release: (!claim.is_empty()).then(|| release(claim)),
                    reason: "it is bad".into(),
                    remedy: "make it good".into(),
                }),
            };
            (file.to_owned(), found)
        })
        .collect()
}

fn words(action: &Action) -> String {
    let of = |Release { kind, version, digest }: &Release| format!("{kind} {version}/{digest}");
    let from = |served: &Served| format!("{} from {}", of(&served.release), served.file);
    match action {
        Action::Load(new) => format!("load    {}", from(new)),
        Action::Replace { old, new } => format!("replace {} by {}", of(&old.release), from(new)),
        Action::Keep(old) => format!("keep    {}", from(old)),
        Action::Retire(old) => format!("retire  {}", from(old)),
        Action::Refuse { file, rejection, stays } => {
            let stays = stays.as_ref().map_or_else(|| "nothing".into(), of);
            format!("refuse  {file}: {} ({stays} is served)", rejection.reason)
        }
    }
}

#[test]
fn the_decision_table() {
    let histories: [&[&str]; 21] = [
        &[""],
        &["a: k 1.0.0/x, b: l 2.0.0/y"],
        &["a: !"],
        &["a: !k 1.0.0/x"],
        &["a: k 1.0.0/x, b: k 1.1.0/y"],
        &["a: k 1.9.0/x, b: k 1.10.0/y"],
        &["a: k 2.0.0/x, b: k 2.0.0-rc.1/y"],
        &["a: k 1.0.0/x, b: k 1.0.0/x"],
        &["a: k 1.0.0/x, b: k 1.0.0/y"],
        &["a: k 1.0.0/x, b: k 2.0.0/y, c: k 2.0.0/z"],
        &["a: k 1.0.0/x", "a: k 1.0.0/x"],
        &["a: k 1.0.0/x", "a: !"],
        &["a: k 1.0.0/x", "a: !", "a: k 2.0.0/y"],
        &["a: k 1.0.0/x", "b: !k 2.0.0/y"],
        &["a: k 1.0.0/x", "a: k 1.0.0/x, b: k 1.0.0/y"],
        &["a: k 2.0.0/x", "a: !, b: k 1.0.0/y"],
        &["a: k 1.0.0/x", "a: !, b: k 2.0.0/y"],
        &["a: k 2.0.0/x", "a: k 1.0.0/y"],
        &["a: k 1.0.0/x, b: k 2.0.0/y", "a: k 1.0.0/x"],
        &["a: k 1.0.0/x", "b: k 1.0.0/x"],
        &["a: k 1.0.0/x", "a: l 1.0.0/y"],
    ];
    let mut table = String::new();
    for history in histories {
        let mut serving = Serving::new();
        for (step, text) in history.iter().enumerate() {
            let actions = decide(&serving, &directory(text));
            serving = after(&actions);
            table += &format!("{}[{text}]\n", if step == 0 { "" } else { "  then " });
            if step + 1 == history.len() {
                table.extend(actions.iter().map(|action| format!("    {}\n", words(action))));
            }
        }
    }
    insta::assert_snapshot!(table);
}

/// Components as they exist: a digest has one kind and one version.
fn component() -> impl Strategy<Value = Release> {
    (0_usize..8).prop_map(|index| {
        let version = ["1.0.0", "1.0.0", "1.1.0", "2.0.0"][index % 4];
        release(&format!("{} {version}/{index}", ["k", "l"][index / 4]))
    })
}

fn found() -> impl Strategy<Value = Result<Release, Rejection>> {
    let rejection = |release| Rejection { release, reason: String::new(), remedy: String::new() };
    prop_oneof![
        3 => component().prop_map(Ok),
        1 => proptest::option::of(component()).prop_map(rejection).prop_map(Err),
    ]
}

fn any_directory() -> impl Strategy<Value = Directory> {
    proptest::collection::btree_map("[a-e]", found(), 0..5)
}

fn digests(serving: &Serving) -> BTreeSet<&str> {
    serving.values().map(|served| served.release.digest.as_str()).collect()
}

proptest! {
    #[test]
    fn promise_27_a_served_kind_whose_file_went_bad_stays(history in proptest::collection::vec(any_directory(), 1..6)) {
        let mut serving = Serving::new();
        for directory in &history {
            let next = after(&decide(&serving, directory));
            for (kind, old) in &serving {
                if directory.get(&old.file).is_some_and(Result::is_err) {
                    let new = next.get(kind);
                    prop_assert!(new.is_some_and(|new| new.release.digest == old.release.digest
                        || new.release.version > old.release.version), "{old:?} became {new:?}");
                }
            }
            serving = next;
        }
    }

    #[test]
    fn deciding_again_changes_nothing(history in proptest::collection::vec(any_directory(), 1..6)) {
        let mut serving = Serving::new();
        for directory in &history {
            serving = after(&decide(&serving, directory));
            let again = decide(&serving, directory);
            prop_assert!(again.iter().all(|action| matches!(action, Action::Keep(_) | Action::Refuse { .. })), "{again:?}");
            prop_assert_eq!(&after(&again), &serving);
        }
    }

    #[test]
    fn every_file_is_served_or_refused_once(history in proptest::collection::vec(any_directory(), 1..6)) {
        let mut serving = Serving::new();
        for directory in &history {
            let actions = decide(&serving, directory);
            serving = after(&actions);
            for (file, found) in directory {
                let refusals = actions.iter()
                    .filter(|action| matches!(action, Action::Refuse { file: refused, .. } if refused == file)).count();
                let served = found.as_ref().is_ok_and(|release| digests(&serving).contains(release.digest.as_str()));
                prop_assert_eq!(refusals, usize::from(!served), "{}", file);
            }
        }
    }

    #[test]
    fn the_names_and_the_order_of_files_do_not_matter(
        contents in proptest::collection::vec(found(), 0..5),
        names in Just(["a", "b", "c", "d", "e"]).prop_shuffle(),
    ) {
        let named = |names: [&str; 5]| -> Directory {
            names.into_iter().map(String::from).zip(contents.iter().cloned()).collect()
        };
        let one = after(&decide(&Serving::new(), &named(["a", "b", "c", "d", "e"])));
        let other = after(&decide(&Serving::new(), &named(names)));
        prop_assert_eq!(digests(&one), digests(&other));
    }
}
