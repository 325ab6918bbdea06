-- Layout 1: the tables. `docs/decisions/2026-11-26-postgres.md` says why they are as they are.
--
-- Run with `search_path` set to the schema alone: nothing here names it. All of it is one transaction.

-- One row: what the schema is, and which layout it has.
CREATE TABLE layout (
  is_it boolean PRIMARY KEY DEFAULT true CHECK (is_it),
  version int NOT NULL,
  product text NOT NULL DEFAULT 'dwell' CHECK (product = 'dwell'),
  -- Where the store was opened last (`open_1`), and up to which number messages may have come from elsewhere.
  place text,
  old_numbers bigint NOT NULL DEFAULT 0
);
INSERT INTO layout (version) VALUES (1);

-- Numbers: unique in the store, rising by call, below 2^53. Nothing is cached, so that they rise between sessions too.
CREATE SEQUENCE numbers AS bigint MINVALUE 1 MAXVALUE 9007199254740991 NO CYCLE;

-- Names of queues. No unique index: the first put of a name would make all others wait for its commit. A name may stand here
-- twice; `maintain` removes the second.
CREATE TABLE queue (
  qid bigint NOT NULL,
  name text COLLATE "C" NOT NULL
);
CREATE INDEX queue_qid ON queue (qid);
CREATE INDEX queue_name ON queue (name);

-- Settings of a queue's own, by the names of `SettingName`; qid 0 has the defaults of SQL callers.
CREATE TABLE setting (
  qid bigint PRIMARY KEY,
  own jsonb NOT NULL
);
INSERT INTO setting VALUES (0, '{}');

-- Purges. After one, puts go to `next`; what lies under `home` is gone as far as the snapshot of the queue's last purge sees it,
-- the rest is brought over. `is_done` once `maintain` has emptied `home`; the last one of each queue stays, since it says where
-- the queue is. `epoch` orders the purges of all queues.
CREATE SEQUENCE purges AS bigint;
CREATE TABLE purge (
  qid bigint NOT NULL,
  generation bigint NOT NULL,
  home bigint NOT NULL,
  next bigint NOT NULL,
  epoch bigint NOT NULL UNIQUE,
  snapshot pg_snapshot NOT NULL,
  -- The purge's own transaction, which its snapshot does not see: what it brought back among the waiting is gone too.
  xid xid8 NOT NULL,
  -- A transaction that began when this purge was committed: those before it may still put under `home`.
  seen xid8,
  is_done boolean NOT NULL DEFAULT false,
  PRIMARY KEY (qid, generation)
);

-- What never changes of a message, written once. A slot holds messages that are due within one span (`slot_of`).
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

-- Messages as they were put, not handed out yet, by (queue, lane, id); an id begins with its due instant. Lane 0 has the usual
-- priority, lane 1 the others. A take deletes the row.
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
    -- What is given to a body column is compressed badly or was compressed before.
    EXECUTE format('ALTER TABLE body_%s ALTER body SET STORAGE EXTERNAL', slot);
  END LOOP;
END
$$;

-- Of each slot: no message in it is due before this instant. Changes when a slot is emptied.
CREATE TABLE slot (
  slot smallint PRIMARY KEY,
  quiet_until bigint NOT NULL
);
INSERT INTO slot SELECT generate_series(0, 64), 0;

-- Messages that something has happened to. Parts 0 to 2 have the leased, 3 to 5 the scheduled and ready, each three in turn, so
-- that one can be emptied; part 6 has the dead.
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
  -- scheduled and ready; lane 0 has the usual priority, lane 1 others that are not due, lane 2 others that are, by rank
  home bigint,
  lane smallint,
  rank bigint,
  since bigint,
  xid xid8,
  -- dead
  reason smallint,
  died bigint,
  -- of its key, where it has one: by it those are found that had a key
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
  CREATE INDEX ON standing_6 (qid, died, id);
  CREATE INDEX ON standing_6 (qid, due, id);
  CREATE INDEX ON standing_6 (qid, key_hash, died, id) WHERE key_hash IS NOT NULL;
END
$$;

-- Who has a key. A row whose message is not live any more, or that has none, is as good as none.
CREATE TABLE key (
  qid bigint NOT NULL,
  key bytea NOT NULL,
  id uuid,
  PRIMARY KEY (qid, key)
);

-- Answers to puts with an idempotency key, by the instant until which they are remembered. `digest` is of the body and the key
-- that the put came with (`digest_of`).
CREATE TABLE token (
  qid bigint NOT NULL,
  token bytea NOT NULL,
  until bigint NOT NULL,
  id uuid,
  due bigint,
  outcome smallint,
  replaced uuid,
  digest bigint,
  PRIMARY KEY (qid, token)
);
CREATE INDEX token_until ON token (until);

-- Counts are the sums of these rows; `maintain` folds many into one.
CREATE TABLE tally (
  qid bigint NOT NULL,
  home bigint NOT NULL,
  pending bigint NOT NULL,
  leased bigint NOT NULL,
  dead bigint NOT NULL,
  tokens bigint NOT NULL DEFAULT 0
);
CREATE INDEX tally_qid ON tally (qid);

-- Sessions that hold leases which end with them: a row each beat, of which the last counts.
CREATE SEQUENCE sessions AS bigint;
CREATE TABLE session (
  session bigint NOT NULL,
  client text COLLATE "C",
  alive_until bigint NOT NULL
);
CREATE INDEX session_session ON session (session, alive_until);
CREATE INDEX session_client ON session (client);
