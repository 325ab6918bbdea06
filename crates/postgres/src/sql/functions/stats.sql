-- Statistics of queues.

-- For each queue that is waited on: whether something is due, and the earliest instant at which time alone may change that
-- (null: only a change can). Reads only. `p_all`: takes wait for any lease of the store to end.
--
-- It is one statement for all queues, since one on `pend` begins with all of its partitions.
CREATE OR REPLACE FUNCTION next_1(p_queues text[], p_floors bigint[], p_all boolean, p_defaults jsonb)
RETURNS TABLE (item int, is_due boolean, instant bigint, now_ms bigint)
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET enable_material = off SET jit = off AS $$
#variable_conflict use_column
DECLARE
  now bigint := clock_ms();
  general bigint := (builtin_settings() || coalesce(p_defaults, (SELECT s.own FROM setting s WHERE s.qid = 0), '{}'))->>'pause';
  ends bigint;
BEGIN
  IF p_all THEN
    ends := (SELECT min(s.deadline) FROM standing s WHERE s.part < 3);
  END IF;
  RETURN QUERY
    SELECT q.n::int, x.is_due OR coalesce(ends <= now, false), least(x.instant, CASE WHEN ends > now THEN ends END), now
    FROM (
      SELECT u.n, h.qid, coalesce((SELECT p.next FROM purge p WHERE p.qid = h.qid ORDER BY p.generation DESC LIMIT 1), h.qid) AS home,
        first_id(coalesce(u.floor, 0)) AS low, coalesce((SELECT (s.own->>'pause')::bigint FROM setting s WHERE s.qid = h.qid), general) AS pause
      FROM unnest(p_queues, p_floors) WITH ORDINALITY AS u (name, floor, n), LATERAL (SELECT home_of(u.name, 0) AS qid OFFSET 0) h
      OFFSET 0
    ) q, LATERAL (
      -- The first of each kind. A lease that has run out makes its queue due: a take applies the lapse, and then polls again.
      SELECT (SELECT s.deadline FROM standing s WHERE s.part < 3 AND s.qid = q.qid ORDER BY s.deadline LIMIT 1) AS lease,
        due_of((SELECT p.id FROM pend p WHERE p.home = q.home AND p.lane = 0 AND p.id >= q.low ORDER BY p.id LIMIT 1)) AS usual,
        due_of((SELECT p.id FROM pend p WHERE p.home = q.home AND p.lane = 1 AND p.id >= q.low ORDER BY p.id LIMIT 1)) AS other,
        (SELECT s.due FROM standing s WHERE s.part IN (3, 4, 5) AND s.home = q.home ORDER BY s.due LIMIT 1) AS moved
      OFFSET 0
    ) f, LATERAL (
      SELECT
        CASE WHEN q.pause = -1 OR q.pause > now THEN false
          ELSE coalesce(least(f.lease, f.usual, f.other, f.moved) <= now, false) END AS is_due,
        CASE WHEN q.pause = -1 THEN NULL WHEN q.pause > now THEN q.pause
          -- Of those that are due, the first one that is not.
          ELSE least(CASE WHEN f.lease > now THEN f.lease END,
            CASE WHEN f.usual > now THEN f.usual WHEN f.usual <= now THEN
              due_of((SELECT p.id FROM pend p WHERE p.home = q.home AND p.lane = 0 AND p.id >= first_id(now + 1) ORDER BY p.id LIMIT 1)) END,
            CASE WHEN f.other > now THEN f.other WHEN f.other <= now THEN
              due_of((SELECT p.id FROM pend p WHERE p.home = q.home AND p.lane = 1 AND p.id >= first_id(now + 1) ORDER BY p.id LIMIT 1)) END,
            CASE WHEN f.moved > now THEN f.moved WHEN f.moved <= now THEN
              (SELECT s.due FROM standing s WHERE s.part IN (3, 4, 5) AND s.home = q.home AND s.due > now ORDER BY s.due LIMIT 1) END) END AS instant
      OFFSET 0
    ) x;
END
$$;

