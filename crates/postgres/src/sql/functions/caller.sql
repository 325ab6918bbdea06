-- Functions for SQL callers, in their own transactions. EXECUTE is the only right that they need.

-- Microseconds of an instant since the epoch, exact; a difference of instants has no months.
CREATE OR REPLACE FUNCTION us_of(i interval) RETURNS bigint
LANGUAGE sql IMMUTABLE STRICT AS $$
  SELECT extract(day FROM i)::bigint * 86400000000 + extract(hour FROM i)::bigint * 3600000000
    + extract(minute FROM i)::bigint * 60000000 + extract(microseconds FROM i)::bigint
$$;

-- Milliseconds of an instant, rounded up; refuses an infinite one.
CREATE OR REPLACE FUNCTION ms_of(at timestamptz) RETURNS bigint
LANGUAGE plpgsql STABLE STRICT AS $$
BEGIN
  IF NOT isfinite(at) THEN
    PERFORM refuse('malformed_instant');
  END IF;
  RETURN ceil(us_of((at AT TIME ZONE 'UTC') - timestamp '1970-01-01') / 1000.0);
END
$$;

-- Milliseconds of a delay from now on, rounded up; months are calendar months in UTC.
CREATE OR REPLACE FUNCTION delay_ms_of(delay interval) RETURNS bigint
LANGUAGE plpgsql VOLATILE STRICT AS $$
DECLARE
  base timestamp := timestamp '1970-01-01' + clock_us() * interval '1 microsecond';
  us bigint;
BEGIN
  IF NOT isfinite(delay) THEN
    PERFORM refuse('malformed_delay');
  END IF;
  BEGIN
    us := us_of((base + delay) - base);
  EXCEPTION WHEN datetime_field_overflow OR interval_field_overflow THEN
    PERFORM refuse('due_out_of_range');
  END;
  RETURN ceil(us / 1000.0);
END
$$;

-- The channel of hints, whose payload is a queue's name: `dwell.ready`. The name of a channel has up to 63 bytes, and so has
-- the schema's.
CREATE OR REPLACE FUNCTION hint_channel() RETURNS text
LANGUAGE sql STABLE AS $$
  SELECT CASE WHEN octet_length(current_schema()) <= 57 THEN current_schema() || '.ready' ELSE hashtextextended(current_schema(), 0) || '.ready' END
$$;

-- Hints for the processes that listen, all in one transaction. Returns the channel.
CREATE OR REPLACE FUNCTION hint_1(p_queues text[]) RETURNS text
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path FROM CURRENT SET jit = off AS $$
BEGIN
  PERFORM pg_notify(hint_channel(), q.name) FROM unnest(p_queues) AS q (name);
  RETURN hint_channel();
END
$$;

-- The common part of the functions below: converts the SQL types of a put for `put_one`.
CREATE OR REPLACE FUNCTION put_sql(queue text, body bytea, delay interval, due timestamptz, level int, key bytea,
  on_conflict text, priority bigint, headers jsonb, lease interval, max_attempts bigint, expires timestamptz,
  idempotency_key text, fails boolean) RETURNS put_answer
LANGUAGE plpgsql AS $$
DECLARE
  kind int := 0;
  value bigint;
  opts jsonb;
  a put_answer;
