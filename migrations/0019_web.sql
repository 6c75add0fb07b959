-- What the pages need of the schema: sessions of browsers, and a tenant's commands in order.

create table web_sessions (
    hash bytea constraint web_sessions_pkey primary key constraint web_sessions_hash_check check (length(hash) = 32),
    token_hash bytea not null constraint web_sessions_token_hash_fkey references api_tokens,
    created_at timestamptz not null,
    seen_at timestamptz not null,
    expires_at timestamptz not null,
    constraint web_sessions_expires_at_check check (expires_at > created_at)
);
comment on table web_sessions is 'Browsers that logged in. A session may do what its token may, and counts only while that does.';
comment on column web_sessions.hash is 'SHA-256 of the secret in the browser''s cookie, which is stored nowhere else.';
comment on constraint web_sessions_pkey on web_sessions is 'Finds the session of a cookie.';
comment on constraint web_sessions_hash_check on web_sessions is 'A SHA-256 has 32 bytes.';
comment on column web_sessions.token_hash is 'SHA-256 of the API token that was given at the login.';
comment on constraint web_sessions_token_hash_fkey on web_sessions is 'A session belongs to a token.';
comment on column web_sessions.created_at is 'When somebody logged in.';
comment on column web_sessions.seen_at is 'When a person last asked for something with it, to the minute. Pages that refresh themselves do not count.';
comment on column web_sessions.expires_at is 'When it ends, whatever is done with it.';
comment on constraint web_sessions_expires_at_check on web_sessions is 'It lasts some time.';
create index web_sessions_expires_at_idx on web_sessions (expires_at);
comment on index web_sessions_expires_at_idx is 'Finds those that are over, to delete them.';

create index commands_tenant_id_idx on commands (tenant_id, id);
comment on index commands_tenant_id_idx is
    'Lists a tenant''s commands, newest first. Ids begin with their time, so that new ones go to the end of their tenant.';
