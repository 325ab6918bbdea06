-- Dead messages: revive and discard.

-- The maximum number of dead messages that one call discards: one transaction holds their locks.
CREATE OR REPLACE FUNCTION dead_slice() RETURNS bigint
LANGUAGE sql IMMUTABLE AS $$ SELECT 100000::bigint $$;

-- Makes a revived message the owner of its key. Returns the id of the current owner, if there is one. The key must be locked.
CREATE OR REPLACE FUNCTION claim_key(p_qid bigint, p_home bigint, settings jsonb, p_id uuid, p_key bytea, now bigint)
RETURNS uuid
LANGUAGE plpgsql AS $$
DECLARE
  owner uuid;
  h record;
BEGIN
  LOOP
    INSERT INTO key VALUES (p_qid, p_key, NULL) ON CONFLICT DO NOTHING;
    SELECT k.id INTO owner FROM key k WHERE k.qid = p_qid AND k.key = p_key FOR UPDATE;
    EXIT WHEN FOUND;
  END LOOP;
  IF owner IS NOT NULL AND owner <> p_id THEN
    h := hold(p_qid, p_home, owner, settings, now);
    IF h.place IN (1, 2, 3) AND (h.s).keyed THEN
      RETURN owner;
    END IF;
  END IF;
  UPDATE key SET id = p_id WHERE qid = p_qid AND key.key = p_key;
  IF NOT FOUND THEN
    -- The owner has just expired, and has freed the key.
    INSERT INTO key VALUES (p_qid, p_key, p_id);
  END IF;
  RETURN NULL;
END
$$;

-- Whether a message that this transaction has locked as a dead one is gone: a death that the call noticed afterwards has
-- discarded it (`dead_max`), and its own lock does not keep it. Then the key that it may have claimed is given up.
CREATE OR REPLACE FUNCTION give_up_discarded(p_qid bigint, p_id uuid) RETURNS boolean
LANGUAGE plpgsql AS $$
BEGIN
  IF EXISTS (SELECT FROM standing_6 s WHERE s.qid = p_qid AND s.id = p_id) THEN
    RETURN false;
  END IF;
  PERFORM free_key(p_qid, p_id);
  RETURN true;
END
$$;

-- Drops an expiry that has passed or is before the new instant; keeps a later one.
CREATE OR REPLACE FUNCTION revived(s standing, p_due bigint, now bigint) RETURNS standing
LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
  s.due := p_due;
  s.attempts := 0;
  s.since := now;
  IF s.expires <= greatest(p_due, now) THEN
    s.expires := NULL;
  END IF;
  s.revives := coalesce(s.revives, 0) + 1;
  RETURN s;
END
$$;

-- Revives (`p_kind` not null) or discards dead messages: those named, or up to `p_most` of the oldest. `p_before` limits
-- a call that runs in slices to messages that died before its first slice began, or at that instant (`now_ms` of the
-- first slice). A slice begins after (`p_after_died`, `p_after`), the (`died`, `last`) of the slice before it, so that a
-- refused message is not met again. Returns a row per refused message; the last row has no id, and has the number of
-- processed messages and whether there may be more.
CREATE OR REPLACE FUNCTION sweep_dead_1(p_queue text, p_ids uuid[], p_most bigint, p_before bigint, p_after_died bigint,
  p_after uuid, p_kind int, p_value bigint, p_defaults jsonb)
RETURNS TABLE (id uuid, code text, info text, done bigint, is_more boolean, died bigint, last uuid, now_ms bigint)
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT SET plan_cache_mode = force_generic_plan
SET jit = off SET enable_seqscan = off SET lock_timeout = '1s' AS $$
#variable_conflict use_column
DECLARE
  f record;
  i record;
  h record;
  b_key bytea;
  owner uuid;
  ids uuid[] := p_ids;
  one uuid;
  now bigint;
  now_us bigint;
  since bigint;
