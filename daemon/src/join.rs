//! Making a node of this machine: `bcd join` and `better-compute node join`.
//!
//! **Invariant:** the private key is made here and goes nowhere. The token goes only to a gateway that has proved, in TLS,
//! that it belongs to the authority which the token itself names.

use std::fmt;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bc_proto::certificate::NodeCertificate;
use bc_proto::id::NodeId;
use bc_proto::manifest::Role;
use bc_proto::rules::trust::{SignedBundle, TrustBundle};
use bc_proto::wire::v1;
use clap::Args;
use rcgen::{CertificateParams, KeyPair, PKCS_ED25519};
use sha2::{Digest, Sha256};
use tonic::Code;

use crate::config::Config;
use crate::gateway::rpc::node_gateway_client::NodeGatewayClient;
use crate::gateway::{self, Address, Verifier, WrongAuthority, chain};
use crate::identity::{self, Card, Draft, Pinned};
use crate::trust;

/// Where the machine's name stands, below the configuration's root.
const HOST_NAME: &str = "proc/sys/kernel/hostname";

/// What a join takes.
#[derive(Debug, Clone, Args)]
pub struct Join {
    /// Where a gateway is; may be given several times, the first that answers is asked
    #[arg(long, value_name = "URL", required = true)]
    pub gateway: Vec<Address>,
    /// A file that holds the join token; `-` reads it from standard input
    #[arg(long, value_name = "FILE", required_unless_present = "token", conflicts_with = "token")]
    pub token_file: Option<PathBuf>,
    /// The join token itself. Other users of the machine can see it: prefer --token-file
    #[arg(long, value_name = "TOKEN")]
    pub token: Option<String>,
    /// The node's name; by default the machine's host name
    #[arg(long)]
    pub name: Option<String>,
    /// What the node is: host, ramdisk, site or gateway; by default as the configuration says
    #[arg(long, value_parser = role)]
    pub role: Option<Role>,
    /// Replace the identity that is there
    #[arg(long)]
    pub again: bool,
    /// Where the identity is kept; by default the configuration's `state-dir`
    #[arg(long, value_name = "DIR")]
    pub state_dir: Option<PathBuf>,
    /// The node's configuration; without it, the defaults
    #[arg(long, value_name = "FILE", env = "BCD_CONFIG")]
    pub config: Option<PathBuf>,
}

/// What came of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Joined {
    /// The node.
    pub node: NodeId,
    /// Which life of it.
    pub incarnation: u64,
    /// Its name.
    pub name: String,
    /// Where its identity is.
    pub folder: PathBuf,
}

impl fmt::Display for Joined {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { node, incarnation, name, folder } = self;
        write!(f, "{name} is {node}, incarnation {incarnation}; its identity is in {}", folder.display())
    }
}

/// Why it failed.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the messages say it")]
pub enum Error {
    #[error("the join token cannot be read from {}: {error}", path.display())]
    TokenUnreadable { path: PathBuf, error: io::Error },
    #[error("this is no join token: it has the form bcj_<secret>_<64 hexadecimal digits>")]
    BadToken,
    #[error(
        "`{0}` cannot be a node's name: it has 1 to 63 of the characters A–Z, a–z, 0–9, `.` and `-`\n  → give --name"
    )]
    BadName(String),
    #[error("the machine's host name cannot be read: {0}\n  → give --name")]
    NoName(io::Error),
    #[error(
        "this machine has joined already: {} is there\n  → to replace it, take a token that was made for this node and give \
         --again",
        folder.display()
    )]
    HasJoined { folder: PathBuf },
    #[error(transparent)]
    Config(#[from] crate::config::Unusable),
    #[error("the identity cannot be kept in {}: {error}", folder.display())]
    NotKept { folder: PathBuf, error: io::Error },
    #[error("no key can be made: {0}")]
    Key(rcgen::Error),
    #[error("no gateway was reached:\n  {}", .0.join("\n  "))]
    Unreachable(Vec<String>),
    #[error(
        "{address}: {WrongAuthority}\n  → the token was not sent. Check the address; if it is right, make a new token on \
         that control plane"
    )]
    WrongAuthority { address: Address },
    #[error("{address} refused: {message} ({code:?})")]
    Refused { address: Address, code: Code, message: String },
    #[error("{address} gave an answer that is no answer to a join: {reason}")]
    BadAnswer { address: Address, reason: String },
}

/// Reads a role.
fn role(text: &str) -> Result<Role, String> {
    serde_json::from_value(text.into()).map_err(|_| "a role is host, ramdisk, site or gateway".to_owned())
}

