-- Workflows of machines: wipe, deploy, reboot, diagnostics, one command after the other; and nodes that are set apart.

create type workflow_standing as enum ('running', 'succeeded', 'failed', 'ambiguous', 'cancelled');
comment on type workflow_standing is
    'running: it goes on by itself; succeeded: each step is known to have succeeded; failed: a step is known not to have; ambiguous: nobody can say what a step did, and somebody has to look; cancelled: somebody called it off.';

create type workflow_step_standing as enum ('waiting', 'open', 'succeeded', 'failed', 'ambiguous', 'cancelled');
comment on type workflow_step_standing is
    'waiting: not begun, or to be begun again; open: its command is not over; succeeded, failed, ambiguous, cancelled: as the newest command of it ended.';

create table workflows (
    id uuid constraint workflows_pkey primary key,
    tenant_id uuid not null constraint workflows_tenant_id_fkey references tenants,
    node_id uuid not null constraint workflows_node_id_fkey references nodes,
    incarnation bigint not null,
    idempotency_key text not null,
    request_sha256 bytea not null
        constraint workflows_request_sha256_check check (octet_length(request_sha256) = 32),
    reason text not null,
    requested_by text not null,
    keeps_quarantine boolean not null,
    attempt integer not null constraint workflows_attempt_check check (attempt > 0),
    standing workflow_standing not null,
    why text not null,
    created_at timestamptz not null,
    ended_at timestamptz,
    cancel_requested_at timestamptz,
    cancel_requested_by text,
    constraint workflows_idempotency_key_key unique (tenant_id, idempotency_key),
    constraint workflows_ended_at_check check ((ended_at is null) = (standing = 'running')),
    constraint workflows_cancel_requested_by_check check ((cancel_requested_at is null) = (cancel_requested_by is null))
);
comment on table workflows is 'Workflows, each of one node. Rows are never deleted.';
comment on column workflows.incarnation is
    'The life of the node that it was begun for, or that a person last had it go on for: what is destructive reaches no other.';
comment on column workflows.idempotency_key is 'The caller''s key, scoped to caller and tenant: the same key is the same workflow.';
comment on column workflows.request_sha256 is 'What the key stands for: SHA-256 of the request''s canonical JSON.';
comment on column workflows.reason is 'Why, in words, for those who approve.';
comment on column workflows.requested_by is 'Who began it: an identity''s name. Its batches are requested by it, so that it cannot approve them.';
comment on column workflows.keeps_quarantine is 'Whether the node stays set apart though all diagnostics pass.';
comment on column workflows.attempt is 'Counts up from 1 each time that a person has it go on.';
comment on column workflows.why is 'Why it ended so: the step''s name and a stable code; empty before, and for success.';
comment on column workflows.cancel_requested_at is 'Since when somebody wants it called off; null before, and after it goes on.';
comment on column workflows.cancel_requested_by is 'Who that was: an identity''s name.';
comment on constraint workflows_idempotency_key_key on workflows is 'A key means one workflow.';
comment on constraint workflows_request_sha256_check on workflows is 'SHA-256 has 32 bytes.';
comment on constraint workflows_attempt_check on workflows is 'The first one is 1.';
comment on constraint workflows_ended_at_check on workflows is 'What does not run has ended.';
comment on constraint workflows_cancel_requested_by_check on workflows is 'Somebody called it off, at some time.';
create unique index workflows_running_key on workflows (node_id) where standing = 'running';
comment on index workflows_running_key is 'One workflow at a time on a node; and the module finds those that go on.';
create index workflows_list_idx on workflows (tenant_id, id);
comment on index workflows_list_idx is 'Pages of a tenant''s workflows, newest first: ids sort by age.';

