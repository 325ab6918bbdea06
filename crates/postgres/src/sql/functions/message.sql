-- Reading messages.

DO $$
BEGIN
  IF to_regtype('message_row') IS NULL THEN
    -- `state`: 1 scheduled, 2 ready, 3 leased, 4 dead; null if there is a `code`.
    CREATE TYPE message_row AS (item int, code text, info text, state smallint, id uuid, number bigint, due bigint,
      priority bigint, created bigint, key bytea, headers jsonb, lease_own bigint, max_attempts bigint, expires bigint,
      attempts int, takes int, lapses int, releases int, buries int, revives int, last_error bytea, token uuid, deadline bigint,
      lease_ms bigint, session bigint, holder text, reason smallint, died bigint, since bigint, taken_at bigint,
      body bytea, keyless boolean);
  END IF;
END
$$;

CREATE OR REPLACE FUNCTION row_of(p_item int, p_state int, s standing, b body, p_taken_at bigint) RETURNS message_row
LANGUAGE sql IMMUTABLE AS $$
  SELECT ROW(p_item, '', NULL, p_state, s.id, b.number, s.due, s.priority, b.created, CASE WHEN s.keyed THEN b.key END,
    b.headers, s.lease_own, s.max_attempts, s.expires, s.attempts, s.takes, coalesce(s.lapses, 0), coalesce(s.releases, 0),
    coalesce(s.buries, 0), coalesce(s.revives, 0), s.last_error, s.token, s.deadline, s.lease_ms, s.session, s.holder, s.reason, s.died,
    greatest(s.since, s.due), p_taken_at, b.body,
    s.keyed IS NULL AND b.key IS NOT NULL)::message_row
$$;

-- The state of a message as of now, whatever its row says: lapsed leases and passed expiries are applied, but nothing is
-- written or locked. State 0: no such message.
CREATE OR REPLACE FUNCTION seen(p_qid bigint, p_home bigint, p_id uuid, settings jsonb, now bigint,
  OUT state int, OUT s standing) RETURNS record
LANGUAGE plpgsql AS $$
DECLARE
  p pend;
  most bigint;
  round int := 0;
BEGIN
  state := 0;
  IF slot_in(p_id) > 64 THEN
    RETURN;
  END IF;
  -- Twice, since the message may be moving from one table to the other.
  WHILE round < 2 LOOP
    round := round + 1;
    SELECT * INTO p FROM pend x
      WHERE x.slot = slot_in(p_id)::smallint AND x.home = p_home AND x.lane IN (0, 1) AND x.id = p_id;
    IF FOUND THEN
      s := fresh(p);
      state := 1;
      EXIT;
    END IF;
    SELECT * INTO s FROM standing x WHERE x.id = p_id;
    IF FOUND THEN
      IF s.qid <> p_qid OR (s.part BETWEEN 3 AND 5 AND s.home <> p_home
        AND NOT (s.home = ANY (left_homes(p_qid)) AND is_spared(s.xid, s.id, last_purge(p_qid)))) THEN
        RETURN;
      END IF;
      state := CASE WHEN s.part < 3 THEN 3 WHEN s.part < 6 THEN 1 ELSE 4 END;
      EXIT;
    END IF;
  END LOOP;
  IF state = 0 AND cardinality(left_homes(p_qid)) > 0 THEN
    -- A purge may have spared it, and maintenance not have come to it.
    SELECT * INTO p FROM pend x
      WHERE x.slot = slot_in(p_id)::smallint AND x.home = ANY (left_homes(p_qid)) AND x.lane IN (0, 1) AND x.id = p_id;
    IF FOUND AND is_spared(p.xid, p.id, last_purge(p_qid)) THEN
      s := fresh(p);
      state := 1;
    END IF;
  END IF;
  IF state = 3 AND s.deadline <= now THEN
    most := coalesce(s.max_attempts, (settings->>'max_attempts')::bigint);
    state := 1;
    IF most > 0 AND s.attempts + 1 >= most THEN
      s.attempts := s.attempts + 1;
      s.lapses := coalesce(s.lapses, 0) + 1;
      state := 4; s.reason := 1; s.died := s.deadline;
    ELSE
      s := lapsed(s, s.deadline, settings);
    END IF;
    s.token := NULL; s.deadline := NULL; s.lease_ms := NULL; s.session := NULL; s.holder := NULL;
  END IF;
  IF state = 1 AND s.expires <= now THEN
    IF settings->>'on_expiry' = 'drop' THEN
      state := 0;
      RETURN;
    END IF;
    state := 4; s.reason := 3; s.died := s.expires;
  END IF;
  IF state = 4 AND s.died <= now - (settings->>'dead_ttl')::bigint THEN
    state := 0;
  ELSIF state = 1 AND s.due <= now THEN
    state := 2;
  END IF;
