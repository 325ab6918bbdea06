"""The functions for callers' transactions: arguments, rollback, savepoints, isolation, rights."""
import datetime
import uuid

import psycopg

import installed
from store import Store, receipt

T0 = 1_800_000_000_000
MIN, HOUR = 60_000, 3_600_000

UTC = datetime.timezone.utc


def refused(code, call, *args):
    """Checks that the call is refused with this code, in a transaction that continues."""
    try:
        call(*args)
    except psycopg.Error as error:
        assert error.sqlstate.startswith("DW") and error.diag.message_detail == code, (code, error.sqlstate, error)
        return error
    raise AssertionError(f"not refused: {code}")


def other(s, **options):
    return psycopg.connect(s.conn.info.dsn, **options)


def test_literals_and_parameters_of_every_kind(s):
    a, = s.conn.execute("SELECT dwell.put('q', 'a \\ literal')").fetchone()
    b, = s.conn.execute("SELECT dwell.put(%s, %s)", ("q", "text")).fetchone()
    c, = s.conn.execute("SELECT dwell.put(%s, %s)", ("q", b"by\x00tes")).fetchone()
    d, = s.conn.execute("SELECT dwell.put(queue => 'q', body => '\\x41'::bytea)").fetchone()
    e, = s.conn.execute("SELECT dwell.put('q', %s::jsonb::text)", ('{"a": "\\n"}',)).fetchone()
    got = {t.id: t.body for t in s.take("q", 9)}
    assert got == {a: b"a \\ literal", b: b"text", c: b"by\x00tes", d: b"A", e: b'{"a": "\\n"}'}, got


def test_delays_instants_and_levels(s):
    now = datetime.datetime(2026, 11, 26, 12, 0, tzinfo=UTC)
    ms = int(now.timestamp() * 1000)
    s.stop_clock(ms)
    due = lambda sql, *args: s.get("q", id=s.conn.execute(f"SELECT dwell.put('q', 'b', {sql})", args).fetchone()[0]).due
    assert due("delay => '30 minutes'") == ms + 1_800_000
    assert due("delay => '1 day 2.0001 seconds'") == ms + 86_400_000 + 2_001, "a part of a millisecond counts up"
    assert due("delay => '1 month'") == int(datetime.datetime(2026, 12, 26, 12, tzinfo=UTC).timestamp() * 1000)
    assert due("due => '9999-12-31 23:59:59.999Z'") == 253402300799999, "exact at the end of time, on every version"
    assert due("due => '9999-12-31 23:59:59.998001Z'") == 253402300799999
    assert due("due => '1970-01-01Z'") == 0
    assert due("due => %s", now) == ms
    s.configure("q", levels=[5])
    assert due("level => 1") == ms + 5
    for sql, code in [("delay => '-1 second'", "negative_delay"), ("due => 'infinity'", "malformed_instant"),
                      ("due => '-infinity'", "malformed_instant"), ("due => '1969-12-31 23:59:59Z'", "due_out_of_range"),
                      ("due => '10000-01-01Z'", "due_out_of_range"), ("delay => '300000 years'", "due_out_of_range"),
                      ("delay => '9000 years'", "due_out_of_range"), ("level => 2", "unknown_level"),
                      ("level => 0", "unknown_level"), ("delay => '1s', level => 1", "malformed_delay"),
                      ("priority => -1", "invalid_argument"), ("on_conflict => 'maybe'", "invalid_argument"),
                      ("on_conflict => NULL", "invalid_argument"), ("key => ''", "invalid_key"),
                      ("expires => '2020-01-01Z'", "expires_before_due"), ("headers => '[]'", "invalid_header"),
                      ("lease => '0'", "invalid_setting"), ("idempotency_key => 'ä'", "invalid_idempotency_key")]:
        refused(code, s.conn.execute, f"SELECT dwell.put('q', 'b', {sql})")
    if s.conn.info.server_version >= 170000:
        refused("malformed_delay", s.conn.execute, "SELECT dwell.put('q', 'b', delay => 'infinity')")
    refused("invalid_argument", s.conn.execute, "SELECT dwell.put('q', NULL::bytea)")
    refused("invalid_queue_name", s.conn.execute, "SELECT dwell.put(NULL, 'b')")
    refused("invalid_queue_name", s.conn.execute, "SELECT dwell.put('a b', 'b')")


