//! `kinds`: the registered components.
//!
//! **Invariant:** a component is never changed or deleted, since commands are bound to its digest; at most one of a name is
//! active, and a version means one component for good.

use bc_proto::manifest::Manifest;
use bc_proto::rules::publishing::KindSignature;
use bc_proto::sign::{PublicKey, Signature};
use serde_json::Value;
use sqlx::{PgConnection, PgTransaction};
use time::OffsetDateTime;

use super::{Error, code, corrupt, signed, unsigned};

/// SHA-256 of a component.
pub type Digest = [u8; 32];

/// A registered component, less its bytes.
#[derive(Debug, Clone, PartialEq)]
pub struct Kind {
    /// SHA-256 of the component.
    pub digest: Digest,
    /// The kind's name.
    pub name: String,
    /// The component's version.
    pub version: String,
    /// `active`, `retired` or `withdrawn`.
    pub status: String,
    /// Whether an operator exposed it to `commands.run`.
    pub is_exposed: bool,
    /// `control`, `provision` or `bulk`.
    pub lane: String,
    /// How long a run may take, milliseconds.
    pub timeout_ms: u64,
    /// Its traits, as words.
    pub traits: Vec<String>,
    /// The manifest, as JSON.
    pub manifest: Value,
    /// Its publisher's signature; `None` for one that is not signed.
    pub signature: Option<KindSignature>,
    /// When it was registered.
    pub created_at: OffsetDateTime,
}

/// A component to register.
#[derive(Debug, Clone, Copy)]
pub struct NewKind<'a> {
    /// SHA-256 of the component.
    pub digest: Digest,
    /// What it declares.
    pub manifest: &'a Manifest,
    /// Its bytes.
    pub component: &'a [u8],
    /// Whether `commands.run` is to accept it; `None` leaves that as it is: for a new one, as the active one of its name has it.
    pub is_exposed: Option<bool>,
    /// Its publisher's signature, verified; `None` leaves what is there.
    pub signature: Option<&'a KindSignature>,
}

/// What became of a component.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Registration {
    /// It is new.
    Registered,
    /// It was there.
    Existing,
    /// Its version means another component.
    Taken {
        /// That component.
        by: Vec<u8>,
    },
}

/// Keeps others from changing which component of a name is active, until the transaction ends.
pub async fn lock(db: &mut PgTransaction<'_>, name: &str) -> Result<(), Error> {
    sqlx::query!("select pg_advisory_xact_lock(hashtextextended('kind/' || $1, 0))", name).execute(&mut **db).await?;
    Ok(())
}

/// Registers a component, as a retired one if it is new. The name is locked.
pub async fn register(db: &mut PgConnection, kind: NewKind<'_>, now: OffsetDateTime) -> Result<Registration, Error> {
    let existing = sqlx::query_scalar!(
        "select digest from kinds where name = $1 and version = $2",
        kind.manifest.name,
        kind.manifest.version.to_string(),
    )
    .fetch_optional(&mut *db)
    .await?;
    match existing {
        Some(digest) if digest != kind.digest => return Ok(Registration::Taken { by: digest }),
        Some(_) => {
            if let Some(is_exposed) = kind.is_exposed {
                expose(db, kind.digest, is_exposed).await?;
            }
            if let Some(signature) = kind.signature {
                sign(db, kind.digest, signature).await?;
            }
            return Ok(Registration::Existing);
        }
        None => {}
    }
    insert(db, kind, "retired", now).await?;
    Ok(Registration::Registered)
}

async fn expose(db: &mut PgConnection, digest: Digest, is_exposed: bool) -> Result<(), Error> {
    sqlx::query!("update kinds set exposed = $2 where digest = $1", &digest[..], is_exposed).execute(db).await?;
    Ok(())
}

async fn sign(db: &mut PgConnection, digest: Digest, signature: &KindSignature) -> Result<(), Error> {
    sqlx::query!(
        "update kinds set publisher = $2, publisher_sig = $3 where digest = $1",
        &digest[..],
        &signature.publisher.as_bytes()[..],
        &signature.signature.as_bytes()[..],
    )
    .execute(db)
    .await?;
    Ok(())
}

async fn insert(db: &mut PgConnection, kind: NewKind<'_>, status: &str, now: OffsetDateTime) -> Result<(), Error> {
    let manifest = kind.manifest;
    let traits: Vec<String> = manifest.traits.iter().map(|&it| code::trait_of_kind(it).to_owned()).collect();
    let json = serde_json::to_value(manifest).expect("a manifest has string keys and finite numbers");
    let timeout_ms = u64::try_from(manifest.timeout.0.as_millis()).unwrap_or(u64::MAX);
    sqlx::query!(
        "insert into kinds (digest, name, version, lane, timeout_ms, traits, manifest, component, status, created_at,
                            exposed, publisher, publisher_sig, activated_at)
         values ($1, $2, $3, $4::text::lane, $5, $6, $7, $8, $9::text::kind_status, $10::timestamptz,
                 coalesce($11, (select exposed from kinds where name = $2 and status = 'active'), false),
                 $12, $13, case when $9 = 'active' then $10::timestamptz end)
         on conflict (digest) do update
         set status = excluded.status, activated_at = coalesce(excluded.activated_at, kinds.activated_at)",
        &kind.digest[..],
        manifest.name,
        manifest.version.to_string(),
        code::lane(manifest.lane),
        signed(timeout_ms),
        &traits,
        json,
        kind.component,
        status,
        now,
        kind.is_exposed,
        kind.signature.map(|it| it.publisher.as_bytes().to_vec()),
        kind.signature.map(|it| it.signature.as_bytes().to_vec()),
    )
    .execute(db)
    .await?;
    Ok(())
}

