"""Concurrent calls: takes, transactions that commit late, batches in opposite orders, a snapshot held open, bad statistics."""
import builtins
import random
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import psycopg

from store import Store

T0 = 1_800_000_000_000
HOUR = 3_600_000


def together(*jobs):
    """Runs these concurrently, and raises the first exception of any of them."""
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


def until(holds):
    """Polls until this holds, for two minutes at most."""
    end = time.monotonic() + 120
    while not holds():
        assert time.monotonic() < end, "in vain"
        time.sleep(0.01)


def store(s):
    return Store(s.conn.info.dsn)


def other(s, **options):
    return psycopg.connect(s.conn.info.dsn, **options)


class Floor:
    """The state with which a process begins its takes where the last one ended."""

    def __init__(self):
        self.seal, self.probe, self.floor = 0, None, 0

    def look(self, s):
        """Every message due before the seal is visible to all later readers, or never will be."""
        writers = s.one("SELECT * FROM @writers_1()")
        if self.probe is None or not set(self.probe.puts) & set(writers.puts):
            self.seal = max(self.seal, self.probe.now_ms if self.probe else 0)
            self.probe = writers

    def take(self, s, queue, max):
        # Read before the take: it may miss what is sealed later.
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
    # If others have locked the rest, the take returns nothing.
    while taken := s.take("q", 100):
        got.extend(t.id for t in taken)
        s.acks(taken)
    assert len(got) == len(set(got)) == 600 and set(got) == set(made)


def test_transactions_that_commit_late_are_not_passed_over(s):
    """Producers keep their transactions open for a random while; a consumer uses floors all the time."""
    made, got, stop = [], [], threading.Event()
    lock = threading.Lock()

    def producer(seed):
        choose = random.Random(seed)
        with other(s) as conn:
            for _ in range(25):
                rows = [conn.execute("SELECT dwell.put('q', 'b', delay => %s)", (f"{choose.randint(0, 3)} ms",)).fetchone()[0]
                        for _ in range(choose.randint(1, 4))]
                # A random pause that lets others put and take; no assertion depends on it.
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
            rows = mine.puts("q", [{"key": key, "opts": {"conflict": 1}, "idempotency_key": b"t%d" % choose.randint(0, 20)} for key in keys_])
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
            # A put that replaces a leased message keeps it locked until its batch ends.
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
        # Others may hold the name for longer than a call waits.
        while (row := mine.put("q", idempotency_key=b"t", kind=2, value=HOUR)).code == "busy":
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
        # Before its commit and after: the old home is given up only after it has ended.
        s.maintain(); s.maintain()
        later = s.put("q").id
        conn.commit()
    s.maintain(); s.maintain()
    assert {t.id for t in s.take("q", 99)} == spared | {later}
    assert s.counts("q") == (0, 0, 3, 0)
    assert s.one("SELECT count(*) AS n FROM @purge WHERE NOT is_done").n == 0
    assert s.put("q", key=b"open").code == "key_taken"


def test_a_snapshot_held_open_slows_no_take(s):
    """Index entries of taken messages remain while a snapshot is held; a floor lets the take skip all of them."""
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
            """The number of pages that reading the heads of a queue needs."""
            plan = s.inner("EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) SELECT (x).id FROM unnest(heads(ARRAY[home_of(%s, 0)], "
                           "%s::bigint[], clock_ms(), 5, NULL, slots_at(clock_ms()), clock_ms())) x", queue, [floor])[0][0][0]["Plan"]
            assert plan["Actual Rows"] == 1
            return plan["Shared Hit Blocks"] + plan["Shared Read Blocks"]

        pages("other", 0)
        fresh = pages("other", 0)
        with_floor, without = pages("q", floor.floor) - fresh, pages("q", 0) - fresh
        assert without > 100 and with_floor < without / 10, (fresh, with_floor, without)
        assert [t.id for t in s.take("q", floors=(floor.floor, 0))] == [made] and one


def test_plans_hold_without_statistics(s):
    """On tables that were empty when planned, were filled since, and never analysed: no sequential scan anywhere."""
    with other(s, autocommit=True) as conn:
        mine = store(s)
        # Plans are made and cached while the tables are empty.
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
        # A backend reports its statistics when it ends.
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


