-- Layout 1: the tables. `docs/decisions/2026-11-26-postgres.md` explains their design.
--
-- Run in one transaction, with `search_path` set to the schema alone: nothing here names it.

-- One row: identifies the schema and its layout.
CREATE TABLE layout (
  is_it boolean PRIMARY KEY DEFAULT true CHECK (is_it),
  version int NOT NULL,
  product text NOT NULL DEFAULT 'dwell' CHECK (product = 'dwell')
);
INSERT INTO layout (version) VALUES (1);

-- Numbers: unique in the store, rising by call, below 2^53. No cache, so that they also rise across sessions.
CREATE SEQUENCE numbers AS bigint MINVALUE 1 MAXVALUE 9007199254740991 NO CYCLE;

-- Where the sequences were last found to be right (`leap`): cluster and database, and the timeline; and the highest number
-- that a message from another place may have. They are sequences too: changes take effect at once and lock no row.
CREATE SEQUENCE place AS bigint;
CREATE SEQUENCE timeline AS bigint MINVALUE 0 START 0;
CREATE SEQUENCE old_numbers AS bigint MINVALUE 0 START 0;

-- Names of queues. No unique index: the first put of a name would make all others wait for its commit. A name may appear
-- twice; `maintain` removes the second row. `gone`: the queue had neither messages nor settings, and the row is removed
-- when no transaction is left that may have relied on it (`forget_names`).
CREATE TABLE queue (
  qid bigint NOT NULL,
  name text COLLATE "C" NOT NULL,
  gone boolean NOT NULL DEFAULT false,
  -- A transaction that began after `gone` was set.
  seen xid8
);
CREATE INDEX queue_qid ON queue (qid);
CREATE INDEX queue_name ON queue (name);
CREATE INDEX queue_gone ON queue (qid) WHERE gone;

-- How often names were found gone: the table has it by the snapshot, the sequence as it is now.
CREATE SEQUENCE forgets AS bigint MINVALUE 0 START 0;
CREATE TABLE forgotten (
  times bigint NOT NULL
);
INSERT INTO forgotten VALUES (0);

-- A queue's own settings, by the names of `SettingName`; qid 0 has the defaults of SQL callers.
CREATE TABLE setting (
  qid bigint PRIMARY KEY,
  own jsonb NOT NULL
);
INSERT INTO setting VALUES (0, '{}');

-- Purges. After a purge, puts go to `next`; what is under `home` is gone if the snapshot of the queue's last purge sees
-- it, and the rest is moved. `is_done` is set once `maintain` has emptied `home`; the last row of each queue stays, since
-- it has the current home of the queue. `epoch` orders the purges of all queues.
CREATE SEQUENCE purges AS bigint;
CREATE TABLE purge (
  qid bigint NOT NULL,
  generation bigint NOT NULL,
  home bigint NOT NULL,
  next bigint NOT NULL,
  epoch bigint NOT NULL UNIQUE,
  snapshot pg_snapshot NOT NULL,
  -- The purge's own transaction, which its snapshot does not see: messages that it made pending again are gone too.
  xid xid8 NOT NULL,
  -- A transaction that began after this purge had committed: earlier ones may still put under `home`.
  seen xid8,
  is_done boolean NOT NULL DEFAULT false,
  PRIMARY KEY (qid, generation)
);

-- The immutable part of a message, written once. A slot holds messages that are due within one span (`slot_of`).
CREATE TABLE body (
  number bigint NOT NULL,
  due bigint NOT NULL,
  created bigint NOT NULL,
  qid bigint NOT NULL,
  priority bigint NOT NULL,
  lease_ms bigint,
  max_attempts bigint,
  expires bigint,
  slot smallint NOT NULL,
  key bytea,
  headers jsonb,
  body bytea NOT NULL,
  PRIMARY KEY (number, slot)
) PARTITION BY LIST (slot);

-- Messages that were put and not touched since, by (queue, lane, id); an id begins with its due instant. Lane 0 has the
-- default priority, lane 1 all others. A take deletes the row.
CREATE TABLE pend (
  home bigint NOT NULL,
  xid xid8 NOT NULL,
  expires bigint,
  id uuid NOT NULL,
  slot smallint NOT NULL,
  lane smallint NOT NULL,
  keyed boolean
) PARTITION BY LIST (slot);
CREATE INDEX pend_order ON pend (home, lane, id);
CREATE INDEX pend_expiry ON pend (expires) WHERE expires IS NOT NULL;

