-- The server and database that the schema lies in, and the leap of its sequences when they have changed.

-- `place` is made of cluster and database, `timeline` changes with each promotion. A part that the role may not read is left
-- out. The timeline is that of the write-ahead log: the control file has the new one only after a checkpoint.
CREATE OR REPLACE FUNCTION whereabouts(OUT place bigint, OUT timeline bigint) RETURNS record
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  words text := (SELECT d.oid FROM pg_database d WHERE d.datname = current_database());
BEGIN
  IF pg_is_in_recovery() THEN
    RAISE EXCEPTION USING ERRCODE = 'read_only_sql_transaction', MESSAGE = 'the server is a standby';
  END IF;
  timeline := 0;
  BEGIN
    timeline := ('x' || left(pg_walfile_name(pg_current_wal_lsn()), 8))::bit(32)::bigint;
    words := (SELECT c.system_identifier FROM pg_control_system() c) || '/' || words;
  EXCEPTION WHEN OTHERS THEN
    NULL;
  END;
  place := greatest(hashtextextended(words, 0) & 9223372036854775807, 1);
END
$$;

-- Makes sure that no number is used twice. In a promoted replica, a restored dump or a logical copy, sequences may be
-- behind what they have given out, or behind what is stored: they leap. Returns whether they did.
--
-- All that it changes are sequences, so it takes effect at once, for all, even if the transaction is rolled back.
CREATE OR REPLACE FUNCTION leap(here bigint, now_on bigint) RETURNS boolean
LANGUAGE plpgsql AS $$
DECLARE
  is_known boolean;
  is_here boolean;
  is_on boolean;
  highest bigint;
  known bigint;
  has_leapt boolean;
BEGIN
  BEGIN
    -- Not for the transaction, which may stay open: until it is given back below.
    PERFORM pg_advisory_lock(1685546349, hashtext(current_schema()));
    SELECT p.is_called, p.last_value = here, t.last_value = now_on INTO is_known, is_here, is_on FROM place p, timeline t;
    highest := coalesce((SELECT max(b.number) FROM body b), 0);
    SELECT CASE WHEN n.is_called THEN n.last_value ELSE 0 END INTO known FROM numbers n;
    -- A copy of the tables alone has no place.
    has_leapt := highest > known OR CASE WHEN is_known THEN NOT is_here OR NOT is_on ELSE EXISTS (SELECT FROM queue) END;
    IF has_leapt THEN
      -- Further than any copy can be behind; 2^21 such leaps fit below 2^53.
      highest := greatest(highest, known) + 4294967296;
      PERFORM setval('numbers', highest);
      IF highest - 4294967296 > known OR NOT is_known OR NOT is_here THEN
        -- Transaction ids of another place mean nothing here: all that was put before the leap counts as committed.
        PERFORM setval('old_numbers', highest);
      END IF;
      PERFORM setval('sessions', 4294967296 + greatest((SELECT s.last_value FROM sessions s), (SELECT max(s.session) FROM session s),
        (SELECT max(s.session) FROM standing s WHERE s.part IN (0, 1, 2))));
      -- Nobody remembers the number of a purge that is not stored.
      PERFORM setval('purges', p.epoch) FROM (SELECT max(p.epoch) AS epoch FROM purge p) p, purges s
        WHERE p.epoch > CASE WHEN s.is_called THEN s.last_value ELSE 0 END;
    END IF;
    IF NOT is_known OR NOT is_here OR NOT is_on THEN
      -- Last, since whoever sees these two goes on with the numbers.
      PERFORM setval('place', here), setval('timeline', now_on);
    END IF;
    PERFORM pg_advisory_unlock(1685546349, hashtext(current_schema()));
  EXCEPTION WHEN OTHERS OR query_canceled THEN
    PERFORM pg_advisory_unlock(1685546349, hashtext(current_schema()));
    RAISE;
  END;
  RETURN has_leapt;
END
$$;

-- To be called before numbers or sessions are given out: behind PgBouncer, and in callers' transactions, there is no
-- opening after a failover.
CREATE OR REPLACE FUNCTION check_place() RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
  w record := whereabouts();
BEGIN
  IF NOT EXISTS (SELECT FROM place p, timeline t WHERE p.is_called AND p.last_value = w.place AND t.last_value = w.timeline) THEN
    PERFORM leap(w.place, w.timeline);
  END IF;
END
$$;

-- A copy of the disk that goes on in place of the server has the same place and timeline, but not what was given out
-- since: the numbers leap where a process has received a higher one than was ever given out here. The caller knows
-- `p_highest`; null if it has received none.
CREATE OR REPLACE FUNCTION check_numbers(p_highest bigint) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
  known bigint;
BEGIN
  IF p_highest > (SELECT CASE WHEN n.is_called THEN n.last_value ELSE 0 END FROM numbers n) THEN
    -- As in `leap`.
    PERFORM pg_advisory_lock(1685546349, hashtext(current_schema()));
    BEGIN
      SELECT CASE WHEN n.is_called THEN n.last_value ELSE 0 END INTO known FROM numbers n;
      IF p_highest > known THEN
        PERFORM setval('numbers', p_highest + 4294967296);
        PERFORM setval('sessions', 4294967296 + s.last_value) FROM sessions s;
      END IF;
      PERFORM pg_advisory_unlock(1685546349, hashtext(current_schema()));
    EXCEPTION WHEN OTHERS OR query_canceled THEN
      PERFORM pg_advisory_unlock(1685546349, hashtext(current_schema()));
      RAISE;
    END;
  END IF;
END
$$;
