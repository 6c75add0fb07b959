//! What a system boots next: setting the override, and reading it back.
//!
//! **Invariant:** it is set only when the BMC shows what was asked for afterwards.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::client::{Client, Resource, Taken, is_about, refused};
use crate::{Problem, text, texts};

const TARGET: &str = "BootSourceOverrideTarget";
const ENABLED: &str = "BootSourceOverrideEnabled";
const MODE: &str = "BootSourceOverrideMode";

/// What to boot from, in Redfish's words.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "Redfish's own words")]
pub enum Source {
    None,
    Pxe,
    Hdd,
    Cd,
    Usb,
    BiosSetup,
    Diags,
    UefiShell,
    UefiHttp,
}

/// For how long.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Enabled {
    /// For the next boot.
    #[default]
    Once,
    /// For every boot.
    Continuous,
}

/// How firmware boots.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "Redfish's own words")]
pub enum Mode {
    #[serde(rename = "UEFI")]
    Uefi,
    Legacy,
}

/// What is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wanted {
    /// What to boot from.
    pub target: Source,
    /// For how long.
    pub enabled: Enabled,
    /// None leaves it as it is.
    pub mode: Option<Mode>,
}

/// What the BMC shows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Done {
    /// The system's id.
    pub system: String,
    /// What it boots from.
    pub target: Option<String>,
    /// `Once`, `Continuous` or `Disabled`.
    pub enabled: Option<String>,
    /// `UEFI` or `Legacy`; null where the BMC does not say.
    pub mode: Option<String>,
    /// Whether something was changed: false when it was so already, and in a plan.
    pub changed: bool,
    /// What the BMC needed to be told differently.
    pub notes: Vec<String>,
}

fn word<T: Serialize + Copy>(it: T) -> String {
    json!(it).as_str().unwrap_or_default().to_owned()
}

/// What the BMC shows of the override.
fn shown(body: &Value) -> [Option<String>; 3] {
    [TARGET, ENABLED, MODE].map(|name| text(body, &format!("/Boot/{name}")).map(str::to_owned))
}

impl Wanted {
    /// Setting back takes away the override, which then has no duration.
    fn enabled_word(self) -> String {
        if self.target == Source::None { "Disabled".into() } else { word(self.enabled) }
    }

    fn is_shown(self, shown: &[Option<String>; 3]) -> bool {
        let [target, enabled, mode] = shown;
        let is_off = enabled.as_deref() == Some("Disabled");
        let has_target = if self.target == Source::None {
            is_off || target.as_deref() == Some("None")
        } else {
            target.as_deref() == Some(&word(self.target)) && enabled.as_deref() == Some(&self.enabled_word())
        };
        has_target && self.mode.is_none_or(|wanted| mode.is_none() || mode.as_deref() == Some(&word(wanted)))
    }

    fn body(self, mode: Option<String>) -> Value {
        let mut boot = json!({ TARGET: word(self.target), ENABLED: self.enabled_word() });
        if let Some(mode) = mode {
            boot[MODE] = json!(mode);
        }
        json!({ "Boot": boot })
    }

    /// What the BMC's lists of allowed values rule out.
    fn check(self, body: &Value) -> Result<(), Problem> {
        let wanted =
            [(TARGET, Some(word(self.target))), (ENABLED, Some(self.enabled_word())), (MODE, self.mode.map(word))];
        for (name, value) in wanted.into_iter().filter_map(|(name, value)| Some((name, value?))) {
            let allowed = texts(body, &format!("/Boot/{name}@Redfish.AllowableValues"));
            if let Some(allowed) = allowed.filter(|allowed| !allowed.is_empty() && !allowed.contains(&value)) {
                let message = format!("the BMC does not take {value} as {name}; it takes {}", allowed.join(", "));
                return Err(Problem::new("not-supported", message));
            }
        }
        Ok(())
    }
}

/// Sets it and reads it back.
pub fn set(client: &mut Client<'_>, id: Option<&str>, wanted: Wanted) -> Result<Done, Problem> {
    let system = client.system(id)?;
    let body = &system.resource.body;
    if body.get("Boot").is_none() {
        return Err(Problem::new("not-supported", "the BMC shows no boot override for this system"));
    }
    wanted.check(body)?;
    let done = |[target, enabled, mode]: [Option<String>; 3], changed, notes| Done {
        system: system.id.clone(),
        target,
        enabled,
        mode,
        changed,
        notes,
    };
    let before = shown(body);
    if wanted.is_shown(&before) {
        return Ok(done(before, false, Vec::new()));
    }
    let mut notes = Vec::new();
    let taken = put(client, &system.resource, wanted, before[2].as_deref(), &mut notes)?;
    if taken == Taken::Planned {
        return Ok(done(before, false, notes));
    }
    if let Taken::Unknown(why) = &taken {
        notes.push(format!("the BMC did not answer the change ({why}); what it shows decides"));
    }
    // Some show a change only after a moment.
    let mut pause_ms = 500;
    for _ in 0..5 {
        let after = shown(&client.get(&system.resource.path)?.body);
        if wanted.is_shown(&after) {
            return Ok(done(after, true, notes));
        }
        if !client.rest(&mut pause_ms) {
            break;
        }
    }
    let after = shown(&client.get(&system.resource.path)?.body);
    if wanted.is_shown(&after) {
        return Ok(done(after, true, notes));
    }
    let say = |it: &[Option<String>; 3]| it.clone().map(|it| it.unwrap_or_else(|| "nothing".into())).join("/");
    let wanted_words = [Some(word(wanted.target)), Some(wanted.enabled_word()), wanted.mode.map(word)];
    let consumed = if wanted.enabled == Enabled::Once && after[1].as_deref() == Some("Disabled") {
        "; a boot in between may have used it up"
    } else {
        ""
    };
    Err(Problem::new(
        "not-kept",
        format!("the BMC was told {} and shows {}{consumed}", say(&wanted_words), say(&after)),
    ))
}

