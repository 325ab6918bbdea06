-- What a process calls when it opens the store.

-- The identity of this database: cluster, timeline and database. A part that cannot be read is left out.
CREATE OR REPLACE FUNCTION whereabouts() RETURNS text
LANGUAGE plpgsql AS $$
DECLARE
  place text := (SELECT d.oid FROM pg_database d WHERE d.datname = current_database());
BEGIN
  BEGIN
    place := format('%s/%s/%s', (SELECT c.system_identifier FROM pg_control_system() c),
      (SELECT c.timeline_id FROM pg_control_checkpoint() c), place);
  EXCEPTION WHEN insufficient_privilege THEN
    NULL;
  END;
  RETURN place;
END
$$;

-- Makes sure that no number is used twice. In a promoted replica, a restored dump or a logical copy, the sequence may be
-- behind the messages, or behind numbers that were answered: if the place has changed since the last opening, or if a
-- stored number is beyond the sequence, the sequence leaps. Returns whether it did.
--
-- Transaction ids of another place mean nothing here: all that was put before the leap counts as committed.
CREATE OR REPLACE FUNCTION open_1(OUT version int, OUT has_leapt boolean) RETURNS record
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT SET jit = off SET enable_seqscan = off AS $$
DECLARE
  here text := whereabouts();
  was layout;
  highest bigint;
  known bigint;
BEGIN
  SELECT * INTO was FROM layout FOR UPDATE;
  version := was.version;
  highest := coalesce((SELECT max(b.number) FROM body b), 0);
  SELECT CASE WHEN n.is_called THEN n.last_value ELSE 0 END INTO known FROM numbers n;
  has_leapt := highest > known OR (was.place IS NOT NULL AND was.place <> here);
  IF has_leapt THEN
    -- Further than any copy can be behind; 2^21 such leaps fit below 2^53.
    highest := greatest(highest, known) + 4294967296;
    PERFORM setval('numbers', highest);
    UPDATE layout SET place = here, old_numbers = highest;
  ELSIF was.place IS NULL THEN
    UPDATE layout SET place = here;
  END IF;
END
$$;
