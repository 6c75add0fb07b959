//! A BMC with the quirks of real ones, each switched on by itself, and with the faults of broken ones.
//!
//! **Invariant:** it keeps every request that it got, so that a test sees what was sent and how often.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{HeaderMap, Method, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

const SYSTEM: &str = "/redfish/v1/Systems/1";
const RESET: &str = "/redfish/v1/Systems/1/Actions/ComputerSystem.Reset";

/// What it does differently.
#[derive(Debug, Clone, Default)]
#[expect(clippy::struct_excessive_bools, reason = "each is a switch")]
pub struct Quirks {
    /// Changes without a version are refused, 428.
    pub wants_version: bool,
    /// Actions with a version are refused, 412.
    pub refuses_version_on_actions: bool,
    /// Supermicro: the boot mode has to stand beside the target.
    pub wants_mode: bool,
    /// Some of HPE: the boot mode must not.
    pub refuses_mode: bool,
    /// Actions answer 202 and a task.
    pub tasks: bool,
    /// How many looks at the power show a state that passes.
    pub transition_looks: u32,
    /// `Once` is used up before anyone reads it.
    pub consumes_once: bool,
    /// It accepts everything and does nothing.
    pub lies: bool,
    /// It takes an action and never answers.
    pub hangs_on_actions: bool,
    /// It closes the connection in the middle of its bodies.
    pub cuts_bodies: bool,
    /// Its bodies have 10 GB.
    pub endless: bool,
    /// Whom it believes, `user:password`.
    pub credentials: Option<String>,
    /// It says in its answers what it was sent as credentials.
    pub echoes_credentials: bool,
    /// It sends everyone elsewhere.
    pub redirects_to: Option<String>,
}

/// One request.
#[derive(Debug, Clone)]
pub struct Seen {
    /// `POST`
    pub method: String,
    /// With query.
    pub path: String,
    /// All of them.
    pub headers: HeaderMap,
    /// As text.
    pub body: String,
}

#[derive(Debug)]
struct Machine {
    quirks: Quirks,
    power: &'static str,
    /// What the power shows before it shows `power`.
    passing: Vec<&'static str>,
    boot: Value,
    version: u32,
    seen: Vec<Seen>,
}

/// The BMC. It ends when it is dropped.
pub struct Bmc {
    origin: String,
    machine: Arc<Mutex<Machine>>,
    server: JoinHandle<()>,
}

impl Drop for Bmc {
    fn drop(&mut self) {
        self.server.abort();
    }
}

impl Bmc {
    /// A BMC of a machine that is on or off.
    ///
    /// # Panics
    /// When there is no port for it.
    pub async fn start(power: &'static str, quirks: Quirks) -> Self {
        let boot = json!({
            "BootSourceOverrideTarget": "None", "BootSourceOverrideEnabled": "Disabled", "BootSourceOverrideMode": "UEFI",
            "BootSourceOverrideTarget@Redfish.AllowableValues": ["None", "Pxe", "Hdd", "BiosSetup"],
        });
        let machine = Machine { quirks, power, passing: Vec::new(), boot, version: 1, seen: Vec::new() };
        let machine = Arc::new(Mutex::new(machine));
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let origin = format!("http://{}", listener.local_addr().expect("an address"));
        let router = Router::new().fallback(answer).with_state(Arc::clone(&machine));
        let server = tokio::spawn(async move {
            // It ends by being aborted.
            let _ = axum::serve(listener, router).await;
        });
        Self { origin, machine, server }
    }

    /// `http://127.0.0.1:1234`
    pub fn origin(&self) -> &str {
        &self.origin
    }

    /// The power as it really is.
    pub fn power(&self) -> &'static str {
        lock(&self.machine).power
    }

    /// The requests that it got, in order.
    pub fn seen(&self) -> Vec<Seen> {
        lock(&self.machine).seen.clone()
    }

    /// How many of a method.
    pub fn count(&self, method: &str) -> usize {
        self.seen().iter().filter(|seen| seen.method == method).count()
    }
}

fn lock(machine: &Mutex<Machine>) -> MutexGuard<'_, Machine> {
    machine.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn answer(
    State(machine): State<Arc<Mutex<Machine>>>,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let (answer, quirks) = {
        let mut machine = lock(&machine);
        let seen = Seen {
            method: method.to_string(),
            path: uri.to_string(),
            headers: headers.clone(),
            body: String::from_utf8_lossy(&body).into_owned(),
        };
        machine.seen.push(seen);
        let body = serde_json::from_slice(&body).unwrap_or(Value::Null);
        (machine.answer(&method, uri.path(), &headers, &body), machine.quirks.clone())
    };
    if quirks.hangs_on_actions && method == Method::POST {
        std::future::pending::<()>().await;
    }
    if let Some(elsewhere) = quirks.redirects_to {
        return (StatusCode::FOUND, [(header::LOCATION, elsewhere)]).into_response();
    }
    if quirks.endless {
        let chunk = Bytes::from(vec![b' '; 64 * 1024]);
        let chunks = futures_util::stream::iter((0..160_000).map(move |_| Ok::<_, std::io::Error>(chunk.clone())));
        return Body::from_stream(chunks).into_response();
    }
    if quirks.cuts_bodies {
        let parts = [Ok(Bytes::from_static(b"{\"Power")), Err(std::io::Error::other("cut"))];
        return Body::from_stream(futures_util::stream::iter(parts)).into_response();
    }
    answer
}

