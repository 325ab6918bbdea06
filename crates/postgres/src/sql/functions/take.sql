-- Taking messages.

-- The transactions that may still add messages (`puts`) or leases (`leases`): those that hold the lock with which puts
-- and takes begin. A process that saw a set of them at `now_ms`, and later sees none of that set, knows that every
-- message due before `now_ms` is visible to all later readers, or never will be (docs/decisions, "Where a take begins").
-- `place`: the server that answers; of another one nothing is known, though behind PgBouncer no connection was lost.
CREATE OR REPLACE FUNCTION writers_1(OUT now_ms bigint, OUT puts text[], OUT leases text[], OUT place text) RETURNS record
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT SET jit = off AS $$
DECLARE
  w record := whereabouts();
BEGIN
  place := w.place || '/' || w.timeline;
  now_ms := clock_ms();
  SELECT coalesce(array_agg(l.virtualtransaction) FILTER (WHERE l.relation = 'pend'::regclass), '{}'),
    coalesce(array_agg(l.virtualtransaction) FILTER (WHERE l.relation = 'standing'::regclass), '{}')
  INTO puts, leases
  FROM pg_locks l
  WHERE l.locktype = 'relation' AND l.mode = 'RowExclusiveLock' AND l.pid IS DISTINCT FROM pg_backend_pid()
    AND l.database = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database())
    AND l.relation IN ('pend'::regclass, 'standing'::regclass);
END
$$;

-- The slots that may have due messages.
CREATE OR REPLACE FUNCTION slots_at(now bigint) RETURNS smallint[]
LANGUAGE plpgsql STABLE AS $$
BEGIN
  RETURN ARRAY(SELECT s.slot FROM slot s WHERE s.quiet_until <= now);
END
$$;

DO $$
BEGIN
  IF to_regtype('head') IS NULL THEN
    -- A candidate for a take. `slot` is below 0 for a part of `standing`.
    CREATE TYPE head AS (queue int, priority bigint, due bigint, id uuid, slot smallint, tid tid, expires bigint);
  END IF;
END
$$;

-- Functions per slot, whose plans are cached, so that a take touches only the slots that it needs: to start one statement
-- on `pend` takes as long as ten of these.
--
-- `look_N`: the first `most` messages of lane 0 of each home, from its `low` on, that come after (after_due, after_id), and
-- that have not expired by `alive_at`.
-- `peek_N`: the first message of lane 0 and of lane 1.
DO $make$
BEGIN
  FOR slot IN 0 .. 64 LOOP
    EXECUTE format($f$
      CREATE OR REPLACE FUNCTION look_%1$s(p_homes bigint[], p_lows uuid[], high uuid, most int, after_due bigint,
        after_id uuid, alive_at bigint) RETURNS head[]
      LANGUAGE plpgsql AS $$
      BEGIN
        RETURN ARRAY(
          SELECT ROW(q.n, 1024, due_of(x.id), x.id, %1$s, x.tid, x.expires)::head
          FROM unnest(p_homes, p_lows) WITH ORDINALITY AS q (home, low, n), LATERAL (
            SELECT p.id, p.ctid AS tid, p.expires FROM pend_%1$s p
            WHERE p.home = q.home AND p.lane = 0 AND p.id >= q.low AND p.id < high
              AND (after_due < 0 OR due_of(p.id) > after_due OR p.id > after_id)
              AND (p.expires IS NULL OR p.expires > alive_at)
            ORDER BY p.id LIMIT most) x);
      END
      $$ $f$, slot);
    EXECUTE format($f$
      CREATE OR REPLACE FUNCTION peek_%1$s(p_home bigint, low uuid, high uuid) RETURNS uuid[]
      LANGUAGE plpgsql AS $$
      BEGIN
        RETURN ARRAY[
          (SELECT p.id FROM pend_%1$s p WHERE p.home = p_home AND p.lane = 0 AND p.id >= low AND p.id < high ORDER BY p.id LIMIT 1),
          (SELECT p.id FROM pend_%1$s p WHERE p.home = p_home AND p.lane = 1 AND p.id >= low AND p.id < high ORDER BY p.id LIMIT 1)];
      END
      $$ $f$, slot);
  END LOOP;
