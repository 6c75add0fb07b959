//! `kinds.register`, `activate`, `retire`, `list` and `get`.
//!
//! Kinds belong to the whole control plane and events to a tenant, so what happens to kinds is not in the outbox.
//!
//! **Invariant:** a version means one component for good, and what takes new commands changes in one transaction.

use axum::Json;
use axum::extract::{Request, State};
use bc_proto::canonical;
use bc_proto::id::{BatchId, TenantId};
use bc_proto::manifest::{Manifest, Role};
use bc_proto::rules::approval::Policy;
use bc_proto::rules::diff::Diff;
use bc_proto::rules::publishing::{self, KindSignature, Untrusted};
use bc_proto::sign::PublicKey;
use serde_json::json;
use sqlx::{Connection as _, PgConnection};
use time::OffsetDateTime;

use super::App;
use super::auth::{Caller, KINDS_READ, KINDS_WRITE};
use super::error::Failure;
use super::extract::{self, Ask, Body, Rules};
use super::openapi::Errors;
use super::types::{self, ActivateKind, Code, KindRef, ListKinds, Page, RegisterKind};
use crate::registry::examine::Obstacle;
use crate::registry::{self, quorum};
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
    let digest = canonical::sha256_hex(&component);
    let yes = Yes::check(&caller, ask.accept_wider, ask.batch_id.as_deref())?;
    let signature = signature(&ask, digest)?;
    // By the digest alone: nobody has looked into it yet.
    let digest = &signature.digest;
    let verified = publishing::check(&app.config.pki.publishers, digest, signature.found.as_ref());
    verified.map_err(|untrusted| Failure::field("signature", told(&untrusted)).because(untrusted.reason()))?;
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
        signature: signature.found.as_ref(),
    };
    let mut db = app.db().await?;
    let mut tx = db.begin().await?;
    kinds::lock(&mut tx, &name).await?;
    if let Registration::Taken { by } = kinds::register(&mut tx, new, app.now()).await? {
        return Err(taken(&name, &declared.inspected.manifest.version.to_string(), &by));
    }
    if ask.activate {
        let activating = Activating { digest, manifest: &declared.inspected.manifest, yes };
        activating.check(&app, &mut tx).await?;
        kinds::switch(&mut tx, &name, digest, app.now()).await?;
    }
    let kind = kinds::find(&mut tx, Some(&name), Some(digest)).await?.ok_or_else(|| unknown(&name))?;
    tx.commit().await?;
    Ok(Json(document(kind)?))
}

/// The component's digest, and the signature that came with it.
struct Signed {
    digest: String,
    found: Option<KindSignature>,
}

/// Reads the signature of a component that was sent.
fn signature(ask: &RegisterKind, digest: String) -> Result<Signed, Failure> {
    let mut rules = Rules::default();
    let (publisher, signature) = (ask.publisher.as_deref(), ask.signature.as_deref());
    rules.rule(publisher.is_some() == signature.is_some(), "signature", "publisher and signature go together");
    let publisher = publisher.map(str::parse::<PublicKey>);
    rules.rule(!matches!(publisher, Some(Err(_))), "publisher", "must be an Ed25519 key, 64 hexadecimal digits");
    let signature = signature.map(|text| serde_json::from_value(text.into()));
    rules.rule(!matches!(signature, Some(Err(_))), "signature", "must be 128 hexadecimal digits");
    rules.check()?;
    let found = match (publisher, signature) {
        (Some(Ok(publisher)), Some(Ok(signature))) => {
            Some(KindSignature { digest: digest.clone(), publisher, signature })
        }
        _ => None,
    };
    Ok(Signed { digest, found })
}

fn told(untrusted: &Untrusted) -> String {
    format!("{untrusted} → {}", untrusted.remedy())
}

/// What the caller says to a component that may do more.
#[derive(Debug, Clone, Copy)]
struct Yes {
    accept_wider: bool,
    /// A batch of the caller's tenant.
    batch: Option<(TenantId, BatchId)>,
}

impl Yes {
    fn check(caller: &Caller, accept_wider: bool, batch: Option<&str>) -> Result<Self, Failure> {
        let mut rules = Rules::default();
        let batch = batch.map(|text| rules.id("batchId", text));
        rules.check()?;
        Ok(Self { accept_wider, batch: batch.map(|batch| (caller.holder.tenant, batch)) })
    }
}

/// A component that is to take new commands.
struct Activating<'a> {
    digest: Digest,
    manifest: &'a Manifest,
    yes: Yes,
}

