//! Who calls, and what they may do.
//!
//! **Invariant:** a token is looked up by its hash for every call, so that revoking it works at once; it stands in no log and no
//! error.

use axum::extract::FromRequestParts;
use axum::http::header::AUTHORIZATION;
use axum::http::request::Parts;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bc_proto::id::{NodeId, TenantId};
use bc_proto::rules::permission::{self, Grant};
use serde_json::json;
use sha2::{Digest as _, Sha256};

use super::App;
use super::error::Failure;
use super::types::Code;
use crate::store::tokens::{self, Hash, Holder, Name};

/// What an API token begins with.
const PREFIX: &str = "bct_";

/// See a node and its commands.
pub(crate) const NODES_READ: &str = "compute:nodes:read";
/// Run commands on a node, and call them off.
pub(crate) const NODES_EXEC: &str = "compute:nodes:exec";
/// Label and delete a node.
pub(crate) const NODES_WRITE: &str = "compute:nodes:write";
/// Make join tokens.
pub(crate) const NODES_JOIN: &str = "compute:nodes:join";
/// See a kind.
pub(crate) const KINDS_READ: &str = "compute:kinds:read";
/// Register, activate and retire a kind.
pub(crate) const KINDS_WRITE: &str = "compute:kinds:write";
/// Watch events.
pub(crate) const EVENTS_READ: &str = "compute:events:read";
/// Make, see and revoke tokens.
pub(crate) const TOKENS_WRITE: &str = "compute:tokens:write";

/// Propose batches.
pub(crate) const BATCHES_CREATE: &str = "compute:batches:create";
/// See batches.
pub(crate) const BATCHES_READ: &str = "compute:batches:read";
/// Hand in approvals, and reject batches.
pub(crate) const BATCHES_APPROVE: &str = "compute:batches:approve";
/// Set what a node should be.
pub(crate) const SPECS_WRITE: &str = "compute:specs:write";
/// Reserve GPUs of a node, and give them back.
pub(crate) const RESERVATIONS_WRITE: &str = "compute:reservations:write";
/// Read the transparency log.
pub(crate) const AUDIT_READ: &str = "compute:audit:read";
/// See webhooks and their deliveries.
pub(crate) const WEBHOOKS_READ: &str = "compute:webhooks:read";
/// Make and change webhooks, and have events sent again.
pub(crate) const WEBHOOKS_WRITE: &str = "compute:webhooks:write";

/// The token made of these random bytes.
pub(crate) fn token(entropy: [u8; 32]) -> String {
    format!("{PREFIX}{}", URL_SAFE_NO_PAD.encode(entropy))
}

/// What is stored of a token.
pub(crate) fn hash(token: &str) -> Hash {
    Sha256::digest(token).into()
}

/// What names a token without being it.
pub(crate) fn id(hash: &[u8]) -> String {
    hex::encode(&hash[..size_of::<Name>().min(hash.len())])
}

/// Whether this could be a token at all: nothing else is worth asking the database.
fn is_token(text: &str) -> bool {
    text.strip_prefix(PREFIX).and_then(|text| URL_SAFE_NO_PAD.decode(text).ok()).is_some_and(|bytes| bytes.len() == 32)
}

/// The caller of a method.
#[derive(Clone)]
pub(crate) struct Caller {
    pub(crate) holder: Holder,
    hash: Hash,
}

impl FromRequestParts<App> for Caller {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Failure> {
        // A page's visitor, put there by this process; no request brings extensions along.
        if let Some(caller) = parts.extensions.get::<Self>() {
            tracing::Span::current().record("tenant", tracing::field::display(caller.holder.tenant));
            return Ok(caller.clone());
        }
        let header = parts.headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok());
        let given = header.and_then(|value| {
            let (scheme, token) = value.split_once(' ')?;
            scheme.eq_ignore_ascii_case("bearer").then_some(token.trim())
        });
        let Some(given) = given else {
            let message = "a token is missing; send `Authorization: Bearer bct_…`";
            return Err(Failure::new(Code::Unauthenticated, message));
        };
        let caller = Self::with(app, given).await?;
        let caller = caller.ok_or_else(|| {
            Failure::new(Code::Unauthenticated, "the token is unknown, expired or revoked; ask for another")
        })?;
        tracing::Span::current().record("tenant", tracing::field::display(caller.holder.tenant));
        Ok(caller)
    }
}

