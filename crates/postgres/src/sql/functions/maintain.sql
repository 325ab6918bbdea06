-- Maintenance: folds counts, removes what is over, gives space back. Any process may call it at any time, also several at
-- once; each step processes a slice and skips what others have locked.

-- Removes the rows of purged messages, at most `most` of them, and moves those that the purge spared.
CREATE OR REPLACE FUNCTION clean_purges(p_defaults jsonb, now bigint, most int) RETURNS int
LANGUAGE plpgsql AS $$
DECLARE
  c purge;
  last purge;
  p pend;
  s standing;
  done int := 0;
  seen int;
  slot int;
  f record;
BEGIN
  -- A purge that was rolled back has used up an epoch, for which transactions with an old snapshot would wait.
  INSERT INTO purge (qid, generation, home, next, epoch, snapshot, xid, is_done)
    SELECT 0, n.last_value, 0, 0, n.last_value, pg_current_snapshot(), pg_current_xact_id(), true FROM purges n
    WHERE n.is_called AND n.last_value > coalesce((SELECT max(x.epoch) FROM purge x), 0)
    ON CONFLICT DO NOTHING;
  FOR c IN SELECT * FROM purge x WHERE NOT x.is_done ORDER BY x.epoch FOR UPDATE SKIP LOCKED LOOP
    SELECT * INTO last FROM purge x WHERE x.qid = c.qid ORDER BY x.generation DESC LIMIT 1;
    seen := 0;
    f := facts_of(coalesce((SELECT q.name FROM queue q WHERE q.qid = c.qid LIMIT 1), ''), p_defaults);
    FOR slot IN 0 .. 64 LOOP
      FOR p IN EXECUTE format('SELECT * FROM pend_%s WHERE home = $1 LIMIT $2 FOR UPDATE SKIP LOCKED', slot)
        USING c.home, most - done
      LOOP
        seen := seen + 1;
        s := fresh(p);
        PERFORM unfile(s, 1);
        IF is_spared(p.xid, p.id, last) THEN
          PERFORM file_pending(s, f.settings, now);
        ELSIF s.keyed THEN
          PERFORM free_key(s.qid, s.id);
        END IF;
        done := done + 1;
      END LOOP;
      EXIT WHEN done >= most;
    END LOOP;
    FOR s IN SELECT * FROM standing x WHERE x.part BETWEEN 3 AND 5 AND x.home = c.home LIMIT most - done
      FOR UPDATE SKIP LOCKED
    LOOP
      seen := seen + 1;
      PERFORM unfile(s, 2);
      IF is_spared(s.xid, s.id, last) THEN
        PERFORM file_pending(s, f.settings, now);
      ELSIF s.keyed THEN
        PERFORM free_key(s.qid, s.id);
      END IF;
      done := done + 1;
    END LOOP;
    IF c.seen IS NULL THEN
      UPDATE purge SET seen = pg_current_xact_id() WHERE qid = c.qid AND generation = c.generation;
    ELSIF seen = 0 AND done < most AND pg_snapshot_xmin(pg_current_snapshot()) > c.seen
      AND NOT EXISTS (SELECT FROM pend x WHERE x.home = c.home)
      AND NOT EXISTS (SELECT FROM standing x WHERE x.part BETWEEN 3 AND 5 AND x.home = c.home) THEN
      UPDATE purge SET is_done = true WHERE qid = c.qid AND generation = c.generation;
      WITH gone AS (DELETE FROM tally t WHERE t.qid = c.qid AND t.home = c.home RETURNING t.leased, t.dead, t.idempotency_keys)
        INSERT INTO tally SELECT c.qid, c.qid, 0, sum(g.leased), sum(g.dead), sum(g.idempotency_keys) FROM gone g
        HAVING sum(g.leased) <> 0 OR sum(g.dead) <> 0 OR sum(g.idempotency_keys) <> 0;
      DELETE FROM purge x WHERE x.qid = c.qid AND x.is_done AND x.generation < last.generation;
    END IF;
    EXIT WHEN done >= most;
  END LOOP;
  RETURN done;
END
$$;

-- As the part of the maintenance that is about purges; returns whether all of them are finished.
CREATE OR REPLACE FUNCTION clean_1(p_defaults jsonb) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT SET jit = off SET lock_timeout = '20ms' AS $$
BEGIN
  BEGIN
    PERFORM clean_purges(p_defaults, clock_ms(), 10000);
  EXCEPTION WHEN lock_not_available OR deadlock_detected THEN
    NULL;
  END;
  RETURN NOT EXISTS (SELECT FROM purge p WHERE NOT p.is_done);
