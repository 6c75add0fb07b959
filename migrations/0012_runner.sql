-- Gateways that hold no session and lease their commands: SQL functions, a view, and a role that can use nothing else.
--
-- A lease is a row in in_flight, like a command that was sent on a session; its fencing token stands where a session's epoch
-- does. So a command still stands in exactly one of ready, in_flight and settled, and everything else reads it as ever.
-- Leases are timed by the database's clock: runners and control plane share no other.
--
-- Every function checks who called by session_user, which neither SET ROLE nor SECURITY DEFINER changes. Rows are locked
-- in the order in_flight, runner_leases. SQLSTATEs of class BC are listed in docs/runner.md and in rules/lease.rs.

do $$
begin
    -- Roles are shared by all databases of a server: another one may have made it, even at this moment.
    if not exists (select from pg_roles where rolname = 'better_compute_runner') then
        create role better_compute_runner nologin;
        comment on role better_compute_runner is
            'What programs that run commands of gateways may do: lease, start, renew and settle, and see their own. Logins are its members.';
    end if;
exception
    when duplicate_object or unique_violation then null;
    when insufficient_privilege then
        raise exception 'the role better_compute_runner is missing, and this user may not create it'
            using errcode = 'insufficient_privilege',
                  hint = 'As an administrator of the server: create role better_compute_runner nologin; then start again.';
end $$;

alter table nodes
    add column runner_slug text constraint nodes_runner_slug_check check (runner_slug ~ '^[a-z0-9][a-z0-9-]{0,62}$');
comment on column nodes.runner_slug is
    'The name under which a runner leases its commands, unique over all tenants; null for nodes with sessions. With it no session opens.';
comment on constraint nodes_runner_slug_check on nodes is 'A slug is up to 63 lower-case letters, digits and dashes.';
create unique index nodes_runner_slug_key on nodes (runner_slug) where runner_slug is not null and deleted_at is null;
comment on index nodes_runner_slug_key is 'A slug means one gateway; that of a deleted one is free again.';

create table runner_logins (
    login name not null,
    node_id uuid not null constraint runner_logins_node_id_fkey references nodes,
    constraint runner_logins_pkey primary key (login, node_id)
);
comment on table runner_logins is 'Which users of the database act for which gateways.';
comment on column runner_logins.login is 'A member of better_compute_runner. The user that owns these tables acts for all without a row.';
comment on constraint runner_logins_pkey on runner_logins is 'Once is enough.';

create table runner_requests (
    node_id uuid not null,
    seq bigint not null,
    requested_by text not null,
    constraint runner_requests_pkey primary key (node_id, seq)
);
comment on table runner_requests is 'Who asked for the commands that were inserted into agent_commands. Rows are never changed and never deleted.';
comment on column runner_requests.requested_by is 'What the inserting program said; else its user in the database.';
comment on constraint runner_requests_pkey on runner_requests is 'A command is asked for once.';

create type lease_ending as enum ('done', 'failed', 'returned', 'lost', 'overtaken');
comment on type lease_ending is
    'done: the runner completed the command; failed: the runner failed it; returned: it ran out and the command is pending again; lost: it ran out and that ended the command; overtaken: the command ended without its runner.';

create table runner_leases (
    node_id uuid not null,
    seq bigint not null,
    token bigint generated always as identity,
    leased_by text not null,
    leased_at timestamptz not null,
    expires_at timestamptz not null,
    started_at timestamptz,
    ended_at timestamptz,
    ending lease_ending,
    constraint runner_leases_pkey primary key (node_id, seq, token),
    constraint runner_leases_ending_check check ((ended_at is null) = (ending is null))
);
comment on table runner_leases is 'Who had a command, and since when. Rows are never deleted: they are the history.';
comment on column runner_leases.token is 'The fencing token, in in_flight.epoch while the lease counts. A later lease has a higher one.';
comment on column runner_leases.leased_by is 'The user in the database, and the application''s name where it has one.';
comment on column runner_leases.expires_at is 'When the sweeper takes the command back, by the database''s clock.';
comment on column runner_leases.started_at is 'When the runner said that it starts; null before.';
comment on column runner_leases.ended_at is 'When it ended; null while it counts.';
comment on constraint runner_leases_pkey on runner_leases is 'Finds the leases of a command.';
comment on constraint runner_leases_ending_check on runner_leases is 'What ended has a time.';
create index runner_leases_due_idx on runner_leases (expires_at) where ended_at is null;
comment on index runner_leases_due_idx is 'For the sweeper.';