/// Registers a component and makes it the active one of its name; registering the same again changes nothing else. In a
/// transaction of the caller's: two statements.
pub async fn activate(
    db: &mut PgConnection,
    digest: Digest,
    manifest: &Manifest,
    component: &[u8],
    now: OffsetDateTime,
) -> Result<(), Error> {
    retire_others(db, &manifest.name, digest).await?;
    insert(db, NewKind { digest, manifest, component, is_exposed: None, signature: None }, "active", now).await
}

async fn retire_others(db: &mut PgConnection, name: &str, digest: Digest) -> Result<(), Error> {
    sqlx::query!(
        "update kinds set status = 'retired' where name = $1 and status = 'active' and digest <> $2",
        name,
        &digest[..],
    )
    .execute(db)
    .await?;
    Ok(())
}

/// Makes a registered component the active one of its name, and retires the one that was. The name is locked.
pub async fn switch(db: &mut PgConnection, name: &str, digest: Digest, now: OffsetDateTime) -> Result<(), Error> {
    retire_others(db, name, digest).await?;
    sqlx::query!(
        "update kinds set status = 'active', activated_at = case when status = 'active' then activated_at else $3 end
         where name = $1 and digest = $2",
        name,
        &digest[..],
        now,
    )
    .execute(db)
    .await?;
    Ok(())
}

/// The manifest of the component that is in service for a name, or was last, other than this one. The name is locked.
pub async fn in_service(db: &mut PgConnection, name: &str, other_than: Digest) -> Result<Option<Value>, Error> {
    Ok(sqlx::query_scalar!(
        "select manifest from kinds where name = $1 and digest <> $2 and activated_at is not null
         order by status = 'active' desc, activated_at desc limit 1",
        name,
        &other_than[..],
    )
    .fetch_optional(db)
    .await?)
}

/// Retires an active component: no new commands, those bound to it still run. Any other stays as it is.
pub async fn retire(db: &mut PgConnection, digest: Digest) -> Result<(), Error> {
    sqlx::query!("update kinds set status = 'retired' where digest = $1 and status = 'active'", &digest[..])
        .execute(db)
        .await?;
    Ok(())
}

/// Takes a name out of service: no new commands, and those bound to its components get the timeout of a kind that is no
/// longer registered when they are sent.
pub async fn withdraw(db: &mut PgConnection, name: &str) -> Result<bool, Error> {
    let done = sqlx::query!("update kinds set status = 'withdrawn' where name = $1 and status <> 'withdrawn'", name)
        .execute(db)
        .await?;
    Ok(done.rows_affected() > 0)
}

/// The component with a digest, or the active one of a name; of both, the one that fits both.
pub async fn find(db: &mut PgConnection, name: Option<&str>, digest: Option<Digest>) -> Result<Option<Kind>, Error> {
    let digest = digest.map(|digest| digest.to_vec());
    let row = sqlx::query_as!(
        Row,
        r#"select digest, name, version, status::text as "status!", exposed, lane::text as "lane!", timeout_ms, traits,
             manifest, created_at, publisher, publisher_sig
           from kinds
           where ($1::text is null or name = $1) and ($2::bytea is null and status = 'active' or digest = $2)"#,
        name,
        digest,
    )
    .fetch_optional(db)
    .await?;
    row.map(Kind::try_from).transpose()
}

/// Components by name, of one name the newest first: the active ones, or all.
pub async fn list(db: &mut PgConnection, with_inactive: bool) -> Result<Vec<Kind>, Error> {
    let rows = sqlx::query_as!(
        Row,
        r#"select digest, name, version, status::text as "status!", exposed, lane::text as "lane!", timeout_ms, traits,
             manifest, created_at, publisher, publisher_sig
           from kinds where $1 or status = 'active' order by name, created_at desc, digest"#,
        with_inactive,
    )
    .fetch_all(db)
    .await?;
    rows.into_iter().map(Kind::try_from).collect()
}

struct Row {
    digest: Vec<u8>,
    name: String,
    version: String,
    status: String,
    exposed: bool,
    lane: String,
    timeout_ms: i64,
    traits: Vec<String>,
    manifest: Value,
    created_at: OffsetDateTime,
    publisher: Option<Vec<u8>>,
    publisher_sig: Option<Vec<u8>>,
}

/// What the two columns of a signature hold.
pub(crate) fn signature_of(
    digest: &[u8],
    publisher: Option<Vec<u8>>,
    signature: Option<Vec<u8>>,
) -> Result<Option<KindSignature>, Error> {
    let (Some(publisher), Some(signature)) = (publisher, signature) else { return Ok(None) };
    let digest = hex::encode(digest);
    let publisher = publisher.try_into().ok().and_then(|bytes| PublicKey::from_bytes(bytes).ok());
    let publisher = publisher.ok_or_else(|| corrupt("kinds", "publisher", &digest))?;
    let signature = Signature::from_slice(&signature).map_err(|_| corrupt("kinds", "publisher_sig", &digest))?;
    Ok(Some(KindSignature { digest, publisher, signature }))
}

impl TryFrom<Row> for Kind {
    type Error = Error;

    fn try_from(row: Row) -> Result<Self, Error> {
        let named = format!("{} {}", row.name, row.version);
        Ok(Self {
            signature: signature_of(&row.digest, row.publisher, row.publisher_sig)?,
            digest: row.digest.try_into().map_err(|_| corrupt("kinds", "digest", &named))?,
            timeout_ms: unsigned("kinds", "timeout_ms", &named, row.timeout_ms)?,
            name: row.name,
            version: row.version,
            status: row.status,
            is_exposed: row.exposed,
            lane: row.lane,
            traits: row.traits,
            manifest: row.manifest,
            created_at: row.created_at,
        })
    }
}