END
$$;

-- Notes which slots are over, and returns the tables that may be empty: N is slot N, 100 + N is part N of `standing`.
-- `p_sealed`: every message due before it is visible by now, or never will be. Locks no table.
CREATE OR REPLACE FUNCTION idle_1(p_sealed bigint) RETURNS SETOF int
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT SET jit = off SET lock_timeout = '20ms' AS $$
DECLARE
  now bigint := clock_ms();
  t record;
  span record;
  epoch bigint;
  quiet bigint;
  is_empty boolean;
BEGIN
  FOR t IN SELECT s.slot, s.quiet_until FROM slot s WHERE s.slot > 0 AND s.quiet_until <= now ORDER BY s.slot LOOP
    span := span_of(t.slot);
    -- The first epoch of this slot that is not over.
    epoch := p_sealed / span.ms;
    epoch := epoch + (t.slot - span.first - epoch % span.turns + span.turns) % span.turns;
    quiet := epoch * span.ms;
    CONTINUE WHEN quiet <= t.quiet_until OR quiet <= now;
    EXECUTE format('SELECT NOT EXISTS (SELECT FROM pend_%s)', t.slot) INTO is_empty;
    CONTINUE WHEN NOT is_empty;
    UPDATE slot SET quiet_until = quiet WHERE slot = t.slot;
  END LOOP;
  FOR t IN SELECT s.slot FROM slot s WHERE s.slot > 0 AND s.quiet_until > now
    AND (pg_relation_size('body_' || s.slot) > 0 OR pg_relation_size('pend_' || s.slot) > 0)
  LOOP
    EXECUTE format('SELECT NOT EXISTS (SELECT FROM pend_%s)', t.slot) INTO is_empty;
    IF is_empty THEN
      RETURN NEXT t.slot;
    END IF;
  END LOOP;
  RETURN QUERY SELECT 100 + g.part FROM generate_series(0, 5) AS g (part)
    WHERE g.part <> part_now(g.part / 3 * 3, now) AND pg_relation_size('standing_' || g.part) > 0;
END
$$;

-- The numbers of touched messages that have their bodies in this slot; of more than 1000 only so many that it shows. Leases have
-- no index for it: they are read.
CREATE OR REPLACE FUNCTION needed_in(p_slot int) RETURNS bigint[]
LANGUAGE plpgsql AS $$
BEGIN
  RETURN ARRAY(SELECT number_of(t.id) FROM (
    SELECT x.id FROM standing_6 x WHERE slot_in(x.id) = p_slot
    UNION ALL SELECT x.id FROM standing_3 x WHERE slot_in(x.id) = p_slot
    UNION ALL SELECT x.id FROM standing_4 x WHERE slot_in(x.id) = p_slot
    UNION ALL SELECT x.id FROM standing_5 x WHERE slot_in(x.id) = p_slot
    UNION ALL SELECT x.id FROM standing_0 x WHERE slot_in(x.id) = p_slot
    UNION ALL SELECT x.id FROM standing_1 x WHERE slot_in(x.id) = p_slot
    UNION ALL SELECT x.id FROM standing_2 x WHERE slot_in(x.id) = p_slot
  ) t LIMIT 1001);
END
$$;

-- Whether these bodies of a slot are so few that they can be written again, in place of all that is in its table: at most 1000
-- and 16 MiB, and less than half of the table.
CREATE OR REPLACE FUNCTION are_few(p_slot int, numbers bigint[]) RETURNS boolean
LANGUAGE plpgsql AS $$
DECLARE
  bytes bigint;
BEGIN
  IF cardinality(numbers) > 1000 THEN
    RETURN false;
  ELSIF cardinality(numbers) > 0 THEN
    -- The length of a body is known without reading it.
    EXECUTE format('SELECT sum(octet_length(b.body) + 1000) FROM body_%s b WHERE b.number = ANY ($1)', p_slot) INTO bytes USING numbers;
    RETURN coalesce(bytes, 0) <= 16777216 AND pg_table_size('body_' || p_slot) > 1048576 + 2 * coalesce(bytes, 0);
  END IF;
  RETURN true;
END
$$;

-- Gives back the space of one table that `idle_1` named, if it is empty. Returns whether it did. What others have locked is
-- skipped, and no transaction waits for this longer than `lock_timeout`, besides writers to a slot that is over.
--
-- A few bodies that are still needed, of dead messages and of those that came back, are written once more, into the same slot:
-- ids say where a body is.
CREATE OR REPLACE FUNCTION give_back_1(p_table int) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT SET jit = off SET enable_seqscan = off SET lock_timeout = '20ms' AS $$
DECLARE
  now bigint := clock_ms();
  n int := p_table % 100;
  is_empty boolean;
  needed bigint[];
  kept body[];
