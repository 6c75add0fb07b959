-- What the programs of a run write, while it runs: for whoever follows it. The result keeps its own account of it.

create type output_stream as enum ('stdout', 'stderr');
comment on type output_stream is 'stdout: what a program says; stderr: what it complains about.';

create table command_output (
    node_id uuid not null,
    seq bigint not null,
    attempt bigint not null,
    stream output_stream not null,
    at_byte bigint not null constraint command_output_at_byte_check check (at_byte >= 0),
    bytes bytea not null constraint command_output_bytes_check check (length(bytes) between 1 and 65536),
    constraint command_output_pkey primary key (node_id, seq, attempt, stream, at_byte),
    constraint command_output_most_check check (at_byte + length(bytes) <= 1048576)
);
comment on table command_output is
    'Output of runs, in pieces: of each stream of an attempt the first MiB at most. Rows are never changed and never deleted. What lies between two pieces was lost on the way.';
comment on column command_output.attempt is 'Which run of the command, from 1; the lease''s token where a runner has it.';
comment on column command_output.at_byte is 'How many bytes of the stream come before.';
comment on constraint command_output_pkey on command_output is 'A piece that is told twice is kept once; also finds what follows an offset.';
comment on constraint command_output_at_byte_check on command_output is 'An offset.';
comment on constraint command_output_bytes_check on command_output is 'A piece is not empty, and small enough to be sent on.';
comment on constraint command_output_most_check on command_output is 'One command does not fill the disk.';

create function append_output(
    p_command_id uuid, p_stream text, p_offset bigint, p_bytes bytea, p_token bigint default null)
returns bigint
language plpgsql security definer set search_path = public, pg_catalog, pg_temp set enable_seqscan = off as $$
declare
    most constant bigint := 1048576;
    held record;
    at bigint := p_offset;
    piece bytea;
begin
    if p_stream is null or p_stream not in ('stdout', 'stderr') then
        raise exception 'p_stream: stdout or stderr, not %', coalesce(p_stream, 'null') using errcode = 'BC002';
    end if;
    if p_offset is null or p_offset < 0 then
        raise exception 'p_offset: how many bytes of the stream come before, not %', coalesce(p_offset::text, 'null') using errcode = 'BC002';
    end if;
    held := runner_held(p_command_id, p_token);
    if not held.is_started then
        raise exception 'command % was not started', p_command_id using errcode = 'BC007', hint = 'Call start_command before running it.';
    end if;
    loop
        piece := substring(p_bytes from (at - p_offset)::integer + 1 for least(65536, greatest(most - at, 0))::integer);
        exit when coalesce(length(piece), 0) = 0;
        insert into command_output (node_id, seq, attempt, stream, at_byte, bytes)
        values (held.node_id, held.seq, held.token, p_stream::output_stream, at, piece)
        on conflict do nothing;
        at := at + length(piece);
    end loop;
    if at > p_offset then
        perform pg_notify('better_compute', json_build_object('from', 'runner', 'output', json_build_array(p_command_id))::text);
    end if;
    return p_offset + coalesce(length(p_bytes), 0);
end $$;
comment on function append_output is
    'Output of a command that runs, for whoever follows it: so many bytes of the stream came before. Of each stream the first MiB is kept. Answers the next offset; told twice it changes nothing. Errors: BC002 to BC005, BC007, BC010.';

revoke all on function append_output from public;
grant execute on function append_output to better_compute_runner;
