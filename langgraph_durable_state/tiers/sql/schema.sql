-- The durable tier's tables. Safe to run again, by several at once, and inside a transaction.
-- Every key starts with the thread's key (16 bytes of SHA-256 over tenant and thread id), so that
-- the tables can be hash-partitioned by thread; the ids themselves stand once, in "thread".
-- Values are compressed before they come here: STORAGE EXTERNAL keeps Postgres from trying again.

-- An application's role needs, once it is installed:
--   GRANT USAGE ON SCHEMA {schema} TO app;
--   GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA {schema} TO app;

-- One block, so that the lock holds to its end whether or not a transaction is around it. Where it
-- is installed nothing is done: ALTER TABLE and CREATE INDEX would lock out the others.
DO $install$ BEGIN
PERFORM pg_advisory_xact_lock(hashtextextended('langgraph_durable_state {schema}', 0));
-- Not to_regclass: this session may remember that there was no such table before it waited.
IF NOT EXISTS (SELECT FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
                WHERE n.nspname = '{schema}' AND c.relname = 'installed') THEN

CREATE SCHEMA IF NOT EXISTS {schema};

CREATE TABLE IF NOT EXISTS {schema}.installed (
  version int PRIMARY KEY,
  at timestamptz NOT NULL DEFAULT now()
);

CREATE TABLE IF NOT EXISTS {schema}.thread (
  tk uuid PRIMARY KEY,
  tenant bytea NOT NULL,
  id bytea NOT NULL,
  user_id bytea,
  session_id bytea,
  at timestamptz NOT NULL DEFAULT now()
);

-- What a run resumes from. A put updates it in place: room is left for that.
CREATE TABLE IF NOT EXISTS {schema}.head (
  tk uuid NOT NULL,
  ns text COLLATE "C" NOT NULL,
  seq bigint NOT NULL,
  id text COLLATE "C" NOT NULL,
  digest bytea NOT NULL,
  PRIMARY KEY (tk, ns)
) WITH (fillfactor = 70);

-- One stored checkpoint. "chunks" are its chunks' numbers, 8 bytes each; "size" is in plain bytes.
CREATE TABLE IF NOT EXISTS {schema}.checkpoint (
  tk uuid NOT NULL,
  seq bigint NOT NULL,
  size int NOT NULL,
  refused boolean NOT NULL DEFAULT false,
  ns text COLLATE "C" NOT NULL,
  id text COLLATE "C" NOT NULL,
  parent text COLLATE "C",
  digest bytea NOT NULL,
  chunks bytea NOT NULL,
  meta jsonb NOT NULL,
  record bytea NOT NULL,
  PRIMARY KEY (tk, ns, id)
);
CREATE INDEX IF NOT EXISTS checkpoint_order ON {schema}.checkpoint (tk, ns, seq);
CREATE INDEX IF NOT EXISTS checkpoint_run ON {schema}.checkpoint (md5(meta ->> 'run_id'))
  WHERE meta ? 'run_id';
ALTER TABLE {schema}.checkpoint ALTER record SET STORAGE EXTERNAL;

CREATE TABLE IF NOT EXISTS {schema}.chunk (
  tk uuid NOT NULL,
  no bigint NOT NULL,
  digest bytea NOT NULL,
  data bytea NOT NULL,
  PRIMARY KEY (tk, no)
);
ALTER TABLE {schema}.chunk ALTER data SET STORAGE EXTERNAL;

-- Pending writes of one task: slot 0 its ordinary ones (the first batch, whole), negative slots
-- one special channel each (the last), positive slots later batches that differ.
CREATE TABLE IF NOT EXISTS {schema}.write (
  tk uuid NOT NULL,
  slot int NOT NULL,
  n int NOT NULL,
  at timestamptz NOT NULL DEFAULT now(),
  ns text COLLATE "C" NOT NULL,
  id text COLLATE "C" NOT NULL,
  task text COLLATE "C" NOT NULL,
  path text COLLATE "C" NOT NULL,
  digest bytea NOT NULL,
  chunks bytea NOT NULL,
  data bytea NOT NULL,
  PRIMARY KEY (tk, ns, id, task, slot)
);
ALTER TABLE {schema}.write ALTER data SET STORAGE EXTERNAL;

-- Chunk numbers are packed in four bytes each: a count of blocks, the blocks (40 bits each), then
-- one byte that says which block and three that count within it. Without blocks: eight bytes each.
CREATE OR REPLACE FUNCTION {schema}.numbers(packed bytea) RETURNS bigint[]
  LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
  RETURN CASE
    WHEN length(packed) = 0 THEN '{{}}'::bigint[]
    WHEN get_byte(packed, 0) = 0 THEN ARRAY(
      SELECT ('x' || encode(substring(packed FROM i FOR 8), 'hex'))::bit(64)::bigint
        FROM generate_series(2, length(packed), 8) AS i)
    ELSE ARRAY(
      SELECT (('x' || encode(substring(packed FROM 2 + 5 * get_byte(packed, i) FOR 5), 'hex'))
               ::bit(40)::bigint << 23)
             | ('x' || encode(substring(packed FROM i + 2 FOR 3), 'hex'))::bit(24)::bigint
        FROM generate_series(1 + 5 * get_byte(packed, 0), length(packed) - 1, 4) AS i)
  END;

