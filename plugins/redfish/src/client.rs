//! Asking a BMC: links, versions, tasks and refusals.
//!
//! **Invariant:** a link that a BMC gives leads nowhere but to that BMC, and nothing that changes it is sent a second time unless the BMC
//! refused the first.

use serde_json::{Value, json};

use crate::{Answer, Bmc, NoAnswer, Problem, Request, text};

/// How often a task is looked at, and how long between, milliseconds.
const FIRST_PAUSE_MS: u32 = 1_000;
const LONGEST_PAUSE_MS: u32 = 10_000;

/// What is kept of the time to say how it ended, milliseconds.
pub(crate) const MARGIN_MS: u64 = 4_000;

/// A BMC that is asked.
pub struct Client<'a> {
    pub(crate) bmc: &'a mut dyn Bmc,
}

/// How a change was taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Taken {
    /// The BMC accepted it.
    Accepted,
    /// This is a plan: it was not sent.
    Planned,
    /// Nobody knows: it was sent, and no answer came.
    Unknown(String),
}

/// A resource and its version.
#[derive(Debug, Clone)]
pub struct Resource {
    /// Where it is.
    pub path: String,
    /// Its version.
    pub etag: Option<String>,
    /// What it says.
    pub body: Value,
}

impl<'a> Client<'a> {
    /// Asks by this way.
    pub fn new(bmc: &'a mut dyn Bmc) -> Self {
        Self { bmc }
    }

    /// Reads a resource.
    pub fn get(&mut self, path: &str) -> Result<Resource, Problem> {
        let path = checked(path)?;
        let request = Request { method: "GET", path: path.clone(), if_match: None, body: Value::Null };
        let answer = self.bmc.ask(&request).map_err(|error| unanswered(&error))?;
        if answer.status != 200 {
            return Err(refused(&format!("reading {path}"), &answer));
        }
        if !answer.body.is_object() {
            return Err(Problem::passing("not-redfish", format!("what {path} answers is no JSON object")));
        }
        let etag = answer.etag.or_else(|| text(&answer.body, "/@odata.etag").map(str::to_owned));
        Ok(Resource { path, etag, body: answer.body })
    }

    /// Changes a resource. Some BMCs want its version (428), and one that changed meanwhile (412) is read again, once.
    pub fn patch(&mut self, resource: &Resource, body: &Value) -> Result<Result<Taken, Answer>, Problem> {
        let mut etag = resource.etag.clone();
        for is_last in [false, true] {
            let request =
                Request { method: "PATCH", path: resource.path.clone(), if_match: etag.clone(), body: body.clone() };
            let answer = match self.bmc.ask(&request) {
                Ok(answer) => answer,
                Err(error) if error.may_have_arrived() => return Ok(Ok(Taken::Unknown(error.message))),
                Err(error) => return Err(unanswered(&error)),
            };
            match answer.status {
                412 | 428 if !is_last => {
                    etag = Some(self.get(&resource.path)?.etag.unwrap_or_else(|| "*".to_owned()));
                }
                400..=499 => return Ok(Err(answer)),
                _ => return self.taken(&format!("changing {}", resource.path), &answer).map(Ok),
            }
        }
        unreachable!("the last attempt returns")
    }

    /// Starts an action. Without a version: BMCs refuse actions that name one (412), and a few that name none (428).
    pub fn act(&mut self, target: &str, body: &Value) -> Result<Taken, Problem> {
        let path = checked(target)?;
        let mut request = Request { method: "POST", path, if_match: None, body: body.clone() };
        let what = format!("the action {}", request.path);
        let mut answer = match self.bmc.ask(&request) {
            Ok(answer) => answer,
            Err(error) if error.may_have_arrived() => return Ok(Taken::Unknown(error.message)),
            Err(error) => return Err(unanswered(&error)),
        };
        if answer.status == 428 {
            request.if_match = Some("*".to_owned());
            answer = match self.bmc.ask(&request) {
                Ok(answer) => answer,
                Err(error) if error.may_have_arrived() => return Ok(Taken::Unknown(error.message)),
                Err(error) => return Err(unanswered(&error)),
            };
        }
        self.taken(&what, &answer)
    }

    fn taken(&mut self, what: &str, answer: &Answer) -> Result<Taken, Problem> {
        match answer.status {
            _ if answer.planned => Ok(Taken::Planned),
            202 => self.watch(what, answer),
            200..=299 => Ok(Taken::Accepted),
            _ => Err(refused(what, answer)),
        }
    }

