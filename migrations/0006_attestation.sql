-- Attested results, and the keys of certificates.

alter table node_certificates
    add column public_key bytea constraint node_certificates_public_key_check check (length(public_key) = 32);
comment on column node_certificates.public_key is
    'The certificate''s Ed25519 key, 32 bytes; null for one of another algorithm, from before keys were Ed25519, which attests nothing.';
comment on column node_certificates.revoked_at is
    'Since when it opens no session and attests nothing; null for one that was not revoked.';
comment on constraint node_certificates_public_key_check on node_certificates is 'An Ed25519 key has 32 bytes.';

alter table settled
    add column node_sig bytea constraint settled_node_sig_check check (length(node_sig) = 64),
    add column attested_by bytea,
    add constraint settled_attested_by_check check ((node_sig is null) = (attested_by is null)),
    add constraint settled_attested_check check (node_sig is null or reported_at is not null);
comment on column settled.node_sig is
    'The node''s signature over command, end and SHA-256 of the result, exactly as it was received; null where the kind is not attested, and where the control plane settled it.';
comment on column settled.attested_by is
    'SHA-256 of the certificate whose key made node_sig, in node_certificates; null without a signature.';
comment on constraint settled_node_sig_check on settled is 'An Ed25519 signature has 64 bytes.';
comment on constraint settled_attested_by_check on settled is 'A signature is kept with the certificate that it was verified with.';
comment on constraint settled_attested_check on settled is
    'What the control plane settles by itself never looks like a node''s word.';

create table result_refusals (
    command_id uuid not null,
    reason text not null,
    node_id uuid not null,
    at timestamptz not null,
    constraint result_refusals_pkey primary key (command_id, reason)
);
comment on table result_refusals is
    'Results of attested kinds that were not believed. A node tells an unacknowledged result again and again: each refusal is an event once.';
comment on column result_refusals.reason is
    'signature-missing, signature-size, signature-wrong, or no-key: no certificate of the node''s present life has an Ed25519 key and counts.';
comment on column result_refusals.at is 'When it was first refused.';
comment on constraint result_refusals_pkey on result_refusals is 'Each reason is told once for a command.';