END
$make$;

-- Moves due messages of other priorities to their places in the order of priorities, at most `most` of each slot. Returns
-- the due instant of the first one that remains.
CREATE OR REPLACE FUNCTION ripen(p_home bigint, settings jsonb, p_floor bigint, now bigint, most int, slots smallint[]) RETURNS bigint
LANGUAGE plpgsql AS $$
DECLARE
  low uuid := first_id(p_floor);
  high uuid := first_id(now + 1);
  first uuid;
  one uuid;
  p pend;
  s standing;
  slot smallint;
BEGIN
  FOREACH slot IN ARRAY slots LOOP
    EXECUTE 'SELECT (peek_' || slot || '($1, $2, $3))[2]' INTO one USING p_home, low, high;
    CONTINUE WHEN one IS NULL;
    FOR p IN EXECUTE format('SELECT * FROM pend_%s WHERE home = $1 AND lane = 1 AND id >= $2 AND id < $3 ORDER BY id '
      'LIMIT $4 FOR UPDATE SKIP LOCKED', slot) USING p_home, low, high, most
    LOOP
      s := fresh(p);
      PERFORM unfile(s, 1);
      PERFORM file_pending(s, settings, now);
    END LOOP;
    EXECUTE 'SELECT (peek_' || slot || '($1, $2, $3))[2]' INTO one USING p_home, low, high;
    first := least(first, one);
  END LOOP;
  FOR s IN
    SELECT * FROM standing x WHERE x.part IN (3, 4, 5) AND x.home = p_home AND x.lane = 1 AND x.rank = 0 AND x.due <= now
    ORDER BY x.due LIMIT most FOR UPDATE SKIP LOCKED
  LOOP
    PERFORM unfile(s, 2);
    PERFORM file_pending(s, settings, now);
  END LOOP;
  RETURN due_of(first);
END
$$;

-- The first `most` due messages, by (priority, due, id), after `after`, without those that have expired by `alive_at`. Locks
-- nothing.
CREATE OR REPLACE FUNCTION heads(p_homes bigint[], p_floors bigint[], now bigint, most int, after head, slots smallint[],
  alive_at bigint) RETURNS head[]
LANGUAGE plpgsql AS $$
DECLARE
  high uuid := first_id(now + 1);
  -- Of lane 0, which has the default priority, those after (after_due, after_id); of lane 2 those after that rank.
  after_rank bigint := coalesce(after.priority, -1);
  after_due bigint := CASE WHEN after.priority < 1024 OR after.id IS NULL THEN -1
    WHEN after.priority > 1024 THEN 9223372036854775807 ELSE after.due END;
  after_id uuid := coalesce(after.id, '00000000-0000-0000-0000-000000000000');
  lows uuid[] := ARRAY(SELECT first_id(greatest(u.floor, least(after_due, now + 1))) FROM unnest(p_floors) WITH ORDINALITY
    AS u (floor, n) ORDER BY u.n);
  found head[];
  more head[];
  slot smallint;
BEGIN
  found := ARRAY(
    SELECT ROW(q.n, x.priority, x.due, x.id, -x.part, x.tid, x.expires)::head
    FROM unnest(p_homes) WITH ORDINALITY AS q (home, n), LATERAL (
      (SELECT s.priority, s.due, s.id, s.part, s.ctid AS tid, s.expires FROM standing s
        WHERE s.part IN (3, 4, 5) AND s.home = q.home AND s.lane = 0 AND s.rank = 0 AND s.due <= now
          AND (s.due, s.id) > (after_due, after_id) AND (s.expires IS NULL OR s.expires > alive_at)
        ORDER BY s.due, s.id LIMIT most)
      UNION ALL
      (SELECT s.priority, s.due, s.id, s.part, s.ctid AS tid, s.expires FROM standing s
        WHERE s.part IN (3, 4, 5) AND s.home = q.home AND s.lane = 2
          AND (s.rank, s.due, s.id) > (after_rank, CASE WHEN after_rank < 0 THEN -1 ELSE after.due END, after_id)
          AND (s.expires IS NULL OR s.expires > alive_at)
        ORDER BY s.rank, s.due, s.id LIMIT most)) x);
  FOREACH slot IN ARRAY slots LOOP
    EXECUTE 'SELECT look_' || slot || '($1, $2, $3, $4, $5, $6, $7)' INTO more
      USING p_homes, lows, high, most, after_due, after_id, alive_at;
    IF cardinality(more) > 0 THEN
      found := found || more;
    END IF;
  END LOOP;
  IF cardinality(found) = 0 THEN
    RETURN NULL;
  END IF;
  RETURN ARRAY(SELECT h FROM unnest(found) h ORDER BY h.priority, h.due, h.id LIMIT most);
