-- Which node is connected, where, and with what.

create table gateways (
    name text constraint gateways_pkey primary key,
    seen_at timestamptz not null
);
comment on table gateways is 'Replicas of the control plane that hold sessions of nodes.';
comment on column gateways.name is 'Unique among the replicas that run.';
comment on column gateways.seen_at is
    'When it last said that it lives, by the database''s clock. Every 5 s; after 15 s without, its sessions count as gone.';

alter table nodes
    add column bcd_version text,
    add column host_abi text,
    add column kinds jsonb not null default '[]' constraint nodes_kinds_check check (jsonb_typeof(kinds) = 'array'),
    add column gateway text,
    add column session_closed_at timestamptz;
comment on column nodes.bcd_version is 'The daemon''s version at its last hello; null before the first.';
comment on column nodes.host_abi is 'The host ABI that it provided at its last hello; null before the first.';
comment on column nodes.kinds is 'The kinds that it had loaded at its last hello: [{"name","version","digest"}].';
comment on column nodes.gateway is
    'The replica that holds its last session; null before the first. No foreign key: a hello must not wait for that row.';
comment on column nodes.session_closed_at is
    'When its last session ended; null while it is open, before the first, and when the replica died with it.';
comment on constraint nodes_kinds_check on nodes is 'A list.';
