//! `kinds.register`, `activate`, `retire`, `list` and `get`.
//!
//! Kinds belong to the whole control plane and events to a tenant, so what happens to kinds is not in the outbox.
//!
//! **Invariant:** a version means one component for good, and what takes new commands changes in one transaction.

use axum::Json;
use axum::extract::{Request, State};
use bc_proto::manifest::Role;
use serde_json::json;
use sqlx::Connection as _;

use super::App;
use super::auth::{Caller, KINDS_READ, KINDS_WRITE};
use super::error::Failure;
use super::extract::{self, Ask, Body, Rules};
use super::openapi::Errors;
use super::types::{self, Code, KindRef, ListKinds, Page, RegisterKind};
use crate::registry;
use crate::registry::examine::Obstacle;
use crate::store::kinds::{self, Digest, NewKind, Registration};

/// What a component may be sent as.
const MEDIA_TYPES: [&str; 2] = ["application/wasm", "application/octet-stream"];

/// Register a component.
///
/// It is inspected, linked, and its examples are run through its own `validate`; every obstacle is named. The same component
/// again changes nothing.
#[utoipa::path(post, path = "/v1/kinds.register", operation_id = "kinds.register", tag = "kinds",
    params(RegisterKind),
    request_body(content = Vec<u8>, content_type = "application/wasm", description = "The component"),
    responses((status = 200, description = "The kind", body = types::Kind), Errors))]
pub(super) async fn register(
    State(app): State<App>,
    caller: Caller,
    Ask(ask): Ask<RegisterKind>,
    request: Request,
) -> Result<Json<types::Kind>, Failure> {
    caller.somewhere(KINDS_WRITE)?;
    if !MEDIA_TYPES.iter().any(|it| extract::is_type(request.headers(), it)) {
        return Err(Failure::field("Content-Type", format!("must be {}", MEDIA_TYPES.join(" or "))));
    }
    let component = extract::read(request, app.config.max_component_bytes).await?;
    let declared = app.registry.inspect(component).await?.map_err(|obstacles| refused(&obstacles))?;
    let name = declared.inspected.manifest.name.clone();
    caller.on_kind(KINDS_WRITE, &name)?;
    if ask.exposed == Some(true) && !registry::accepts(&name, true) {
        return Err(Failure::field("exposed", format!("{name} is never accepted by commands.run")));
    }
    let declared = app.registry.examine(declared).await?.map_err(|obstacles| refused(&obstacles))?;
    let digest = declared.digest;
    let new = NewKind {
        digest,
        manifest: &declared.inspected.manifest,
        component: &declared.inspected.bytes,
        is_exposed: ask.exposed,
    };
    let mut db = app.db().await?;
    let mut tx = db.begin().await?;
    kinds::lock(&mut tx, &name).await?;
    if let Registration::Taken { by } = kinds::register(&mut tx, new, app.now()).await? {
        return Err(taken(&name, &declared.inspected.manifest.version.to_string(), &by));
    }
    if ask.activate {
        kinds::switch(&mut tx, &name, digest).await?;
    }
    let kind = kinds::find(&mut tx, Some(&name), Some(digest)).await?.ok_or_else(|| unknown(&name))?;
    tx.commit().await?;
    Ok(Json(document(kind)?))
}

fn refused(obstacles: &[Obstacle]) -> Failure {
    let words: Vec<_> = obstacles.iter().map(|it| format!("{} → {}", it.rule, it.remedy)).collect();
    let listed: Vec<_> =
        obstacles.iter().map(|it| json!({ "field": "component", "rule": it.rule, "remedy": it.remedy })).collect();
    Failure::new(Code::InvalidInput, format!("the component cannot be registered: {}", words.join("; ")))
        .with(json!({ "problems": listed }))
}

fn taken(name: &str, version: &str, by: &[u8]) -> Failure {
    let by = hex::encode(by);
    let message =
        format!("{name} {version} is registered with the digest {by}; give the changed component a new version");
    Failure::new(Code::Conflict, message).with(json!({ "kind": name, "version": version, "digest": by }))
}

fn unknown(what: impl std::fmt::Display) -> Failure {
    Failure::not_found("kind", what)
}

/// A kind by name, by digest or by both.
struct Named {
    name: Option<String>,
    digest: Option<Digest>,
}

impl Named {
    fn check(ask: KindRef) -> Result<Self, Failure> {
        let mut rules = Rules::default();
        rules.rule(ask.name.is_some() || ask.digest.is_some(), "name", "name or digest must be given");
        if let Some(name) = &ask.name {
            rules.text("name", name, 1, 64);
        }
        let digest = ask.digest.as_deref().map(|text| {
            let mut digest = Digest::default();
            let is_lower = !text.bytes().any(|byte| byte.is_ascii_uppercase());
            let holds = is_lower && hex::decode_to_slice(text, &mut digest).is_ok();
            rules.rule(holds, "digest", "must be 64 lower-case hexadecimal digits");
            digest
        });
        rules.check()?;
        Ok(Self { name: ask.name, digest })
    }

