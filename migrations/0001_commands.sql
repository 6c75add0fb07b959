-- Who may do what, on which nodes, with which kinds; and the commands.
--
-- A command's state is where its row stands: `ready`, `in_flight` or `settled`, each keyed by (node_id, seq) like the
-- immutable `commands` row that says what was asked. Moves between them are single statements. One table with a state column
-- was measured and is several times slower: benchmarks, part A.
--
-- There are no foreign keys from commands to nodes and kinds: each would take a share lock on one hot row for every enqueue.
-- The statements that insert read both, and neither is ever deleted.

create type lane as enum ('control', 'provision', 'bulk');
comment on type lane is
    'The worker pool of a node that runs a kind. control: short, interactive work; provision: long work that changes the node; bulk: work that moves much data.';

create type role as enum ('host', 'ramdisk', 'site', 'gateway');
comment on type role is
    'What a node is at the moment. host: an installed machine; ramdisk: a machine that runs from memory; site: a controller of a site, next to the BMCs; gateway: leases its commands from the database.';

create type kind_status as enum ('active', 'retired', 'withdrawn');
comment on type kind_status is
    'active: new commands of this name use this component; retired: another version replaced it, commands bound to it still run; withdrawn: no longer registered, commands bound to it get a timeout of 15 minutes.';

create type in_flight_state as enum ('dispatched', 'acked', 'running');
comment on type in_flight_state is
    'dispatched: sent on a session; acked: in the node''s journal; running: started on the node.';

create type terminal_state as enum ('succeeded', 'failed', 'rejected', 'expired', 'cancelled');
comment on type terminal_state is
    'succeeded: it reached its goal; failed: it did not, or nobody can say; rejected: the node did not accept it; expired: it waited past its deadline and never ran; cancelled: it was called off, what had already happened is in its result.';

create table tenants (
    id uuid constraint tenants_pkey primary key,
    name text not null constraint tenants_name_key unique,
    created_at timestamptz not null
);
comment on table tenants is 'Who owns nodes and commands.';

create table identities (
    id uuid constraint identities_pkey primary key,
    tenant_id uuid not null constraint identities_tenant_id_fkey references tenants,
    name text not null,
    created_at timestamptz not null,
    disabled_at timestamptz,
    constraint identities_name_key unique (tenant_id, name)
);
comment on table identities is 'People and programs that call the API.';
comment on column identities.disabled_at is 'Since when its tokens count for nothing.';
comment on constraint identities_name_key on identities is 'A name means one identity of a tenant.';

create table api_tokens (
    hash bytea constraint api_tokens_pkey primary key constraint api_tokens_hash_check check (length(hash) = 32),
    identity_id uuid not null constraint api_tokens_identity_id_fkey references identities,
    label text not null,
    created_at timestamptz not null,
    expires_at timestamptz,
    revoked_at timestamptz
);
comment on table api_tokens is 'What identities prove themselves with.';
comment on column api_tokens.hash is 'SHA-256 of the token. The token itself is shown once and stored nowhere.';
comment on constraint api_tokens_hash_check on api_tokens is 'SHA-256 has 32 bytes; a token stored by mistake does not fit.';

create table grants (
    identity_id uuid not null constraint grants_identity_id_fkey references identities,
    permission text not null,
    resource text not null,
    created_at timestamptz not null,
    constraint grants_pkey primary key (identity_id, permission, resource)
);
comment on table grants is 'What identities may do.';
comment on column grants.permission is 'For example compute:nodes:exec.';
comment on column grants.resource is 'A pattern of resources, for example compute-node/*.';

