//! A plugin directory with real component files, on a real file system, under watch.

mod bench;

use std::fs;

use bc_daemon::plugins::Change;
use bc_proto::rules::publishing::KindSignature;
use bc_proto::rules::trust::{Publisher, SignedBundle, TrustBundle};
use bc_proto::sign::SecretKey;
use bc_runtime::Inspected;

use self::bench::{Bench, KIND, built, digest_of, release, version};

#[tokio::test(flavor = "multi_thread")]
async fn promise_27_a_failed_update_keeps_the_old_version_serving_and_a_fixed_file_recovers() {
    let (one, two) = (version("1.0.0"), version("2.0.0"));
    let mut bench = Bench::serving(&one).await;
    assert_eq!(bench.run().await, release(&one).digest);

    let file = bench.write(KIND, &two[..two.len() / 2]);
    let (reason, remedy, serving) = bench.refusal(&file).await;
    assert!(reason.starts_with("it is damaged or cut off: "), "{reason}");
    assert_eq!((remedy.as_str(), serving), ("copy or build the file again", Some(release(&one))));
    assert_eq!(bench.run().await, release(&one).digest, "the old version still serves");

    let running = bench.start().await;
    let file = bench.put(KIND, &two);
    assert_eq!(bench.change().await, Change::Replaced { file, release: release(&two), previous: release(&one) });
    assert_eq!(bench.run().await, release(&two).digest, "new commands get the new version");
    assert!(!running.is_finished());
    bench.let_go();
    let report = running.await.expect("it runs to its end");
    assert_eq!(digest_of(&report), release(&one).digest, "a command ends on the version it started on");

    let file = bench.file(KIND);
    fs::remove_file(&file).expect("it is there");
    assert_eq!(bench.change().await, Change::Retired { file, release: release(&two) });
    assert!(bench.plugins.kind(KIND).is_none());

    let file = bench.write(KIND, &one);
    assert_eq!(bench.change().await, Change::Loaded { file, release: release(&one) });
    assert_eq!(bench.run().await, release(&one).digest);
    bench.no_more_changes();
}

#[tokio::test(flavor = "multi_thread")]
async fn promise_27_a_version_that_does_not_compile_is_refused_like_one_that_is_cut_off() {
    let one = version("1.0.0");
    let mut bench = Bench::serving(&one).await;
    let mut bad = version("3.0.0");
    // In the code section: sections and manifest stay legible.
    let middle = bad.len() / 3;
    bad[middle..middle + 64].fill(0xff);
    assert!(Inspected::from_bytes(bad.clone()).is_ok());

    let file = bench.write("three", &bad);
    let (reason, _, serving) = bench.refusal(&file).await;
    assert!(reason.starts_with("it does not compile: "), "{reason}");
    assert_eq!(serving, Some(release(&one)));

    // The next best takes over beside it, and the bad one is not told again.
    let two = version("2.0.0");
    let file = bench.write("two", &two);
    let outranked = bench.file(KIND);
    assert_eq!(bench.change().await, Change::Replaced { file, release: release(&two), previous: release(&one) });
    let (reason, _, _) = bench.refusal(&outranked).await;
    assert_eq!(reason, "inventory.refresh 2.0.0 from two.wasm is served instead");
}

