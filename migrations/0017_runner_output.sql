-- For runners that keep no more than both ends of what a program writes: they settle with what they have kept, and with the true
-- totals. And a runner hears at once of actions that the API has queued, and that what it runs was called off.

create function runner_kept(p_output jsonb, p_name text) returns jsonb
language plpgsql immutable set search_path = public, pg_catalog, pg_temp as $$
declare
    most constant integer := 32768;
    head text;
    tail text;
    total numeric;
    is_cut boolean;
    is_lossy boolean;
begin
    if p_output is null then
        return runner_output('');
    end if;
    if jsonb_typeof(p_output) <> 'object' or jsonb_typeof(p_output -> 'totalBytes') is distinct from 'number'
        or jsonb_typeof(p_output -> 'sha256') is distinct from 'string' or jsonb_typeof(p_output -> 'truncated') is distinct from 'boolean'
        or jsonb_typeof(p_output -> 'lossy') is distinct from 'boolean' or jsonb_typeof(p_output -> 'head') is distinct from 'string'
        or jsonb_typeof(p_output -> 'tail') is distinct from 'string' then
        raise exception '%: an object with totalBytes, sha256, truncated, lossy, head and tail', p_name using errcode = 'BC002';
    end if;
    head := p_output ->> 'head';
    tail := p_output ->> 'tail';
    total := (p_output ->> 'totalBytes')::numeric;
    is_cut := (p_output ->> 'truncated')::boolean;
    is_lossy := (p_output ->> 'lossy')::boolean;
    if total < 0 or total > 9223372036854775807 or total <> trunc(total) then
        raise exception '%.totalBytes: a number of bytes, not %', p_name, total using errcode = 'BC002';
    end if;
    if p_output ->> 'sha256' !~ '^[0-9a-f]{64}$' then
        raise exception '%.sha256: 64 lower-case hex digits', p_name using errcode = 'BC002';
    end if;
    -- A byte that is no text became U+FFFD, which takes three.
    if octet_length(head) > most * (case when is_cut then 1 else 2 end) * (case when is_lossy then 3 else 1 end)
        or octet_length(tail) > most * (case when is_lossy then 3 else 1 end) then
        raise exception '%: at most 64 KiB are kept, 32 KiB of each end where it is cut', p_name using errcode = 'BC002';
    end if;
    if not is_cut and tail <> '' then
        raise exception '%.tail: nothing, where nothing is cut', p_name using errcode = 'BC002';
    end if;
    if is_cut and not is_lossy and total <= octet_length(head) + octet_length(tail) then
        raise exception '%.totalBytes: more than what is kept, where something is cut', p_name using errcode = 'BC002';
    end if;
    if not is_cut and not is_lossy
        and (total <> octet_length(head) or p_output ->> 'sha256' <> encode(sha256(convert_to(head, 'UTF8')), 'hex')) then
        raise exception '%: totalBytes and sha256 are not those of head, and nothing is cut', p_name using errcode = 'BC002';
    end if;
    return jsonb_build_object('totalBytes', total::bigint, 'sha256', p_output ->> 'sha256', 'truncated', is_cut, 'lossy', is_lossy,
                              'head', head, 'tail', tail);
end $$;
comment on function runner_kept is
    'What a runner has kept of a stream, in the form of runner_output, or BC002 with what is wrong. Null is a stream without output.';

create function runner_settle_kept(
    p_command_id uuid, p_token bigint, p_ending lease_ending, p_exit_code integer, p_stdout jsonb, p_stderr jsonb, p_error text)
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
    kept := jsonb_build_object('exitCode', p_exit_code, 'stdout', p_stdout, 'stderr', p_stderr);
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
comment on function runner_settle_kept is
    'Ends a leased command, as queue::settle does: the delete in in_flight is what makes it once. Of output it takes what runner_output gives.';

create or replace function runner_settle(
    p_command_id uuid, p_token bigint, p_ending lease_ending, p_exit_code integer, p_stdout bytea, p_stderr bytea, p_error text)
