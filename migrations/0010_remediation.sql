-- What the control plane tried by itself to mend nodes, and why it leaves others alone.

create type remediation_outcome as enum ('pending', 'succeeded', 'failed', 'ambiguous', 'withdrawn');
comment on type remediation_outcome is
    'pending: its command is not over; succeeded: its command did what it should, by the node''s own word; failed: it is known that nothing was done; ambiguous: nobody can say what was done, and somebody has to look; withdrawn: it was called off before it was sent, and counts as no attempt.';

create table remediations (
    command_id uuid constraint remediations_pkey primary key,
    tenant_id uuid not null constraint remediations_tenant_id_fkey references tenants,
    node_id uuid not null constraint remediations_node_id_fkey references nodes,
    ailment text not null
        constraint remediations_ailment_check check (ailment in ('RowRemapPending', 'RebootRequired')),
    attempt integer not null constraint remediations_attempt_check check (attempt > 0),
    gpus text[] not null,
    batch_id uuid not null constraint remediations_batch_id_fkey references batches,
    outcome remediation_outcome not null,
    reason text not null,
    started_at timestamptz not null,
    ended_at timestamptz,
    cleared_at timestamptz,
    cleared_by text,
    constraint remediations_attempt_key unique (node_id, ailment, attempt),
    constraint remediations_ended_at_check check ((ended_at is null) = (outcome = 'pending')),
    constraint remediations_cleared_by_check check ((cleared_at is null) = (cleared_by is null)),
    constraint remediations_cleared_at_check check (cleared_at is null or outcome = 'ambiguous')
);
comment on table remediations is 'Attempts to mend nodes. Rows are never deleted: they are the budget.';
comment on column remediations.command_id is 'The attempt''s command. It was queued in the transaction that wrote this row.';
comment on column remediations.ailment is 'The condition that is to be mended: RowRemapPending by gpu.reset, RebootRequired by node.reboot.';
comment on column remediations.attempt is 'Counts up from 1 for each ailment of a node, withdrawn ones as well: it stands in the keys of command and batch.';
comment on column remediations.gpus is 'UUIDs of the GPUs; empty for the node itself.';
comment on column remediations.batch_id is 'The batch that was made for it alone.';
comment on column remediations.reason is 'Why the command ended so, or why the attempt was withdrawn, as a stable code; empty before, and for success.';
comment on column remediations.cleared_at is 'When somebody who has looked let the node go on; null before.';
comment on column remediations.cleared_by is 'Who that was: an identity''s name.';
comment on constraint remediations_ailment_check on remediations is 'What can be mended.';
comment on constraint remediations_attempt_check on remediations is 'The first one is 1.';
comment on constraint remediations_attempt_key on remediations is 'A number means one attempt.';
comment on constraint remediations_ended_at_check on remediations is 'What is not pending has ended.';
comment on constraint remediations_cleared_by_check on remediations is 'Somebody cleared it, at some time.';
comment on constraint remediations_cleared_at_check on remediations is 'Only what nobody can tell is to be cleared.';
create unique index remediations_pending_key on remediations (node_id) where outcome = 'pending';
comment on index remediations_pending_key is 'One attempt at a time on a node, whoever begins it.';
create index remediations_started_at_idx on remediations (started_at);
comment on index remediations_started_at_idx is 'Counts the attempts within the breaker''s window.';
create index remediations_list_idx on remediations (tenant_id, command_id);
comment on index remediations_list_idx is 'Pages of a tenant''s attempts, newest first: ids sort by age.';

create table remediation_holds (
    node_id uuid constraint remediation_holds_pkey primary key
        constraint remediation_holds_node_id_fkey references nodes,
    ailment text not null
        constraint remediation_holds_ailment_check check (ailment in ('RowRemapPending', 'RebootRequired')),
    why text not null,
    since timestamptz not null
);
comment on table remediation_holds is 'Nodes that have something and are left alone for now. Written when that changes.';
comment on column remediation_holds.why is
    'protected, ambiguous, out-of-attempts, breaker, disconnected, in-use, pool-away, kind-not-registered or kind-not-allowed.';
comment on column remediation_holds.since is 'Since when for this reason.';
comment on constraint remediation_holds_ailment_check on remediation_holds is 'What can be mended.';

create index node_conditions_remediable_idx on node_conditions (node_id)
    where type in ('RowRemapPending', 'RebootRequired');
comment on index node_conditions_remediable_idx is 'Finds the nodes that can be mended; most nodes have nothing, and cost nothing.';

comment on column events.topic is
    'node.…, command.…, batch.…, reservation.… or remediation.started, remediation.ended, remediation.held; the documentation names all.';