    /// Watches a task to its end. What has none to watch was accepted, and what came of it shows elsewhere.
    fn watch(&mut self, what: &str, answer: &Answer) -> Result<Taken, Problem> {
        let monitor = answer.location.as_deref().or_else(|| text(&answer.body, "/@odata.id"));
        let Some(monitor) = monitor.and_then(|it| checked(local(it)).ok()) else { return Ok(Taken::Accepted) };
        let mut pause_ms = FIRST_PAUSE_MS;
        loop {
            self.bmc.tell(&format!("waiting for the BMC's task {monitor}"));
            let request = Request { method: "GET", path: monitor.clone(), if_match: None, body: Value::Null };
            if let Ok(answer) = self.bmc.ask(&request) {
                match (answer.status, text(&answer.body, "/TaskState")) {
                    (_, Some(state @ ("Exception" | "Killed" | "Cancelled" | "Interrupted"))) => {
                        let words = words(&answer.body).unwrap_or_else(|| "it gives no reason".into());
                        return Err(Problem::new(
                            "task-failed",
                            format!("{what}: the BMC's task ended {state}: {words}"),
                        ));
                    }
                    // A monitor answers 202 while the task goes on, and then whatever the action answers.
                    (200..=299, Some("Completed")) | (200 | 204, None) | (404 | 410, _) => return Ok(Taken::Accepted),
                    (400..=599, _) if answer.status != 503 => return Err(refused(what, &answer)),
                    _ => {}
                }
            }
            if !self.rest(&mut pause_ms) {
                let message = format!("{what}: the BMC's task {monitor} did not end in time");
                return Err(Problem::new("task-unfinished", message));
            }
        }
    }

    /// Waits, each time longer. False when there is no time for more.
    pub(crate) fn rest(&mut self, pause_ms: &mut u32) -> bool {
        let left_ms = self.bmc.left_ms();
        if left_ms <= MARGIN_MS {
            return false;
        }
        let pause = u64::from(*pause_ms).min(left_ms - MARGIN_MS);
        self.bmc.pause(u32::try_from(pause).unwrap_or(*pause_ms));
        *pause_ms = (*pause_ms * 3 / 2).min(LONGEST_PAUSE_MS);
        true
    }
}

/// Where a link leads on the BMC itself: some give it with scheme and host.
fn local(link: &str) -> &str {
    link.split_once("://").map_or(link, |(_, rest)| rest.find('/').map_or("", |path| &rest[path..]))
}

/// A link that may be followed.
fn checked(path: &str) -> Result<String, Problem> {
    let is_path = path.starts_with("/redfish/") || path == "/redfish/v1";
    let is_plain = path.len() <= 512 && path.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'\\');
    if is_path && is_plain && !path.split(['/', '?']).any(|part| part == "..") {
        Ok(path.to_owned())
    } else {
        Err(Problem::new("not-redfish", format!("the BMC's link '{}' leads out of /redfish", path.escape_debug())))
    }
}

/// An answer that is a refusal, in the BMC's own words.
pub(crate) fn refused(what: &str, answer: &Answer) -> Problem {
    let said = words(&answer.body).unwrap_or_else(|| "it gives no reason".into());
    let message = format!("{what}: the BMC answers {}: {said}", answer.status);
    match answer.status {
        401 | 403 => Problem::new("bmc-credentials", message),
        404 => Problem::new("not-found", message),
        429 | 503 => Problem::passing("bmc-busy", message),
        500..=599 => Problem::passing("bmc-failed", message),
        300..=399 => Problem::new("not-redfish", message),
        _ => Problem::new("bmc-refused", message),
    }
}

pub(crate) fn unanswered(error: &NoAnswer) -> Problem {
    let NoAnswer { code, message } = error;
    match code.as_str() {
        "connect" => Problem::passing("bmc-unreachable", format!("the BMC cannot be reached: {message}")),
        "tls" => Problem::new("bmc-tls", format!("the BMC's certificate is not believed: {message}")),
        "timeout" | "cut-off" | "no-answer" => {
            Problem::passing("bmc-no-answer", format!("the BMC did not answer whole: {message} ({code})"))
        }
        "response-too-large" => Problem::new("not-redfish", format!("the BMC answers too much: {message}")),
        "not-found" | "sealed-exchange" => {
            Problem::new("no-credentials", format!("the credentials cannot be had: {message} ({code})"))
        }
        _ => Problem::new("request-refused", format!("the node did not send the request: {message} ({code})")),
    }
}

