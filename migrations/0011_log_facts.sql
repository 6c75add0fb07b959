-- Who asked for a command, for the transparency log and for people who look at it later.

alter table commands
    add column requested_by text
        constraint commands_requested_by_check check (requested_by <> '');
comment on column commands.requested_by is
    'Who asked for it: the name of the identity at that time, or module/<name> for what the control plane asks by itself. Null for a command from before this was written down.';
comment on constraint commands_requested_by_check on commands is 'An empty name says nothing.';
