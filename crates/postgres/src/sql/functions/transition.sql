-- Transitions of one message: `apply` of `dwell-model` in SQL. docs/states.md is the table of both.

-- The delay of a retry without one of its own; the same as `Backoff::delay_ms` of `dwell-model`. `random` is 32 bits.
CREATE OR REPLACE FUNCTION backoff_ms(b jsonb, attempt int, random bigint) RETURNS bigint
LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
  cap numeric := (b->>'cap')::numeric * 1000000;
  grown numeric := least((b->>'base')::numeric * 1000000, cap);
  next numeric;
  delay numeric;
BEGIN
  FOR step IN 2 .. attempt LOOP
    next := least(trunc(grown * (b->>'factor')::int / 100), cap);
    EXIT WHEN next = grown;
    grown := next;
  END LOOP;
  delay := trunc(grown / 1000000);
  RETURN delay - trunc(trunc(delay * (b->>'jitter')::int / 100) * random / 4294967296);
END
$$;

-- TRUNCATE is not subject to snapshots: a transaction whose snapshot is older finds the table empty. If it has not found
-- what it looked for about a message, and one of the tables where that may be was truncated, it cannot be serialized.
CREATE OR REPLACE FUNCTION check_truncated(p_id uuid) RETURNS void
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
  IF current_setting('transaction_isolation') <> 'read committed' AND EXISTS (
    SELECT FROM unnest(ARRAY['pend_' || slot_in(p_id), 'body_' || slot_in(p_id), 'standing_0', 'standing_1', 'standing_2',
      'standing_3', 'standing_4', 'standing_5']) AS t (name) JOIN pg_class c ON c.oid = to_regclass(t.name)
    -- The one is read by the snapshot, the other as it is now.
    WHERE c.relfilenode <> pg_relation_filenode(c.oid)) THEN
    RAISE EXCEPTION USING ERRCODE = 'serialization_failure',
      MESSAGE = 'could not serialize access: space was given back since this transaction began',
      HINT = 'The transaction might succeed if retried.';
  END IF;
END
$$;

-- Frees the key of a message that is not live any more. A locked key is skipped: its next user sees that the message is
-- gone. So no transaction waits for a key while it holds a message.
CREATE OR REPLACE FUNCTION free_key(p_qid bigint, p_id uuid) RETURNS void
LANGUAGE sql AS $$
  DELETE FROM key WHERE ctid = ANY (ARRAY(
    SELECT k.ctid FROM key k
    WHERE k.qid = p_qid AND k.id = p_id
      AND k.key = (SELECT b.key FROM body b WHERE b.number = number_of(p_id) AND b.slot = slot_in(p_id)::smallint)
    FOR UPDATE SKIP LOCKED))
$$;

-- Applies an expiry to a message that is not leased: it is dead, or gone if its queue drops expired messages. Returns the
-- place: 0 none, 4 dead. The caller has removed its row.
CREATE OR REPLACE FUNCTION expired(s standing, settings jsonb) RETURNS int
LANGUAGE plpgsql AS $$
BEGIN
  IF settings->>'on_expiry' = 'drop' THEN
    IF s.keyed THEN
      PERFORM free_key(s.qid, s.id);
    END IF;
    PERFORM note(s.qid, 6, 1);
    RETURN 0;
  END IF;
  PERFORM file_dead(s, settings, 3, 2, s.expires);
  RETURN 4;
END
$$;

-- Stores a pending message in `standing`, or applies its expiry. Returns the place: 0 none, 2 pending, 4 dead.
-- The home is read here: a purge may have ended the one that the caller has read.
CREATE OR REPLACE FUNCTION file_pending(s standing, settings jsonb, now bigint) RETURNS int
LANGUAGE plpgsql AS $$
BEGIN
  IF s.expires <= now THEN
    RETURN expired(s, settings);
  END IF;
  s.part := part_now(3, now);
  s.home := home_now(s.qid);
  s.lane := CASE WHEN s.priority = 1024 THEN 0 WHEN s.due > now THEN 1 ELSE 2 END;
  s.rank := CASE s.lane WHEN 2 THEN s.priority ELSE 0 END;
  s.xid := pg_current_xact_id();
  s.token := NULL; s.deadline := NULL; s.lease_ms := NULL; s.session := NULL; s.holder := NULL; s.reason := NULL;
  s.died := NULL; s.key_hash := NULL;
  INSERT INTO standing SELECT (s).*;
  PERFORM count_up(s.qid, s.home, 1, 0, 0);
  RETURN 2;
