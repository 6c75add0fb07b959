//! What the operator of the control plane decides: flags, environment, and a TOML file with the same names.
//!
//! **Invariant:** a flag beats the environment, which beats the file; a key that is not known is refused.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, bail};
use bc_telemetry::log::Format;
use bytesize::ByteSize;
use clap::Args;
use serde::Deserialize;

use super::bundles::Bundles;
use super::pki::Pki;
use super::remediation::Remediation;
use super::webhooks::Webhooks;
use crate::shell;

/// 1 MiB: payloads are parameters, not data.
const MAX_PAYLOAD: ByteSize = ByteSize::mib(1);

/// 16 MiB: shipped kinds have a hundredth of it, interpreted languages bring their interpreter.
const MAX_COMPONENT: ByteSize = ByteSize::mib(16);

/// How long sessions are served after a stop was asked for.
const DRAIN: Duration = Duration::from_secs(20);

/// All settings; what is absent has a default.
#[derive(Debug, Clone, Default, Args, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
pub struct Settings {
    /// A TOML file with the settings that are not given as flags: their names without the dashes before them
    #[arg(long, value_name = "FILE", env = "BETTER_COMPUTE_SERVER_CONFIG")]
    #[serde(skip)]
    config: Option<PathBuf>,
    /// The database; where it holds a password, use the environment or the file
    #[arg(long, value_name = "URL", env = "DATABASE_URL", hide_env_values = true)]
    database_url: Option<String>,
    /// Start a private Postgres in this folder in place of using a database that is there
    #[arg(long, value_name = "DIR", env = "BETTER_COMPUTE_PRIVATE_POSTGRES")]
    private_postgres: Option<PathBuf>,
    /// Where the API listens; 127.0.0.1:7070 by default
    #[arg(long, value_name = "ADDRESS", env = "BETTER_COMPUTE_API_LISTEN")]
    api_listen: Option<SocketAddr>,
    /// Where nodes connect; 0.0.0.0:7071 by default
    #[arg(long, value_name = "ADDRESS", env = "BETTER_COMPUTE_GATEWAY_LISTEN")]
    gateway_listen: Option<SocketAddr>,
    /// A name or an address by which nodes reach this replica; the first one goes into join tokens' answers. May be repeated
    #[arg(long = "gateway-host", value_name = "HOST", env = "BETTER_COMPUTE_GATEWAY_HOST", value_delimiter = ',')]
    gateway_host: Vec<String>,
    /// Where Prometheus reads metrics, `/metrics` over HTTP without authentication; nowhere by default
    #[arg(long, value_name = "ADDRESS", env = "BETTER_COMPUTE_METRICS")]
    metrics: Option<SocketAddr>,
    /// The form of this process's log, text or json: an object a line
    #[arg(long, value_name = "FORMAT", env = "BETTER_COMPUTE_LOG_FORMAT")]
    #[serde(skip)]
    pub(crate) log_format: Option<Format>,
    /// What has to outlive the process: the certificate authority, which all replicas share, and compiled kinds
    #[arg(long, value_name = "DIR", env = "BETTER_COMPUTE_STATE_DIR")]
    state_dir: Option<PathBuf>,
    /// This replica's name, unique among those that run; by default a new one at each start
    #[arg(long, value_name = "NAME", env = "BETTER_COMPUTE_REPLICA")]
    replica: Option<String>,
    /// The largest payload of a command; 1MiB by default
    #[arg(long, value_name = "SIZE", env = "BETTER_COMPUTE_MAX_PAYLOAD_BYTES")]
    max_payload_bytes: Option<ByteSize>,
    /// The largest component of a kind; 16MiB by default
    #[arg(long, value_name = "SIZE", env = "BETTER_COMPUTE_MAX_COMPONENT_BYTES")]
    max_component_bytes: Option<ByteSize>,
    /// How long a node's certificate holds, 30s to 3650days; 90days by default. The node renews it when a third of that is left
    #[arg(long, value_name = "SPAN", env = "BETTER_COMPUTE_NODE_CERTIFICATE_VALIDITY")]
    #[serde(deserialize_with = "span")]
    node_certificate_validity: Option<humantime::Duration>,
    /// How long sessions are served after a stop was asked for; 20s by default
    #[arg(long, value_name = "SPAN", env = "BETTER_COMPUTE_DRAIN")]
    #[serde(deserialize_with = "span")]
    drain: Option<humantime::Duration>,
    /// The API's certificate and those up to its authority, PEM: it speaks TLS then. Goes with --api-tls-key
    #[arg(long, value_name = "FILE", env = "BETTER_COMPUTE_API_TLS_CERT")]
    api_tls_cert: Option<PathBuf>,
    /// The private key of that certificate, PEM
    #[arg(long, value_name = "FILE", env = "BETTER_COMPUTE_API_TLS_KEY")]
    api_tls_key: Option<PathBuf>,
    /// Listen to the network without TLS: something in front of the API speaks it
    #[arg(long, env = "BETTER_COMPUTE_INSECURE_HTTP")]
    insecure_http: bool,
    /// The root key of command signing, PEM, which only its owner may read; over `command-signing` of the file's table `[pki]`
    #[arg(long, value_name = "FILE", env = "BETTER_COMPUTE_COMMAND_SIGNING")]
    #[serde(skip)]
    command_signing: Option<PathBuf>,
    /// Serve nodes alone: a gateway that relays what other replicas signed, and has no key that signs
    #[arg(long, env = "BETTER_COMPUTE_NO_API")]
    no_api: bool,
    /// What is signed, who approves, whom nodes trust.
    #[arg(skip)]
    pki: Option<Pki>,
    /// A folder with the values of secrets, `DIR/<tenant>/<reference>`, files for their owner alone: this replica seals them for
    /// nodes
    #[arg(long, value_name = "DIR", env = "BETTER_COMPUTE_SECRETS_DIR")]
    secrets_dir: Option<PathBuf>,
    /// Where support bundles go.
    #[arg(skip)]
    support_bundles: Option<Bundles>,
    /// How far nodes are mended without being asked.
    #[arg(skip)]
    remediation: Option<Remediation>,
    /// How events are sent to webhooks.
    #[arg(skip)]
    webhooks: Option<Webhooks>,
}

