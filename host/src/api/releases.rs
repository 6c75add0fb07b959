//! `releases.push`, `list` and `get`: binaries of the daemon.
//!
//! They belong to the whole control plane, as kinds do; who may push one is who may register the kind that installs it.
//!
//! **Invariant:** a file is never in memory whole, and nothing of it stays unless all of it came and has the digest that was said.

use axum::Json;
use axum::extract::{Request, State};
use bc_proto::rules::releases::{self as rules, MAX_BYTES, ReleaseSignature};
use bc_proto::sign::PublicKey;
use bc_proto::sign::body::ReleaseBody;
use futures_util::StreamExt as _;
use semver::Version;
use sha2::{Digest as _, Sha256};
use sqlx::{Connection as _, PgTransaction};

use super::App;
use super::auth::{Caller, KINDS_READ, KINDS_WRITE};
use super::error::Failure;
use super::extract::{self, Ask, Body, Rules};
use super::openapi::Errors;
use super::types::{self, Code, ListReleases, Page, PushRelease, ReleaseRef};
use crate::store::kinds::Digest;
use crate::store::releases::{self, CHUNK_BYTES, Release};

/// The kind that installs releases: its permissions are theirs.
pub(super) const KIND: &str = "daemon.upgrade";

/// The most releases in one answer.
const MAX_LIST: u32 = 200;

/// Push a binary of the daemon.
///
/// The signature is checked before a byte is read, the digest when all have come. The same file again changes nothing.
#[utoipa::path(post, path = "/v1/releases.push", operation_id = "releases.push", tag = "releases",
    params(PushRelease),
    request_body(content = Vec<u8>, content_type = "application/octet-stream", description = "The file"),
    responses((status = 200, description = "The release", body = types::Release), Errors))]
pub(super) async fn push(
    State(app): State<App>,
    caller: Caller,
    Ask(ask): Ask<PushRelease>,
    request: Request,
) -> Result<Json<types::Release>, Failure> {
    caller.on_kind(KINDS_WRITE, KIND)?;
    if !extract::is_type(request.headers(), "application/octet-stream") {
        return Err(Failure::field("Content-Type", "must be application/octet-stream"));
    }
    let (sha256, signature) = checked(&ask)?;
    let body = ReleaseBody { version: &ask.version, sha256: &ask.sha256, target: &ask.target };
    // Where no publishers are named anything is kept; each node decides for itself what it takes.
    let verified = rules::check(&app.config.pki.publishers, &body, signature.as_ref(), true);
    verified.map_err(|untrusted| Failure::field("signature", untrusted.to_string()).because("untrusted"))?;
    let mut db = app.db().await?;
    let mut tx = db.begin().await?;
    releases::lock(&mut tx, &ask.version, &ask.target).await?;
    match releases::of_version(&mut tx, &ask.version, &ask.target).await? {
        Some(known) if known.sha256 == sha256 => return Ok(Json(document(known))),
        Some(known) => {
            let known = hex::encode(known.sha256);
            let message =
                format!("version {} for {} is sha256:{known}: a version means one file", ask.version, ask.target);
            return Err(Failure::state("version-taken", message));
        }
        None => {}
    }
    if releases::find(&mut tx, sha256).await?.is_some() {
        return Err(Failure::state("file-taken", "this file was pushed as another version"));
    }
    let size_bytes = take(&mut tx, sha256, request).await?;
    let release = Release {
        sha256,
        version: ask.version,
        target: ask.target,
        size_bytes,
        signature,
        pushed_by: caller.holder.name.clone(),
        pushed_at: app.now(),
    };
    releases::insert(&mut tx, &release).await?;
    tx.commit().await?;
    Ok(Json(document(release)))
}

/// Writes the body in pieces; answers its size.
async fn take(tx: &mut PgTransaction<'_>, sha256: Digest, request: Request) -> Result<u64, Failure> {
    let (mut hash, mut size, mut seq) = (Sha256::new(), 0_u64, 0);
    let mut piece: Vec<u8> = Vec::with_capacity(CHUNK_BYTES);
    let mut body = request.into_body().into_data_stream();
    while let Some(bytes) = body.next().await {
        let bytes = bytes.map_err(|_| Failure::field("", "the body ended before it was whole"))?;
        size += bytes.len() as u64;
        if size > MAX_BYTES {
            return Err(Failure::new(Code::TooLarge, format!("the body is larger than {MAX_BYTES} bytes")));
        }
        hash.update(&bytes);
        let mut rest = &bytes[..];
        while piece.len() + rest.len() >= CHUNK_BYTES {
            let (now, later) = rest.split_at(CHUNK_BYTES - piece.len());
            piece.extend_from_slice(now);
            releases::insert_chunk(tx, sha256, seq, &piece).await?;
            (rest, seq) = (later, seq + 1);
            piece.clear();
        }
        piece.extend_from_slice(rest);
    }
    if !piece.is_empty() {
        releases::insert_chunk(tx, sha256, seq, &piece).await?;
    }
    let found: Digest = hash.finalize().into();
    if found != sha256 {
        return Err(Failure::field("sha256", format!("the body has the digest {}", hex::encode(found))));
    }
    Ok(size)
}