END
$$;

-- Stores a dead message. Reasons: 1 attempts spent, 2 buried, 3 expired; `place` is that of `note`.
CREATE OR REPLACE FUNCTION file_dead(s standing, settings jsonb, p_reason int, place int, p_died bigint) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
  s.key_hash := NULL;
  IF s.keyed THEN
    PERFORM free_key(s.qid, s.id);
    s.key_hash := hash_of((SELECT b.key FROM body b WHERE b.number = number_of(s.id) AND b.slot = slot_in(s.id)::smallint));
    IF s.key_hash IS NULL THEN
      PERFORM check_truncated(s.id);
    END IF;
  END IF;
  s.part := 6; s.reason := p_reason; s.died := p_died;
  s.home := NULL; s.lane := NULL; s.rank := NULL; s.xid := NULL;
  s.token := NULL; s.deadline := NULL; s.lease_ms := NULL; s.session := NULL; s.holder := NULL;
  INSERT INTO standing SELECT (s).*;
  PERFORM count_up(s.qid, s.qid, 0, 0, 1);
  PERFORM note(s.qid, place, 1);
  PERFORM trim_dead(s.qid, settings, 1000);
END
$$;

-- Discards the oldest dead messages beyond the queue's limit, at most `most`.
CREATE OR REPLACE FUNCTION trim_dead(p_qid bigint, settings jsonb, most bigint) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
  kept bigint := (settings->>'dead_max')::bigint;
  gone bigint;
BEGIN
  IF kept IS NULL THEN
    RETURN;
  END IF;
  IF (count_of(p_qid)).dead > kept THEN
    -- Count and messages by one snapshot: who trims at the same time finds the same ones, and skips those that are locked.
    WITH counted AS MATERIALIZED (
      SELECT sum(t.dead) AS dead FROM tally t WHERE t.qid = p_qid
    ), old AS MATERIALIZED (
      SELECT s.ctid AS tid FROM standing_6 s WHERE s.qid = p_qid ORDER BY s.died, s.id
      LIMIT (SELECT least(greatest(c.dead - kept, 0), most) FROM counted c)
    ), free AS (
      SELECT s.ctid AS tid FROM standing_6 s WHERE s.ctid = ANY (ARRAY(SELECT o.tid FROM old o)) FOR UPDATE SKIP LOCKED
    ), removed AS (
      DELETE FROM standing_6 WHERE ctid = ANY (ARRAY(SELECT f.tid FROM free f)) RETURNING 1
    ) SELECT count(*) INTO gone FROM removed;
    PERFORM count_up(p_qid, p_qid, 0, 0, -gone);
    PERFORM note(p_qid, 5, gone);
  END IF;
END
$$;

-- Discards dead messages that are past their queue's retention, at most `most` of each kind.
CREATE OR REPLACE FUNCTION retain_some(p_qid bigint, settings jsonb, now bigint, most bigint) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
  ttl bigint := (settings->>'dead_ttl')::bigint;
  gone bigint;
BEGIN
  IF ttl IS NOT NULL THEN
    WITH old AS (
      SELECT s.ctid AS tid FROM standing_6 s WHERE s.qid = p_qid AND s.died <= now - ttl ORDER BY s.died, s.id LIMIT most
      FOR UPDATE SKIP LOCKED
    ), removed AS (
      DELETE FROM standing_6 WHERE ctid = ANY (ARRAY(SELECT o.tid FROM old o)) RETURNING 1
    ) SELECT count(*) INTO gone FROM removed;
    PERFORM count_up(p_qid, p_qid, 0, 0, -gone);
    PERFORM note(p_qid, 4, gone);
  END IF;
  PERFORM trim_dead(p_qid, settings, most);
END
$$;

