-- Settling leased messages.

DO $$
BEGIN
  IF to_regtype('settle_answer') IS NULL THEN
    -- `what`: gone, scheduled, ready, dead, leased, with the instant or the reason in `value`; empty if there is a `code`.
    CREATE TYPE settle_answer AS (code text, info text, what text, value bigint);
  END IF;
END
$$;

-- One settlement. Actions: 0 ack, 1 retry, 2 release, 3 bury, 4 extend, 5 give back. `value`: a delay or length in ms;
-- `random`: 32 bits for the jitter.
CREATE OR REPLACE FUNCTION settle_one(p_qid bigint, p_home bigint, settings jsonb, p_id uuid, p_token uuid, p_action int,
  p_value bigint, p_error bytea, p_priority bigint, p_random bigint) RETURNS settle_answer
LANGUAGE plpgsql AS $$
DECLARE
  now_us bigint;
  now bigint;
  s standing;
  a settle_answer;
  most bigint;
  delay bigint := p_value;
  place int;
BEGIN
  a.code := '';
  IF octet_length(p_error) > 4096 THEN
    a.code := 'error_text_too_long';
    RETURN a;
  ELSIF p_action = 4 AND p_value NOT BETWEEN 1 AND 4294967295000 THEN
    a.code := 'invalid_setting'; a.info := 'lease: a lease lasts 1 ms to 2^32 - 1 s';
    RETURN a;
  END IF;
  FOR look IN 1 .. 2 LOOP
    -- The second select finds a row that moved to another part while this one waited for its lock.
    SELECT * INTO s FROM standing x WHERE x.id = p_id AND x.part < 3 AND x.token = p_token AND x.qid = p_qid FOR UPDATE;
    EXIT WHEN FOUND;
  END LOOP;
  -- Read after the lock, since the wait for it may have lasted past the deadline.
  now_us := clock_us();
  now := now_us / 1000;
  IF s.id IS NULL THEN
    PERFORM check_truncated(p_id);
  END IF;
  IF s.id IS NULL OR s.deadline <= now THEN
    a.code := 'lease_lost';
    RETURN a;
  END IF;
  IF p_action = 1 AND delay IS NULL THEN
    delay := backoff_ms(settings->'backoff', s.attempts + 1, p_random);
  END IF;
  IF p_action IN (1, 2) AND (delay < 0 OR now + 1 + delay > 253402300799999) THEN
    a.code := CASE WHEN delay < 0 THEN 'negative_delay' ELSE 'due_out_of_range' END;
    RETURN a;
  END IF;
  IF p_action = 4 THEN
    s.lease_ms := coalesce(p_value, s.lease_ms);
    s.deadline := least(now + s.lease_ms, 253402300799999);
    UPDATE standing SET lease_ms = s.lease_ms, deadline = s.deadline WHERE id = s.id AND part = s.part;
    a.what := 'leased'; a.value := s.deadline;
    RETURN a;
  END IF;
  PERFORM unfile(s, 3);
  IF p_action = 0 THEN
    IF s.keyed THEN
      PERFORM free_key(s.qid, s.id);
    END IF;
    a.what := 'gone';
    RETURN a;
  END IF;
  s.priority := coalesce(p_priority, s.priority);
  s.last_error := coalesce(p_error, s.last_error);
  delay := CASE delay WHEN 0 THEN now ELSE (now_us + 999) / 1000 + delay END;
  IF p_action = 1 THEN
    most := coalesce(s.max_attempts, (settings->>'max_attempts')::bigint);
    s.attempts := s.attempts + 1;
    IF most > 0 AND s.attempts >= most THEN
      PERFORM file_dead(s, settings, 1, 0, now);
      a.what := 'dead'; a.value := 1;
      RETURN a;
    END IF;
    s.due := delay;
  ELSIF p_action = 2 THEN
    s.due := coalesce(delay, s.due);
    s.releases := coalesce(s.releases, 0) + 1;
  ELSIF p_action = 3 THEN
    s.attempts := s.attempts + 1;
    s.buries := coalesce(s.buries, 0) + 1;
    PERFORM file_dead(s, settings, 2, 3, now);
    a.what := 'dead'; a.value := 2;
    RETURN a;
  END IF;
  -- A message that is given back keeps its lateness. If it was taken untouched, it has been there since its put.
  s.since := CASE p_action WHEN 5 THEN coalesce(s.since,
    (SELECT b.created FROM body b WHERE b.number = number_of(s.id) AND b.slot = slot_in(s.id)::smallint)) ELSE now END;
  place := file_pending(s, settings, now);
  a.what := CASE WHEN place = 0 THEN 'gone' WHEN place = 4 THEN 'dead' WHEN s.due > now THEN 'scheduled' ELSE 'ready' END;
  a.value := CASE WHEN place = 4 THEN 3 WHEN place = 2 AND s.due > now THEN s.due END;
  RETURN a;
