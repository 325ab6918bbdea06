-- Changes to messages that are not leased: cancel and reschedule.

-- The id of a message that is named by id or by key. A key is locked before its message, as in puts.
CREATE OR REPLACE FUNCTION meant(p_qid bigint, p_id uuid, p_key bytea) RETURNS uuid
LANGUAGE plpgsql AS $$
DECLARE
  owner uuid;
BEGIN
  IF p_key IS NULL THEN
    RETURN p_id;
  END IF;
  SELECT k.id INTO owner FROM key k WHERE k.qid = p_qid AND k.key = p_key FOR UPDATE;
  RETURN owner;
END
$$;

-- One cancel (`p_kind` null) or reschedule. `what`: cancelled, moved, leased, dead, not_found; with a `code` if it is refused.
CREATE OR REPLACE FUNCTION change_one(p_qid bigint, p_home bigint, settings jsonb, p_id uuid, p_key bytea, p_kind int,
  p_value bigint, OUT code text, OUT info text, OUT what text, OUT id uuid, OUT due bigint) RETURNS record
LANGUAGE plpgsql AS $$
DECLARE
  h record;
  i record;
  s standing;
  now_us bigint;
BEGIN
  code := '';
  now_us := clock_us();
  IF p_kind IS NOT NULL THEN
    i := instant_of(p_kind, p_value, settings, now_us);
    IF i.code <> '' THEN
      code := i.code; info := i.info;
      RETURN;
    END IF;
  END IF;
  id := meant(p_qid, p_id, p_key);
  what := 'not_found';
  IF id IS NULL THEN
    RETURN;
  END IF;
  h := hold(p_qid, p_home, id, settings, now_us / 1000);
  s := h.s;
  IF h.place = 0 OR (p_key IS NOT NULL AND (h.place = 4 OR s.keyed IS NULL)) THEN
    id := NULL;
  ELSIF h.place = 3 THEN
    what := 'leased';
  ELSIF h.place = 4 THEN
    what := 'dead';
  ELSIF p_kind IS NULL THEN
    what := 'cancelled';
    PERFORM unfile(s, h.place);
    IF s.keyed THEN
      PERFORM free_key(p_qid, s.id);
    END IF;
  ELSIF s.expires <= i.due THEN
    code := 'expires_before_due'; info := s.expires || ' ' || i.due;
  ELSE
    what := 'moved';
    due := i.due;
    PERFORM unfile(s, h.place);
    s.due := i.due;
    s.since := now_us / 1000;
    PERFORM file_pending(s, settings, now_us / 1000);
  END IF;
END
$$;

-- Cancels (`p_kind` null) or reschedules a batch of messages, each named by id or key.
CREATE OR REPLACE FUNCTION change_1(p_queue text, p_id uuid[], p_key bytea[], p_kind smallint[], p_value bigint[],
  p_defaults jsonb)
RETURNS TABLE (item int, code text, info text, what text, id uuid, due bigint)
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT SET plan_cache_mode = force_generic_plan
SET jit = off SET enable_seqscan = off SET lock_timeout = '1s' AS $$
#variable_conflict use_column
DECLARE
  f record;
  c record;
  target record;
  n int := greatest(cardinality(p_id), cardinality(p_key));
  since bigint;
BEGIN
  PERFORM limit_waits(p_defaults);
  IF NOT is_queue_name(p_queue) THEN
    PERFORM refuse('invalid_queue_name');
  END IF;
  f := facts_of(p_queue, p_defaults);
  IF n > 1 THEN
    -- Locks keys, then messages, each in order, so that concurrent batches do not deadlock.
    since := clock_ms();
    FOR target IN
      SELECT 1 AS class, u.key AS key, NULL::uuid AS id FROM unnest(p_key) AS u (key) WHERE u.key IS NOT NULL
      UNION SELECT 2, NULL, u.id FROM unnest(p_id) AS u (id) WHERE u.id IS NOT NULL
      ORDER BY 1, 2, 3
    LOOP
      BEGIN
        IF target.class = 1 THEN
          PERFORM FROM key k WHERE k.qid = f.qid AND k.key = target.key FOR UPDATE;
        ELSE
          PERFORM hold(f.qid, f.home, target.id, f.settings, clock_ms());
        END IF;
      EXCEPTION WHEN lock_not_available THEN
        PERFORM set_config('lock_timeout', '5ms', true);
      END;
      since := shorten_waits(since);
    END LOOP;
  END IF;
  FOR at IN 1 .. n LOOP
    BEGIN
      c := change_one(f.qid, f.home, f.settings, p_id[at], p_key[at], p_kind[at], p_value[at]);
      item := at; code := c.code; info := c.info; what := c.what; id := c.id; due := c.due;
    EXCEPTION WHEN lock_not_available THEN
      PERFORM set_config('lock_timeout', '5ms', true);
      item := at; code := 'busy'; info := NULL; what := NULL; id := p_id[at]; due := NULL;
    END;
    RETURN NEXT;
  END LOOP;
END
$$;