create table workflow_steps (
    workflow_id uuid not null constraint workflow_steps_workflow_id_fkey references workflows,
    position integer not null constraint workflow_steps_position_check check (position >= 0),
    kind text not null,
    kind_digest bytea not null constraint workflow_steps_kind_digest_fkey references kinds,
    payload bytea not null,
    deadline_seconds integer not null constraint workflow_steps_deadline_seconds_check check (deadline_seconds > 0),
    standing workflow_step_standing not null,
    reason text not null,
    tries integer not null constraint workflow_steps_tries_check check (tries >= 0),
    constraint workflow_steps_pkey primary key (workflow_id, position),
    constraint workflow_steps_kind_key unique (workflow_id, kind)
);
comment on table workflow_steps is 'The steps of workflows, in order.';
comment on column workflow_steps.position is 'Its place, from 0.';
comment on column workflow_steps.kind is 'The kind of its command.';
comment on column workflow_steps.kind_digest is 'The component that validated the payload when the workflow began: the one that runs.';
comment on column workflow_steps.payload is 'Canonical JSON, as it was validated.';
comment on column workflow_steps.deadline_seconds is 'How long its command may wait to be accepted, approvals included.';
comment on column workflow_steps.reason is 'Why it stands so, as a stable code; empty where there is nothing to say.';
comment on column workflow_steps.tries is 'How often it was begun since a person last had it begin: the budget.';
comment on constraint workflow_steps_position_check on workflow_steps is 'The first one is 0.';
comment on constraint workflow_steps_deadline_seconds_check on workflow_steps is 'No command waits for ever.';
comment on constraint workflow_steps_tries_check on workflow_steps is 'A step that was not begun has 0.';
comment on constraint workflow_steps_kind_key on workflow_steps is 'A kind stands in a workflow once.';

create table workflow_tries (
    command_id uuid constraint workflow_tries_pkey primary key,
    workflow_id uuid not null,
    position integer not null,
    node_id uuid not null constraint workflow_tries_node_id_fkey references nodes,
    kind text not null,
    number integer not null constraint workflow_tries_number_check check (number > 0),
    attempt integer not null,
    batch_id uuid constraint workflow_tries_batch_id_fkey references batches,
    began_at timestamptz not null,
    ended_at timestamptz,
    reason text not null,
    constraint workflow_tries_step_fkey foreign key (workflow_id, position) references workflow_steps,
    constraint workflow_tries_number_key unique (node_id, kind, number)
);
comment on table workflow_tries is 'The commands of steps. Rows are never deleted: they say what was done to a node.';
comment on column workflow_tries.command_id is 'The command. It was queued in the transaction that wrote this row.';
comment on column workflow_tries.number is 'Counts up from 1 for each kind of a node, over all its workflows: it stands in the key of a diagnostic''s command.';
comment on column workflow_tries.attempt is 'The workflow''s attempt that it belongs to.';
comment on column workflow_tries.batch_id is 'The batch that was made for it alone; null for what is not destructive.';
comment on column workflow_tries.ended_at is 'When its end was taken note of; null before.';
comment on column workflow_tries.reason is 'Why the command ended so, as a stable code; empty before, and for success.';
comment on constraint workflow_tries_step_fkey on workflow_tries is 'It belongs to a step.';
comment on constraint workflow_tries_number_check on workflow_tries is 'The first one is 1.';
comment on constraint workflow_tries_number_key on workflow_tries is 'A number means one command.';
create unique index workflow_tries_open_key on workflow_tries (workflow_id) where ended_at is null;
comment on index workflow_tries_open_key is 'At most one command of a workflow is open, whoever begins it.';
create index workflow_tries_step_idx on workflow_tries (workflow_id, position);
comment on index workflow_tries_step_idx is 'Finds the commands of a step.';

create table quarantines (
    node_id uuid constraint quarantines_pkey primary key
        constraint quarantines_node_id_fkey references nodes,
    workflow_id uuid constraint quarantines_workflow_id_fkey references workflows,
    reason text not null,
    set_by text not null,
    since timestamptz not null
);
comment on table quarantines is
    'Nodes that are set apart: no GPU of them is reserved, they are not mended, and only a workflow''s own destructive commands reach them.';
comment on column quarantines.workflow_id is 'The workflow that set it apart, and lets it go when it has succeeded; null where a person did.';
comment on column quarantines.reason is 'Why, in words.';
comment on column quarantines.set_by is 'Who that was: an identity''s name.';
comment on column quarantines.since is 'Since when.';
