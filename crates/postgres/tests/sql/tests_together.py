"""Many at a time: takes that meet, transactions that commit late, batches that cross, a snapshot held open, bad statistics."""
import builtins
import random
import threading
import time

import psycopg

from store import Store

T0 = 1_800_000_000_000
HOUR = 3_600_000


def together(*jobs):
    """Runs these at a time and passes on what the first of them raised."""
    errors = []

    def guarded(job):
        try:
            job()
        except BaseException as error:  # noqa: BLE001: handed to the test's thread
            errors.append(error)

    threads = [threading.Thread(target=guarded, args=(job,)) for job in jobs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
        assert not thread.is_alive(), "hangs"
    if errors:
        raise errors[0]


def store(s):
    return Store(s.conn.info.dsn)


def other(s, **options):
    return psycopg.connect(s.conn.info.dsn, **options)


class Floor:
    """What a process keeps so that its takes begin where the last one ended."""

    def __init__(self):
        self.seal, self.probe, self.floor = 0, None, 0

    def look(self, s):
        """All that is due before the seal is visible to whoever looks from now on, or will never be."""
        writers = s.one("SELECT * FROM @writers_1()")
        if self.probe is None or not set(self.probe.puts) & set(writers.puts):
            self.seal = max(self.seal, self.probe.now_ms if self.probe else 0)
            self.probe = writers

    def take(self, s, queue, max):
        # As it was before the take looked: what is sealed later it may not have seen.
        sealed = self.seal
        taken = s.take(queue, max, floors=(self.floor, 0))
        self.floor = builtins.max(self.floor, min(s.last_floors[0], sealed))
        return taken


def test_no_message_is_held_twice_and_none_is_left(s):
    made = [row.id for _ in range(3) for row in s.puts("q", [{"opts": {"priority": random.choice([1024, 1024, 5])}}
                                                           for _ in range(200)])]
    got, lock = [], threading.Lock()

    def consumer():
        mine, floor = store(s), Floor()
        while True:
            taken = floor.take(mine, "q", random.randint(1, 40))
            floor.look(mine)
            with lock:
                got.extend(t.id for t in taken)
            if not taken:
                break
            assert {row.code for row in mine.acks(taken)} == {""}
        mine.conn.close()

    together(*[consumer] * 4)
    # Who finds the rest locked by others is answered with nothing.
    while taken := s.take("q", 100):
        got.extend(t.id for t in taken)
        s.acks(taken)
    assert len(got) == len(set(got)) == 600 and set(got) == set(made)


def test_transactions_that_commit_late_are_not_passed_over(s):
    """Producers keep their transactions open for a random while; a consumer goes on with floors all the time."""
    made, got, stop = [], [], threading.Event()
    lock = threading.Lock()

    def producer(seed):
        choose = random.Random(seed)
        with other(s) as conn:
            for _ in range(25):
                rows = [conn.execute("SELECT dwell.put('q', 'b', delay => %s)", (f"{choose.randint(0, 3)} ms",)).fetchone()[0]
                        for _ in range(choose.randint(1, 4))]
                # As long as it takes others to put and take; not a time that anything waits for.
                conn.execute("SELECT pg_sleep(%s)", (choose.random() * 0.05,))
                if choose.random() < 0.3:
                    conn.rollback()
                else:
                    conn.commit()
                    with lock:
                        made.extend(rows)

    def consumer():
        mine, floor, after = store(s), Floor(), 0
        while after < 3:
            after = after + 1 if stop.is_set() else 0
            floor.look(mine)
            taken = floor.take(mine, "q", 10)
            got.extend(t.id for t in taken)
            mine.acks(taken)
            if taken:
                after = 0
        moved.append(floor.floor)
        mine.conn.close()

    moved = []
    watcher = threading.Thread(target=consumer)
    watcher.start()
    together(*[lambda seed=seed: producer(seed) for seed in range(4)])
    stop.set()
    watcher.join(120)
    assert not watcher.is_alive()
    assert sorted(got) == sorted(made), (len(got), len(made), set(made) - set(got))
    assert moved[0] > 0, "floors have moved, or this shows nothing"


def test_a_floor_waits_for_open_puts_and_for_nobody_else(s):
    floor = Floor()
    with other(s) as stranger, other(s) as conn:
        stranger.execute("CREATE TEMP TABLE t AS SELECT 1")
        stranger.execute("SELECT pg_current_xact_id()")
        floor.look(s), floor.look(s)
        before = floor.seal
        assert before > 0, "a transaction of somebody else's holds nothing up"
        late = conn.execute("SELECT dwell.put('q', 'late')").fetchone()[0]
        floor.look(s)
        floor.look(s)
        sealed = floor.seal
        s.put("q")
        assert len(floor.take(s, "q", 5)) == 1
        floor.look(s), floor.look(s)
        assert floor.seal == sealed, "it stays where the open put began"
        conn.commit()
        assert [t.id for t in floor.take(s, "q", 5)] == [late]
        floor.look(s), floor.look(s)
        assert floor.seal > sealed


def test_batches_that_cross(s):
    """Puts, cancels and settlements over the same keys and messages in opposite orders: no deadlock reaches a caller."""
    keys = [b"k%02d" % at for at in range(12)]

    def putter(seed):
        mine, choose = store(s), random.Random(seed)
        for _ in range(12):
            choose.shuffle(keys_ := list(keys))
            rows = mine.puts("q", [{"key": key, "opts": {"conflict": 1}, "token": b"t%d" % choose.randint(0, 20)} for key in keys_])
            assert {row.code for row in rows} <= {"", "busy", "idempotency_mismatch"}, rows
        mine.conn.close()

    def canceller(seed):
        mine, choose = store(s), random.Random(seed)
        for _ in range(12):
            choose.shuffle(keys_ := list(keys))
            found = [row for row in mine.all("SELECT id FROM @key WHERE id IS NOT NULL")]
            choose.shuffle(found)
            n = min(len(found), len(keys_))
            if n:
                rows = mine.all("SELECT * FROM @change_1('q', %s::uuid[], %s::bytea[], NULL, NULL, NULL)",
                                [row.id if at % 2 else None for at, row in enumerate(found[:n])],
                                [None if at % 2 else key for at, key in enumerate(keys_[:n])])
                assert {row.code for row in rows} <= {"", "busy", "idempotency_mismatch"}, rows
        mine.conn.close()

    def consumer(seed):
        mine, choose = store(s), random.Random(seed)
        for _ in range(20):
            taken = mine.take("q", 8)
            choose.shuffle(taken)
            # A put that replaces what is leased holds it locked until its batch ends.
            while taken:
                rows = mine.acks(taken)
                assert {row.code for row in rows} <= {"", "busy"}, rows
                taken = [t for t, row in zip(taken, rows) if row.code == "busy"]
        mine.conn.close()

    together(lambda: putter(1), lambda: putter(2), lambda: canceller(3), lambda: canceller(4), lambda: consumer(5))
    taken = s.take("q", 100)
    s.acks(taken)
    assert s.counts("q") == "unknown_queue"


def test_one_key_put_by_many_has_one_owner(s):
    made = []

    def putter():
        mine = store(s)
        while (row := mine.put("q", key=b"k", kind=2, value=HOUR)).code == "busy":
            pass
        made.append((row.code, row.info or str(row.id)))
        mine.conn.close()

    together(*[putter] * 8)
    assert sorted(code for code, _ in made) == [""] + ["key_taken"] * 7 and len({owner for _, owner in made}) == 1
    answers = []

    def repeater():
        mine = store(s)
        # Others may hold the name longer than a call waits.
        while (row := mine.put("q", token=b"t", kind=2, value=HOUR)).code == "busy":
            pass
        answers.append(row.id)
        mine.conn.close()

    together(*[repeater] * 8)
    assert len(set(answers)) == 1 and s.counts("q") == (2, 0, 0, 0)


def test_a_purge_spares_puts_that_were_open(s):
    s.puts("q", [{"kind": 2, "value": HOUR}] * 10 + [{}] * 5)
    with other(s) as conn:
        spared = {conn.execute("SELECT dwell.put('q', 'b', key => 'open')").fetchone()[0]}
        conn.execute("SAVEPOINT a")
        spared.add(conn.execute("SELECT dwell.put('q', 'b', due => '2020-01-01Z', priority => 7)").fetchone()[0])
        conn.execute("RELEASE a")
        assert s.purge("q") == 15
        assert s.take("q", 99) == []
        # Before it is committed and after: not until it has ended is the old home given up.
        s.maintain(); s.maintain()
        later = s.put("q").id
        conn.commit()
    s.maintain(); s.maintain()
    assert {t.id for t in s.take("q", 99)} == spared | {later}
    assert s.counts("q") == (0, 0, 3, 0)
    assert s.one("SELECT count(*) AS n FROM @purge WHERE NOT is_done").n == 0
    assert s.put("q", key=b"open").code == "key_taken"


def test_a_snapshot_held_open_slows_no_take(s):
    """Index entries of what was taken stay while somebody holds a snapshot; a floor spares the take all of them."""
    with other(s) as reader:
        reader.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        reader.execute("SELECT count(*) FROM pg_class")
        floor = Floor()
        for _ in range(20):
            s.puts("q", [{}] * 1000)
            floor.look(s)
            while taken := floor.take(s, "q", 1000):
                s.acks(taken)
        floor.look(s), floor.look(s)
        assert floor.take(s, "q", 1) == []
        made, one = s.put("q").id, s.put("other").id

        def pages(queue, floor):
            """Pages that a look at a queue's heads reads."""
            plan = s.inner("EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) SELECT (x).id FROM unnest(heads(ARRAY[home_of(%s, 0)], "
                           "%s::bigint[], clock_ms(), 5, NULL, slots_at(clock_ms()))) x", queue, [floor])[0][0][0]["Plan"]
            assert plan["Actual Rows"] == 1
            return plan["Shared Hit Blocks"] + plan["Shared Read Blocks"]

        pages("other", 0)
        fresh = pages("other", 0)
        with_floor, without = pages("q", floor.floor) - fresh, pages("q", 0) - fresh
        assert without > 100 and with_floor < without / 10, (fresh, with_floor, without)
        assert [t.id for t in s.take("q", floors=(floor.floor, 0))] == [made] and one


def test_plans_hold_without_statistics(s):
    """On tables that are empty, were filled since, and were never analysed: no scan of a whole table anywhere."""
    with other(s, autocommit=True) as conn:
        mine = store(s)
        # Plans are made and kept while all is empty.
        for _ in range(7):
            row = mine.put("q", key=b"k", kind=2, value=HOUR)
            mine.take("q"), mine.get("q", id=row.id), mine.get("q", key=b"k"), mine.change("q", key=b"k")
        at = 0
        while at < 20_000:
            mine.puts("q", [{"kind": 2, "value": at // 10 + HOUR}] * 2000)
            at += 2000
        scans = "SELECT relname, seq_scan, seq_tup_read FROM pg_stat_user_tables WHERE schemaname = 'dwell' AND relname ~ '^(pend|body|standing_|key)'"
        flush = lambda c: c.execute("SELECT pg_stat_clear_snapshot()")

        def read(c):
            flush(c)
            return sum(row[2] for row in c.execute(scans).fetchall())

        pids = [mine.conn.info.backend_pid]
        mine.conn.close()
        mine = store(s)
        pids.append(mine.conn.info.backend_pid)
        before = read(conn)
        for _ in range(12):
            row = mine.put("q", key=b"k", kind=2, value=HOUR)
            mine.take("q"), mine.get("q", id=row.id), mine.get("q", key=b"k")
            mine.all("SELECT * FROM @locate_1(%s, NULL)", [row.number])
            mine.list("q", "scheduled", max=5), mine.all("SELECT * FROM @next_1(ARRAY['q'], ARRAY[0]::bigint[], false, NULL)")
            mine.change("q", key=b"k")
        mine.conn.close()
        # A backend sends its counts when it ends.
        backends = "SELECT count(*) FROM pg_stat_activity WHERE pid = ANY (%s)"
        until = time.monotonic() + 30
        while conn.execute(backends, (pids,)).fetchone()[0] > 0:
            assert time.monotonic() < until
            time.sleep(0.01)
        assert read(conn) - before < 20_000, "a whole table was read"


def test_connections_that_end_leave_nothing_behind(s):
    made = set()
    for at in range(10):
        conn = other(s)
        row = conn.execute("SELECT dwell.put('q', 'b', key => 'k')").fetchone()[0]
        if at % 3 == 0:
            conn.commit()
            made.add(row)
            s.acks(s.take("q"))
        conn.close()
    assert s.put("q", key=b"k").code == "", "no lock and no name is left"
    assert len(s.take("q", 9)) == 1
