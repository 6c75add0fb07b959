//! The OpenAPI document: `GET /v1/openapi.json`.
//!
//! **Invariant:** it is made of the same declarations as the router, so a method that can be called stands in it.

use std::sync::LazyLock;

use axum::Json;
use utoipa::openapi::security::{Http, HttpAuthScheme, SecurityScheme};
use utoipa::{Modify, OpenApi};

use super::types::{self, ErrorBody};

/// The document, before the methods are added.
#[derive(OpenApi)]
#[openapi(
    info(title = "better-compute", description = "Commands on compute nodes: durable, delivered once, checked by the kind."),
    components(schemas(types::Event, ErrorBody, crate::bus::Progress)),
    modifiers(&Bearer),
    security(("token" = [])),
    tags(
        (name = "commands", description = "One-shot actions on a node"),
        (name = "commandBatches", description = "Destructive commands that people approve together"),
        (name = "nodes", description = "Enrolled machines"),
        (name = "remediations", description = "What the control plane tried by itself to mend nodes"),
        (name = "bundles", description = "Support bundles: the files that commands uploaded"),
        (name = "workflows", description = "Wipe, deploy and accept a machine, one command after the other"),
        (name = "kinds", description = "WebAssembly components, one for each command kind"),
        (name = "tokens", description = "Who may call"),
        (name = "audit", description = "The transparency log of destructive commands"),
        (name = "events", description = "What happened"),
        (name = "webhooks", description = "Events that are sent to URLs"),
        (name = "health", description = "Whether this replica works; no token needed"),
    )
)]
pub(super) struct Document;

/// The whole document. It is the same for every replica of a version.
static WHOLE: LazyLock<utoipa::openapi::OpenApi> = LazyLock::new(|| super::methods().into_openapi());

/// This document.
#[utoipa::path(get, path = "/v1/openapi.json", operation_id = "openapi", tag = "health", security(()),
    responses((status = 200, description = "OpenAPI 3.1", content_type = "application/json", body = serde_json::Value)))]
pub(super) async fn document() -> Json<&'static utoipa::openapi::OpenApi> {
    Json(&WHOLE)
}

struct Bearer;

impl Modify for Bearer {
    fn modify(&self, document: &mut utoipa::openapi::OpenApi) {
        let mut scheme = Http::new(HttpAuthScheme::Bearer);
        scheme.description = Some("A token of tokens.create: `bct_…`".into());
        document.components.get_or_insert_default().add_security_scheme("token", SecurityScheme::Http(scheme));
    }
}

/// What every method may answer instead. The code in the body says more than the status.
#[derive(utoipa::IntoResponses)]
#[expect(dead_code, reason = "it describes answers, and is none")]
pub(super) enum Errors {
    /// INVALID_INPUT: a field breaks a rule. UNSUPPORTED: a kind that commands.run does not accept
    #[response(status = 400)]
    Invalid(ErrorBody),
    /// UNAUTHENTICATED: no token, or one that counts for nothing
    #[response(status = 401)]
    Unauthenticated(ErrorBody),
    /// PERMISSION_DENIED: the caller sees it but may not do this
    #[response(status = 403)]
    Denied(ErrorBody),
    /// NOT_FOUND: it does not exist, or not for the caller
    #[response(status = 404)]
    NotFound(ErrorBody),
    /// INVALID_STATE: the state of things forbids it now. CONFLICT: the key or the name means something else already
    #[response(status = 409)]
    Conflict(ErrorBody),
    /// TOO_LARGE: the body is larger than the limit
    #[response(status = 413)]
    TooLarge(ErrorBody),
    /// INTERNAL: a defect of the server
    #[response(status = 500)]
    Internal(ErrorBody),
    /// UNAVAILABLE: the database cannot be reached; try again
    #[response(status = 503)]
    Unavailable(ErrorBody),
}
