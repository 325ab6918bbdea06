-- Putting messages.

DO $$
BEGIN
  IF to_regtype('put_answer') IS NULL THEN
    -- `code` is empty if the put was accepted. `outcome`: 0 created, 1 replaced, 2 kept.
    CREATE TYPE put_answer AS (code text, info text, id uuid, number bigint, due bigint, outcome smallint, replaced uuid,
      made_idempotency_key boolean);
  END IF;
END
$$;

-- The lock that puts hold until their transaction ends. `writers_1` finds the transactions that may still add messages by
-- this lock, so it is taken before the clock is read.
CREATE OR REPLACE FUNCTION begin_put() RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
  LOCK TABLE ONLY pend IN ROW EXCLUSIVE MODE;
END
$$;

-- Stores a message that was validated.
CREATE OR REPLACE FUNCTION file_new(p_qid bigint, p_home bigint, settings jsonb, p_due bigint, now bigint, p_body bytea, p_key bytea,
  p_priority bigint, p_lease bigint, p_attempts bigint, p_expires bigint, p_headers jsonb,
  OUT id uuid, OUT number bigint) RETURNS record
LANGUAGE plpgsql AS $$
DECLARE
  in_slot int := slot_of(p_due, now);
  s standing;
BEGIN
  IF p_due < (SELECT quiet_until FROM slot t WHERE t.slot = in_slot) THEN
    in_slot := 0;
  END IF;
  number := nextval('numbers');
  id := id_of(p_due, in_slot, number);
  INSERT INTO body VALUES (number, p_due, now, p_qid, p_priority, p_lease, p_attempts, p_expires, in_slot, p_key,
    nullif(p_headers, '{}'), p_body);
  IF p_due < now THEN
    -- Takes begin where the last one ended, which may be after this instant.
    s.qid := p_qid; s.due := p_due; s.priority := p_priority; s.expires := p_expires; s.max_attempts := p_attempts;
    s.lease_own := p_lease; s.id := id; s.keyed := CASE WHEN p_key IS NOT NULL THEN true END; s.attempts := 0; s.takes := 0;
    s.since := now;
    PERFORM file_pending(s, settings, now);
  ELSE
    INSERT INTO pend VALUES (p_home, pg_current_xact_id(), p_expires, id, in_slot,
      CASE p_priority WHEN 1024 THEN 0 ELSE 1 END, CASE WHEN p_key IS NOT NULL THEN true END);
    PERFORM count_up(p_qid, p_home, 1, 0, 0);
  END IF;
END
$$;

