//! `better-compute context …`: the servers that the command line knows.
//!
//! **Invariant:** tokens are not shown.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Subcommand};
use clap_complete::engine::ArgValueCompleter;
use serde::Serialize;
use time::OffsetDateTime;

use crate::contexts::{self, Context, Contexts};
use crate::format::{Output, Shown};
use crate::{complete, output, shell};

/// The subcommands.
#[derive(Debug, Subcommand)]
pub enum ContextCommand {
    /// List contexts
    List(Output),
    /// Make a context the current one
    Use {
        /// Its name
        #[arg(add = ArgValueCompleter::new(complete::contexts))]
        name: String,
    },
    /// Show a context, the current one by default
    Show(Show),
    /// Add a context, or change it
    Add(Add),
}

/// Which one.
#[derive(Debug, Args)]
pub struct Show {
    /// Its name
    #[arg(add = ArgValueCompleter::new(complete::contexts))]
    name: Option<String>,
    #[command(flatten)]
    output: Output,
}

/// What is in it.
#[derive(Debug, Args)]
pub struct Add {
    /// Its name
    name: String,
    /// The API's base URL
    #[arg(long)]
    url: String,
    /// The file that holds the token
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// The tenant; by default the token's own
    #[arg(long, value_name = "ID")]
    tenant: Option<String>,
    /// Certificates to trust in place of the system's, PEM
    #[arg(long, value_name = "FILE")]
    ca_file: Option<PathBuf>,
}

/// A context without its token.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Line {
    name: String,
    current: bool,
    url: String,
    tenant: Option<String>,
    token: &'static str,
    token_file: Option<PathBuf>,
    ca_file: Option<PathBuf>,
}

impl Line {
    fn of(name: &str, context: &Context, current: Option<&str>) -> Self {
        Self {
            name: name.to_owned(),
            current: current == Some(name),
            url: context.url.clone(),
            tenant: context.tenant.clone(),
            token: match (&context.token, &context.token_file) {
                (Some(_), _) => "in the configuration",
                (None, Some(_)) => "in a file",
                (None, None) => "none",
            },
            token_file: context.token_file.clone(),
            ca_file: context.ca_file.clone(),
        }
    }
}

impl ContextCommand {
    /// Does it.
    pub fn execute(self) -> anyhow::Result<ExitCode> {
        let path = contexts::path()?;
        let mut contexts = Contexts::read(&path)?;
        let current = contexts.current.clone();
        match self {
            Self::List(shown) => {
                let lines = contexts.contexts.iter().map(|(name, context)| Line::of(name, context, current.as_deref()));
                shown.list(&lines.collect::<Vec<_>>(), shell::now());
            }
            Self::Show(Show { name, output: shown }) => match contexts.find(name.as_deref())? {
                Some((name, context)) => shown.one(&Line::of(name, context, current.as_deref()), shell::now()),
                None => anyhow::bail!("no context is current; `better-compute context use` chooses one"),
            },
            Self::Use { name } => {
                contexts.find(Some(&name))?;
                output::complain(&format!("{name} is current now"));
                contexts.current = Some(name);
                contexts.write(&path)?;
            }
            Self::Add(Add { name, url, token_file, tenant, ca_file }) => {
                // A relative path would mean another file from another folder.
                let whole = |file: Option<PathBuf>| file.map(std::path::absolute).transpose();
                let context =
                    Context { url, token: None, token_file: whole(token_file)?, tenant, ca_file: whole(ca_file)? };
                contexts.contexts.insert(name.clone(), context);
                contexts.current.get_or_insert(name);
                contexts.write(&path)?;
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

impl Shown for Line {
    const HEADER: &'static [&'static str] = &["", "NAME", "URL", "TENANT", "TOKEN"];

    fn cells(&self, _now: OffsetDateTime) -> Vec<String> {
        vec![
            if self.current { "*" } else { "" }.to_owned(),
            self.name.clone(),
            self.url.clone(),
            self.tenant.clone().unwrap_or_default(),
            self.token.to_owned(),
        ]
    }

    fn name(&self) -> String {
        self.name.clone()
    }

    fn facts(&self, _now: OffsetDateTime) -> Vec<(&'static str, String)> {
        let file = |path: &Option<PathBuf>| path.as_ref().map(|path| path.display().to_string()).unwrap_or_default();
        vec![
            ("name", self.name.clone()),
            ("current", if self.current { "yes" } else { "no" }.to_owned()),
            ("url", self.url.clone()),
            ("tenant", self.tenant.clone().unwrap_or_default()),
            ("token", self.token.to_owned()),
            ("token file", file(&self.token_file)),
            ("ca file", file(&self.ca_file)),
        ]
    }
}