END
$$;

-- Locks a candidate, unless another transaction has locked or removed it.
CREATE OR REPLACE FUNCTION lock_head(h head) RETURNS boolean
LANGUAGE plpgsql AS $$
DECLARE
  is_locked boolean;
BEGIN
  EXECUTE format('SELECT true FROM %I WHERE ctid = $1 FOR UPDATE SKIP LOCKED',
    CASE WHEN h.slot >= 0 THEN 'pend_' || h.slot ELSE 'standing_' || -h.slot END) INTO is_locked USING h.tid;
  RETURN coalesce(is_locked, false);
END
$$;

DO $$
BEGIN
  IF to_regtype('taken') IS NULL THEN
    CREATE TYPE taken AS (queue text, id uuid, number bigint, due bigint, priority bigint, created bigint, key bytea,
      headers jsonb, lease_own bigint, max_attempts bigint, expires bigint, attempts int, takes int, lapses int, releases int,
      buries int, revives int, last_error bytea, token uuid, deadline bigint, lease_ms bigint, since bigint, taken_at bigint,
      body bytea, keyless boolean);
  END IF;
END
$$;

-- The token of a lease is random except for its last digit, which is the part that holds the lease.
CREATE OR REPLACE FUNCTION new_token(part smallint) RETURNS uuid
LANGUAGE sql VOLATILE AS $$ SELECT (pg_catalog.left(pg_catalog.gen_random_uuid()::text, 35) || part)::uuid $$;

CREATE OR REPLACE FUNCTION part_of(token uuid) RETURNS int
LANGUAGE sql IMMUTABLE STRICT AS $$ SELECT pg_catalog.get_byte(pg_catalog.uuid_send(token), 15) & 15 $$;

-- Functions per slot and per part that lease its rows and skip rows that are locked, so that their plans are cached, and
-- a take locks no table that it does not touch.
--
-- `lease_N`: of the rows `tids`. `front_N`: of the first `most` of a queue that have not expired, if nothing else is due.
-- `lease_moved_N`: of the rows `tids` of a part.
DO $make$
DECLARE
  rows_ text;
  arguments text;
