//! `worker_keys`: the keys whose signatures stand in other tables, and signatures as rows hold them.
//!
//! **Invariant:** only public halves are here. A key has one id for good.

use bc_proto::sign::{Signature, WorkerKey, WorkerSignature};
use bc_proto::wire::v1;
use prost::Message as _;
use sqlx::PgConnection;
use time::OffsetDateTime;

use super::{Error, corrupt, unix_ms};

/// How often it is looked at again. Somebody who inserted it at the same time has committed after the first.
const ATTEMPTS: u32 = 3;

/// A key as its column holds it.
pub fn certificate(key: &WorkerKey) -> Vec<u8> {
    v1::WorkerKey::from(*key).encode_to_vec()
}

/// The id of a key, which gets one if it has none.
pub async fn id(db: &mut PgConnection, key: &WorkerKey, now: OffsetDateTime) -> Result<i32, Error> {
    let certificate = certificate(key);
    for _ in 0..ATTEMPTS {
        let id = sqlx::query_scalar!(
            r#"with made as (
                insert into worker_keys (certificate, created_at)
                select $1, $2 where not exists (select from worker_keys where certificate = $1)
                on conflict (certificate) do nothing
                returning id
               )
               select id as "id!" from made union all select id from worker_keys where certificate = $1"#,
            certificate,
            now,
        )
        .fetch_optional(&mut *db)
        .await?;
        if let Some(id) = id {
            return Ok(id);
        }
    }
    Err(corrupt("worker_keys", "certificate", key.key))
}

/// A signature out of its columns, made by a worker key at a time; `None` where the row is unsigned.
pub fn stored(
    table: &'static str,
    row: impl ToString,
    signature: Option<Vec<u8>>,
    worker: Option<Vec<u8>>,
    at: Option<OffsetDateTime>,
) -> Result<Option<WorkerSignature>, Error> {
    let Some(signature) = signature else { return Ok(None) };
    let signature = Signature::from_slice(&signature).ok();
    let worker = worker.and_then(|worker| v1::WorkerKey::decode(&*worker).ok());
    let worker = worker.and_then(|worker| WorkerKey::try_from(worker).ok());
    match (signature, worker, at) {
        (Some(signature), Some(worker), Some(at)) => {
            Ok(Some(WorkerSignature { worker, issued_at_ms: unix_ms(at), signature }))
        }
        _ => Err(corrupt(table, "signature", row)),
    }
}
