-- Batches of destructive commands: what people approve together.

create index commands_batch_id_idx on commands (batch_id) where batch_id is not null;
comment on index commands_batch_id_idx is 'Finds a batch''s commands when it is approved, rejected or over. Most commands have none, and cost nothing.';

create type batch_state as enum ('open', 'approved', 'rejected', 'expired');
comment on type batch_state is
    'open: its approvals are missing, or none are asked for; approved: the quorum was met; rejected: an approver said no; expired: its time is over.';

create table batches (
    id uuid constraint batches_pkey primary key,
    tenant_id uuid not null constraint batches_tenant_id_fkey references tenants,
    idempotency_key text not null
        constraint batches_idempotency_key_check check (length(idempotency_key) between 1 and 300),
    requested_by text not null,
    document bytea not null,
    state batch_state not null,
    created_at timestamptz not null,
    expires_at timestamptz not null,
    closed_at timestamptz,
    rejected_by text,
    rejection text,
    constraint batches_idempotency_key_key unique (tenant_id, idempotency_key),
    constraint batches_expires_at_check check (expires_at > created_at),
    constraint batches_closed_at_check check ((closed_at is null) = (state in ('open', 'approved'))),
    constraint batches_rejection_check check ((rejection is null) = (state <> 'rejected') and (rejected_by is null) = (rejection is null))
);
comment on table batches is 'What people approve together.';
comment on column batches.idempotency_key is 'The caller''s own, hashed with tenant and caller: api:…; modules have others.';
comment on column batches.requested_by is 'The name of the identity or the module that asked for it, as in the document. Its own approval does not count.';
comment on column batches.document is 'What approvers are shown and sign: canonical JSON, kept to the byte.';
comment on column batches.expires_at is 'As in the document: until when its commands may be accepted.';
comment on column batches.closed_at is 'When it was rejected or expired; null before.';
comment on column batches.rejected_by is 'The name of the identity that rejected it.';
comment on column batches.rejection is 'Why it was rejected, in words.';
comment on constraint batches_idempotency_key_key on batches is 'A key means one batch: a retry finds it.';
comment on constraint batches_idempotency_key_check on batches is 'As that of commands.';
comment on constraint batches_expires_at_check on batches is 'A batch is good for some time.';
comment on constraint batches_closed_at_check on batches is 'It is closed when it is rejected or expired.';
comment on constraint batches_rejection_check on batches is 'A rejection has somebody and a reason.';
create index batches_due_idx on batches (expires_at) where closed_at is null;
comment on index batches_due_idx is 'For the sweeper.';
create index batches_list_idx on batches (tenant_id, id);
comment on index batches_list_idx is 'Pages of a tenant''s batches, newest first: ids sort by age.';

create table batch_leaves (
    batch_id uuid not null constraint batch_leaves_batch_id_fkey references batches,
    index integer not null constraint batch_leaves_index_check check (index >= 0),
    subject text not null,
    kind text not null,
    payload_sha256 bytea constraint batch_leaves_payload_sha256_check check (length(payload_sha256) = 32),
    proof bytea not null constraint batch_leaves_proof_check check (length(proof) % 32 = 0),
    constraint batch_leaves_pkey primary key (batch_id, index)
);
comment on table batch_leaves is 'The scopes of batches: what each allows.';
comment on column batch_leaves.index is 'Its place in the scope, and among the leaves of the Merkle tree.';
comment on column batch_leaves.subject is 'What it happens to: for a node''s own kinds the node''s id.';
comment on column batch_leaves.payload_sha256 is 'SHA-256 of the only payload''s canonical JSON; null for any.';
comment on column batch_leaves.proof is 'The leaf''s inclusion proof: the hashes beside its way to the root, from the bottom.';
comment on constraint batch_leaves_index_check on batch_leaves is 'The first is 0.';
comment on constraint batch_leaves_payload_sha256_check on batch_leaves is 'SHA-256 has 32 bytes.';
comment on constraint batch_leaves_proof_check on batch_leaves is 'A proof is a number of hashes.';
create index batch_leaves_subject_idx on batch_leaves (batch_id, subject, kind);
comment on index batch_leaves_subject_idx is 'Finds the leaf of a command.';

create table batch_approvals (
    batch_id uuid not null constraint batch_approvals_batch_id_fkey references batches,
    approver bytea not null constraint batch_approvals_approver_check check (length(approver) = 32),
    name text not null,
    approved_at_ms bigint not null,
    expires_at_ms bigint not null,
    signature bytea not null constraint batch_approvals_signature_check check (length(signature) = 64),
    received_at timestamptz not null,
    constraint batch_approvals_pkey primary key (batch_id, approver),
    constraint batch_approvals_expires_at_ms_check check (expires_at_ms > approved_at_ms)
);
comment on table batch_approvals is 'Approvals that were verified when they came. Whether they count decides whoever reads them, nodes by themselves.';
comment on column batch_approvals.approver is 'The approver''s Ed25519 key.';
comment on column batch_approvals.name is 'The approver''s name when it came.';
comment on column batch_approvals.approved_at_ms is 'When it was signed, milliseconds since the Unix epoch: the number itself is signed.';
comment on column batch_approvals.expires_at_ms is 'Until when it counts, likewise.';
comment on column batch_approvals.signature is 'Over the batch''s document and both times.';
comment on constraint batch_approvals_pkey on batch_approvals is 'A key counts once. A later approval by it takes the place of the earlier one.';
comment on constraint batch_approvals_approver_check on batch_approvals is 'A key has 32 bytes.';
comment on constraint batch_approvals_signature_check on batch_approvals is 'A signature has 64 bytes.';
comment on constraint batch_approvals_expires_at_ms_check on batch_approvals is 'An approval counts for some time.';

comment on column events.topic is
    'node.command.queued, command.settled, node.command.cancel-requested, batch.created, batch.approved, batch.rejected or batch.expired.';