-- For a take that begins to wait: which of its queues have messages or settings, and the number of queues: an upper
-- bound, unless that plus the other queues exceeds `p_most`.
CREATE OR REPLACE FUNCTION known_1(p_queues text[], p_most bigint, p_defaults jsonb, OUT known boolean[], OUT queues bigint)
RETURNS record
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET jit = off AS $$
DECLARE
  f record;
  now bigint := clock_ms();
  name text;
BEGIN
  known := '{}';
  FOREACH name IN ARRAY p_queues LOOP
    f := facts_of(name, p_defaults);
    known := known || is_known(name, f.qid, f.own, now);
  END LOOP;
  SELECT count(*) INTO queues FROM (SELECT FROM queue LIMIT p_most + 1) q;
  -- Names remain when their queues are empty.
  IF queues + cardinality(array_positions(known, false)) > p_most THEN
    queues := known_queues();
  END IF;
END
$$;

-- The number of all leases.
CREATE OR REPLACE FUNCTION leased_1() RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT SET plan_cache_mode = force_generic_plan
SET jit = off AS $$
BEGIN
  RETURN (SELECT coalesce(sum(t.leased), 0) FROM tally t);
END
$$;

-- The first name after this one whose queue may have messages or settings. Names remain when a queue has neither: those are
-- passed over by index.
CREATE OR REPLACE FUNCTION next_name(p_last text) RETURNS text
LANGUAGE plpgsql STABLE AS $$
BEGIN
  RETURN (SELECT q.name FROM queue q WHERE q.name > p_last COLLATE "C"
    AND (EXISTS (SELECT FROM tally t WHERE t.qid = q.qid) OR EXISTS (SELECT FROM setting s WHERE s.qid = q.qid))
    ORDER BY q.name LIMIT 1);
END
$$;

-- The number of scheduled messages due by each of these instants, of these queues or of all: `scheduled` in all, then by
-- instant. Each queue is counted in one statement.
CREATE OR REPLACE FUNCTION forecast_1(p_queues text[], p_edges bigint[], p_defaults jsonb,
  OUT code text, OUT info text, OUT scheduled bigint, OUT due_by bigint[]) RETURNS record
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET jit = off AS $$
DECLARE
  f record;
  now bigint;
  name text;
  last text := '';
  at int := 0;
  n int := coalesce(cardinality(p_edges), 0);
  sorted bigint[] := ARRAY(SELECT DISTINCT e.edge FROM unnest(p_edges) AS e (edge) ORDER BY 1);
  counts bigint[];
  place int;
  c record;
  total bigint;
BEGIN
  code := ''; scheduled := 0;
  due_by := array_fill(0::bigint, ARRAY[n]);
  counts := array_fill(0::bigint, ARRAY[cardinality(sorted)]);
  LOOP
    IF p_queues IS NULL THEN
      name := next_name(last);
      EXIT WHEN name IS NULL;
      last := name;
    ELSE
      at := at + 1;
      EXIT WHEN at > cardinality(p_queues);
      name := p_queues[at];
    END IF;
    f := facts_of(name, p_defaults);
    now := clock_ms();
    IF NOT is_known(name, f.qid, f.own, now) THEN
      CONTINUE WHEN p_queues IS NULL;
      code := 'unknown_queue'; info := name;
      RETURN;
    END IF;
    IF is_behind(f.qid, f.home, f.settings, now) THEN
      RETURN;
    END IF;
    FOR c IN
      SELECT width_bucket(x.due, sorted) AS bucket, x.due = ANY (sorted) AS is_edge, count(*) AS n FROM (
        SELECT due_of(p.id) AS due FROM pend p WHERE p.home = f.home AND p.lane = 0 AND p.id >= first_id(now + 1)
        UNION ALL
        SELECT due_of(p.id) FROM pend p WHERE p.home = f.home AND p.lane = 1 AND p.id >= first_id(now + 1)
        UNION ALL
        SELECT s.due FROM standing s WHERE s.part BETWEEN 3 AND 5 AND s.home = f.home AND s.due > now) x
      WHERE cardinality(sorted) > 0 GROUP BY 1, 2
      UNION ALL
      SELECT -1, NULL, count(*) FROM (
        SELECT FROM pend p WHERE p.home = f.home AND p.lane IN (0, 1) AND p.id >= first_id(now + 1)
        UNION ALL
        SELECT FROM standing s WHERE s.part BETWEEN 3 AND 5 AND s.home = f.home AND s.due > now) y
    LOOP
      IF c.bucket = -1 THEN
        scheduled := scheduled + c.n;
      ELSE
        -- Bucket b has the messages due from edge b to the next one:
        -- exactly at edge b counts for b, all others for the next edge.
        place := CASE WHEN c.is_edge THEN c.bucket ELSE c.bucket + 1 END;
        IF place <= cardinality(sorted) THEN
          counts[place] := counts[place] + c.n;
        END IF;
      END IF;
    END LOOP;
  END LOOP;
  FOR at IN 1 .. n LOOP
    SELECT coalesce(sum(u.n), 0) INTO total FROM unnest(counts, sorted) AS u (n, edge) WHERE u.edge <= p_edges[at];
    due_by[at] := total;
  END LOOP;