impl Caller {
    /// Who has this token; `None` for one that does not count.
    pub(crate) async fn with(app: &App, token: &str) -> Result<Option<Self>, Failure> {
        if is_token(token) { Self::of(app, hash(token)).await } else { Ok(None) }
    }

    /// What is stored of the caller's token.
    pub(crate) fn token_hash(&self) -> Hash {
        self.hash
    }

    /// Who has the token of this hash, as it stands now.
    pub(crate) async fn of(app: &App, hash: Hash) -> Result<Option<Self>, Failure> {
        let mut db = app.db().await?;
        let holder = tokens::holder(&mut db, hash, app.now()).await?;
        Ok(holder.map(|holder| Self { holder, hash }))
    }

    /// The caller as it stands now, for calls that last; `None` when its token counts no more.
    pub(crate) async fn again(&self, app: &App) -> Result<Option<Self>, Failure> {
        Self::of(app, self.hash).await
    }

    /// Refuses every tenant but the caller's own.
    pub(crate) fn tenant(&self, tenant: TenantId) -> Result<(), Failure> {
        if tenant == self.holder.tenant { Ok(()) } else { Err(Failure::not_found("tenant", tenant)) }
    }

    /// Whether the caller may do this with that.
    pub(crate) fn may(&self, permission: &str, resource: &str) -> bool {
        permission::is_allowed(&self.holder.grants, permission, resource)
    }

    /// Refuses what the caller may not do with a node of its tenant. A node that it may not even read does not exist for it.
    pub(crate) fn on_node(&self, permission: &str, node: NodeId) -> Result<(), Failure> {
        let resource = format!("compute-node/{node}");
        if self.may(permission, &resource) {
            Ok(())
        } else if self.may(NODES_READ, &resource) {
            Err(denied(permission, &resource))
        } else {
            Err(Failure::not_found("node", node))
        }
    }

    /// Refuses what the caller may not do with a kind.
    pub(crate) fn on_kind(&self, permission: &str, name: &str) -> Result<(), Failure> {
        let resource = format!("kind/{name}");
        if self.may(permission, &resource) {
            Ok(())
        } else if self.may(KINDS_READ, &resource) {
            Err(denied(permission, &resource))
        } else {
            Err(Failure::not_found("kind", name))
        }
    }

    /// Refuses what the caller may not do with its tenant.
    pub(crate) fn on_tenant(&self, permission: &str, tenant: TenantId) -> Result<(), Failure> {
        self.tenant(tenant)?;
        let resource = format!("tenant/{tenant}");
        if self.may(permission, &resource) { Ok(()) } else { Err(denied(permission, &resource)) }
    }

    /// Refuses who may do this with nothing at all, before any work is spent on it.
    pub(crate) fn somewhere(&self, permission: &str) -> Result<(), Failure> {
        let may = self.holder.grants.iter().any(|grant| grant.allows(permission, &grant.resource));
        if may { Ok(()) } else { Err(denied(permission, "any resource")) }
    }

    /// What of these grants the caller does not have itself.
    pub(crate) fn lacks<'a>(&self, grants: impl IntoIterator<Item = &'a Grant>) -> Vec<&'a Grant> {
        grants.into_iter().filter(|grant| !self.holder.grants.iter().any(|own| own.covers(grant))).collect()
    }
}

fn denied(permission: &str, resource: &str) -> Failure {
    Failure::new(Code::PermissionDenied, format!("this needs {permission} on {resource}"))
        .with(json!({ "permission": permission, "resource": resource }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_was_made_as_a_token_counts_as_one() {
        let made = token([7; 32]);
        assert!(is_token(&made) && made.len() == 47, "{made}");
        assert_eq!(id(&hash(&made)).len(), 16);
        for other in ["", "bct_", "bct_AAAA", &made[4..], &made.replace("bct_", "bcj_"), &format!("{made}A")] {
            assert!(!is_token(other), "{other}");
        }
    }
}
