-- What no call waits for: counts are folded, what is over is removed, space is given back. Any process may call it at any time,
-- and several may; each step takes a slice and passes over what others hold.

-- Removes what a purge has removed, at most `most` rows, and brings over what it spared.
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
  -- What came from another cluster has its transactions' ids from there.
  old bigint := (SELECT l.old_numbers FROM layout l);
BEGIN
  -- A purge that was rolled back has used an epoch up, which transactions of one snapshot would wait for.
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
        IF p.xid = last.xid OR number_of(p.id) <= old OR pg_visible_in_snapshot(p.xid, last.snapshot) THEN
          IF s.keyed THEN
            PERFORM free_key(s.qid, s.id);
          END IF;
        ELSE
          PERFORM file_pending(s, last.next, f.settings, now);
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
      IF s.xid = last.xid OR number_of(s.id) <= old OR pg_visible_in_snapshot(s.xid, last.snapshot) THEN
        IF s.keyed THEN
          PERFORM free_key(s.qid, s.id);
        END IF;
      ELSE
        PERFORM file_pending(s, last.next, f.settings, now);
      END IF;
      done := done + 1;
    END LOOP;
    IF c.seen IS NULL THEN
      UPDATE purge SET seen = pg_current_xact_id() WHERE qid = c.qid AND generation = c.generation;
    ELSIF seen = 0 AND done < most AND pg_snapshot_xmin(pg_current_snapshot()) > c.seen
      AND NOT EXISTS (SELECT FROM pend x WHERE x.home = c.home)
      AND NOT EXISTS (SELECT FROM standing x WHERE x.part BETWEEN 3 AND 5 AND x.home = c.home) THEN
      UPDATE purge SET is_done = true WHERE qid = c.qid AND generation = c.generation;
      WITH gone AS (DELETE FROM tally t WHERE t.qid = c.qid AND t.home = c.home RETURNING t.leased, t.dead, t.tokens)
        INSERT INTO tally SELECT c.qid, c.qid, 0, sum(g.leased), sum(g.dead), sum(g.tokens) FROM gone g
        HAVING sum(g.leased) <> 0 OR sum(g.dead) <> 0 OR sum(g.tokens) <> 0;
      DELETE FROM purge x WHERE x.qid = c.qid AND x.is_done AND x.generation < last.generation;
    END IF;
    EXIT WHEN done >= most;
  END LOOP;
  RETURN done;
END
$$;

-- Gives the space of slots and parts back that have nothing left. `sealed`: whatever is due before it is visible by now or will
-- never be. Who holds a lock on a table keeps it for this time, and nobody waits longer than `lock_timeout` for us.
CREATE OR REPLACE FUNCTION give_back(now bigint, sealed bigint) RETURNS int
LANGUAGE plpgsql AS $$
DECLARE
  t record;
  span record;
  epoch bigint;
  quiet bigint;
  is_empty boolean;
  given int := 0;
