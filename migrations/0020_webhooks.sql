-- Webhooks: events that are sent to URLs.

create type webhook_state as enum ('enabled', 'disabled');
comment on type webhook_state is 'enabled: events are sent there; disabled: nothing is sent, and what happens meanwhile is not kept for it.';

create table webhooks (
    id uuid constraint webhooks_pkey primary key,
    tenant_id uuid not null constraint webhooks_tenant_id_fkey references tenants,
    url text not null,
    description text not null,
    topics text[] not null constraint webhooks_topics_check check (cardinality(topics) > 0),
    state webhook_state not null,
    reason text not null,
    from_xid xid8 not null,
    secret bytea not null,
    previous_secret bytea,
    previous_until timestamptz,
    failing_since timestamptz,
    claim uuid,
    claimed_until timestamptz not null,
    served_at timestamptz not null,
    created_by text not null,
    created_at timestamptz not null,
    updated_at timestamptz not null,
    constraint webhooks_previous_check check ((previous_secret is null) = (previous_until is null))
);
comment on table webhooks is 'Where events of a tenant are sent. A row that is deleted takes its deliveries with it.';
comment on column webhooks.url is 'Where to.';
comment on column webhooks.description is 'What it is for, for people.';
comment on column webhooks.topics is 'Which events: topics, beginnings of topics that end in .*, or * for all.';
comment on column webhooks.state is 'Whether anything is sent.';
comment on column webhooks.reason is 'Why it is disabled, as a stable code: asked, gone (it answered 410) or failing (for days); empty while enabled.';
comment on column webhooks.from_xid is 'It gets events of this transaction and later ones, as in events.xid.';
comment on column webhooks.secret is 'The signing secret, sealed for this row with a key that is not in the database.';
comment on column webhooks.previous_secret is 'The secret before, sealed likewise; deliveries carry its signature as well until previous_until.';
comment on column webhooks.previous_until is 'Until when the previous secret signs as well.';
comment on column webhooks.failing_since is 'Since when no attempt has succeeded; null where the last one did.';
comment on column webhooks.claim is 'Drawn by the replica that serves it now; what another has claimed since, it writes no more.';
comment on column webhooks.claimed_until is 'Until when nobody else takes it; in the past where nobody serves it.';
comment on column webhooks.served_at is 'When somebody began to serve it last: who has waited longest comes first.';
comment on column webhooks.created_by is 'Who made it: an identity''s name.';
comment on constraint webhooks_topics_check on webhooks is 'Without topics nothing would ever be sent.';
comment on constraint webhooks_previous_check on webhooks is 'A previous secret has an end.';
create index webhooks_tenant_id_idx on webhooks (tenant_id, id);
comment on index webhooks_tenant_id_idx is 'Lists those of a tenant.';
create index webhooks_served_at_idx on webhooks (served_at) where state = 'enabled';
comment on index webhooks_served_at_idx is 'Finds who has waited longest.';

create type webhook_delivery_state as enum ('pending', 'delivered', 'dead');
comment on type webhook_delivery_state is
    'pending: to be sent, or sent again; delivered: answered with 2xx; dead: given up, until somebody asks for it again.';

create table webhook_deliveries (
    id uuid constraint webhook_deliveries_pkey primary key,
    seq bigint generated always as identity,
    webhook_id uuid not null constraint webhook_deliveries_webhook_id_fkey references webhooks on delete cascade,
    event_xid xid8,
    event_id bigint,
    topic text not null,
    body text not null,
    state webhook_delivery_state not null,
    attempts integer not null constraint webhook_deliveries_attempts_check check (attempts >= 0),
    next_attempt_at timestamptz not null,
    last_attempt_at timestamptz,
    last_status integer,
    last_answer text not null,
    created_at timestamptz not null,
    ended_at timestamptz,
    constraint webhook_deliveries_event_key unique (webhook_id, event_xid, event_id),
    constraint webhook_deliveries_event_check check ((event_xid is null) = (event_id is null)),
    constraint webhook_deliveries_ended_at_check check ((ended_at is null) = (state = 'pending'))
);
comment on table webhook_deliveries is 'Events on their way to webhooks. Those that are over are deleted after 30 days.';
comment on column webhook_deliveries.id is 'Also the header webhook-id: the same at each attempt.';
comment on column webhook_deliveries.seq is 'The order in which events came.';
comment on column webhook_deliveries.event_xid is 'As in events; null for a test.';
comment on column webhook_deliveries.event_id is 'As in events; null for a test.';
comment on column webhook_deliveries.topic is 'The event''s topic.';
comment on column webhook_deliveries.body is 'What is sent, to the byte.';
comment on column webhook_deliveries.state is 'Where it stands.';
comment on column webhook_deliveries.attempts is 'How many were begun since it was asked for; counted before anything is sent.';
comment on column webhook_deliveries.next_attempt_at is 'When it is to be sent; of no meaning where it is over.';
comment on column webhook_deliveries.last_attempt_at is 'When it was sent last.';
comment on column webhook_deliveries.last_status is 'The HTTP status of the last answer; null where there was none.';
comment on column webhook_deliveries.last_answer is 'The beginning of the last answer, or why there was none; for people.';
comment on column webhook_deliveries.created_at is 'When the event was found.';
comment on column webhook_deliveries.ended_at is 'When it was delivered or given up.';
comment on constraint webhook_deliveries_event_key on webhook_deliveries is 'An event goes to a webhook under one id.';
comment on constraint webhook_deliveries_attempts_check on webhook_deliveries is 'It is a count.';
comment on constraint webhook_deliveries_event_check on webhook_deliveries is 'An event is named whole.';
comment on constraint webhook_deliveries_ended_at_check on webhook_deliveries is 'What is pending has no end.';
create index webhook_deliveries_due_idx on webhook_deliveries (webhook_id, next_attempt_at, seq) where state = 'pending';
comment on index webhook_deliveries_due_idx is 'Finds what is to be sent next.';
create index webhook_deliveries_list_idx on webhook_deliveries (webhook_id, seq);
comment on index webhook_deliveries_list_idx is 'Lists those of a webhook, newest first.';
create index webhook_deliveries_ended_at_idx on webhook_deliveries (ended_at) where state <> 'pending';
comment on index webhook_deliveries_ended_at_idx is 'Finds what is old.';

create table webhook_position (
    is_the_one boolean default true constraint webhook_position_pkey primary key
        constraint webhook_position_is_the_one_check check (is_the_one),
    xid xid8 not null,
    id bigint not null,
    due_at timestamptz not null
);
comment on table webhook_position is 'How far of the outbox has become deliveries: one row, written together with them. Whoever reads on has locked it.';
comment on column webhook_position.xid is 'As in events: all up to (xid, id) are deliveries.';
comment on column webhook_position.id is 'As in events.';
comment on column webhook_position.due_at is 'When the last of them were due: later events are not due before them, whatever a replica''s clock says.';
comment on constraint webhook_position_pkey on webhook_position is 'There is one outbox.';
comment on constraint webhook_position_is_the_one_check on webhook_position is 'There is one outbox.';
insert into webhook_position (xid, id, due_at) values ('0', 0, 'epoch');

comment on column events.topic is
    'node.…, command.…, batch.…, reservation.…, remediation.…, release.…, rollout.… or webhook.created, webhook.changed, webhook.disabled, webhook.deleted; the documentation names all.';
