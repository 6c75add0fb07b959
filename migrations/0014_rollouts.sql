-- Binaries of the daemon, and their way to nodes.

create table releases (
    sha256 bytea constraint releases_pkey primary key
        constraint releases_sha256_check check (octet_length(sha256) = 32),
    version text not null,
    target text not null,
    size_bytes bigint not null constraint releases_size_bytes_check check (size_bytes > 0),
    publisher bytea constraint releases_publisher_check check (octet_length(publisher) = 32),
    publisher_sig bytea constraint releases_publisher_sig_check check (octet_length(publisher_sig) = 64),
    pushed_by text not null,
    pushed_at timestamptz not null,
    constraint releases_version_key unique (version, target),
    constraint releases_signed_check check ((publisher is null) = (publisher_sig is null))
);
comment on table releases is 'Binaries of the daemon. They belong to the whole control plane. Rows never change.';
comment on column releases.sha256 is 'SHA-256 of the file.';
comment on column releases.version is 'The version that the binary says it is, semver.';
comment on column releases.target is 'What it runs on: x86_64-unknown-linux-gnu, for example.';
comment on column releases.size_bytes is 'The size of the file.';
comment on column releases.publisher is 'The Ed25519 key of who vouches for it; null for one that is not signed.';
comment on column releases.publisher_sig is 'The signature over version, SHA-256 and target.';
comment on column releases.pushed_by is 'Who pushed it: an identity''s name.';
comment on column releases.pushed_at is 'When it was pushed.';
comment on constraint releases_sha256_check on releases is 'A SHA-256 has 32 bytes.';
comment on constraint releases_size_bytes_check on releases is 'An empty file is no binary.';
comment on constraint releases_publisher_check on releases is 'A key has 32 bytes.';
comment on constraint releases_publisher_sig_check on releases is 'A signature has 64 bytes.';
comment on constraint releases_version_key on releases is 'A version means one file for each target, for good.';
comment on constraint releases_signed_check on releases is 'A signature is somebody''s.';

create table release_chunks (
    sha256 bytea not null constraint release_chunks_sha256_fkey references releases
        on delete cascade deferrable initially deferred,
    seq integer not null constraint release_chunks_seq_check check (seq >= 0),
    bytes bytea not null,
    constraint release_chunks_pkey primary key (sha256, seq)
);
alter table release_chunks alter column bytes set storage external;
comment on table release_chunks is 'The files of releases in pieces, so that none is ever in memory whole.';
comment on column release_chunks.sha256 is 'The release. Checked at the end of the transaction: its row follows when all pieces have come.';
comment on column release_chunks.seq is 'The piece''s place, from 0.';
comment on column release_chunks.bytes is 'The piece: 512 KiB, the last one less. Kept as it is: binaries that are stripped do not shrink much.';
comment on constraint release_chunks_seq_check on release_chunks is 'The first one is 0.';

create type rollout_state as enum ('running', 'paused', 'done', 'cancelled');
comment on type rollout_state is
    'running: steps are begun; paused: none is begun until somebody says so; done: every node has its end; cancelled: no step is begun any more.';

create table rollouts (
    id uuid constraint rollouts_pkey primary key,
    tenant_id uuid not null constraint rollouts_tenant_id_fkey references tenants,
    sha256 bytea not null constraint rollouts_sha256_fkey references releases,
    max_unavailable integer not null constraint rollouts_max_unavailable_check check (max_unavailable > 0),
    max_failures integer not null constraint rollouts_max_failures_check check (max_failures >= 0),
    forgiven integer not null default 0,
    allow_downgrade boolean not null,
    state rollout_state not null,
    reason text not null,
    idempotency_key text not null,
    requested_by text not null,
    created_at timestamptz not null,
    ended_at timestamptz,
    constraint rollouts_idempotency_key_key unique (tenant_id, idempotency_key),
    constraint rollouts_ended_at_check check ((ended_at is null) = (state in ('running', 'paused')))
);
comment on table rollouts is 'A release on its way to nodes of a tenant. Rows are never deleted.';
comment on column rollouts.sha256 is 'The release.';
comment on column rollouts.max_unavailable is 'How many of its nodes may be under way or without a session at once.';
comment on column rollouts.max_failures is 'How many steps may fail before it pauses by itself.';
comment on column rollouts.forgiven is 'How many failures had happened when somebody let it go on last: they count no more.';
comment on column rollouts.allow_downgrade is 'Whether nodes may get an older version than theirs.';
comment on column rollouts.state is 'Where it stands.';
comment on column rollouts.reason is
    'Why it is paused or over, as a stable code: asked, too-many-failures, kind-not-registered; empty otherwise.';
comment on column rollouts.idempotency_key is 'Unique for its tenant: a second start with it is the first.';
comment on column rollouts.requested_by is 'Who asked for it: an identity''s name.';
comment on column rollouts.ended_at is 'When it was done or cancelled.';
comment on constraint rollouts_max_unavailable_check on rollouts is 'With none it would never begin.';
comment on constraint rollouts_max_failures_check on rollouts is 'With 0 the first failure pauses it.';
comment on constraint rollouts_idempotency_key_key on rollouts is 'A key means one rollout.';
comment on constraint rollouts_ended_at_check on rollouts is 'What goes on has no end.';
create index rollouts_open_idx on rollouts (id) where state in ('running', 'paused');
comment on index rollouts_open_idx is 'Finds what goes on: a look costs nothing where nothing does.';

create type rollout_step as enum ('waiting', 'pending', 'succeeded', 'failed', 'skipped');
comment on type rollout_step is
    'waiting: its command was not queued; pending: its command is not over; succeeded: its command succeeded; failed: its command ended otherwise; skipped: the node is gone.';

create table rollout_nodes (
    rollout_id uuid not null constraint rollout_nodes_rollout_id_fkey references rollouts,
    node_id uuid not null constraint rollout_nodes_node_id_fkey references nodes,
    wave integer not null constraint rollout_nodes_wave_check check (wave >= 0),
    step rollout_step not null,
    command_id uuid,
    reason text not null,
    constraint rollout_nodes_pkey primary key (rollout_id, node_id),
    constraint rollout_nodes_command_id_check check (step in ('waiting', 'skipped') or command_id is not null)
);
comment on table rollout_nodes is 'The nodes of rollouts, chosen when they began.';
comment on column rollout_nodes.wave is 'A wave begins when every node of those before it that has a session has its end; from 0.';
comment on column rollout_nodes.step is 'Where the node stands.';
comment on column rollout_nodes.command_id is 'Its command, queued in the transaction that wrote this.';
comment on column rollout_nodes.reason is 'Why the command ended so, as a stable code; empty before, and for success.';
comment on constraint rollout_nodes_wave_check on rollout_nodes is 'The first one is 0.';
comment on constraint rollout_nodes_command_id_check on rollout_nodes is 'What was begun has a command.';
create index rollout_nodes_node_id_idx on rollout_nodes (node_id) where step = 'pending';
comment on index rollout_nodes_node_id_idx is 'A node is upgraded by one rollout at a time.';

comment on column events.topic is
    'node.…, command.…, batch.…, reservation.…, remediation.…, release.… or rollout.started, rollout.changed, rollout.step; the documentation names all.';