def test_the_waits_of_a_call_last_no_longer_together_than_one_may(s):
    s.stop_clock(T0)
    first, second, other = (type(s)(s.dsn) for _ in range(3))
    s.conn.execute("UPDATE dwell.setting SET own = '{\"lock_ms\": 600000}' WHERE qid = 0")
    codes = lambda rows: [row.code for row in rows]
    pid = other.conn.info.backend_pid
    waits_for = lambda: s.one("SELECT pg_blocking_pids(%s) AS pids", pid).pids
    s.puts("q", [{"key": b"c"}, {"key": b"d"}])
    s.puts("taken", [{}] * 6)
    taken = sorted(s.take("taken", 6, lease=10 * HOUR), key=lambda t: t.id)
    s.puts("dead", [{}] * 2)
    dead = sorted(s.take("dead", 2), key=lambda t: t.id)
    for one in dead:
        s.settle(one, "bury")
    put = lambda key: (lambda store: store.all("SELECT @put('q', 'x', key_bytes => %s, on_conflict => 'replace')", key))
    ack = lambda one: (lambda store: store.acks([one]))
    discard = lambda one: (lambda store: store.sweep_dead("dead", [one.id]))
    # A call, what two transactions hold, and the answers.
    for call, holds, answer in [
            (lambda: codes(other.puts("q", [{"key": b"a"}, {"key": b"b"}, {}])), [put(b"a"), put(b"b")], ["", "busy", ""]),
            (lambda: codes(other.all(
                "SELECT * FROM @change_1('q', NULL, %s::bytea[], ARRAY[NULL, NULL]::smallint[], ARRAY[NULL, NULL]::bigint[], NULL)",
                [b"c", b"d"])), [put(b"c"), put(b"d")], ["", "busy"]),
            (lambda: codes(other.acks(taken[:3])), [ack(taken[0]), ack(taken[1])], ["", "busy", ""]),
            (lambda: codes(other.all("SELECT * FROM @expire_lease_1('taken', %s::uuid[], ARRAY[1, 1, 1], NULL)",
                                     [one.id for one in taken[3:]])), [ack(taken[3]), ack(taken[4])], ["", "busy", ""]),
            (lambda: codes(other.sweep_dead("dead", [one.id for one in dead], kind=0)), [discard(one) for one in dead],
             ["busy", ""])]:
        for holder, hold in zip((first, second), holds):
            holder.conn.execute("BEGIN")
            hold(holder)
        with ThreadPoolExecutor(1) as pool:
            calling = pool.submit(call)
            until(lambda: waits_for() == [first.conn.info.backend_pid])
            # Nearly all of the time is over when the first key is free: little is left for the second.
            s.advance(599_990)
            first.conn.execute("ROLLBACK")
            try:
                assert calling.result(timeout=120) == answer
            finally:
                second.conn.execute("ROLLBACK")
    s.conn.execute("UPDATE dwell.setting SET own = '{}' WHERE qid = 0")
    for store in (first, second, other):
        store.conn.close()


def test_readers_see_all_of_the_dead_or_none_while_they_are_discarded(s):
    s.stop_clock(T0)
    s.conn.execute("UPDATE dwell.setting SET own = '{\"lock_ms\": 600000}' WHERE qid = 0")
    s.puts("q", [{"opts": {"expires": T0 + 100}}] * 10_000)
    last = s.put("q", opts={"expires": T0 + 200})
    s.advance(200)
    until(lambda: s.maintain().expired == 0)
    holder, other = type(s)(s.dsn), type(s)(s.dsn)
    holder.conn.execute("BEGIN")
    assert holder.sweep_dead("q", [last.id])[-1].done == 1
    with ThreadPoolExecutor(1) as pool:
        calling = pool.submit(lambda: other.sweep_dead("q", most=1 << 40)[-1])
        until(lambda: calling.done() or s.one("SELECT pg_blocking_pids(%s) AS pids", other.conn.info.backend_pid).pids)
        seen = (calling.done(), s.counts("q"))
        holder.conn.execute("ROLLBACK")
        assert seen == (False, (0, 0, 0, 10_001)), f"it waits for the last one: {seen}"
        assert (calling.result(timeout=120).done, s.counts("q")) == (10_001, "unknown_queue")
    s.conn.execute("UPDATE dwell.setting SET own = '{}' WHERE qid = 0")
    for store in (holder, other):
        store.conn.close()