INSERT INTO {schema}.installed (version) VALUES (1) ON CONFLICT DO NOTHING;

END IF;

-- Version 2: "ahead" is the token of the spell in which Redis may be ahead of this head, and
-- "flushed" the number of the last of its entries that is here. A head without a digest is there for
-- that only.
IF NOT EXISTS (SELECT FROM {schema}.installed WHERE version >= 2) THEN

ALTER TABLE {schema}.head ADD COLUMN ahead bytea, ADD COLUMN ahead_at timestamptz,
  ADD COLUMN flushed bigint NOT NULL DEFAULT 0;
CREATE INDEX head_ahead ON {schema}.head (ahead_at) WHERE ahead IS NOT NULL;

-- Who alone may run a thread, and until when; what was put under another fence is refused. It
-- belongs to the thread's name: deleting a thread leaves its lease.
CREATE TABLE {schema}.lease (
  tk uuid PRIMARY KEY,
  fence bigint NOT NULL,
  until timestamptz NOT NULL,
  holder text COLLATE "C" NOT NULL
) WITH (fillfactor = 70);

INSERT INTO {schema}.installed (version) VALUES (2);

END IF;

-- Version 3.
IF NOT EXISTS (SELECT FROM {schema}.installed WHERE version >= 3) THEN

-- What happened to a thread: recovery, maintenance, audit. Each digest covers the one before.
CREATE TABLE {schema}.event (
  tk uuid NOT NULL,
  n bigint NOT NULL,
  at timestamptz NOT NULL,
  kind text COLLATE "C" NOT NULL,
  detail jsonb NOT NULL,
  digest bytea NOT NULL,
  PRIMARY KEY (tk, n)
);

-- What is left of a namespace whose head is gone: its newest checkpoint that was not refused. That of
-- a thread that is being copied comes last. It is a function of its own, in a language that plans what
-- it runs, so that who does not need it does not pay for it: within the statement that reads a head
-- its tables and indexes would be locked each time, 10 to 40 us of some 100.
CREATE FUNCTION {schema}.beheaded(k uuid, n text, OUT seq bigint, OUT id text, OUT digest bytea)
  RETURNS SETOF record LANGUAGE plpgsql STABLE ROWS 1 AS $$ BEGIN
  RETURN QUERY SELECT c.seq, c.id, c.digest FROM {schema}.checkpoint c
    WHERE (c.tk, c.ns) = (k, n) AND c.seq <= 9223372036854775807 AND NOT c.refused
      AND NOT EXISTS (SELECT FROM {schema}.thread t WHERE t.tk = k AND t.at = 'infinity')
    ORDER BY c.seq DESC LIMIT 1;
END $$;

-- What a user's rows are encrypted with, wrapped under the master key that "master" names; NULL for
-- what no user owns. Deleting a user's shreds what is under them, in every copy of it.
CREATE TABLE {schema}.data_key (
  id bytea PRIMARY KEY,
  tenant bytea NOT NULL,
  user_id bytea,
  master bytea NOT NULL,
  wrapped bytea NOT NULL,
  at timestamptz NOT NULL DEFAULT clock_timestamp()
);
CREATE INDEX data_key_owner ON {schema}.data_key (md5(tenant), coalesce(md5(user_id), ''));

-- Signs the head, if there is a key.
ALTER TABLE {schema}.head ADD COLUMN seal bytea NOT NULL DEFAULT '';

-- What was found in the place of what was written, once that was restored: bytes in hexadecimal.
-- Nothing reads it but who investigates; it goes with the thread.
CREATE TABLE {schema}.quarantine (
  tk uuid NOT NULL,
  slot int NOT NULL,
  no bigint NOT NULL,
  at timestamptz NOT NULL DEFAULT now(),
  tier text COLLATE "C" NOT NULL,
  kind text COLLATE "C" NOT NULL,
  ns text COLLATE "C" NOT NULL,
  id text COLLATE "C" NOT NULL,
  task text COLLATE "C" NOT NULL,
  mark bytea NOT NULL,
  reason text NOT NULL,
  found jsonb NOT NULL,
  PRIMARY KEY (tk, mark)
);

INSERT INTO {schema}.installed (version) VALUES (3);

END IF;

-- Version 4: "edge" says, under a key, that a checkpoint's parent was removed by maintenance; an index
-- that is used where it is meant to be.
IF NOT EXISTS (SELECT FROM {schema}.installed WHERE version >= 4) THEN

ALTER TABLE {schema}.checkpoint ADD COLUMN edge bytea;

-- All rows are in it, but only a statement that says "seq <= 9223372036854775807" may use it. As long as
-- threads are short on average it seems to the planner as good as the primary key for finding one
-- checkpoint, and through it a put or a read would go over the whole history of a long thread.
DROP INDEX {schema}.checkpoint_order;
CREATE INDEX checkpoint_order ON {schema}.checkpoint (tk, ns, seq) WHERE seq IS NOT NULL;

INSERT INTO {schema}.installed (version) VALUES (4);

END IF; END $install$;
