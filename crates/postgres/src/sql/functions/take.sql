-- Handing messages out.

-- Which transactions may still add messages (`puts`), or leases (`all`): who holds the lock that puts and takes begin with. A
-- process that saw a set of them at `now_ms`, and later none of that set, knows that whatever is due before `now_ms` was
-- visible then or will never be: it has its floor there (docs/decisions, "Where a take begins").
CREATE OR REPLACE FUNCTION writers_1(OUT now_ms bigint, OUT puts text[], OUT leases text[]) RETURNS record
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
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

-- The slots that may have messages which are due.
CREATE OR REPLACE FUNCTION slots_at(now bigint) RETURNS smallint[]
LANGUAGE sql STABLE AS $$ SELECT array_agg(s.slot ORDER BY s.slot) FROM slot s WHERE s.quiet_until <= now $$;

-- Messages of other priorities that have come due go where they are in the order of priorities, at most `most`. Says where the
-- first one is due that is left.
CREATE OR REPLACE FUNCTION ripen(p_home bigint, p_floor bigint, now bigint, most int) RETURNS bigint
LANGUAGE plpgsql AS $$
DECLARE
  low uuid := first_id(p_floor);
  high uuid := first_id(now + 1);
  slots smallint[] := slots_at(now);
  first uuid;
  p pend;
  s standing;
  slot smallint;
BEGIN
  SELECT x.id INTO first FROM pend x
    WHERE x.slot = ANY (slots) AND x.home = p_home AND x.lane = 1 AND x.id >= low AND x.id < high ORDER BY x.id LIMIT 1;
  IF FOUND THEN
    FOREACH slot IN ARRAY slots LOOP
      FOR p IN EXECUTE format('SELECT * FROM pend_%s WHERE home = $1 AND lane = 1 AND id >= $2 AND id < $3 ORDER BY id '
        'LIMIT $4 FOR UPDATE SKIP LOCKED', slot) USING p_home, low, high, most
      LOOP
        s := fresh(p);
        PERFORM unfile(s, 1);
        PERFORM file_pending(s, p_home, now);
      END LOOP;
    END LOOP;
    SELECT x.id INTO first FROM pend x
      WHERE x.slot = ANY (slots) AND x.home = p_home AND x.lane = 1 AND x.id >= low AND x.id < high ORDER BY x.id LIMIT 1;
  END IF;
  FOR s IN
    SELECT * FROM standing x WHERE x.part BETWEEN 3 AND 5 AND x.home = p_home AND x.lane = 1 AND x.rank = 0 AND x.due <= now
    ORDER BY x.due LIMIT most FOR UPDATE SKIP LOCKED
  LOOP
    PERFORM unfile(s, 2);
    PERFORM file_pending(s, p_home, now);
  END LOOP;
  RETURN due_of(first);
END
$$;

DO $$
BEGIN
  IF to_regtype('head') IS NULL THEN
    -- A message that may go out. `slot` is below 0 for a part of `standing`.
    CREATE TYPE head AS (queue int, priority bigint, due bigint, id uuid, slot smallint, tid tid, expires bigint);
  END IF;
END
$$;

-- The first `most` of the messages that are due, by (priority, due, id), after `after`. Nothing is locked.
CREATE OR REPLACE FUNCTION heads(p_homes bigint[], p_floors bigint[], now bigint, most int, after head) RETURNS head[]
LANGUAGE plpgsql AS $$
DECLARE
  arms text;
  found head[];
BEGIN
  SELECT string_agg(format(
    '(SELECT q.n::int AS queue, 1024::bigint AS priority, due_of(x.id) AS due, x.id, %1$s::smallint AS slot, x.tid, x.expires '
    'FROM q, LATERAL (SELECT p.id, p.ctid AS tid, p.expires FROM pend_%1$s p WHERE p.home = q.home AND p.lane = 0 '
    'AND p.id >= q.low AND p.id < $3 AND ($5 OR p.id > $6) ORDER BY p.id LIMIT $4) x)', s.slot), ' UNION ALL ')
  INTO arms FROM unnest(slots_at(now)) AS s (slot);
  SELECT arms || string_agg(format(
    ' UNION ALL (SELECT q.n::int, x.priority, x.due, x.id, %1$s::smallint, x.tid, x.expires FROM q, LATERAL ('
    'SELECT s.priority, s.due, s.id, s.ctid AS tid, s.expires FROM standing_%2$s s WHERE s.home = q.home AND s.lane = 0 '
    'AND s.rank = 0 AND s.due <= $2 AND (NOT $7 OR (s.due, s.id) > ($8, $6)) ORDER BY s.due, s.id LIMIT $4) x)'
    ' UNION ALL (SELECT q.n::int, x.priority, x.due, x.id, %1$s::smallint, x.tid, x.expires FROM q, LATERAL ('
    'SELECT s.priority, s.due, s.id, s.ctid AS tid, s.expires FROM standing_%2$s s WHERE s.home = q.home AND s.lane = 2 '
    'AND ($6 IS NULL OR (s.rank, s.due, s.id) > ($9, $8, $6)) ORDER BY s.rank, s.due, s.id LIMIT $4) x)',
    -part, part), '')
  INTO arms FROM generate_series(3, 5) AS g (part);
  EXECUTE 'WITH q AS MATERIALIZED (SELECT * FROM unnest($1, $10) WITH ORDINALITY AS u (home, low, n)) '
    'SELECT array_agg(ROW(h.queue, h.priority, h.due, h.id, h.slot, h.tid, h.expires)::head '
    'ORDER BY h.priority, h.due, h.id) FROM (SELECT * FROM (' || arms || ') a ORDER BY a.priority, a.due, a.id LIMIT $4) h'
  INTO found
  USING p_homes, now, first_id(now + 1), most, after.id IS NULL OR after.priority < 1024, after.id,
    after.id IS NOT NULL AND after.priority >= 1024, after.due, after.priority,
    ARRAY(SELECT first_id(u.floor) FROM unnest(p_floors) WITH ORDINALITY AS u (floor, n) ORDER BY u.n);
  RETURN found;
