-- Sessions: processes and connections whose leases end with them. A process sends heartbeats only while it holds such leases.

-- How long a session lives after a heartbeat, in ms.
CREATE OR REPLACE FUNCTION session_ms() RETURNS bigint
LANGUAGE sql IMMUTABLE AS $$ SELECT 15000::bigint $$;

-- Ends the leases of a session: as if they had run out now, or released without spending an attempt. A lease that an open
-- transaction settles is skipped, and ends by its deadline.
CREATE OR REPLACE FUNCTION end_leases(p_session bigint, now bigint, is_release boolean, p_defaults jsonb) RETURNS int
LANGUAGE plpgsql AS $$
DECLARE
  s standing;
  f record;
  ended int := 0;
BEGIN
  FOR s IN SELECT * FROM standing x WHERE x.part IN (0, 1, 2) AND x.session = p_session FOR UPDATE SKIP LOCKED LOOP
    f := facts_of((SELECT q.name FROM queue q WHERE q.qid = s.qid LIMIT 1), p_defaults);
    PERFORM unfile(s, 3);
    IF s.deadline <= now THEN
      PERFORM lapse(s, s.deadline, f.home, f.settings, now);
    ELSIF is_release THEN
      s.releases := coalesce(s.releases, 0) + 1;
      s.since := now;
      PERFORM file_pending(s, f.settings, now);
    ELSE
      PERFORM lapse(s, now, f.home, f.settings, now);
    END IF;
    ended := ended + 1;
  END LOOP;
  RETURN ended;
END
$$;

-- Begins a session and returns its number. An earlier session of the same name ends, with its leases.
CREATE OR REPLACE FUNCTION begin_session_1(p_client text, p_defaults jsonb) RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT SET plan_cache_mode = force_generic_plan
SET jit = off SET enable_seqscan = off SET lock_timeout = '1s' AS $$
DECLARE
  made bigint;
BEGIN
  PERFORM limit_waits(p_defaults);
  PERFORM check_place();
  made := nextval('sessions');
  PERFORM end_client_1(p_client, p_defaults);
  INSERT INTO session VALUES (made, p_client, clock_ms() + session_ms());
  RETURN made;
END
$$;

-- Records a heartbeat. Returns false if the session was taken for dead: its leases have ended, and it has to begin anew.
-- A heartbeat inserts a row, so that no row is updated again and again.
CREATE OR REPLACE FUNCTION beat_1(p_session bigint) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT SET plan_cache_mode = force_generic_plan
SET jit = off SET enable_seqscan = off SET lock_timeout = '1s' AS $$
DECLARE
  was session;
BEGIN
  PERFORM limit_waits(NULL);
  -- A sweep that ends the session removes the rows found here, so one of the two waits for the other.
  SELECT * INTO was FROM session s WHERE s.session = p_session ORDER BY s.alive_until DESC LIMIT 1 FOR UPDATE;
  IF NOT FOUND THEN
    RETURN false;
  END IF;
  INSERT INTO session VALUES (p_session, was.client, clock_ms() + session_ms());
  DELETE FROM session s WHERE s.session = p_session AND s.alive_until <= was.alive_until;
  RETURN true;
END
$$;

-- Whether a session holds any lease.
CREATE OR REPLACE FUNCTION holds_1(p_session bigint) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT SET plan_cache_mode = force_generic_plan
SET jit = off SET enable_seqscan = off AS $$
BEGIN
  RETURN EXISTS (SELECT FROM standing x WHERE x.part IN (0, 1, 2) AND x.session = p_session);
END
$$;

-- A process with this name begins: earlier sessions of the name end, with their leases.
CREATE OR REPLACE FUNCTION end_client_1(p_client text, p_defaults jsonb) RETURNS int
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT SET plan_cache_mode = force_generic_plan
SET jit = off SET enable_seqscan = off SET lock_timeout = '1s' AS $$
DECLARE
  now bigint := clock_ms();
  old bigint;
  ended int := 0;
BEGIN
  PERFORM limit_waits(p_defaults);
  FOR old IN SELECT DISTINCT s.session FROM session s WHERE s.client = p_client COLLATE "C" LOOP
    DELETE FROM session s WHERE s.session = old;
    ended := ended + end_leases(old, now, false, p_defaults);
  END LOOP;
  RETURN ended;
END
$$;

-- A session ends in order: its leases are released, and no attempt is spent.
CREATE OR REPLACE FUNCTION end_session_1(p_session bigint, p_defaults jsonb) RETURNS int
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT SET plan_cache_mode = force_generic_plan
SET jit = off SET enable_seqscan = off SET lock_timeout = '1s' AS $$
BEGIN
  PERFORM limit_waits(p_defaults);
  DELETE FROM session s WHERE s.session = p_session;
  RETURN end_leases(p_session, clock_ms(), true, p_defaults);
END
$$;

-- Ends the sessions whose last heartbeat is too old.
CREATE OR REPLACE FUNCTION sweep_sessions(p_defaults jsonb, now bigint) RETURNS int
LANGUAGE plpgsql AS $$
DECLARE
  dead bigint;
  ended int := 0;
BEGIN
  FOR dead IN
    SELECT s.session FROM session s WHERE s.alive_until <= now
      AND NOT EXISTS (SELECT FROM session o WHERE o.session = s.session AND o.alive_until > now)
    FOR UPDATE SKIP LOCKED
  LOOP
    -- Checked again with a new snapshot: a heartbeat may have arrived while the old row was locked.
    CONTINUE WHEN EXISTS (SELECT FROM session o WHERE o.session = dead AND o.alive_until > now);
    DELETE FROM session s WHERE s.session = dead;
    ended := ended + end_leases(dead, now, false, p_defaults);
  END LOOP;
  -- Leases that were granted while their session ended.
  FOR dead IN
    SELECT DISTINCT x.session FROM standing x WHERE x.part IN (0, 1, 2) AND x.session IS NOT NULL
      AND NOT EXISTS (SELECT FROM session s WHERE s.session = x.session)
  LOOP
    ended := ended + end_leases(dead, now, false, p_defaults);
  END LOOP;
  RETURN ended;
END
$$;