END
$$;

-- Hands out one message, in any state and even if its queue is paused; a later due instant becomes now. `p_counts`:
-- whether to check the caps of the store.
CREATE OR REPLACE FUNCTION take_id_1(p_queue text, p_id uuid, p_lease bigint, p_session bigint, p_holder text, p_counts boolean,
  p_defaults jsonb)
RETURNS SETOF message_row
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT SET plan_cache_mode = force_generic_plan
SET jit = off SET enable_seqscan = off SET lock_timeout = '1s' AS $$
DECLARE
  f record;
  h record;
  s standing;
  b body;
  r message_row;
  owner uuid;
  now bigint;
  most bigint;
BEGIN
  PERFORM limit_waits(p_defaults);
  LOCK TABLE ONLY standing IN ROW EXCLUSIVE MODE;
  IF p_session IS NOT NULL AND NOT EXISTS (SELECT FROM session x WHERE x.session = p_session) THEN
    PERFORM refuse('session_lost');
  END IF;
  f := facts_of(p_queue, p_defaults);
  SELECT * INTO b FROM body x WHERE x.number = number_of(p_id) AND x.slot = slot_in(p_id)::smallint;
  IF b.key IS NOT NULL THEN
    -- The key is locked before the message, as in puts.
    PERFORM FROM key x WHERE x.qid = f.qid AND x.key = b.key FOR UPDATE;
  END IF;
  now := clock_ms();
  h := hold(f.qid, f.home, p_id, f.settings, now);
  s := h.s;
  r.item := 1;
  IF h.place = 0 THEN
    r.code := 'message_not_found';
  ELSIF h.place = 3 THEN
    r.code := 'leased'; r.info := p_id;
  ELSIF h.place = 4 AND s.keyed THEN
    owner := claim_key(f.qid, f.home, f.settings, s.id, b.key, now);
    IF owner IS NOT NULL THEN
      r.code := 'key_taken'; r.info := owner;
    END IF;
  END IF;
  IF r.code IS NULL THEN
    PERFORM lapse_some(f.qid, f.home, f.settings, now, 0, 1000);
    most := least((f.settings->>'max_leased')::bigint, CASE WHEN p_counts THEN (f.settings->>'limit_leased_queue')::bigint END);
    IF most IS NOT NULL AND (count_of(f.qid)).leased >= most THEN
      r.code := 'too_many_leased'; r.info := most;
    ELSIF p_counts AND leased_1() >= (f.settings->>'limit_leased')::bigint THEN
      PERFORM lapse_all(p_defaults, now);
      IF leased_1() >= (f.settings->>'limit_leased')::bigint THEN
        r.code := 'too_many_leased'; r.info := f.settings->>'limit_leased';
      END IF;
    END IF;
  END IF;
  IF h.place = 4 AND give_up_discarded(f.qid, p_id) THEN
    r.code := 'message_not_found'; r.info := NULL;
  END IF;
  IF r.code IS NOT NULL THEN
    RETURN NEXT r;
    RETURN;
  END IF;
  PERFORM unfile(s, h.place);
  IF h.place = 4 THEN
    s := revived(s, least(s.due, now), now);
    -- Revived and taken in one step: the lateness counts from the same instant as before.
    s.since := coalesce((h.s).since, b.created);
  END IF;
  s.due := least(s.due, now);
  s.part := part_now(0, now);
  s.home := NULL; s.lane := NULL; s.rank := NULL; s.xid := NULL; s.reason := NULL; s.died := NULL;
  s.takes := s.takes + 1;
  s.token := new_token(s.part);
  s.lease_ms := coalesce(p_lease, s.lease_own, (f.settings->>'lease')::bigint);
  s.deadline := least(now + s.lease_ms, 253402300799999);
  s.session := p_session; s.holder := p_holder; s.key_hash := NULL;
  INSERT INTO standing SELECT (s).*;
  PERFORM count_up(f.qid, f.qid, 0, 1, 0);
  r := row_of(1, 3, s, b, now);
  RETURN NEXT r;