comment on column in_flight.epoch is 'The session that it was last sent on; the lease''s token where a runner has it.';

-- Output ------------------------------------------------------------------------------------------------------------------

create function runner_text(p_bytes bytea, out said text, out is_lossy boolean)
language plpgsql immutable set search_path = pg_catalog, pg_temp as $$
declare
    size integer := length(p_bytes);
    at integer := 0;
    from_here integer := 0;
    first integer;
    second integer;
    need integer;
    good boolean;
begin
    is_lossy := false;
    begin
        said := convert_from(p_bytes, 'UTF8');
        return;
    exception when character_not_in_repertoire or untranslatable_character then
        is_lossy := true;
    end;
    said := '';
    while at < size loop
        first := get_byte(p_bytes, at);
        need := case when first between 1 and 127 then 1 when first between 194 and 223 then 2
                     when first between 224 and 239 then 3 when first between 240 and 244 then 4 else 0 end;
        good := need > 0 and at + need <= size;
        if good and need > 1 then
            second := get_byte(p_bytes, at + 1);
            good := second between case first when 224 then 160 when 240 then 144 else 128 end
                               and case first when 237 then 159 when 244 then 143 else 191 end
                and (need < 3 or get_byte(p_bytes, at + 2) between 128 and 191)
                and (need < 4 or get_byte(p_bytes, at + 3) between 128 and 191);
        end if;
        if good then
            at := at + need;
        else
            said := said || convert_from(substring(p_bytes from from_here + 1 for at - from_here), 'UTF8') || U&'\FFFD';
            at := at + 1;
            from_here := at;
        end if;
    end loop;
    said := said || convert_from(substring(p_bytes from from_here + 1), 'UTF8');
end $$;
comment on function runner_text is 'Bytes as text. Each byte that is no UTF-8, and each zero byte, is U+FFFD; is_lossy says so.';

create function runner_output(p_bytes bytea) returns jsonb
language plpgsql immutable set search_path = public, pg_catalog, pg_temp as $$
declare
    half constant integer := 32768;
    size integer := length(p_bytes);
    head_end integer := half;
    tail_start integer;
    head record;
    tail record;
begin
    if size <= 2 * half then
        head := runner_text(p_bytes);
        return jsonb_build_object('totalBytes', size, 'sha256', encode(sha256(p_bytes), 'hex'), 'truncated', false,
                                  'lossy', head.is_lossy, 'head', head.said, 'tail', '');
    end if;
    -- Back to where a character begins: at most three bytes. Further it is no UTF-8, and any place is as good.
    while head_end > half - 3 and get_byte(p_bytes, head_end) between 128 and 191 loop
        head_end := head_end - 1;
    end loop;
    tail_start := size - half;
    while tail_start < size - half + 3 and get_byte(p_bytes, tail_start) between 128 and 191 loop
        tail_start := tail_start + 1;
    end loop;
    head := runner_text(substring(p_bytes from 1 for head_end));
    tail := runner_text(substring(p_bytes from tail_start + 1));
    return jsonb_build_object('totalBytes', size, 'sha256', encode(sha256(p_bytes), 'hex'), 'truncated', true,
                              'lossy', head.is_lossy or tail.is_lossy, 'head', head.said, 'tail', tail.said);
end $$;
comment on function runner_output is
    'What is kept of an output stream: its size and SHA-256, and all of it up to 64 KiB, else 32 KiB of each end, cut between characters.';

create function runner_result(p_result bytea) returns jsonb
language plpgsql immutable set search_path = pg_catalog, pg_temp as $$
begin
    return convert_from(p_result, 'UTF8')::jsonb;
exception when others then
    return null;