END
$$;

-- Acks leases of messages without keys, in the part that their tokens name;
-- returns which. Rows that are locked or do not match are skipped.
DO $make$
BEGIN
  FOR part IN 0 .. 2 LOOP
    EXECUTE format($f$
      CREATE OR REPLACE FUNCTION ack_%1$s(ids uuid[], tokens uuid[], places int[], p_qid bigint, now bigint) RETURNS int[]
      LANGUAGE plpgsql AS $$
      DECLARE
        acked int[];
      BEGIN
        WITH got AS MATERIALIZED (
          -- One lookup by id each: the planner has no statistics of these tables that would suggest it.
          SELECT x.tid, g.place FROM unnest(ids, tokens, places) AS g (id, token, place), LATERAL (
            SELECT s.ctid AS tid, s.token, s.deadline, s.keyed, s.qid FROM standing_%1$s s
            WHERE s.id = g.id LIMIT 1 FOR UPDATE SKIP LOCKED) x
          WHERE x.token = g.token AND x.deadline > now AND x.keyed IS NULL AND x.qid = p_qid
        ), gone AS (
          DELETE FROM standing_%1$s WHERE ctid = ANY (ARRAY(SELECT g.tid FROM got g))
        )
        SELECT array_agg(g.place) INTO acked FROM got g;
        RETURN acked;
      END
      $$ $f$, part);
  END LOOP;
END
$make$;

-- A batch of settlements. Acks of messages without keys are one statement; all others are processed one by one, in the
-- order given. Rows are locked first in the order of their ids, so that concurrent batches do not deadlock.
CREATE OR REPLACE FUNCTION settle_1(p_queue text[], p_id uuid[], p_token uuid[], p_action smallint[], p_value bigint[],
  p_error bytea[], p_priority bigint[], p_random bigint[], p_defaults jsonb)
RETURNS TABLE (item int, code text, info text, what text, value bigint)
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT SET enable_seqscan = off SET enable_hashjoin = off
SET enable_mergejoin = off SET enable_material = off SET plan_cache_mode = force_generic_plan SET lock_timeout = '1s' SET jit = off AS $$
#variable_conflict use_column
DECLARE
  now bigint;
  f record;
  a settle_answer;
  acked int[];
  of_part int[];
  each record;
  busy uuid[] := '{}';
  n int := coalesce(cardinality(p_id), 0);
  name text;
  since bigint;
