-- Ids: UUIDs of version 8 made of due (48 bits), slot (12 bits) and number (62 bits). An id says where its body lies.

CREATE OR REPLACE FUNCTION id_of(due bigint, slot int, number bigint) RETURNS uuid
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
  SELECT (pg_catalog.lpad(pg_catalog.to_hex(due << 16 | 32768 + slot), 16, '0')
    || pg_catalog.to_hex((-9223372036854775808)::bigint + number))::uuid
$$;

-- The least id of what is due at an instant.
CREATE OR REPLACE FUNCTION first_id(due bigint) RETURNS uuid
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
  SELECT (pg_catalog.lpad(pg_catalog.to_hex(due), 12, '0') || '00000000000000000000')::uuid
$$;

CREATE OR REPLACE FUNCTION due_of(id uuid) RETURNS bigint
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE AS $$
  SELECT ('x0000' || pg_catalog.encode(pg_catalog.substr(pg_catalog.uuid_send(id), 1, 6), 'hex'))::bit(64)::bigint
$$;

CREATE OR REPLACE FUNCTION slot_in(id uuid) RETURNS int
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE AS $$
  SELECT (pg_catalog.get_byte(pg_catalog.uuid_send(id), 6) & 15) * 256 + pg_catalog.get_byte(pg_catalog.uuid_send(id), 7)
$$;

CREATE OR REPLACE FUNCTION number_of(id uuid) RETURNS bigint
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE AS $$
  SELECT ('x' || pg_catalog.encode(pg_catalog.substr(pg_catalog.uuid_send(id), 9, 8), 'hex'))::bit(64)::bigint
    & 4611686018427387903
$$;

-- A queue's number: made from its name, so that nobody has to wait for whoever used the name first. `generation` counts its
-- purges: that of generation 0 is the queue's, each has a home of its own. 64 bits of SHA-256: among a million queues two are
-- alike once in forty million stores, and then the second is refused (`enter_queue`).
CREATE OR REPLACE FUNCTION home_of(name text, generation bigint) RETURNS bigint
LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE AS $$
BEGIN
  RETURN ('x' || encode(substr(sha256(convert_to(
    CASE generation WHEN 0 THEN name ELSE name || ' ' || generation END, 'UTF8')), 1, 8), 'hex'))::bit(64)::bigint;
END
$$;

-- In which slot a message lies that is due at `due`, put at `now`: the narrowest that its span fits in.
--
--   1 to 12   ten minutes each    due within an hour
--   13 to 48  an hour each        due within a day
--   49 to 64  three days each     due within 30 days
--   0         all that is later
CREATE OR REPLACE FUNCTION slot_of(due bigint, now bigint) RETURNS int
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
  SELECT CASE
    WHEN due - now < 3600000 THEN 1 + (greatest(due, now) / 600000) % 12
    WHEN due - now < 86400000 THEN 13 + (due / 3600000) % 36
    WHEN due - now < 2592000000 THEN 49 + (due / 259200000) % 16
    ELSE 0
  END::int
$$;

-- How long the span of a slot is, in milliseconds, and after how many its turn comes again; of slot 0 there is none.
CREATE OR REPLACE FUNCTION span_of(slot int, OUT ms bigint, OUT turns int, OUT first int) RETURNS record
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
  SELECT CASE WHEN slot BETWEEN 1 AND 12 THEN 600000 WHEN slot BETWEEN 13 AND 48 THEN 3600000
      WHEN slot > 48 THEN 259200000 END::bigint,
    CASE WHEN slot BETWEEN 1 AND 12 THEN 12 WHEN slot BETWEEN 13 AND 48 THEN 36 WHEN slot > 48 THEN 16 END,
    CASE WHEN slot BETWEEN 1 AND 12 THEN 1 WHEN slot BETWEEN 13 AND 48 THEN 13 WHEN slot > 48 THEN 49 END
$$;

-- 64 bits of a key, by which dead messages that had it are found. Two keys may share them: whoever finds a message compares.
CREATE OR REPLACE FUNCTION hash_of(key bytea) RETURNS bigint
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE AS $$
  SELECT ('x' || pg_catalog.encode(pg_catalog.substr(pg_catalog.sha256(key), 1, 8), 'hex'))::bit(64)::bigint
$$;

-- 64 bits of what an idempotency key stands for: the message's key and body. SHA-256, and not the SipHash of other stores, since
-- callers put in SQL too.
CREATE OR REPLACE FUNCTION digest_of(key bytea, body bytea) RETURNS bigint
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
  SELECT ('x' || pg_catalog.encode(pg_catalog.substr(pg_catalog.sha256(
    pg_catalog.int4send(coalesce(pg_catalog.octet_length(key), -1)) || coalesce(key, '') || body), 1, 8), 'hex'))::bit(64)::bigint
$$;

-- Which of three parts is written to now.
CREATE OR REPLACE FUNCTION part_now(first int, now bigint) RETURNS smallint
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$ SELECT (first + (now / 600000) % 3)::smallint $$;