BEGIN
  FOR slot IN 0 .. 64 LOOP
    FOR way IN 1 .. 2 LOOP
      arguments := CASE way WHEN 1 THEN 'lease_' || slot || '(tids tid[]'
        ELSE 'front_' || slot || '(low uuid, high uuid, most int' END;
      rows_ := CASE way WHEN 1 THEN 'p.ctid = ANY (tids)' ELSE 'p.home = homes[1] AND p.lane = 0 AND p.id >= low AND p.id < high '
        'AND (p.expires IS NULL OR p.expires > now) ORDER BY p.id LIMIT most' END;
      EXECUTE format($f$
      CREATE OR REPLACE FUNCTION %3$s, p_part smallint, now bigint, p_lease bigint, homes bigint[],
        qids bigint[], names text[], leases bigint[], p_session bigint, p_holder text, body_slot smallint) RETURNS SETOF taken
      LANGUAGE plpgsql AS $$
      BEGIN
        RETURN QUERY WITH got AS MATERIALIZED (
          SELECT p.ctid AS tid FROM pend_%1$s p WHERE %2$s FOR UPDATE SKIP LOCKED
        ), gone AS (
          DELETE FROM pend_%1$s p WHERE p.ctid = ANY (ARRAY(SELECT g.tid FROM got g)) RETURNING p.id, p.home, p.keyed
        ), whole AS MATERIALIZED (
          SELECT g.id, g.home, g.keyed, b.number, b.due, b.created, b.priority, b.lease_ms, b.max_attempts, b.expires, b.key,
            b.headers, b.body, q.name, q.qid AS q, new_token(p_part) AS new_token,
            coalesce(p_lease, b.lease_ms, q.lease) AS new_lease
          FROM gone g JOIN unnest(homes, qids, names, leases) AS q (home, qid, name, lease) ON q.home = g.home,
            LATERAL (SELECT x.* FROM body_%1$s x WHERE x.number = number_of(g.id) LIMIT 1) b
        ), held AS (
          INSERT INTO standing (qid, due, priority, expires, max_attempts, lease_own, id, part, keyed, attempts, takes, token,
            deadline, lease_ms, session, holder)
          SELECT w.q, w.due, w.priority, w.expires, w.max_attempts, w.lease_ms, w.id, p_part, w.keyed, 0, 1, w.new_token,
            least(now + w.new_lease, 253402300799999), w.new_lease, p_session, p_holder
          FROM whole w
        ), counted AS (
          INSERT INTO tally SELECT w.q, w.home, -count(*), count(*), 0 FROM whole w GROUP BY 1, 2
        )
        SELECT w.name, w.id, w.number, w.due, w.priority, w.created, CASE WHEN w.keyed THEN w.key END, w.headers, w.lease_ms,
          w.max_attempts, w.expires, 0, 1, 0, 0, 0, 0, NULL::bytea, w.new_token,
          least(now + w.new_lease, 253402300799999), w.new_lease, greatest(w.due, w.created), now, w.body, false
        FROM whole w;
      END
      $$ $f$, slot, rows_, arguments);
    END LOOP;
  END LOOP;
  FOR part IN 3 .. 5 LOOP
    EXECUTE format($f$
      CREATE OR REPLACE FUNCTION lease_moved_%1$s(tids tid[], p_part smallint, now bigint, p_lease bigint, homes bigint[],
        qids bigint[], names text[], leases bigint[], p_session bigint, p_holder text, body_slot smallint) RETURNS SETOF taken
      LANGUAGE plpgsql AS $$
      BEGIN
        RETURN QUERY WITH got AS MATERIALIZED (
          SELECT s.ctid AS tid FROM standing_%1$s s WHERE s.ctid = ANY (tids) FOR UPDATE SKIP LOCKED
        ), gone AS (
          DELETE FROM standing_%1$s s WHERE s.ctid = ANY (ARRAY(SELECT g.tid FROM got g)) RETURNING s.*
        ), whole AS MATERIALIZED (
          SELECT g.*, b.number, b.created, b.key, b.headers, b.body, q.name, new_token(p_part) AS new_token,
            coalesce(p_lease, g.lease_own, q.lease) AS new_lease
          FROM gone g JOIN unnest(homes, qids, names, leases) AS q (home, qid, name, lease) ON q.home = g.home,
            LATERAL (SELECT x.* FROM body x WHERE x.slot = body_slot AND x.number = number_of(g.id) LIMIT 1) b
        ), held AS (
          INSERT INTO standing (qid, due, priority, expires, max_attempts, lease_own, id, part, keyed, attempts, takes, lapses,
            releases, buries, revives, last_error, token, deadline, lease_ms, session, holder, since)
          SELECT w.qid, w.due, w.priority, w.expires, w.max_attempts, w.lease_own, w.id, p_part, w.keyed, w.attempts,
            w.takes + 1, w.lapses, w.releases, w.buries, w.revives, w.last_error, w.new_token,
            least(now + w.new_lease, 253402300799999), w.new_lease, p_session, p_holder, w.since
          FROM whole w
        ), counted AS (
          INSERT INTO tally SELECT w.qid, w.home, -count(*), count(*), 0 FROM whole w GROUP BY 1, 2
        )
        SELECT w.name, w.id, w.number, w.due, w.priority, w.created, CASE WHEN w.keyed THEN w.key END, w.headers, w.lease_own,
          w.max_attempts, w.expires, w.attempts, w.takes + 1, coalesce(w.lapses, 0), coalesce(w.releases, 0),
          coalesce(w.buries, 0), coalesce(w.revives, 0), w.last_error, w.new_token,
          least(now + w.new_lease, 253402300799999), w.new_lease, greatest(w.due, w.since), now, w.body,
          w.keyed IS NULL AND w.key IS NOT NULL
        FROM whole w;
      END
      $$ $f$, part);
  END LOOP;
