//! Every built kind keeps its own declaration.

use bc_runtime::{Config, Engine, Inspected};
use bc_tests::programs;

#[tokio::test]
async fn every_example_of_every_kind_passes_its_own_validate() {
    let engine = Engine::new(&Config::default()).expect("an engine");
    let dist = programs::repository().join("plugins/dist");
    let entries =
        std::fs::read_dir(&dist).unwrap_or_else(|error| panic!("{}: {error}: build the kinds", dist.display()));
    let mut seen = Vec::new();
    for entry in entries {
        let component = Inspected::read(&entry.expect("an entry").path()).expect("a kind");
        let kind = engine.load(&component).expect("it loads");
        for example in &component.manifest.examples {
            let problems = kind.validate(&example.payload).await.expect("`validate` answers");
            assert_eq!(problems, [], "{}: {}", component.manifest.name, example.summary);
        }
        seen.push((component.manifest.name.clone(), component.manifest.examples.len()));
    }
    // The kinds of this repository are for people: each shows what it is for.
    for name in ["diag.dcgm", "diag.nvml", "gpu.reset", "inventory.refresh", "metal.disk.wipe", "metal.image.deploy"] {
        assert!(seen.iter().any(|(kind, examples)| kind == name && *examples > 0), "{name} in {seen:?}");
    }
}