/// Puts it. Some BMCs want the mode beside it, and some refuse it: the other way is tried, once, as long as it is what was asked for.
fn put(
    client: &mut Client<'_>,
    resource: &Resource,
    wanted: Wanted,
    mode_now: Option<&str>,
    notes: &mut Vec<String>,
) -> Result<Taken, Problem> {
    let what = format!("setting the boot override of {}", resource.path);
    let asked = wanted.mode.map(word);
    let refusal = match client.patch(resource, &wanted.body(asked.clone()))? {
        Ok(taken) => return Ok(taken),
        Err(refusal) => refusal,
    };
    if !is_about(&refusal.body, MODE) {
        return Err(refused(&what, &refusal));
    }
    let (second, note) = match (&asked, mode_now) {
        (None, _) => {
            let mode = mode_now.unwrap_or("UEFI").to_owned();
            let note = format!("the BMC wants {MODE} beside the target; {mode} was given");
            (Some(mode), note)
        }
        (Some(asked), now) if now.is_none_or(|now| now == asked) => {
            (None, format!("the BMC refuses {MODE}; it was left as it is"))
        }
        (Some(_), _) => return Err(refused(&what, &refusal)),
    };
    match client.patch(resource, &wanted.body(second))? {
        Ok(taken) => {
            notes.push(note);
            Ok(taken)
        }
        Err(refusal) => Err(refused(&what, &refusal)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Answer;
    use crate::scripted::{Scripted, answer};

    const PXE: Wanted = Wanted { target: Source::Pxe, enabled: Enabled::Once, mode: None };

    fn root() -> Vec<Answer> {
        vec![
            answer(200, json!({ "Systems": { "@odata.id": "/redfish/v1/Systems" } })),
            answer(200, json!({ "Members": [{ "@odata.id": "/redfish/v1/Systems/1" }] })),
        ]
    }

    fn shows(target: &str, enabled: &str) -> Answer {
        answer(
            200,
            json!({ "Boot": {
            TARGET: target, ENABLED: enabled, MODE: "UEFI", "BootSourceOverrideTarget@Redfish.AllowableValues": ["None", "Pxe", "Hdd"],
        } }),
        )
    }

    fn run(more: Vec<Answer>, wanted: Wanted) -> (Result<Done, Problem>, Vec<crate::Request>) {
        let mut bmc = Scripted::of(root().into_iter().chain(more).map(Ok).collect());
        let done = set(&mut Client::new(&mut bmc), None, wanted);
        (done, bmc.asked)
    }

    fn refuses(property: &str) -> Answer {
        answer(
            400,
            json!({ "error": { "@Message.ExtendedInfo": [{ "Message": format!("{property} is a problem.") }] } }),
        )
    }

    #[test]
    fn what_was_set_is_read_back() {
        let (done, _) = run(vec![shows("None", "Disabled"), answer(204, Value::Null), shows("Pxe", "Once")], PXE);
        let done = done.expect("it is kept");
        assert_eq!((done.target.as_deref(), done.enabled.as_deref(), done.changed), (Some("Pxe"), Some("Once"), true));
    }

    #[test]
    fn what_the_bmc_does_not_keep_is_a_failure() {
        let (done, _) = run(vec![shows("None", "Disabled"), answer(204, Value::Null), shows("Pxe", "Continuous")], PXE);
        assert_eq!(done.expect_err("Once is not kept").code, "not-kept");
        let (done, _) = run(vec![shows("Hdd", "Once"), answer(204, Value::Null), shows("None", "Disabled")], PXE);
        assert!(done.expect_err("gone").message.ends_with("used it up"));
    }

    #[test]
    fn a_bmc_that_wants_the_mode_gets_it_and_one_that_refuses_it_does_not() {
        let sent = vec![shows("None", "Disabled"), refuses(MODE), answer(204, Value::Null), shows("Pxe", "Once")];
        let (done, asked) = run(sent.clone(), PXE);
        assert_eq!(done.expect("with the mode").notes.len(), 1);
        assert_eq!(asked[4].body["Boot"][MODE], "UEFI");
        let (done, asked) = run(sent.clone(), Wanted { mode: Some(Mode::Uefi), ..PXE });
        assert_eq!(done.expect("without it").notes.len(), 1);
        assert_eq!(asked[4].body["Boot"].get(MODE), None);
        let (done, _) = run(sent, Wanted { mode: Some(Mode::Legacy), ..PXE });
        assert_eq!(done.expect_err("another mode was asked for").code, "bmc-refused");
    }

    #[test]
    fn what_is_so_already_and_what_is_not_offered_is_not_sent() {
        let (done, asked) = run(vec![shows("Pxe", "Once")], PXE);
        assert!(!done.expect("so already").changed);
        assert!(asked.iter().all(|it| it.method == "GET"));
        let (done, _) = run(vec![shows("Pxe", "Once")], Wanted { target: Source::UefiHttp, ..PXE });
        assert!(done.expect_err("not offered").message.ends_with("it takes None, Pxe, Hdd"));
    }
}