END
$make$;

-- Applies lapsed leases in all queues: a take at the store's cap checks whether they make room.
CREATE OR REPLACE FUNCTION lapse_all(p_defaults jsonb, now bigint) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
  q record;
  f record;
BEGIN
  FOR q IN
    SELECT DISTINCT x.qid FROM standing x WHERE x.part < 3 AND x.deadline <= now
  LOOP
    f := facts_of((SELECT n.name FROM queue n WHERE n.qid = q.qid LIMIT 1), p_defaults);
    PERFORM lapse_some(f.qid, f.home, f.settings, now, 0, 1000);
  END LOOP;
END
$$;

-- Takes due messages, at most `p_max`, and at most `p_max_bytes` bytes of bodies but at least one message. The rows are
-- unordered: the caller sorts by priority, due and id.
--
-- `p_floors`: for each queue the instant before which no untouched message is left (0 if unknown), and `p_lapse_floors`
-- the same for leases. The last row has no id; its `next_floors` has the floors of the queues, then the lapse floors. A
-- next floor is valid up to the instant before which all was known to be visible when this call began.
--
-- `p_counts`: whether leases are counted, for the caps of the store. `capped`, in the last row: 1 if the cap of a queue
-- kept back its messages (`limit_leased_queue`), 2 if the cap of the store did.
CREATE OR REPLACE FUNCTION take_1(p_queues text[], p_max int, p_max_bytes bigint, p_lease bigint, p_session bigint, p_holder text,
  p_floors bigint[], p_lapse_floors bigint[], p_counts boolean, p_defaults jsonb)
RETURNS TABLE (queue text, id uuid, number bigint, due bigint, priority bigint, created bigint, key bytea, headers jsonb,
  lease_own bigint, max_attempts bigint, expires bigint, attempts int, takes int, lapses int, releases int, buries int,
  revives int, last_error bytea, token uuid, deadline bigint, lease_ms bigint, since bigint, taken_at bigint, body bytea, keyless boolean,
  next_floors bigint[], capped int)
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT SET enable_seqscan = off SET enable_hashjoin = off
SET enable_mergejoin = off SET enable_material = off SET plan_cache_mode = force_generic_plan SET lock_timeout = '1s'
SET jit = off AS $$
#variable_conflict use_column
DECLARE
  now bigint;
  homes bigint[] := '{}';
  qids bigint[] := '{}';
  leases bigint[] := '{}';
  names text[] := '{}';
  pend_floors bigint[] := '{}';
  next_pend bigint[];
  next_lapse bigint[];
  all_settings jsonb[] := '{}';
  f record;
  pause bigint;
  found head[];
  after head;
  one head;
  taken int := 0;
  bytes bigint := 0;
  length bigint;
  most int;
  group_ record;
  kept head[];
  part smallint;
  gone int;
  at int;
  slots smallint[];
  slot smallint;
  fronts smallint[] := '{}';
  firsts uuid[];
  low uuid;
  high uuid;
  is_mixed boolean;
  is_cut boolean := false;
  -- The due instant of the first message that was seen and left, for the queues so far.
  left_ bigint;
  places int[] := '{}';
  -- The number of leases that each queue may still grant. A queue that may grant none gets a null home, which has no messages.
  rooms bigint[] := '{}';
  open_homes bigint[] := '{}';
  room bigint;
  store_room bigint;
  c record;
  -- The number of expired messages that it met.
  killed int := 0;
