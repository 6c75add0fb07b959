-- Sealed secrets on their way to nodes, and who signed a kind.

create table secret_exchanges (
    id uuid constraint secret_exchanges_pkey primary key,
    node_id uuid not null,
    command_id uuid not null,
    secret_ref text not null constraint secret_exchanges_secret_ref_check check (length(secret_ref) between 1 and 63),
    one_time_key bytea not null constraint secret_exchanges_one_time_key_check check (length(one_time_key) = 32),
    node_sig bytea not null constraint secret_exchanges_node_sig_check check (length(node_sig) = 64),
    fingerprint bytea not null constraint secret_exchanges_fingerprint_check check (length(fingerprint) = 32),
    encapsulated_key bytea,
    ciphertext bytea,
    signature bytea,
    failure text,
    expires_at timestamptz not null,
    constraint secret_exchanges_answer_check check (
        (encapsulated_key is null) = (ciphertext is null)
        and not (ciphertext is not null and failure is not null)
        and (signature is null or ciphertext is not null)
    )
);
comment on table secret_exchanges is
    'Requests of nodes for secrets, between the gateway that passes them on and the vault that seals. A row lives for seconds; no value ever stands in one.';
comment on column secret_exchanges.secret_ref is 'The reference; the value lies in the vault''s folder.';
comment on column secret_exchanges.one_time_key is 'X25519: what the value is sealed to.';
comment on column secret_exchanges.node_sig is 'The node''s signature over the request. The vault verifies it; the gateway''s word does not count.';
comment on column secret_exchanges.fingerprint is 'SHA-256 of the certificate whose key signed.';
comment on column secret_exchanges.encapsulated_key is 'HPKE''s encapsulated key; null until it is answered.';
comment on column secret_exchanges.ciphertext is 'The sealed value; only the node can open it.';
comment on column secret_exchanges.signature is 'The worker key''s signature over the sealed value, JSON; null where nothing is signed.';
comment on column secret_exchanges.failure is 'Why there is no value: not-found or refused; null until it is answered, and when there is one.';
comment on column secret_exchanges.expires_at is 'When the gateway no longer waits for it.';
comment on constraint secret_exchanges_secret_ref_check on secret_exchanges is 'As long as a reference may be.';
comment on constraint secret_exchanges_one_time_key_check on secret_exchanges is 'An X25519 key has 32 bytes.';
comment on constraint secret_exchanges_node_sig_check on secret_exchanges is 'An Ed25519 signature has 64 bytes.';
comment on constraint secret_exchanges_fingerprint_check on secret_exchanges is 'SHA-256 has 32 bytes.';
comment on constraint secret_exchanges_answer_check on secret_exchanges is 'A whole sealed value, or a failure, or no answer yet.';
create index secret_exchanges_node_id_idx on secret_exchanges (node_id);
comment on index secret_exchanges_node_id_idx is 'Counts what a node asks for at once.';

alter table kinds
    add column publisher bytea constraint kinds_publisher_check check (length(publisher) = 32),
    add column publisher_sig bytea constraint kinds_publisher_sig_check check (length(publisher_sig) = 64),
    add column activated_at timestamptz,
    add constraint kinds_signed_check check ((publisher is null) = (publisher_sig is null));
comment on column kinds.publisher is 'The Ed25519 key of the publisher who signed the component; null for one that is not signed.';
comment on column kinds.publisher_sig is 'The publisher''s signature over the digest. Nodes verify it themselves.';
comment on column kinds.activated_at is 'When it last became the active one of its name; null if it never was. What a new one may do is compared with the last.';
comment on constraint kinds_publisher_check on kinds is 'An Ed25519 key has 32 bytes.';
comment on constraint kinds_publisher_sig_check on kinds is 'An Ed25519 signature has 64 bytes.';
comment on constraint kinds_signed_check on kinds is 'A signature is of use only with its key.';
update kinds set activated_at = created_at where status = 'active';