DO $$
BEGIN
  FOR slot IN 0 .. 64 LOOP
    EXECUTE format('CREATE TABLE body_%s PARTITION OF body FOR VALUES IN (%s)', slot, slot);
    EXECUTE format('CREATE TABLE pend_%s PARTITION OF pend FOR VALUES IN (%s)', slot, slot);
    -- The contents of a body column compress badly or are compressed already.
    EXECUTE format('ALTER TABLE body_%s ALTER body SET STORAGE EXTERNAL', slot);
  END LOOP;
END
$$;

-- For each slot, an instant before which no message in it is due. It changes when the slot is emptied.
CREATE TABLE slot (
  slot smallint PRIMARY KEY,
  quiet_until bigint NOT NULL
);
INSERT INTO slot SELECT generate_series(0, 64), 0;

-- Messages that were touched since their put. Parts 0 to 2 hold the leased ones, 3 to 5 the scheduled and ready ones,
-- each three in rotation, so that one can be emptied; part 6 holds the dead ones.
CREATE TABLE standing (
  qid bigint NOT NULL,
  due bigint NOT NULL,
  priority bigint NOT NULL,
  expires bigint,
  max_attempts bigint,
  lease_own bigint,
  id uuid NOT NULL,
  part smallint NOT NULL,
  keyed boolean,
  attempts int NOT NULL,
  takes int NOT NULL,
  lapses int,
  releases int,
  buries int,
  revives int,
  last_error bytea,
  -- leased
  token uuid,
  deadline bigint,
  lease_ms bigint,
  session bigint,
  holder text COLLATE "C",
  -- scheduled and ready; lane 0 has the default priority, lane 1 others that are not due, lane 2 others that are due, by rank
  home bigint,
  lane smallint,
  rank bigint,
  since bigint,
  xid xid8,
  -- dead
  reason smallint,
  died bigint,
  -- the hash of its key, if it has one: dead messages are found by it
  key_hash bigint,
  PRIMARY KEY (id, part)
) PARTITION BY LIST (part);
DO $$
BEGIN
  FOR part IN 0 .. 6 LOOP
    EXECUTE format('CREATE TABLE standing_%s PARTITION OF standing FOR VALUES IN (%s)', part, part);
  END LOOP;
  FOR part IN 0 .. 2 LOOP
    EXECUTE format('CREATE INDEX ON standing_%s (qid, deadline)', part);
    EXECUTE format('CREATE INDEX ON standing_%s (session) WHERE session IS NOT NULL', part);
  END LOOP;
  FOR part IN 3 .. 5 LOOP
    EXECUTE format('CREATE INDEX ON standing_%s (home, lane, rank, due, id)', part);
    EXECUTE format('CREATE INDEX ON standing_%s (home, due, id)', part);
    EXECUTE format('CREATE INDEX ON standing_%s (expires) WHERE expires IS NOT NULL', part);
  END LOOP;
  -- By the slot of their bodies (`slot_in`).
  FOR part IN 3 .. 6 LOOP
    EXECUTE format('CREATE INDEX ON standing_%s (((get_byte(uuid_send(id), 6) & 15) * 256 + get_byte(uuid_send(id), 7)))', part);
  END LOOP;
  CREATE INDEX ON standing_6 (qid, died, id);
  CREATE INDEX ON standing_6 (qid, due, id);
  CREATE INDEX ON standing_6 (qid, key_hash, died, id) WHERE key_hash IS NOT NULL;
END
$$;

-- The owners of keys. A row whose message is not live any more, or that has no message, counts as absent.
CREATE TABLE key (
  qid bigint NOT NULL,
  key bytea NOT NULL,
  id uuid,
  PRIMARY KEY (qid, key)
);

-- Answers to puts with an idempotency key, by the instant until which they are
-- kept. `digest` covers the body and the key of the put (`digest_of`).
CREATE TABLE idempotency (
  qid bigint NOT NULL,
  idempotency_key bytea NOT NULL,
  until bigint NOT NULL,
  id uuid,
  due bigint,
  outcome smallint,
  replaced uuid,
  digest bigint,
  PRIMARY KEY (qid, idempotency_key)
);
CREATE INDEX idempotency_until ON idempotency (until);

-- The counts are the sums of these rows; `maintain` folds many rows into one.
CREATE TABLE tally (
  qid bigint NOT NULL,
  home bigint NOT NULL,
  pending bigint NOT NULL,
  leased bigint NOT NULL,
  dead bigint NOT NULL,
  idempotency_keys bigint NOT NULL DEFAULT 0
);
CREATE INDEX tally_qid ON tally (qid);

-- Sessions that hold session leases: one row per heartbeat, of which the latest counts.
CREATE SEQUENCE sessions AS bigint;
CREATE TABLE session (
  session bigint NOT NULL,
  client text COLLATE "C",
  alive_until bigint NOT NULL
);
CREATE INDEX session_session ON session (session, alive_until);
CREATE INDEX session_client ON session (client);