-- Removes the row of a locked message from its place, and its count.
CREATE OR REPLACE FUNCTION unfile(s standing, p_place int) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
  IF p_place = 1 THEN
    EXECUTE format('DELETE FROM pend_%s WHERE home = $1 AND lane = $2 AND id = $3', slot_in(s.id)) USING s.home, s.lane, s.id;
  ELSE
    DELETE FROM standing WHERE id = s.id AND part = s.part;
  END IF;
  IF p_place < 3 THEN
    PERFORM count_up(s.qid, s.home, -1, 0, 0);
  ELSIF p_place = 3 THEN
    PERFORM count_up(s.qid, s.qid, 0, -1, 0);
  ELSE
    PERFORM count_up(s.qid, s.qid, 0, 0, -1);
  END IF;
END
$$;

-- 32 bits made from a message's id and an attempt: Bob Jenkins's one-at-a-time hash, as in `Backoff::lapse_delay_ms` of
-- `dwell-model`, so that every process that notices a lapse computes the same instant.
CREATE OR REPLACE FUNCTION lapse_jitter(id uuid, attempt int) RETURNS bigint
LANGUAGE plpgsql IMMUTABLE STRICT AS $$
DECLARE
  bytes bytea := uuid_send(id) || int4send(attempt);
  hash bigint := 0;
BEGIN
  FOR i IN 0 .. 19 LOOP
    hash := (hash + get_byte(bytes, i)) & 4294967295;
    hash := (hash + (hash << 10)) & 4294967295;
    hash := hash # (hash >> 6);
  END LOOP;
  hash := (hash + (hash << 3)) & 4294967295;
  hash := hash # (hash >> 11);
  RETURN (hash + (hash << 15)) & 4294967295;
END
$$;

-- A message after its lease ran out at `at`, with the attempt spent: its instant moves if its queue has a backoff after lapses.
CREATE OR REPLACE FUNCTION lapsed(s standing, at bigint, settings jsonb) RETURNS standing
LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
  s.lapses := coalesce(s.lapses, 0) + 1;
  s.attempts := s.attempts + 1;
  s.since := at;
  IF s.attempts >= (CASE settings->>'lapse_backoff' WHEN 'first' THEN 1 WHEN 'second' THEN 2 ELSE 2147483647 END) THEN
    s.due := least(at + backoff_ms(settings->'backoff', s.attempts, lapse_jitter(s.id, s.attempts)), 253402300799999);
  END IF;
  RETURN s;
END
$$;

-- Applies a lease that ran out at `at`: the message is ready again,
-- waits for the backoff, or is dead. The caller has removed its row.
CREATE OR REPLACE FUNCTION lapse(s standing, at bigint, p_home bigint, settings jsonb, now bigint) RETURNS int
LANGUAGE plpgsql AS $$
DECLARE
  most bigint := coalesce(s.max_attempts, (settings->>'max_attempts')::bigint);
BEGIN
  IF most > 0 AND s.attempts + 1 >= most THEN
    s.lapses := coalesce(s.lapses, 0) + 1;
    s.attempts := s.attempts + 1;
    PERFORM file_dead(s, settings, 1, 1, at);
    RETURN 4;
  END IF;
  RETURN file_pending(lapsed(s, at, settings), settings, now);
END
$$;

-- The standing of a message that was never touched.
CREATE OR REPLACE FUNCTION fresh(p pend) RETURNS standing
LANGUAGE plpgsql STABLE AS $$
DECLARE
  s standing;
  b body;
BEGIN
  SELECT * INTO b FROM body WHERE number = number_of(p.id) AND slot = p.slot;
  s.qid := b.qid; s.due := b.due; s.priority := b.priority; s.expires := b.expires; s.max_attempts := b.max_attempts;
  s.lease_own := b.lease_ms; s.id := p.id; s.keyed := p.keyed; s.attempts := 0; s.takes := 0; s.home := p.home;
  s.lane := p.lane; s.since := b.created; s.xid := p.xid;
  RETURN s;
END
$$;

-- Whether the last purge of a queue has spared a message that lies under an earlier home: its transaction was still open
-- when the purge committed. Messages from another cluster have transaction ids of that cluster.
CREATE OR REPLACE FUNCTION is_spared(p_xid xid8, p_id uuid, last purge) RETURNS boolean
LANGUAGE plpgsql STABLE AS $$
BEGIN
  RETURN NOT (p_xid = last.xid OR number_of(p_id) <= (SELECT o.last_value FROM old_numbers o)
    OR pg_visible_in_snapshot(p_xid, last.snapshot));
END
$$;

