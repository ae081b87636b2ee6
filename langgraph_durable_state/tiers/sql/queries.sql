-- The durable tier's statements, each with a sentence of what it does. $n are its parameters.
--
-- Those that only read end in an OFFSET that a primary takes for none and that is an error on a
-- standby, which may be behind: behind a pooler no check that was made before is worth anything.
-- It costs 1 us a statement; a condition would cost 3, or not be looked at where no row is found.
-- Beside a LIMIT it would hide from the planner how few rows are wanted, so it stands outside.
--
-- What is always true of "seq" lets a statement use the index on it, which no other can (see
-- `checkpoint_order` in schema.sql). One row is looked up by a scalar subquery, not by EXISTS: within
-- an OR that may become a hash of all rows that there are.

-- installed: The newest version of the tables, if they are there.
SELECT CASE WHEN to_regclass('{schema}.installed') IS NULL THEN NULL ELSE 1 END
OFFSET CASE WHEN pg_is_in_recovery() THEN -1 END;

-- version: The newest installed version.
SELECT max(version) FROM {schema}.installed
OFFSET CASE WHEN pg_is_in_recovery() THEN -1 END;

-- ping: Whether Postgres takes writes; a standby and a server set to read-only do not.
SELECT current_setting('transaction_read_only') = 'off';