#[tokio::test(flavor = "multi_thread")]
async fn promise_21_a_kind_that_needs_what_is_not_granted_is_refused_with_the_exact_grant() {
    let mut bench = Bench::serving(&version("1.0.0")).await;
    let file = bench.write("diag.nvml", &built("diag.nvml"));
    let (reason, remedy, serving) = bench.refusal(&file).await;
    assert_eq!(reason, "not granted: kind diag.nvml declares `nvml`, which this node's policy does not grant");
    assert_eq!(remedy, "to grant it, add to the node's policy:\n[grants.\"diag.nvml\".nvml]");
    assert_eq!(serving, None);
    assert!(bench.plugins.kind("diag.nvml").is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn promise_27_different_components_of_one_version_are_refused_by_both_names() {
    let one = version("1.0.0");
    let mut bench = Bench::serving(&one).await;
    // Semver's build metadata tells components apart and ranks none above the other.
    let other = version("1.0.0+other");
    let file = bench.write("other", &other);
    let (reason, _, serving) = bench.refusal(&file).await;
    assert_eq!(
        reason,
        "inventory.refresh.wasm and other.wasm are different components of inventory.refresh 1.0.0+other"
    );
    assert_eq!(serving, Some(release(&one)));
    assert_eq!(bench.run().await, release(&one).digest);

    fs::remove_file(bench.file(KIND)).expect("it is there");
    assert_eq!(bench.change().await, Change::Replaced { file, release: release(&other), previous: release(&one) });
}

#[tokio::test(flavor = "multi_thread")]
async fn promise_27_a_directory_that_goes_keeps_its_kinds_and_the_next_one_is_followed() {
    let (one, two) = (version("1.0.0"), version("2.0.0"));
    let mut bench = Bench::serving(&one).await;
    let dir = bench.dir();
    fs::remove_dir_all(&dir).expect("it is there");
    // The files went before the directory: whether that is seen is a matter of time.
    let mut gone = bench.change().await;
    if matches!(gone, Change::Retired { .. }) {
        gone = bench.change().await;
    }
    assert!(matches!(&gone, Change::Refused { file, remedy, .. } if *file == dir && remedy.starts_with("create it")));

    let next = dir.with_file_name("next");
    fs::create_dir(&next).expect("a folder");
    fs::write(next.join("two.wasm"), &two).expect("a file");
    fs::rename(&next, &dir).expect("one file system");
    let (Change::Loaded { release: taken, .. } | Change::Replaced { release: taken, .. }) = bench.change().await else {
        panic!("the new directory is not served");
    };
    assert_eq!(taken, release(&two));

    // It is under watch itself.
    let three = version("3.0.0");
    let file = bench.write("two", &three);
    assert_eq!(bench.change().await, Change::Replaced { file, release: release(&three), previous: release(&two) });
}

#[tokio::test(flavor = "multi_thread")]
async fn a_publisher_who_is_trusted_now_counts_without_a_restart() {
    let (one, two) = (version("1.0.0"), version("2.0.0"));
    let mut bench = Bench::serving(&one).await;
    let [root, ann, bob] = [1, 2, 3].map(|seed| SecretKey::from_seed([seed; 32]));
    let trusting = |version, publishers: &[(&str, &SecretKey)]| {
        let publisher = |(name, key): &(&str, &SecretKey)| Publisher { name: (*name).to_owned(), key: key.public() };
        let publishers = publishers.iter().map(publisher).collect();
        SignedBundle::sign(
            TrustBundle { version, roots: vec![root.public()], publishers, ..TrustBundle::NONE },
            &[&root],
        )
    };
    bench.trust(trusting(1, &[("ann", &ann)]));
    let (reason, _, serving) = bench.refusal(&bench.file(KIND)).await;
    assert!(reason.contains("not signed"), "{reason}");
    assert_eq!(serving, Some(release(&one)), "it is no longer vouched for, and stays until something else is");

    let signature = KindSignature::sign(&release(&two).digest, &bob);
    let signature = serde_json::to_vec(&signature).expect("JSON");
    fs::write(bench.dir().join("two.wasm.sig"), signature).expect("the directory is writable");
    let file = bench.put("two", &two);
    let (reason, _, _) = bench.refusal(&file).await;
    assert!(reason.contains(&bob.public().to_string()), "{reason}");

    bench.trust(trusting(2, &[("ann", &ann), ("bob", &bob)]));
    assert_eq!(bench.change().await, Change::Replaced { file, release: release(&two), previous: release(&one) });
    let (_, _, serving) = bench.refusal(&bench.file(KIND)).await;
    assert_eq!(serving, None, "nothing is served on account of the old file");
    bench.no_more_changes();
}