-- The homes of a queue that purges have left, and that are not cleaned yet.
CREATE OR REPLACE FUNCTION left_homes(p_qid bigint) RETURNS bigint[]
LANGUAGE plpgsql STABLE AS $$
BEGIN
  RETURN ARRAY(SELECT x.home FROM purge x WHERE x.qid = p_qid AND NOT x.is_done);
END
$$;

CREATE OR REPLACE FUNCTION last_purge(p_qid bigint) RETURNS purge
LANGUAGE plpgsql STABLE AS $$
DECLARE
  last purge;
BEGIN
  SELECT * INTO last FROM purge x WHERE x.qid = p_qid ORDER BY x.generation DESC LIMIT 1;
  RETURN last;
END
$$;

-- Locks a message, applies what time has changed, and returns its place: 0 none, 1 untouched since its put, 2 pending, 3
-- leased, 4 dead. Waits for other transactions up to `lock_timeout`.
CREATE OR REPLACE FUNCTION hold(p_qid bigint, p_home bigint, p_id uuid, settings jsonb, now bigint,
  OUT place int, OUT s standing) RETURNS record
LANGUAGE plpgsql AS $$
DECLARE
  p pend;
  misses int := 0;
  homes bigint[];
BEGIN
  place := 0;
  IF slot_in(p_id) > 64 THEN
    RETURN;
  END IF;
  LOOP
    EXECUTE format('SELECT * FROM pend_%s WHERE home = $1 AND lane IN (0, 1) AND id = $2 FOR UPDATE', slot_in(p_id))
      INTO p USING p_home, p_id;
    IF p.id IS NOT NULL THEN
      s := fresh(p);
      place := 1;
      EXIT WHEN s.expires IS NULL OR s.expires > now;
      PERFORM unfile(s, 1);
      PERFORM expired(s, settings);
      CONTINUE;
    END IF;
    SELECT * INTO s FROM standing WHERE id = p_id FOR UPDATE;
    IF s.id IS NOT NULL AND s.qid = p_qid THEN
      place := CASE WHEN s.part < 3 THEN 3 WHEN s.part < 6 THEN 2 ELSE 4 END;
      IF place = 3 AND s.deadline <= now THEN
        PERFORM unfile(s, 3);
        PERFORM lapse(s, s.deadline, p_home, settings, now);
        CONTINUE;
      ELSIF place = 2 AND s.home <> p_home AND s.home IS DISTINCT FROM (last_purge(p_qid)).next THEN
        IF s.home = ANY (left_homes(p_qid)) AND is_spared(s.xid, s.id, last_purge(p_qid)) THEN
          PERFORM unfile(s, 2);
          PERFORM file_pending(s, settings, now);
          CONTINUE;
        END IF;
        place := 0;
      ELSIF place = 2 AND s.expires <= now THEN
        PERFORM unfile(s, 2);
        PERFORM expired(s, settings);
        CONTINUE;
      ELSIF place = 4 AND s.died <= now - (settings->>'dead_ttl')::bigint THEN
        PERFORM unfile(s, 4);
        PERFORM note(s.qid, 4, 1);
        place := 0;
      END IF;
      RETURN;
    END IF;
    -- It may have moved while this transaction waited for the lock: the next round finds it.
    misses := misses + 1;
    IF misses = 2 THEN
      place := 0;
      homes := left_homes(p_qid);
      EXIT WHEN cardinality(homes) = 0;
      -- A purge may have spared it, and maintenance not have come to it.
      EXECUTE format('SELECT * FROM pend_%s WHERE home = ANY ($1) AND lane IN (0, 1) AND id = $2 FOR UPDATE', slot_in(p_id))
        INTO p USING homes, p_id;
      EXIT WHEN p.id IS NULL OR NOT is_spared(p.xid, p.id, last_purge(p_qid));
      s := fresh(p);
      PERFORM unfile(s, 1);
      PERFORM file_pending(s, settings, now);
    ELSIF misses > 2 THEN
      place := 0;
      EXIT;
    END IF;
  END LOOP;
  IF place = 0 THEN
    PERFORM check_truncated(p_id);
  END IF;
END
$$;