def test_commit_rollback_and_savepoints(s):
    with other(s) as conn:
        conn.execute("CREATE TABLE IF NOT EXISTS orders (id int)")
        conn.execute("TRUNCATE orders")
        conn.commit()
        conn.execute("INSERT INTO orders VALUES (1)")
        conn.execute("SELECT dwell.put('q', 'one', key => 'o1')")
        assert s.counts("q") == "unknown_queue"
        conn.rollback()
        assert s.counts("q") == "unknown_queue"
        conn.execute("INSERT INTO orders VALUES (2)")
        conn.execute("SELECT dwell.put('q', 'two', key => 'o2')")
        conn.execute("SAVEPOINT a")
        conn.execute("SELECT dwell.put('q', 'three', key => 'o3')")
        assert conn.execute("SELECT dwell.cancel('q', 'o2')").fetchone() == ("cancelled",)
        conn.execute("ROLLBACK TO a")
        refused("key_taken", conn.execute, "SELECT dwell.put('q', 'again', key => 'o2')")
        conn.execute("ROLLBACK TO a")
        conn.execute("SELECT dwell.put('q', 'four', key => 'o4')")
        conn.commit()
    assert [t.body for t in s.take("q", 9)] == [b"two", b"four"]
    s.conn.execute("DROP TABLE orders")


def test_paying_an_order_cancels_its_timer_in_one_commit(s):
    s.conn.execute("SELECT dwell.put('q', 'close', delay => '1 hour', key => 'o1')")
    with other(s) as conn:
        assert conn.execute("SELECT dwell.cancel('q', 'o1')").fetchone() == ("cancelled",)
        assert s.counts("q") == (1, 0, 0, 0)
        conn.rollback()
        assert s.counts("q") == (1, 0, 0, 0)
        assert conn.execute("SELECT dwell.reschedule('q', 'o1', delay => '2 hours')").fetchone() == ("moved",)
        assert conn.execute("SELECT dwell.cancel('q', 'o1')").fetchone() == ("cancelled",)
        assert conn.execute("SELECT dwell.cancel('q', 'o1')").fetchone() == ("not_found",)
        assert conn.execute("SELECT dwell.cancel('q', id => %s)", (uuid.uuid4(),)).fetchone() == ("not_found",)
    assert s.counts("q") == "unknown_queue"
    refused("invalid_argument", s.conn.execute, "SELECT dwell.cancel('q')")
    refused("invalid_argument", s.conn.execute, "SELECT dwell.cancel('q', 'k', gen_random_uuid())")


def test_try_put_aborts_nothing(s):
    with other(s) as conn:
        assert conn.execute("SELECT code FROM dwell.try_put('q', 'a', key => 'k')").fetchone() == ("",)
        row = conn.execute("SELECT id, code, reason FROM dwell.try_put('q', 'b', key => 'k')").fetchone()
        assert row[0] is None and row[1] == "key_taken" and "is taken by" in row[2]
        assert conn.execute("SELECT code FROM dwell.try_put('a b', 'b')").fetchone() == ("invalid_queue_name",)
        assert conn.execute("SELECT code FROM dwell.try_put('q', 'b', due => 'infinity')").fetchone() == ("malformed_instant",)
    assert [t.body for t in s.take("q", 9)] == [b"a"]


def test_put_many(s):
    bodies = [b"%d" % at for at in range(300)]
    made, = s.conn.execute("SELECT dwell.put_many('q', %s)", (bodies,)).fetchone()
    assert len(set(made)) == 300
    got = s.take("q", 500)
    assert [(t.id, t.body) for t in got] == list(zip(made, bodies)), "ids and order are those of the array"
    s.conn.execute("SELECT dwell.put_many('p', ARRAY['a', 'b']::bytea[], delays => ARRAY['1 hour'::interval])")
    assert s.counts("p") == (2, 0, 0, 0)
    s.conn.execute("SELECT dwell.put_many('k', ARRAY['a', 'b']::bytea[], keys => ARRAY['y', 'x'])")
    assert s.get("k", key=b"x").body == b"b"
    refused("key_taken", s.conn.execute, "SELECT dwell.put_many('k', ARRAY['c', 'd']::bytea[], keys => ARRAY['w', 'x'])")
    assert s.get("k", key=b"w").name == "message_not_found", "all or none"
    refused("invalid_argument", s.conn.execute, "SELECT dwell.put_many('k', ARRAY['c', NULL]::bytea[])")
    refused("invalid_argument", s.conn.execute, "SELECT dwell.put_many('k', ARRAY['c']::bytea[], keys => ARRAY['w', 'x'])")
    refused("negative_delay", s.conn.execute, "SELECT dwell.put_many('k', ARRAY['c']::bytea[], delays => ARRAY['-1s'::interval])")
    assert s.conn.execute("SELECT dwell.put_many('k', ARRAY[]::bytea[])").fetchone() == ([],)
    refused("batch_too_large", s.conn.execute, "SELECT dwell.put_many('k', array_fill('x'::bytea, ARRAY[16385]))")