END
$$;

-- The youngest dead message that had a key, as of now: by (death, id).
CREATE OR REPLACE FUNCTION dead_by_key(p_qid bigint, p_home bigint, p_key bytea, settings jsonb, now bigint) RETURNS uuid
LANGUAGE plpgsql AS $$
DECLARE
  c record;
  best uuid;
  death bigint := -1;
  owner uuid := (SELECT k.id FROM key k WHERE k.qid = p_qid AND k.key = p_key);
  v record;
BEGIN
  -- The owner of the key may have expired without having been noticed yet.
  IF owner IS NOT NULL THEN
    v := seen(p_qid, p_home, owner, settings, now);
    IF v.state = 4 AND (v.s).keyed THEN
      best := owner; death := (v.s).died;
    END IF;
  END IF;
  FOR c IN
    SELECT s.id, s.died FROM standing_6 s WHERE s.qid = p_qid AND s.key_hash = hash_of(p_key) ORDER BY s.died DESC, s.id DESC
  LOOP
    EXIT WHEN c.died < death OR c.died <= now - (settings->>'dead_ttl')::bigint;
    IF p_key = (SELECT b.key FROM body b WHERE b.number = number_of(c.id) AND b.slot = slot_in(c.id)::smallint) THEN
      IF c.died > death OR c.id > best THEN
        best := c.id;
      END IF;
      EXIT;
    END IF;
  END LOOP;
  RETURN best;
END
$$;

-- Reads messages by id or key. `p_dead`: if no live message has the key, reads the youngest dead one that had it.
CREATE OR REPLACE FUNCTION get_1(p_queue text, p_id uuid[], p_key bytea[], p_dead boolean, p_defaults jsonb) RETURNS SETOF message_row
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT SET plan_cache_mode = force_generic_plan
SET jit = off SET enable_seqscan = off AS $$
DECLARE
  f record := facts_of(p_queue, p_defaults);
  now bigint := clock_ms();
  v record;
  b body;
  r message_row;
  is_known boolean := is_known(p_queue, f.qid, f.own, now);
  target uuid;
BEGIN
  FOR at IN 1 .. greatest(cardinality(p_id), cardinality(p_key)) LOOP
    r := NULL;
    r.item := at;
    target := coalesce(p_id[at], (SELECT k.id FROM key k WHERE k.qid = f.qid AND k.key = p_key[at]));
    v := seen(f.qid, f.home, target, f.settings, now);
    IF p_key[at] IS NOT NULL AND (coalesce(v.state, 0) IN (0, 4) OR (v.s).keyed IS NULL) THEN
      target := CASE WHEN p_dead THEN dead_by_key(f.qid, f.home, p_key[at], f.settings, now) END;
      v := seen(f.qid, f.home, target, f.settings, now);
    END IF;
    IF target IS NULL OR coalesce(v.state, 0) = 0 THEN
      r.code := CASE WHEN is_known THEN 'message_not_found' ELSE 'unknown_queue' END;
    ELSE
      SELECT * INTO b FROM body x WHERE x.number = number_of(target) AND x.slot = slot_in(target)::smallint;
      r := row_of(at, v.state, v.s, b, now);
    END IF;
    RETURN NEXT r;
  END LOOP;
END
$$;

-- Whether a queue has messages or settings of its own. A pause that is over does not count.
CREATE OR REPLACE FUNCTION is_known(p_queue text, p_qid bigint, p_own jsonb, now bigint) RETURNS boolean
LANGUAGE plpgsql STABLE AS $$
DECLARE
  c record;