-- Applies lapsed leases of a queue, at most `most`. Leases that an open transaction settles are skipped. Returns the
-- deadline up to which no lapsed lease is left among those that it saw.
CREATE OR REPLACE FUNCTION lapse_some(p_qid bigint, p_home bigint, settings jsonb, now bigint, p_floor bigint, most int)
RETURNS bigint
LANGUAGE plpgsql AS $$
DECLARE
  s standing;
  seen int := 0;
  first bigint;
BEGIN
  FOR s IN
    SELECT * FROM standing WHERE part < 3 AND qid = p_qid AND deadline >= p_floor AND deadline <= now
    ORDER BY deadline LIMIT most FOR UPDATE SKIP LOCKED
  LOOP
    PERFORM unfile(s, 3);
    PERFORM lapse(s, s.deadline, p_home, settings, now);
    seen := seen + 1;
  END LOOP;
  IF seen = most THEN
    RETURN p_floor;
  END IF;
  SELECT min(deadline) INTO first FROM standing
    WHERE part < 3 AND qid = p_qid AND deadline >= p_floor AND deadline <= now;
  RETURN coalesce(first, now);
END
$$;

-- Applies expiries of a queue, at most `most` to untouched messages and as many to others. Locked rows are skipped.
CREATE OR REPLACE FUNCTION expire_some(p_home bigint, settings jsonb, now bigint, most int) RETURNS int
LANGUAGE plpgsql AS $$
DECLARE
  p pend;
  s standing;
  seen int := 0;
BEGIN
  -- By instant, so that the latest deaths remain if the queue limits its dead messages.
  FOR p IN
    SELECT * FROM pend x WHERE x.expires <= now AND x.home = p_home ORDER BY x.expires, x.id LIMIT most FOR UPDATE SKIP LOCKED
  LOOP
    s := fresh(p);
    PERFORM unfile(s, 1);
    PERFORM expired(s, settings);
    seen := seen + 1;
  END LOOP;
  FOR s IN
    SELECT * FROM standing x WHERE x.part BETWEEN 3 AND 5 AND x.expires <= now AND x.home = p_home
    ORDER BY x.expires, x.id LIMIT most FOR UPDATE SKIP LOCKED
  LOOP
    PERFORM unfile(s, 2);
    PERFORM expired(s, settings);
    seen := seen + 1;
  END LOOP;
  RETURN seen;
END
$$;

-- The same for all queues: at most `most` in all. Queues that are being purged are skipped.
CREATE OR REPLACE FUNCTION expire_all(p_defaults jsonb, now bigint, most int) RETURNS int
LANGUAGE plpgsql AS $$
DECLARE
  q record;
  f record;
  seen int := 0;
BEGIN
  FOR q IN
    SELECT DISTINCT b.qid FROM (
      (SELECT number_of(x.id) AS number, x.slot FROM pend x WHERE x.expires <= now
        AND NOT EXISTS (SELECT FROM purge c WHERE c.home = x.home AND NOT c.is_done) LIMIT most)
      UNION ALL
      (SELECT number_of(x.id), slot_in(x.id)::smallint FROM standing x WHERE x.part BETWEEN 3 AND 5 AND x.expires <= now
        AND NOT EXISTS (SELECT FROM purge c WHERE c.home = x.home AND NOT c.is_done) LIMIT most)
    ) e, LATERAL (SELECT y.qid FROM body y WHERE y.number = e.number AND y.slot = e.slot LIMIT 1) b
  LOOP
    f := facts_of((SELECT n.name FROM queue n WHERE n.qid = q.qid LIMIT 1), p_defaults);
    seen := seen + expire_some(f.home, f.settings, now, most);
    EXIT WHEN seen >= most;
  END LOOP;
  RETURN seen;
END
$$;

-- Applies what time has changed in a queue, a slice of it. Returns whether there is more: then the caller returns at once,
-- and the store repeats the call, so that no statement lasts for long and each commits what it did (`dwell.again`).
CREATE OR REPLACE FUNCTION is_behind(p_qid bigint, p_home bigint, settings jsonb, now bigint) RETURNS boolean
LANGUAGE plpgsql AS $$
BEGIN
  -- A lapse floor of 0 means that the slice was full.
  IF lapse_some(p_qid, p_home, settings, now, 0, 1000) > 0 AND expire_some(p_home, settings, now, 1000) < 1000 THEN
    RETURN false;
  END IF;
  PERFORM set_config('dwell.again', 'on', true);
  RETURN true;
END
$$;
