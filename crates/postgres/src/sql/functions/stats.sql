-- Queues as they are now.

-- The earliest instant at which a queue has something to do, and nothing that is due; null if never. For takes that wait.
CREATE OR REPLACE FUNCTION next_instant(p_qid bigint, p_home bigint, p_floor bigint, settings jsonb, now bigint) RETURNS bigint
LANGUAGE sql STABLE AS $$
  SELECT CASE WHEN (settings->>'pause')::bigint = -1 THEN NULL ELSE greatest((settings->>'pause')::bigint, least(
    due_of((SELECT p.id FROM pend p WHERE p.home = p_home AND p.lane = 0 AND p.id >= first_id(p_floor) ORDER BY p.id LIMIT 1)),
    due_of((SELECT p.id FROM pend p WHERE p.home = p_home AND p.lane = 1 AND p.id >= first_id(p_floor) ORDER BY p.id LIMIT 1)),
    (SELECT s.due FROM standing s WHERE s.part BETWEEN 3 AND 5 AND s.home = p_home ORDER BY s.due LIMIT 1),
    (SELECT s.deadline FROM standing s WHERE s.part < 3 AND s.qid = p_qid ORDER BY s.deadline LIMIT 1))) END
$$;

-- For each queue that is waited on: when its takes are to be asked next. Reads only.
CREATE OR REPLACE FUNCTION next_1(p_queues text[], p_floors bigint[], p_defaults jsonb)
RETURNS TABLE (item int, instant bigint, now_ms bigint)
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT SET enable_seqscan = off SET jit = off AS $$
#variable_conflict use_column
DECLARE
  f record;
BEGIN
  now_ms := clock_ms();
  FOR at IN 1 .. cardinality(p_queues) LOOP
    f := facts_of(p_queues[at], p_defaults);
    item := at;
    instant := next_instant(f.qid, f.home, coalesce(p_floors[at], 0), f.settings, now_ms);
    RETURN NEXT;
  END LOOP;
END
$$;

-- A queue as it is now. What is scheduled and what is ready is told apart by counting what is due.
CREATE OR REPLACE FUNCTION stats_of(p_name text, p_floor bigint, p_defaults jsonb,
  OUT code text, OUT scheduled bigint, OUT ready bigint, OUT ready_urgent bigint, OUT leased bigint, OUT dead bigint,
  OUT next_due bigint, OUT own jsonb, OUT home bigint) RETURNS record
LANGUAGE plpgsql AS $$
DECLARE
  f record := facts_of(p_name, p_defaults);
  now bigint := clock_ms();
  c record;
  others bigint;
BEGIN
  code := '';
  own := coalesce(f.own, '{}');
  home := f.home;
  PERFORM lapse_some(f.qid, f.home, f.settings, now, 0, 2147483647);
  PERFORM expire_some(f.home, now, 10000);
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
  OUT next_due bigint, OUT own jsonb) RETURNS record
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT SET enable_seqscan = off SET jit = off AS $$
DECLARE
  s record := stats_of(p_queue, p_floor, p_defaults);
BEGIN
  code := s.code; scheduled := s.scheduled; ready := s.ready; ready_urgent := s.ready_urgent; leased := s.leased;
  dead := s.dead; next_due := s.next_due; own := s.own;
END
$$;

-- Queues by name, those that have messages or settings of their own.
CREATE OR REPLACE FUNCTION queues_1(p_after text, p_max int, p_defaults jsonb)
RETURNS TABLE (name text, scheduled bigint, ready bigint, ready_urgent bigint, leased bigint, dead bigint, next_due bigint,
  own jsonb)
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT SET enable_seqscan = off SET jit = off AS $$
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
    next_due := s.next_due; own := s.own;
    n := n + 1;
    RETURN NEXT;
  END LOOP;
END
$$;

-- Changes settings, all or none: `p_set` has new values by name, checked by who calls; `p_reset` names those that follow the
-- default again.
CREATE OR REPLACE FUNCTION configure_1(p_queue text, p_set jsonb, p_reset text[], p_defaults jsonb) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT SET jit = off SET enable_seqscan = off SET lock_timeout = '1s' AS $$
DECLARE
  f record;
  next jsonb;
  c record;
  code text;
BEGIN
  IF NOT is_queue_name(p_queue) THEN
    PERFORM refuse('invalid_queue_name');
  END IF;
  f := facts_of(p_queue, p_defaults);
  code := enter_queue(p_queue, f.qid, (f.settings->>'limit_queues')::bigint);
  IF code <> '' THEN
    PERFORM refuse(code, f.settings->>'limit_queues');
  END IF;
  INSERT INTO setting VALUES (f.qid, '{}') ON CONFLICT DO NOTHING;
  SELECT s.own INTO next FROM setting s WHERE s.qid = f.qid FOR UPDATE;
  next := (next || coalesce(p_set, '{}')) - coalesce(p_reset, '{}');
  IF next->'spread' IS DISTINCT FROM f.own->'spread' THEN
    c := count_of(f.qid);
    IF c.pending > 0 OR c.leased > 0 OR c.dead > 0 THEN
      PERFORM refuse('setting_fixed', 'spread');
    END IF;
  END IF;
  IF next = '{}' THEN
    DELETE FROM setting WHERE qid = f.qid;
  ELSE
    UPDATE setting SET own = next WHERE qid = f.qid;
  END IF;
END
$$;
