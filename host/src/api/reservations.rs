//! `reservations.create`, `release`, `get` and `list`.
//!
//! **Invariant:** a reservation and the spec that asks the node for it are one transaction: neither is seen without the other.

use axum::Json;
use axum::extract::State;
use bc_proto::id::{AllocationId, NodeId, TenantId};
use serde_json::json;

use super::auth::{Caller, NODES_READ, RESERVATIONS_WRITE};
use super::commands::queue_key;
use super::error::Failure;
use super::extract::{Body, Rules};
use super::openapi::Errors;
use super::types::{self, Code, CreateReservation, ListReservations, Page, ReservationRef};
use super::{App, cursor, specs};
use crate::bus::Signal;
use crate::desired::{self, Author, NewReservation, Reserving};
use crate::store::nodes;
use crate::store::reservations::{self, Reservation, State as Standing};

/// The highest slot of a GPU.
const MAX_SLOT: u32 = 1_023;

/// Reserve a GPU, or a slot of one.
///
/// It stands in the next generation of the node's spec, and is active once the node has signed that it holds the GPU. The same
/// key again answers the reservation as it stands.
#[utoipa::path(post, path = "/v1/reservations.create", operation_id = "reservations.create", tag = "reservations",
    request_body = CreateReservation,
    responses((status = 200, description = "The reservation", body = types::Reservation), Errors))]
pub(super) async fn create(
    State(app): State<App>,
    caller: Caller,
    Body(ask): Body<CreateReservation>,
) -> Result<Json<types::Reservation>, Failure> {
    let mut rules = Rules::default();
    let tenant = rules.tenant(&ask.tenant_id);
    let node: NodeId = rules.id("nodeId", &ask.node_id);
    specs::gpu(&mut rules, "gpu", &ask.gpu);
    let is_slot = ask.slot.is_none_or(|slot| slot <= MAX_SLOT);
    rules.rule(is_slot, "slot", format!("must be between 0 and {MAX_SLOT}"));
    rules.text("idempotencyKey", &ask.idempotency_key, 1, 200);
    rules.check()?;
    caller.tenant(tenant)?;
    caller.on_node(RESERVATIONS_WRITE, node)?;
    let new = NewReservation {
        id: AllocationId::from_uuid(app.world.uuid()),
        gpu: ask.gpu,
        slot: ask.slot,
        idempotency_key: queue_key(tenant, &caller, &ask.idempotency_key),
    };
    let gpu = new.gpu.clone();
    let author = Author { signer: &app.signer, name: &caller.holder.name, now: app.now() };
    let mut tx = app.pool.begin().await?;
    match desired::reserve(&mut tx, author, (tenant, node), new).await? {
        Reserving::Made(reservation) => {
            tx.commit().await?;
            app.bus.tell(Signal::Spec { node });
            app.bus.tell(Signal::Events);
            Ok(Json(document(reservation)))
        }
        Reserving::Existing(reservation) => Ok(Json(document(reservation))),
        Reserving::Conflict(other) => {
            let message = format!("idempotencyKey: means {} already, which is of another GPU", other.id);
            Err(Failure::new(Code::Conflict, message).with(json!({ "reservationId": other.id.to_string() })))
        }
        Reserving::Taken(by) => {
            let message = format!("{gpu} is reserved by {by}; release that, or reserve another one");
            let details = json!({ "reason": "gpu-reserved", "gpu": gpu, "reservationId": by.to_string() });
            Err(Failure::new(Code::InvalidState, message).with(details))
        }
        Reserving::Quarantined(quarantine) => Err(super::quarantines::set_apart(node, &quarantine)),
        Reserving::UnknownNode => Err(Failure::not_found("node", node)),
    }
}

/// Give a reservation back. One that was before stays as it is.
#[utoipa::path(post, path = "/v1/reservations.release", operation_id = "reservations.release", tag = "reservations",
    request_body = ReservationRef,
    responses((status = 200, description = "The reservation", body = types::Reservation), Errors))]