impl Activating<'_> {
    /// Whether it may: it may do no more than the one in service, or somebody says yes to that; and where a quorum is configured,
    /// enough people do. The name is locked.
    async fn check(&self, app: &App, db: &mut PgConnection) -> Result<(), Failure> {
        let name = &self.manifest.name;
        let Some(old) = kinds::in_service(db, name, self.digest).await? else { return Ok(()) };
        let old: Manifest = manifest(old, name)?;
        let diff = Diff::between(&old, self.manifest);
        if !diff.needs_yes {
            return Ok(());
        }
        let lines = diff.lines().join("; ");
        let details = |reason: &str| json!({ "reason": reason, "diff": diff });
        if !self.yes.accept_wider {
            let message = format!("{name} {} may do more than {}: {lines}; say acceptWider", diff.to, diff.from);
            return Err(Failure::new(Code::InvalidState, message).with(details("wider-grant")));
        }
        if let Some(policy) = &app.config.pki.approvers
            && !self.approved(db, policy, app.now()).await?
        {
            let message = format!(
                "{name} {} may do more than {}: {lines}; that needs an approved batch with the leaf subject {name}, kind {}, \
                 payloadSha256 {}",
                diff.to,
                diff.from,
                quorum::ACTIVATE,
                hex::encode(self.digest),
            );
            return Err(Failure::new(Code::InvalidState, message).with(details("batch-required")));
        }
        Ok(())
    }

    async fn approved(&self, db: &mut PgConnection, policy: &Policy, now: OffsetDateTime) -> Result<bool, Failure> {
        let Some((tenant, batch)) = self.yes.batch else { return Ok(false) };
        let leaf = quorum::leaf(&self.manifest.name, self.digest);
        Ok(quorum::allows(db, policy, (tenant, batch), &leaf, now).await?)
    }
}

fn manifest(stored: serde_json::Value, row: &str) -> Result<Manifest, Failure> {
    serde_json::from_value(stored).map_err(|_| Failure::internal(&crate::store::corrupt("kinds", "manifest", row)))
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
/// The one that did is retired; its commands still run with it. An older digest rolls back. One that may do more than the one in
/// service, or is watched less, needs `acceptWider`, and an approved batch where a quorum is configured.
#[utoipa::path(post, path = "/v1/kinds.activate", operation_id = "kinds.activate", tag = "kinds",
    request_body = ActivateKind, responses((status = 200, description = "The kind", body = types::Kind), Errors))]
pub(super) async fn activate(
    State(app): State<App>,
    caller: Caller,
    Body(ask): Body<ActivateKind>,
) -> Result<Json<types::Kind>, Failure> {
    let yes = Yes::check(&caller, ask.accept_wider, ask.batch_id.as_deref())?;
    let named = Named::check(KindRef { name: ask.name, digest: ask.digest })?;
    if named.digest.is_none() {
        return Err(Failure::field("digest", "is missing: a name alone does not say which of its components"));
    }
    change(&app, &caller, &named, Some(yes)).await
}

/// Take a component out of service for new commands. Those bound to it still run.
#[utoipa::path(post, path = "/v1/kinds.retire", operation_id = "kinds.retire", tag = "kinds",
    request_body = KindRef, responses((status = 200, description = "The kind", body = types::Kind), Errors))]
pub(super) async fn retire(
    State(app): State<App>,
    caller: Caller,
    Body(ask): Body<KindRef>,
) -> Result<Json<types::Kind>, Failure> {
    change(&app, &caller, &Named::check(ask)?, None).await
}

async fn change(
    app: &App,
    caller: &Caller,
    named: &Named,
    activate: Option<Yes>,
) -> Result<Json<types::Kind>, Failure> {
    let found = named.find(app, caller, KINDS_WRITE).await?;
    let mut db = app.db().await?;
    let mut tx = db.begin().await?;
    kinds::lock(&mut tx, &found.name).await?;
    if let Some(yes) = activate {
        let digest = hex::encode(found.digest);
        // The publishers may have changed since it was registered.
        let verified = publishing::check(&app.config.pki.publishers, &digest, found.signature.as_ref());
        verified.map_err(|untrusted| Failure::state(untrusted.reason(), told(&untrusted)))?;
        let manifest = manifest(found.manifest.clone(), &found.name)?;
        Activating { digest: found.digest, manifest: &manifest, yes }.check(app, &mut tx).await?;
        kinds::switch(&mut tx, &found.name, found.digest, app.now()).await?;
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
        publisher: kind.signature.map(|it| it.publisher.to_string()),
        created_at: kind.created_at,
    })
}
