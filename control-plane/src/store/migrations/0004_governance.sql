-- Who may do what, row by row. Roles are compiled to such rows, so that what is listed is what is enforced.

create table group_members (
  group_id text not null references principals (id),
  member_id text not null references principals (id),
  added_at integer not null,
  primary key (group_id, member_id)
) without rowid;
create index group_members_by_member on group_members (member_id);

create table permission_assignments (
  id text primary key,
  workspace_id text not null references workspaces (id),
  -- A principal, groups included.
  subject_id text not null references principals (id),
  permission text not null,
  resource_kind text not null,
  id_glob text not null,
  -- The role that this row was compiled from, if any.
  role text,
  granted_by text not null,
  created_at integer not null,
  expires_at integer,
  revoked_at integer,
  revoked_by text
) without rowid;
create index permission_assignments_by_subject on permission_assignments (subject_id);
create index permission_assignments_by_workspace on permission_assignments (workspace_id, id);

-- What the roles of older databases stood for.
insert into permission_assignments
    (id, workspace_id, subject_id, permission, resource_kind, id_glob, role, granted_by, created_at)
  select 'perm_' || lower(hex(randomblob(16))), p.workspace_id, p.id, r.permission, '*', '*', p.role, p.id, p.created_at
    from principals p join (
      select 'viewer' as role, 'read' as permission
      union all select 'developer', value from json_each('["read","write","invoke","use_environment","use_agent","respond_approval"]')
      union all select 'operator', value from json_each('["read","write","invoke","use_environment","use_agent","respond_approval","pair_runner","claim"]')
      union all select 'owner', value from json_each('["invoke","use_environment","use_agent","use_connection","pair_runner","claim","respond_approval","act_as","read","write","admin"]')
    ) r on r.role = p.role;

-- Sessions that work, to be looked through when somebody's permission ends.
create index sessions_at_work on sessions (workspace_id) where status in ('running', 'rescheduling');
