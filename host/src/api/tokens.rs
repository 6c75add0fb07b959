//! `tokens.create`, `list`, `revoke` and `whoami`.
//!
//! **Invariant:** no call makes a token that may do what its caller may not, whatever the token's identity had before.

use axum::Json;
use axum::extract::State;
use bc_proto::rules::permission::Grant;
use serde::Deserialize;
use serde_json::json;
use sqlx::Connection as _;
use time::Duration;

use super::App;
use super::auth::{self, Caller, TOKENS_WRITE};
use super::error::Failure;
use super::extract::{Body, Rules};
use super::openapi::Errors;
use super::types::{self, Code, CreateToken, ListTokens, NewToken, Page, TokenRef};
use crate::store::tokens::{self, Name};
use crate::store::{grants, identities};

/// The most grants in one call.
const MAX_GRANTS: usize = 100;

/// The shortest and the longest life of a token that expires, seconds: a minute and ten years.
const LIFE: (u64, u64) = (60, 10 * 365 * 24 * 3600);

/// Make a token, and its identity if there is none of this name. It is shown once.
///
/// The identity gets the grants in addition to those that it has. The caller must have all of them itself.
#[utoipa::path(post, path = "/v1/tokens.create", operation_id = "tokens.create", tag = "tokens",
    request_body = CreateToken, responses((status = 200, description = "The token", body = NewToken), Errors))]
pub(super) async fn create(
    State(app): State<App>,
    caller: Caller,
    Body(ask): Body<CreateToken>,
) -> Result<Json<NewToken>, Failure> {
    let mut rules = Rules::default();
    let tenant = rules.tenant(&ask.tenant_id);
    rules.text("identity", &ask.identity, 1, 100);
    rules.text("label", &ask.label, 1, 200);
    let life = ask.expires_in_seconds.map(|it| rules.number("expiresInSeconds", Some(it), LIFE.0, LIFE.1, LIFE.1));
    rules.rule(ask.grants.len() <= MAX_GRANTS, "grants", format!("must have at most {MAX_GRANTS} items"));
    let given: Vec<_> = ask.grants.into_iter().map(|it| Grant::new(it.permission, it.resource)).collect();
    for (at, grant) in given.iter().take(MAX_GRANTS).enumerate() {
        if let Err(invalid) = grant.check() {
            rules.rule(false, &format!("grants[{at}]"), invalid.to_string());
        }
    }
    rules.check()?;
    caller.on_tenant(TOKENS_WRITE, tenant)?;
    let now = app.now();
    let token = auth::token(app.world.bytes());
    let hash = auth::hash(&token);
    let mut db = app.db().await?;
    let mut tx = db.begin().await?;
    let identity = identities::ensure(&mut tx, app.world.uuid(), tenant, &ask.identity, now).await?;
    if identity.is_disabled {
        return Err(Failure::state("identity-disabled", format!("identity: {} is disabled", ask.identity)));
    }
    let had = grants::of(&mut tx, identity.id).await?;
    let lacking = caller.lacks(given.iter().chain(&had));
    if !lacking.is_empty() {
        let words: Vec<_> = lacking.iter().map(|it| format!("{} on {}", it.permission, it.resource)).collect();
        let message = format!("the token could do what the caller may not: {}", words.join(", "));
        return Err(Failure::new(Code::PermissionDenied, message).with(json!({ "lacking": words })));
    }
    grants::add(&mut tx, identity.id, &given, now).await?;
    let seconds = life.and_then(|seconds| i64::try_from(seconds).ok());
    let expires_at = seconds.map(|seconds| now + Duration::seconds(seconds));
    tokens::create(&mut tx, hash, identity.id, &ask.label, expires_at, now).await?;
    tx.commit().await?;
    Ok(Json(NewToken { token, id: auth::id(&hash) }))
}

/// List the tenant's tokens, newest first, without the tokens themselves.
#[utoipa::path(post, path = "/v1/tokens.list", operation_id = "tokens.list", tag = "tokens",
    request_body = ListTokens,
    responses((status = 200, description = "All of them", body = Page<types::Token>), Errors))]
pub(super) async fn list(
    State(app): State<App>,
    caller: Caller,
    Body(ask): Body<ListTokens>,
) -> Result<Json<Page<types::Token>>, Failure> {
    let mut rules = Rules::default();
    let tenant = rules.tenant(&ask.tenant_id);
    rules.check()?;
    caller.on_tenant(TOKENS_WRITE, tenant)?;
    let found = tokens::list(&mut *app.db().await?, tenant).await?;
    Ok(Json(Page { items: found.into_iter().map(document).collect(), next_cursor: None }))
}

/// Make a token count for nothing, at once.
#[utoipa::path(post, path = "/v1/tokens.revoke", operation_id = "tokens.revoke", tag = "tokens",
    request_body = TokenRef, responses((status = 200, description = "The token", body = types::Token), Errors))]
pub(super) async fn revoke(
    State(app): State<App>,
    caller: Caller,
    Body(ask): Body<TokenRef>,
) -> Result<Json<types::Token>, Failure> {
    let mut rules = Rules::default();
    let tenant = rules.tenant(&ask.tenant_id);
    let mut name = Name::default();
    rules.rule(hex::decode_to_slice(&ask.id, &mut name).is_ok(), "id", "must be 16 hexadecimal digits");
    rules.check()?;
    caller.on_tenant(TOKENS_WRITE, tenant)?;
    let revoked = tokens::revoke(&mut *app.db().await?, tenant, name, app.now()).await?;
    revoked.map(|token| Json(document(token))).ok_or_else(|| Failure::not_found("token", ask.id))
}

/// `tokens.whoami` takes nothing.
#[derive(Debug, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct WhoAmI {}

/// Show who the token is for, and what they may do.
#[utoipa::path(post, path = "/v1/tokens.whoami", operation_id = "tokens.whoami", tag = "tokens",
    request_body = WhoAmI, responses((status = 200, description = "The caller", body = types::Caller), Errors))]
pub(super) async fn whoami(caller: Caller, Body(WhoAmI {}): Body<WhoAmI>) -> Json<types::Caller> {
    let holder = caller.holder;
    let grant = |it: Grant| types::Grant { permission: it.permission, resource: it.resource };
    Json(types::Caller {
        tenant_id: holder.tenant.to_string(),
        tenant: holder.tenant_name,
        identity: holder.name,
        grants: holder.grants.into_iter().map(grant).collect(),
    })
}

fn document(token: tokens::Token) -> types::Token {
    types::Token {
        id: auth::id(&token.hash),
        identity: token.identity,
        label: token.label,
        created_at: token.created_at,
        expires_at: token.expires_at,
        revoked_at: token.revoked_at,
    }
}