/// The digest, and the signature that came with it.
fn checked(ask: &PushRelease) -> Result<(Digest, Option<ReleaseSignature>), Failure> {
    let mut rules = Rules::default();
    let is_version = ask.version.len() <= 64 && ask.version.parse::<Version>().is_ok();
    rules.rule(is_version, "version", "must be a semantic version");
    rules.rule(rules::is_target(&ask.target), "target", "must be a target such as x86_64-unknown-linux-gnu");
    let sha256 = digest("sha256", &ask.sha256, &mut rules);
    let (publisher, signature) = (ask.publisher.as_deref(), ask.signature.as_deref());
    rules.rule(publisher.is_some() == signature.is_some(), "signature", "publisher and signature go together");
    let publisher = publisher.map(str::parse::<PublicKey>);
    rules.rule(!matches!(publisher, Some(Err(_))), "publisher", "must be an Ed25519 key, 64 hexadecimal digits");
    let signature = signature.map(|text| serde_json::from_value(text.into()));
    rules.rule(!matches!(signature, Some(Err(_))), "signature", "must be 128 hexadecimal digits");
    rules.check()?;
    let signature = match (publisher, signature) {
        (Some(Ok(publisher)), Some(Ok(signature))) => Some(ReleaseSignature { publisher, signature }),
        _ => None,
    };
    Ok((sha256, signature))
}

/// A SHA-256; zeros stand in for text that is none until the rules are checked.
pub(super) fn digest(field: &str, text: &str, rules: &mut Rules) -> Digest {
    // In one form, since the text itself is signed.
    let is_lower = !text.bytes().any(|byte| byte.is_ascii_uppercase());
    let bytes = hex::decode(text).ok().filter(|_| is_lower).and_then(|bytes| bytes.try_into().ok());
    rules.rule(bytes.is_some(), field, "must be 64 hexadecimal digits in lower case");
    bytes.unwrap_or_default()
}

/// List binaries of the daemon, newest first; at most 200.
#[utoipa::path(post, path = "/v1/releases.list", operation_id = "releases.list", tag = "releases",
    request_body = ListReleases, responses((status = 200, description = "The releases", body = Page<types::Release>), Errors))]
pub(super) async fn list(
    State(app): State<App>,
    caller: Caller,
    Body(_): Body<ListReleases>,
) -> Result<Json<Page<types::Release>>, Failure> {
    caller.on_kind(KINDS_READ, KIND)?;
    let found = releases::list(&mut *app.db().await?, MAX_LIST).await?;
    Ok(Json(Page { items: found.into_iter().map(document).collect(), next_cursor: None }))
}

/// Get a binary of the daemon by its digest.
#[utoipa::path(post, path = "/v1/releases.get", operation_id = "releases.get", tag = "releases",
    request_body = ReleaseRef, responses((status = 200, description = "The release", body = types::Release), Errors))]
pub(super) async fn get(
    State(app): State<App>,
    caller: Caller,
    Body(ask): Body<ReleaseRef>,
) -> Result<Json<types::Release>, Failure> {
    let mut rules = Rules::default();
    let sha256 = digest("sha256", &ask.sha256, &mut rules);
    rules.check()?;
    caller.on_kind(KINDS_READ, KIND)?;
    let found = releases::find(&mut *app.db().await?, sha256).await?;
    found.map(|it| Json(document(it))).ok_or_else(|| Failure::not_found("release", ask.sha256))
}

fn document(release: Release) -> types::Release {
    types::Release {
        sha256: hex::encode(release.sha256),
        version: release.version,
        target: release.target,
        size_bytes: release.size_bytes,
        publisher: release.signature.map(|it| it.publisher.to_string()),
        pushed_by: release.pushed_by,
        pushed_at: release.pushed_at,
    }
}
