//! The first token: somebody has to be able to make the others.
//!
//! **Invariant:** doing it again adds a token and changes nothing else.

use bc_proto::id::TenantId;
use bc_proto::rules::permission::Grant;
use sqlx::PgPool;

use super::auth;
use crate::store::{Error, grants, identities, tenants, tokens};
use crate::world::World;

/// The identity that may do everything within its tenant.
const ADMIN: &str = "admin";

/// A tenant of this name with an identity `admin` that may do everything in it, and a new token of that identity. What is there
/// already stays. The same randomness gives the same token.
pub async fn admin(pool: &PgPool, tenant_name: &str, world: &World) -> Result<(TenantId, String), Error> {
    let (token, now) = (auth::token(world.bytes()), world.now());
    let mut tx = pool.begin().await?;
    let tenant = tenants::ensure(&mut tx, TenantId::from_uuid(world.uuid()), tenant_name, now).await?;
    let identity = identities::ensure(&mut tx, world.uuid(), tenant, ADMIN, now).await?;
    grants::add(&mut tx, identity.id, &[Grant::new("compute:*", "*")], now).await?;
    tokens::create(&mut tx, auth::hash(&token), identity.id, "bootstrap", None, now).await?;
    tx.commit().await?;
    Ok((tenant, token))
}
