-- Where the file of a command goes, of kinds that upload one.

alter table commands
    add column upload_object text
        constraint commands_upload_object_check check (upload_object ~ '^https?://' and length(upload_object) <= 1000),
    add column upload_max_bytes bigint
        constraint commands_upload_max_bytes_check check (upload_max_bytes > 0),
    add constraint commands_upload_check check ((upload_object is null) = (upload_max_bytes is null));
comment on column commands.upload_object is
    'The object that its file goes to: scheme, host, port and path, as it was signed. Null where it uploads nothing. What allows to write there is made anew at each delivery, and stands in no row.';
comment on column commands.upload_max_bytes is 'The most bytes of that file, as it was signed. Null where it uploads nothing.';
comment on constraint commands_upload_object_check on commands is 'A store is spoken to over HTTP, and its keys are at most 1024 bytes long.';
comment on constraint commands_upload_max_bytes_check on commands is 'A cap of nothing would allow nothing.';
comment on constraint commands_upload_check on commands is 'A place and its cap go together.';

create index commands_upload_idx on commands (node_id, seq) where upload_object is not null;
comment on index commands_upload_idx is 'The support bundles of a node, newest first. It has no entry for all the other commands.';
