-- The transparency log: every destructive command, approval and result, in a Merkle tree that only grows.

create table log_entries (
    index bigint constraint log_entries_pkey primary key constraint log_entries_index_check check (index >= 0),
    tenant_id uuid not null,
    command_id uuid,
    batch_id uuid,
    body bytea not null,
    leaf_hash bytea not null constraint log_entries_leaf_hash_check check (length(leaf_hash) = 32),
    at timestamptz not null
);
comment on table log_entries is 'What happened, in the order of the outbox. Rows are only ever inserted.';
comment on column log_entries.index is 'Its place: 0 and up, without gaps.';
comment on column log_entries.command_id is 'The command that it is about; null for batches.';
comment on column log_entries.batch_id is 'The batch that it is about, or that its command belongs to; null for none.';
comment on column log_entries.body is 'The leaf: canonical JSON, to the byte.';
comment on column log_entries.leaf_hash is 'SHA-256 of a zero byte and the body (RFC 9162).';
comment on column log_entries.at is 'When it was logged.';
comment on constraint log_entries_pkey on log_entries is 'A place holds one entry.';
comment on constraint log_entries_index_check on log_entries is 'The first entry is 0.';
comment on constraint log_entries_leaf_hash_check on log_entries is 'SHA-256 has 32 bytes.';
create index log_entries_command_id_idx on log_entries (command_id) where command_id is not null;
comment on index log_entries_command_id_idx is 'Finds what a receipt holds about a command.';
create index log_entries_batch_id_idx on log_entries (batch_id) where batch_id is not null;
comment on index log_entries_batch_id_idx is 'Finds what a receipt holds about a batch.';

create table log_nodes (
    level smallint not null constraint log_nodes_level_check check (level > 0),
    index bigint not null constraint log_nodes_index_check check (index >= 0),
    hash bytea not null constraint log_nodes_hash_check check (length(hash) = 32),
    constraint log_nodes_pkey primary key (level, index)
);
comment on table log_nodes is
    'The hashes of complete subtrees: a root and a proof are made of a few of them. Rows are only ever inserted.';
comment on column log_nodes.level is 'The subtree has 2 to the power of this many leaves. Leaves stand in log_entries.';
comment on column log_nodes.index is 'Its place among those of its level, from the left.';
comment on column log_nodes.hash is 'SHA-256 of a byte of value 1 and the hashes of its two halves (RFC 9162).';
comment on constraint log_nodes_pkey on log_nodes is 'A subtree has one hash.';
comment on constraint log_nodes_level_check on log_nodes is 'Level 0 is the leaves.';
comment on constraint log_nodes_index_check on log_nodes is 'The first is 0.';
comment on constraint log_nodes_hash_check on log_nodes is 'SHA-256 has 32 bytes.';

create table log_heads (
    size bigint not null constraint log_heads_size_check check (size > 0),
    is_signed boolean not null,
    root bytea not null constraint log_heads_root_check check (length(root) = 32),
    signature jsonb constraint log_heads_signature_check check ((signature is not null) = is_signed),
    at timestamptz not null,
    constraint log_heads_pkey primary key (size, is_signed)
);
comment on table log_heads is 'The heads of the log, one for each time that it grew. Rows are only ever inserted.';
comment on column log_heads.size is 'How many entries the log had.';
comment on column log_heads.is_signed is 'Whether the control plane signed it.';
comment on column log_heads.root is 'The root of the tree of those entries.';
comment on column log_heads.signature is
    '{"worker","issuedAtMs","signature"}: the signature of a worker key, with the key''s certificate; null where nothing is signed.';
comment on constraint log_heads_pkey on log_heads is
    'A size has one root. A head from before the control plane had keys is followed by a signed one of the same size.';
comment on constraint log_heads_size_check on log_heads is 'An empty log has no head.';
comment on constraint log_heads_root_check on log_heads is 'SHA-256 has 32 bytes.';
comment on constraint log_heads_signature_check on log_heads is 'Signed means that a signature is there.';

create table log_position (
    is_the_one boolean default true constraint log_position_pkey primary key
        constraint log_position_is_the_one_check check (is_the_one),
    xid xid8 not null,
    id bigint not null
);
comment on table log_position is 'How far of the outbox is in the log: one row, written together with the entries.';
comment on column log_position.xid is 'As in events: all that is to be logged up to (xid, id) is.';
comment on column log_position.id is 'As in events.';
comment on constraint log_position_pkey on log_position is 'There is one log.';
comment on constraint log_position_is_the_one_check on log_position is 'There is one log.';
insert into log_position (xid, id) values ('0', 0);

create function refuse_to_rewrite_log() returns trigger language plpgsql as $$
begin
    raise exception 'the transparency log only grows: % of % is refused', tg_op, tg_table_name
        using errcode = 'restrict_violation';
end $$;
comment on function refuse_to_rewrite_log is
    'Keeps programs and people from changing the log by mistake. Who may drop it is found out by whoever verifies the log.';
create trigger log_entries_only_grow before update or delete or truncate on log_entries
    for each statement execute function refuse_to_rewrite_log();
comment on trigger log_entries_only_grow on log_entries is 'Entries never change.';
create trigger log_nodes_only_grow before update or delete or truncate on log_nodes
    for each statement execute function refuse_to_rewrite_log();
comment on trigger log_nodes_only_grow on log_nodes is 'Hashes of complete subtrees never change.';
create trigger log_heads_only_grow before update or delete or truncate on log_heads
    for each statement execute function refuse_to_rewrite_log();
comment on trigger log_heads_only_grow on log_heads is 'Heads never change.';

comment on column events.topic is
    'node.command.queued, command.settled, node.command.cancel-requested, batch.created, batch.approved or batch.rejected.';