BEGIN
  -- One process at a time.
  IF NOT pg_try_advisory_xact_lock(1685546350, hashtext(current_schema() || p_table)) THEN
    RETURN false;
  ELSIF p_table < 100 THEN
    IF NOT are_few(n, needed_in(n)) THEN
      RETURN false;
    END IF;
    -- Keeps writers out, not readers, while it looks again: a message may have been put and taken meanwhile.
    EXECUTE format('LOCK TABLE pend_%1$s, body_%1$s IN SHARE ROW EXCLUSIVE MODE', n);
    EXECUTE format('SELECT NOT EXISTS (SELECT FROM pend_%s)', n) INTO is_empty;
    needed := needed_in(n);
    IF NOT is_empty OR NOT are_few(n, needed) OR NOT EXISTS (SELECT FROM slot s WHERE s.slot = n AND s.quiet_until > now) THEN
      RETURN false;
    END IF;
    IF cardinality(needed) > 0 THEN
      EXECUTE format('SELECT array_agg(b::body) FROM body_%s b WHERE b.number = ANY ($1)', n) INTO kept USING needed;
    END IF;
    EXECUTE format('TRUNCATE pend_%1$s, body_%1$s', n);
    INSERT INTO body SELECT k.* FROM unnest(kept) k;
    RETURN true;
  END IF;
  IF n = part_now(n / 3 * 3, now) THEN
    RETURN false;
  ELSIF n = part_now(n / 3 * 3, now + 600000) THEN
    -- Its turn is next: the remaining rows are moved if they are few.
    EXECUTE format('WITH left_ AS (SELECT s.ctid AS tid FROM standing_%1$s s LIMIT 1000 FOR UPDATE SKIP LOCKED), '
      'gone AS (DELETE FROM standing_%1$s WHERE ctid = ANY (ARRAY(SELECT l.tid FROM left_ l)) RETURNING *) '
      'INSERT INTO standing SELECT (jsonb_populate_record(ROW(g.*)::standing, jsonb_build_object(''part'', %2$s))).* FROM gone g',
      n, part_now(n / 3 * 3, now));
  END IF;
  EXECUTE format('SELECT NOT EXISTS (SELECT FROM standing_%s)', n) INTO is_empty;
  IF NOT is_empty THEN
    RETURN false;
  END IF;
  EXECUTE format('LOCK TABLE standing_%s IN ACCESS EXCLUSIVE MODE', n);
  EXECUTE format('SELECT NOT EXISTS (SELECT FROM standing_%s)', n) INTO is_empty;
  IF is_empty THEN
    EXECUTE format('TRUNCATE standing_%s', n);
  END IF;
  RETURN is_empty;
END
$$;

-- Removes names that appear twice, and those of queues that have neither messages nor settings.
--
-- A put relies on a name that it has read, without a lock. So a name is first `gone`, once a minute: puts that begin then
-- enter it anew. It is removed when all transactions have ended that had an id by the time the mark was visible, unless one
-- of them has put.
CREATE OR REPLACE FUNCTION forget_names(now bigint) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
  marked int;
BEGIN
  DELETE FROM queue q WHERE EXISTS (SELECT FROM queue o WHERE o.qid = q.qid AND (o.gone, o.ctid) < (q.gone, q.ctid));
  UPDATE queue q SET gone = false, seen = NULL WHERE q.gone
    AND (EXISTS (SELECT FROM tally t WHERE t.qid = q.qid) OR EXISTS (SELECT FROM setting s WHERE s.qid = q.qid));
  DELETE FROM queue q WHERE q.gone AND q.seen < pg_snapshot_xmin(pg_current_snapshot())
    AND NOT EXISTS (SELECT FROM tally t WHERE t.qid = q.qid) AND NOT EXISTS (SELECT FROM setting s WHERE s.qid = q.qid);
  IF EXISTS (SELECT FROM queue q WHERE q.gone AND q.seen IS NULL) THEN
    UPDATE queue q SET seen = pg_current_xact_id() WHERE q.gone AND q.seen IS NULL;
  END IF;
  IF now % 60000 < 2000 THEN
    WITH free AS (
      SELECT q.ctid AS tid FROM queue q WHERE NOT q.gone AND NOT EXISTS (SELECT FROM tally t WHERE t.qid = q.qid)
        AND NOT EXISTS (SELECT FROM setting s WHERE s.qid = q.qid)
        AND NOT EXISTS (SELECT FROM purge p WHERE p.qid = q.qid AND NOT p.is_done)
      LIMIT 10000 FOR UPDATE SKIP LOCKED
    ), done AS (
      UPDATE queue SET gone = true WHERE ctid = ANY (ARRAY(SELECT f.tid FROM free f)) RETURNING 1
    ) SELECT count(*) INTO marked FROM done;
    IF marked > 0 THEN
      UPDATE forgotten SET times = nextval('forgets');
    END IF;
  END IF;
