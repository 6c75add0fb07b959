-- What nodes should hold and be, what they say is the matter with them, and who has reserved which GPU.

create table node_specs (
    node_id uuid not null constraint node_specs_node_id_fkey references nodes,
    generation bigint not null constraint node_specs_generation_check check (generation > 0),
    document bytea not null,
    signature bytea,
    created_at timestamptz not null,
    created_by text not null,
    constraint node_specs_pkey primary key (node_id, generation)
);
comment on table node_specs is
    'The desired state of nodes, generation by generation. Rows are only ever inserted; the newest of a node counts.';
comment on column node_specs.generation is 'Counts up by one.';
comment on column node_specs.document is 'Canonical JSON, kept to the byte: it is what is signed, and what gateways relay.';
comment on column node_specs.signature is
    'The worker key''s signature (protobuf WorkerSignature), purpose desired-state; null where nothing is signed.';
comment on column node_specs.created_by is 'Who asked for it: an identity''s name, or a module''s.';
comment on constraint node_specs_pkey on node_specs is 'A generation means one document of a node.';
comment on constraint node_specs_generation_check on node_specs is 'The first one is 1.';

create table node_conditions (
    node_id uuid not null constraint node_conditions_node_id_fkey references nodes,
    type text not null constraint node_conditions_type_check check (length(type) between 1 and 64),
    subject text not null,
    message text not null,
    since timestamptz not null,
    reported_at timestamptz not null,
    constraint node_conditions_pkey primary key (node_id, type, subject)
);
comment on table node_conditions is 'What is the matter with nodes now, by their own word.';
comment on column node_conditions.type is 'RowRemapPending, RebootRequired, SpecRejected, …';
comment on column node_conditions.subject is 'What has it: a GPU''s UUID; empty for the node itself.';
comment on column node_conditions.message is 'Why, in words.';
comment on column node_conditions.since is 'Since when, by the node''s first word of it.';
comment on column node_conditions.reported_at is 'When it was last said in these words.';
comment on constraint node_conditions_pkey on node_conditions is 'A node says each once for each subject.';
comment on constraint node_conditions_type_check on node_conditions is 'A word for programs.';

create type reservation_state as enum ('requested', 'active', 'released');
comment on type reservation_state is
    'requested: it stands in the node''s spec, and the node has not said that it holds the GPU; active: the node has signed that it does; released: given back.';

create table reservations (
    id uuid constraint reservations_pkey primary key,
    tenant_id uuid not null constraint reservations_tenant_id_fkey references tenants,
    node_id uuid not null constraint reservations_node_id_fkey references nodes,
    gpu text not null constraint reservations_gpu_check check (length(gpu) between 1 and 100),
    slot integer constraint reservations_slot_check check (slot >= 0),
    state reservation_state not null,
    idempotency_key text not null constraint reservations_idempotency_key_check
        check (length(idempotency_key) between 1 and 300),
    generation bigint not null constraint reservations_generation_check check (generation > 0),
    bound_body bytea,
    bound_sig bytea,
    created_at timestamptz not null,
    created_by text not null,
    active_at timestamptz,
    released_at timestamptz,
    constraint reservations_idempotency_key_key unique (node_id, idempotency_key),
    constraint reservations_bound_check check ((bound_body is null) = (bound_sig is null)),
    constraint reservations_active_check check (state <> 'active' or bound_body is not null),
    constraint reservations_released_check check ((state = 'released') = (released_at is not null))
);
comment on table reservations is 'GPUs that somebody has reserved. Rows are never deleted.';
comment on column reservations.id is 'The allocation.';
comment on column reservations.gpu is 'The UUID of the GPU, or of a MIG instance of it.';
comment on column reservations.slot is 'A share of the GPU, where it is shared by time; null for all of it.';
comment on column reservations.generation is 'The generation of the node''s spec that asked for it: an older one cannot have bound it.';
comment on column reservations.bound_body is 'What the node signed, purpose allocation-bound, exactly as it came.';
comment on column reservations.bound_sig is 'Its signature, 64 bytes, exactly as it came.';
comment on column reservations.created_by is 'Who asked for it: an identity''s name, or a module''s.';
comment on column reservations.active_at is 'When its binding verified.';
comment on constraint reservations_gpu_check on reservations is 'A UUID, with what NVIDIA writes before it.';
comment on constraint reservations_slot_check on reservations is 'Slots count from 0.';
comment on constraint reservations_generation_check on reservations is 'The first one is 1.';
comment on constraint reservations_idempotency_key_check on reservations is 'As for commands.';
comment on constraint reservations_idempotency_key_key on reservations is 'A key means one reservation of a node: a retry finds it.';
comment on constraint reservations_bound_check on reservations is 'A binding and its signature come together.';
comment on constraint reservations_active_check on reservations is 'Nothing is active that the node has not signed for.';
comment on constraint reservations_released_check on reservations is 'A release has a time, and only a release.';
create unique index reservations_gpu_key on reservations (node_id, gpu, coalesce(slot, -1)) where state <> 'released';
comment on index reservations_gpu_key is
    'A GPU, or a slot of one, has one reservation at a time. All of a GPU and a slot of it are kept apart under the node''s lock.';
create index reservations_node_id_idx on reservations (node_id, id);
comment on index reservations_node_id_idx is 'Lists the reservations of a node.';