/// A span as text, `20s`.
fn span<'de, D: serde::Deserializer<'de>>(reader: D) -> Result<Option<humantime::Duration>, D::Error> {
    String::deserialize(reader)?.parse().map(Some).map_err(serde::de::Error::custom)
}

/// Where the database is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Database {
    /// Somebody runs it.
    Url(String),
    /// This process runs it, in this folder.
    Private(PathBuf),
}

/// The settings with their defaults, checked.
#[derive(Debug, Clone)]
pub(super) struct Decided {
    pub(super) database: Database,
    pub(super) api_listen: SocketAddr,
    /// Files with the API's certificate and its key.
    pub(super) api_tls: Option<(PathBuf, PathBuf)>,
    pub(super) gateway_listen: SocketAddr,
    /// Where metrics are read, if anywhere.
    pub(super) metrics: Option<SocketAddr>,
    /// Absent where nothing is served.
    pub(super) state_dir: Option<PathBuf>,
    /// The name or address by which nodes reach this replica.
    pub(super) gateway_host: String,
    /// How long a node's certificate holds.
    pub(super) node_validity: Duration,
    pub(super) config: bc_host::server::Config,
}

impl Settings {
    /// Those of a file alone.
    pub(crate) fn of_file(path: PathBuf) -> Self {
        Self { config: Some(path), ..Self::default() }
    }

    /// Reads the file, if one is named, and decides.
    pub(super) fn decide(self) -> anyhow::Result<Decided> {
        self.merged()?.checked(&hex::encode(shell::random::<4>()))
    }

    /// Decides on the database alone.
    pub(super) fn database(self) -> anyhow::Result<Database> {
        let Self { database_url, private_postgres, .. } = self.merged()?;
        database(database_url, private_postgres)
    }

    fn merged(self) -> anyhow::Result<Self> {
        let file = match &self.config {
            Some(path) => {
                let name = path.display();
                let text = std::fs::read_to_string(path).with_context(|| format!("{name} cannot be read"))?;
                toml::from_str(&text).with_context(|| format!("{name} does not fit"))?
            }
            None => Self::default(),
        };
        Ok(self.over(file))
    }

