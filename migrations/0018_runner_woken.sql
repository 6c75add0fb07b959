-- A runner hears of what was held back for an approval when it is let go: it was told of nothing when that was queued.

create function runner_released_told() returns trigger
language plpgsql security definer set search_path = public, pg_catalog, pg_temp as $$
begin
    perform pg_notify('better_compute_runner', n.runner_slug) from nodes n where n.id = new.node_id and n.runner_slug is not null;
    return null;
end $$;
comment on function runner_released_told is 'Wakes the runners of a gateway when one of its commands may be leased that was held.';
create trigger ready_runner_told after update of not_before on ready
for each row when (old.not_before = 'infinity' and new.not_before < 'infinity')
execute function runner_released_told();
comment on trigger ready_runner_told on ready is 'An approved batch lets its commands go. Claims delete rows of ready and update none, so that they pay nothing.';

revoke all on function runner_released_told from public;
