-- Model providers, the routes to them, what they were paid, and the budgets of sessions. Money is micro-USD.

create table providers (
  id text primary key,
  workspace_id text not null references workspaces (id),
  name text not null,
  -- anthropic, openai_compatible
  kind text not null,
  base_url text not null,
  allow_private integer not null,
  -- Sealed under the master key, which the database never sees.
  sealed_key text,
  key_set_at integer,
  -- Grows with every change that a connection must notice.
  revision integer not null,
  created_at integer not null,
  updated_at integer not null,
  archived_at integer
) without rowid;
create unique index providers_by_name on providers (workspace_id, name) where archived_at is null;

create table model_routes (
  id text primary key,
  workspace_id text not null references workspaces (id),
  name text not null,
  -- In the order they are asked (JSON).
  candidates text not null,
  created_at integer not null,
  updated_at integer not null,
  archived_at integer
) without rowid;
create unique index model_routes_by_name on model_routes (workspace_id, name) where archived_at is null;

-- What each model request was billed, before and after its end is logged.
alter table model_usage add column bill text;
alter table model_usage add column cost_micro_usd integer not null default 0;
alter table model_usage add column tokens integer not null default 0;
-- Whether the log tells of it.
alter table model_usage add column logged integer not null default 0;

-- What each session used in all, which budgets are judged by.
create table spends (
  session integer primary key references sessions (key) on delete cascade,
  micro_usd integer not null,
  tokens integer not null
);

create table budgets (
  id text primary key,
  session integer not null references sessions (key) on delete cascade,
  workspace_id text not null,
  -- model_spend, model_tokens
  metric text not null,
  -- Micro-USD or tokens.
  amount integer not null,
  paused integer not null default 0,
  created_at integer not null,
  updated_at integer not null,
  unique (session, metric)
) without rowid;
create index budgets_by_workspace on budgets (workspace_id, id);

insert into budgets (id, session, workspace_id, metric, amount, created_at, updated_at)
  select 'bud_' || lower(hex(randomblob(16))), key, workspace_id, 'model_spend',
    cast(json_extract(facts, '$.budget.max_list_cost.amount') as integer) * 10000, created_at, created_at
  from sessions where json_extract(facts, '$.budget.max_list_cost.amount') is not null;
