-- What is signed, by which key, and what nodes are told to trust.
--
-- A signature is made where it is decided, and stored; whoever relays the row cannot make one. Where nothing is signed all of
-- this is null, which costs a row nothing.

create table worker_keys (
    id integer generated always as identity constraint worker_keys_pkey primary key,
    certificate bytea not null constraint worker_keys_certificate_key unique,
    created_at timestamptz not null
);
comment on table worker_keys is
    'Keys that sign for a day. Rows are never deleted: commands point to them. A replica makes one or two a day.';
comment on column worker_keys.certificate is
    'The message WorkerKey of node.proto: the key, its time, the root and the root''s signature. The secret half is in no database.';
comment on constraint worker_keys_certificate_key on worker_keys is 'A key has one id, whoever asks for it first.';

alter table commands
    add column signature bytea constraint commands_signature_check check (length(signature) = 64),
    add column worker_key integer,
    add column batch_id uuid,
    add constraint commands_worker_key_check check ((signature is null) = (worker_key is null));
comment on column commands.signature is
    'The control plane''s signature (Ed25519) over what the node is to do; null where commands go unsigned. It was made at created_at, to the millisecond.';
comment on column commands.worker_key is
    'The key that signed, in worker_keys; null where commands go unsigned. No foreign key: enqueues must not wait for that row.';
comment on column commands.batch_id is 'The batch that it belongs to; null for none.';
comment on constraint commands_signature_check on commands is 'An Ed25519 signature has 64 bytes.';
comment on constraint commands_worker_key_check on commands is 'A signature is of no use without its key.';

alter table in_flight
    add column cancel_signature bytea constraint in_flight_cancel_signature_check check (length(cancel_signature) = 64),
    add column cancel_worker_key integer,
    add constraint in_flight_cancel_worker_key_check check ((cancel_signature is null) = (cancel_worker_key is null));
comment on column in_flight.cancel_signature is
    'The control plane''s signature under the cancel, made at cancel_requested_at, to the millisecond; null for none.';
comment on column in_flight.cancel_worker_key is 'The key that signed the cancel, in worker_keys.';
comment on constraint in_flight_cancel_signature_check on in_flight is 'An Ed25519 signature has 64 bytes.';
comment on constraint in_flight_cancel_worker_key_check on in_flight is 'A signature is of no use without its key.';

create table trust_bundles (
    version bigint constraint trust_bundles_pkey primary key constraint trust_bundles_version_check check (version > 0),
    document bytea not null,
    replica text not null,
    created_at timestamptz not null
);
comment on table trust_bundles is
    'What nodes were told to trust, version by version; the highest counts. Rows are never changed and never deleted: a node that was away is led from one to the next, since only the roots of the one before vouch for it.';
comment on column trust_bundles.version is 'Counts up with every change of the content.';
comment on column trust_bundles.document is 'The signed bundle, JSON, exactly as nodes get it.';
comment on column trust_bundles.replica is 'Whose settings it was made of.';
comment on constraint trust_bundles_version_check on trust_bundles is '0 is what a node has that was told of none.';
