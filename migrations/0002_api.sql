-- What the HTTP API needs of the schema.

alter table kinds add column exposed boolean not null default false;
comment on column kinds.exposed is
    'Whether commands.run accepts it. The built-in names are accepted whatever stands here, and gpu.reset never is.';
create unique index kinds_version_key on kinds (name, version);
comment on index kinds_version_key is 'A version of a kind means one component for good; a changed one has a new version.';

create index api_tokens_identity_id_idx on api_tokens (identity_id);
comment on index api_tokens_identity_id_idx is 'Finds the tokens of an identity.';

create index settled_state_idx on settled (node_id, state, seq) where state <> 'succeeded';
comment on index settled_state_idx is
    'Finds a node''s commands that ended badly, without reading all that went well. Most go well, and those cost nothing here.';
