//! Attested results, for those who act on them.
//!
//! A workflow that wipes a disk, or gives a GPU to somebody else, asks [`of`] before it believes the result that it read. What the
//! control plane settled by itself (a timeout, a lost journal, a reboot that a hello proved) carries no node's signature and is
//! never attested.
//!
//! **Invariant:** each reader checks the signature itself, over the bytes that it read: no mark in a row stands for it.

use std::collections::HashMap;

use bc_proto::certificate::{NodeCertificate, NotANode};
use bc_proto::id::CommandId;
use bc_proto::rules::attest;
use bc_proto::sign;
use sha2::{Digest as _, Sha256};
use sqlx::PgConnection;

use crate::store::Error;
use crate::store::attestations::{self, SignedResult};
use crate::store::node_certificates::Fingerprint;

/// A result that its node signed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attested {
    /// What was checked.
    pub result: SignedResult,
    /// SHA-256 of the certificate with the key.
    pub fingerprint: Fingerprint,
}

/// Why a result does not count as its node's word.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotAttested {
    /// It is not over, its kind is not attested, or the control plane settled it.
    #[error("no node signed it")]
    Unsigned,
    /// The certificate is not the one that was named.
    #[error("the certificate that it was verified with is gone or another one")]
    NoCertificate,
    /// It cannot be read.
    #[error(transparent)]
    Certificate(#[from] NotANode),
    /// It is another node's.
    #[error("the certificate is another node's")]
    AnotherNode,
    /// It was revoked before the result came.
    #[error("the certificate was revoked before the result came")]
    Revoked,
    /// Its key is of another algorithm.
    #[error("the certificate's key is not Ed25519")]
    NotEd25519,
    /// The signature.
    #[error(transparent)]
    Signature(#[from] sign::Error),
}

/// Checks a result that was read: certificate, node, revocation, and the signature over the exact bytes.
pub fn verify(row: &SignedResult) -> Result<Fingerprint, NotAttested> {
    let der = row.certificate.as_ref().filter(|der| Sha256::digest(der)[..] == row.fingerprint[..]);
    let certificate = NodeCertificate::read(der.ok_or(NotAttested::NoCertificate)?)?;
    if certificate.node != row.node {
        return Err(NotAttested::AnotherNode);
    }
    if row.revoked_at.is_some_and(|at| at <= row.settled_at) {
        return Err(NotAttested::Revoked);
    }
    let key = certificate.key.ok_or(NotAttested::NotEd25519)?;
    attest::verify([&key], row.command, row.state, &row.result, &row.node_sig)?;
    Ok(row.fingerprint)
}

/// The result of a command, if its node attested it. Call this before acting on one.
pub async fn of(db: &mut PgConnection, command: CommandId) -> Result<Result<Attested, NotAttested>, Error> {
    let row = attestations::find_many(db, &[command]).await?.pop();
    Ok(row.ok_or(NotAttested::Unsigned).and_then(|result| Ok(Attested { fingerprint: verify(&result)?, result })))
}

/// Those of these commands whose results are attested, with the certificates that they are attested by.
pub async fn of_many(db: &mut PgConnection, commands: &[CommandId]) -> Result<HashMap<CommandId, Fingerprint>, Error> {
    if commands.is_empty() {
        return Ok(HashMap::new());
    }
    let rows = attestations::find_many(db, commands).await?;
    let checked = rows.iter().filter_map(|row| match verify(row) {
        Ok(by) => Some((row.command, by)),
        Err(error) => {
            let error = &error as &dyn std::error::Error;
            tracing::error!(command = %row.command, error, "a stored result is not what its node signed");
            None
        }
    });
    Ok(checked.collect())
}
