-- Queues: their names, homes and settings.

CREATE OR REPLACE FUNCTION is_queue_name(name text) RETURNS boolean
LANGUAGE sql IMMUTABLE AS $$
  SELECT name IS NOT NULL AND name NOT IN ('.', '..')
    AND name COLLATE "C" ~ '^[A-Za-z0-9+/;.$_():@][A-Za-z0-9+/;.$_():@-]{0,199}$'
$$;

CREATE OR REPLACE FUNCTION builtin_settings() RETURNS jsonb
LANGUAGE sql IMMUTABLE AS $$
  SELECT '{"lease": 30000, "max_attempts": 16, "max_pending": null, "pause": 0, "levels": [], "partitions": 1, "idempotency_ttl": 600000,
    "backoff": {"base": 1000, "factor": 200, "cap": 3600000, "jitter": 20}, "dead_ttl": null, "dead_max": null,
    "on_expiry": "dead", "max_leased": null, "lapse_backoff": "never",
    "limit_body": 1048576, "limit_batch": 16384, "limit_queues": 1000000, "limit_idempotency_keys": 8000000, "limit_leased": 250000,
    "limit_leased_queue": 100000}'::jsonb
$$;

-- Limits how long this call waits for what other transactions hold, if that is set; the caller's own setting is restored
-- when the function ends that names `lock_timeout`.
CREATE OR REPLACE FUNCTION limit_waits(p_defaults jsonb) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
  ms text := coalesce(p_defaults, (SELECT s.own FROM setting s WHERE s.qid = 0))->>'lock_ms';
BEGIN
  IF ms IS NOT NULL THEN
    PERFORM set_config('lock_timeout', ms, true);
  END IF;
END
$$;

-- Takes what was waited since `p_since` from the limit of the waits to come, so that the limit bounds their sum. Returns the
-- present instant: where the next wait may begin. A step without a wait is shorter than 50 ms.
CREATE OR REPLACE FUNCTION shorten_waits(p_since bigint) RETURNS bigint
LANGUAGE plpgsql AS $$
DECLARE
  now bigint := clock_ms();
BEGIN
  IF now - p_since >= 50 THEN
    PERFORM set_config('lock_timeout', greatest(s.setting::bigint - (now - p_since), 5)::text, true)
      FROM pg_settings s WHERE s.name = 'lock_timeout';
  END IF;
  RETURN now;
END
$$;

-- With an old snapshot a transaction would put into a purged home. The value of a sequence is not subject to the snapshot.
CREATE OR REPLACE FUNCTION check_purges() RETURNS void
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  epoch bigint;
BEGIN
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

-- What a call needs to know of a queue. `pause`: 0 running, -1 paused, otherwise the instant at which the pause ends.
CREATE OR REPLACE FUNCTION facts_of(name text, defaults jsonb,
  OUT qid bigint, OUT home bigint, OUT settings jsonb, OUT own jsonb) RETURNS record
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
  qid := home_of(name, 0);
  SELECT p.next INTO home FROM purge p WHERE p.qid = facts_of.qid ORDER BY p.generation DESC LIMIT 1;
  home := coalesce(home, qid);
  SELECT s.own INTO own FROM setting s WHERE s.qid = facts_of.qid;
  settings := builtin_settings() || coalesce(defaults, (SELECT s.own FROM setting s WHERE s.qid = 0), '{}')
    || coalesce(own, '{}');
  PERFORM check_purges();
END
$$;

-- The home of a queue, for a message that is about to be filed there. The transaction has an id before it reads: a purge
-- that it does not see then ends no home that it files into (`clean_purges`).
CREATE OR REPLACE FUNCTION home_now(p_qid bigint) RETURNS bigint
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
  PERFORM pg_current_xact_id();
  PERFORM check_purges();
  RETURN coalesce((SELECT p.next FROM purge p WHERE p.qid = p_qid ORDER BY p.generation DESC LIMIT 1), p_qid);
END
$$;

-- The number of queues that have messages or settings of their own. Names remain when a queue has neither, so this is
-- called only when there are as many names as the limit of queues.
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

-- Inserts the name of a queue, unless the limit of queues is reached. The transaction must have an id before (`forget_names`).
CREATE OR REPLACE FUNCTION enter_queue(name text, qid bigint, most bigint) RETURNS text
LANGUAGE plpgsql AS $$
DECLARE
  other text;
  is_there boolean;
BEGIN
  SELECT q.name, NOT q.gone INTO other, is_there FROM queue q WHERE q.qid = enter_queue.qid ORDER BY q.gone LIMIT 1;
  IF is_there AND current_setting('transaction_isolation') <> 'read committed' THEN
    -- By an old snapshot the row may have been removed since.
    is_there := (SELECT f.times FROM forgotten f) = (SELECT s.last_value FROM forgets s);
  END IF;
  IF other <> name COLLATE "C" THEN
    RETURN 'foreign_data';
  END IF;
  -- A page holds at most 226 names: usually this alone shows that there are not too many. A name remains when its queue
  -- is empty, and is then treated like a new one.
  IF pg_relation_size('queue') / current_setting('block_size')::int * 226 >= most
    AND (other IS NULL OR NOT is_known(name, qid, (SELECT s.own FROM setting s WHERE s.qid = enter_queue.qid), clock_ms()))
    AND (SELECT count(*) FROM (SELECT FROM queue LIMIT most) q) >= most AND known_queues() >= most THEN
    RETURN 'too_many_queues';
  END IF;
  IF is_there IS NOT TRUE THEN
    INSERT INTO queue VALUES (qid, name);
  END IF;
  RETURN '';
END
$$;

-- The instant of a put or reschedule: `kind` 0 now, 1 at, 2 after `value`
-- milliseconds, 3 a level. If there is none, null with a code.
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

-- The number of idempotency keys stored for a queue.
CREATE OR REPLACE FUNCTION idempotency_keys_of(qid bigint) RETURNS bigint
LANGUAGE sql STABLE AS $$ SELECT coalesce(sum(t.idempotency_keys), 0)::bigint FROM tally t WHERE t.qid = idempotency_keys_of.qid $$;

-- Deaths and discards caused by a call, by queue, for the process that made the call. They are kept in a setting of the
-- transaction, so rolling back a part drops its notes. Places: died of 0 spent attempts, 1 a lapse, 2 an expiry, 3 a
-- bury; discarded 4 past `dead_ttl`, 5 past `dead_max`, 6 on expiry, 7 by a caller.
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

-- The notes since the transaction began, by the names of queues.
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
