-- What people register: who may call, and what sessions are made of. Instants are milliseconds since the Unix epoch.

create table workspaces (
  id text primary key,
  name text not null unique,
  created_at integer not null
) without rowid;

create table principals (
  id text primary key,
  workspace_id text not null references workspaces (id),
  name text not null,
  -- user, service, agent
  kind text not null,
  -- owner, operator, developer, viewer
  role text not null,
  created_at integer not null,
  archived_at integer,
  unique (workspace_id, name)
) without rowid;

create table api_keys (
  id text primary key,
  workspace_id text not null references workspaces (id),
  principal_id text not null references principals (id),
  name text not null,
  -- The first characters, to tell keys apart.
  hint text not null,
  sha256 text not null unique,
  created_at integer not null,
  expires_at integer,
  last_used_at integer,
  revoked_at integer
) without rowid;

create table agents (
  id text primary key,
  workspace_id text not null references workspaces (id),
  version integer not null,
  created_at integer not null,
  archived_at integer
) without rowid;
create index agents_by_workspace on agents (workspace_id, id);

create table agent_versions (
  agent_id text not null references agents (id),
  version integer not null,
  created_at integer not null,
  definition text not null,
  primary key (agent_id, version)
) without rowid;

create table environments (
  id text primary key,
  workspace_id text not null references workspaces (id),
  name text not null,
  description text,
  metadata text not null,
  revision integer not null,
  created_at integer not null,
  updated_at integer not null,
  archived_at integer,
  deleted_at integer
) without rowid;
create index environments_by_workspace on environments (workspace_id, id);
create unique index environments_by_name on environments (workspace_id, name)
  where deleted_at is null and archived_at is null;

create table environment_revisions (
  environment_id text not null references environments (id),
  revision integer not null,
  created_at integer not null,
  config text not null,
  spec text not null,
  primary key (environment_id, revision)
) without rowid;