    /// These settings, and where they say nothing, the file's.
    fn over(self, file: Self) -> Self {
        // Each of the two places for a database rules out the other, so they are taken from one source.
        let here = self.database_url.is_some() || self.private_postgres.is_some();
        let (database_url, private_postgres) =
            if here { (self.database_url, self.private_postgres) } else { (file.database_url, file.private_postgres) };
        Self {
            config: self.config,
            database_url,
            private_postgres,
            api_listen: self.api_listen.or(file.api_listen),
            gateway_listen: self.gateway_listen.or(file.gateway_listen),
            gateway_host: if self.gateway_host.is_empty() { file.gateway_host } else { self.gateway_host },
            metrics: self.metrics.or(file.metrics),
            log_format: self.log_format,
            state_dir: self.state_dir.or(file.state_dir),
            replica: self.replica.or(file.replica),
            max_payload_bytes: self.max_payload_bytes.or(file.max_payload_bytes),
            max_component_bytes: self.max_component_bytes.or(file.max_component_bytes),
            node_certificate_validity: self.node_certificate_validity.or(file.node_certificate_validity),
            drain: self.drain.or(file.drain),
            api_tls_cert: self.api_tls_cert.or(file.api_tls_cert),
            api_tls_key: self.api_tls_key.or(file.api_tls_key),
            insecure_http: self.insecure_http || file.insecure_http,
            command_signing: self.command_signing,
            no_api: self.no_api || file.no_api,
            pki: self.pki.or(file.pki),
            secrets_dir: self.secrets_dir.or(file.secrets_dir),
            support_bundles: self.support_bundles.or(file.support_bundles),
            remediation: self.remediation.or(file.remediation),
            webhooks: self.webhooks.or(file.webhooks),
        }
    }

    fn checked(self, random: &str) -> anyhow::Result<Decided> {
        let database = database(self.database_url, self.private_postgres)?;
        let local = IpAddr::V4(Ipv4Addr::LOCALHOST);
        let api_listen = self.api_listen.unwrap_or(SocketAddr::new(local, 7070));
        let api_tls = match (self.api_tls_cert, self.api_tls_key) {
            (Some(certificate), Some(key)) => Some((certificate, key)),
            (None, None) => None,
            _ => bail!("--api-tls-cert and --api-tls-key go together"),
        };
        if !self.no_api && !api_listen.ip().is_loopback() && api_tls.is_none() && !self.insecure_http {
            bail!(
                "the API would listen on {api_listen} without TLS, and tokens would travel in plain text. Listen on 127.0.0.1, \
                 give --api-tls-cert and --api-tls-key, or say --insecure-http when a proxy in front of it speaks TLS"
            );
        }
        let pki = self.pki.unwrap_or_default().over(self.command_signing).checked(crate::pki::now_ms())?;
        if self.no_api && pki.signs() {
            bail!(
                "--no-api: a gateway alone relays what others signed, and must not hold what signs; leave \
                 pki.command-signing and pki.worker-key out"
            );
        }
        let gateway_listen = self.gateway_listen.unwrap_or(SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), 7071));
        let host = match self.gateway_host.first() {
            Some(host) => host.clone(),
            None if gateway_listen.ip().is_unspecified() => local.to_string(),
            None => gateway_listen.ip().to_string(),
        };
        let node_validity = self.node_certificate_validity.map_or(bc_host::pki::NODE_VALIDITY, Into::into);
        if !(Duration::from_secs(30)..=Duration::from_hours(3650 * 24)).contains(&node_validity) {
            bail!("--node-certificate-validity is between 30s and 3650days");
        }
        let size = |size: ByteSize| usize::try_from(size.as_u64()).unwrap_or(usize::MAX);
        let config = bc_host::server::Config {
            replica: self.replica.unwrap_or_else(|| format!("replica-{random}")),
            gateway_url: gateway_url(&host, gateway_listen.port()),
            gateway_hosts: self.gateway_host,
            max_payload_bytes: size(self.max_payload_bytes.unwrap_or(MAX_PAYLOAD)),
            max_component_bytes: size(self.max_component_bytes.unwrap_or(MAX_COMPONENT)),
            drain: self.drain.map_or(DRAIN, Into::into),
            cache_dir: self.state_dir.as_deref().unwrap_or(Path::new(".")).join("cache"),
            pki,
            serves_api: !self.no_api,
            secrets_dir: self.secrets_dir,
            bundles: self.support_bundles.map(|table| table.checked(|name| std::env::var(name).ok())).transpose()?,
            remediation: self.remediation.map(Remediation::checked).transpose()?,
            webhooks: self.webhooks.map(Webhooks::checked).transpose()?,
        };
        Ok(Decided {
            database,
            api_listen,
            api_tls,
            gateway_listen,
            metrics: self.metrics,
            state_dir: self.state_dir,
            gateway_host: host,
            node_validity,
            config,
        })
    }
}