END
$$;

-- The statistics of a queue. Scheduled and ready messages are distinguished by counting those that are due.
CREATE OR REPLACE FUNCTION stats_of(p_name text, p_floor bigint, p_defaults jsonb,
  OUT code text, OUT scheduled bigint, OUT ready bigint, OUT ready_urgent bigint, OUT leased bigint, OUT dead bigint,
  OUT next_due bigint, OUT own jsonb, OUT home bigint, OUT now_ms bigint) RETURNS record
LANGUAGE plpgsql AS $$
DECLARE
  f record := facts_of(p_name, p_defaults);
  now bigint := clock_ms();
  c record;
  others bigint;
BEGIN
  code := '';
  now_ms := now;
  own := coalesce(f.own, '{}');
  home := f.home;
  IF is_behind(f.qid, f.home, f.settings, now) THEN
    code := 'again';
    RETURN;
  END IF;
  PERFORM retain_some(f.qid, f.settings, now, 10000);
  IF NOT is_known(p_name, f.qid, f.own, now) THEN
    code := 'unknown_queue';
    RETURN;
  END IF;
  IF (own->>'pause')::bigint BETWEEN 1 AND now THEN
    own := own - 'pause';
  END IF;
  c := count_of(f.qid);
  SELECT count(*) INTO ready FROM pend p
    WHERE p.home = f.home AND p.lane = 0 AND p.id >= first_id(p_floor) AND p.id < first_id(now + 1);
  SELECT count(*), count(*) FILTER (WHERE b.priority < 1024) INTO others, ready_urgent FROM pend p
    JOIN body b ON b.number = number_of(p.id) AND b.slot = p.slot
    WHERE p.home = f.home AND p.lane = 1 AND p.id >= first_id(p_floor) AND p.id < first_id(now + 1);
  SELECT count(*) + others + ready, count(*) FILTER (WHERE s.priority < 1024) + ready_urgent INTO ready, ready_urgent
    FROM standing s WHERE s.part BETWEEN 3 AND 5 AND s.home = f.home AND s.due <= now;
  scheduled := c.pending - ready;
  leased := c.leased;
  dead := c.dead;
  next_due := least(
    due_of((SELECT p.id FROM pend p WHERE p.home = f.home AND p.lane = 0 AND p.id >= first_id(now + 1) ORDER BY p.id LIMIT 1)),
    due_of((SELECT p.id FROM pend p WHERE p.home = f.home AND p.lane = 1 AND p.id >= first_id(now + 1) ORDER BY p.id LIMIT 1)),
    (SELECT s.due FROM standing s WHERE s.part BETWEEN 3 AND 5 AND s.home = f.home AND s.due > now ORDER BY s.due LIMIT 1));
END
$$;

CREATE OR REPLACE FUNCTION stats_1(p_queue text, p_floor bigint, p_defaults jsonb,
  OUT code text, OUT scheduled bigint, OUT ready bigint, OUT ready_urgent bigint, OUT leased bigint, OUT dead bigint,
  OUT next_due bigint, OUT own jsonb, OUT now_ms bigint) RETURNS record
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET jit = off AS $$
DECLARE
  s record := stats_of(p_queue, p_floor, p_defaults);
BEGIN
  code := s.code; scheduled := s.scheduled; ready := s.ready; ready_urgent := s.ready_urgent; leased := s.leased;
  dead := s.dead; next_due := s.next_due; own := s.own;
  now_ms := s.now_ms;
