//! `better-compute mcp`: the API as tools for agents, over the Model Context Protocol.
//!
//! An agent may see nodes and commands, run commands, cancel them, and propose batches. Every permission and every refusal is the
//! API's own, by the caller's own token.
//!
//! **Invariant:** no tool approves or rejects a batch, registers a kind, or makes a token. On stdio, standard output carries the
//! protocol and nothing else.

mod answer;
mod ask;
mod batch;
mod commands;
mod exec;
mod face;
mod failure;
mod http;
mod lists;
mod output;
mod schema;
mod tools;
mod view;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use clap::Args;
use rmcp::ServiceExt as _;

use self::face::Face;
use self::http::Http;
use crate::client::{Client, Connect, Patience};

/// Where it listens when `--http` names no address.
const HTTP: &str = "127.0.0.1:7074";

/// An agent waits for the answer: it is better told soon that the server is away. Longer than the longest wait for output.
const PATIENCE: Patience = Patience { attempts: 3, timeout: Duration::from_secs(30) };

/// How clients reach it, and how it reaches the API.
#[derive(Debug, Args)]
pub struct Mcp {
    /// Serve streamable HTTP at this address, path /mcp, in place of standard input and output
    #[arg(long, value_name = "ADDRESS", num_args = 0..=1, default_missing_value = HTTP)]
    http: Option<SocketAddr>,
    /// Use this program's own token for clients that send none; only on an address of this machine's own
    #[arg(long, requires = "http")]
    share_token: bool,
    /// A web origin that may send requests, https://chat.example:443 for example; none by default. May be repeated
    #[arg(long = "allow-origin", value_name = "ORIGIN", requires = "http")]
    origins: Vec<String>,
    /// A name by which clients call this machine, besides localhost and the address. May be repeated
    #[arg(long = "allow-host", value_name = "HOST", requires = "http")]
    hosts: Vec<String>,
    /// The certificate and those up to its authority, PEM: it speaks TLS then. Goes with --tls-key
    #[arg(long, value_name = "PEM", requires = "http", requires = "tls_key")]
    tls_cert: Option<PathBuf>,
    /// The certificate's private key, PEM
    #[arg(long, value_name = "PEM", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
    /// Serve others than this machine without TLS: a proxy in front of it speaks TLS
    #[arg(long, requires = "http", conflicts_with = "tls_cert")]
    insecure_http: bool,
    #[command(flatten)]
    connect: Connect,
}

impl Mcp {
    /// Serves until the client goes away, or a signal comes.
    pub async fn execute(self) -> anyhow::Result<ExitCode> {
        let target = self.connect.target()?;
        let Some(address) = self.http else {
            let client = Arc::new(Client::new(target, PATIENCE)?);
            let running = Face::of(client).serve(rmcp::transport::stdio()).await;
            let running = running.context("the client does not speak the Model Context Protocol")?;
            running.waiting().await.context("the connection to the client broke")?;
            return Ok(ExitCode::SUCCESS);
        };
        let http = Http {
            address,
            share_token: self.share_token,
            origins: self.origins,
            hosts: self.hosts,
            tls: self.tls_cert.zip(self.tls_key),
            insecure: self.insecure_http,
        };
        http.serve(target).await?;
        Ok(ExitCode::SUCCESS)
    }
}