BEGIN
  IF p_own IS NOT NULL AND p_own <> '{}'
    AND NOT (p_own - 'pause' = '{}' AND (p_own->>'pause')::bigint BETWEEN 1 AND now) THEN
    RETURN true;
  END IF;
  c := count_of(p_qid);
  RETURN c.pending > 0 OR c.leased > 0 OR c.dead > 0;
END
$$;

-- Finds messages by number, in any queue, by the index of each slot.
CREATE OR REPLACE FUNCTION locate_1(p_number bigint[], p_defaults jsonb)
RETURNS TABLE (item int, queue text, id uuid)
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT SET plan_cache_mode = force_generic_plan
SET jit = off SET enable_seqscan = off AS $$
#variable_conflict use_column
DECLARE
  b record;
  f record;
  now bigint := clock_ms();
BEGIN
  FOR at IN 1 .. cardinality(p_number) LOOP
    FOR b IN SELECT x.qid, x.due, x.slot, x.number FROM body x WHERE x.number = p_number[at] LOOP
      SELECT q.name INTO queue FROM queue q WHERE q.qid = b.qid LIMIT 1;
      f := facts_of(queue, p_defaults);
      id := id_of(b.due, b.slot, b.number);
      item := at;
      IF (seen(f.qid, f.home, id, f.settings, now)).state > 0 THEN
        RETURN NEXT;
      END IF;
    END LOOP;
  END LOOP;
END
$$;

-- A page of the messages in a state, by (due, id), after a cursor; it ends when the bodies exceed `p_bytes`, but has at
-- least one message if there is one. If there is more, the last row has no item, and has the cursor of the next page.
CREATE OR REPLACE FUNCTION list_1(p_queue text, p_state int, p_after_due bigint, p_after uuid, p_max int, p_bytes bigint,
  p_defaults jsonb)
RETURNS SETOF message_row
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET jit = off AS $$
DECLARE
  f record := facts_of(p_queue, p_defaults);
  now bigint := clock_ms();
  low bigint := coalesce(p_after_due, -1);
  after uuid := coalesce(p_after, '00000000-0000-0000-0000-000000000000');
  ids uuid[];
  from_ uuid;
  to_ uuid;
  bytes bigint := 0;
  b body;
  v record;
  one uuid;
  r message_row;
  at int := 0;
  is_cut boolean := false;
  last uuid;
  last_due bigint;
  moved_low bigint;
  moved_after uuid;
  moved_high bigint;