def test_work_and_its_ack_commit_together(s):
    s.stop_clock(1_800_000_000_000)
    s.put("q", key=b"k")
    t = s.take("q")[0]
    with other(s) as conn:
        conn.execute("SELECT dwell.ack(%s)", (receipt(t),))
        conn.rollback()
        assert s.get("q", id=t.id).name == "leased"
        conn.execute("SELECT dwell.ack(%s)", (receipt(t),))
        s.advance(40_000)
        # The lease does not lapse while its ack is uncommitted.
        assert s.take("q") == [] and s.maintain().expired == 0
        conn.commit()
        assert s.counts("q") == "unknown_queue" and s.put("q", key=b"k").code == ""
        refused("lease_lost", conn.execute, "SELECT dwell.ack(%s)", (receipt(t),))
        conn.rollback()
        for bad in ("", "x", "A" * 60, receipt(t)[:50], receipt(t) + "ä"):
            refused("malformed_receipt", conn.execute, "SELECT dwell.ack(%s)", (bad,))
            conn.rollback()
        refused("malformed_receipt", conn.execute, "SELECT dwell.ack(NULL)")


def test_what_an_open_transaction_holds_is_busy_and_only_that(s):
    s.stop_clock(1_800_000_000_000)
    a, b = s.put("q", key=b"a"), s.put("q")
    with other(s) as conn:
        conn.execute("SELECT dwell.put('q', 'b', key => 'open')")
        conn.execute("SELECT dwell.cancel('q', 'a')")
        rows = s.puts("q", [{"key": b"open"}, {"key": b"free"}, {"key": b"a", "opts": {"conflict": 1}}])
        assert [row.code for row in rows] == ["busy", "", "busy"]
        assert s.change("q", id=a.id).code == "busy"
        # Reads and takes do not wait for locks.
        assert s.get("q", id=a.id).name == "ready"
        assert b.id in [t.id for t in s.take("q", 9)] and s.last_floors[0] <= a.due, "what may come back is not passed"
        refused("busy", s.conn.execute, "SELECT dwell.put('q', 'b', key => 'open')")
        assert s.one("SELECT code FROM @try_put('q', 'b', key => 'open')").code == "busy"
        conn.rollback()
    assert [t.id for t in s.take("q", 9, floors=s.last_floors)] == [a.id]
    held = s.take("q", 9)
    assert held == []


def test_a_queue_name_used_first_by_an_open_transaction_holds_up_nobody(s):
    with other(s) as conn:
        conn.execute("SELECT dwell.put('q', 'b')")
        assert s.put("q").code == ""
        assert len(s.take("q", 9)) == 1
        conn.commit()
    assert len(s.take("q", 9)) == 1
    s.maintain()
    assert [row.name for row in s.all("SELECT name FROM @queue")] == ["q"]