end $$;
comment on function runner_result is 'A result as JSON; null for one that is none.';

create function runner_shown(p_output jsonb) returns text
language sql immutable set search_path = pg_catalog, pg_temp as $$
    select case when (p_output ->> 'truncated')::boolean
        then format(E'%s\n[... cut: %s bytes in all, SHA-256 %s ...]\n%s', p_output ->> 'head', p_output ->> 'totalBytes',
                    p_output ->> 'sha256', p_output ->> 'tail')
        else p_output ->> 'head' end
$$;
comment on function runner_shown is 'An output stream for people. A cut says so.';

-- Who may see what --------------------------------------------------------------------------------------------------------

create function runner_allows(p_node uuid) returns boolean
language sql stable security definer set search_path = public, pg_catalog, pg_temp as $$
    select exists (select from runner_logins l where l.login = session_user and l.node_id = p_node)
        or pg_has_role(session_user, (select relowner from pg_class where oid = 'public.runner_logins'::regclass), 'member')
$$;
comment on function runner_allows is 'Whether the user of this connection acts for a gateway.';

create view agent_commands with (security_barrier) as
select
    c.id,
    n.runner_slug as gateway_slug,
    case when w.is_action then c.payload ->> 'action' else c.kind end as action,
    case when w.is_action then c.payload -> 'payload' else c.payload end as payload,
    case
        when s.node_id is not null then case when s.state = 'succeeded' then 'done' else 'failed' end
        when f.node_id is null then 'pending'
        when f.state = 'running' then 'running'
        else 'leased'
    end as status,
    runner_shown(o.result -> 'stdout') as stdout,
    runner_shown(o.result -> 'stderr') as stderr,
    (o.result ->> 'exitCode')::integer as exit_code,
    case when s.state <> 'succeeded' then coalesce(nullif(o.result ->> 'error', ''), s.reason) end as error,
    c.created_at,
    l.leased_at,
    l.started_at,
    s.settled_at as finished_at,
    q.requested_by,
    l.leased_by,
    case when f.node_id is not null then l.expires_at end as lease_expires_at,
    case when f.node_id is not null then l.token end as lease_token,
    c.seq,
    c.idempotency_key,
    c.not_after,
    coalesce(s.cancel_requested_at, f.cancel_requested_at) as cancel_requested_at,
    s.state as outcome,
    s.reason,
    (o.result #>> '{stdout,totalBytes}')::bigint as stdout_bytes,
    o.result #>> '{stdout,sha256}' as stdout_sha256,
    (o.result #>> '{stdout,truncated}')::boolean as stdout_truncated,
    (o.result #>> '{stdout,lossy}')::boolean as stdout_lossy,
    (o.result #>> '{stderr,totalBytes}')::bigint as stderr_bytes,
    o.result #>> '{stderr,sha256}' as stderr_sha256,
    (o.result #>> '{stderr,truncated}')::boolean as stderr_truncated,
    (o.result #>> '{stderr,lossy}')::boolean as stderr_lossy
from nodes n
join commands c on c.node_id = n.id
-- A zero character is JSON and no text: one such row, shown as it is, must not keep all others from being read.
cross join lateral (
    select c.kind = 'runner.action' and position('\u0000' in c.payload::text) = 0 as is_action
) w
left join in_flight f on f.node_id = c.node_id and f.seq = c.seq
left join settled s on s.node_id = c.node_id and s.seq = c.seq
left join runner_requests q on q.node_id = c.node_id and q.seq = c.seq
left join lateral (
    select * from runner_leases where node_id = c.node_id and seq = c.seq order by token desc limit 1
) l on true
-- Only what the functions below have written: a result from a session has a form of its own.
left join lateral (select case when l.ending in ('done', 'failed') then runner_result(s.result) end as result) o on true
where n.runner_slug is not null and n.deleted_at is null and (
    exists (select from runner_logins g where g.login = session_user and g.node_id = n.id)
    or pg_has_role(session_user, (select relowner from pg_class where oid = 'public.runner_logins'::regclass), 'member')
);
comment on view agent_commands is
    'The commands of gateways that lease, all that there ever were: to each user of the database those of its own gateways. Inserting into it queues one.';
comment on column agent_commands.status is 'pending, leased, running, done or failed; outcome tells the ends apart.';
comment on column agent_commands.stdout is 'Text; a cut says so in it, and in stdout_truncated. Null before the end.';
comment on column agent_commands.stdout_lossy is 'Whether bytes that are no text were replaced by U+FFFD.';
comment on column agent_commands.error is 'What the runner said; lease-lost, timeout and the like where the control plane ended it.';
comment on column agent_commands.lease_token is 'The token of the lease that counts; null where there is none.';

-- Queueing ----------------------------------------------------------------------------------------------------------------

create function runner_canonical(p_value jsonb) returns text
language plpgsql immutable set search_path = public, pg_catalog, pg_temp as $$
declare
    said text;
    mantissa text;
    whole text;
    digits text;
    point integer;
begin
    case jsonb_typeof(p_value)
    when 'object' then
        -- RFC 8785 sorts by UTF-16, in which what lies above U+FFFF comes before U+E000.
        select '{' || coalesce(string_agg(to_json(key)::text || ':' || runner_canonical(value), ',' order by
                   convert_to(regexp_replace(key, U&'([\E000-\FFFF])', U&'\+10FFFF\\1', 'g'), 'UTF8')), '') || '}'
        into said from jsonb_each(p_value);
        return said;
    when 'array' then
        select '[' || coalesce(string_agg(runner_canonical(value), ',' order by place), '') || ']'
        into said from jsonb_array_elements(p_value) with ordinality as e (value, place);
        return said;
    when 'string' then return to_json(p_value #>> '{}')::text;
    when 'number' then
        said := abs((p_value #>> '{}')::float8)::text;
        if said = '0' then return '0'; end if;
        mantissa := split_part(said, 'e', 1);
        whole := split_part(mantissa, '.', 1);
        digits := whole || split_part(mantissa, '.', 2);
        point := length(whole) + coalesce(nullif(split_part(said, 'e', 2), '')::integer, 0)
                 - (length(digits) - length(ltrim(digits, '0')));
        digits := rtrim(ltrim(digits, '0'), '0');
        said := case
            when point between length(digits) and 21 then digits || repeat('0', point - length(digits))
            when point between 1 and 21 then left(digits, point) || '.' || substr(digits, point + 1)
            when point between -5 and 0 then '0.' || repeat('0', -point) || digits
            else left(digits, 1) || case when length(digits) > 1 then '.' || substr(digits, 2) else '' end
                 || 'e' || case when point > 0 then '+' else '-' end || abs(point - 1)
        end;
        return case when (p_value #>> '{}')::float8 < 0 then '-' else '' end || said;
    else return p_value::text;
    end case;
end $$;
comment on function runner_canonical is 'Canonical JSON (RFC 8785), as commands.payload holds it.';

create function runner_enqueue() returns trigger
language plpgsql security definer set search_path = public, pg_catalog, pg_temp as $$
declare
    said constant timestamptz := clock_timestamp();
    node nodes;
    kind kinds;
    body text;
    hash bytea;
    found_command commands;
    next_seq bigint;
    v7 text;
begin
    select * into node from nodes n where n.runner_slug = new.gateway_slug and n.deleted_at is null;
    if not found then
        raise exception 'there is no gateway with the slug %', coalesce(new.gateway_slug, 'null') using errcode = 'BC001';
    end if;
    if new.action is null or new.action !~ '^[A-Za-z][A-Za-z0-9_.-]{0,63}$' then
        raise exception 'action: up to 64 letters, digits, dots, dashes and underscores, a letter first' using errcode = 'BC002';
    end if;
    if coalesce(json_typeof(new.payload), 'object') <> 'object' then
        raise exception 'payload: an object' using errcode = 'BC002';
    end if;
    if new.not_after <= said then
        raise exception 'not_after: a time to come' using errcode = 'BC002';
    end if;
    if length(new.idempotency_key) not between 1 and 200 then
        raise exception 'idempotency_key: 1 to 200 characters' using errcode = 'BC002';
    end if;
    if coalesce(new.status, 'pending') <> 'pending' then
        raise exception 'status: a new command is pending' using errcode = 'BC002';
    end if;
    select * into kind from kinds k where k.name = 'runner.action' and k.status = 'active';
    if not found then
        raise exception 'the kind runner.action is not registered' using errcode = 'BC011';
    end if;
    body := runner_canonical(jsonb_build_object('action', new.action, 'payload', coalesce(new.payload::jsonb, '{}')));
    if octet_length(body) > 262144 then
        raise exception 'payload: at most 256 KiB' using errcode = 'BC002';
    end if;
    hash := sha256(convert_to(body, 'UTF8'));
    -- Ids sort by age: UUID version 7.
    v7 := lpad(to_hex((extract(epoch from said) * 1000)::bigint), 12, '0') || '7' || substr(replace(gen_random_uuid()::text, '-', ''), 14);
    new.id := coalesce(new.id, v7::uuid);
    new.idempotency_key := 'sql:' || coalesce(new.idempotency_key, new.id::text);
    new.not_after := coalesce(new.not_after, said + interval '1 hour');
    new.requested_by := coalesce(new.requested_by, session_user);

    -- Locks the counter until the commit, so that seqs become visible in their order: queue::enqueue does the same.
    update node_sequences s set next_cmd_seq = s.next_cmd_seq + 1 where s.node_id = node.id
    returning s.next_cmd_seq - 1 into next_seq;
    select * into found_command from commands c
    where c.node_id = node.id and c.idempotency_key = new.idempotency_key;
    if found then
        if found_command.payload_hash <> hash or found_command.kind <> kind.name then
            raise exception 'the key already means another command: %', found_command.id using errcode = 'BC012';
        end if;
        new.id := found_command.id;
        return new;
    end if;
    insert into commands (node_id, seq, id, tenant_id, idempotency_key, kind, kind_digest, lane, payload, payload_hash,
                          incarnation, not_after, created_at)
    values (node.id, next_seq, new.id, node.tenant_id, new.idempotency_key, kind.name, kind.digest, kind.lane, body::json, hash,
            node.incarnation, new.not_after, said);
    insert into ready (node_id, lane, seq, not_before, not_after, only_incarnation)
    values (node.id, kind.lane, next_seq, '-infinity', new.not_after,
            case when 'destructive' = any(kind.traits) then node.incarnation end);
    insert into runner_requests (node_id, seq, requested_by) values (node.id, next_seq, new.requested_by);
    insert into events (tenant_id, node_id, command_id, topic, body, at)
    values (node.tenant_id, node.id, new.id, 'node.command.queued', jsonb_build_object('kind', kind.name, 'seq', next_seq), said);
    perform pg_notify('better_compute_runner', node.runner_slug);
    new.seq := next_seq;
    new.status := 'pending';
    new.created_at := said;
    return new;
end $$;
comment on function runner_enqueue is 'Queues what is inserted into agent_commands, as queue::enqueue does, and wakes runners.';
create trigger agent_commands_enqueue instead of insert on agent_commands for each row execute function runner_enqueue();
comment on trigger agent_commands_enqueue on agent_commands is 'An insert queues a command.';

-- Leasing -----------------------------------------------------------------------------------------------------------------

create function runner_lease_end(p_lease_seconds integer) returns timestamptz
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    if p_lease_seconds is null or p_lease_seconds not between 1 and 86400 then
        raise exception 'p_lease_seconds: 1 to 86400, not %', coalesce(p_lease_seconds::text, 'null') using errcode = 'BC002';
    end if;
    return clock_timestamp() + p_lease_seconds * interval '1 second';
end $$;
comment on function runner_lease_end is 'When a lease that begins or is renewed now runs out.';

create function lease_command(p_gateway_slug text, p_lease_seconds integer) returns setof agent_commands
language plpgsql security definer set search_path = public, pg_catalog, pg_temp set enable_seqscan = off as $$
declare
    ends constant timestamptz := runner_lease_end(p_lease_seconds);
    said constant timestamptz := clock_timestamp();
    node nodes;
    one_lane lane;
    taken record;
    command commands;
    timeout bigint;
    new_token bigint;
begin
    -- The share lock keeps the node from beginning another life before this is committed.
    select * into node from nodes n where n.runner_slug = p_gateway_slug and n.deleted_at is null for share;
    if not found or not runner_allows(node.id) then
        raise exception 'there is no gateway with the slug %', coalesce(p_gateway_slug, 'null')
            using errcode = 'BC001', hint = 'Ask an operator whether this user of the database acts for that gateway.';
    end if;
    foreach one_lane in array enum_range(null::lane) loop
        delete from ready r where r.ctid = any (array(
            select p.ctid from ready p
            where p.node_id = node.id and p.lane = one_lane and p.not_before <= said and p.not_after > said
              and (p.only_incarnation is null or p.only_incarnation = node.incarnation)
            order by p.seq limit 1
            for update skip locked))
        returning r.node_id, r.seq, r.lane, r.attempt into taken;
        exit when found;
    end loop;
    if taken is null then
        return;
    end if;
    select * into strict command from commands c where c.node_id = taken.node_id and c.seq = taken.seq;
    select case when k.status = 'withdrawn' then 900000 else k.timeout_ms end into strict timeout
    from kinds k where k.digest = command.kind_digest;
    insert into runner_leases (node_id, seq, leased_by, leased_at, expires_at)
    values (taken.node_id, taken.seq, session_user || coalesce(' ' || nullif(left(current_setting('application_name', true), 100), ''), ''), said, ends)
    returning token into new_token;
    insert into in_flight (node_id, seq, state, lane, epoch, journal_id, boot_id, role, attempt, due_at, dispatched_at)
    values (taken.node_id, taken.seq, 'dispatched', taken.lane, new_token, '00000000-0000-0000-0000-000000000000', '', node.role,
            taken.attempt, command.not_after + timeout * interval '1 millisecond', said);
    return query select * from agent_commands a where a.id = command.id;
end $$;
comment on function lease_command is
    'Claims the gateway''s next command for some seconds: the row, with lease_token, or nothing. Errors: BC001, BC002.';

create function runner_held(
    p_command_id uuid, p_token bigint, out node_id uuid, out seq bigint, out token bigint, out is_started boolean,
    out is_cancelled boolean, out is_run_out boolean, out is_of_another_life boolean)
language plpgsql security definer set search_path = public, pg_catalog, pg_temp set enable_seqscan = off as $$
#variable_conflict use_column
declare
    command commands;
    flight in_flight;
    lease runner_leases;
begin
    select c.* into command from commands c join nodes n on n.id = c.node_id
    where c.id = p_command_id and n.runner_slug is not null;
    if not found or not runner_allows(command.node_id) then
        raise exception 'there is no command %', coalesce(p_command_id::text, 'null') using errcode = 'BC010';
    end if;
    select * into flight from in_flight f where f.node_id = command.node_id and f.seq = command.seq for update;
    if found then
        select * into lease from runner_leases l
        where l.node_id = command.node_id and l.seq = command.seq and l.token = flight.epoch and l.ended_at is null;
        if found and (p_token is null or p_token = lease.token) then
            node_id := command.node_id;
            seq := command.seq;
            token := lease.token;
            is_started := flight.state = 'running';
            is_cancelled := flight.cancel_requested_at is not null;
            is_run_out := lease.expires_at <= clock_timestamp();
            select 'destructive' = any(k.traits) and n.incarnation <> command.incarnation into is_of_another_life
            from kinds k, nodes n where k.digest = command.kind_digest and n.id = command.node_id;
            return;
        end if;
    end if;
    select * into lease from runner_leases l
    where l.node_id = command.node_id and l.seq = command.seq and l.token = p_token;
    if p_token is not null and (not found or lease.ending in ('returned', 'lost')) then
        raise exception 'the lease % of command % counts no more', p_token, p_command_id
            using errcode = 'BC003', hint = 'It ran out. Nothing was changed; stop what it runs, and lease again.';
    end if;
    if exists (select from settled s where s.node_id = command.node_id and s.seq = command.seq) then
        raise exception 'command % is over', p_command_id using errcode = 'BC004';
    end if;
    raise exception 'command % is not leased', p_command_id using errcode = 'BC005';
end $$;
comment on function runner_held is 'Locks a command that is leased, or says why it is not the caller''s.';

create function start_command(p_command_id uuid, p_token bigint default null) returns setof agent_commands
language plpgsql security definer set search_path = public, pg_catalog, pg_temp set enable_seqscan = off as $$
declare
    held record;
begin
    held := runner_held(p_command_id, p_token);
    if held.is_started and p_token is null then
        raise exception 'command % was started before', p_command_id
            using errcode = 'BC006', hint = 'With its token a runner may repeat itself.';
    elsif held.is_cancelled then
        raise exception 'command % was called off', p_command_id using errcode = 'BC008', hint = 'Do not run it; call fail_command.';
    elsif held.is_of_another_life then
        raise exception 'command % was meant for an earlier life of its gateway', p_command_id using errcode = 'BC008';
    elsif not held.is_started and held.is_run_out then
        raise exception 'the lease of command % ran out before it was started', p_command_id using errcode = 'BC009';
    elsif not held.is_started then
        update in_flight f set state = 'running' where f.node_id = held.node_id and f.seq = held.seq;
        update runner_leases l set started_at = clock_timestamp()
        where l.node_id = held.node_id and l.seq = held.seq and l.token = held.token;
    end if;
    return query select * from agent_commands a where a.id = p_command_id;
end $$;
comment on function start_command is
    'Says that a leased command is about to run. Run it only if this succeeds. Errors: BC003 to BC006, BC008, BC009, BC010.';

create function renew_lease(p_command_id uuid, p_lease_seconds integer, p_token bigint default null) returns setof agent_commands
language plpgsql security definer set search_path = public, pg_catalog, pg_temp set enable_seqscan = off as $$
declare
    ends constant timestamptz := runner_lease_end(p_lease_seconds);
    held record;
begin
    held := runner_held(p_command_id, p_token);
    update runner_leases l set expires_at = ends
    where l.node_id = held.node_id and l.seq = held.seq and l.token = held.token;
    return query select * from agent_commands a where a.id = p_command_id;
end $$;
comment on function renew_lease is
    'The heartbeat: the lease runs out so many seconds from now. cancel_requested_at tells a runner to stop. Errors: BC002 to BC005, BC010.';

create function runner_settle(
    p_command_id uuid, p_token bigint, p_ending lease_ending, p_exit_code integer, p_stdout bytea, p_stderr bytea, p_error text)
returns void
language plpgsql security definer set search_path = public, pg_catalog, pg_temp set enable_seqscan = off as $$
declare
    said constant timestamptz := clock_timestamp();
    held record;
    outcome terminal_state;
    why text;
    flight in_flight;
    kept jsonb;
begin
    begin
        held := runner_held(p_command_id, p_token);
    exception when sqlstate 'BC004' then
        -- A runner that got no answer asks again.
        if exists (select from commands c join runner_leases l on l.node_id = c.node_id and l.seq = c.seq
                   where c.id = p_command_id and l.token = p_token and l.ending = p_ending) then
            return;
        end if;
        raise;
    end;
    if p_ending = 'done' and not held.is_started then
        raise exception 'command % was not started', p_command_id using errcode = 'BC007', hint = 'Call start_command before running it.';
    end if;
    outcome := case when p_ending = 'done' then 'succeeded' when held.is_cancelled then 'cancelled' else 'failed' end;
    why := case outcome when 'succeeded' then '' when 'cancelled' then 'cancelled' else 'runner-failed' end;
    kept := jsonb_build_object('exitCode', p_exit_code, 'stdout', runner_output(coalesce(p_stdout, '')),
                               'stderr', runner_output(coalesce(p_stderr, '')));
    if p_ending = 'failed' then
        kept := kept || jsonb_build_object('error', left(coalesce(p_error, ''), 4096));
    end if;
    delete from in_flight f where f.node_id = held.node_id and f.seq = held.seq returning * into strict flight;
    insert into settled (node_id, seq, state, reason, result, settled_at, reported_at, dispatched_at, cancel_requested_at)
    values (held.node_id, held.seq, outcome, why, convert_to(kept::text, 'UTF8'), said, said, flight.dispatched_at,
            flight.cancel_requested_at);
    update runner_leases l set ended_at = said, ending = p_ending
    where l.node_id = held.node_id and l.seq = held.seq and l.token = held.token;
    insert into events (tenant_id, node_id, command_id, topic, body, at)
    select c.tenant_id, c.node_id, c.id, 'command.settled',
           jsonb_build_object('kind', c.kind, 'state', outcome, 'reason', why), said
    from commands c where c.id = p_command_id;
end $$;
comment on function runner_settle is 'Ends a leased command, as queue::settle does: the delete in in_flight is what makes it once.';

create function complete_command_bytes(
    p_command_id uuid, p_exit_code integer, p_stdout bytea, p_stderr bytea, p_token bigint default null)
returns setof agent_commands
language plpgsql security definer set search_path = public, pg_catalog, pg_temp as $$
begin
    if p_exit_code is distinct from 0 then
        raise exception 'p_exit_code: 0, not %; what failed is for fail_command', coalesce(p_exit_code::text, 'null') using errcode = 'BC002';
    end if;
    perform runner_settle(p_command_id, p_token, 'done', 0, p_stdout, p_stderr, null);
    return query select * from agent_commands a where a.id = p_command_id;
end $$;
comment on function complete_command_bytes is 'complete_command for output that may be no UTF-8.';

create function complete_command(
    p_command_id uuid, p_exit_code integer, p_stdout text, p_stderr text, p_token bigint default null)
returns setof agent_commands
language sql security definer set search_path = public, pg_catalog, pg_temp as $$
    select * from complete_command_bytes(p_command_id, p_exit_code, convert_to(p_stdout, 'UTF8'), convert_to(p_stderr, 'UTF8'), p_token)
$$;
comment on function complete_command is
    'The command exited 0. Repeated with its token it changes nothing and answers the same. Errors: BC002 to BC005, BC007, BC010.';

create function fail_command_bytes(
    p_command_id uuid, p_exit_code integer, p_stdout bytea, p_stderr bytea, p_error text, p_token bigint default null)
returns setof agent_commands
language plpgsql security definer set search_path = public, pg_catalog, pg_temp as $$
begin
    if coalesce(p_exit_code, 0) = 0 and coalesce(p_error, '') = '' then
        raise exception 'p_error: why it failed, where no exit code says so' using errcode = 'BC002';
    end if;
    perform runner_settle(p_command_id, p_token, 'failed', p_exit_code, p_stdout, p_stderr, p_error);
    return query select * from agent_commands a where a.id = p_command_id;
end $$;
comment on function fail_command_bytes is 'fail_command for output that may be no UTF-8.';

create function fail_command(
    p_command_id uuid, p_exit_code integer, p_stdout text, p_stderr text, p_error text, p_token bigint default null)
returns setof agent_commands
language sql security definer set search_path = public, pg_catalog, pg_temp as $$
    select * from fail_command_bytes(p_command_id, p_exit_code, convert_to(p_stdout, 'UTF8'), convert_to(p_stderr, 'UTF8'), p_error, p_token)
$$;
comment on function fail_command is
    'The command failed, before or after it was started. Repeated with its token it changes nothing. Errors: BC002 to BC005, BC010.';

-- Rights ------------------------------------------------------------------------------------------------------------------

revoke all on function
    runner_text, runner_output, runner_result, runner_shown, runner_allows, runner_canonical, runner_enqueue, runner_lease_end,
    lease_command, runner_held, start_command, renew_lease, runner_settle, complete_command, complete_command_bytes,
    fail_command, fail_command_bytes
from public;
grant select on agent_commands to better_compute_runner;
grant execute on function
    lease_command, start_command, renew_lease, complete_command, complete_command_bytes, fail_command, fail_command_bytes
to better_compute_runner;
-- The view's columns are made by these. They read nothing.
grant execute on function runner_result, runner_shown to better_compute_runner;