BEGIN
  PERFORM check_place();
  IF num_nonnulls(delay, due, level) > 1 THEN
    PERFORM refuse('malformed_delay');
  ELSIF delay IS NOT NULL THEN
    kind := 2; value := delay_ms_of(delay);
  ELSIF due IS NOT NULL THEN
    kind := 1; value := ms_of(due);
  ELSIF level IS NOT NULL THEN
    kind := 3; value := level;
  END IF;
  IF on_conflict IS NULL OR on_conflict NOT IN ('reject', 'replace', 'keep') THEN
    PERFORM refuse('invalid_argument', 'on_conflict is ''reject'', ''replace'' or ''keep''');
  END IF;
  opts := jsonb_build_object('priority', priority, 'lease', ceil(us_of(lease) / 1000.0)::bigint, 'attempts', max_attempts,
    'expires', ms_of(expires), 'headers', coalesce(headers, '{}'),
    'conflict', CASE on_conflict WHEN 'reject' THEN 0 WHEN 'replace' THEN 1 ELSE 2 END);
  IF key IS NULL AND idempotency_key IS NULL THEN
    a := put_one(queue, kind, value, body, opts, NULL, NULL, NULL, NULL);
  ELSE
    -- Other transactions may hold locks on the keys.
    BEGIN
      a := put_one(queue, kind, value, body, opts, key, convert_to(idempotency_key, 'UTF8'),
        CASE WHEN idempotency_key IS NOT NULL THEN idempotency_keys_left(queue, NULL) END, NULL);
    EXCEPTION WHEN lock_not_available THEN
      a.code := 'busy';
    END;
  END IF;
  IF a.code <> '' AND fails THEN
    PERFORM refuse(a.code, a.info);
  END IF;
  IF a.code = '' AND current_setting('dwell.hint', true) = 'on' AND a.due - clock_ms() < 250 THEN
    PERFORM pg_notify(hint_channel(), queue);
  END IF;
  RETURN a;
END
$$;

-- Puts a message and returns its id. `body` may be text or bytes; a key with U+0000 goes into `key_bytes`.
--
--   SELECT dwell.put('orders', 'close order 7', delay => '30 minutes', key => 'order-7');
CREATE OR REPLACE FUNCTION put(queue text, body bytea, delay interval DEFAULT NULL, due timestamptz DEFAULT NULL,
  level int DEFAULT NULL, key text DEFAULT NULL, on_conflict text DEFAULT 'reject', priority bigint DEFAULT NULL,
  headers jsonb DEFAULT NULL, lease interval DEFAULT NULL, max_attempts bigint DEFAULT NULL, expires timestamptz DEFAULT NULL,
  idempotency_key text DEFAULT NULL, key_bytes bytea DEFAULT NULL) RETURNS uuid
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT SET plan_cache_mode = force_generic_plan
SET jit = off SET enable_seqscan = off SET lock_timeout = '1s' AS $$
BEGIN
  PERFORM limit_waits(NULL);
  RETURN (put_sql(queue, body, delay, due, level, coalesce(key_bytes, convert_to(key, 'UTF8')), on_conflict, priority, headers,
    lease, max_attempts, expires, idempotency_key, true)).id;
END
$$;

CREATE OR REPLACE FUNCTION put(queue text, body text, delay interval DEFAULT NULL, due timestamptz DEFAULT NULL,
  level int DEFAULT NULL, key text DEFAULT NULL, on_conflict text DEFAULT 'reject', priority bigint DEFAULT NULL,
  headers jsonb DEFAULT NULL, lease interval DEFAULT NULL, max_attempts bigint DEFAULT NULL, expires timestamptz DEFAULT NULL,
  idempotency_key text DEFAULT NULL, key_bytes bytea DEFAULT NULL) RETURNS uuid
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT SET plan_cache_mode = force_generic_plan
SET jit = off SET enable_seqscan = off SET lock_timeout = '1s' AS $$
BEGIN
  PERFORM limit_waits(NULL);
  RETURN (put_sql(queue, convert_to(body, 'UTF8'), delay, due, level, coalesce(key_bytes, convert_to(key, 'UTF8')),
    on_conflict, priority, headers, lease, max_attempts, expires, idempotency_key, true)).id;
END
$$;

-- As `put`, but returns a refusal in the answer instead of aborting the transaction: then `code` is not empty.
CREATE OR REPLACE FUNCTION try_put(queue text, body bytea, delay interval DEFAULT NULL, due timestamptz DEFAULT NULL,
  level int DEFAULT NULL, key text DEFAULT NULL, on_conflict text DEFAULT 'reject', priority bigint DEFAULT NULL,
  headers jsonb DEFAULT NULL, lease interval DEFAULT NULL, max_attempts bigint DEFAULT NULL, expires timestamptz DEFAULT NULL,
  idempotency_key text DEFAULT NULL, key_bytes bytea DEFAULT NULL,
  OUT id uuid, OUT number bigint, OUT code text, OUT reason text) RETURNS record
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT SET plan_cache_mode = force_generic_plan
SET jit = off SET enable_seqscan = off SET lock_timeout = '1s' AS $$
DECLARE
  a put_answer;
  state text;
