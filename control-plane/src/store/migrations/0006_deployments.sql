-- Pinned releases: what was reviewed together, and what a session of it runs.
create table agent_deployments (
  id text primary key,
  workspace_id text not null references workspaces (id),
  name text not null,
  agent_id text not null references agents (id),
  agent_version integer not null,
  environment_id text not null references environments (id),
  environment_revision integer not null,
  harness text not null,
  model_route text not null,
  created_at integer not null,
  archived_at integer
) without rowid;
create index agent_deployments_by_workspace on agent_deployments (workspace_id, id);
create unique index agent_deployments_by_name on agent_deployments (workspace_id, name) where archived_at is null;