CREATE OR REPLACE FUNCTION are_headers(headers jsonb) RETURNS text
LANGUAGE sql IMMUTABLE AS $$
  SELECT CASE
    WHEN jsonb_typeof(headers) <> 'object' THEN 'invalid_header'
    WHEN EXISTS (SELECT FROM jsonb_each(headers) h
      WHERE h.key COLLATE "C" !~ '^[A-Za-z0-9!#$%&''*+.^_`|~-]{1,200}$' OR jsonb_typeof(h.value) <> 'string'
        OR h.value #>> '{}' ~ '[\x01-\x1f\x7f]') THEN 'invalid_header'
    WHEN (SELECT sum(octet_length(h.key) + octet_length(h.value)) FROM jsonb_each_text(headers) h) > 16384
      THEN 'headers_too_large'
    ELSE ''
  END
$$;

-- Whether these bytes are UTF-8. `text` cannot hold U+0000, which is legal in a key.
CREATE OR REPLACE FUNCTION is_utf8(bytes bytea) RETURNS boolean
LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
  IF position('\x00'::bytea IN bytes) > 0 THEN
    SELECT decode(string_agg(lpad(to_hex(CASE get_byte(bytes, i) WHEN 0 THEN 32 ELSE get_byte(bytes, i) END), 2, '0'), ''
      ORDER BY i), 'hex') INTO bytes FROM generate_series(0, octet_length(bytes) - 1) AS g (i);
  END IF;
  PERFORM convert_from(bytes, 'UTF8');
  RETURN true;
EXCEPTION WHEN character_not_in_repertoire OR untranslatable_character THEN
  RETURN false;
END
$$;

-- One put. A refusal changes nothing, but keeps its locks. `p_remembered`: the number of idempotency
-- keys stored for the queue, if this put has one. `opts` may have priority, lease, attempts (0 for
-- no limit), expires, conflict (0 reject, 1 replace, 2 keep) and headers.
CREATE OR REPLACE FUNCTION put_one(p_queue text, p_kind int, p_value bigint, p_body bytea, p_opts jsonb, p_key bytea,
  p_idempotency_key bytea, p_remembered bigint, p_defaults jsonb) RETURNS put_answer
LANGUAGE plpgsql AS $$
DECLARE
  now_us bigint;
  now bigint;
  f record;
  a put_answer;
  t idempotency;
  i record;
  owner uuid;
  h record;
  place int := 0;
  own standing;
  lease bigint := (p_opts->>'lease')::bigint;
  attempts bigint := (p_opts->>'attempts')::bigint;
  expires bigint := (p_opts->>'expires')::bigint;
  priority bigint := coalesce((p_opts->>'priority')::bigint, 1024);
  conflict int := coalesce((p_opts->>'conflict')::int, 0);
  headers jsonb := coalesce(p_opts->'headers', '{}');
  most bigint;
  made_idempotency_key boolean := false;
  made_key boolean := false;
BEGIN
  PERFORM begin_put();
  PERFORM pg_current_xact_id();
  a.code := '';
  IF NOT is_queue_name(p_queue) THEN
    a.code := 'invalid_queue_name';
    RETURN a;
  ELSIF p_idempotency_key IS NOT NULL AND (octet_length(p_idempotency_key) NOT BETWEEN 1 AND 256
    OR encode(p_idempotency_key, 'hex') !~ '^(2[1-9a-f]|[3-6][0-9a-f]|7[0-9a-e])*$') THEN
    a.code := 'invalid_idempotency_key';
    RETURN a;
  END IF;
  f := facts_of(p_queue, p_defaults);
  IF p_idempotency_key IS NOT NULL THEN
    INSERT INTO idempotency VALUES (f.qid, p_idempotency_key, 0) ON CONFLICT DO NOTHING;
    made_idempotency_key := FOUND;
    SELECT * INTO t FROM idempotency WHERE qid = f.qid AND idempotency.idempotency_key = p_idempotency_key FOR UPDATE;
    IF NOT FOUND THEN
      -- The row had expired, and was removed while this transaction waited for it.
      INSERT INTO idempotency VALUES (f.qid, p_idempotency_key, 0) ON CONFLICT DO NOTHING;
      made_idempotency_key := true;
    END IF;
  END IF;
  now_us := clock_us();
  now := now_us / 1000;
  IF t.until > now THEN
    IF t.digest IS DISTINCT FROM digest_of(p_key, p_body) THEN
      a.code := 'idempotency_mismatch'; a.info := t.id;
      RETURN a;
    END IF;
    a.id := t.id; a.number := number_of(t.id); a.due := t.due; a.outcome := t.outcome; a.replaced := t.replaced;
    RETURN a;
  END IF;

  i := instant_of(p_kind, p_value, f.settings, now_us);
  a.code := CASE
    WHEN p_body IS NULL THEN 'invalid_argument'
    WHEN octet_length(p_body) > (f.settings->>'limit_body')::bigint THEN 'body_too_large'
    WHEN p_key IS NOT NULL AND octet_length(p_key) NOT BETWEEN 1 AND 512 THEN 'invalid_key'
    WHEN lease NOT BETWEEN 1 AND 4294967295000 THEN 'invalid_setting'
    WHEN attempts NOT BETWEEN 0 AND 4294967295 THEN 'invalid_setting'
    WHEN priority NOT BETWEEN 0 AND 4294967295 THEN 'invalid_argument'
    WHEN headers <> '{}' AND are_headers(headers) <> '' THEN are_headers(headers)
    WHEN i.code <> '' THEN i.code
    WHEN expires NOT BETWEEN 0 AND 253402300799999 THEN 'due_out_of_range'
    WHEN expires <= greatest(i.due, now) THEN 'expires_before_due'
    ELSE ''
  END;
  a.info := CASE a.code
    WHEN 'body_too_large' THEN f.settings->>'limit_body'
    WHEN 'invalid_argument' THEN CASE WHEN p_body IS NULL THEN 'the body is NULL' ELSE 'a priority is 0 to 2^32 - 1' END
    WHEN 'invalid_setting' THEN CASE WHEN lease NOT BETWEEN 1 AND 4294967295000 THEN 'lease: a lease lasts 1 ms to 2^32 - 1 s'
      ELSE 'max_attempts: a message has 1 attempt at least' END
    WHEN 'expires_before_due' THEN greatest(i.due, now)::text
    ELSE i.info
  END;
  IF p_key IS NOT NULL AND a.code = '' AND NOT is_utf8(p_key) THEN
    a.code := 'invalid_key';
  END IF;

  IF a.code = '' AND p_key IS NOT NULL THEN
    LOOP
      INSERT INTO key VALUES (f.qid, p_key, NULL) ON CONFLICT DO NOTHING;
      made_key := FOUND;
      SELECT k.id INTO owner FROM key k WHERE k.qid = f.qid AND k.key = p_key FOR UPDATE;
      EXIT WHEN FOUND;
    END LOOP;
    IF owner IS NOT NULL THEN
      h := hold(f.qid, f.home, owner, f.settings, now);
      place := CASE WHEN h.place IN (1, 2, 3) AND (h.s).keyed THEN h.place ELSE 0 END;
      own := h.s;
    END IF;
    IF place > 0 AND conflict = 0 THEN
      a.code := 'key_taken';
      a.info := owner;
    ELSIF place > 0 AND conflict = 2 THEN
      IF place = 3 THEN
        a.code := 'leased';
        a.info := owner;
      ELSE
        IF i.due < own.due THEN
          PERFORM unfile(own, place);
          -- It becomes ready now, if it was not ready before.
          own.since := CASE WHEN own.due > now AND i.due <= now THEN now ELSE own.since END;
          own.due := i.due;
          PERFORM file_pending(own, f.settings, now);
        END IF;
        a.id := owner; a.number := number_of(owner); a.due := own.due; a.outcome := 2;
      END IF;
    END IF;
  END IF;

  -- A key whose answer has expired is counted already.
  IF a.code = '' AND p_idempotency_key IS NOT NULL AND t.id IS NULL AND (f.settings->>'idempotency_ttl')::bigint > 0
    AND p_remembered >= (f.settings->>'limit_idempotency_keys')::bigint THEN
    a.code := 'overloaded'; a.info := f.settings->>'limit_idempotency_keys';
  END IF;

  IF a.code = '' AND a.id IS NULL THEN
    most := (f.settings->>'max_pending')::bigint;
    IF most IS NOT NULL AND place NOT IN (1, 2) AND (count_of(f.qid)).pending >= most THEN
      a.code := 'queue_full';
      a.info := most;
    ELSE
      a.code := enter_queue(p_queue, f.qid, (f.settings->>'limit_queues')::bigint);
      a.info := CASE a.code WHEN 'too_many_queues' THEN f.settings->>'limit_queues'
        WHEN 'foreign_data' THEN 'another queue has the number of this name; choose another name' END;
    END IF;
    IF a.code = '' THEN
      IF place IN (1, 2) THEN
        PERFORM unfile(own, place);
      ELSIF place = 3 THEN
        UPDATE standing SET keyed = NULL WHERE id = own.id AND part = own.part;
      END IF;
      SELECT n.id, n.number INTO a.id, a.number FROM file_new(f.qid, f.home, f.settings, i.due, now, p_body, p_key, priority, lease,
        attempts, expires, headers) n;
      a.due := i.due;
      a.outcome := CASE WHEN place > 0 THEN 1 ELSE 0 END;
      a.replaced := CASE WHEN place > 0 THEN owner END;
      IF p_key IS NOT NULL THEN
        UPDATE key SET id = a.id WHERE qid = f.qid AND key.key = p_key;
        IF NOT FOUND THEN
          -- The owner has just expired, and has freed the key.
          INSERT INTO key VALUES (f.qid, p_key, a.id);
        END IF;
      END IF;
    END IF;
  END IF;

  IF a.code <> '' THEN
    IF made_key THEN
      DELETE FROM key WHERE qid = f.qid AND key.key = p_key;
    END IF;
    IF made_idempotency_key THEN
      DELETE FROM idempotency WHERE qid = f.qid AND idempotency.idempotency_key = p_idempotency_key;
    END IF;
  ELSIF p_idempotency_key IS NOT NULL THEN
    IF (f.settings->>'idempotency_ttl')::bigint = 0 THEN
      PERFORM forget_idempotency_keys(ARRAY(SELECT x.ctid FROM idempotency x WHERE x.qid = f.qid AND x.idempotency_key = p_idempotency_key));
    ELSE
      UPDATE idempotency SET until = now + (f.settings->>'idempotency_ttl')::bigint, id = a.id, due = a.due, outcome = a.outcome,
        replaced = a.replaced, digest = digest_of(p_key, p_body)
      WHERE qid = f.qid AND idempotency.idempotency_key = p_idempotency_key;
      IF t.id IS NULL THEN
        INSERT INTO tally VALUES (f.qid, f.qid, 0, 0, 0, 1);
        a.made_idempotency_key := true;
      END IF;
    END IF;
  END IF;
  RETURN a;
END
$$;

-- Puts with only a queue, an instant and a body, all of one queue, in
-- one statement. Returns no rows if one of them needs a check.
CREATE OR REPLACE FUNCTION put_plain(p_queue text, p_kind smallint[], p_value bigint[], p_body bytea[], p_defaults jsonb)
RETURNS TABLE (place bigint, id uuid, number bigint, due bigint)
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
  now_us bigint;
  now bigint;
  later bigint;
  f record;
  quiet bigint[];
  longest bigint;
  xid xid8;
BEGIN
  PERFORM begin_put();
  xid := pg_current_xact_id();
  IF NOT is_queue_name(p_queue) THEN
    RETURN;
  END IF;
  f := facts_of(p_queue, p_defaults);
  longest := (f.settings->>'limit_body')::bigint;
  IF f.settings->>'max_pending' IS NOT NULL
    OR enter_queue(p_queue, f.qid, (f.settings->>'limit_queues')::bigint) <> '' THEN
    RETURN;
  END IF;
  SELECT array_agg(s.quiet_until ORDER BY s.slot) INTO quiet FROM slot s;
  now_us := clock_us();
  now := now_us / 1000;
  later := (now_us + 999) / 1000;
  IF EXISTS (SELECT FROM unnest(p_kind, p_value, p_body) AS u (kind, value, body)
    WHERE body IS NULL OR octet_length(body) > longest OR kind IS NULL OR kind NOT IN (0, 1, 2)
      OR (kind = 1 AND (value IS NULL OR value < now OR value > 253402300799999))
      OR (kind = 2 AND (value IS NULL OR value < 0 OR value > 253402300799999 - later))) THEN
    RETURN;
  END IF;
  RETURN QUERY WITH given AS (
    SELECT u.place, u.body, CASE WHEN u.kind = 0 OR (u.kind = 2 AND u.value = 0) THEN now
      WHEN u.kind = 1 THEN u.value ELSE later + u.value END AS due
    FROM unnest(p_kind, p_value, p_body) WITH ORDINALITY AS u (kind, value, body, place)
  ), slotted AS MATERIALIZED (
    -- Numbers rise in the order given.
    SELECT g.place, g.body, g.due, nextval('numbers') AS number, slot_of(g.due, now) AS slot FROM given g
  ), named AS MATERIALIZED (
    -- By due, so that neighbours are written to the same table and page.
    SELECT s.place, s.body, s.due, s.number, x.slot, id_of(s.due, x.slot, s.number) AS id
    FROM slotted s, LATERAL (SELECT CASE WHEN s.due < quiet[s.slot + 1] THEN 0 ELSE s.slot END AS slot) x
    ORDER BY s.due, s.number
  ), written AS (
    INSERT INTO body (number, due, created, qid, priority, slot, body)
    SELECT n.number, n.due, now, f.qid, 1024, n.slot, n.body FROM named n
  ), pending AS (
    INSERT INTO pend (home, xid, id, slot, lane)
    SELECT f.home, xid, n.id, n.slot, 0 FROM named n
  )
  SELECT n.place, n.id, n.number, n.due FROM named n;
  PERFORM count_up(f.qid, f.home, cardinality(p_body), 0, 0);
END
$$;

-- The number of idempotency keys stored for a queue. At the limit, expired ones are removed first.
CREATE OR REPLACE FUNCTION idempotency_keys_left(p_queue text, p_defaults jsonb) RETURNS bigint
LANGUAGE plpgsql AS $$
DECLARE
  f record := facts_of(p_queue, p_defaults);
  remembered bigint := idempotency_keys_of(f.qid);
  now bigint;
BEGIN
  IF remembered >= (f.settings->>'limit_idempotency_keys')::bigint THEN
    now := clock_ms();
    PERFORM forget_idempotency_keys(ARRAY(SELECT t.ctid FROM idempotency t WHERE t.qid = f.qid AND t.until BETWEEN 1 AND now LIMIT 10000
      FOR UPDATE SKIP LOCKED));
    remembered := idempotency_keys_of(f.qid);
  END IF;
  RETURN remembered;
END
$$;

-- Removes expired rows of idempotency keys, which must be locked, and returns their number.
CREATE OR REPLACE FUNCTION forget_idempotency_keys(rows_ tid[]) RETURNS int
LANGUAGE plpgsql AS $$
DECLARE
  forgotten int;
BEGIN
  WITH gone AS (
    DELETE FROM idempotency WHERE ctid = ANY (rows_) RETURNING qid, id
  ), counted AS (
    INSERT INTO tally SELECT g.qid, g.qid, 0, 0, 0, -count(*) FROM gone g WHERE g.id IS NOT NULL GROUP BY g.qid
  ) SELECT count(*) INTO forgotten FROM gone;
  RETURN forgotten;
END
$$;

-- A batch of puts, each with its own answer. Idempotency keys and keys are locked first, in order, so that concurrent
-- batches do not deadlock. An item whose key another transaction has locked is answered `busy`, alone.
CREATE OR REPLACE FUNCTION put_1(p_queue text[], p_kind smallint[], p_value bigint[], p_body bytea[], p_opts jsonb[],
  p_key bytea[], p_idempotency_key bytea[], p_defaults jsonb)
RETURNS TABLE (item int, code text, info text, id uuid, number bigint, due bigint, outcome smallint, replaced uuid)
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT SET plan_cache_mode = force_generic_plan
SET jit = off SET enable_seqscan = off SET lock_timeout = '1s' AS $$
#variable_conflict use_column
DECLARE
  q text;
  places int[];
  kinds smallint[];
  values_ bigint[];
  bodies bytea[];
  a put_answer;
  n int := coalesce(cardinality(p_body), 0);
  each record;
  busy text[] := '{}';
  since bigint;
  -- The number of idempotency keys of each queue in the batch, as jsonb by name.
  remembered jsonb := '{}';
BEGIN
  PERFORM limit_waits(p_defaults);
  PERFORM check_place();
  PERFORM check_numbers((p_defaults->>'highest')::bigint);
  IF p_opts IS NULL AND p_key IS NULL AND p_idempotency_key IS NULL THEN
    FOR q, places, kinds, values_, bodies IN
      SELECT u.queue, array_agg(u.place ORDER BY u.place), array_agg(u.kind ORDER BY u.place),
        array_agg(u.value ORDER BY u.place), array_agg(u.body ORDER BY u.place)
      FROM unnest(p_queue, p_kind, p_value, p_body) WITH ORDINALITY AS u (queue, kind, value, body, place)
      GROUP BY u.queue ORDER BY min(u.place)
    LOOP
      RETURN QUERY SELECT places[p.place], '', NULL::text, p.id, p.number, p.due, 0::smallint, NULL::uuid
        FROM put_plain(q, kinds, values_, bodies, p_defaults) p;
      IF NOT FOUND THEN
        FOR at IN 1 .. cardinality(places) LOOP
          a := put_one(q, kinds[at], values_[at], bodies[at], NULL, NULL, NULL, NULL, p_defaults);
          RETURN QUERY SELECT places[at], a.code, a.info, a.id, a.number, a.due, a.outcome, a.replaced;
        END LOOP;
      END IF;
    END LOOP;
    RETURN;
  END IF;
  since := clock_ms();
  FOR each IN
    SELECT 1 AS class, home_of(u.queue, 0) AS qid, u.idempotency_key AS name FROM unnest(p_queue, p_idempotency_key) AS u (queue, idempotency_key)
      WHERE u.idempotency_key IS NOT NULL
    UNION
    SELECT 2, home_of(u.queue, 0), u.key FROM unnest(p_queue, p_key) AS u (queue, key) WHERE octet_length(u.key) <= 512
    ORDER BY 1, 2, 3
  LOOP
    BEGIN
      IF each.class = 1 THEN
        PERFORM FROM idempotency t WHERE t.qid = each.qid AND t.idempotency_key = each.name FOR UPDATE;
        IF NOT FOUND THEN
          INSERT INTO idempotency VALUES (each.qid, each.name, 0) ON CONFLICT DO NOTHING;
        END IF;
      ELSE
        PERFORM FROM key k WHERE k.qid = each.qid AND k.key = each.name FOR UPDATE;
        IF NOT FOUND THEN
          INSERT INTO key VALUES (each.qid, each.name, NULL) ON CONFLICT DO NOTHING;
        END IF;
      END IF;
    EXCEPTION WHEN lock_not_available THEN
      busy := busy || format('%s %s %s', each.class, each.qid, each.name);
      -- At most one long wait per call.
      PERFORM set_config('lock_timeout', '5ms', true);
    END;
    since := shorten_waits(since);
  END LOOP;
  IF p_idempotency_key IS NOT NULL THEN
    FOR q IN SELECT DISTINCT u.queue FROM unnest(p_queue, p_idempotency_key) AS u (queue, idempotency_key) WHERE u.idempotency_key IS NOT NULL LOOP
      remembered := remembered || jsonb_build_object(q, idempotency_keys_left(q, p_defaults));
    END LOOP;
  END IF;
  FOR at IN 1 .. n LOOP
    BEGIN
      IF format('1 %s %s', home_of(p_queue[at], 0), p_idempotency_key[at]) = ANY (busy)
        OR format('2 %s %s', home_of(p_queue[at], 0), p_key[at]) = ANY (busy) THEN
        RAISE lock_not_available;
      END IF;
      a := put_one(p_queue[at], p_kind[at], p_value[at], p_body[at], p_opts[at], p_key[at], p_idempotency_key[at],
        (remembered->>p_queue[at])::bigint, p_defaults);
      IF a.made_idempotency_key THEN
        remembered := jsonb_set(remembered, ARRAY[p_queue[at]], to_jsonb((remembered->>p_queue[at])::bigint + 1));
      END IF;
    EXCEPTION WHEN lock_not_available THEN
      PERFORM set_config('lock_timeout', '5ms', true);
      a := NULL;
      a.code := 'busy';
    END;
    item := at; code := a.code; info := a.info; id := a.id; number := a.number; due := a.due; outcome := a.outcome;
    replaced := a.replaced;
    RETURN NEXT;
  END LOOP;
  -- Names that were inserted for refused puts.
  DELETE FROM key k USING unnest(p_queue, p_key) AS u (queue, key)
    WHERE u.key IS NOT NULL AND k.qid = home_of(u.queue, 0) AND k.key = u.key AND k.id IS NULL;
  DELETE FROM idempotency t USING unnest(p_queue, p_idempotency_key) AS u (queue, idempotency_key)
    WHERE u.idempotency_key IS NOT NULL AND t.qid = home_of(u.queue, 0) AND t.idempotency_key = u.idempotency_key AND t.until = 0;
END
$$;
