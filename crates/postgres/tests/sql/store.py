"""The store's own calls from Python: as `crates/postgres` sends them, with names instead of positions."""
import base64
import struct
import zlib
from types import SimpleNamespace

import psycopg
from psycopg.rows import namedtuple_row

SETTLE = {"ack": 0, "retry": 1, "release": 2, "bury": 3, "extend": 4, "give_back": 5}
STATE = {1: "scheduled", 2: "ready", 3: "leased", 4: "dead", None: None}


def receipt(taken):
    """A receipt as `Receipt` of `dwell-model` prints it."""
    raw = b"\x01" + taken.id.bytes + taken.token.bytes + taken.queue.encode()
    return base64.urlsafe_b64encode(raw + struct.pack("<I", zlib.crc32(raw))).rstrip(b"=").decode()


class Store:
    def __init__(self, dsn, schema="dwell"):
        self.conn = psycopg.connect(dsn, autocommit=True, row_factory=namedtuple_row)
        self.s = schema
        self.dsn = dsn
        self.floors = {}

    def all(self, sql, *args):
        return self.conn.execute(sql.replace("@", self.s + "."), args).fetchall()

    def inner(self, sql, *args):
        """Runs SQL with the search path of the schema's functions."""
        with self.conn.transaction():
            self.conn.execute(f"SET LOCAL search_path = {self.s}, pg_temp")
            return self.conn.execute(sql, args).fetchall()

    def one(self, sql, *args):
        return self.all(sql, *args)[0]

    # The clock of the tests.

    def stop_clock(self, ms):
        self.all("DELETE FROM @test_clock RETURNING 1")
        self.all("INSERT INTO @test_clock VALUES (%s) RETURNING 1", ms * 1000)

    def advance(self, ms):
        self.all("UPDATE @test_clock SET us = us + %s RETURNING 1", ms * 1000)

    def now(self):
        return self.one("SELECT * FROM @writers_1()").now_ms

    # The calls.

    def puts(self, queue, items):
        """Items: dicts of kind, value, body, opts, key, idempotency_key."""
        import json
        get = lambda name, default=None: [item.get(name, default) for item in items]
        plain = not any(item.get(name) for item in items for name in ("opts", "key", "idempotency_key"))
        rows = self.all(
            "SELECT * FROM @put_1(%s::text[], %s::smallint[], %s::bigint[], %s::bytea[], %s::jsonb[], %s::bytea[], "
            "%s::bytea[], NULL) ORDER BY item",
            [item.get("queue", queue) for item in items], get("kind", 0), get("value"), get("body", b"b"),
            None if plain else [json.dumps(o) if o else None for o in get("opts")],
            None if plain else get("key"), None if plain else get("idempotency_key"))
        return rows

    def put(self, queue, **item):
        return self.puts(queue, [item])[0]

    def take(self, queues, max=1, max_bytes=None, lease=None, session=None, floors=(0, 0)):
        queues = [queues] if isinstance(queues, str) else list(queues)
        rows = self.all(
            "SELECT * FROM @take_1(%s::text[], %s, %s, %s, %s, NULL, %s::bigint[], %s::bigint[], true, NULL) ORDER BY priority, due, id",
            queues, max, max_bytes, lease, session, [floors[0]] * len(queues), [floors[1]] * len(queues))
        self.last_floors = next(row.next_floors for row in rows if row.id is None)
        return [row for row in rows if row.id is not None]

    def settle(self, taken, action="ack", value=None, error=None, priority=None):
        plain = action == "ack"
        return self.one("SELECT * FROM @settle_1(%s::text[], %s::uuid[], %s::uuid[], %s::smallint[], %s::bigint[], %s::bytea[], "
                        "%s::bigint[], %s::bigint[], NULL)", [taken.queue], [taken.id], [taken.token],
                        None if plain else [SETTLE[action]], [value], [error], [priority], [0])

    def acks(self, taken):
        return self.all("SELECT * FROM @settle_1(%s::text[], %s::uuid[], %s::uuid[], NULL, NULL, NULL, NULL, NULL, NULL) "
                        "ORDER BY item", [t.queue for t in taken], [t.id for t in taken], [t.token for t in taken])

    def change(self, queue, id=None, key=None, kind=None, value=None):
        return self.one("SELECT * FROM @change_1(%s, %s::uuid[], %s::bytea[], %s::smallint[], %s::bigint[], NULL)",
                        queue, [id], [key], [kind], [value])

    def get(self, queue, id=None, key=None):
        row = self.one("SELECT * FROM @get_1(%s, %s::uuid[], %s::bytea[], false, NULL)", queue, [id], [key])
        return SimpleNamespace(**row._asdict(), name=row.code or STATE[row.state])

    def list(self, queue, state, after=(None, None), max=100, bytes=8 << 20):
        number = {name: number for number, name in STATE.items()}[state]
        return self.all("SELECT * FROM @list_1(%s, %s, %s::bigint, %s::uuid, %s, %s, NULL) WHERE item IS NOT NULL ORDER BY item",
                        queue, number, after[0], after[1], max, bytes)

    def stats(self, queue):
        return self.one("SELECT * FROM @stats_1(%s, 0, NULL)", queue)

    def counts(self, queue):
        s = self.stats(queue)
        return s.code or (s.scheduled, s.ready, s.leased, s.dead)

    def purge(self, queue):
        return self.one("SELECT @purge_1(%s, NULL) AS n", queue).n

    def sweep_dead(self, queue, ids=None, most=1000, kind=None, value=None):
        return self.all("SELECT * FROM @sweep_dead_1(%s, %s::uuid[], %s, NULL, NULL, NULL, %s, %s, NULL)", queue, ids, most, kind, value)

    def configure(self, queue, reset=(), **values):
        import json
        self.all("SELECT @configure_1(%s, %s::jsonb, %s::text[], NULL)", queue, json.dumps(values), list(reset))

    def maintain(self, sealed=0):
        row = self.one("SELECT * FROM @maintain_1(NULL)")
        given_back = [table.n for table in self.all("SELECT @idle_1(%s) AS n", sealed) if self.give_back(table.n)]
        return SimpleNamespace(**row._asdict(), given_back=given_back)

    def give_back(self, table):
        try:
            return self.one("SELECT @give_back_1(%s) AS done", table).done
        except psycopg.errors.LockNotAvailable:
            return False

    def check(self):
        """Checks that the counts match the rows, and that every key's message has that key."""
        rows = self.all("""
          WITH live AS (
            SELECT home, count(*) AS n FROM (SELECT home FROM @pend UNION ALL SELECT home FROM @standing WHERE part IN (3,4,5)) x
            GROUP BY 1),
          told AS (SELECT home, sum(pending) AS n FROM @tally GROUP BY 1)
          SELECT coalesce(l.home, t.home) AS home, l.n AS lies, t.n AS told FROM live l FULL JOIN told t USING (home)
          WHERE coalesce(l.n, 0) <> coalesce(t.n, 0)
            AND NOT EXISTS (SELECT FROM @purge p WHERE p.home = coalesce(l.home, t.home))""")
        assert not rows, rows
        rows = self.all("""
          SELECT coalesce(l.qid, t.qid) AS qid, l.leased, t.leased AS leased_told, l.dead, t.dead AS dead_told FROM
            (SELECT qid, count(*) FILTER (WHERE part < 3) AS leased, count(*) FILTER (WHERE part = 6) AS dead FROM @standing
             GROUP BY 1) l
            FULL JOIN (SELECT qid, sum(leased) AS leased, sum(dead) AS dead FROM @tally GROUP BY 1) t USING (qid)
          WHERE coalesce(l.leased, 0) <> coalesce(t.leased, 0) OR coalesce(l.dead, 0) <> coalesce(t.dead, 0)""")
        assert not rows, rows
