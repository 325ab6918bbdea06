-- Queues: their names, homes and settings.

CREATE OR REPLACE FUNCTION is_queue_name(name text) RETURNS boolean
LANGUAGE sql IMMUTABLE AS $$
  SELECT name IS NOT NULL AND name NOT IN ('.', '..')
    AND name COLLATE "C" ~ '^[A-Za-z0-9+/;.$_():@][A-Za-z0-9+/;.$_():@-]{0,199}$'
$$;

CREATE OR REPLACE FUNCTION builtin_settings() RETURNS jsonb
LANGUAGE sql IMMUTABLE AS $$
  SELECT '{"lease": 30000, "max_attempts": 16, "max_pending": null, "pause": 0, "levels": [], "spread": 1, "token_ttl": 600000,
    "backoff": {"base": 1000, "factor": 200, "cap": 3600000, "jitter": 20}, "dead_ttl": null, "dead_max": null,
    "on_expiry": "dead", "max_leased": null, "lapse_backoff": "never",
    "limit_body": 1048576, "limit_batch": 16384, "limit_queues": 1000000, "limit_tokens": 8000000, "limit_leased": 250000,
    "limit_leased_queue": 100000}'::jsonb
$$;

-- What a call has to know of a queue. `pause`: 0 runs, -1 is paused, else until then.
CREATE OR REPLACE FUNCTION facts_of(name text, defaults jsonb,
  OUT qid bigint, OUT home bigint, OUT settings jsonb, OUT own jsonb) RETURNS record
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  epoch bigint;
BEGIN
  qid := home_of(name, 0);
  SELECT p.next INTO home FROM purge p WHERE p.qid = facts_of.qid ORDER BY p.generation DESC LIMIT 1;
  home := coalesce(home, qid);
  SELECT s.own INTO own FROM setting s WHERE s.qid = facts_of.qid;
  settings := builtin_settings() || coalesce(defaults, (SELECT s.own FROM setting s WHERE s.qid = 0), '{}')
    || coalesce(own, '{}');
  -- A transaction that sees an old state would put into a home that is purged. A sequence can be read as it is now.
  IF current_setting('transaction_isolation') <> 'read committed' THEN
    SELECT last_value INTO epoch FROM purges WHERE is_called;
    IF epoch > coalesce((SELECT max(p.epoch) FROM purge p), 0) THEN
      RAISE EXCEPTION USING ERRCODE = 'serialization_failure',
        MESSAGE = 'could not serialize access: a queue was purged since this transaction began',
        HINT = 'The transaction might succeed if retried.';
    END IF;
  END IF;
END
$$;

-- How many queues have messages or settings of their own. Names stay when their queues have neither; so this is asked only
-- where there are as many names as there may be queues.
CREATE OR REPLACE FUNCTION known_queues() RETURNS bigint
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  now bigint := clock_ms();
BEGIN
  RETURN (SELECT count(*) FROM (
    SELECT t.qid FROM tally t
      WHERE t.leased <> 0 OR t.dead <> 0 OR t.home = coalesce(
        (SELECT p.next FROM purge p WHERE p.qid = t.qid ORDER BY p.generation DESC LIMIT 1), t.qid)
      GROUP BY t.qid HAVING sum(t.pending) FILTER (WHERE t.home = coalesce(
          (SELECT p.next FROM purge p WHERE p.qid = t.qid ORDER BY p.generation DESC LIMIT 1), t.qid)) > 0
        OR sum(t.leased) > 0 OR sum(t.dead) > 0
    UNION
    SELECT s.qid FROM setting s WHERE s.qid <> 0 AND s.own <> '{}'
      AND NOT (s.own - 'pause' = '{}' AND (s.own->>'pause')::bigint BETWEEN 1 AND now)) x);
END
$$;

-- Makes a queue's name known, unless there are as many queues as there may be.
CREATE OR REPLACE FUNCTION enter_queue(name text, qid bigint, most bigint) RETURNS text
LANGUAGE plpgsql AS $$
DECLARE
  other text;
BEGIN
  SELECT q.name INTO other FROM queue q WHERE q.qid = enter_queue.qid LIMIT 1;
  IF other <> name COLLATE "C" THEN
    RETURN 'foreign_data';
  END IF;
  -- A page has room for 226 names at most: mostly there cannot be too many. A name stays when its queue has nothing any more,
  -- and then counts no more than one that is new.
  IF pg_relation_size('queue') / current_setting('block_size')::int * 226 >= most
    AND (other IS NULL OR NOT is_known(name, qid, (SELECT s.own FROM setting s WHERE s.qid = enter_queue.qid), clock_ms()))
    AND (SELECT count(*) FROM (SELECT FROM queue LIMIT most) q) >= most AND known_queues() >= most THEN
    RETURN 'too_many_queues';
  END IF;
  IF other IS NULL THEN
    INSERT INTO queue VALUES (qid, name);
  END IF;
  RETURN '';