/// Joins with the configuration that the arguments name.
pub async fn join(arguments: &Join) -> Result<Joined, Error> {
    let config = arguments.config.as_deref().map(Config::read).transpose()?.unwrap_or_default();
    let state_dir = arguments.state_dir.clone().unwrap_or_else(|| config.state_dir());
    let folder = identity::folder(&state_dir);
    if folder.exists() && !arguments.again {
        return Err(Error::HasJoined { folder });
    }
    let token = match (&arguments.token, &arguments.token_file) {
        (Some(token), _) => token.trim().to_owned(),
        (None, Some(path)) => read_token(path)?,
        (None, None) => return Err(Error::BadToken),
    };
    let pin = pin_of(&token).ok_or(Error::BadToken)?;
    let name = match &arguments.name {
        Some(name) => name.clone(),
        None => std::fs::read_to_string(config.root.join(HOST_NAME)).map_err(Error::NoName)?.trim().to_owned(),
    };
    if !is_name(&name) {
        return Err(Error::BadName(name));
    }

    // It signs what the node says as well, and those signatures are Ed25519.
    let key = KeyPair::generate_for(&PKCS_ED25519).map_err(Error::Key)?;
    let request = CertificateParams::default().serialize_request(&key).map_err(Error::Key)?;
    let request = v1::JoinRequest {
        token,
        certificate_request: request.der().to_vec(),
        role: v1::Role::from(arguments.role.unwrap_or(config.role)).into(),
        bcd_version: env!("CARGO_PKG_VERSION").to_owned(),
        name: name.clone(),
    };
    let key_pem = key.serialize_pem();
    let not_kept = |error| Error::NotKept { folder: folder.clone(), error };
    let draft = Draft::begin(&state_dir, &key_pem).map_err(not_kept)?;
    let (address, answer) = ask(&arguments.gateway, pin, request).await?;

    let bad = |reason: &str| Error::BadAnswer { address: address.clone(), reason: reason.to_owned() };
    let node = answer.node_id.parse().map_err(|_| bad("it names no node"))?;
    let [own, authority] = answer.certificate_chain.as_slice() else {
        return Err(bad("it does not hold a certificate and its authority's"));
    };
    if Sha256::digest(authority)[..] != pin[..] {
        return Err(bad("its authority is another one than the token's"));
    }
    let authority_pem = pem(authority);
    let chain_pem = pem(own) + &authority_pem;
    identity::fits(&key_pem, &chain_pem).map_err(|reason| bad(&format!("its certificate does not fit: {reason}")))?;
    let signed = match answer.trust_bundle.as_slice() {
        [] => None,
        document => {
            let signed: SignedBundle =
                serde_json::from_slice(document).map_err(|error| bad(&format!("its trust bundle is none: {error}")))?;
            let believed = signed.clone().accept(&TrustBundle::NONE);
            believed.map_err(|error| bad(&format!("its trust bundle cannot be believed: {error}")))?;
            Some(signed)
        }
    };
    let certified = NodeCertificate::read(own).map_err(|error| bad(&error.to_string()))?;
    if (certified.node, certified.incarnation) != (node, answer.incarnation) {
        return Err(bad("its certificate is for another node or life"));
    }
    let card = Card {
        node,
        incarnation: answer.incarnation,
        name: name.clone(),
        gateways: arguments.gateway.iter().map(ToString::to_string).collect(),
        joined_ms: answer.server_time_ms,
        trust: signed.as_ref().map(|signed| Pinned::to(&signed.bundle)).unwrap_or_default(),
    };
    draft.commit(&key_pem, &chain_pem, &authority_pem, &card).map_err(not_kept)?;
    if let Some(signed) = signed {
        // Should it not get there, the card knows that there is one.
        trust::begin(&state_dir, &card, signed).map_err(not_kept)?;
    }
    Ok(Joined { node, incarnation: card.incarnation, name, folder })
}

/// Joins on a runtime of its own.
pub fn block_on(arguments: &Join) -> anyhow::Result<Joined> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    Ok(runtime.block_on(join(arguments))?)
}

/// Asks the first gateway that can be reached. One that refuses is not asked past: a token is good once.
async fn ask(
    addresses: &[Address],
    pin: [u8; 32],
    request: v1::JoinRequest,
) -> Result<(Address, v1::JoinResponse), Error> {
    let mut unreachable = Vec::new();
    for address in addresses {
        let verifier = Verifier::of_pin(pin);
        let connected = match gateway::endpoint(address, Arc::clone(&verifier), None) {
            Ok(endpoint) => endpoint.connect().await,
            Err(error) => Err(error),
        };
        let channel = match connected {
            Ok(channel) => channel,
            Err(error) => {
                if verifier.missed_pin() {
                    return Err(Error::WrongAuthority { address: address.clone() });
                }
                unreachable.push(format!("{address}: {}", chain(&error)));
                continue;
            }
        };
        let answer = NodeGatewayClient::new(channel).join(request).await;
        return match answer {
            Ok(answer) => Ok((address.clone(), answer.into_inner())),
            Err(status) => Err(Error::Refused {
                address: address.clone(),
                code: status.code(),
                message: if status.message().is_empty() { chain(&status) } else { status.message().to_owned() },
            }),
        };
    }
    Err(Error::Unreachable(unreachable))
}

fn read_token(path: &Path) -> Result<String, Error> {
    let read = if path == Path::new("-") {
        let mut text = String::new();
        io::stdin().read_to_string(&mut text).map(|_| text)
    } else {
        std::fs::read_to_string(path)
    };
    match read {
        Ok(text) => Ok(text.trim().to_owned()),
        Err(error) => Err(Error::TokenUnreadable { path: path.to_owned(), error }),
    }
}

/// The SHA-256 of the authority's certificate that a token names.
fn pin_of(token: &str) -> Option<[u8; 32]> {
    let (secret, pin) = token.strip_prefix("bcj_")?.rsplit_once('_')?;
    let pin = hex::decode(pin).ok()?.try_into().ok()?;
    (!secret.is_empty() && token.is_ascii()).then_some(pin)
}

fn is_name(name: &str) -> bool {
    (1..=63).contains(&name.len()) && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".-".contains(&byte))
}

pub(crate) fn pem(der: &[u8]) -> String {
    pem::encode_config(
        &pem::Pem::new("CERTIFICATE", der),
        pem::EncodeConfig::new().set_line_ending(pem::LineEnding::LF),
    )
}
