//! `better-compute token …` and `whoami`.
//!
//! **Invariant:** a token is printed once, by the command that makes it, and nowhere else.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, bail};
use bc_host::api::types::{Caller, CreateToken, Grant, ListTokens, NewToken, Page, Token, TokenRef};
use clap::{Args, Subcommand};
use serde_json::Value;
use time::OffsetDateTime;

use crate::client::{Client, Connect, Patience};
use crate::format::{Output, Shown, distance, moment};
use crate::{contexts, output, shell};

/// The subcommands.
#[derive(Debug, Subcommand)]
pub enum TokenCommand {
    /// Make a token; it is shown once
    Create(Create),
    /// List tokens, less the tokens themselves
    List(Plain),
    /// Make a token worthless
    Revoke(Revoke),
}

/// What is flattened into all of them.
#[derive(Debug, Args)]
pub struct Plain {
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    connect: Connect,
}

/// Which token.
#[derive(Debug, Args)]
pub struct Create {
    /// The identity that it is for; it is made if there is none
    #[arg(long, value_name = "NAME")]
    identity: String,
    /// What it is for, for people; by default the identity's name
    #[arg(long)]
    label: Option<String>,
    /// How long it is good; for ever by default
    #[arg(long, value_name = "SPAN", value_parser = humantime::parse_duration)]
    expires_in: Option<Duration>,
    /// A grant that the identity gets in addition, `compute:nodes:exec=compute-node/*`. May be repeated
    #[arg(long = "grant", value_name = "PERMISSION=RESOURCE")]
    grants: Vec<String>,
    /// Write the token to this file, for its owner alone, in place of printing it
    #[arg(long, value_name = "FILE")]
    to: Option<PathBuf>,
    #[command(flatten)]
    plain: Plain,
}

/// Which token.
#[derive(Debug, Args)]
pub struct Revoke {
    /// Its id, as in the list
    id: String,
    #[command(flatten)]
    plain: Plain,
}

impl TokenCommand {
    /// Does it.
    pub async fn execute(self) -> anyhow::Result<ExitCode> {
        match self {
            Self::Create(create) => create.execute().await?,
            Self::List(Plain { output: shown, connect }) => {
                let client = Client::new(connect.target()?, Patience::default())?;
                let request = ListTokens { tenant_id: client.tenant().await? };
                let tokens: Page<Token> = client.call("tokens.list", &request).await?;
                shown.list(&tokens.items, shell::now());
            }
            Self::Revoke(Revoke { id, plain: Plain { connect, .. } }) => {
                let client = Client::new(connect.target()?, Patience::default())?;
                let request = TokenRef { tenant_id: client.tenant().await?, id };
                client.call::<Value>("tokens.revoke", &request).await?;
                output::complain(&format!("{} is revoked", request.id));
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

impl Create {
    async fn execute(self) -> anyhow::Result<()> {
        let grants = self.grants.iter().map(|word| grant(word)).collect::<anyhow::Result<_>>()?;
        let Plain { output: shown, connect } = self.plain;
        let client = Client::new(connect.target()?, Patience::default())?;
        let request = CreateToken {
            tenant_id: client.tenant().await?,
            label: self.label.unwrap_or_else(|| self.identity.clone()),
            identity: self.identity,
            expires_in_seconds: self.expires_in.map(|span| span.as_secs()),
            grants,
        };
        let made: NewToken = client.call("tokens.create", &request).await?;
        if let Some(file) = &self.to {
            contexts::write_private(file, made.token.as_bytes())
                .with_context(|| format!("{} cannot be written", file.display()))?;
            output::complain(&format!("{} is in {}", made.id, file.display()));
        } else {
            shown.one(&made, shell::now());
        }
        Ok(())
    }
}

fn grant(word: &str) -> anyhow::Result<Grant> {
    match word.split_once('=') {
        Some((permission, resource)) if !permission.is_empty() && !resource.is_empty() => {
            Ok(Grant { permission: permission.to_owned(), resource: resource.to_owned() })
        }
        _ => bail!("--grant {word:?} is no grant; write compute:nodes:exec=compute-node/*"),
    }
}

/// `whoami`.
pub async fn whoami(plain: Plain) -> anyhow::Result<ExitCode> {
    let client = Client::new(plain.connect.target()?, Patience::default())?;
    plain.output.one(&client.whoami().await?, shell::now());
    Ok(ExitCode::SUCCESS)
}

impl Shown for Token {
    const HEADER: &'static [&'static str] = &["ID", "IDENTITY", "LABEL", "AGE", "EXPIRES", "REVOKED"];

    fn cells(&self, now: OffsetDateTime) -> Vec<String> {
        let maybe = |at: Option<OffsetDateTime>, none: &str| at.map_or_else(|| none.to_owned(), |at| distance(at, now));
        vec![
            self.id.clone(),
            self.identity.clone(),
            self.label.clone(),
            distance(self.created_at, now),
            maybe(self.expires_at, "never"),
            maybe(self.revoked_at, ""),
        ]
    }

    fn name(&self) -> String {
        self.id.clone()
    }

    fn facts(&self, now: OffsetDateTime) -> Vec<(&'static str, String)> {
        vec![
            ("id", self.id.clone()),
            ("identity", self.identity.clone()),
            ("label", self.label.clone()),
            ("made", moment(Some(self.created_at), now)),
            ("expires", moment(self.expires_at, now)),
            ("revoked", moment(self.revoked_at, now)),
        ]
    }
}

impl Shown for NewToken {
    const HEADER: &'static [&'static str] = &["ID", "TOKEN"];

    fn cells(&self, _now: OffsetDateTime) -> Vec<String> {
        vec![self.id.clone(), self.token.clone()]
    }

    fn name(&self) -> String {
        self.token.clone()
    }

    fn facts(&self, _now: OffsetDateTime) -> Vec<(&'static str, String)> {
        vec![("id", self.id.clone()), ("token", self.token.clone())]
    }
}

impl Shown for Caller {
    const HEADER: &'static [&'static str] = &["IDENTITY", "TENANT", "TENANT ID"];

    fn cells(&self, _now: OffsetDateTime) -> Vec<String> {
        vec![self.identity.clone(), self.tenant.clone(), self.tenant_id.clone()]
    }

    fn name(&self) -> String {
        self.identity.clone()
    }

    fn facts(&self, _now: OffsetDateTime) -> Vec<(&'static str, String)> {
        let grants = self.grants.iter().map(|grant| format!("{} on {}", grant.permission, grant.resource));
        vec![
            ("identity", self.identity.clone()),
            ("tenant", format!("{} {}", self.tenant, self.tenant_id)),
            ("may", grants.collect::<Vec<_>>().join("\n")),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grants_have_two_parts() {
        let read = grant("compute:nodes:exec=compute-node/*").expect("a grant");
        assert_eq!((read.permission.as_str(), read.resource.as_str()), ("compute:nodes:exec", "compute-node/*"));
        for wrong in ["", "=", "x", "x=", "=x"] {
            assert!(grant(wrong).is_err(), "{wrong:?}");
        }
    }
}