END
$$;

-- Folds the counts, if there are many rows. Those that others have locked are left.
CREATE OR REPLACE FUNCTION fold_tally() RETURNS int
LANGUAGE plpgsql AS $$
DECLARE
  folded int := 0;
BEGIN
  IF (SELECT count(*) - count(DISTINCT (t.qid, t.home)) > 100 FROM tally t) THEN
    WITH gone AS (
      DELETE FROM tally WHERE ctid = ANY (ARRAY(SELECT t.ctid FROM tally t LIMIT 100000 FOR UPDATE SKIP LOCKED)) RETURNING *
    ), kept AS (
      INSERT INTO tally SELECT g.qid, g.home, sum(g.pending), sum(g.leased), sum(g.dead), sum(g.idempotency_keys) FROM gone g GROUP BY 1, 2
      HAVING sum(g.pending) <> 0 OR sum(g.leased) <> 0 OR sum(g.dead) <> 0 OR sum(g.idempotency_keys) <> 0
    ) SELECT count(*) INTO folded FROM gone;
  END IF;
  RETURN folded;
END
$$;

-- Discards dead messages past the retention that their queue has, of its own or by default.
CREATE OR REPLACE FUNCTION retain_all(p_defaults jsonb, now bigint) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
  q record;
  f record;
  general jsonb := builtin_settings() || coalesce(p_defaults, (SELECT s.own FROM setting s WHERE s.qid = 0), '{}');
BEGIN
  IF general->>'dead_ttl' IS NOT NULL OR general->>'dead_max' IS NOT NULL THEN
    FOR q IN SELECT t.qid FROM tally t GROUP BY t.qid HAVING sum(t.dead) > 0 LOOP
      f := facts_of((SELECT n.name FROM queue n WHERE n.qid = q.qid LIMIT 1), p_defaults);
      PERFORM retain_some(q.qid, f.settings, now, 1000);
    END LOOP;
  ELSE
    FOR q IN SELECT s.qid, s.own FROM setting s WHERE s.own ?| ARRAY['dead_ttl', 'dead_max'] LOOP
      PERFORM retain_some(q.qid, general || q.own, now, 1000);
    END LOOP;
  END IF;
END
$$;

-- Returns the number of rows that each step has processed; writes nothing if there is nothing to do. A step that waits too
-- long for a lock is undone by itself, and comes again with the next call.
CREATE OR REPLACE FUNCTION maintain_1(p_defaults jsonb, OUT expired int, OUT forgotten int, OUT folded int, OUT purged int,
  OUT ended int) RETURNS record
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT SET jit = off SET lock_timeout = '20ms' AS $$
DECLARE
  now bigint := clock_ms();
BEGIN
  BEGIN
    expired := expire_all(p_defaults, now, 1000);
  EXCEPTION WHEN lock_not_available OR deadlock_detected THEN
    NULL;
  END;
  BEGIN
    PERFORM retain_all(p_defaults, now);
  EXCEPTION WHEN lock_not_available OR deadlock_detected THEN
    NULL;
  END;
  BEGIN
    ended := sweep_sessions(p_defaults, now);
  EXCEPTION WHEN lock_not_available OR deadlock_detected THEN
    NULL;
  END;
  BEGIN
    forgotten := forget_idempotency_keys(ARRAY(
      SELECT t.ctid FROM idempotency t WHERE t.until <= now ORDER BY t.until LIMIT 10000 FOR UPDATE SKIP LOCKED));
  EXCEPTION WHEN lock_not_available OR deadlock_detected THEN
    NULL;
  END;
  BEGIN
    folded := fold_tally();
  EXCEPTION WHEN lock_not_available OR deadlock_detected THEN
    NULL;
  END;
  BEGIN
    purged := clean_purges(p_defaults, now, 10000);
  EXCEPTION WHEN lock_not_available OR deadlock_detected THEN
    NULL;
  END;
  BEGIN
    PERFORM forget_names(now);
  EXCEPTION WHEN lock_not_available OR deadlock_detected THEN
    NULL;
  END;
END
$$;