def test_an_expired_message_that_is_held_makes_no_take_busy(s):
    s.stop_clock(T0)
    held = s.put("q", opts={"expires": T0 + 100})
    due = s.put("q")
    moved = s.put("q", opts={"expires": T0 + 100, "priority": 7})
    other = type(s)(s.dsn)
    with other.conn.transaction(force_rollback=True):
        assert other.change("q", id=held.id).what == "cancelled"
        assert other.change("q", id=moved.id).what == "cancelled"
        s.advance(100)
        s.conn.execute("UPDATE dwell.setting SET own = '{\"lock_ms\": 120000}' WHERE qid = 0")
        started = time.monotonic()
        assert [t.id for t in s.take("q", 9)] == [due.id]
        assert time.monotonic() - started < 100, "it did not wait for the lock"
        s.conn.execute("UPDATE dwell.setting SET own = '{}' WHERE qid = 0")
    other.conn.close()
    assert s.take("q", 9) == [] and s.counts("q") == (0, 0, 1, 2), "they die when they are free again"


def test_a_take_kills_few_expired_messages_and_passes_over_the_rest(s):
    s.stop_clock(T0)
    for priority in (1024, 7):
        s.puts("q", [{"opts": {"expires": T0 + 100, "priority": priority}}] * 100)
    due = s.puts("q", [{}, {"opts": {"priority": 9}}, {"opts": {"priority": 2000}}])
    s.advance(100)
    dead = lambda: s.one("SELECT count(*) AS n FROM @standing WHERE part = 6").n
    s.take("q", 0)
    before = dead()
    assert {t.id for t in s.take("q", 9)} == {put.id for put in due}
    assert dead() - before <= 32, dead()
    assert s.maintain().expired > 0 and s.counts("q") == (0, 0, 3, 200)


def test_many_queues_are_asked_for_at_once(s):
    names = [f"q{n}" for n in range(1000)]
    s.puts("q", [{"queue": name, "kind": 2, "value": HOUR} for name in names])
    ask = lambda: s.all("SELECT * FROM @next_1(%s::text[], NULL, false, NULL)", names)
    assert all(row.instant > row.now_ms and not row.is_due for row in ask())
    started = time.monotonic()
    ask()
    seconds, started = time.monotonic() - started, time.monotonic()
    s.all("SELECT s.* FROM unnest(%s::text[]) AS q (name), LATERAL (SELECT next_due FROM @stats_1(q.name, 0, NULL) OFFSET 0) s", names[:100])
    # Statistics of a queue are some statements on all tables.
    assert seconds < (time.monotonic() - started) * 2.5, seconds


def test_queues_that_were_emptied_cost_a_list_little(s):
    s.put("z")
    s.all("INSERT INTO @queue SELECT home_of, name FROM (SELECT @home_of(name, 0), name FROM "
          "(SELECT 'q' || n AS name FROM generate_series(1, 20000) n) x) y RETURNING 1")
    started = time.monotonic()
    assert [row.name for row in s.all("SELECT * FROM @queues_1(NULL, 10, NULL)")] == ["z"]
    assert s.one("SELECT * FROM @forecast_1(NULL, ARRAY[0]::bigint[], NULL)").code == ""
    short = time.monotonic() - started
    started = time.monotonic()
    s.all("SELECT s.* FROM generate_series(1, 1000) g, LATERAL (SELECT code FROM @stats_1('q' || g, 0, NULL) OFFSET 0) s")
    assert short < (time.monotonic() - started) * 3, "20,000 cost less than the statistics of 3,000"


def test_two_that_trim_a_queue_remove_its_excess_once(s):
    for n in range(12):
        s.put("q")
        s.settle(s.take("q")[0], "bury")
    s.configure("q", dead_max=9)
    dead = lambda: s.one("SELECT count(*) AS n FROM @standing WHERE part = 6").n
    assert dead() == 9
    other = type(s)(s.dsn)
    s.all("UPDATE @setting SET own = own || '{\"dead_max\": 4}' WHERE qid <> 0 RETURNING 1")
    with other.conn.transaction():
        other.stats("q")
        s.stats("q")
    assert dead() == 4 and s.counts("q") == (0, 0, 0, 4)
    other.conn.close()