create table nodes (
    id uuid constraint nodes_pkey primary key,
    tenant_id uuid not null constraint nodes_tenant_id_fkey references tenants,
    name text not null,
    labels jsonb not null default '{}' constraint nodes_labels_check check (jsonb_typeof(labels) = 'object'),
    role role not null,
    incarnation bigint not null default 1 constraint nodes_incarnation_check check (incarnation > 0),
    journal_id uuid,
    boot_id text,
    session_epoch bigint not null default 0 constraint nodes_session_epoch_check check (session_epoch >= 0),
    spec_generation bigint not null default 0 constraint nodes_spec_generation_check check (spec_generation >= 0),
    created_at timestamptz not null,
    last_hello_at timestamptz,
    deleted_at timestamptz
) with (fillfactor = 80);
comment on table nodes is 'Enrolled machines. Rows are never deleted: commands point to them.';
comment on column nodes.incarnation is 'Which life of the machine this is: enrolling it again adds one.';
comment on column nodes.journal_id is 'The journal that it had at its last hello; null before the first.';
comment on column nodes.boot_id is 'The boot that it was in at its last hello; null before the first.';
comment on column nodes.session_epoch is 'The epoch of its last session. Writes for an older one change nothing.';
comment on column nodes.spec_generation is 'The generation of the spec that it last said it applied; 0 for none.';
comment on constraint nodes_labels_check on nodes is 'Labels are names with values.';
comment on constraint nodes_incarnation_check on nodes is 'The first life is 1.';
comment on constraint nodes_session_epoch_check on nodes is '0 is before the first session.';
comment on constraint nodes_spec_generation_check on nodes is '0 is before the first spec.';
create unique index nodes_name_key on nodes (tenant_id, name) where deleted_at is null;
comment on index nodes_name_key is 'A name means one node of a tenant; that of a deleted node is free again.';

create table node_sequences (
    node_id uuid constraint node_sequences_pkey primary key constraint node_sequences_node_id_fkey references nodes,
    next_cmd_seq bigint not null default 1 constraint node_sequences_next_cmd_seq_check check (next_cmd_seq > 0)
) with (fillfactor = 20);
comment on table node_sequences is
    'The next seq of each node. A table of its own, narrow and with room on its pages, so that counting up rewrites nothing else and touches no index.';
comment on constraint node_sequences_next_cmd_seq_check on node_sequences is 'The first command of a node is 1.';

create table kinds (
    digest bytea constraint kinds_pkey primary key constraint kinds_digest_check check (length(digest) = 32),
    name text not null,
    version text not null,
    lane lane not null,
    timeout_ms bigint not null constraint kinds_timeout_ms_check check (timeout_ms > 0),
    traits text[] not null constraint kinds_traits_check
        check (traits <@ array['destructive', 'retry-safe', 'self-terminating', 'attested']),
    manifest jsonb not null,
    component bytea not null,
    status kind_status not null,
    created_at timestamptz not null
);
comment on table kinds is 'Registered components. Rows are never deleted: commands are bound to their digests.';
comment on column kinds.digest is 'SHA-256 of the component.';
comment on column kinds.lane is 'As in the manifest; a column because every enqueue reads it.';
comment on column kinds.timeout_ms is 'As in the manifest; a column because every dispatch reads it.';
comment on column kinds.traits is 'As in the manifest; a column because every enqueue reads it.';
comment on constraint kinds_digest_check on kinds is 'SHA-256 has 32 bytes.';
comment on constraint kinds_timeout_ms_check on kinds is 'A run takes time.';
comment on constraint kinds_traits_check on kinds is
    'destructive: it destroys data or takes the node out of service; retry-safe: running it again does no harm; self-terminating: it ends the daemon that runs it; attested: the node signs its result.';
create unique index kinds_active_key on kinds (name) where status = 'active';
comment on index kinds_active_key is 'At most one component of a name takes new commands.';

create table commands (
    node_id uuid not null,
    seq bigint not null,
    id uuid not null,
    tenant_id uuid not null,
    idempotency_key text not null
        constraint commands_idempotency_key_check check (length(idempotency_key) between 1 and 300),
    kind text not null,
    kind_digest bytea not null,
    lane lane not null,
    payload json not null,
    payload_hash bytea not null constraint commands_payload_hash_check check (length(payload_hash) = 32),
    incarnation bigint not null,
    min_generation bigint,
    not_after timestamptz not null,
    created_at timestamptz not null,
    constraint commands_pkey primary key (node_id, seq),
    constraint commands_id_key unique (id),
    constraint commands_idempotency_key_key unique (node_id, idempotency_key)
);
comment on table commands is 'What was asked. Rows are never changed and never deleted; where a command stands says command_states.';
comment on column commands.seq is 'Its place among the node''s commands. Seqs become visible in their order; there can be gaps.';
comment on column commands.kind_digest is 'SHA-256 of the component that validated the payload, the one that runs.';
comment on column commands.payload is 'Canonical JSON, kept to the byte: it is what was validated, and what is signed.';
comment on column commands.payload_hash is 'SHA-256 of the payload''s canonical JSON: the same key with another payload is a conflict.';
comment on column commands.incarnation is 'The life of the node that it was meant for.';
comment on column commands.min_generation is 'The spec generation that it presupposes; null for none.';
comment on column commands.not_after is 'Until when it may wait to be accepted.';
comment on constraint commands_pkey on commands is 'Seqs are unique per node; every table of a command is keyed so.';
comment on constraint commands_id_key on commands is 'An id means one command.';
comment on constraint commands_idempotency_key_key on commands is 'A key means one command of a node: a retry finds it.';
comment on constraint commands_idempotency_key_check on commands is 'Long enough for wf:<id>:<step>; short enough to index.';
comment on constraint commands_payload_hash_check on commands is 'SHA-256 has 32 bytes.';