END
$$;

-- Takes messages that are due, at most `p_max` of them, and of their bodies `p_max_bytes` bytes but one at least. The rows are
-- in no order: priority, due and id give it.
--
-- `p_floors`: for each queue the instant before which no message put and untouched is left (0 if it is not known), and
-- `p_lapse_floors` for leases. The last row has no id: its `due` has the next floors, of which each queue has two in
-- `next_floors`, to be used as far as `writers_1` allows.
CREATE OR REPLACE FUNCTION take_1(p_queues text[], p_max int, p_max_bytes bigint, p_lease bigint, p_session bigint,
  p_floors bigint[], p_lapse_floors bigint[], p_defaults jsonb)
RETURNS TABLE (queue text, id uuid, number bigint, due bigint, priority bigint, created bigint, key bytea, headers jsonb,
  lease_own bigint, max_attempts bigint, expires bigint, attempts int, takes int, lapses int, releases int, buries int,
  revives int, last_error bytea, token uuid, deadline bigint, lease_ms bigint, since bigint, taken_at bigint, body bytea,
  next_floors bigint[])
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT SET enable_seqscan = off SET enable_hashjoin = off
SET enable_mergejoin = off SET lock_timeout = '1s' SET jit = off AS $$
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
  is_cut boolean := false;
  -- Where what was seen and is left begins, for queues named so far.
  left_ bigint;
  places int[] := '{}';
