-- Removing all pending messages of a queue, in time independent of their number.

-- Removes all scheduled and ready messages that are committed: later puts go to another
-- home, and messages under the old home are gone if this transaction sees them. Puts that
-- are not committed yet are spared: `maintain_1` moves them to the new home.
CREATE OR REPLACE FUNCTION purge_queue(p_name text, p_qid bigint) RETURNS bigint
LANGUAGE plpgsql AS $$
DECLARE
  purged bigint;
  last purge;
BEGIN
  LOOP
    purged := (count_of(p_qid)).pending;
    IF purged <= 0 THEN
      RETURN 0;
    END IF;
    SELECT * INTO last FROM purge p WHERE p.qid = p_qid ORDER BY p.generation DESC LIMIT 1;
    INSERT INTO purge (qid, generation, home, next, epoch, snapshot, xid) VALUES (p_qid, coalesce(last.generation, 0) + 1, coalesce(last.next, p_qid),
      home_of(p_name, coalesce(last.generation, 0) + 1), nextval('purges'), pg_current_snapshot(),
      pg_current_xact_id())
    ON CONFLICT (qid, generation) DO NOTHING;
    -- Otherwise another transaction has purged the queue meanwhile: this one purges what was put since.
    IF FOUND THEN
      RETURN purged;
    END IF;
  END LOOP;
END
$$;

CREATE OR REPLACE FUNCTION purge_1(p_queue text, p_defaults jsonb) RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT SET plan_cache_mode = force_generic_plan
SET jit = off SET enable_seqscan = off AS $$
DECLARE
  f record := facts_of(p_queue, p_defaults);
  now bigint := clock_ms();
BEGIN
  -- Messages whose time is over are dead by now, and stay.
  IF is_behind(f.qid, f.home, f.settings, now) THEN
    RETURN NULL;
  END IF;
  RETURN purge_queue(p_queue, f.qid);
END
$$;

-- Removes all messages but the leased, and the queue's settings; `partitions` stays while messages are leased. If there
-- were more dead messages than `dead_slice`, the store has discarded the excess before.
CREATE OR REPLACE FUNCTION delete_queue_1(p_queue text, p_defaults jsonb) RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT SET plan_cache_mode = force_generic_plan
SET jit = off SET enable_seqscan = off AS $$
DECLARE
  f record := facts_of(p_queue, p_defaults);
  now bigint := clock_ms();
  removed bigint;
  dead bigint;
BEGIN
  IF is_behind(f.qid, f.home, f.settings, now) THEN
    RETURN NULL;
  END IF;
  PERFORM retain_some(f.qid, f.settings, now, dead_slice());
  removed := purge_queue(p_queue, f.qid);
  WITH gone AS (DELETE FROM standing s WHERE s.part = 6 AND s.qid = f.qid RETURNING 1) SELECT count(*) INTO dead FROM gone;
  PERFORM count_up(f.qid, f.qid, 0, 0, -dead);
  PERFORM note(f.qid, 7, dead);
  IF (count_of(f.qid)).leased > 0 AND f.own ? 'partitions'
    AND f.own->'partitions' <> (builtin_settings() || coalesce(p_defaults, '{}'))->'partitions' THEN
    UPDATE setting SET own = jsonb_build_object('partitions', own->'partitions') WHERE qid = f.qid;
  ELSE
    DELETE FROM setting WHERE qid = f.qid;
  END IF;
  RETURN removed + dead;
END
$$;