create table ready (
    node_id uuid not null,
    lane lane not null,
    seq bigint not null,
    not_before timestamptz not null,
    not_after timestamptz not null,
    only_incarnation bigint,
    attempt integer not null default 0 constraint ready_attempt_check check (attempt >= 0),
    constraint ready_pkey primary key (node_id, lane, seq)
) with (
    autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_cost_delay = 0,
    autovacuum_vacuum_insert_threshold = 10000, autovacuum_vacuum_insert_scale_factor = 0.05,
    autovacuum_analyze_threshold = 5000
);
comment on table ready is 'Pending commands. Rows are inserted, and deleted when they are claimed.';
comment on column ready.not_before is 'When it may be sent: -infinity at once, later after BUSY, infinity while it is held back.';
comment on column ready.not_after is 'When the sweeper lets it expire.';
comment on column ready.only_incarnation is 'The only life of the node that it may reach; null for any. Set for destructive kinds.';
comment on column ready.attempt is 'How often the node had no worker for it.';
comment on constraint ready_pkey on ready is 'The one usable index of the claim: with a second one the planner could choose wrongly.';
comment on constraint ready_attempt_check on ready is 'A count.';
create index ready_not_after_idx on ready using brin (not_after) with (autosummarize = on, pages_per_range = 16);
comment on index ready_not_after_idx is 'For the sweeper. It costs inserts next to nothing and cannot serve the claim.';

create table in_flight (
    node_id uuid not null,
    seq bigint not null,
    state in_flight_state not null,
    lane lane not null,
    epoch bigint not null,
    journal_id uuid not null,
    boot_id text not null,
    role role not null,
    attempt integer not null,
    due_at timestamptz not null,
    dispatched_at timestamptz not null,
    cancel_requested_at timestamptz,
    constraint in_flight_pkey primary key (node_id, seq)
) with (
    fillfactor = 50,
    autovacuum_vacuum_threshold = 500, autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_cost_delay = 0,
    autovacuum_analyze_threshold = 5000
);
comment on table in_flight is 'Commands that a node has or may have. At most as many per node as its lanes have workers.';
comment on column in_flight.epoch is 'The session that it was last sent on.';
comment on column in_flight.journal_id is 'The node''s journal when it was first sent; with boot_id and role what a later hello is compared with.';
comment on column in_flight.due_at is 'When the sweeper fails it: not_after and the kind''s timeout.';
comment on column in_flight.cancel_requested_at is 'Since when the node is asked to stop it; null if it is not.';
comment on column in_flight.attempt is 'As in ready.';
create index in_flight_due_at_idx on in_flight using brin (due_at) with (autosummarize = on, pages_per_range = 16);
comment on index in_flight_due_at_idx is 'For the sweeper. It costs a dispatch next to nothing.';

create table settled (
    node_id uuid not null,
    seq bigint not null,
    state terminal_state not null,
    reason text not null,
    result bytea not null,
    settled_at timestamptz not null,
    reported_at timestamptz,
    dispatched_at timestamptz,
    cancel_requested_at timestamptz
) partition by range (settled_at);
comment on table settled is
    'Commands that are over. Rows are only ever inserted, each by the statement that deletes the command''s row in ready or in_flight: that delete is what makes it one per command. Partitions are made ahead of time and dropped when they need not be kept.';