BEGIN
  PERFORM limit_waits(p_defaults);
  f := facts_of(p_queue, p_defaults);
  now_us := clock_us();
  now := now_us / 1000;
  done := 0; is_more := false; now_ms := now;
  IF p_kind IS NOT NULL THEN
    i := instant_of(p_kind, p_value, f.settings, now_us);
    IF i.code <> '' THEN
      PERFORM refuse(i.code, i.info);
    END IF;
  END IF;
  IF ids IS NULL THEN
    IF is_behind(f.qid, f.home, f.settings, now) THEN
      RETURN;
    END IF;
    PERFORM retain_some(f.qid, f.settings, now, dead_slice());
    IF p_kind IS NULL THEN
      -- One statement for a slice, which readers see whole: there are no keys or refusals to check.
      WITH old AS (
        SELECT s.ctid AS tid FROM standing_6 s WHERE s.qid = f.qid AND s.died <= coalesce(p_before, now)
          -- What is past its retention is discarded for that reason.
          AND coalesce(s.died > now - (f.settings->>'dead_ttl')::bigint, true)
        ORDER BY s.died, s.id LIMIT least(p_most, dead_slice()) FOR UPDATE
      ), gone AS (
        DELETE FROM standing_6 WHERE ctid = ANY (ARRAY(SELECT o.tid FROM old o)) RETURNING 1
      ) SELECT count(*) INTO done FROM gone;
      PERFORM count_up(f.qid, f.qid, 0, 0, -done);
      PERFORM note(f.qid, 7, done);
      is_more := done = dead_slice() AND p_most > done;
      code := '';
      RETURN NEXT;
      RETURN;
    END IF;
    ids := ARRAY(SELECT s.id FROM standing s WHERE s.part = 6 AND s.qid = f.qid AND s.died <= coalesce(p_before, now)
        AND (p_after IS NULL OR (s.died, s.id) > (p_after_died, p_after))
        AND coalesce(s.died > now - (f.settings->>'dead_ttl')::bigint, true)
      ORDER BY s.died, s.id LIMIT least(p_most, 1000));
    is_more := cardinality(ids) = 1000 AND p_most > 1000;
  END IF;
  IF cardinality(ids) > 0 THEN
    last := ids[cardinality(ids)];
    SELECT s.died INTO died FROM standing s WHERE s.part = 6 AND s.id = last;
  END IF;
  since := clock_ms();
  FOREACH one IN ARRAY ids LOOP
    BEGIN
      code := '';
      info := NULL;
      b_key := NULL;
      SELECT b.key INTO b_key FROM body b WHERE b.number = number_of(one) AND b.slot = slot_in(one)::smallint;
      IF b_key IS NOT NULL THEN
        PERFORM FROM key k WHERE k.qid = f.qid AND k.key = b_key FOR UPDATE;
      END IF;
      h := hold(f.qid, f.home, one, f.settings, now);
      IF h.place = 0 THEN
        code := 'message_not_found';
      ELSIF h.place <> 4 THEN
        code := 'not_dead'; info := one;
      ELSIF p_kind IS NULL THEN
        PERFORM unfile(h.s, 4);
        PERFORM note(f.qid, 7, 1);
      ELSE
        owner := NULL;
        IF (h.s).keyed THEN
          owner := claim_key(f.qid, f.home, f.settings, one, b_key, now);
        END IF;
        IF owner IS NOT NULL THEN
          code := 'key_taken'; info := owner;
        ELSIF give_up_discarded(f.qid, one) THEN
          code := 'message_not_found';
        ELSE
          PERFORM unfile(h.s, 4);
          PERFORM file_pending(revived(h.s, i.due, now), f.settings, now);
        END IF;
      END IF;
    EXCEPTION WHEN lock_not_available THEN
      PERFORM set_config('lock_timeout', '5ms', true);
      code := 'busy';
    END;
    since := shorten_waits(since);
    IF code = '' THEN
      done := done + 1;
    ELSE
      id := one;
      RETURN NEXT;
    END IF;
  END LOOP;
  id := NULL; code := ''; info := NULL;
  RETURN NEXT;
END
$$;