impl Machine {
    fn answer(&mut self, method: &Method, path: &str, headers: &HeaderMap, body: &Value) -> Response {
        let given = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
        let wanted = self.quirks.credentials.as_ref().map(|it| format!("Basic {}", STANDARD.encode(it)));
        if wanted.is_some() && given != wanted.as_deref() {
            return refusal(401, "Who are you?");
        }
        let echo = if self.quirks.echoes_credentials {
            format!("you are {}", self.quirks.credentials.as_deref().unwrap_or_default())
        } else {
            String::new()
        };
        match (method.as_str(), path.trim_end_matches('/')) {
            ("GET", "/redfish/v1") => found(json!({
                "Systems": { "@odata.id": "/redfish/v1/Systems" }, "Chassis": { "@odata.id": "/redfish/v1/Chassis" },
            })),
            ("GET", "/redfish/v1/Systems") => found(json!({ "Members": [{ "@odata.id": SYSTEM }] })),
            ("GET", SYSTEM) => {
                let power = if self.passing.is_empty() { self.power } else { self.passing.remove(0) };
                let etag = format!("W/\"{}\"", self.version);
                let system = json!({
                    "Id": "1", "PowerState": power, "Boot": self.boot, "Description": echo,
                    "Actions": { "#ComputerSystem.Reset": { "target": RESET,
                        "ResetType@Redfish.AllowableValues": ["On", "ForceOff", "GracefulShutdown", "ForceRestart"] } },
                });
                ([(header::ETAG, etag), (header::SET_COOKIE, "session=very-secret".into())], axum::Json(system))
                    .into_response()
            }
            ("PATCH", SYSTEM) => self.change(headers, body),
            ("POST", RESET) => self.reset(headers, body),
            ("GET", "/redfish/v1/TaskService/Tasks/1") => {
                let is_running = self.passing.len() > 1;
                if is_running {
                    self.passing.pop();
                }
                let state = if is_running { "Running" } else { "Completed" };
                found(json!({ "TaskState": state }))
            }
            ("GET", "/redfish/v1/Chassis") => found(json!({ "Members": [{ "@odata.id": "/redfish/v1/Chassis/1" }] })),
            ("GET", "/redfish/v1/Chassis/1") => {
                found(json!({ "Id": "1", "Thermal": { "@odata.id": "/redfish/v1/Chassis/1/Thermal" } }))
            }
            ("GET", "/redfish/v1/Chassis/1/Thermal") => found(json!({
                "Temperatures": [
                    { "Name": "Inlet", "ReadingCelsius": 24 }, { "Name": "CPU 1", "ReadingCelsius": null },
                ],
                "Fans": [{ "Name": "Fan 1", "Reading": 9000, "ReadingUnits": "RPM", "Status": { "Health": "Critical" } }],
            })),
            _ => refusal(404, "There is no such resource."),
        }
    }

    fn change(&mut self, headers: &HeaderMap, body: &Value) -> Response {
        let current = format!("W/\"{}\"", self.version);
        match headers.get(header::IF_MATCH).and_then(|value| value.to_str().ok()) {
            None if self.quirks.wants_version => return refusal(428, "A version is required."),
            Some(version) if version != "*" && version != current => return refusal(412, "It has changed."),
            _ => {}
        }
        let boot = &body["Boot"];
        let has_mode = !boot["BootSourceOverrideMode"].is_null();
        if self.quirks.wants_mode && !has_mode || self.quirks.refuses_mode && has_mode {
            return refusal(400, "The property BootSourceOverrideMode is the problem.");
        }
        self.version += 1;
        if !self.quirks.lies {
            for (name, value) in boot.as_object().into_iter().flatten() {
                self.boot[name] = value.clone();
            }
            if self.quirks.consumes_once && boot["BootSourceOverrideEnabled"] == "Once" {
                self.boot["BootSourceOverrideTarget"] = json!("None");
                self.boot["BootSourceOverrideEnabled"] = json!("Disabled");
            }
        }
        StatusCode::NO_CONTENT.into_response()
    }

    fn reset(&mut self, headers: &HeaderMap, body: &Value) -> Response {
        if self.quirks.refuses_version_on_actions && headers.contains_key(header::IF_MATCH) {
            return refusal(412, "Actions have no version.");
        }
        let looks = self.quirks.transition_looks as usize;
        let (power, passing) = match body["ResetType"].as_str() {
            Some("On") => ("On", vec!["PoweringOn"; looks]),
            Some("ForceOff" | "GracefulShutdown") => ("Off", vec!["PoweringOff"; looks]),
            Some("ForceRestart") => ("On", vec!["Off"; looks.max(1)]),
            _ => return refusal(400, "There is no such reset."),
        };
        if !self.quirks.lies {
            (self.power, self.passing) = (power, passing);
        }
        if self.quirks.tasks {
            return (StatusCode::ACCEPTED, [(header::LOCATION, "/redfish/v1/TaskService/Tasks/1")]).into_response();
        }
        StatusCode::NO_CONTENT.into_response()
    }
}

fn found(body: Value) -> Response {
    axum::Json(body).into_response()
}

fn refusal(status: u16, message: &str) -> Response {
    let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let body = json!({ "error": { "code": "Base.1.0.GeneralError", "message": "See ExtendedInfo.",
        "@Message.ExtendedInfo": [{ "Message": message }] } });
    (status, axum::Json(body)).into_response()
}
