//! Which server, with whose token, for which tenant: from flags, environment and the current context.
//!
//! **Invariant:** a context's token goes to that context's server alone: a URL from elsewhere comes with its own token, or
//! with none.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use clap::Args;

use crate::contexts::{self, Contexts};

/// The variable that holds a token.
pub const TOKEN_VARIABLE: &str = "BETTER_COMPUTE_TOKEN";

/// How to reach the API. What is not given comes from the context.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Connection")]
pub struct Connect {
    /// The API's base URL, http://127.0.0.1:7070 for example
    #[arg(long, value_name = "URL", env = "BETTER_COMPUTE_URL")]
    pub url: Option<String>,
    /// The file that holds the token; `BETTER_COMPUTE_TOKEN` holds the token itself
    #[arg(long, value_name = "FILE", env = "BETTER_COMPUTE_TOKEN_FILE")]
    pub token_file: Option<PathBuf>,
    /// The tenant, `tenant_…`; by default the token's own
    #[arg(long, value_name = "ID", env = "BETTER_COMPUTE_TENANT")]
    pub tenant: Option<String>,
    /// Certificates to trust in place of the system's, PEM
    #[arg(long, value_name = "FILE", env = "BETTER_COMPUTE_CA_FILE")]
    pub ca_file: Option<PathBuf>,
    /// The context to use in place of the current one
    #[arg(long, value_name = "NAME", env = "BETTER_COMPUTE_CONTEXT")]
    pub context: Option<String>,
}

/// Everything that a client needs.
#[derive(Clone, PartialEq, Eq)]
pub struct Target {
    /// The API's base URL, without a slash at its end.
    pub url: String,
    /// The bearer token.
    pub token: Option<String>,
    /// `tenant_…`
    pub tenant: Option<String>,
    /// Certificates to trust, PEM.
    pub ca_file: Option<PathBuf>,
}

/// Without the token.
impl std::fmt::Debug for Target {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let token = self.token.as_ref().map(|_| "…");
        f.debug_struct("Target")
            .field("url", &self.url)
            .field("token", &token)
            .field("tenant", &self.tenant)
            .finish_non_exhaustive()
    }
}

impl Connect {
    /// Decides, by this process's environment and the user's file.
    pub fn target(&self) -> anyhow::Result<Target> {
        let contexts = Contexts::read(&contexts::path()?)?;
        let token = std::env::var(TOKEN_VARIABLE).ok().filter(|token| !token.is_empty());
        self.resolve(token, &contexts)
    }

    /// Decides. `token` is what the environment holds.
    pub fn resolve(&self, token: Option<String>, contexts: &Contexts) -> anyhow::Result<Target> {
        let context = contexts.find(self.context.as_deref())?.map(|(_, context)| context);
        let Some(url) = self.url.clone().or_else(|| context.map(|context| context.url.clone())) else {
            bail!(
                "no server is named: give --url or BETTER_COMPUTE_URL, or choose a context \
                 (`better-compute context use`); `better-compute dev` starts a server and writes a context for it"
            );
        };
        let url = bare(&url).to_owned();
        if !(url.starts_with("http://") || url.starts_with("https://")) {
            bail!("{url} is not a base URL; it begins with http:// or https://");
        }
        let own = context.filter(|context| bare(&context.url) == url);
        let token = match (&self.token_file, token) {
            (Some(file), _) => Some(read_token(file)?),
            (None, Some(token)) => Some(token),
            (None, None) => match own {
                Some(context) if context.token.is_some() => context.token.clone(),
                Some(context) => context.token_file.as_deref().map(read_token).transpose()?,
                None => None,
            },
        };
        let of_context = |pick: fn(&contexts::Context) -> Option<String>| own.and_then(pick);
        Ok(Target {
            url,
            token,
            tenant: self.tenant.clone().or_else(|| of_context(|context| context.tenant.clone())),
            ca_file: self.ca_file.clone().or_else(|| own.and_then(|context| context.ca_file.clone())),
        })
    }
}

fn bare(url: &str) -> &str {
    url.trim().trim_end_matches('/')
}

/// A token from a file, which may end in a line break.
fn read_token(file: &Path) -> anyhow::Result<String> {
    let name = file.display();
    let text = fs::read_to_string(file).with_context(|| format!("the token file {name} cannot be read"))?;
    let token = text.trim();
    if token.is_empty() || token.contains(char::is_whitespace) {
        bail!("the token file {name} does not hold one token on one line");
    }
    Ok(token.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contexts::Context;

    fn contexts() -> Contexts {
        let context = |name: &str| Context {
            url: format!("http://{name}/"),
            token: Some(format!("bct_{name}")),
            tenant: Some(format!("tenant_{name}")),
            ..Context::default()
        };
        let contexts = ["lab", "prod"].map(|name| (name.to_owned(), context(name))).into();
        Contexts { current: Some("lab".into()), contexts }
    }

    fn resolve(connect: &Connect, token: Option<&str>) -> (String, Option<String>, Option<String>) {
        let target = connect.resolve(token.map(Into::into), &contexts()).expect("a target");
        (target.url, target.token, target.tenant)
    }

    fn all(url: &str, token: &str, tenant: &str) -> (String, Option<String>, Option<String>) {
        (url.into(), Some(token.into()), Some(tenant.into()))
    }

    #[test]
    fn a_flag_beats_the_environment_and_both_beat_the_context() {
        let plain = Connect::default();
        assert_eq!(resolve(&plain, None), all("http://lab", "bct_lab", "tenant_lab"));
        assert_eq!(resolve(&plain, Some("bct_env")), all("http://lab", "bct_env", "tenant_lab"));
        let file = tempfile::NamedTempFile::new().expect("a file");
        fs::write(file.path(), "bct_file\n").expect("written");
        let flags = Connect {
            token_file: Some(file.path().into()),
            tenant: Some("tenant_flag".into()),
            context: Some("prod".into()),
            ..Connect::default()
        };
        assert_eq!(resolve(&flags, Some("bct_env")), all("http://prod", "bct_file", "tenant_flag"));
    }

    #[test]
    fn a_contexts_token_goes_to_its_own_server_alone() {
        let elsewhere = Connect { url: Some("http://elsewhere".into()), ..Connect::default() };
        assert_eq!(resolve(&elsewhere, None), ("http://elsewhere".into(), None, None));
        let same = Connect { url: Some("http://lab".into()), ..Connect::default() };
        assert_eq!(resolve(&same, None), all("http://lab", "bct_lab", "tenant_lab"));
    }

    #[test]
    fn what_is_missing_is_said_with_what_to_do() {
        let none = Connect::default().resolve(None, &Contexts::default()).expect_err("no server").to_string();
        assert!(none.contains("--url") && none.contains("better-compute dev"), "{none}");
        let ftp = Connect { url: Some("ftp://x".into()), ..Connect::default() };
        assert!(ftp.resolve(None, &Contexts::default()).is_err());
        let gone = Connect { token_file: Some("/nowhere".into()), ..Connect::default() };
        assert!(gone.resolve(None, &contexts()).is_err());
    }

    #[test]
    fn a_target_never_shows_its_token() {
        let target = Connect::default().resolve(Some("bct_secret".into()), &contexts()).expect("a target");
        assert!(!format!("{target:?}").contains("secret"));
    }
}