BEGIN
  PERFORM limit_waits(NULL);
  BEGIN
    a := put_sql(queue, body, delay, due, level, coalesce(key_bytes, convert_to(key, 'UTF8')), on_conflict, priority, headers,
      lease, max_attempts, expires, idempotency_key, true);
    id := a.id; number := a.number; code := '';
  EXCEPTION WHEN OTHERS THEN
    GET STACKED DIAGNOSTICS state = RETURNED_SQLSTATE, code = PG_EXCEPTION_DETAIL, reason = MESSAGE_TEXT;
    IF state NOT LIKE 'DW%' THEN
      RAISE;
    END IF;
  END;
END
$$;

-- Puts many messages into one queue, all or none; returns ids in the order
-- given. There is one delay or instant per message, one for all, or none.
CREATE OR REPLACE FUNCTION put_many(queue text, bodies bytea[], delays interval[] DEFAULT NULL, dues timestamptz[] DEFAULT NULL,
  keys text[] DEFAULT NULL, on_conflict text DEFAULT 'reject') RETURNS uuid[]
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT SET plan_cache_mode = force_generic_plan
SET jit = off SET enable_seqscan = off SET lock_timeout = '1s' AS $$
DECLARE
  n int := coalesce(cardinality(bodies), 0);
  most int := ((builtin_settings() || (SELECT s.own FROM setting s WHERE s.qid = 0))->>'limit_batch')::bigint;
  ids uuid[] := '{}';
  order_ int[];
  at int;
BEGIN
  PERFORM limit_waits(NULL);
  PERFORM check_place();
  IF n > most THEN
    PERFORM refuse('batch_too_large', most::text);
  ELSIF delays IS NOT NULL AND dues IS NOT NULL THEN
    PERFORM refuse('malformed_delay');
  ELSIF cardinality(delays) NOT IN (1, n) OR cardinality(dues) NOT IN (1, n) OR cardinality(keys) <> n THEN
    PERFORM refuse('invalid_argument', 'there are as many delays, instants and keys as bodies, or one delay or instant');
  END IF;
  IF keys IS NULL AND n > 0 THEN
    ids := ARRAY(SELECT p.id FROM put_plain(queue,
      array_fill(CASE WHEN delays IS NOT NULL THEN 2 WHEN dues IS NOT NULL THEN 1 ELSE 0 END::smallint, ARRAY[n]),
      ARRAY(SELECT CASE WHEN delays IS NOT NULL THEN delay_ms_of(delays[least(g.at, cardinality(delays))])
        WHEN dues IS NOT NULL THEN ms_of(dues[least(g.at, cardinality(dues))]) END FROM generate_series(1, n) AS g (at)
        ORDER BY g.at),
      bodies, NULL) p ORDER BY p.place);
    IF cardinality(ids) > 0 THEN
      RETURN ids;
    END IF;
  END IF;
  ids := array_fill(NULL::uuid, ARRAY[n]);
  -- In the order of keys, so that concurrent calls do not deadlock.
  order_ := ARRAY(SELECT g.at FROM generate_series(1, n) AS g (at) ORDER BY keys[g.at] COLLATE "C", g.at);
  FOREACH at IN ARRAY order_ LOOP
    ids[at] := (put_sql(queue, bodies[at], delays[least(at, cardinality(delays))], dues[least(at, cardinality(dues))], NULL,
      convert_to(keys[at], 'UTF8'), on_conflict, NULL, NULL, NULL, NULL, NULL, NULL, true)).id;
  END LOOP;
  RETURN ids;
END
$$;

-- Cancels a message by its key or its id, and returns the outcome: cancelled, leased, dead or not_found.
CREATE OR REPLACE FUNCTION cancel(queue text, key text DEFAULT NULL, id uuid DEFAULT NULL, key_bytes bytea DEFAULT NULL)
RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT SET plan_cache_mode = force_generic_plan
SET jit = off SET enable_seqscan = off SET lock_timeout = '1s' AS $$
DECLARE
  c record;
