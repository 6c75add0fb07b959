use super::*;

fn grants(toml: &str) -> Grants {
    toml::from_str(toml).expect("the test's TOML is right")
}

#[test]
fn promise_22_nothing_is_granted_by_default() {
    let argv = ["-q".to_owned()];
    let needs = [
        Need::ResetGpus,
        Need::Reboot,
        Need::Run { program: "nvidia-smi", argv: &argv },
        Need::Erase("/dev/sda"),
        Need::WriteImage("/dev/sda"),
        Need::Secret("bmc"),
        Need::Read("/var/log/x"),
        Need::Ask { origin: "https://bmc-1", write: false, credentials: None },
    ];
    for need in Capability::ALL.map(Need::Use).iter().chain(&needs) {
        let denied = Grants::default().allows(need, "the policy").expect_err("nothing is granted");
        assert!(denied.to_string().contains(need.capability().interface()), "{denied}");
    }
}

#[test]
fn a_reading_grant_allows_no_effect() {
    let reads = grants("gpus = {}\nsystem = {}\nblock-devices = { devices = ['/dev/*'] }");
    assert!(reads.allows(&Need::Use(Capability::Gpus), "x").is_ok());
    for need in [Need::ResetGpus, Need::Reboot, Need::Erase("/dev/sda"), Need::WriteImage("/dev/sda")] {
        assert!(reads.allows(&need, "x").is_err(), "{need}");
    }
    let erases = grants("block-devices = { devices = ['/dev/nvme*'], erase = true }");
    assert!(erases.allows(&Need::Erase("/dev/nvme0n1"), "x").is_ok());
    assert!(erases.allows(&Need::Erase("/dev/sda"), "x").is_err());
    assert!(erases.allows(&Need::WriteImage("/dev/nvme0n1"), "x").is_err());
}

#[test]
fn a_program_runs_only_with_arguments_of_its_shape() {
    let granted = grants("process.programs = [{ program = 'dcgmi', argv = ['diag', '-r', '*'] }]");
    let fits = |program: &str, argv: &[&str]| {
        let argv: Vec<_> = argv.iter().map(|&a| a.to_owned()).collect();
        granted.allows(&Need::Run { program, argv: &argv }, "x").is_ok()
    };
    assert!(fits("dcgmi", &["diag", "-r", "2"]));
    assert!(!fits("dcgmi", &["diag", "-r"]));
    assert!(!fits("dcgmi", &["diag", "-r", "2", "--host"]));
    assert!(!fits("/opt/dcgmi", &["diag", "-r", "2"]));
}

#[test]
fn what_is_missing_is_named_exactly() {
    let declared = grants(
        "nvml = {}\ngpus = { reset = true }\nupload = { max-bytes = '300MiB' }\nsecrets.refs = ['bmc/*', 'site/a']\n\
         process.programs = [{ program = 'a', argv = ['*'] }, { program = 'b' }]",
    );
    let policy = Policy::from_toml(
        "[grants.'metal.*']\nnvml = {}\nupload = { max-bytes = '256MiB' }\n\
         [grants.'metal.x']\ngpus = {}\nsecrets.refs = ['site/*']\nprocess.programs = [{ program = 'b' }]",
    )
    .expect("the test's policy is right");
    let missing = policy.admit("metal.x", &declared).expect_err("not all is granted");
    insta::assert_snapshot!(format!("{missing}\n\n{}", missing.as_toml()));

    let mut mended = policy.clone();
    mended.grants.extend(Policy::from_toml(&missing.as_toml().replace("metal.x", "metal.x*")).expect("TOML").grants);
    assert_eq!(mended.admit("metal.x", &declared), Ok(()), "adding exactly those lines admits the kind");
    assert!(mended.admit("core.x", &declared).is_err(), "and no other kind");
}

#[test]
fn which_servers_are_asked_is_left_to_the_operator_where_a_kind_declares_any() {
    let declared = grants("http = { origins = ['*'], write = true, credentials = ['*'] }");
    let policy =
        |toml: &str| Policy::from_toml(&format!("[grants.'metal.*'.http]\n{toml}")).expect("the test's policy");
    let named = policy("origins = ['https://bmc-*.example']\nwrite = true");
    assert_eq!(named.admit("metal.x", &declared), Ok(()));
    assert!(named.admit("site.x", &declared).is_err(), "nothing is granted to it");
    assert!(policy("origins = []\nwrite = true").admit("metal.x", &declared).is_err(), "some have to be named");
    assert!(policy("origins = ['https://bmc-1']").admit("metal.x", &declared).is_err(), "writing was not granted");
    // Each call is held to both.
    let ask = |origin, write, credentials| Need::Ask { origin, write, credentials };
    let granted = named.grants_of("metal.x");
    assert!(granted.allows(&ask("https://bmc-1.example", true, None), "x").is_ok());
    assert!(granted.allows(&ask("https://bmc-1.example", true, Some("bmc")), "x").is_err());
    assert!(granted.allows(&ask("https://other.example", false, None), "x").is_err());
    let one = grants("http = { origins = ['https://a'] }");
    assert!(
        one.minus(&declared).http.is_none() && declared.minus(&one).http.is_some(),
        "for a diff, any is more than one"
    );
}

#[test]
fn a_capability_that_this_version_does_not_know_is_refused_by_name() {
    let error = Policy::from_toml("[grants.'*']\nteleport = {}").expect_err("unknown").to_string();
    assert!(error.contains("unknown field `teleport`"), "{error}");
}
