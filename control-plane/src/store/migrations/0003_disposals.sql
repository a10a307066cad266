-- Sandboxes that nobody wants any more, until their runner was told. The runner's inventory finds what a lost reply missed.
create table disposals (
  runner_id text not null,
  session_id text not null,
  primary key (runner_id, session_id)
) without rowid;