END
$$;

-- The instant that a put or reschedule asks for: `kind` 0 now, 1 at, 2 after so many milliseconds, 3 a level. Null, and a code,
-- where there is none.
CREATE OR REPLACE FUNCTION instant_of(kind int, value bigint, settings jsonb, now_us bigint,
  OUT due bigint, OUT code text, OUT info text) RETURNS record
LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
  delay bigint;
BEGIN
  code := '';
  IF kind = 0 THEN
    due := now_us / 1000;
    RETURN;
  ELSIF kind = 1 THEN
    due := value;
  ELSE
    delay := value;
    IF kind = 3 THEN
      info := jsonb_array_length(settings->'levels');
      IF value < 1 OR value > info::int THEN
        code := 'unknown_level';
        RETURN;
      END IF;
      delay := (settings->'levels'->>(value - 1)::int)::bigint;
    END IF;
    IF delay < 0 THEN
      code := 'negative_delay';
    ELSIF delay > 253402300799999 THEN
      code := 'due_out_of_range';
    ELSE
      due := CASE delay WHEN 0 THEN now_us / 1000 ELSE (now_us + 999) / 1000 + delay END;
    END IF;
  END IF;
  IF code = '' AND (due IS NULL OR due < 0 OR due > 253402300799999) THEN
    code := 'due_out_of_range';
    due := NULL;
  END IF;
END
$$;

CREATE OR REPLACE FUNCTION count_of(qid bigint, OUT pending bigint, OUT leased bigint, OUT dead bigint) RETURNS record
LANGUAGE sql STABLE AS $$
  SELECT coalesce(sum(t.pending) FILTER (
      WHERE t.home = coalesce((SELECT p.next FROM purge p WHERE p.qid = count_of.qid
      ORDER BY p.generation DESC LIMIT 1), count_of.qid)), 0)::bigint,
    coalesce(sum(t.leased), 0)::bigint, coalesce(sum(t.dead), 0)::bigint
  FROM tally t WHERE t.qid = count_of.qid
$$;

-- How many idempotency keys a queue remembers.
CREATE OR REPLACE FUNCTION tokens_of(qid bigint) RETURNS bigint
LANGUAGE sql STABLE AS $$ SELECT coalesce(sum(t.tokens), 0)::bigint FROM tally t WHERE t.qid = tokens_of.qid $$;

-- What a call has brought about by the way, for the process that made it: deaths and discards, by queue. It is kept in a setting
-- of the transaction, so a part that is rolled back takes it along. Places: died of 0 spent attempts, 1 a lapse, 2 an
-- expiry, 3 a bury; discarded 4 past `dead_ttl`, 5 past `dead_max`, 6 as it expired, 7 since somebody asked.
CREATE OR REPLACE FUNCTION note(qid bigint, place int, n bigint) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
  noted jsonb := coalesce(nullif(current_setting('dwell.noted', true), ''), '{}')::jsonb;
  counts jsonb := coalesce(noted->(qid::text), '[0,0,0,0,0,0,0,0]');
BEGIN
  IF n > 0 THEN
    counts := jsonb_set(counts, ARRAY[place::text], to_jsonb((counts->>place)::bigint + n));
    PERFORM set_config('dwell.noted', (noted || jsonb_build_object(qid::text, counts))::text, true);
  END IF;
END
$$;

-- What was noted since the transaction began, by the names of queues.
CREATE OR REPLACE FUNCTION noted_1() RETURNS text
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path FROM CURRENT SET jit = off AS $$
DECLARE
  noted text := nullif(current_setting('dwell.noted', true), '');
BEGIN
  IF noted IS NULL THEN
    RETURN NULL;
  END IF;
  RETURN (SELECT jsonb_object_agg(coalesce((SELECT q.name FROM queue q WHERE q.qid = n.key::bigint LIMIT 1), ''), n.value)
    FROM jsonb_each(noted::jsonb) n)::text;
END
$$;

CREATE OR REPLACE FUNCTION count_up(qid bigint, home bigint, pending bigint, leased bigint, dead bigint) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
  IF pending <> 0 OR leased <> 0 OR dead <> 0 THEN
    INSERT INTO tally VALUES (qid, home, pending, leased, dead);
  END IF;
END
$$;