BEGIN
  PERFORM limit_waits(NULL);
  c := change_sql(queue, key, id, key_bytes, NULL, NULL);
  RETURN c.what;
END
$$;

-- Moves the due instant of a message, which keeps its id; returns the outcome: moved, leased, dead or not_found.
CREATE OR REPLACE FUNCTION reschedule(queue text, key text DEFAULT NULL, id uuid DEFAULT NULL, delay interval DEFAULT NULL,
  due timestamptz DEFAULT NULL, level int DEFAULT NULL, key_bytes bytea DEFAULT NULL) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT SET plan_cache_mode = force_generic_plan
SET jit = off SET enable_seqscan = off SET lock_timeout = '1s' AS $$
DECLARE
  c record;
BEGIN
  PERFORM limit_waits(NULL);
  IF num_nonnulls(delay, due, level) > 1 THEN
    PERFORM refuse('malformed_delay');
  END IF;
  c := change_sql(queue, key, id, key_bytes, CASE WHEN delay IS NOT NULL THEN 2 WHEN due IS NOT NULL THEN 1
    WHEN level IS NOT NULL THEN 3 ELSE 0 END, coalesce(delay_ms_of(delay), ms_of(due), level));
  RETURN c.what;
END
$$;

CREATE OR REPLACE FUNCTION change_sql(p_queue text, p_key text, p_id uuid, p_key_bytes bytea, p_kind int, p_value bigint)
RETURNS record
LANGUAGE plpgsql AS $$
DECLARE
  f record;
  c record;
  key bytea := coalesce(p_key_bytes, convert_to(p_key, 'UTF8'));
BEGIN
  IF num_nonnulls(key, p_id) <> 1 THEN
    PERFORM refuse('invalid_argument', 'a message is named by its key or by its id');
  ELSIF NOT is_queue_name(p_queue) THEN
    PERFORM refuse('invalid_queue_name');
  END IF;
  f := facts_of(p_queue, NULL);
  BEGIN
    c := change_one(f.qid, f.home, f.settings, p_id, key, p_kind, p_value);
  EXCEPTION WHEN lock_not_available THEN
    PERFORM refuse('busy');
  END;
  IF c.code <> '' THEN
    PERFORM refuse(c.code, c.info);
  END IF;
  RETURN c;
END
$$;

-- Acks a message within the caller's transaction. Refuses a receipt that proves no lease.
CREATE OR REPLACE FUNCTION ack(receipt text) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT SET plan_cache_mode = force_generic_plan
SET jit = off SET enable_seqscan = off SET lock_timeout = '1s' AS $$
DECLARE
  bytes bytea;
  f record;
  a settle_answer;
  name text;
BEGIN
  PERFORM limit_waits(NULL);
  IF length(receipt) BETWEEN 51 AND 400 AND receipt COLLATE "C" ~ '^[A-Za-z0-9_-]+$' THEN
    BEGIN
      bytes := decode(rpad(translate(receipt, '-_', '+/'), (length(receipt) + 3) / 4 * 4, '='), 'base64');
      name := convert_from(substr(bytes, 34, octet_length(bytes) - 37), 'UTF8');
    EXCEPTION WHEN OTHERS THEN
      bytes := NULL;
    END;
  END IF;
  IF bytes IS NULL OR get_byte(bytes, 0) <> 1 OR NOT is_queue_name(name) THEN
    PERFORM refuse('malformed_receipt');
  END IF;
  LOCK TABLE ONLY standing IN ROW EXCLUSIVE MODE;
  f := facts_of(name, NULL);
  BEGIN
    a := settle_one(f.qid, f.home, f.settings, encode(substr(bytes, 2, 16), 'hex')::uuid,
      encode(substr(bytes, 18, 16), 'hex')::uuid, 0, NULL, NULL, NULL, 0);
  EXCEPTION WHEN lock_not_available THEN
    PERFORM refuse('busy');
  END;
  IF a.code <> '' THEN
    PERFORM refuse(a.code, a.info);
  END IF;
END
$$;