/// One of the two, and not both.
fn database(url: Option<String>, folder: Option<PathBuf>) -> anyhow::Result<Database> {
    match (url, folder) {
        (Some(url), None) => Ok(Database::Url(url)),
        (None, Some(folder)) => Ok(Database::Private(folder)),
        (Some(_), Some(_)) => bail!("--database-url and --private-postgres exclude each other"),
        (None, None) => {
            bail!("name a database with --database-url or DATABASE_URL, or start one with --private-postgres DIR")
        }
    }
}

/// `https://host:port`; an IPv6 address goes into brackets.
pub(crate) fn gateway_url(host: &str, port: u16) -> String {
    match host.parse::<IpAddr>() {
        Ok(IpAddr::V6(address)) => format!("https://[{address}]:{port}"),
        _ => format!("https://{host}:{port}"),
    }
}

/// The settings of a control plane that is tried out on one machine.
pub(crate) fn local(replica: String, gateway_url: String, cache_dir: PathBuf) -> bc_host::server::Config {
    let size = |size: ByteSize| usize::try_from(size.as_u64()).unwrap_or(usize::MAX);
    bc_host::server::Config {
        replica,
        gateway_url,
        gateway_hosts: Vec::new(),
        max_payload_bytes: size(MAX_PAYLOAD),
        max_component_bytes: size(MAX_COMPONENT),
        drain: Duration::from_secs(5),
        cache_dir,
        pki: bc_host::trust::Settings::default(),
        serves_api: true,
        secrets_dir: None,
        bundles: None,
        remediation: None,
        webhooks: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flags() -> Settings {
        Settings { database_url: Some("postgres:///x".into()), state_dir: Some("/state".into()), ..Settings::default() }
    }

    #[test]
    fn a_flag_beats_the_file_and_what_is_absent_has_a_default() {
        let file: Settings = toml::from_str(
            "private-postgres = '/pg'\napi-listen = '127.0.0.1:1'\ngateway-host = ['gw.example', '10.0.0.1']\n\
             max-payload-bytes = '2MiB'\ndrain = '1m'",
        )
        .expect("every key is known");
        let flags = Settings { api_listen: Some(([127, 0, 0, 1], 2).into()), ..flags() };
        let decided = flags.over(file).checked("r").expect("settings");
        assert_eq!(decided.database, Database::Url("postgres:///x".into()));
        assert_eq!(decided.api_listen.port(), 2);
        assert_eq!(decided.config.gateway_url, "https://gw.example:7071");
        assert_eq!(decided.config.gateway_hosts, ["gw.example", "10.0.0.1"]);
        assert_eq!((decided.config.max_payload_bytes, decided.config.drain), (2 << 20, Duration::from_mins(1)));
        assert_eq!(decided.config.replica, "replica-r");
        assert!(toml::from_str::<Settings>("api-liste = 'x'").is_err());
    }

    #[test]
    fn what_would_be_unsafe_or_unclear_is_refused() {
        let open = |insecure_http| Settings { api_listen: Some(([0, 0, 0, 0], 7070).into()), insecure_http, ..flags() };
        let refused = open(false).checked("r").expect_err("plain text").to_string();
        assert!(refused.contains("--insecure-http"), "{refused}");
        assert!(open(true).checked("r").is_ok());
        let half = Settings { api_tls_cert: Some("/cert".into()), ..open(false) };
        let whole = Settings { api_tls_key: Some("/key".into()), ..half.clone() };
        assert!(half.checked("r").is_err() && whole.checked("r").is_ok());
        let both = Settings { private_postgres: Some("/pg".into()), ..flags() };
        assert!(both.checked("r").is_err() && Settings::default().checked("r").is_err());
        // A gateway alone needs no TLS for an API, and no key.
        let alone = Settings { no_api: true, ..open(false) };
        assert!(!alone.clone().checked("r").expect("it fits").config.serves_api);
        let folder = tempfile::tempdir().expect("a folder");
        let root = folder.path().join("root.pem");
        crate::pki::keys::write(&root, &bc_proto::sign::SecretKey::from_seed([1; 32])).expect("written");
        let signs = Settings { command_signing: Some(root), ..flags() };
        assert!(signs.clone().checked("r").expect("it fits").config.pki.signs());
        let refused = Settings { no_api: true, ..signs }.checked("r").expect_err("it signs").to_string();
        assert!(refused.contains("must not hold what signs"), "{refused}");
    }

    #[test]
    fn gateways_are_named_as_urls_want_it() {
        assert_eq!(gateway_url("::1", 7071), "https://[::1]:7071");
        assert_eq!(gateway_url("gw.example", 7071), "https://gw.example:7071");
    }
}