comment on column settled.reason is 'Why, as a stable code; empty for success.';
comment on column settled.result is 'The result exactly as the node stored it; empty for none.';
comment on column settled.reported_at is 'The node''s own time of it; null if the control plane settled it.';
comment on column settled.dispatched_at is 'When it was first sent; null if it never was, or the mark was lost in a crash.';
create index settled_command_idx on settled (node_id, seq);
comment on index settled_command_idx is 'Finds how a command ended.';
create table settled_default partition of settled default;
comment on table settled_default is 'Takes what no other partition does.';

create table events (
    xid xid8 not null default pg_current_xact_id(),
    id bigint generated always as identity,
    tenant_id uuid not null,
    node_id uuid,
    command_id uuid,
    topic text not null,
    body jsonb not null,
    at timestamptz not null,
    constraint events_pkey primary key (xid, id)
);
comment on table events is 'The outbox: what happened, written in the transaction in which it did.';
comment on column events.xid is
    'The transaction that wrote it. Ids are drawn before they are committed; a watcher that reads (xid, id) in order, and only below the oldest transaction still open, misses none.';
comment on column events.body is 'What a watcher gets, less the ids that have a column; they are added when it is read.';
comment on column events.topic is 'node.command.queued, command.settled or node.command.cancel-requested.';

create table join_tokens (
    hash bytea constraint join_tokens_pkey primary key constraint join_tokens_hash_check check (length(hash) = 32),
    tenant_id uuid not null constraint join_tokens_tenant_id_fkey references tenants,
    node_id uuid constraint join_tokens_node_id_fkey references nodes,
    allowed_kinds text[],
    created_at timestamptz not null,
    expires_at timestamptz not null,
    used_at timestamptz,
    constraint join_tokens_expires_at_check check (expires_at > created_at)
);
comment on table join_tokens is 'One-time tokens with which machines enrol.';
comment on column join_tokens.hash is 'SHA-256 of the token. The token itself is shown once and stored nowhere.';
comment on column join_tokens.node_id is 'The node that enrols again with it; null for a new one.';
comment on column join_tokens.allowed_kinds is 'The only kinds that its certificate allows; null for all.';
comment on constraint join_tokens_hash_check on join_tokens is 'SHA-256 has 32 bytes; a token stored by mistake does not fit.';
comment on constraint join_tokens_expires_at_check on join_tokens is 'A token is good for some time.';

create table node_certificates (
    fingerprint bytea constraint node_certificates_pkey primary key
        constraint node_certificates_fingerprint_check check (length(fingerprint) = 32),
    node_id uuid not null constraint node_certificates_node_id_fkey references nodes,
    incarnation bigint not null,
    certificate bytea not null,
    allowed_kinds text[],
    not_before timestamptz not null,
    not_after timestamptz not null,
    revoked_at timestamptz
);
comment on table node_certificates is 'Certificates issued to nodes.';
comment on column node_certificates.fingerprint is 'SHA-256 of the certificate.';
comment on column node_certificates.certificate is 'X.509, DER.';
comment on column node_certificates.incarnation is 'The life of the node that it was issued for.';
comment on column node_certificates.allowed_kinds is 'The only kinds that the node accepts with it; null for all.';
comment on constraint node_certificates_fingerprint_check on node_certificates is 'SHA-256 has 32 bytes.';
create index node_certificates_node_id_idx on node_certificates (node_id);
comment on index node_certificates_node_id_idx is 'Finds the certificates of a node.';

create view command_states as
select
    c.*,
    case
        when s.node_id is not null then s.state::text
        when f.node_id is not null then f.state::text
        else 'pending'
    end as state,
    coalesce(s.reason, '') as reason,
    s.result,
    s.settled_at,
    s.reported_at,
    coalesce(s.dispatched_at, f.dispatched_at) as dispatched_at,
    coalesce(s.cancel_requested_at, f.cancel_requested_at) as cancel_requested_at,
    case when r.not_before > '-infinity' then r.not_before end as not_before
from commands c
left join ready r on r.node_id = c.node_id and r.lane = c.lane and r.seq = c.seq
left join in_flight f on f.node_id = c.node_id and f.seq = c.seq
left join settled s on s.node_id = c.node_id and s.seq = c.seq;
comment on view command_states is 'Commands, and where they stand.';