BEGIN
  PERFORM set_config('lock_timeout', '20ms', true);
  FOR t IN SELECT s.slot, s.quiet_until FROM slot s WHERE s.slot > 0 AND s.quiet_until <= now ORDER BY s.slot LOOP
    span := span_of(t.slot);
    -- The first epoch of this slot that is not over.
    epoch := sealed / span.ms;
    epoch := epoch + (t.slot - span.first - epoch % span.turns + span.turns) % span.turns;
    quiet := epoch * span.ms;
    CONTINUE WHEN quiet <= t.quiet_until OR quiet <= now;
    EXECUTE format('SELECT NOT EXISTS (SELECT FROM pend_%s)', t.slot) INTO is_empty;
    CONTINUE WHEN NOT is_empty;
    UPDATE slot SET quiet_until = quiet WHERE slot = t.slot;
  END LOOP;
  FOR t IN SELECT s.slot FROM slot s WHERE s.slot > 0 AND s.quiet_until > now
    AND (pg_relation_size('body_' || s.slot) > 0 OR pg_relation_size('pend_' || s.slot) > 0)
    AND NOT EXISTS (SELECT FROM standing x WHERE slot_in(x.id) = s.slot)
  LOOP
    BEGIN
      EXECUTE format('LOCK TABLE pend_%1$s, body_%1$s IN ACCESS EXCLUSIVE MODE', t.slot);
      EXECUTE format('SELECT NOT EXISTS (SELECT FROM pend_%s)', t.slot) INTO is_empty;
      IF is_empty AND NOT EXISTS (SELECT FROM standing x WHERE slot_in(x.id) = t.slot) THEN
        EXECUTE format('TRUNCATE pend_%1$s, body_%1$s', t.slot);
        given := given + 1;
      END IF;
    EXCEPTION WHEN lock_not_available THEN
      NULL;
    END;
  END LOOP;
  FOR t IN SELECT g.part FROM generate_series(0, 5) AS g (part)
    WHERE g.part <> part_now(g.part / 3 * 3, now) AND pg_relation_size('standing_' || g.part) > 0
  LOOP
    BEGIN
      IF t.part = part_now(t.part / 3 * 3, now + 600000) THEN
        -- Its turn is next. What is left in it is brought over, if it is little.
        EXECUTE format('WITH left_ AS (SELECT s.ctid AS tid FROM standing_%1$s s LIMIT 1000 FOR UPDATE SKIP LOCKED), '
          'gone AS (DELETE FROM standing_%1$s WHERE ctid = ANY (ARRAY(SELECT l.tid FROM left_ l)) RETURNING *) '
          'INSERT INTO standing SELECT (jsonb_populate_record(ROW(g.*)::standing, jsonb_build_object(''part'', %2$s))).* FROM gone g',
          t.part, part_now(t.part / 3 * 3, now));
      END IF;
      EXECUTE format('SELECT NOT EXISTS (SELECT FROM standing_%s)', t.part) INTO is_empty;
      CONTINUE WHEN NOT is_empty;
      EXECUTE format('LOCK TABLE standing_%s IN ACCESS EXCLUSIVE MODE', t.part);
      EXECUTE format('SELECT NOT EXISTS (SELECT FROM standing_%s)', t.part) INTO is_empty;
      IF is_empty THEN
        EXECUTE format('TRUNCATE standing_%s', t.part);
        given := given + 1;
      END IF;
    EXCEPTION WHEN lock_not_available THEN
      NULL;
    END;
  END LOOP;
  RETURN given;
END
$$;

-- Discards what is past retention, where a queue has one of its own or by default.
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

-- Says how much it did; nothing is written where nothing is to do.
CREATE OR REPLACE FUNCTION maintain_1(p_sealed bigint, p_defaults jsonb, OUT expired int, OUT forgotten int, OUT folded int, OUT purged int,
  OUT given_back int, OUT ended int) RETURNS record
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT SET jit = off SET lock_timeout = '20ms' AS $$
DECLARE
  now bigint := clock_ms();
BEGIN
  expired := expire_all(p_defaults, now, 1000);
  PERFORM retain_all(p_defaults, now);
  ended := sweep_sessions(p_defaults, now);
  forgotten := forget_tokens(ARRAY(
    SELECT t.ctid FROM token t WHERE t.until <= now ORDER BY t.until LIMIT 10000 FOR UPDATE SKIP LOCKED));
  folded := 0;
  IF (SELECT count(*) - count(DISTINCT (t.qid, t.home)) > 100 FROM tally t) THEN
    WITH gone AS (
      DELETE FROM tally WHERE ctid = ANY (ARRAY(SELECT t.ctid FROM tally t LIMIT 100000 FOR UPDATE SKIP LOCKED)) RETURNING *
    ), kept AS (
      INSERT INTO tally SELECT g.qid, g.home, sum(g.pending), sum(g.leased), sum(g.dead), sum(g.tokens) FROM gone g GROUP BY 1, 2
      HAVING sum(g.pending) <> 0 OR sum(g.leased) <> 0 OR sum(g.dead) <> 0 OR sum(g.tokens) <> 0
    ) SELECT count(*) INTO folded FROM gone;
  END IF;
  purged := clean_purges(p_defaults, now, 10000);
  DELETE FROM queue q WHERE EXISTS (SELECT FROM queue o WHERE o.qid = q.qid AND o.ctid < q.ctid);
  given_back := give_back(now, p_sealed);
END
$$;
