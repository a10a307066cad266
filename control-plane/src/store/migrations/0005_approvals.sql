-- Which actions run, ask or are refused, what became of those that asked, and the record of every act of governance.

create table action_policies (
  id text primary key,
  workspace_id text not null references workspaces (id),
  name text not null,
  version integer not null,
  rules text not null,
  created_at integer not null,
  updated_at integer not null,
  archived_at integer
) without rowid;
create index action_policies_by_workspace on action_policies (workspace_id, id);
create unique index action_policies_by_name on action_policies (workspace_id, name) where archived_at is null;

create table action_approvals (
  id text primary key,
  workspace_id text not null,
  session integer not null references sessions (key) on delete cascade,
  tool_use_id text not null,
  principal_id text not null,
  agent_id text not null,
  resource_kind text not null,
  tool text not null,
  -- As logged: what was asked about is what runs.
  arguments text not null,
  arguments_sha256 text not null,
  reason text not null,
  other_responder integer not null,
  requested_at integer not null,
  expires_at integer not null,
  status text not null,
  responder text,
  responded_at integer,
  note text
) without rowid;
create index action_approvals_by_workspace on action_approvals (workspace_id, id);
create unique index action_approvals_by_call on action_approvals (session, tool_use_id);
create index action_approvals_pending on action_approvals (expires_at) where status = 'pending';

create table response_tokens (
  hash text primary key,
  approval_id text not null references action_approvals (id) on delete cascade,
  principal_id text not null,
  expires_at integer not null,
  used_at integer
) without rowid;

create table standing_approvals (
  id text primary key,
  workspace_id text not null references workspaces (id),
  principal_id text not null,
  agent_id text not null,
  resource_kind text not null,
  tool text not null,
  arguments_sha256 text not null,
  approval_id text not null,
  created_by text not null,
  created_at integer not null,
  expires_at integer not null,
  max_uses integer,
  uses integer not null default 0,
  revoked_at integer,
  revoked_by text
) without rowid;
create index standing_approvals_by_tuple on standing_approvals (workspace_id, principal_id, agent_id);

create table audit (
  workspace_id text not null,
  seq integer not null,
  at integer not null,
  actor text not null,
  action text not null,
  resource text not null,
  outcome text not null,
  before_sha256 text,
  after_sha256 text,
  request_id text,
  prev_hash text not null,
  hash text not null,
  primary key (workspace_id, seq)
) without rowid;