BEGIN
  PERFORM limit_waits(p_defaults);
  LOCK TABLE ONLY standing IN ROW EXCLUSIVE MODE;
  IF p_session IS NOT NULL AND NOT EXISTS (SELECT FROM session x WHERE x.session = p_session) THEN
    PERFORM refuse('session_lost');
  END IF;
  now := clock_ms();
  slots := slots_at(now);
  high := first_id(now + 1);
  next_pend := array_fill(0::bigint, ARRAY[greatest(cardinality(p_queues), 1)]);
  next_lapse := next_pend;
  FOR at IN 1 .. cardinality(p_queues) LOOP
    CONTINUE WHEN p_queues[at] = ANY (p_queues[1 : at - 1]);
    f := facts_of(p_queues[at], p_defaults);
    next_lapse[at] := lapse_some(f.qid, f.home, f.settings, now, coalesce(p_lapse_floors[at], 0), 1000);
    pause := (f.settings->>'pause')::bigint;
    CONTINUE WHEN pause = -1 OR pause > now;
    room := 9223372036854775807;
    IF p_counts OR f.settings->>'max_leased' IS NOT NULL THEN
      c := count_of(f.qid);
      -- At its own cap a queue is treated as paused.
      CONTINUE WHEN c.leased >= (f.settings->>'max_leased')::bigint;
      room := greatest(least((f.settings->>'limit_leased_queue')::bigint, (f.settings->>'max_leased')::bigint) - c.leased, 0);
    END IF;
    low := first_id(coalesce(p_floors[at], 0));
    -- The usual case: only untouched messages of the default priority, and all in one slot.
    fronts := '{}';
    is_mixed := EXISTS (SELECT FROM standing x WHERE x.part IN (3, 4, 5) AND x.home = f.home);
    FOREACH slot IN ARRAY slots LOOP
      EXECUTE 'SELECT peek_' || slot || '($1, $2, $3)' INTO firsts USING f.home, low, high;
      IF firsts[1] IS NOT NULL THEN
        fronts := fronts || slot;
      END IF;
      is_mixed := is_mixed OR firsts[2] IS NOT NULL;
    END LOOP;
    next_pend[at] := CASE WHEN room > 0 THEN now ELSE 0 END;
    IF is_mixed THEN
      next_pend[at] := least(next_pend[at], ripen(f.home, f.settings, coalesce(p_floors[at], 0), now, 1000, slots));
    END IF;
    homes := homes || f.home; qids := qids || f.qid; names := names || p_queues[at]; all_settings := all_settings || f.settings;
    leases := leases || (f.settings->>'lease')::bigint; pend_floors := pend_floors || coalesce(p_floors[at], 0);
    places := places || at; rooms := rooms || room; open_homes := open_homes || CASE WHEN room > 0 THEN f.home END;
  END LOOP;
  part := part_now(0, now);
  most := least(p_max, 16384);
  capped := 0;
  IF p_counts AND most > 0 AND cardinality(homes) > 0 THEN
    store_room := (all_settings[1]->>'limit_leased')::bigint - (SELECT coalesce(sum(t.leased), 0) FROM tally t);
    IF store_room < most THEN
      PERFORM lapse_all(p_defaults, now);
      store_room := (all_settings[1]->>'limit_leased')::bigint - (SELECT coalesce(sum(t.leased), 0) FROM tally t);
    END IF;
    IF store_room <= 0 OR 0 = ANY (rooms) THEN
      FOR at IN 1 .. cardinality(homes) LOOP
        PERFORM expire_some(homes[at], all_settings[at], now, 1000);
      END LOOP;
      IF heads(open_homes, pend_floors, now, 1, NULL, slots, now) IS NOT NULL THEN
        capped := CASE WHEN store_room <= 0 THEN 2 ELSE 0 END;
      ELSIF heads(homes, pend_floors, now, 1, NULL, slots, now) IS NOT NULL THEN
        capped := 1;
      END IF;
    END IF;
    most := least(most, greatest(store_room, 0));
  END IF;
  IF cardinality(homes) = 1 THEN
    most := least(most, rooms[1]);
  END IF;
  IF most <= 0 THEN
    -- Nothing was read.
    left_ := 0;
  END IF;
  IF cardinality(homes) = 1 AND p_max_bytes IS NULL AND most > 0 AND cardinality(fronts) = 1 THEN
    is_mixed := is_mixed AND (
      EXISTS (SELECT FROM standing x WHERE x.part IN (3, 4, 5) AND x.home = homes[1] AND x.lane = 0 AND x.rank = 0 AND x.due <= now)
      OR EXISTS (SELECT FROM standing x WHERE x.part IN (3, 4, 5) AND x.home = homes[1] AND x.lane = 2));
    IF NOT is_mixed THEN
      RETURN QUERY EXECUTE 'SELECT t.*, NULL::bigint[], NULL::int FROM front_' || fronts[1]
          || '($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13) t'
        USING low, high, most, part, now, p_lease, homes, qids, names, leases, p_session, p_holder, fronts[1];
      GET DIAGNOSTICS taken = ROW_COUNT;
      IF taken = most THEN
        EXECUTE 'SELECT peek_' || fronts[1] || '($1, $2, $3)' INTO firsts USING homes[1], low, high;
        left_ := due_of(firsts[1]);
      END IF;
    END IF;
  END IF;
  WHILE taken < most AND cardinality(homes) > 0 AND NOT is_cut LOOP
    found := heads(open_homes, pend_floors, now, most - taken, after, slots, CASE WHEN killed < 32 THEN -1 ELSE now END);
    IF found IS NULL THEN
      after := NULL;
      EXIT;
    END IF;
    after := found[cardinality(found)];
    -- Expired messages die, but few: the rest is passed over, and dies by maintenance. Those beyond the limits are left.
    kept := '{}';
    FOREACH one IN ARRAY found LOOP
      IF one.expires <= now THEN
        IF killed < 32 AND lock_head(one) THEN
          PERFORM hold(qids[one.queue], homes[one.queue], one.id, all_settings[one.queue], now);
        END IF;
        killed := killed + 1;
        CONTINUE;
      END IF;
      -- The rest of a queue at its cap comes again when leases have ended.
      CONTINUE WHEN rooms[one.queue] <= 0;
      IF p_max_bytes IS NOT NULL THEN
        SELECT octet_length(b.body) INTO length FROM body b
          WHERE b.number = number_of(one.id) AND b.slot = slot_in(one.id)::smallint;
        IF bytes + length > p_max_bytes AND bytes + taken + cardinality(kept) > 0 THEN
          is_cut := true;
          -- Messages of the default priority come after those of smaller priorities, whatever their instant.
          left_ := least(left_, CASE WHEN one.priority < 1024 THEN 0 WHEN one.priority = 1024 THEN one.due END);
          EXIT;
        END IF;
        bytes := bytes + length;
      END IF;
      rooms[one.queue] := rooms[one.queue] - 1;
      IF rooms[one.queue] <= 0 THEN
        open_homes[one.queue] := NULL;
        left_ := least(left_, CASE WHEN one.priority < 1024 THEN 0 WHEN one.priority = 1024 THEN one.due END);
      END IF;
      kept := kept || one;
    END LOOP;
    FOR group_ IN
      SELECT k.slot, slot_in(k.id) AS home_slot, array_agg(k.tid) AS tids, min(k.due) AS due, count(*) AS n FROM unnest(kept) k GROUP BY 1, 2
    LOOP
      RETURN QUERY EXECUTE format('SELECT t.*, NULL::bigint[], NULL::int FROM %s($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11) t',
          CASE WHEN group_.slot >= 0 THEN 'lease_' || group_.slot ELSE 'lease_moved_' || -group_.slot END)
        USING group_.tids, part, now, p_lease, homes, qids, names, leases, p_session, p_holder, group_.home_slot::smallint;
      GET DIAGNOSTICS gone = ROW_COUNT;
      taken := taken + gone;
      IF group_.slot >= 0 AND gone < group_.n THEN
        -- Another transaction has locked it, and may leave it in place.
        left_ := least(left_, group_.due);
      END IF;
    END LOOP;
  END LOOP;
  -- After the last candidate nothing was read.
  IF after.priority < 1024 THEN
    left_ := 0;
  ELSIF after.priority = 1024 THEN
    left_ := least(left_, after.due);
  END IF;
  FOREACH at IN ARRAY places LOOP
    next_pend[at] := greatest(least(next_pend[at], left_), coalesce(p_floors[at], 0));
  END LOOP;
  id := NULL;
  queue := NULL; body := NULL;
  next_floors := next_pend || next_lapse;
  taken_at := now;
  RETURN NEXT;
END
$$;