returns void
language sql security definer set search_path = public, pg_catalog, pg_temp as $$
    select runner_settle_kept(p_command_id, p_token, p_ending, p_exit_code, runner_output(coalesce(p_stdout, '')),
                              runner_output(coalesce(p_stderr, '')), p_error)
$$;
comment on function runner_settle is 'Ends a leased command with all of its output.';

create function complete_command_cut(p_command_id uuid, p_exit_code integer, p_stdout jsonb, p_stderr jsonb, p_token bigint default null)
returns setof agent_commands
language plpgsql security definer set search_path = public, pg_catalog, pg_temp as $$
begin
    if p_exit_code is distinct from 0 then
        raise exception 'p_exit_code: 0, not %; what failed is for fail_command_cut', coalesce(p_exit_code::text, 'null') using errcode = 'BC002';
    end if;
    perform runner_settle_kept(p_command_id, p_token, 'done', 0, runner_kept(p_stdout, 'p_stdout'), runner_kept(p_stderr, 'p_stderr'), null);
    return query select * from agent_commands a where a.id = p_command_id;
end $$;
comment on function complete_command_cut is
    'complete_command for a runner that kept both ends of the output: {totalBytes, sha256, truncated, lossy, head, tail} of each stream. Errors: BC002 to BC005, BC007, BC010.';

create function fail_command_cut(
    p_command_id uuid, p_exit_code integer, p_stdout jsonb, p_stderr jsonb, p_error text, p_token bigint default null)
returns setof agent_commands
language plpgsql security definer set search_path = public, pg_catalog, pg_temp as $$
begin
    if coalesce(p_exit_code, 0) = 0 and coalesce(p_error, '') = '' then
        raise exception 'p_error: why it failed, where no exit code says so' using errcode = 'BC002';
    end if;
    perform runner_settle_kept(p_command_id, p_token, 'failed', p_exit_code, runner_kept(p_stdout, 'p_stdout'),
                               runner_kept(p_stderr, 'p_stderr'), p_error);
    return query select * from agent_commands a where a.id = p_command_id;
end $$;
comment on function fail_command_cut is 'fail_command for a runner that kept both ends of the output. Errors: BC002 to BC005, BC010.';

create function runner_cancel_told() returns trigger
language plpgsql security definer set search_path = public, pg_catalog, pg_temp as $$
begin
    perform pg_notify('better_compute_runner_cancel', c.id::text)
    from commands c join nodes n on n.id = c.node_id
    where c.node_id = new.node_id and c.seq = new.seq and n.runner_slug is not null;
    return null;
end $$;
comment on function runner_cancel_told is 'Tells runners that a command which one of them has was called off: the payload is its id.';
create trigger in_flight_cancel_told after update of cancel_requested_at on in_flight
for each row when (old.cancel_requested_at is null and new.cancel_requested_at is not null)
execute function runner_cancel_told();
comment on trigger in_flight_cancel_told on in_flight is 'A runner hears of it before its next heartbeat.';

create function runner_action_told() returns trigger
language plpgsql security definer set search_path = public, pg_catalog, pg_temp as $$
begin
    perform pg_notify('better_compute_runner', n.runner_slug) from nodes n where n.id = new.node_id and n.runner_slug is not null;
    return null;
end $$;
comment on function runner_action_told is 'Wakes the runners of a gateway, as runner_enqueue does for what is inserted by SQL.';
create trigger commands_runner_told after insert on commands
for each row when (new.kind = 'runner.action')
execute function runner_action_told();
comment on trigger commands_runner_told on commands is 'Whoever queued it: the API, a batch or a workflow.';

revoke all on function
    runner_kept, runner_settle_kept, complete_command_cut, fail_command_cut, runner_cancel_told, runner_action_told
from public;
grant execute on function complete_command_cut, fail_command_cut to better_compute_runner;