BEGIN
  PERFORM limit_waits(p_defaults);
  LOCK TABLE ONLY standing IN ROW EXCLUSIVE MODE;
  now := clock_ms();
  IF p_action IS NULL THEN
    acked := '{}';
    FOR each IN
      SELECT g.queue, part_of(g.token) AS part, array_agg(g.id ORDER BY g.id) AS ids, array_agg(g.token ORDER BY g.id) AS tokens,
        array_agg(g.place ORDER BY g.id) AS places
      FROM (SELECT DISTINCT ON (u.id) u.queue, u.id, u.token, u.place::int AS place
        FROM unnest(p_queue, p_id, p_token) WITH ORDINALITY AS u (queue, id, token, place) ORDER BY u.id, u.place) g
      GROUP BY 1, 2
    LOOP
      CONTINUE WHEN each.part > 2;
      EXECUTE 'SELECT ack_' || each.part || '($1, $2, $3, $4, $5)' INTO of_part
        USING each.ids, each.tokens, each.places, home_of(each.queue, 0), now;
      IF of_part IS NOT NULL THEN
        PERFORM count_up(home_of(each.queue, 0), home_of(each.queue, 0), 0, -cardinality(of_part), 0);
        acked := acked || of_part;
      END IF;
    END LOOP;
    RETURN QUERY SELECT u.place, '', NULL::text, 'gone', NULL::bigint FROM unnest(acked) AS u (place);
    IF cardinality(acked) = n THEN
      RETURN;
    END IF;
  END IF;
  BEGIN
    PERFORM FROM standing x
      WHERE x.part < 3 AND x.id = ANY (ARRAY(SELECT u.id FROM unnest(p_id) WITH ORDINALITY AS u (id, place)
        WHERE acked IS NULL OR NOT u.place = ANY (acked)))
      ORDER BY x.id FOR UPDATE NOWAIT;
  EXCEPTION WHEN lock_not_available THEN
    -- At least one of them is locked by another transaction. The limit of a wait is that of all waits together.
    since := clock_ms();
    FOR each IN SELECT DISTINCT u.id FROM unnest(p_id) WITH ORDINALITY AS u (id, place)
      WHERE acked IS NULL OR NOT u.place = ANY (acked) ORDER BY u.id
    LOOP
      BEGIN
        PERFORM FROM standing x WHERE x.id = each.id AND x.part < 3 FOR UPDATE;
      EXCEPTION WHEN lock_not_available THEN
        PERFORM set_config('lock_timeout', '5ms', true);
        busy := busy || each.id;
      END;
      since := shorten_waits(since);
    END LOOP;
  END;
  FOR at IN 1 .. n LOOP
    CONTINUE WHEN at = ANY (acked);
    IF p_id[at] = ANY (busy) THEN
      a := ROW('busy', NULL, NULL, NULL);
    ELSE
      IF name IS DISTINCT FROM p_queue[at] THEN
        name := p_queue[at];
        f := facts_of(name, p_defaults);
      END IF;
      a := settle_one(f.qid, f.home, f.settings, p_id[at], p_token[at], coalesce(p_action[at], 0), p_value[at], p_error[at],
        p_priority[at], coalesce(p_random[at], 0));
    END IF;
    item := at; code := a.code; info := a.info; what := a.what; value := a.value;
    RETURN NEXT;
  END LOOP;
END
$$;

-- Ends leases as if their deadlines were now: each is named by its message and the number of its takes.
CREATE OR REPLACE FUNCTION expire_lease_1(p_queue text, p_id uuid[], p_takes int[], p_defaults jsonb)
RETURNS TABLE (item int, code text, info text, what text, value bigint)
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT SET plan_cache_mode = force_generic_plan
SET lock_timeout = '1s' SET jit = off SET enable_seqscan = off AS $$
#variable_conflict use_column
DECLARE
  f record := facts_of(p_queue, p_defaults);
  h record;
  s standing;
  at int;
  now bigint;
  place int;
  most bigint;
  since bigint;
BEGIN
  PERFORM limit_waits(p_defaults);
  LOCK TABLE ONLY standing IN ROW EXCLUSIVE MODE;
  since := clock_ms();
  -- In the order of ids, as settlements: batches that cross wait for each other, and never in a circle.
  FOR at IN SELECT u.place FROM unnest(p_id) WITH ORDINALITY AS u (id, place) ORDER BY u.id, u.place LOOP
    item := at; code := ''; info := NULL; what := NULL; value := NULL;
    BEGIN
      now := clock_ms();
      h := hold(f.qid, f.home, p_id[at], f.settings, now);
      s := h.s;
      IF h.place = 0 THEN
        code := 'message_not_found';
      ELSIF h.place <> 3 THEN
        code := 'not_leased'; info := p_id[at];
      ELSIF s.takes <> p_takes[at] THEN
        code := 'lease_changed'; info := s.takes;
      ELSE
        PERFORM unfile(s, 3);
        place := lapse(s, now, f.home, f.settings, now);
        most := coalesce(s.max_attempts, (f.settings->>'max_attempts')::bigint);
        IF place = 4 THEN
          what := 'dead'; value := CASE WHEN most > 0 AND s.attempts + 1 >= most THEN 1 ELSE 3 END;
        ELSE
          s := lapsed(s, now, f.settings);
          what := CASE WHEN place = 0 THEN 'gone' WHEN s.due > now THEN 'scheduled' ELSE 'ready' END;
          value := CASE what WHEN 'scheduled' THEN s.due END;
        END IF;
      END IF;
    EXCEPTION WHEN lock_not_available THEN
      PERFORM set_config('lock_timeout', '5ms', true);
      code := 'busy';
    END;
    since := shorten_waits(since);
    RETURN NEXT;
  END LOOP;
END
$$;