def test_a_put_that_a_purge_has_spared_is_found_before_maintenance_comes_to_it(s):
    def spared(**item):
        other = type(s)(s.dsn)
        with other.conn.transaction():
            put = other.put("q", **item)
            s.put("q")
            assert s.purge("q") >= 1
        other.conn.close()
        return put

    # By key: one that was never touched, and one that lies in `standing` since it was due before its put.
    for item in ({}, {"kind": 1, "value": 1}):
        put = spared(key=b"k", **item)
        assert s.get("q", key=b"k").name == s.get("q", id=put.id).name == "ready"
        again = s.put("q", key=b"k")
        assert (again.code, again.info) == ("key_taken", str(put.id)), again
        assert s.change("q", key=b"k").what == "cancelled" and s.get("q", id=put.id).name == "unknown_queue"
    gone = s.put("q", key=b"g")
    assert s.purge("q") == 1 and s.get("q", id=gone.id).name == "unknown_queue"
    assert s.put("q", key=b"g").outcome == 0, "a purged one is gone"
    kept = spared(key=b"m")
    assert s.change("q", id=kept.id, kind=2, value=HOUR).what == "moved"
    for _ in range(3):
        s.maintain()
    assert s.get("q", key=b"m").name == "scheduled"


def test_a_home_that_a_purge_has_ended_gets_no_message(s):
    """A call reads the home, waits, and files a message: meanwhile a purge ends, and maintenance gives the home up."""
    s.put("q")
    taken = s.take("q")[0]
    home = s.inner("SELECT home_of('q', 0) AS home")[0].home
    s.put("q")
    assert s.purge("q") == 1
    for _ in range(3):
        s.maintain()
    assert s.one("SELECT is_done FROM @purge WHERE qid <> 0").is_done
    answer = s.inner("SELECT settle_one(%s, %s, builtin_settings(), %s, %s, 2, NULL, NULL, NULL, 0) AS a", home, home,
                     taken.id, taken.token)
    assert "ready" in str(answer[0].a), answer
    assert [t.id for t in s.take("q", 9)] == [taken.id]


def test_a_step_of_the_maintenance_that_waits_undoes_no_other(s):
    s.stop_clock(T0)
    put = s.put("q", opts={"expires": T0 + 100})
    s.advance(100)
    other = type(s)(s.dsn)
    with other.conn.transaction():
        other.conn.execute("LOCK TABLE dwell.idempotency IN ACCESS EXCLUSIVE MODE")
        row = s.maintain()
        assert (row.expired, row.forgotten) == (1, None)
    other.conn.close()
    assert s.maintain().forgotten == 0 and s.get("q", id=put.id).name == "dead"


def test_the_name_of_an_emptied_queue_is_forgotten_unless_somebody_relies_on_it(s):
    s.stop_clock(T0)
    names = lambda: sorted(row.name for row in s.all("SELECT name FROM @queue"))

    def emptied(*queues):
        # Counts are folded where there are many rows.
        for queue in queues:
            for _ in range(60):
                s.put(queue)
            s.acks(s.take(queue, 100))
        s.all("INSERT INTO @tally SELECT g %% 2, 0, 0, 0, 0, 0 FROM generate_series(1, 200) g RETURNING 1")
        s.maintain()
        assert all(s.one("SELECT count(*) AS n FROM @tally WHERE qid = @home_of(%s, 0)", queue).n == 0 for queue in queues)

    emptied("a", "b", "c")
    s.configure("kept", lease=5)
    open_, old = type(s)(s.dsn), type(s)(s.dsn)
    with open_.conn.transaction():
        open_.all("SELECT pg_current_xact_id()")
        for _ in range(3):
            s.maintain()
        assert names() == ["a", "b", "c", "kept"], "it may rely on the names"
        late = open_.put("b")
    for _ in range(3):
        s.maintain()
    assert names() == ["b", "kept"]
    with old.conn.transaction():
        old.conn.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        s.stop_clock(T0 + 30_000)
        emptied("c")
        old.all("SELECT FROM @queue")
        s.stop_clock(T0 + 60_000)
        for _ in range(3):
            s.maintain()
        assert names() == ["b", "kept"], names()
        # Its snapshot still has the name.
        stale = old.put("c")
    assert names() == ["b", "c", "kept"]
    assert s.one("SELECT * FROM @locate_1(ARRAY[%s]::bigint[], NULL)", stale.number).queue == "c"
    assert s.one("SELECT * FROM @locate_1(ARRAY[%s]::bigint[], NULL)", late.number).queue == "b"
    open_.conn.close(), old.conn.close()