def test_repeatable_read_and_serializable(s):
    a = s.put("q", key=b"a")
    for level in (psycopg.IsolationLevel.REPEATABLE_READ, psycopg.IsolationLevel.SERIALIZABLE):
        with other(s) as conn:
            conn.isolation_level = level
            conn.execute("SELECT 1")
            conn.execute("SELECT dwell.put('q', 'b', delay => '1 hour', key => %s)", (level.name,))
            conn.commit()
            # A message taken since the snapshot is not cancelled while it is leased.
            conn.execute("SELECT count(*) FROM dwell.put_many('other', ARRAY[]::bytea[])")
            t = s.take("q")[0]
            try:
                found = conn.execute("SELECT dwell.cancel('q', 'a')").fetchone()[0]
                raise AssertionError(found)
            except psycopg.errors.SerializationFailure:
                conn.rollback()
            assert conn.execute("SELECT dwell.cancel('q', 'a')").fetchone() == ("leased",)
            conn.commit()
            assert s.settle(t, "release").what == "ready"
            # A key was taken since the snapshot.
            conn.execute("SELECT 1")
            conn.execute("SELECT dwell.cancel('q', 'nobody')")
            s.put("q", key=b"new" + level.name.encode())
            try:
                conn.execute("SELECT dwell.put('q', 'b', key => %s)", ("new" + level.name,))
                raise AssertionError("the key was taken meanwhile")
            except psycopg.errors.SerializationFailure:
                conn.rollback()
            # A purge ran since the snapshot.
            s.put("p")
            conn.execute("SELECT dwell.cancel('p', 'nobody')")
            assert s.purge("p") == 1
            try:
                conn.execute("SELECT dwell.put('p', 'b')")
                raise AssertionError("it would go where it is purged")
            except psycopg.errors.SerializationFailure:
                conn.rollback()
            conn.execute("SELECT dwell.put('p', 'b')")
            conn.commit()
            assert len(s.acks(s.take("p", 9))) == 1
            s.maintain(); s.maintain()
            for key in (b"new" + level.name.encode(),):
                assert s.change("q", key=key).what == "cancelled"
    assert a.code == ""


def test_an_old_snapshot_takes_nothing_for_gone_whose_space_was_given_back(s):
    """A slot's bodies are written again, and leases move to another part, after the snapshot of a caller."""
    s.stop_clock(T0)
    s.maintain(T0)
    s.puts("q", [{"kind": 2, "value": 1000, "body": b"x" * 5000}] * 300)
    acked = s.put("q", kind=2, value=1000)
    pending = s.put("q", kind=2, value=2000, key=b"pending")
    slot = int(str(acked.id)[15:18], 16)
    s.stop_clock(T0 + 1500)
    taken = {t.id: t for t in s.take("q", 1000, lease=5 * HOUR)}
    lease = taken.pop(acked.id)
    calls = {
        "cancel": (lambda conn: conn.execute("SELECT dwell.cancel('q', 'pending')").fetchone()[0], "leased"),
        "ack": (lambda conn: conn.execute("SELECT dwell.ack(%s)", (receipt(lease),)).rowcount, 1),
    }
    old = {name: other(s) for name in calls}
    for conn in old.values():
        conn.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        conn.execute("SELECT 1")

    def check(name):
        call, answer = calls[name]
        try:
            found = call(old[name])
            raise AssertionError(f"{name}: {found}")
        except psycopg.errors.SerializationFailure:
            old[name].rollback()
        assert call(old[name]) == answer, name
        old[name].commit()
        old[name].close()

    assert {row.code for row in s.acks(list(taken.values()))} == {""}
    s.stop_clock(T0 + 2000)
    assert [t.id for t in s.take("q", 9, lease=5 * HOUR)] == [pending.id]
    s.stop_clock(T0 + 31 * MIN)
    s.all("UPDATE @slot SET quiet_until = %s WHERE slot = %s RETURNING 1", T0 + 2 * HOUR, slot)
    assert s.give_back(slot)
    check("cancel")
    # The turn of the leases' part is the next one.
    s.stop_clock(T0 + 51 * MIN)
    assert 100 in s.maintain(T0 + 51 * MIN).given_back
    check("ack")
    assert s.counts("q") == (0, 0, 1, 0)


def test_prepared_transactions(s):
    with other(s, autocommit=True) as conn:
        for verdict in ("COMMIT", "ROLLBACK"):
            conn.execute("BEGIN")
            conn.execute("SELECT dwell.put('q', 'b', key => %s)", (verdict,))
            conn.execute("PREPARE TRANSACTION 'dwell-test'")
            w = s.one("SELECT * FROM @writers_1()")
            assert len(w.puts) == 1, "a prepared transaction may still add messages"
            conn.execute(f"{verdict} PREPARED 'dwell-test'")
            assert s.one("SELECT * FROM @writers_1()").puts == []
        assert [t.body for t in s.take("q", 9)] == [b"b"]