/// What an error says, message by message.
pub(crate) fn words(body: &Value) -> Option<String> {
    let error = body.get("error").unwrap_or(body);
    let messages: Vec<_> = extended(body).filter_map(|message| text(message, "/Message")).collect();
    if messages.is_empty() { text(error, "/message").map(str::to_owned) } else { Some(messages.join("; ")) }
}

fn extended(body: &Value) -> impl Iterator<Item = &Value> {
    let lists = [body.pointer("/error/@Message.ExtendedInfo"), body.pointer("/@Message.ExtendedInfo")];
    lists.into_iter().flatten().filter_map(Value::as_array).flatten()
}

/// Whether a refusal is about one property.
pub(crate) fn is_about(body: &Value, property: &str) -> bool {
    json!(extended(body).collect::<Vec<_>>()).to_string().contains(property)
        || text(body, "/error/message").is_some_and(|message| message.contains(property))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scripted::{Scripted, answer};

    #[test]
    fn a_link_that_leads_elsewhere_is_not_followed() {
        for wrong in [
            "//evil.example/redfish/v1",
            "https://evil.example",
            "/admin",
            "/redfish/../etc",
            "/redfish/v1\\x",
            "/redfish/ a",
        ] {
            assert_eq!(checked(wrong).map_err(|problem| problem.code), Err("not-redfish"), "{wrong}");
        }
        assert_eq!(local("https://bmc:8443/redfish/v1/TaskService/Tasks/1"), "/redfish/v1/TaskService/Tasks/1");
    }

    #[test]
    fn a_version_is_given_to_a_bmc_that_wants_it_and_read_again_when_it_changed() {
        let mut bmc = Scripted::new([
            answer(428, json!({})),
            Answer { etag: Some("W/\"2\"".into()), ..answer(200, json!({ "a": 1 })) },
            answer(204, Value::Null),
        ]);
        let resource = Resource { path: "/redfish/v1/Systems/1".into(), etag: None, body: json!({}) };
        assert_eq!(Client::new(&mut bmc).patch(&resource, &json!({})), Ok(Ok(Taken::Accepted)));
        assert_eq!(bmc.asked[2].if_match.as_deref(), Some("W/\"2\""));
    }

    #[test]
    fn an_action_names_no_version_unless_it_has_to() {
        let mut bmc = Scripted::new([answer(428, json!({})), answer(204, Value::Null)]);
        assert_eq!(Client::new(&mut bmc).act("/redfish/v1/x", &json!({})), Ok(Taken::Accepted));
        assert_eq!(bmc.asked.iter().map(|it| it.if_match.as_deref()).collect::<Vec<_>>(), [None, Some("*")]);
    }

    #[test]
    fn a_task_is_watched_to_its_end() {
        let task = |state: &str| answer(200, json!({ "TaskState": state }));
        let begun = || Answer { location: Some("https://x/redfish/v1/TaskService/1".into()), ..answer(202, json!({})) };
        let mut bmc = Scripted::new([begun(), task("Running"), task("Completed")]);
        assert_eq!(Client::new(&mut bmc).act("/redfish/v1/x", &json!({})), Ok(Taken::Accepted));
        let mut bmc = Scripted::new([begun(), task("Running"), task("Exception")]);
        let failed = Client::new(&mut bmc).act("/redfish/v1/x", &json!({})).expect_err("it failed");
        assert_eq!(failed.code, "task-failed");
        let mut bmc = Scripted::new([begun(), task("Running")]);
        assert_eq!(Client::new(&mut bmc).act("/redfish/v1/x", &json!({})).expect_err("no end").code, "task-unfinished");
    }

    #[test]
    fn a_refusal_has_the_bmcs_own_words() {
        let body = json!({ "error": { "message": "general", "@Message.ExtendedInfo": [
            { "Message": "The property X is not writable.", "MessageArgs": ["X"] }, { "Message": "Try again." },
        ] } });
        let problem = refused("changing it", &answer(400, body.clone()));
        assert_eq!(problem.message, "changing it: the BMC answers 400: The property X is not writable.; Try again.");
        assert!(is_about(&body, "X") && !is_about(&body, "Y"));
        assert_eq!(words(&json!({ "error": { "message": "general" } })).as_deref(), Some("general"));
        assert_eq!(words(&Value::Null), None);
    }
}
