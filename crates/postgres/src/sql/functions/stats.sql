-- Queues as they are now.

-- For takes that wait on a queue: whether something is due, and the earliest instant at which that may change by time alone.
CREATE OR REPLACE FUNCTION next_instant(p_qid bigint, p_home bigint, p_floor bigint, settings jsonb, now bigint,
  OUT is_due boolean, OUT instant bigint) RETURNS record
LANGUAGE plpgsql STABLE AS $$
DECLARE
  pause bigint := (settings->>'pause')::bigint;
  soonest bigint;
  deadline bigint := (SELECT s.deadline FROM standing s WHERE s.part < 3 AND s.qid = p_qid ORDER BY s.deadline LIMIT 1);
  in_lane smallint;
BEGIN
  is_due := deadline <= now;
  IF deadline <= now THEN
    -- Whoever takes lets it lapse, and asks again.
    deadline := NULL;
  END IF;
  instant := deadline;
  IF pause = -1 THEN
    is_due := false;
    instant := NULL;
    RETURN;
  ELSIF pause > now THEN
    is_due := false;
    instant := pause;
    RETURN;
  END IF;
  FOREACH in_lane IN ARRAY ARRAY[0, 1] LOOP
    soonest := due_of((SELECT p.id FROM pend p WHERE p.home = p_home AND p.lane = in_lane AND p.id >= first_id(p_floor)
      ORDER BY p.id LIMIT 1));
    IF soonest <= now THEN
      is_due := true;
      soonest := due_of((SELECT p.id FROM pend p WHERE p.home = p_home AND p.lane = in_lane AND p.id >= first_id(now + 1)
        ORDER BY p.id LIMIT 1));
    END IF;
    instant := least(instant, soonest);
  END LOOP;
  soonest := (SELECT s.due FROM standing s WHERE s.part BETWEEN 3 AND 5 AND s.home = p_home ORDER BY s.due LIMIT 1);
  IF soonest <= now THEN
    is_due := true;
    soonest := (SELECT s.due FROM standing s WHERE s.part BETWEEN 3 AND 5 AND s.home = p_home AND s.due > now
      ORDER BY s.due LIMIT 1);
  END IF;
  instant := least(instant, soonest);
  is_due := coalesce(is_due, false);
END
$$;

-- For each queue that is waited on: whether something is due, and when to ask next (null: when it hears of something). Reads only.
-- `p_all`: takes wait for any lease of the store to end.
CREATE OR REPLACE FUNCTION next_1(p_queues text[], p_floors bigint[], p_all boolean, p_defaults jsonb)
RETURNS TABLE (item int, is_due boolean, instant bigint, now_ms bigint)
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET jit = off AS $$
#variable_conflict use_column
DECLARE
  f record;
  n record;
  ends bigint;
BEGIN
  now_ms := clock_ms();
  IF p_all THEN
    ends := (SELECT min(s.deadline) FROM standing s WHERE s.part < 3);
  END IF;
  FOR at IN 1 .. cardinality(p_queues) LOOP
    f := facts_of(p_queues[at], p_defaults);
    item := at;
    n := next_instant(f.qid, f.home, coalesce(p_floors[at], 0), f.settings, now_ms);
    is_due := n.is_due OR coalesce(ends <= now_ms, false);
    instant := least(n.instant, CASE WHEN ends > now_ms THEN ends END);
    RETURN NEXT;
  END LOOP;
END
$$;

-- For a take that begins to wait: which of its queues have messages or settings, and how many queues there are: at most, unless
-- that and the others come to more than `p_most`.
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
  -- Names stay when their queues have nothing any more.
  IF queues + cardinality(array_positions(known, false)) > p_most THEN
    queues := known_queues();
  END IF;
END
$$;

-- How many messages are leased in all.
CREATE OR REPLACE FUNCTION leased_1() RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT SET plan_cache_mode = force_generic_plan
SET jit = off AS $$
BEGIN
  RETURN (SELECT coalesce(sum(t.leased), 0) FROM tally t);
END
$$;

-- How many scheduled messages are due by each of these instants, of these queues or of all: `scheduled` in all, then by instant.
-- Each queue is counted in one statement.
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
      SELECT q.name INTO name FROM queue q WHERE q.name > last COLLATE "C" ORDER BY q.name LIMIT 1;
      EXIT WHEN NOT FOUND;
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
    PERFORM lapse_some(f.qid, f.home, f.settings, now, 0, 2147483647);
    PERFORM expire_some(f.home, f.settings, now, 10000);
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
        -- Bucket b has what is at edge b or later and before the next: at the edge itself counts by it, the rest by the next.
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

-- A queue as it is now. Scheduled and ready messages are distinguished by counting those that are due.
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
  PERFORM lapse_some(f.qid, f.home, f.settings, now, 0, 2147483647);
  PERFORM expire_some(f.home, f.settings, now, 10000);
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

-- Queues by name, those that have messages or settings of their own.
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
    SELECT q.name INTO name FROM queue q WHERE q.name > last COLLATE "C" ORDER BY q.name LIMIT 1;
    EXIT WHEN NOT FOUND;
    last := name;
    s := stats_of(name, 0, p_defaults);
    CONTINUE WHEN s.code <> '';
    scheduled := s.scheduled; ready := s.ready; ready_urgent := s.ready_urgent; leased := s.leased; dead := s.dead;
    next_due := s.next_due; own := s.own; now_ms := s.now_ms;
    n := n + 1;
    RETURN NEXT;
  END LOOP;
END
$$;

-- Changes settings, all or none: `p_set` has new values by name, checked by who calls; `p_reset` names those that follow the
-- default again.
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
  IF NOT is_queue_name(p_queue) THEN
    PERFORM refuse('invalid_queue_name');
  END IF;
  f := facts_of(p_queue, p_defaults);
  -- What time has brought about by now is by the settings so far.
  PERFORM lapse_some(f.qid, f.home, f.settings, now, 0, 2147483647);
  PERFORM expire_some(f.home, f.settings, now, 2147483647);
  INSERT INTO setting VALUES (f.qid, '{}') ON CONFLICT DO NOTHING;
  SELECT s.own INTO next FROM setting s WHERE s.qid = f.qid FOR UPDATE;
  next := (next || coalesce(p_set, '{}')) - coalesce(p_reset, '{}');
  -- A pause that has ended is no setting.
  IF (next->>'pause')::bigint BETWEEN 1 AND now THEN
    next := CASE WHEN (general->>'pause')::bigint = 0 THEN next - 'pause' ELSE next || '{"pause": 0}' END;
  END IF;
  IF (general || next)->'spread' <> f.settings->'spread' THEN
    c := count_of(f.qid);
    IF c.pending > 0 OR c.leased > 0 OR c.dead > 0 THEN
      PERFORM refuse('setting_fixed', 'spread');
    END IF;
  END IF;
  IF next = '{}' THEN
    DELETE FROM setting WHERE qid = f.qid;
  ELSE
    -- As it was before: the row that was made to be locked makes no queue.
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
