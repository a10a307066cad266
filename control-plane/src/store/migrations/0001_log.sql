-- The log, the state that follows from it, and what claims need. Instants are milliseconds since the Unix epoch.

create table sessions (
  key integer primary key,
  id text not null unique,
  workspace_id text not null,
  created_at integer not null,
  updated_at integer not null,
  archived_at integer,
  agent_id text not null,
  status text not null,
  -- What the session was made of: agent snapshot, environment, principal (JSON).
  definition text not null,
  -- Title, metadata, budget: what an update changes (JSON).
  facts text not null,
  -- The fold of the log (JSON).
  state text not null,
  -- The newest epoch that was offered; it only grows.
  epoch integer not null default 0,
  -- The runner that has the session's sandbox.
  sandbox_runner text
);
create index sessions_by_workspace on sessions (workspace_id, id);

create table events (
  session integer not null references sessions (key) on delete cascade,
  seq integer not null,
  kind text not null,
  body text not null
);
create unique index events_by_seq on events (session, seq);

create table runs (
  id text primary key,
  session integer not null references sessions (key) on delete cascade,
  created_at integer not null,
  record text not null
) without rowid;
create index runs_by_session on runs (session, id);

-- Runs that wait for a runner; claim names an outstanding offer.
create table queue (
  session integer primary key references sessions (key) on delete cascade,
  workspace_id text not null,
  queued_at integer not null,
  labels text not null,
  claim text
);

create table claims (
  id text primary key,
  session integer not null references sessions (key) on delete cascade,
  run_id text not null,
  runner_id text not null,
  instance_id text not null,
  request_id text not null,
  epoch integer not null,
  attempt integer not null,
  -- offered, live, lost, returned, settled, fenced
  state text not null,
  offered_until integer not null,
  lease_until integer not null,
  next_index integer not null default 0,
  gateway_hash text not null,
  settled text
) without rowid;
create index claims_by_runner on claims (runner_id, state);
create index claims_by_session on claims (session, epoch);
create unique index claims_by_request on claims (runner_id, request_id);
create unique index claims_by_gateway on claims (gateway_hash);

create table claim_events (
  claim text not null references claims (id) on delete cascade,
  idx integer not null,
  event_id text not null,
  digest text not null,
  decision text,
  primary key (claim, idx)
) without rowid;

create table model_usage (
  session integer not null references sessions (key) on delete cascade,
  request_id text not null,
  model text not null,
  usage text not null,
  primary key (session, request_id)
) without rowid;

create table pairings (
  id text primary key,
  workspace_id text not null,
  principal_id text not null,
  created_by text not null,
  selector text not null unique,
  secret_hmac text not null,
  misses integer not null default 0,
  created_at integer not null,
  expires_at integer not null,
  name text,
  labels text not null,
  max_sessions integer,
  ephemeral integer not null,
  public_key text,
  runner_id text
) without rowid;

create table pair_misses (
  source text not null,
  at integer not null
);
create index pair_misses_by_source on pair_misses (source, at);

create table runners (
  id text primary key,
  workspace_id text not null,
  principal_id text not null,
  pairing_id text not null,
  public_key text not null,
  name text not null,
  labels text not null,
  said_labels text not null default '[]',
  max_sessions integer,
  ephemeral integer not null,
  host text not null,
  instance_id text not null,
  created_at integer not null,
  last_seen integer not null,
  draining integer not null default 0,
  revoked_at integer,
  revoked_reason text
) without rowid;

create table runner_tokens (
  hash text primary key,
  runner_id text not null,
  instance_id text not null,
  created_at integer not null,
  expires_at integer not null,
  used integer not null default 0
) without rowid;
create index runner_tokens_by_runner on runner_tokens (runner_id);

create table closed_instances (
  instance_id text primary key,
  at integer not null
) without rowid;

create table settlements (
  id text primary key,
  claim text not null references claims (id) on delete cascade,
  epoch integer not null,
  manifest_digest text not null
) without rowid;
create index settlements_by_claim on settlements (claim);

create table uploads (
  id text primary key,
  settlement text not null references settlements (id) on delete cascade,
  claim text not null,
  file_key text not null,
  path text not null,
  size integer not null,
  sha256 text not null,
  durable integer not null default 0,
  done integer not null default 0
) without rowid;
create index uploads_by_settlement on uploads (settlement);

create table files (
  session integer not null references sessions (key) on delete cascade,
  path text not null,
  id text not null,
  path_b64 text not null,
  status text not null,
  size integer not null,
  sha256 text,
  -- The name of its bytes in custody, when captured.
  stored text,
  captured_at integer not null,
  primary key (session, path)
) without rowid;

-- Stored bytes that nobody names any more; a sweep removes them.
create table garbage (
  stored text primary key
) without rowid;

create table replays (
  scope text primary key,
  body_digest text not null,
  reply text not null,
  at integer not null
) without rowid;