def test_execute_is_the_only_right(s):
    s.conn.execute("DROP OWNED BY dwell_caller" if s.all("SELECT FROM pg_roles WHERE rolname = 'dwell_caller'")
                   else "CREATE ROLE dwell_caller LOGIN")
    dsn = s.conn.info.dsn.replace("user=postgres", "user=dwell_caller")
    with psycopg.connect(dsn, autocommit=True) as conn:
        for sql in ("SELECT dwell.put('q', 'b')", "SELECT * FROM dwell.body"):
            try:
                conn.execute(sql)
                raise AssertionError(sql)
            except psycopg.errors.InsufficientPrivilege:
                pass
        installed.grant(s.conn, "dwell_caller")
        conn.execute("SELECT dwell.put('q', 'b', key => 'k')")
        assert conn.execute("SELECT dwell.cancel('q', 'k')").fetchone() == ("cancelled",)
        for sql in ("SELECT * FROM dwell.body", "DELETE FROM dwell.key", "SELECT dwell.purge_1('q', NULL)",
                    "SELECT dwell.hold(1, 1, gen_random_uuid(), '{}', 1)", "CREATE TABLE dwell.mine ()",
                    "SELECT nextval('dwell.numbers')", "CREATE FUNCTION dwell.now() RETURNS int LANGUAGE sql AS 'SELECT 1'"):
            try:
                conn.execute(sql)
                raise AssertionError(sql)
            except psycopg.errors.InsufficientPrivilege:
                pass
    s.conn.execute("DROP OWNED BY dwell_caller; DROP ROLE dwell_caller")


def test_a_hostile_search_path(s):
    with other(s, autocommit=True) as conn:
        conn.execute("CREATE SCHEMA hostile; SET search_path = hostile, pg_catalog, dwell")
        for function in ("nextval(regclass) RETURNS bigint", "clock_us() RETURNS bigint", "pg_current_xact_id() RETURNS xid8",
                         "nextval(text) RETURNS bigint", "format(text) RETURNS text", "count_up(bigint, bigint, bigint, bigint, bigint) RETURNS void",
                         "home_of(text, bigint) RETURNS bigint"):
            conn.execute(f"CREATE FUNCTION hostile.{function} LANGUAGE plpgsql AS $$ BEGIN RAISE 'hostile'; END $$")
        conn.execute("CREATE TEMP TABLE body (number bigint); CREATE TEMP TABLE pend (home bigint); CREATE TEMP TABLE slot (a int)")
        conn.execute("CREATE TABLE hostile.queue (qid text); CREATE TABLE hostile.key (qid text)")
        made, = conn.execute("SELECT dwell.put('q', 'b', key => 'k')").fetchone()
        assert conn.execute("SELECT dwell.cancel('q', 'k')").fetchone() == ("cancelled",)
        made, = conn.execute("SELECT dwell.put('q', 'b')").fetchone()
        t = s.take("q")[0]
        assert t.id == made
        conn.execute("SELECT dwell.ack(%s)", (receipt(t),))
        conn.execute("DROP SCHEMA hostile CASCADE")
    assert s.counts("q") == "unknown_queue"


def test_hints_only_where_they_are_asked_for(s):
    with other(s, autocommit=True) as listener, other(s, autocommit=True) as conn:
        listener.execute('LISTEN "dwell.ready"')
        conn.execute("SELECT dwell.put('q', 'b')")
        conn.execute("SET dwell.hint = on")
        conn.execute("SELECT dwell.put('q', 'b', delay => '1 hour')")
        conn.execute("SELECT dwell.put('r', 'b')")
        heard = [(n.channel, n.payload) for n in listener.notifies(timeout=5, stop_after=1)]
        assert heard == [("dwell.ready", "r")]


def test_another_schema(s):
    s.conn.execute('DROP SCHEMA IF EXISTS "Other one" CASCADE')
    installed.install(s.conn, schema="Other one")
    t = Store(s.conn.info.dsn, schema='"Other one"')
    t.put("q", key=b"k")
    assert [x.key for x in t.take("q")] == [b"k"] and s.counts("q") == "unknown_queue"
    t.check()
    t.conn.close()
    s.conn.execute('DROP SCHEMA "Other one" CASCADE')