BEGIN
  IF NOT is_known(p_queue, f.qid, f.own, now) THEN
    PERFORM refuse('unknown_queue');
  END IF;
  IF is_behind(f.qid, f.home, f.settings, now) THEN
    RETURN;
  END IF;
  PERFORM retain_some(f.qid, f.settings, now, 10000);
  IF p_state < 3 THEN
    from_ := CASE p_state WHEN 1 THEN first_id(now + 1) ELSE first_id(0) END;
    to_ := CASE p_state WHEN 1 THEN 'ffffffff-ffff-ffff-ffff-ffffffffffff' ELSE first_id(now + 1) END;
    -- The id of an untouched message begins with its due instant; the cursor may be a message of either table.
    IF low >= 0 THEN
      from_ := greatest(from_, CASE WHEN due_of(after) = low THEN after ELSE first_id(low) END);
    END IF;
    -- In `standing`, scheduled messages come after all that are due by now.
    moved_low := CASE WHEN p_state = 1 AND low <= now THEN now ELSE low END;
    moved_after := CASE WHEN p_state = 1 AND low <= now THEN 'ffffffff-ffff-ffff-ffff-ffffffffffff' ELSE after END;
    moved_high := CASE p_state WHEN 1 THEN 9223372036854775807 ELSE now END;
    ids := ARRAY(
      SELECT x.id FROM (
        (SELECT due_of(p.id) AS due, p.id FROM pend p WHERE p.home = f.home AND p.lane = 0 AND p.id >= from_ AND p.id < to_
          AND (low < 0 OR (due_of(p.id), p.id) > (low, after)) ORDER BY p.id LIMIT p_max + 1)
        UNION ALL
        (SELECT due_of(p.id) AS due, p.id FROM pend p WHERE p.home = f.home AND p.lane = 1 AND p.id >= from_ AND p.id < to_
          AND (low < 0 OR (due_of(p.id), p.id) > (low, after)) ORDER BY p.id LIMIT p_max + 1)
        UNION ALL
        (SELECT s.due, s.id FROM standing s WHERE s.part BETWEEN 3 AND 5 AND s.home = f.home
          AND (s.due, s.id) > (moved_low, moved_after) AND s.due <= moved_high
          ORDER BY s.due, s.id LIMIT p_max + 1)
      ) x ORDER BY x.due, x.id LIMIT p_max + 1);
  ELSIF p_state = 3 THEN
    ids := ARRAY(SELECT s.id FROM standing s WHERE s.part < 3 AND s.qid = f.qid AND (s.due, s.id) > (low, after)
      ORDER BY s.due, s.id LIMIT p_max + 1);
  ELSE
    ids := ARRAY(SELECT s.id FROM standing_6 s WHERE s.qid = f.qid AND (s.due, s.id) > (low, after)
      ORDER BY s.due, s.id LIMIT p_max + 1);
  END IF;
  is_cut := cardinality(ids) > p_max;
  FOREACH one IN ARRAY ids[1 : p_max] LOOP
    v := seen(f.qid, f.home, one, f.settings, now);
    -- Expired but not swept yet: left out here, and listed among the dead within a minute.
    IF v.state <> p_state THEN
      last := one; last_due := coalesce((v.s).due, due_of(one));
      CONTINUE;
    END IF;
    SELECT * INTO b FROM body x WHERE x.number = number_of(one) AND x.slot = slot_in(one)::smallint;
    bytes := bytes + octet_length(b.body);
    IF bytes > p_bytes AND at > 0 THEN
      is_cut := true;
      EXIT;
    END IF;
    at := at + 1;
    r := row_of(at, v.state, v.s, b, now);
    RETURN NEXT r;
    last := one; last_due := r.due;
  END LOOP;
  IF last IS NOT NULL AND is_cut THEN
    r := NULL;
    r.id := last;
    r.due := last_due;
    RETURN NEXT r;
  END IF;
END
$$;

-- The first message of a state: of the ready ones the next to be handed out, of
-- the dead ones the first that died, of others the first by (due, id).
CREATE OR REPLACE FUNCTION peek_1(p_queue text, p_state int, p_defaults jsonb) RETURNS SETOF message_row
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET jit = off AS $$
DECLARE
  f record := facts_of(p_queue, p_defaults);
  now bigint := clock_ms();
  slots smallint[];
  found head[];
  one uuid;
  v record;
  b body;
BEGIN
  IF NOT is_known(p_queue, f.qid, f.own, now) THEN
    PERFORM refuse('unknown_queue');
  ELSIF p_state IN (1, 3) THEN
    RETURN QUERY SELECT * FROM list_1(p_queue, p_state, NULL, NULL, 1, 1, p_defaults) l WHERE l.item IS NOT NULL;
    RETURN;
  END IF;
  IF is_behind(f.qid, f.home, f.settings, now) THEN
    RETURN;
  END IF;
  PERFORM retain_some(f.qid, f.settings, now, 10000);
  IF p_state = 2 THEN
    slots := slots_at(now);
    PERFORM ripen(f.home, f.settings, 0, now, 1000, slots);
    found := heads(ARRAY[f.home], ARRAY[0]::bigint[], now, 1, NULL, slots, now);
    one := found[1].id;
  ELSE
    SELECT s.id INTO one FROM standing_6 s WHERE s.qid = f.qid
      AND coalesce(s.died > now - (f.settings->>'dead_ttl')::bigint, true) ORDER BY s.died, s.id LIMIT 1;
  END IF;
  IF one IS NOT NULL THEN
    v := seen(f.qid, f.home, one, f.settings, now);
    SELECT * INTO b FROM body x WHERE x.number = number_of(one) AND x.slot = slot_in(one)::smallint;
    RETURN NEXT row_of(1, v.state, v.s, b, now);
  END IF;
END
$$;