END
$$;

-- Queues with messages or settings of their own, by name.
CREATE OR REPLACE FUNCTION queues_1(p_after text, p_max int, p_defaults jsonb)
RETURNS TABLE (name text, scheduled bigint, ready bigint, ready_urgent bigint, leased bigint, dead bigint, next_due bigint,
  own jsonb, now_ms bigint)
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET jit = off AS $$
#variable_conflict use_column
DECLARE
  s record;
  n int := 0;
  last text := coalesce(p_after, '') COLLATE "C";
BEGIN
  WHILE n < p_max LOOP
    name := next_name(last);
    EXIT WHEN name IS NULL;
    last := name;
    s := stats_of(name, 0, p_defaults);
    EXIT WHEN s.code = 'again';
    CONTINUE WHEN s.code <> '';
    scheduled := s.scheduled; ready := s.ready; ready_urgent := s.ready_urgent; leased := s.leased; dead := s.dead;
    next_due := s.next_due; own := s.own; now_ms := s.now_ms;
    n := n + 1;
    RETURN NEXT;
  END LOOP;
END
$$;

-- Makes these defaults those of callers in SQL, in this database. Writes nothing if they are already.
CREATE OR REPLACE FUNCTION publish_1(p_defaults jsonb) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT SET jit = off SET lock_timeout = '1s' AS $$
BEGIN
  UPDATE setting SET own = p_defaults WHERE qid = 0 AND own <> p_defaults;
END
$$;

-- Changes settings, all or none: `p_set` has new values by name, validated by
-- the caller; `p_reset` names those that return to the default.
CREATE OR REPLACE FUNCTION configure_1(p_queue text, p_set jsonb, p_reset text[], p_defaults jsonb) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT SET plan_cache_mode = force_generic_plan
SET jit = off SET enable_seqscan = off SET lock_timeout = '1s' AS $$
DECLARE
  f record;
  next jsonb;
  c record;
  code text;
  now bigint := clock_ms();
  general jsonb := builtin_settings() || coalesce(p_defaults, (SELECT s.own FROM setting s WHERE s.qid = 0), '{}');
BEGIN
  PERFORM limit_waits(p_defaults);
  IF NOT is_queue_name(p_queue) THEN
    PERFORM refuse('invalid_queue_name');
  END IF;
  PERFORM pg_current_xact_id();
  f := facts_of(p_queue, p_defaults);
  -- What time has changed so far is applied with the old settings.
  IF is_behind(f.qid, f.home, f.settings, now) THEN
    RETURN;
  END IF;
  INSERT INTO setting VALUES (f.qid, '{}') ON CONFLICT DO NOTHING;
  SELECT s.own INTO next FROM setting s WHERE s.qid = f.qid FOR UPDATE;
  next := (next || coalesce(p_set, '{}')) - coalesce(p_reset, '{}');
  -- A pause that has ended is not a setting.
  IF (next->>'pause')::bigint BETWEEN 1 AND now THEN
    next := CASE WHEN (general->>'pause')::bigint = 0 THEN next - 'pause' ELSE next || '{"pause": 0}' END;
  END IF;
  IF (general || next)->'partitions' <> f.settings->'partitions' THEN
    c := count_of(f.qid);
    IF c.pending > 0 OR c.leased > 0 OR c.dead > 0 THEN
      PERFORM refuse('setting_fixed', 'partitions');
    END IF;
  END IF;
  IF next = '{}' THEN
    DELETE FROM setting WHERE qid = f.qid;
  ELSE
    -- Restores the state before: a row that was inserted only to be locked must not make the queue known.
    IF f.own IS NULL THEN
      DELETE FROM setting WHERE qid = f.qid;
    END IF;
    code := enter_queue(p_queue, f.qid, (f.settings->>'limit_queues')::bigint);
    IF code <> '' THEN
      PERFORM refuse(code, f.settings->>'limit_queues');
    END IF;
    INSERT INTO setting VALUES (f.qid, next) ON CONFLICT DO NOTHING;
    UPDATE setting SET own = next WHERE qid = f.qid;
  END IF;
  PERFORM retain_some(f.qid, general || next, now, 1000);
END
$$;
