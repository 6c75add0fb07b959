//! systemd of a played machine: programs by the names that `bcd` runs, which write down what they are asked.
//!
//! What they are asked outlives the daemon that asked, as a timer of systemd does; the test boots the machine then.
//!
//! **Invariant:** one line of `asked` is one reboot that would come, whatever becomes of the daemon.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use serde_json::{Value, json};

/// Each knows its folder by its own path; nothing else of the machine is touched.
const PROGRAMS: [(&str, &str); 3] = [
    ("busctl", "cat \"${0%/*}/inhibitors.json\""),
    (
        "systemd-run",
        "if [ -s \"${0%/*}/refusal\" ]; then cat \"${0%/*}/refusal\" >&2; exit 1; fi\necho \"$*\" >> \"${0%/*}/asked\"",
    ),
    ("systemctl", "cat \"${0%/*}/unit\""),
];

/// It.
pub struct Systemd {
    pub(super) folder: PathBuf,
}

impl Systemd {
    /// Puts it there, with nothing that inhibits anything.
    pub(super) fn install(&self) {
        fs::create_dir(&self.folder).expect("a folder");
        for (name, script) in PROGRAMS {
            let file = self.folder.join(name);
            fs::write(&file, format!("#!/bin/sh\n{script}\n")).expect("a program is written");
            fs::set_permissions(&file, Permissions::from_mode(0o755)).expect("it may be run");
        }
        self.inhibit(&[]);
        self.unit("inactive");
    }

    fn write(&self, name: &str, text: &str) {
        let draft = self.folder.join("draft");
        fs::write(&draft, text).and_then(|()| fs::rename(draft, self.folder.join(name))).expect("it is written");
    }

    /// The search path of programs on this machine.
    pub(super) fn path(&self) -> String {
        format!("{}:/usr/bin:/bin", self.folder.display())
    }

    /// From now on these hold locks: what, who, why and mode of each.
    ///
    /// # Panics
    /// When it cannot be written.
    pub fn inhibit(&self, inhibitors: &[[&str; 4]]) {
        let locks = inhibitors.iter().map(|[what, who, why, mode]| json!([what, who, why, mode, 0, 812]));
        self.write("inhibitors.json", &json!({ "type": "a(ssssuu)", "data": [locks.collect::<Value>()] }).to_string());
    }

    /// From now on timers are refused with these words; none takes them.
    ///
    /// # Panics
    /// When it cannot be written.
    pub fn refuse(&self, words: &str) {
        self.write("refusal", words);
    }

    /// The state of the unit that reboots the machine.
    ///
    /// # Panics
    /// When it cannot be written.
    pub fn unit(&self, state: &str) {
        self.write("unit", &format!("ActiveState={state}\n"));
    }

    /// The reboots that it was asked for, one line of words each.
    pub fn asked(&self) -> Vec<String> {
        // Before the first there is no file.
        let asked = fs::read_to_string(self.folder.join("asked")).unwrap_or_default();
        asked.lines().map(ToOwned::to_owned).collect()
    }
}