-- commit: Stores a batch of puts (at most one per head) and of task writes in one round trip.
-- A head that Redis may be ahead of ("ahead" is the spell's token) takes only what comes from that
-- spell; there a checkpoint of the same id is what a lost answer left behind, and is replaced.
-- Each put wins or loses alone. Heads are locked in key order, so batches of several processes
-- cannot deadlock; leases after all heads, shared. What carries a fence is stored only while the
-- thread's lease has it. A chunk number that is taken by other content fails the statement (NOT NULL),
-- and the caller draws new numbers.
WITH put AS MATERIALIZED (
  SELECT * FROM unnest(
    $1::uuid[], $2::text[], $3::text[], $4::text[], $5::int[], $6::bytea[], $7::bytea[],
    $8::bytea[], $9::text[], $10::bytea[], $11::int[], $12::text[], $13::bytea[],
    $14::bytea[], $15::bytea[], $16::bytea[], $17::bytea[], $34::bytea[], $35::bytea[],
    $36::bigint[], $41::bytea[], $42::bytea[], $43::bytea[]
  ) WITH ORDINALITY AS p (
    tk, ns, id, parent, claim, expected, digest, record, meta, chunks, size, needs, base,
    tenant, thread_id, user_id, session_id, mark, spell, fence, seal, follows, edge, ord
  ) ORDER BY tk, ns COLLATE "C"
), given AS MATERIALIZED (
  SELECT g.*, (SELECT h.ahead FROM {schema}.head h WHERE (h.tk, h.ns) = (g.tk, g.ns)) AS ahead
    FROM unnest(
      $24::uuid[], $25::text[], $26::text[], $27::text[], $28::int[], $29::text[], $30::int[],
      $31::bytea[], $32::bytea[], $33::bytea[], $37::bigint[], $40::bytea[]
    ) WITH ORDINALITY AS g (tk, ns, id, task, slot, path, n, digest, chunks, data, fence, spell, ord)
), held AS MATERIALIZED (
  SELECT p.ord, h.seq, h.id, h.digest, h.ahead
    FROM put p CROSS JOIN LATERAL (
      SELECT * FROM {schema}.head h WHERE (h.tk, h.ns) = (p.tk, p.ns) FOR NO KEY UPDATE) h
), bereft AS MATERIALIZED (  -- puts made from writes that are neither stored nor given
  SELECT u.put
    FROM unnest($38::int[], $39::bytea[]) AS u (put, digest) JOIN put p ON p.ord = u.put
   WHERE NOT EXISTS (
       SELECT FROM {schema}.write w
        WHERE (w.tk, w.ns, w.id) = (p.tk, p.ns, p.parent) AND w.digest = u.digest)
     AND NOT EXISTS (
       SELECT FROM given g
        WHERE (g.tk, g.ns, g.id) = (p.tk, p.ns, p.parent) AND g.digest = u.digest)
), fence AS MATERIALIZED (  -- what is not here was taken over; a take-over waits for what is
  SELECT f.tk, f.fence
    FROM (SELECT tk, fence FROM put UNION SELECT tk, fence FROM given) f CROSS JOIN LATERAL (
      SELECT true FROM {schema}.lease l
       WHERE (l.tk, l.fence) = (f.tk, f.fence) AND (SELECT count(*) FROM held) >= 0 FOR SHARE) l
   WHERE f.fence IS NOT NULL
), able AS MATERIALIZED (  -- joined to "held" so that heads are locked first, as a prune does
  SELECT p.*, p.edge IS NOT NULL AND (
           SELECT true FROM {schema}.checkpoint c
            WHERE (c.tk, c.ns, c.id) = (p.tk, p.ns, p.parent) FOR KEY SHARE) IS NULL AS orphan
    FROM put p LEFT JOIN held USING (ord)
   WHERE (p.needs IS NULL OR (
       SELECT true FROM {schema}.checkpoint c
        WHERE (c.tk, c.ns, c.id) = (p.tk, p.ns, p.needs) AND p.base IN ('', c.digest)
          AND (p.mark IS NULL OR substring(sha256(c.chunks) FROM 1 FOR 8) = p.mark)
          FOR KEY SHARE))
     AND (p.follows IS NULL OR (
       SELECT c.digest = p.follows FROM {schema}.checkpoint c
        WHERE (c.tk, c.ns, c.id) = (p.tk, p.ns, p.parent) FOR KEY SHARE) IS NOT FALSE)
     AND (p.mark IS NULL OR p.needs IS NOT NULL OR held.digest <> p.expected OR (
       SELECT substring(sha256(c.chunks) FROM 1 FOR 8) <> p.mark FROM {schema}.checkpoint c
        WHERE (c.tk, c.ns, c.id) = (p.tk, p.ns, held.id)) IS NOT TRUE)
     AND (p.claim <> 0 OR (
       SELECT c.digest = p.digest FROM {schema}.checkpoint c
        WHERE (c.tk, c.ns, c.id) = (p.tk, p.ns, p.id)) IS NOT TRUE)
     AND held.ahead IS NOT DISTINCT FROM p.spell
     AND (p.fence IS NULL OR (p.tk, p.fence) IN (SELECT tk, fence FROM fence))
     AND NOT EXISTS (SELECT FROM bereft WHERE bereft.put = p.ord)
), moved AS (
  UPDATE {schema}.head h SET seq = h.seq + 1, id = p.id, digest = p.digest, seal = p.seal
    FROM able p JOIN held USING (ord)
   WHERE (h.tk, h.ns) = (p.tk, p.ns)
     AND (p.claim = 0 OR (p.claim = 1 AND held.digest = p.expected)
          OR (p.claim > 1 AND held.digest = '')
          OR (p.spell IS NOT NULL AND held.id = p.id AND held.digest <> p.digest))
  RETURNING h.tk, h.ns, h.seq, held.digest = '' AS fresh
), opened AS (
  INSERT INTO {schema}.head (tk, ns, seq, id, digest, seal)
  SELECT p.tk, p.ns, 1 + coalesce((SELECT max(c.seq) FROM {schema}.checkpoint c
                                     WHERE (c.tk, c.ns) = (p.tk, p.ns)
                                       AND c.seq <= 9223372036854775807), 0), p.id, p.digest, p.seal
    FROM able p
   WHERE p.claim <> 1 AND NOT EXISTS (SELECT FROM held WHERE held.ord = p.ord)
   ORDER BY p.tk, p.ns COLLATE "C"
  ON CONFLICT DO NOTHING
  RETURNING tk, ns, seq, true AS fresh
), won AS MATERIALIZED (
  SELECT p.*, w.seq, w.fresh
    FROM able p JOIN (SELECT * FROM moved UNION ALL SELECT * FROM opened) w USING (tk, ns)
), writes AS (
  INSERT INTO {schema}.write AS w (tk, ns, id, task, slot, path, n, digest, chunks, data)
  SELECT tk, ns, id, task, slot, path, n, digest, chunks, data FROM given
   WHERE (fence IS NULL OR (tk, fence) IN (SELECT tk, fence FROM fence))
     AND ahead IS NOT DISTINCT FROM spell
   ORDER BY tk, ns COLLATE "C", id COLLATE "C", task COLLATE "C", slot
  ON CONFLICT (tk, ns, id, task, slot) DO UPDATE
    SET path = excluded.path, n = excluded.n, digest = excluded.digest,
        chunks = excluded.chunks, data = excluded.data
   WHERE w.slot < 0 AND w.digest <> excluded.digest
  RETURNING w.tk, w.ns, w.id, w.task, w.slot
), chunks AS (  -- each comes with its put or its batch of writes, or not at all
  INSERT INTO {schema}.chunk AS k (tk, no, digest, data)
  SELECT DISTINCT ON (c.tk, c.no) c.tk, c.no, c.digest, c.data
    FROM unnest($18::uuid[], $19::int[], $20::int[], $21::bigint[], $22::bytea[], $23::bytea[])
      AS c (tk, put, given, no, digest, data)
   WHERE EXISTS (SELECT FROM won WHERE won.ord = c.put)
      OR EXISTS (SELECT FROM given g JOIN writes USING (tk, ns, id, task, slot)
                  WHERE g.ord = c.given)
   ORDER BY c.tk, c.no
  ON CONFLICT (tk, no) DO UPDATE SET digest = NULL WHERE k.digest <> excluded.digest
), records AS (
  INSERT INTO {schema}.checkpoint (tk, ns, id, seq, parent, digest, chunks, size, record, meta, edge)
  SELECT tk, ns, id, seq, parent, digest, chunks, size, record, meta::jsonb,
         CASE WHEN orphan THEN edge END FROM won
  ON CONFLICT (tk, ns, id) DO UPDATE
    SET seq = excluded.seq, parent = excluded.parent, digest = excluded.digest, refused = false,
        chunks = excluded.chunks, size = excluded.size, record = excluded.record,
        meta = excluded.meta, edge = excluded.edge
), threads AS (
  INSERT INTO {schema}.thread (tk, tenant, id, user_id, session_id)
  SELECT DISTINCT ON (tk) tk, tenant, thread_id, user_id, session_id FROM won WHERE fresh
   ORDER BY tk
  ON CONFLICT DO NOTHING
)
SELECT put.ord::int, won.seq, held.id, held.seq, held.digest, able.ord IS NOT NULL, held.ahead,
       put.fence IS NOT NULL AND (put.tk, put.fence) NOT IN (SELECT tk, fence FROM fence),
       NULL::uuid, NULL::text, NULL::text, NULL::text
  FROM put LEFT JOIN able USING (ord) LEFT JOIN won USING (ord) LEFT JOIN held USING (ord)
UNION ALL
SELECT NULL, NULL, NULL, NULL, NULL, NULL, NULL, false, tk, ns, id, task FROM writes WHERE slot = 0
UNION ALL
SELECT NULL, fence, NULL, NULL, NULL, NULL, NULL, true, tk, NULL, NULL, NULL FROM given
 WHERE fence IS NOT NULL AND (tk, fence) NOT IN (SELECT tk, fence FROM fence)
UNION ALL
SELECT NULL, NULL, NULL, NULL, NULL, NULL, coalesce(ahead, ''), false, tk, ns, NULL, NULL FROM given
 WHERE ahead IS DISTINCT FROM spell;

-- move_one: Stores one put that waits alone and moves a head from where its run left it, as nearly all
-- do, and that needs nothing else but what it consumed; it touches half of the tables that `put_one`
-- does and takes half the time. Where it stores nothing, `put_one` says why.
WITH moved AS (
  UPDATE {schema}.head h SET seq = h.seq + 1, id = $3::text, digest = $6::bytea, seal = $16::bytea
   WHERE (h.tk, h.ns) = ($1::uuid, $2::text) AND h.digest = $5::bytea AND h.ahead IS NULL
     AND ($14::bytea IS NULL OR (
       SELECT substring(sha256(c.chunks) FROM 1 FOR 8) <> $14 FROM {schema}.checkpoint c
        WHERE (c.tk, c.ns, c.id) = ($1, $2, h.id)) IS NOT TRUE)
     AND ($15::bytea[] IS NULL OR cardinality($15) = (
       SELECT count(DISTINCT w.digest) FROM {schema}.write w
        WHERE (w.tk, w.ns, w.id) = ($1, $2, $4::text) AND w.digest = ANY ($15)))
  RETURNING h.seq
), chunks AS (
  INSERT INTO {schema}.chunk AS k (tk, no, digest, data)
  SELECT $1, c.no, c.digest, c.data
    FROM moved, unnest($11::bigint[], $12::bytea[], $13::bytea[]) AS c (no, digest, data)
  ON CONFLICT (tk, no) DO UPDATE SET digest = NULL WHERE k.digest <> excluded.digest
)
INSERT INTO {schema}.checkpoint (tk, ns, id, seq, parent, digest, chunks, size, record, meta)
SELECT $1, $2, $3, moved.seq, $4, $6, $9::bytea, $10::int, $7::bytea, $8::text::jsonb FROM moved
ON CONFLICT (tk, ns, id) DO UPDATE
  SET seq = excluded.seq, parent = excluded.parent, digest = excluded.digest, refused = false,
      chunks = excluded.chunks, size = excluded.size, record = excluded.record,
      meta = excluded.meta, edge = NULL
RETURNING seq;

-- put_one: Stores one put that waits alone; what `commit` does, without its arrays.
WITH held AS MATERIALIZED (
  SELECT seq, id, digest, ahead FROM {schema}.head WHERE (tk, ns) = ($1::uuid, $2::text)
     FOR NO KEY UPDATE
), fence AS MATERIALIZED (
  SELECT true FROM {schema}.lease
   WHERE (tk, fence) = ($1, $23::bigint) AND (SELECT count(*) FROM held) >= 0 FOR SHARE
), parent AS MATERIALIZED (  -- if it has to be known
  SELECT digest FROM {schema}.checkpoint
   WHERE ($26::bytea IS NOT NULL OR $27::bytea IS NOT NULL) AND (SELECT count(*) FROM held) >= 0
     AND (tk, ns, id) = ($1, $2, $4::text) FOR KEY SHARE
), able AS MATERIALIZED (
  SELECT true FROM (SELECT 1) AS one LEFT JOIN held ON true
   WHERE ($12::text IS NULL OR (
       SELECT true FROM {schema}.checkpoint c
        WHERE (c.tk, c.ns, c.id) = ($1, $2, $12) AND $13::bytea IN ('', c.digest)
          AND ($21::bytea IS NULL OR substring(sha256(c.chunks) FROM 1 FOR 8) = $21)
          FOR KEY SHARE))
     AND NOT EXISTS (SELECT FROM parent WHERE digest <> $26)
     AND ($21 IS NULL OR $12 IS NOT NULL OR held.digest <> $6::bytea OR (
       SELECT substring(sha256(c.chunks) FROM 1 FOR 8) <> $21 FROM {schema}.checkpoint c
        WHERE (c.tk, c.ns, c.id) = ($1, $2, held.id)) IS NOT TRUE)
     AND ($5::int <> 0 OR (
       SELECT c.digest = $7::bytea FROM {schema}.checkpoint c
        WHERE (c.tk, c.ns, c.id) = ($1, $2, $3::text)) IS NOT TRUE)
     AND held.ahead IS NOT DISTINCT FROM $22::bytea
     AND ($23 IS NULL OR EXISTS (SELECT FROM fence))
     AND ($24::bytea[] IS NULL OR cardinality($24) = (
       SELECT count(DISTINCT w.digest) FROM {schema}.write w
        WHERE (w.tk, w.ns, w.id) = ($1, $2, $4) AND w.digest = ANY ($24)))
), moved AS (
  UPDATE {schema}.head h SET seq = h.seq + 1, id = $3, digest = $7, seal = $25::bytea FROM held, able
   WHERE (h.tk, h.ns) = ($1, $2)
     AND ($5 = 0 OR ($5 = 1 AND held.digest = $6::bytea) OR ($5 > 1 AND held.digest = '')
          OR ($22 IS NOT NULL AND held.id = $3 AND held.digest <> $7))
  RETURNING h.seq, held.digest = '' AS fresh
), opened AS (
  INSERT INTO {schema}.head (tk, ns, seq, id, digest, seal)
  SELECT $1, $2, 1 + coalesce((SELECT max(c.seq) FROM {schema}.checkpoint c
                                WHERE (c.tk, c.ns) = ($1, $2)
                                  AND c.seq <= 9223372036854775807), 0), $3, $7, $25
    FROM able WHERE $5 <> 1 AND NOT EXISTS (SELECT FROM held)
  ON CONFLICT DO NOTHING
  RETURNING seq, true AS fresh
), won AS MATERIALIZED (
  SELECT * FROM moved UNION ALL SELECT * FROM opened
), chunks AS (
  INSERT INTO {schema}.chunk AS k (tk, no, digest, data)
  SELECT $1, c.no, c.digest, c.data
    FROM won, unnest($18::bigint[], $19::bytea[], $20::bytea[]) AS c (no, digest, data)
  ON CONFLICT (tk, no) DO UPDATE SET digest = NULL WHERE k.digest <> excluded.digest
), records AS (
  INSERT INTO {schema}.checkpoint (tk, ns, id, seq, parent, digest, chunks, size, record, meta, edge)
  SELECT $1, $2, $3, won.seq, $4, $7, $10::bytea, $11::int, $8::bytea, $9::text::jsonb,
         CASE WHEN NOT EXISTS (SELECT FROM parent) THEN $27 END
    FROM won
  ON CONFLICT (tk, ns, id) DO UPDATE
    SET seq = excluded.seq, parent = excluded.parent, digest = excluded.digest, refused = false,
        chunks = excluded.chunks, size = excluded.size, record = excluded.record,
        meta = excluded.meta, edge = excluded.edge
), threads AS (
  INSERT INTO {schema}.thread (tk, tenant, id, user_id, session_id)
  SELECT $1, $14::bytea, $15::bytea, $16::bytea, $17::bytea FROM won WHERE fresh
  ON CONFLICT DO NOTHING
)
SELECT (SELECT seq FROM won), held.id, held.seq, held.digest, EXISTS (SELECT FROM able), held.ahead,
       $23 IS NOT NULL AND NOT EXISTS (SELECT FROM fence)
  FROM (SELECT 1) AS one LEFT JOIN held ON true;

-- write_one: Stores one batch of a task's writes that waits alone; whether it was stored, which it
-- is not if one is there already, whether the lease was taken over that it was made under, and the
-- spell in which Redis may be ahead of the head if it is not the writes' own.
-- Its chunks come with it or not at all: a sweep must never see one without the other.
WITH fence AS MATERIALIZED (
  SELECT true FROM {schema}.lease WHERE (tk, fence) = ($1::uuid, $14::bigint) FOR SHARE
), held AS MATERIALIZED (
  SELECT (SELECT ahead FROM {schema}.head WHERE (tk, ns) = ($1, $2::text)) AS ahead
), stored AS (
  INSERT INTO {schema}.write AS w (tk, ns, id, task, slot, path, n, digest, chunks, data)
  SELECT $1, $2, $3::text, $4::text, $5::int, $6::text, $7::int, $8::bytea, $9::bytea, $10::bytea
    FROM held
   WHERE ($14 IS NULL OR EXISTS (SELECT FROM fence)) AND ahead IS NOT DISTINCT FROM $15::bytea
  ON CONFLICT (tk, ns, id, task, slot) DO UPDATE
    SET path = excluded.path, n = excluded.n, digest = excluded.digest,
        chunks = excluded.chunks, data = excluded.data
   WHERE w.slot < 0 AND w.digest <> excluded.digest
  RETURNING true
), chunks AS (
  INSERT INTO {schema}.chunk AS k (tk, no, digest, data)
  SELECT $1, c.no, c.digest, c.data
    FROM stored, unnest($11::bigint[], $12::bytea[], $13::bytea[]) AS c (no, digest, data)
  ON CONFLICT (tk, no) DO UPDATE SET digest = NULL WHERE k.digest <> excluded.digest
)
SELECT EXISTS (SELECT FROM stored), $14 IS NOT NULL AND NOT EXISTS (SELECT FROM fence),
       CASE WHEN ahead IS DISTINCT FROM $15 THEN coalesce(ahead, '') END
  FROM held;

-- standing: Whether a put that did not win is stored already, and the head as it is now.
SELECT c.seq, c.digest, c.refused, nullif(h.id, '')
  FROM (SELECT $1::uuid AS tk, $2::text COLLATE "C" AS ns, $3::text COLLATE "C" AS id) k
  LEFT JOIN {schema}.checkpoint c ON (c.tk, c.ns, c.id) = (k.tk, k.ns, k.id)
  LEFT JOIN {schema}.head h ON (h.tk, h.ns) = (k.tk, k.ns)
OFFSET CASE WHEN pg_is_in_recovery() THEN -1 END;

-- keep: Stores a checkpoint beside the head, at the next place in the order, unless one of its id is
-- there; not if the lease was taken over that it was made under.
WITH parent AS MATERIALIZED (
  SELECT true FROM {schema}.checkpoint
   WHERE (tk, ns, id) = ($1::uuid, $2::text, $12::text) AND $15::bytea IN ('', digest)
     AND ($16::bytea IS NULL OR substring(sha256(chunks) FROM 1 FOR 8) = $16)
     AND ($18::bytea[] IS NULL OR cardinality($18) = (
       SELECT count(DISTINCT w.digest) FROM {schema}.write w
        WHERE (w.tk, w.ns, w.id) = ($1, $2, $4::text) AND w.digest = ANY ($18)))
     FOR KEY SHARE
), followed AS MATERIALIZED (
  SELECT digest FROM {schema}.checkpoint
   WHERE ($19::bytea IS NOT NULL OR $20::bytea IS NOT NULL) AND (tk, ns, id) = ($1, $2, $4)
     FOR KEY SHARE
), fence AS MATERIALIZED (
  SELECT true FROM {schema}.lease WHERE (tk, fence) = ($1, $17::bigint) FOR SHARE
), next AS (
  UPDATE {schema}.head SET seq = seq + 1
   WHERE (tk, ns) = ($1, $2) AND ($12 IS NULL OR EXISTS (SELECT FROM parent))
     AND NOT EXISTS (SELECT FROM followed WHERE digest <> $19)
     AND NOT EXISTS (
       SELECT FROM {schema}.checkpoint c WHERE (c.tk, c.ns, c.id) = ($1, $2, $3::text))
     AND ($17 IS NULL OR EXISTS (SELECT FROM fence))
  RETURNING seq
), chunks AS (
  INSERT INTO {schema}.chunk AS k (tk, no, digest, data)
  SELECT $1, c.no, c.digest, c.data
    FROM next, unnest($9::bigint[], $10::bytea[], $11::bytea[]) AS c (no, digest, data)
  ON CONFLICT (tk, no) DO UPDATE SET digest = NULL WHERE k.digest <> excluded.digest
)
INSERT INTO {schema}.checkpoint (tk, ns, id, seq, parent, digest, record, meta, chunks, size, refused,
                                edge)
SELECT $1, $2, $3, next.seq, $4::text, $5::bytea, $6::bytea, $7::text::jsonb, $8::bytea,
       $13::int, $14::boolean, CASE WHEN NOT EXISTS (SELECT FROM followed) THEN $20 END
  FROM next
ON CONFLICT (tk, ns, id) DO NOTHING
RETURNING seq;

-- differ: Stores a task's later batch that differs from the first, unless it is there already; the
-- answer is that of write_one.
WITH fence AS MATERIALIZED (
  SELECT true FROM {schema}.lease WHERE (tk, fence) = ($1::uuid, $14::bigint) FOR SHARE
), stored AS (
  INSERT INTO {schema}.write (tk, ns, id, task, slot, path, n, digest, chunks, data)
  SELECT $1, $2::text, $3::text, $4::text, $5::int, $6::text, $7::int, $8::bytea,
         $9::bytea, $10::bytea
   WHERE ($14 IS NULL OR EXISTS (SELECT FROM fence)) AND NOT EXISTS (
     SELECT FROM {schema}.write w
      WHERE (w.tk, w.ns, w.id, w.task) = ($1, $2, $3, $4) AND w.slot >= 0 AND w.digest = $8)
  ON CONFLICT DO NOTHING
  RETURNING true
), chunks AS (
  INSERT INTO {schema}.chunk AS k (tk, no, digest, data)
  SELECT $1, c.no, c.digest, c.data
    FROM stored, unnest($11::bigint[], $12::bytea[], $13::bytea[]) AS c (no, digest, data)
  ON CONFLICT (tk, no) DO UPDATE SET digest = NULL WHERE k.digest <> excluded.digest
)
SELECT EXISTS (SELECT FROM stored), $14 IS NOT NULL AND NOT EXISTS (SELECT FROM fence);

-- read_head: The head with its record, chunks and pending writes in one round trip; what `beheaded`
-- finds if it is gone.
-- The record is left out if the reader holds it ($3) or if it is larger than $4 bytes.
WITH h AS MATERIALIZED (
  SELECT h.seq AS head_seq, h.id, h.digest AS head_digest, h.ahead, h.seal, c.*,
         (c.digest = $3::bytea AND $3 <> '') OR c.size > $4::int AS withheld
    FROM {schema}.head h
    LEFT JOIN (SELECT tk, ns, id AS row_id, parent, seq, digest, chunks, size, record, refused
                 FROM {schema}.checkpoint) c ON (c.tk, c.ns, c.row_id) = (h.tk, h.ns, h.id)
   WHERE (h.tk, h.ns) = ($1::uuid, $2::text)
), w AS MATERIALIZED (
  SELECT w.* FROM h JOIN {schema}.write w ON (w.tk, w.ns, w.id) = ($1, $2, h.id)
)
SELECT 0 AS kind, head_seq AS a, id AS b, head_digest AS c, row_id AS d, parent AS e, seq AS f,
       digest AS g, CASE WHEN withheld THEN NULL ELSE record END AS h, chunks AS i, refused AS j,
       ahead AS k, seal
  FROM h
UNION ALL
SELECT 1, no, NULL, digest, NULL, NULL, NULL, NULL, data, NULL, NULL, NULL, NULL
  FROM {schema}.chunk
 WHERE tk = $1 AND no = ANY (ARRAY(
   SELECT unnest({schema}.numbers(h.chunks)) FROM h WHERE NOT h.withheld
   UNION SELECT unnest({schema}.numbers(w.chunks)) FROM w))
UNION ALL
SELECT 2, slot, task, digest, path, NULL, n, NULL, data, chunks, NULL, NULL, NULL FROM w
UNION ALL
SELECT 3, b.seq, b.id, b.digest, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL
  FROM {schema}.beheaded($1, $2) b
 WHERE NOT EXISTS (SELECT FROM h WHERE head_digest <> '' OR ahead IS NOT NULL)
OFFSET CASE WHEN pg_is_in_recovery() THEN -1 END;

-- read_one: A checkpoint by its id with its record, chunks and pending writes in one round trip.
WITH h AS MATERIALIZED (
  SELECT c.*, (c.digest = $3::bytea AND $3 <> '') OR c.size > $4::int AS withheld
    FROM {schema}.checkpoint c
   WHERE (c.tk, c.ns, c.id) = ($1::uuid, $2::text, $5::text)
), w AS MATERIALIZED (
  SELECT w.* FROM h JOIN {schema}.write w ON (w.tk, w.ns, w.id) = ($1, $2, h.id)
)
SELECT 0 AS kind, seq AS a, id AS b, digest AS c, id AS d, parent AS e, seq AS f,
       digest AS g, CASE WHEN withheld THEN NULL ELSE record END AS h, chunks AS i, refused AS j,
       (SELECT l.ahead FROM {schema}.head l WHERE (l.tk, l.ns) = ($1, $2)) AS k, ''::bytea AS seal
  FROM h
UNION ALL
SELECT 1, no, NULL, digest, NULL, NULL, NULL, NULL, data, NULL, NULL, NULL, NULL
  FROM {schema}.chunk
 WHERE tk = $1 AND no = ANY (ARRAY(
   SELECT unnest({schema}.numbers(h.chunks)) FROM h WHERE NOT h.withheld
   UNION SELECT unnest({schema}.numbers(w.chunks)) FROM w))
UNION ALL
SELECT 2, slot, task, digest, path, NULL, n, NULL, data, chunks, NULL, NULL, NULL FROM w
OFFSET CASE WHEN pg_is_in_recovery() THEN -1 END;

-- list_thread: One page of a thread's checkpoints, newest first within each namespace.
-- $3 id, $4 before (by position if it is one of that namespace, else by id), $5/$6 filter keys and
-- values, $7/$8 the last row of the page before, $9 how many.
SELECT * FROM (
  SELECT c.tk, c.ns, c.id, c.parent, c.seq, c.digest, c.record, c.chunks,
         (SELECT bool_or(h.ahead IS NOT NULL) FROM {schema}.head h WHERE h.tk = $1),
         c.refused, coalesce(c.edge, ''), c.parent IS NOT NULL AND NOT EXISTS (
           SELECT FROM {schema}.checkpoint p WHERE (p.tk, p.ns, p.id) = (c.tk, c.ns, c.parent))
    FROM {schema}.checkpoint c
   WHERE c.tk = $1::uuid AND c.seq <= 9223372036854775807
     AND ($2::text IS NULL OR c.ns = $2)
     AND ($3::text IS NULL OR c.id = $3)
     AND ($4::text IS NULL OR coalesce(
           c.seq < (SELECT b.seq FROM {schema}.checkpoint b
                     WHERE (b.tk, b.ns, b.id) = (c.tk, c.ns, $4)), c.id < $4))
     AND NOT EXISTS (SELECT FROM unnest($5::text[], $6::text[]) AS f (key, value)
                      WHERE (c.meta -> f.key) IS DISTINCT FROM f.value::jsonb)
     AND ($7::text IS NULL OR c.ns > $7 OR (c.ns = $7 AND c.seq < $8::bigint))
   ORDER BY c.ns, c.seq DESC
   LIMIT $9::int
) AS page
OFFSET CASE WHEN pg_is_in_recovery() THEN -1 END;

-- list_next_thread: The next thread, in key order, of a tenant; none that is being copied.
SELECT * FROM (
  SELECT tk, tenant, id, user_id, session_id FROM {schema}.thread t
   WHERE tk > coalesce($1::uuid, '00000000-0000-0000-0000-000000000000') AND tenant = $2::bytea
     AND (at < 'infinity' OR EXISTS (SELECT FROM {schema}.head h WHERE h.tk = t.tk AND h.digest <> ''))
   ORDER BY tk LIMIT 1
) AS next
OFFSET CASE WHEN pg_is_in_recovery() THEN -1 END;

-- chunks: The chunks of these numbers; with $3, only the head of each that tells its items.
SELECT no, digest, CASE WHEN $3::boolean THEN substring(data FROM 1 FOR 3) ELSE data END
  FROM {schema}.chunk WHERE tk = $1::uuid AND no = ANY ($2::bigint[])
OFFSET CASE WHEN pg_is_in_recovery() THEN -1 END;

-- writes: The pending writes of these checkpoints of a thread (namespaces $2, ids $3).
SELECT w.ns, w.id, w.task, w.slot, w.path, w.n, w.digest, w.data, w.chunks
  FROM unnest($2::text[], $3::text[]) AS k (ns, id)
  JOIN {schema}.write w ON w.tk = $1::uuid AND w.ns = k.ns AND w.id = k.id
OFFSET CASE WHEN pg_is_in_recovery() THEN -1 END;

-- chain: Rows from a checkpoint up through its parents, at most $4.
WITH RECURSIVE up AS (
  SELECT c.*, 1 AS depth FROM {schema}.checkpoint c
   WHERE (c.tk, c.ns, c.id) = ($1::uuid, $2::text, $3::text)
  UNION ALL
  SELECT c.*, up.depth + 1 FROM up JOIN {schema}.checkpoint c
      ON c.tk = $1 AND c.ns = $2 AND c.id = up.parent
   WHERE up.depth < $4::int
)
SELECT id, parent, seq, digest, record, chunks, refused, coalesce(edge, '') FROM up ORDER BY depth
OFFSET CASE WHEN pg_is_in_recovery() THEN -1 END;

-- heads: The heads of a thread.
SELECT ns, id, seq, digest, seal FROM {schema}.head WHERE tk = $1::uuid AND digest <> '' ORDER BY ns
OFFSET CASE WHEN pg_is_in_recovery() THEN -1 END;

-- sign_head: Signs a head, if it is still this one.
UPDATE {schema}.head SET seal = $4::bytea WHERE (tk, ns) = ($1::uuid, $2::text) AND digest = $3::bytea
RETURNING true;

-- lock_heads: The heads of a thread, which no put moves until the transaction ends. One without a
-- digest only says that Redis may be ahead of it.
SELECT ns, id, seq, digest, ahead FROM {schema}.head WHERE tk = $1::uuid ORDER BY ns FOR UPDATE;

-- delete_thread: Removes all of a thread. The namespaces that had a head are returned.
WITH heads AS (DELETE FROM {schema}.head WHERE tk = $1::uuid RETURNING ns, ahead),
     checkpoints AS (DELETE FROM {schema}.checkpoint WHERE tk = $1 RETURNING ns),
     writes AS (DELETE FROM {schema}.write WHERE tk = $1),
     chunks AS (DELETE FROM {schema}.chunk WHERE tk = $1),
     events AS (DELETE FROM {schema}.event WHERE tk = $1),
     quarantined AS (DELETE FROM {schema}.quarantine WHERE tk = $1),
     threads AS (DELETE FROM {schema}.thread WHERE tk = $1)
SELECT ns, bool_or(ahead) FROM (
  SELECT ns, ahead IS NOT NULL AS ahead FROM heads UNION ALL SELECT ns, false FROM checkpoints) n
 GROUP BY ns;

-- runs: The checkpoints that these runs of a tenant made.
SELECT t.tk, t.tenant, t.id, t.user_id, t.session_id, c.ns, c.id
  FROM {schema}.checkpoint c JOIN {schema}.thread t ON t.tk = c.tk
 WHERE c.meta ? 'run_id' AND md5(c.meta ->> 'run_id') = ANY ($2::text[])
   AND c.meta -> 'run_id' = ANY ($3::jsonb[]) AND t.tenant = $1::bytea
   AND (t.at < 'infinity' OR EXISTS (SELECT FROM {schema}.head h WHERE h.tk = t.tk AND h.digest <> ''))
OFFSET CASE WHEN pg_is_in_recovery() THEN -1 END;

-- children: The checkpoints that stay when these (namespaces $2, ids $3) go, whose parents they are.
SELECT c.ns, c.id, c.parent, c.seq, c.digest, c.record, c.chunks, c.refused
  FROM {schema}.checkpoint c JOIN {schema}.checkpoint p
    ON (p.tk, p.ns, p.id) = (c.tk, c.ns, c.parent)
 WHERE c.tk = $1::uuid
   AND (p.ns, p.id) IN (SELECT * FROM unnest($2::text[], $3::text[]))
   AND (c.ns, c.id) NOT IN (SELECT * FROM unnest($2, $3))
 ORDER BY c.ns, c.id
OFFSET CASE WHEN pg_is_in_recovery() THEN -1 END;

-- sever: Says in these checkpoints ($2 namespaces, $3 ids, $4 digests, $5 what says so) that their
-- parents, if they are there, are removed now.
UPDATE {schema}.checkpoint c SET edge = e.edge
  FROM unnest($2::text[], $3::text[], $4::bytea[], $5::bytea[]) AS e (ns, id, digest, edge)
 WHERE c.tk = $1::uuid AND (c.ns, c.id, c.digest) = (e.ns, e.id, e.digest)
   AND EXISTS (SELECT FROM {schema}.checkpoint p WHERE (p.tk, p.ns, p.id) = (c.tk, c.ns, c.parent));

-- remove_checkpoints: Removes these checkpoints (namespaces $2, ids $3) with their writes.
WITH gone AS (
  DELETE FROM {schema}.checkpoint c USING unnest($2::text[], $3::text[]) AS d (ns, id)
   WHERE c.tk = $1::uuid AND c.ns = d.ns AND c.id = d.id RETURNING c.ns, c.id)
DELETE FROM {schema}.write w USING unnest($2, $3) AS d (ns, id)
 WHERE w.tk = $1 AND w.ns = d.ns AND w.id = d.id;

-- remove_all_but: Removes a thread's checkpoints but these (namespaces $2, ids $3), with the
-- writes of those removed, in the namespaces $4 whose heads are locked: one that is being opened
-- has no head to lock yet. Writes that wait for their checkpoint stay.
WITH gone AS (
  DELETE FROM {schema}.checkpoint c
   WHERE c.tk = $1::uuid AND c.ns = ANY ($4::text[]) AND NOT EXISTS (
     SELECT FROM unnest($2::text[], $3::text[]) AS k (ns, id) WHERE k.ns = c.ns AND k.id = c.id)
  RETURNING c.ns, c.id)
DELETE FROM {schema}.write w USING gone
 WHERE w.tk = $1 AND w.ns = gone.ns AND w.id = gone.id;

-- settle_heads: Moves each head of a thread whose checkpoint is gone to the newest that is left; $2
-- and $3 are digests and what signs them as heads.
UPDATE {schema}.head h SET id = c.id, digest = c.digest,
       seal = coalesce((SELECT s.seal FROM unnest($2::bytea[], $3::bytea[]) AS s (digest, seal)
                         WHERE s.digest = c.digest LIMIT 1), '')
  FROM (SELECT DISTINCT ON (ns) ns, id, digest FROM {schema}.checkpoint
         WHERE tk = $1::uuid AND seq <= 9223372036854775807 AND NOT refused
         ORDER BY ns, seq DESC) c
 WHERE h.tk = $1 AND h.ns = c.ns AND NOT EXISTS (
   SELECT FROM {schema}.checkpoint x WHERE (x.tk, x.ns, x.id) = (h.tk, h.ns, h.id));

-- drop_heads: Removes heads that have no checkpoint left to stand on.
DELETE FROM {schema}.head h WHERE h.tk = $1::uuid AND h.ahead IS NULL AND NOT EXISTS (
  SELECT FROM {schema}.checkpoint x WHERE (x.tk, x.ns, x.id) = (h.tk, h.ns, h.id));

-- sweep_chunks: Removes the chunks that no checkpoint and no write of the thread refers to.
DELETE FROM {schema}.chunk WHERE tk = $1::uuid AND no NOT IN (
  SELECT unnest({schema}.numbers(chunks)) FROM {schema}.checkpoint WHERE tk = $1
  UNION ALL SELECT unnest({schema}.numbers(chunks)) FROM {schema}.write WHERE tk = $1);

-- drop_thread: Removes a thread's entry if nothing of it is left.
DELETE FROM {schema}.thread t WHERE t.tk = $1::uuid
   AND NOT EXISTS (SELECT FROM {schema}.checkpoint c WHERE c.tk = t.tk);

-- copy_chunks: Copies chunks of one thread to another.
INSERT INTO {schema}.chunk (tk, no, digest, data)
SELECT $2::uuid, no, digest, data FROM {schema}.chunk
 WHERE tk = $1::uuid AND no = ANY ($3::bigint[])
ON CONFLICT DO NOTHING;

-- copy_rows: Stores the checkpoints of a copied thread; with an edge those whose parents it has not.
WITH made AS MATERIALIZED (
  SELECT n.*, c.size, c.meta
    FROM unnest($3::text[], $4::text[], $5::bigint[], $6::text[], $7::bytea[], $8::bytea[],
                $9::bytea[], $10::boolean[], $11::bytea[])
      AS n (ns, id, seq, parent, digest, record, chunks, refused, edge)
    JOIN {schema}.checkpoint c ON c.tk = $1::uuid AND c.ns = n.ns AND c.id = n.id
)
INSERT INTO {schema}.checkpoint (tk, ns, id, seq, parent, digest, record, chunks, size, refused, meta,
                                edge)
SELECT $2::uuid, n.ns, n.id, n.seq, n.parent, n.digest, n.record, n.chunks, n.size, n.refused, n.meta,
       CASE WHEN NOT EXISTS (SELECT FROM made p WHERE (p.ns, p.id) = (n.ns, n.parent))
             AND NOT EXISTS (SELECT FROM {schema}.checkpoint p
                              WHERE (p.tk, p.ns, p.id) = ($2, n.ns, n.parent)) THEN n.edge END
  FROM made n
ON CONFLICT DO NOTHING;

-- copy_writes: Stores the pending writes of a copied thread.
INSERT INTO {schema}.write (tk, ns, id, task, slot, path, n, digest, chunks, data)
SELECT $1::uuid, * FROM unnest($2::text[], $3::text[], $4::text[], $5::int[], $6::text[],
                               $7::int[], $8::bytea[], $9::bytea[], $10::bytea[])
ON CONFLICT DO NOTHING;

-- copy_heads: Makes a copied thread visible; $4 signs its heads.
INSERT INTO {schema}.head (tk, ns, seq, id, digest, seal)
SELECT $1::uuid, c.ns, (SELECT max(seq) FROM {schema}.checkpoint m
                         WHERE m.tk = c.tk AND m.ns = c.ns AND m.seq <= 9223372036854775807),
       c.id, c.digest, h.seal
  FROM unnest($2::text[], $3::text[], $4::bytea[]) AS h (ns, id, seal)
  JOIN {schema}.checkpoint c ON c.tk = $1 AND c.ns = h.ns AND c.id = h.id
ON CONFLICT DO NOTHING;

-- copy_thread: The entry of a thread that is being copied; until that is done, its time is infinite.
INSERT INTO {schema}.thread (tk, tenant, id, user_id, session_id, at)
VALUES ($1::uuid, $2::bytea, $3::bytea, $4::bytea, $5::bytea, 'infinity') ON CONFLICT DO NOTHING;

-- copied: A thread's copy is done, if it has got all its heads, $2 of them.
UPDATE {schema}.thread SET at = now()
 WHERE tk = $1::uuid AND at = 'infinity'
   AND $2::int = (SELECT count(*) FROM {schema}.head h WHERE h.tk = $1 AND h.digest <> '');

-- mark_ahead: Says that Redis may be ahead of a head from now on, under the token $3, unless another
-- token than those of $4 says so already. Returns the head, and whose token it has; nothing if the
-- fence $5 is not that of the thread's lease any more.
INSERT INTO {schema}.head AS h (tk, ns, seq, id, digest, ahead, ahead_at)
SELECT $1::uuid, $2::text, coalesce((SELECT max(c.seq) FROM {schema}.checkpoint c
                                      WHERE (c.tk, c.ns) = ($1, $2)
                                        AND c.seq <= 9223372036854775807), 0), '', '', $3::bytea, now()
 WHERE $5::bigint IS NULL OR EXISTS (
   SELECT FROM {schema}.lease l WHERE (l.tk, l.fence) = ($1, $5))
ON CONFLICT (tk, ns) DO UPDATE
  SET ahead = CASE WHEN h.ahead IS NULL OR h.ahead = ANY ($4::bytea[]) THEN $3 ELSE h.ahead END,
      ahead_at = CASE WHEN h.ahead IS NULL THEN now() ELSE h.ahead_at END,
      flushed = CASE WHEN h.ahead IS NULL OR (h.ahead <> $3 AND h.ahead = ANY ($4)) THEN 0
                     ELSE h.flushed END
RETURNING id, seq, digest, ahead;

-- clear_ahead: Says that Redis is no longer ahead of a head, if the token is still this one.
WITH cleared AS (
  UPDATE {schema}.head SET ahead = NULL, ahead_at = NULL
   WHERE (tk, ns) = ($1::uuid, $2::text) AND ahead = $3::bytea AND digest <> '' RETURNING true
), dropped AS (
  DELETE FROM {schema}.head
   WHERE (tk, ns) = ($1, $2) AND ahead = $3 AND digest = '' RETURNING true
)
SELECT true FROM cleared UNION ALL SELECT true FROM dropped;

-- ahead: The heads that Redis may be ahead of, oldest first: those of a thread ($1), or of all.
SELECT h.tk, t.tenant, t.id, h.ns, h.ahead, extract(epoch FROM h.ahead_at)::float8, h.id
  FROM {schema}.head h LEFT JOIN {schema}.thread t ON t.tk = h.tk
 WHERE h.ahead IS NOT NULL AND ($1::uuid IS NULL OR h.tk = $1)
 ORDER BY h.ahead_at, h.tk, h.ns LIMIT $2::int
OFFSET CASE WHEN pg_is_in_recovery() THEN -1 END;

-- progress: Of these heads, whose spell they are marked with, how far that is flushed, their digest
-- and the mark of their chunk numbers.
SELECT h.tk, h.ns, h.ahead, h.flushed, h.digest,
       coalesce((SELECT substring(sha256(c.chunks) FROM 1 FOR 8) FROM {schema}.checkpoint c
                  WHERE (c.tk, c.ns, c.id) = (h.tk, h.ns, h.id)), '')
  FROM unnest($1::uuid[], $2::text[]) AS k (tk, ns)
  JOIN {schema}.head h ON h.tk = k.tk AND h.ns = k.ns WHERE h.ahead IS NOT NULL
OFFSET CASE WHEN pg_is_in_recovery() THEN -1 END;

-- advance: Takes the next entries of these spells to be flushed in this transaction, unless somebody
-- else has, or a mark is gone: then there are fewer rows than heads.
WITH wanted AS MATERIALIZED (
  SELECT w.*, h.ahead, h.flushed
    FROM (SELECT * FROM unnest($1::uuid[], $2::text[], $3::bytea[], $4::bigint[], $5::bigint[])
                     AS k (tk, ns, token, old, new) ORDER BY tk, ns COLLATE "C") w
   CROSS JOIN LATERAL (
      SELECT * FROM {schema}.head h WHERE (h.tk, h.ns) = (w.tk, w.ns) FOR NO KEY UPDATE) h
)
UPDATE {schema}.head h SET flushed = w.new FROM wanted w
 WHERE (h.tk, h.ns) = (w.tk, w.ns) AND w.ahead = w.token AND w.flushed = w.old
RETURNING h.ns;

-- move_head: Makes a checkpoint ($4, with the digest $5) the head, signed with $6, if the head's
-- digest is $3 (empty if there is no head) and Redis is not ahead.
WITH target AS MATERIALIZED (
  SELECT tk, ns, id, digest FROM {schema}.checkpoint
   WHERE (tk, ns, id) = ($1::uuid, $2::text, $4::text) AND digest = $5::bytea
), moved AS (
  UPDATE {schema}.head h SET id = t.id, digest = t.digest, seal = $6::bytea FROM target t
   WHERE (h.tk, h.ns) = (t.tk, t.ns) AND h.digest = $3::bytea AND h.ahead IS NULL
  RETURNING true
), made AS (
  INSERT INTO {schema}.head (tk, ns, seq, id, digest, seal)
  SELECT t.tk, t.ns, (SELECT max(c.seq) FROM {schema}.checkpoint c
                       WHERE (c.tk, c.ns) = ($1, $2) AND c.seq <= 9223372036854775807),
         t.id, t.digest, $6
    FROM target t WHERE $3 = ''
  ON CONFLICT DO NOTHING
  RETURNING true
)
SELECT true FROM moved UNION ALL SELECT true FROM made;

-- last_event: The number and digest of a thread's newest event, if there is one, and the time.
SELECT e.n, e.digest, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint
  FROM (SELECT 1) AS one LEFT JOIN LATERAL (
    SELECT n, digest FROM {schema}.event WHERE tk = $1::uuid ORDER BY n DESC LIMIT 1) e ON true
OFFSET CASE WHEN pg_is_in_recovery() THEN -1 END;

-- record_event: Adds an event of a thread, unless its number is taken.
INSERT INTO {schema}.event (tk, n, at, kind, detail, digest)
VALUES ($1::uuid, $2::bigint, timestamptz 'epoch' + $3::bigint * interval '1 microsecond',
        $4::text, $5::text::jsonb, $6::bytea)
ON CONFLICT DO NOTHING
RETURNING n;

-- events: A thread's events with larger numbers than $2, at most $3.
SELECT * FROM (
  SELECT n, (extract(epoch FROM at) * 1000000)::bigint, kind, detail::text, digest
    FROM {schema}.event WHERE tk = $1::uuid AND n > $2::bigint ORDER BY n LIMIT $3::int
) AS page
OFFSET CASE WHEN pg_is_in_recovery() THEN -1 END;

-- take_lease: Takes a thread's lease for a holder ($2), for $3 seconds, if nobody has it or it has run
-- out; the fence that it has then. Otherwise who has it, and for how many seconds more. Nothing if
-- somebody else is taking it just now. A fence is a time, so that after a restore none comes again.
WITH other AS MATERIALIZED (  -- looked for first: trying to insert would lock out the holder's puts
  SELECT holder, extract(epoch FROM until - now())::float8 AS rest FROM {schema}.lease
   WHERE tk = $1::uuid AND holder <> $2::text AND until > now()
), taken AS (
  INSERT INTO {schema}.lease AS l (tk, fence, holder, until)
  SELECT $1, extract(epoch FROM clock_timestamp()) * 1000000, $2, now() + $3::float8 * interval '1 s'
   WHERE NOT EXISTS (SELECT FROM other)
  ON CONFLICT (tk) DO UPDATE
    SET fence = greatest(l.fence + 1, excluded.fence), holder = $2, until = excluded.until
   WHERE l.until <= now() OR l.holder = $2
  RETURNING fence
)
SELECT fence, NULL, NULL FROM taken UNION ALL SELECT NULL, holder, rest FROM other;

-- renew_lease: Lets a lease of this fence and holder run for $4 seconds from now, unless somebody else
-- has taken it; it may have run out.
UPDATE {schema}.lease SET until = now() + $4::float8 * interval '1 s'
 WHERE (tk, fence, holder) = ($1::uuid, $2::bigint, $3::text) RETURNING true;

-- release_lease: Ends a holder's lease. The row stays, so that fences only grow.
UPDATE {schema}.lease SET until = 'epoch', holder = ''
 WHERE (tk, holder) = ($1::uuid, $2::text) RETURNING true;

-- owner: Whom a thread was begun for.
SELECT user_id FROM {schema}.thread WHERE tk = $1::uuid
OFFSET CASE WHEN pg_is_in_recovery() THEN -1 END;

-- data_key: A data key by its id.
SELECT tenant, user_id, master, wrapped FROM {schema}.data_key WHERE id = $1::bytea
OFFSET CASE WHEN pg_is_in_recovery() THEN -1 END;

-- data_keys: The data keys of a tenant's user, or of what no user owns there, newest first.
SELECT * FROM (
  SELECT id, master, wrapped FROM {schema}.data_key
   WHERE md5(tenant) = md5($1::bytea) AND coalesce(md5(user_id), '') = coalesce(md5($2::bytea), '')
     AND tenant = $1 AND user_id IS NOT DISTINCT FROM $2
   ORDER BY at DESC, id
) AS keys
OFFSET CASE WHEN pg_is_in_recovery() THEN -1 END;

-- add_data_key: Stores a data key, or one that is there under another master key.
INSERT INTO {schema}.data_key (id, tenant, user_id, master, wrapped)
VALUES ($1::bytea, $2::bytea, $3::bytea, $4::bytea, $5::bytea)
ON CONFLICT (id) DO UPDATE SET master = excluded.master, wrapped = excluded.wrapped;

-- drop_data_keys: Removes the data keys of a tenant's user: nobody can read what is under them.
DELETE FROM {schema}.data_key
 WHERE md5(tenant) = md5($1::bytea) AND coalesce(md5(user_id), '') = coalesce(md5($2::bytea), '')
   AND tenant = $1 AND user_id IS NOT DISTINCT FROM $2
RETURNING id;

-- scan_keys: The next keys of threads, with their entries. A head may be left without the entry of
-- its thread.
SELECT * FROM (
  SELECT k.tk, t.tenant, t.id, t.user_id, t.session_id
    FROM (
      (SELECT tk FROM {schema}.thread WHERE ($1::uuid IS NULL OR tk > $1) ORDER BY tk LIMIT $2::int)
      UNION
      (SELECT DISTINCT tk FROM {schema}.head
        WHERE ($1 IS NULL OR tk > $1) ORDER BY tk LIMIT $2)) k
    LEFT JOIN {schema}.thread t ON t.tk = k.tk
   ORDER BY k.tk LIMIT $2) AS page
OFFSET CASE WHEN pg_is_in_recovery() THEN -1 END;

-- scan_chunks: The next chunks of a thread: at most $3 of them and, but for the first, $4 bytes.
SELECT no, digest, data FROM (
  SELECT no, digest, data, sum(octet_length(data)) OVER (ORDER BY no) - octet_length(data) AS before
    FROM (SELECT * FROM {schema}.chunk WHERE tk = $1::uuid AND ($2::bigint IS NULL OR no > $2)
           ORDER BY no LIMIT $3::int) c) AS page
 WHERE before = 0 OR before + octet_length(data) <= $4::bigint
 ORDER BY no
OFFSET CASE WHEN pg_is_in_recovery() THEN -1 END;

-- scan_records: The next checkpoints of a thread, as they are stored.
SELECT * FROM (
  SELECT ns, id, parent, seq, digest, record, chunks, meta::text, size, refused, coalesce(edge, '')
    FROM {schema}.checkpoint
   WHERE tk = $1::uuid AND ($2::text IS NULL OR (ns, id) > ($2, $3::text))
   ORDER BY ns, id LIMIT $4::int) AS page
OFFSET CASE WHEN pg_is_in_recovery() THEN -1 END;

-- scan_writes: The next pending writes of a thread, as they are stored.
SELECT * FROM (
  SELECT ns, id, task, slot, path, n, digest, data, chunks FROM {schema}.write
   WHERE tk = $1::uuid AND ($2::text IS NULL OR (ns, id, task, slot) > ($2, $3::text, $4::text, $5::int))
   ORDER BY ns, id, task, slot LIMIT $6::int) AS page
OFFSET CASE WHEN pg_is_in_recovery() THEN -1 END;

-- look: What a thread has, all at one moment: its entry, unless it is being copied, its heads (of the
-- namespaces $4, or all), these checkpoints (namespaces $2, ids $3) with their pending writes, and the
-- chunks $5.
SELECT 0 AS kind, NULL AS a, NULL AS b, NULL AS c, NULL AS d, NULL::bigint AS e, NULL::int AS f,
       tenant AS g, id AS h, user_id AS i, session_id AS j, NULL::boolean AS k
  FROM {schema}.thread WHERE tk = $1::uuid AND at < 'infinity'
UNION ALL
SELECT 1, ns, id, NULL, NULL, seq, NULL, digest, seal, NULL, NULL, NULL
  FROM {schema}.head WHERE tk = $1 AND ($4::text[] IS NULL OR ns = ANY ($4))
UNION ALL
SELECT 2, c.ns, c.id, c.parent, c.meta::text, c.seq, c.size, c.digest, c.record, c.chunks,
       coalesce(c.edge, ''), c.refused
  FROM unnest($2::text[], $3::text[]) AS k (ns, id)
  JOIN {schema}.checkpoint c ON c.tk = $1 AND c.ns = k.ns AND c.id = k.id
UNION ALL
SELECT 3, w.ns, w.id, w.task, w.path, w.n, w.slot, w.digest, w.data, w.chunks, NULL, NULL
  FROM unnest($2, $3) AS k (ns, id) JOIN {schema}.write w ON w.tk = $1 AND w.ns = k.ns AND w.id = k.id
UNION ALL
SELECT 4, NULL, NULL, NULL, NULL, no, NULL, digest, data, NULL, NULL, NULL
  FROM {schema}.chunk WHERE tk = $1 AND no = ANY ($5::bigint[])
OFFSET CASE WHEN pg_is_in_recovery() THEN -1 END;

-- mend_thread: Puts the right names into a thread's entry, if it is as it was found ($6, $7); one that
-- was being copied, and has a head by now, counts as missing.
INSERT INTO {schema}.thread AS t (tk, tenant, id, user_id, session_id)
SELECT $1::uuid, $2::bytea, $3::bytea, $4::bytea, $5::bytea
 WHERE ($6::bytea IS NULL AND EXISTS (SELECT FROM {schema}.head h WHERE h.tk = $1))
    OR EXISTS (SELECT FROM {schema}.thread f WHERE f.tk = $1)
ON CONFLICT (tk) DO UPDATE
  SET tenant = excluded.tenant, id = excluded.id,
      at = CASE WHEN t.at = 'infinity' THEN now() ELSE t.at END
  WHERE (t.tenant, t.id) = ($6, $7::bytea) OR ($6 IS NULL AND t.at = 'infinity')
RETURNING true;

-- mend_head: Puts the right checkpoint into a head, signed with $8, if it is as it was found ($6, $7).
-- One that was missing is put where the checkpoint is.
INSERT INTO {schema}.head AS h (tk, ns, seq, id, digest, seal)
SELECT $1::uuid, $2::text, $3::bigint, $4::text, $5::bytea, $8::bytea
 WHERE EXISTS (SELECT FROM {schema}.checkpoint c
                WHERE (c.tk, c.ns, c.id, c.digest) = ($1, $2, $4, $5))
   AND ($6::text IS NULL OR EXISTS (SELECT FROM {schema}.head f WHERE (f.tk, f.ns) = ($1, $2)))
ON CONFLICT (tk, ns) DO UPDATE SET id = excluded.id, digest = excluded.digest, seal = excluded.seal
  WHERE (h.id, h.digest) = ($6, $7::bytea)
RETURNING true;

-- mend_record: Puts the right bytes into a checkpoint, if it is as it was found ($12 to $15). One that
-- was missing is put where a head or a child still names it.
INSERT INTO {schema}.checkpoint AS c (tk, ns, id, parent, seq, digest, record, chunks, meta, size, refused)
SELECT $1::uuid, $2::text, $3::text, $4::text, $5::bigint, $6::bytea, $7::bytea, $8::bytea,
       $9::text::jsonb, $10::int, $11::boolean
 WHERE CASE WHEN $12::bytea IS NULL
   THEN EXISTS (SELECT FROM {schema}.head h WHERE (h.tk, h.ns, h.id) = ($1, $2, $3))
     OR EXISTS (SELECT FROM {schema}.checkpoint x WHERE (x.tk, x.ns, x.parent) = ($1, $2, $3))
   ELSE EXISTS (SELECT FROM {schema}.checkpoint f WHERE (f.tk, f.ns, f.id) = ($1, $2, $3)) END
ON CONFLICT (tk, ns, id) DO UPDATE
  SET parent = excluded.parent, digest = excluded.digest, record = excluded.record,
      chunks = excluded.chunks, meta = excluded.meta
  WHERE (c.digest, c.record, c.chunks, c.meta) = ($12, $13::bytea, $14::bytea, $15::text::jsonb)
RETURNING true;

-- mend_write: Puts the right bytes into a row of pending writes, if it is as it was found ($11 to
-- $13); one that was missing, where its checkpoint still is.
INSERT INTO {schema}.write AS w (tk, ns, id, task, slot, path, n, digest, data, chunks)
SELECT $1::uuid, $2::text, $3::text, $4::text, $5::int, $6::text, $7::int, $8::bytea, $9::bytea,
       $10::bytea
 WHERE CASE WHEN $11::bytea IS NULL
   THEN EXISTS (SELECT FROM {schema}.checkpoint c WHERE (c.tk, c.ns, c.id) = ($1, $2, $3))
   ELSE EXISTS (SELECT FROM {schema}.write f
                 WHERE (f.tk, f.ns, f.id, f.task, f.slot) = ($1, $2, $3, $4, $5)) END
ON CONFLICT (tk, ns, id, task, slot) DO UPDATE
  SET path = excluded.path, n = excluded.n, digest = excluded.digest, data = excluded.data,
      chunks = excluded.chunks
  WHERE (w.digest, w.data, w.chunks) = ($11, $12::bytea, $13::bytea)
RETURNING true;

-- mend_chunk: Puts the right bytes into a chunk, if it is as it was found ($5, $6); one that was
-- missing, where the checkpoint ($7, $8) or writes against it that it belongs to still are.
INSERT INTO {schema}.chunk AS k (tk, no, digest, data)
SELECT $1::uuid, $2::bigint, $3::bytea, $4::bytea
 WHERE CASE WHEN $5::bytea IS NULL
   THEN EXISTS (SELECT FROM {schema}.checkpoint c WHERE (c.tk, c.ns, c.id) = ($1, $7::text, $8::text))
     OR EXISTS (SELECT FROM {schema}.write w WHERE (w.tk, w.ns, w.id) = ($1, $7, $8))
   ELSE EXISTS (SELECT FROM {schema}.chunk f WHERE (f.tk, f.no) = ($1, $2)) END
ON CONFLICT (tk, no) DO UPDATE SET digest = excluded.digest, data = excluded.data
  WHERE (k.digest, k.data) = ($5, $6::bytea)
RETURNING true;

-- quarantine: Keeps what was found in the place of what was written; the same bytes once.
INSERT INTO {schema}.quarantine (tk, tier, kind, ns, id, task, slot, no, mark, reason, found)
VALUES ($1::uuid, $2::text, $3::text, $4::text, $5::text, $6::text, $7::int, $8::bigint, $9::bytea,
        $10::text, $11::text::jsonb)
ON CONFLICT DO NOTHING
RETURNING true;

-- quarantined: What was kept of a thread, oldest first.
SELECT tk, tier, kind, ns, id, task, slot, no, reason, found::text
  FROM {schema}.quarantine WHERE tk = $1::uuid ORDER BY at, mark
OFFSET CASE WHEN pg_is_in_recovery() THEN -1 END;

-- data_keys_besides: Data keys under other master keys than $1, in the order of their ids.
SELECT * FROM (
  SELECT id, tenant, user_id, master, wrapped FROM {schema}.data_key
   WHERE master <> $1::bytea AND id > $2::bytea ORDER BY id LIMIT $3::int
) AS keys
OFFSET CASE WHEN pg_is_in_recovery() THEN -1 END;

-- lock_checkpoints: The checkpoints of a thread, so that no put refers to their chunks until the
-- transaction ends: to refer to one locks its key alone, which no update of the row waits for.
SELECT FROM {schema}.checkpoint WHERE tk = $1::uuid ORDER BY ns, id FOR UPDATE;

-- rewrite: Replaces all checkpoints of a thread whose heads are locked, if they are those that are
-- given ($2 namespaces, $4 ids, $5 old digests), by the same under new namespaces ($3) and digests
-- ($6 to $9) and edges ($34), and heads ($29 to $33) with them. Writes go ($10 to $14), and others
-- take their places ($16 to $25); if $15, there must be none but those. $26 to $28 are the new chunks.
-- Whether it was done. What is counted is gone before anything comes.
WITH given AS MATERIALIZED (
  SELECT * FROM unnest($2::text[], $3::text[], $4::text[], $5::bytea[], $6::bytea[], $7::bytea[],
                       $8::text[], $9::bytea[], $34::bytea[])
             AS g (former, ns, id, old, digest, record, meta, chunks, edge)
), doomed AS MATERIALIZED (
  SELECT * FROM unnest($10::text[], $11::text[], $12::text[], $13::int[], $14::bytea[])
           WITH ORDINALITY AS d (ns, id, task, slot, old, ord)
), same AS MATERIALIZED (
  SELECT count(*) = (SELECT count(*) FROM given) AND count(*) = count(g.id)
         AND (NOT $15::bool OR NOT EXISTS (
           SELECT FROM (SELECT w.* FROM {schema}.write w JOIN given ON (given.former, given.id) = (w.ns, w.id)
                         WHERE w.tk = $1::uuid) w
             FULL JOIN doomed d
               ON (d.ns, d.id, d.task, d.slot, d.old) = (w.ns, w.id, w.task, w.slot, w.digest)
            WHERE w.id IS NULL OR d.id IS NULL)) AS same
    FROM {schema}.checkpoint c LEFT JOIN given g ON (g.former, g.id, g.old) = (c.ns, c.id, c.digest)
   WHERE c.tk = $1::uuid
), records AS (
  UPDATE {schema}.checkpoint c
     SET ns = g.ns, digest = g.digest, record = g.record, meta = g.meta::jsonb, chunks = g.chunks,
         edge = g.edge
    FROM given g, same WHERE same.same AND (c.tk, c.ns, c.id) = ($1, g.former, g.id)
), gone AS (
  DELETE FROM {schema}.write w USING doomed d, same
   WHERE same.same AND (w.tk, w.ns, w.id, w.task, w.slot) = ($1, d.ns, d.id, d.task, d.slot)
     AND w.digest = d.old
  RETURNING d.ord, w.at
), writes AS (
  INSERT INTO {schema}.write (tk, ns, id, task, slot, path, n, digest, data, chunks, at)
  SELECT $1, g.ns, g.id, g.task, g.slot, g.path, g.n, g.digest, g.data, g.chunks, gone.at
    FROM unnest($16::int[], $17::text[], $18::text[], $19::text[], $20::int[], $21::text[],
                $22::int[], $23::bytea[], $24::bytea[], $25::bytea[])
           AS g (place, ns, id, task, slot, path, n, digest, data, chunks)
    JOIN gone ON gone.ord = g.place, (SELECT count(*) FROM gone) counted
), chunks AS (
  INSERT INTO {schema}.chunk AS k (tk, no, digest, data)
  SELECT $1, c.no, c.digest, c.data
    FROM same, unnest($26::bigint[], $27::bytea[], $28::bytea[]) AS c (no, digest, data)
   WHERE same.same
  ON CONFLICT (tk, no) DO UPDATE SET digest = NULL WHERE k.digest <> excluded.digest
), head AS MATERIALIZED (
  SELECT g.* FROM same, unnest($29::text[], $30::text[], $31::text[], $32::bytea[], $33::bytea[])
                          AS g (former, ns, id, digest, seal)
   WHERE same.same
), heads AS (
  UPDATE {schema}.head h SET digest = g.digest, seal = g.seal
    FROM head g WHERE (h.tk, h.ns, h.id) = ($1, g.former, g.id) AND g.former = g.ns
), left_heads AS (
  DELETE FROM {schema}.head h USING head g
   WHERE (h.tk, h.ns, h.id) = ($1, g.former, g.id) AND g.former <> g.ns
  RETURNING g.ns, h.seq, h.id, g.digest, g.seal
), moved_heads AS (
  INSERT INTO {schema}.head (tk, ns, seq, id, digest, seal)
  SELECT $1, l.ns, l.seq, l.id, l.digest, l.seal
    FROM left_heads l, (SELECT count(*) FROM left_heads) counted
)
SELECT same FROM same;