pub(super) async fn release(
    State(app): State<App>,
    caller: Caller,
    Body(ask): Body<ReservationRef>,
) -> Result<Json<types::Reservation>, Failure> {
    let (tenant, node, id) = named(&caller, RESERVATIONS_WRITE, &ask)?;
    let author = Author { signer: &app.signer, name: &caller.holder.name, now: app.now() };
    let mut tx = app.pool.begin().await?;
    let released = desired::release(&mut tx, author, (tenant, node), id).await?;
    let (reservation, is_new) = released.ok_or_else(|| Failure::not_found("reservation", id))?;
    if is_new {
        tx.commit().await?;
        app.bus.tell(Signal::Spec { node });
        app.bus.tell(Signal::Events);
    }
    Ok(Json(document(reservation)))
}

/// Show a reservation.
#[utoipa::path(post, path = "/v1/reservations.get", operation_id = "reservations.get", tag = "reservations",
    request_body = ReservationRef,
    responses((status = 200, description = "The reservation", body = types::Reservation), Errors))]
pub(super) async fn get(
    State(app): State<App>,
    caller: Caller,
    Body(ask): Body<ReservationRef>,
) -> Result<Json<types::Reservation>, Failure> {
    let (tenant, node, id) = named(&caller, NODES_READ, &ask)?;
    let found = reservations::find(&mut *app.db().await?, tenant, id).await?.filter(|found| found.node == node);
    found.map(|found| Json(document(found))).ok_or_else(|| Failure::not_found("reservation", id))
}

fn named(caller: &Caller, permission: &str, ask: &ReservationRef) -> Result<(TenantId, NodeId, AllocationId), Failure> {
    let mut rules = Rules::default();
    let tenant = rules.tenant(&ask.tenant_id);
    let node = rules.id("nodeId", &ask.node_id);
    let id = rules.id("reservationId", &ask.reservation_id);
    rules.check()?;
    caller.tenant(tenant)?;
    caller.on_node(permission, node)?;
    Ok((tenant, node, id))
}

/// List a node's reservations, newest first.
#[utoipa::path(post, path = "/v1/reservations.list", operation_id = "reservations.list", tag = "reservations",
    request_body = ListReservations,
    responses((status = 200, description = "A page of them", body = Page<types::Reservation>), Errors))]
pub(super) async fn list(
    State(app): State<App>,
    caller: Caller,
    Body(ask): Body<ListReservations>,
) -> Result<Json<Page<types::Reservation>>, Failure> {
    let mut rules = Rules::default();
    let tenant = rules.tenant(&ask.tenant_id);
    let node: NodeId = rules.id("nodeId", &ask.node_id);
    let state = ask.state.as_deref().map(|word| Standing::ALL.into_iter().find(|it| it.to_string() == word));
    rules.rule(state != Some(None), "state", "must be requested, active or released");
    let limit = rules.number("limit", ask.limit, 1, reservations::MAX_PAGE, super::DEFAULT_PAGE);
    let below = ask.cursor.as_deref().map(cursor::open::<AllocationId>);
    rules.rule(below != Some(None), "cursor", cursor::RULE);
    rules.check()?;
    caller.tenant(tenant)?;
    caller.on_node(NODES_READ, node)?;
    let mut db = app.db().await?;
    // One more than asked says whether there is another page.
    let mut found = reservations::list(&mut db, tenant, node, state.flatten(), below.flatten(), limit + 1).await?;
    if found.is_empty() && nodes::find(&mut db, tenant, node).await?.is_none() {
        return Err(Failure::not_found("node", node));
    }
    let has_more = found.len() > limit as usize;
    found.truncate(limit as usize);
    let next_cursor = found.last().filter(|_| has_more).map(|last| cursor::seal(&last.id));
    Ok(Json(Page { items: found.into_iter().map(document).collect(), next_cursor }))
}

fn document(found: Reservation) -> types::Reservation {
    let (bound, bound_sig) = found.bound.unzip();
    types::Reservation {
        id: found.id.to_string(),
        tenant_id: found.tenant.to_string(),
        node_id: found.node.to_string(),
        gpu: found.gpu,
        slot: found.slot,
        state: found.state.to_string(),
        generation: found.generation,
        bound: bound.map(|body| String::from_utf8_lossy(&body).into_owned()),
        bound_sig: bound_sig.map(hex::encode),
        created_at: found.created_at,
        created_by: found.created_by,
        active_at: found.active_at,
        released_at: found.released_at,
    }
}