    async fn find(&self, app: &App, caller: &Caller, permission: &str) -> Result<kinds::Kind, Failure> {
        let found = kinds::find(&mut *app.db().await?, self.name.as_deref(), self.digest).await?;
        let asked = || self.name.clone().unwrap_or_else(|| hex::encode(self.digest.unwrap_or_default()));
        let found = found.ok_or_else(|| unknown(asked()))?;
        // The answer for one that may not be seen is that for one that does not exist.
        caller.on_kind(permission, &found.name).map_err(|failure| match failure.0.code {
            Code::NotFound => unknown(asked()),
            _ => failure,
        })?;
        Ok(found)
    }
}

/// Show a kind: the active component of a name, or the one with a digest.
#[utoipa::path(post, path = "/v1/kinds.get", operation_id = "kinds.get", tag = "kinds",
    request_body = KindRef, responses((status = 200, description = "The kind", body = types::Kind), Errors))]
pub(super) async fn get(
    State(app): State<App>,
    caller: Caller,
    Body(ask): Body<KindRef>,
) -> Result<Json<types::Kind>, Failure> {
    let found = Named::check(ask)?.find(&app, &caller, KINDS_READ).await?;
    Ok(Json(document(found)?))
}

/// List kinds by name, of one name the newest first.
#[utoipa::path(post, path = "/v1/kinds.list", operation_id = "kinds.list", tag = "kinds",
    request_body = ListKinds, responses((status = 200, description = "All of them", body = Page<types::Kind>), Errors))]
pub(super) async fn list(
    State(app): State<App>,
    caller: Caller,
    Body(ask): Body<ListKinds>,
) -> Result<Json<Page<types::Kind>>, Failure> {
    let all = kinds::list(&mut *app.db().await?, ask.all).await?;
    let seen = all.into_iter().filter(|kind| caller.may(KINDS_READ, &format!("kind/{}", kind.name)));
    Ok(Json(Page { items: seen.map(document).collect::<Result<_, _>>()?, next_cursor: None }))
}

/// Make a registered component the one of its name that takes new commands.
///
/// The one that did is retired; its commands still run with it. An older digest rolls back.
#[utoipa::path(post, path = "/v1/kinds.activate", operation_id = "kinds.activate", tag = "kinds",
    request_body = KindRef, responses((status = 200, description = "The kind", body = types::Kind), Errors))]
pub(super) async fn activate(
    State(app): State<App>,
    caller: Caller,
    Body(ask): Body<KindRef>,
) -> Result<Json<types::Kind>, Failure> {
    let named = Named::check(ask)?;
    if named.digest.is_none() {
        return Err(Failure::field("digest", "is missing: a name alone does not say which of its components"));
    }
    change(&app, &caller, &named, true).await
}

/// Take a component out of service for new commands. Those bound to it still run.
#[utoipa::path(post, path = "/v1/kinds.retire", operation_id = "kinds.retire", tag = "kinds",
    request_body = KindRef, responses((status = 200, description = "The kind", body = types::Kind), Errors))]
pub(super) async fn retire(
    State(app): State<App>,
    caller: Caller,
    Body(ask): Body<KindRef>,
) -> Result<Json<types::Kind>, Failure> {
    change(&app, &caller, &Named::check(ask)?, false).await
}

async fn change(app: &App, caller: &Caller, named: &Named, activate: bool) -> Result<Json<types::Kind>, Failure> {
    let found = named.find(app, caller, KINDS_WRITE).await?;
    let mut db = app.db().await?;
    let mut tx = db.begin().await?;
    kinds::lock(&mut tx, &found.name).await?;
    if activate {
        kinds::switch(&mut tx, &found.name, found.digest).await?;
    } else {
        kinds::retire(&mut tx, found.digest).await?;
    }
    let kind = kinds::find(&mut tx, None, Some(found.digest)).await?.ok_or_else(|| unknown(&found.name))?;
    tx.commit().await?;
    Ok(Json(document(kind)?))
}

fn document(kind: kinds::Kind) -> Result<types::Kind, Failure> {
    let roles: Vec<Role> = serde_json::from_value(kind.manifest["roles"].clone())
        .map_err(|_| Failure::internal(&crate::store::corrupt("kinds", "manifest", hex::encode(kind.digest))))?;
    Ok(types::Kind {
        exposed: registry::accepts(&kind.name, kind.is_exposed),
        name: kind.name,
        version: kind.version,
        digest: hex::encode(kind.digest),
        status: kind.status,
        lane: kind.lane,
        timeout_ms: kind.timeout_ms,
        traits: kind.traits,
        roles: roles.iter().map(ToString::to_string).collect(),
        manifest: kind.manifest,
        created_at: kind.created_at,
    })
}