BEGIN
  LOCK TABLE ONLY standing IN ROW EXCLUSIVE MODE;
  now := clock_ms();
  next_pend := array_fill(0::bigint, ARRAY[greatest(cardinality(p_queues), 1)]);
  next_lapse := next_pend;
  FOR at IN 1 .. cardinality(p_queues) LOOP
    CONTINUE WHEN p_queues[at] = ANY (p_queues[1 : at - 1]);
    f := facts_of(p_queues[at], p_defaults);
    next_lapse[at] := lapse_some(f.qid, f.home, f.settings, now, coalesce(p_lapse_floors[at], 0), 1000);
    pause := (f.settings->>'pause')::bigint;
    CONTINUE WHEN pause = -1 OR pause > now;
    next_pend[at] := coalesce(ripen(f.home, coalesce(p_floors[at], 0), now, 1000), now);
    homes := homes || f.home; qids := qids || f.qid; names := names || p_queues[at]; all_settings := all_settings || f.settings;
    leases := leases || (f.settings->>'lease')::bigint; pend_floors := pend_floors || coalesce(p_floors[at], 0);
    places := places || at;
  END LOOP;
  part := part_now(0, now);
  most := least(p_max, 16384);
  WHILE taken < most AND cardinality(homes) > 0 AND NOT is_cut LOOP
    found := heads(homes, pend_floors, now, most - taken, after);
    IF found IS NULL THEN
      after := NULL;
      EXIT;
    END IF;
    after := found[cardinality(found)];
    -- What has expired dies; what would be too much is left.
    kept := '{}';
    FOREACH one IN ARRAY found LOOP
      IF one.expires <= now THEN
        PERFORM hold(qids[one.queue], homes[one.queue], one.id, all_settings[one.queue], now);
        CONTINUE;
      END IF;
      IF p_max_bytes IS NOT NULL THEN
        SELECT octet_length(b.body) INTO length FROM body b
          WHERE b.number = number_of(one.id) AND b.slot = slot_in(one.id)::smallint;
        IF bytes + length > p_max_bytes AND bytes + taken + cardinality(kept) > 0 THEN
          is_cut := true;
          left_ := least(left_, CASE WHEN one.priority <= 1024 THEN one.due END);
          EXIT;
        END IF;
        bytes := bytes + length;
      END IF;
      kept := kept || one;
    END LOOP;
    FOR group_ IN
      SELECT k.slot, slot_in(k.id) AS home_slot, array_agg(k.tid) AS tids, min(k.due) AS due, count(*) AS n FROM unnest(kept) k GROUP BY 1, 2
    LOOP
      IF group_.slot >= 0 THEN
        RETURN QUERY EXECUTE format($q$
          WITH got AS MATERIALIZED (
            SELECT p.ctid AS tid FROM pend_%1$s p WHERE p.ctid = ANY ($1) FOR UPDATE SKIP LOCKED
          ), gone AS (
            DELETE FROM pend_%1$s p WHERE p.ctid = ANY (ARRAY(SELECT g.tid FROM got g)) RETURNING p.*
          ), whole AS MATERIALIZED (
            SELECT g.id, g.home, g.keyed, b.*, q.name, q.qid AS q, gen_random_uuid() AS new_token,
              coalesce($4, b.lease_ms, q.lease) AS new_lease
            FROM gone g JOIN body_%1$s b ON b.number = number_of(g.id)
              JOIN unnest($5, $6, $7, $8) AS q (home, qid, name, lease) ON q.home = g.home
          ), held AS (
            INSERT INTO standing (qid, due, priority, expires, max_attempts, lease_own, id, part, keyed, attempts, takes,
              token, deadline, lease_ms, session)
            SELECT w.q, w.due, w.priority, w.expires, w.max_attempts, w.lease_ms, w.id, $2, w.keyed, 0, 1, w.new_token,
              least($3 + w.new_lease, 253402300799999), w.new_lease, $9
            FROM whole w
          ), counted AS (
            INSERT INTO tally SELECT w.q, w.home, -count(*), count(*), 0 FROM whole w GROUP BY 1, 2
          )
          SELECT w.name, w.id, w.number, w.due, w.priority, w.created, CASE WHEN w.keyed THEN w.key END, w.headers,
            w.lease_ms, w.max_attempts, w.expires, 0, 1, 0, 0, 0, 0, NULL::bytea, w.new_token,
            least($3 + w.new_lease, 253402300799999), w.new_lease, greatest(w.due, w.created), $3, w.body, NULL::bigint[]
          FROM whole w $q$, group_.slot)
          USING group_.tids, part, now, p_lease, homes, qids, names, leases, p_session;
        GET DIAGNOSTICS gone = ROW_COUNT;
      ELSE
        RETURN QUERY EXECUTE format($q$
          WITH got AS MATERIALIZED (
            SELECT s.ctid AS tid FROM standing_%1$s s WHERE s.ctid = ANY ($1) FOR UPDATE SKIP LOCKED
          ), gone AS (
            DELETE FROM standing_%1$s s WHERE s.ctid = ANY (ARRAY(SELECT g.tid FROM got g)) RETURNING s.*
          ), whole AS MATERIALIZED (
            SELECT g.*, b.number, b.created, b.key, b.headers, b.body, q.name, gen_random_uuid() AS new_token,
              coalesce($4, g.lease_own, q.lease) AS new_lease
            FROM gone g JOIN body_%2$s b ON b.number = number_of(g.id)
              JOIN unnest($5, $6, $7, $8) AS q (home, qid, name, lease) ON q.home = g.home
          ), held AS (
            INSERT INTO standing (qid, due, priority, expires, max_attempts, lease_own, id, part, keyed, attempts, takes,
              lapses, releases, buries, revives, last_error, token, deadline, lease_ms, session)
            SELECT w.qid, w.due, w.priority, w.expires, w.max_attempts, w.lease_own, w.id, $2, w.keyed, w.attempts,
              w.takes + 1, w.lapses, w.releases, w.buries, w.revives, w.last_error, w.new_token,
              least($3 + w.new_lease, 253402300799999), w.new_lease, $9
            FROM whole w
          ), counted AS (
            INSERT INTO tally SELECT w.qid, w.home, -count(*), count(*), 0 FROM whole w GROUP BY 1, 2
          )
          SELECT w.name, w.id, w.number, w.due, w.priority, w.created, CASE WHEN w.keyed THEN w.key END, w.headers,
            w.lease_own, w.max_attempts, w.expires, w.attempts, w.takes + 1, coalesce(w.lapses, 0), coalesce(w.releases, 0),
            coalesce(w.buries, 0), coalesce(w.revives, 0), w.last_error, w.new_token,
            least($3 + w.new_lease, 253402300799999), w.new_lease, greatest(w.due, w.since), $3, w.body, NULL::bigint[]
          FROM whole w $q$, -group_.slot, group_.home_slot)
          USING group_.tids, part, now, p_lease, homes, qids, names, leases, p_session;
        GET DIAGNOSTICS gone = ROW_COUNT;
      END IF;
      taken := taken + gone;
      IF group_.slot >= 0 AND gone < group_.n THEN
        -- Somebody holds it locked, and may leave it.
        left_ := least(left_, group_.due);
      END IF;
    END LOOP;
  END LOOP;
  -- Beyond the last one nothing was looked at.
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
