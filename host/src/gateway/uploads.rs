//! The URLs that nodes upload to.
//!
//! **Invariant:** a URL is made when it is sent and kept nowhere. It is for the object that the command was signed with, and goes
//! to the node of that command alone.

use bc_proto::id::CommandId;
use bc_proto::wire::{Upload, v1};
use time::OffsetDateTime;
use tonic::Status;

use super::{Caller, Inner, away};
use crate::queue::claim::Delivery;
use crate::store::{Error, node_certificates, uploads};

impl Inner {
    /// Lets the command's file be written. Where this gateway cannot, the command goes without that right: it arrives as it was
    /// signed, and its upload says why it fails.
    pub(super) fn allow_upload(&self, delivery: &mut Delivery) {
        let deliver = &mut delivery.deliver;
        let Some(upload) = &mut deliver.upload else { return };
        let not_after = OffsetDateTime::from_unix_timestamp_nanos(i128::from(deliver.not_after_ms) * 1_000_000);
        let now = self.world.now();
        let made = self
            .settings
            .bundles
            .as_ref()
            .and_then(|store| store.presign(&upload.object, not_after.unwrap_or(now), now));
        if let Some((url, expires_ms)) = made {
            (upload.url, upload.url_expires_ms) = (url, expires_ms);
        } else {
            tracing::warn!(
                node = %deliver.node, command = %deliver.command, object = upload.object,
                "the command goes without a URL to upload to: this gateway has no [support-bundles], or others than the \
                 replica that queued it"
            );
        }
    }

    /// A fresh URL for the same object.
    pub(super) async fn refresh_upload(
        &self,
        caller: Caller,
        request: &v1::UploadRequest,
    ) -> Result<v1::Upload, Status> {
        let invalid = |_| Status::invalid_argument("UploadRequest.command_id: must be cmd_…");
        let command: CommandId = request.command_id.parse().map_err(invalid)?;
        let node = caller.peer.node;
        let found = async {
            let mut db = self.pool.acquire().await?;
            if node_certificates::find_many(&mut db, &[caller.fingerprint]).await?.is_empty() {
                return Ok(None);
            }
            Ok::<_, Error>(Some(uploads::find(&mut db, node, command).await?))
        };
        let Some(found) = found.await.map_err(|error| away(&error))? else {
            return Err(Status::unauthenticated(
                "this certificate was revoked, or its node was deleted or enrolled again",
            ));
        };
        let found = found.ok_or_else(|| Status::not_found("the node has no such command"))?;
        let Some(destination) = found.destination else {
            return Err(Status::failed_precondition("the command uploads nothing"));
        };
        if !found.is_in_flight {
            return Err(Status::failed_precondition("the command is not in flight"));
        }
        let Some(store) = &self.settings.bundles else {
            return Err(Status::failed_precondition(
                "this gateway has no [support-bundles]; give it those of the others",
            ));
        };
        let made = store.presign(&destination.object, found.not_after, self.world.now());
        let Some((url, url_expires_ms)) = made else {
            return Err(Status::failed_precondition(
                "the object is not in this gateway's store: [support-bundles] changed since the command was queued",
            ));
        };
        tracing::info!(%node, %command, object = destination.object, "the node got a fresh URL to upload to");
        Ok(Upload { object: destination.object, max_bytes: destination.max_bytes, url, url_expires_ms }.into())
    }
}
