"""The store's calls, one after another: order, keys, idempotency, states, refusals."""
import uuid

T0 = 1_800_000_000_000
MIN, HOUR, DAY = 60_000, 3_600_000, 86_400_000


def ids(rows):
    return [row.id for row in rows]


def test_due_messages_go_out_by_priority_then_due_then_id(s):
    s.stop_clock(T0)
    plan = [(1024, 0), (5, 100), (1024, 50), (2000, 0), (5, 50), (1024, 50), (0, 3 * HOUR), (1024, 2 * DAY), (7, 40 * DAY)]
    put = [s.put("q", kind=2, value=delay, opts={"priority": priority}) for priority, delay in plan]
    assert [row.code for row in put] == [""] * len(plan)
    assert ids(s.take("q", 10)) == [put[0].id] + [put[3].id], "the rest is not due"
    s.advance(41 * DAY)
    order = sorted((p for at, p in enumerate(zip([x[0] for x in plan], put)) if at not in (0, 3)),
                   key=lambda pair: (pair[0], pair[1].due, pair[1].id))
    got = s.take("q", 100)
    # The two leases from before have lapsed: their messages are back in their places.
    expected = sorted([(plan[at][0], put[at].due, put[at].id) for at in range(len(plan))])
    assert [(t.priority, t.due, t.id) for t in got] == expected
    assert order


def test_nothing_is_early_and_a_part_of_a_millisecond_counts_up(s):
    s.stop_clock(T0)
    s.all("UPDATE @test_clock SET us = us + 1 RETURNING 1")
    row = s.put("q", kind=2, value=10)
    assert row.due == T0 + 11, "the delay ends within that millisecond"
    s.stop_clock(T0 + 10)
    assert s.take("q") == []
    s.stop_clock(T0 + 11)
    assert ids(s.take("q")) == [row.id]
    now = s.put("q")
    assert now.due == T0 + 11 and ids(s.take("q")) == [now.id], "a put without a delay is due at once"


def test_a_body_comes_back_byte_for_byte(s):
    bodies = [b"", bytes(range(256)), b"x" * 1_048_576]
    for body in bodies:
        s.put("q", body=body)
    assert [t.body for t in s.take("q", 5)] == bodies
    row = s.put("q", body=b"x" * 1_048_577)
    assert (row.code, row.info) == ("body_too_large", "1048576")


def test_messages_of_every_slot_come_out(s):
    s.stop_clock(T0)
    delays = [0, 9 * MIN, 59 * MIN, 61 * MIN, 23 * HOUR, 25 * HOUR, 29 * DAY, 31 * DAY, 4000 * DAY]
    put = s.puts("q", [{"kind": 2, "value": delay} for delay in delays])
    slots = {(row.id.int >> 64) & 0xFFF for row in put}
    assert len(slots) > 6
    assert s.counts("q") == (8, 1, 0, 0)
    for delay, row in zip(delays, put):
        s.stop_clock(T0 + delay - 1)
        assert s.take("q", 1) == [] or delay == 0
        s.stop_clock(T0 + delay)
        taken = s.take("q", 5)
        assert ids(taken) == [row.id], delay
        assert s.acks(taken)[0].what == "gone"
    assert s.counts("q") == "unknown_queue"


def test_past_instants_are_due_now_in_their_order(s):
    s.stop_clock(T0)
    new = s.put("q", kind=1, value=T0 - 5)
    old = s.put("q", kind=1, value=0)
    middle = s.put("q")
    s.take("none")
    assert ids(s.take("q", 5, floors=(T0, 0))) == [old.id, new.id, middle.id], "floors do not hide them"


def test_refusals_of_puts(s):
    s.stop_clock(T0)
    cases = [
        ({"kind": 1, "value": -1}, "due_out_of_range"), ({"kind": 1, "value": 253402300800000}, "due_out_of_range"),
        ({"kind": 2, "value": -1}, "negative_delay"), ({"kind": 2, "value": 1 << 62}, "due_out_of_range"),
        ({"kind": 3, "value": 1}, "unknown_level"), ({"kind": 1, "value": None}, "due_out_of_range"),
        ({"body": None}, "invalid_argument"), ({"key": b""}, "invalid_key"), ({"key": b"k" * 513}, "invalid_key"),
        ({"key": b"\xff"}, "invalid_key"), ({"key": b"\x00\xff"}, "invalid_key"), ({"idempotency_key": b"a b"}, "invalid_idempotency_key"),
        ({"idempotency_key": b""}, "invalid_idempotency_key"), ({"opts": {"lease": 0}}, "invalid_setting"),
        ({"opts": {"priority": -1}}, "invalid_argument"), ({"opts": {"priority": 1 << 32}}, "invalid_argument"),
        ({"opts": {"expires": T0}}, "expires_before_due"), ({"opts": {"headers": {"a b": "c"}}}, "invalid_header"),
        ({"opts": {"headers": {"a": "c\n"}}}, "invalid_header"), ({"opts": {"headers": {"a": 1}}}, "invalid_header"),
        ({"opts": {"headers": {"a": "x" * 20000}}}, "headers_too_large"),
        ({"queue": "-q"}, "invalid_queue_name"), ({"queue": "q\n"}, "invalid_queue_name"), ({"queue": "ä"}, "invalid_queue_name"),
        ({"queue": "x" * 201}, "invalid_queue_name"), ({"queue": None}, "invalid_queue_name"),
    ]
    rows = s.puts("q", [item for item, _ in cases] + [{}])
    assert [row.code for row in rows] == [code for _, code in cases] + [""], [(r.item, r.code) for r in rows]
    assert s.counts("q") == (0, 1, 0, 0), "a bad item in a batch fails alone"
    assert s.all("SELECT FROM @key") == [] and s.all("SELECT FROM @idempotency") == []


def test_keys(s):
    s.stop_clock(T0)
    a = s.put("q", kind=2, value=HOUR, key=b"k")
    clash = s.put("q", key=b"k")
    assert (clash.code, clash.info) == ("key_taken", str(a.id))
    assert s.put("other", key=b"k").code == "", "keys are scoped to their queue"
    kept = s.put("q", kind=2, value=MIN, key=b"k", opts={"conflict": 2})
    assert (kept.id, kept.due, kept.outcome) == (a.id, T0 + MIN, 2)
    later = s.put("q", kind=2, value=DAY, key=b"k", opts={"conflict": 2})
    assert later.due == T0 + MIN, "the earlier instant wins"
    b = s.put("q", key=b"k", body=b"new", opts={"conflict": 1})
    assert (b.outcome, b.replaced) == (1, a.id)
    assert s.get("q", id=a.id).name == "message_not_found" and s.get("q", key=b"k").id == b.id
    taken = s.take("q")[0]
    assert taken.key == b"k"
    assert s.put("q", key=b"k", opts={"conflict": 2}).code == "leased"
    c = s.put("q", kind=2, value=HOUR, key=b"k", opts={"conflict": 1})
    assert c.replaced == b.id and s.get("q", key=b"k").id == c.id
    assert s.get("q", id=b.id).key is None, "its holder settles it keyless"
    assert s.settle(taken).what == "gone"
    assert s.get("q", key=b"k").id == c.id
    assert s.change("q", key=b"k").what == "cancelled"
    assert s.put("q", key=b"k").code == "", "a key is free once its message is gone"
    s.settle(s.take("q")[0], "bury")
    assert s.get("q", key=b"k").name == "message_not_found", "a dead message has no key"
    assert s.put("q", key=b"k").code == ""


def test_u_0000_in_keys_and_error_texts(s):
    s.stop_clock(T0)
    a = s.put("q", key=b"a\x00b")
    assert s.put("q", key=b"a\x00b").code == "key_taken" and s.put("q", key=b"a\x00c", kind=2, value=1).code == ""
    assert s.get("q", key=b"a\x00b").id == a.id
    assert s.put("q", key="заказ\x00".encode(), kind=2, value=1).code == ""
    taken = s.take("q")[0]
    assert s.settle(taken, "retry", 0, error=b"bad\x00byte").what == "ready"
    assert s.get("q", id=a.id).last_error == b"bad\x00byte"


def test_idempotency_keys(s):
    s.stop_clock(T0)
    a = s.put("q", kind=2, value=MIN, idempotency_key=b"t")
    again = s.put("q", kind=2, value=HOUR, idempotency_key=b"t")
    assert again[3:] == a[3:], "the same answer"
    for other in ({"body": b"other"}, {"key": b"k"}):
        refused = s.put("q", kind=2, value=MIN, idempotency_key=b"t", **other)
        assert (refused.code, refused.info) == ("idempotency_mismatch", str(a.id))
    assert s.put("r", idempotency_key=b"t").id != a.id, "scoped to their queue"
    assert s.change("q", id=a.id).what == "cancelled"
    assert s.put("q", idempotency_key=b"t").id == a.id, "also when the message is gone"
    refused = s.put("q", kind=2, value=-1, idempotency_key=b"u")
    assert refused.code == "negative_delay" and s.put("q", idempotency_key=b"u").code == "", "a refused put leaves it unused"
    s.advance(600_001)
    assert s.put("q", idempotency_key=b"t").id != a.id, "forgotten after its time"
    s.advance(600_001)
    assert s.maintain().forgotten >= 1


def test_states_of_settlements(s):
    s.stop_clock(T0)
    s.configure("q", max_attempts=3, backoff={"base": 1000, "factor": 200, "cap": 1500, "jitter": 0})
    a = s.put("q")
    t = s.take("q")[0]
    assert (t.deadline, t.takes, t.attempts) == (T0 + 30_000, 1, 0)
    assert s.settle(t, "extend", 5).value == T0 + 5
    assert s.settle(t, "release").what == "ready"
    assert s.settle(t, "ack").code == "lease_lost", "a receipt is stale once it was settled"
    t = s.take("q")[0]
    assert (t.takes, t.releases, t.attempts) == (2, 1, 0)
    r = s.settle(t, "retry", error=b"boom", priority=7)
    assert (r.what, r.value) == ("scheduled", T0 + 1000)
    assert s.counts("q") == (1, 0, 0, 0)
    s.advance(1000)
    t = s.take("q")[0]
    assert (t.priority, t.last_error, t.attempts) == (7, b"boom", 1)
    r = s.settle(t, "retry")
    assert (r.what, r.value) == ("scheduled", T0 + 2500), "the cap"
    s.advance(1500)
    t = s.take("q")[0]
    r = s.settle(t, "retry", 5)
    assert (r.what, r.value) == ("dead", 1)
    g = s.get("q", id=a.id)
    assert (g.name, g.reason, g.attempts, g.due, g.last_error) == ("dead", 1, 3, T0 + 2500, b"boom")
    assert s.counts("q") == (0, 0, 0, 1)
    assert s.change("q", id=a.id).what == "dead"
    assert s.sweep_dead("q", kind=2, value=10)[0].done == 1
    g = s.get("q", id=a.id)
    assert (g.name, g.attempts, g.revives, g.due) == ("scheduled", 0, 1, T0 + 2510)
    assert s.change("q", id=a.id, kind=0).what == "moved"
    t = s.take("q")[0]
    assert (s.settle(t, "bury", error=b"why").value, s.get("q", id=a.id).buries) == (2, 1)
    assert s.settle(t, "give_back").code == "lease_lost"
    assert s.sweep_dead("q")[0].done == 1
    assert s.counts("q") == (0, 0, 0, 0), "it has settings of its own"
    assert s.settle(t, "retry", -5).code == "lease_lost"


def test_lapses(s):
    s.stop_clock(T0)
    s.configure("q", max_attempts=2, lease=100)
    a = s.put("q", key=b"k")
    t = s.take("q")[0]
    s.advance(99)
    assert s.get("q", id=a.id).name == "leased" and s.take("q") == []
    s.advance(1)
    g = s.get("q", id=a.id)
    assert (g.name, g.attempts, g.lapses) == ("ready", 1, 1), "though nobody took meanwhile"
    assert s.settle(t).code == "lease_lost"
    assert s.counts("q") == (0, 1, 0, 0)
    t2 = s.take("q")[0]
    assert t2.token != t.token and t2.attempts == 1
    s.advance(1000)
    g = s.get("q", id=a.id)
    assert (g.name, g.reason, g.died) == ("dead", 1, T0 + 200), "the deadline, not when it was noticed"
    assert s.put("q", key=b"k").code == "", "its key is free"
    assert s.counts("q") == (0, 1, 0, 1)
    g = s.get("q", id=a.id)
    assert (g.name, g.died) == ("dead", T0 + 200)


def test_expiry(s):
    s.stop_clock(T0)
    a = s.put("q", key=b"a", opts={"expires": T0 + 50})
    b = s.put("q", kind=2, value=10, opts={"expires": T0 + 50, "priority": 9})
    c = s.put("q", kind=2, value=20)
    s.advance(50)
    assert s.get("q", id=a.id).name == "dead" and s.get("q", id=b.id).reason == 3
    assert s.get("q", key=b"a").name == "message_not_found"
    assert ids(s.take("q", 5)) == [c.id], "an expired message is not handed out"
    assert s.put("q", key=b"a").code == ""
    assert s.counts("q") == (0, 1, 1, 2)
    assert {row.id for row in s.list("q", "dead")} == {a.id, b.id}
    held = s.put("p", opts={"expires": T0 + 100})
    t = s.take("p")[0]
    s.advance(100)
    assert s.get("p", id=held.id).name == "leased", "held past its expiry"
    assert (s.settle(t, "release").what, s.get("p", id=held.id).died) == ("dead", T0 + 100)
    d = s.put("r", opts={"expires": T0 + 1000})
    s.advance(1000)
    assert s.maintain().expired == 1 and s.get("r", id=d.id).name == "dead"
    assert s.sweep_dead("r", [d.id], kind=0)[-1].done == 1
    assert s.get("r", id=d.id).expires is None


def test_take_by_id(s):
    s.stop_clock(T0)
    a = s.put("q", kind=2, value=HOUR, key=b"k")
    s.configure("q", pause=-1)
    take = lambda: s.one("SELECT * FROM @take_id_1('q', %s, NULL, NULL, NULL, true, NULL)", a.id)
    t = take()
    assert (t.state, t.due, t.body, t.key) == (3, T0, b"b", b"k")
    assert take().code == "leased"
    t = t._replace(info="q")
    from types import SimpleNamespace
    held = SimpleNamespace(queue="q", id=t.id, token=t.token)
    assert s.settle(held, "bury").what == "dead"
    other = s.put("q", key=b"k")
    assert (take().code, take().info) == ("key_taken", str(other.id))
    assert s.change("q", id=other.id).what == "cancelled"
    t = take()
    assert (t.state, t.revives, t.attempts) == (3, 1, 0)
    assert s.put("q", key=b"k").code == "key_taken", "it claims its key"
    assert s.one("SELECT * FROM @take_id_1('q', %s, NULL, NULL, NULL, true, NULL)", uuid.UUID(int=5)).code == "message_not_found"


def test_max_bytes_bounds_a_take_but_grants_one(s):
    put = [s.put("q", body=b"x" * 100) for _ in range(5)]
    assert ids(s.take("q", 5, max_bytes=10)) == [put[0].id]
    assert ids(s.take("q", 5, max_bytes=250)) == [put[1].id, put[2].id]
    # What was left is not below the floor.
    assert s.last_floors[0] <= put[3].due
    assert ids(s.take("q", 5, floors=s.last_floors)) == [put[3].id, put[4].id]
    assert s.take("q", 0) == []


def test_several_queues_by_priority_due_and_id_across_them(s):
    s.stop_clock(T0)
    put = [s.put("abc"[at % 3], kind=1, value=T0 + at // 2, opts={"priority": 1024 if at % 4 else 3}) for at in range(12)]
    s.advance(100)
    got = s.take(["a", "b", "c", "a", "none"], 20)
    keys = [(t.priority, t.due, t.id) for t in got]
    assert keys == sorted(keys) and len(got) == 12 and {t.queue for t in got} == {"a", "b", "c"}
    assert {t.id for t in got} == set(ids(put))


def test_a_paused_queue_hands_nothing_out(s):
    s.stop_clock(T0)
    s.put("q")
    s.configure("q", pause=T0 + 10)
    assert s.take("q") == []
    s.advance(10)
    assert len(s.take("q")) == 1
    s.settle(s.one("SELECT 'q' AS queue, id, token FROM @standing"))
    assert s.counts("q") == "unknown_queue", "a pause that has ended is no setting"


def test_lists_page_in_due_and_id_order(s):
    s.stop_clock(T0)
    put = [s.put("q", kind=2, value=(at * 37) % 11 * HOUR + 1, opts={"priority": at % 3 + 1023}) for at in range(30)]
    for row in put[:10]:
        s.change("q", id=row.id, kind=2, value=(row.number * 13) % 7 * HOUR + 1)
    for state, advance in (("scheduled", 0), ("ready", 12 * HOUR)):
        s.advance(advance)
        seen, after = [], (None, None)
        while page := s.list("q", state, after, max=4):
            seen += page
            after = (page[-1].due, page[-1].id)
        assert [(r.due, r.id) for r in seen] == sorted((r.due, r.id) for r in seen), state
        assert {r.id for r in seen} == set(ids(put)) and len(seen) == 30, (state, len(seen))
    assert s.counts("q") == (0, 30, 0, 0)
    taken = s.take("q", 12)
    first = s.list("q", "leased", max=5)
    rest = s.list("q", "leased", (first[-1].due, first[-1].id))
    assert {r.id for r in first + rest} == set(ids(taken)) and len(first + rest) == 12
    s.put("big", body=b"x" * 1000)
    s.put("big", body=b"x" * 1000)
    assert len(s.list("big", "ready", bytes=1500)) == 1 and len(s.list("big", "ready", bytes=1)) == 1


def test_locate(s):
    s.stop_clock(T0)
    a = s.put("q", kind=2, value=HOUR)
    b = s.put("r", kind=2, value=DAY)
    find = lambda *numbers: [(r.queue, r.id) for r in s.all("SELECT * FROM @locate_1(%s, NULL)", list(numbers))]
    s.change("q", id=a.id, kind=2, value=90 * DAY)
    assert find(a.number, b.number, 1 << 50) == [("q", a.id), ("r", b.id)]
    s.change("r", id=b.id)
    assert find(b.number) == []


def test_stats(s):
    s.stop_clock(T0)
    for at in range(6):
        s.put("q", kind=2, value=at * 10, opts={"priority": 1024 if at % 2 else 9})
    r = s.stats("q")
    assert (r.scheduled, r.ready, r.ready_urgent, r.next_due) == (5, 1, 1, T0 + 10)
    s.advance(25)
    r = s.stats("q")
    assert (r.scheduled, r.ready, r.ready_urgent, r.next_due) == (3, 3, 2, T0 + 30)
    s.take("q", 1)
    r = s.stats("q")
    assert (r.ready, r.ready_urgent, r.leased) == (2, 1, 1)
    s.put("p")
    names = [row.name for row in s.all("SELECT * FROM @queues_1(NULL, 10, NULL)")]
    assert names == ["p", "q"]
    assert [row.name for row in s.all("SELECT * FROM @queues_1('p', 10, NULL)")] == ["q"]
    assert s.counts("nobody") == "unknown_queue"


def test_settings(s):
    s.configure("q", levels=[1000, 5000], partitions=3)
    s.stop_clock(T0)
    assert s.put("q", kind=3, value=2).due == T0 + 5000
    r = s.put("q", kind=3, value=3)
    assert (r.code, r.info) == ("unknown_level", "2")
    try:
        s.configure("q", partitions=2)
        raise AssertionError("partitions is fixed while the queue has messages")
    except Exception as error:
        assert error.diag.message_detail == "setting_fixed", error
    s.configure("q", max_pending=2)
    assert s.put("q").code == ""
    full = s.put("q")
    assert (full.code, full.info) == ("queue_full", "2")
    s.configure("q", reset=["levels", "max_pending", "partitions"] if False else ["levels", "max_pending"])
    assert s.put("q").code == ""


def test_purge_leaves_leased_dead_and_later_messages(s):
    s.stop_clock(T0)
    for at in range(5):
        s.put("q", kind=2, value=at * HOUR, key=b"k%d" % at)
    leased = s.take("q")[0]
    s.put("q", kind=2, value=5)
    buried = s.put("q")
    s.settle(s.take("q")[0], "bury")
    s.change("q", key=b"k1", kind=2, value=7)
    assert s.purge("q") == 5
    assert s.counts("q") == (0, 0, 1, 1)
    assert s.put("q", key=b"k0").code == "key_taken", "the leased one has it"
    for key in (b"k1", b"k2"):
        assert s.get("q", key=key).name == "message_not_found"
        assert s.put("q", key=key, kind=2, value=HOUR).code == "", "keys of what was purged are free"
    assert s.counts("q") == (2, 0, 1, 1)
    assert s.purge("q") == 2
    late = s.put("q", key=b"k1")
    s.maintain(); s.maintain()
    assert s.counts("q") == (0, 1, 1, 1)
    assert ids(s.take("q", 9)) == [late.id]
    assert s.settle(leased, "release").what == "ready", "back where the queue is now"
    assert ids(s.take("q", 9)) == [leased.id]
    s.maintain(); s.maintain()
    assert s.one("SELECT count(*) AS n FROM @purge WHERE NOT is_done").n == 0
    assert s.sweep_dead("q", [buried.id], kind=0)[-1].done == 1
    assert ids(s.take("q", 9)) == [buried.id]


def test_delete_queue(s):
    s.configure("q", lease=77_000)
    s.put("q"); s.put("q"); s.put("q")
    s.settle(s.take("q")[0], "bury")
    t = s.take("q")[0]
    assert s.one("SELECT @delete_queue_1('q', NULL) AS n").n == 2
    assert s.counts("q") == (0, 0, 1, 0)
    assert s.settle(t).what == "gone" and s.counts("q") == "unknown_queue"


def test_revive_is_oldest_first_and_refuses_taken_keys(s):
    s.stop_clock(T0)
    put = []
    for at in range(5):
        put.append(s.put("q", key=b"k%d" % at))
        s.settle(s.take("q")[0], "bury")
        s.advance(1)
    s.put("q", key=b"k1", kind=2, value=HOUR)
    rows = s.sweep_dead("q", most=3, kind=0)
    assert rows[-1].done == 2 and (rows[0].id, rows[0].code) == (put[1].id, "key_taken")
    assert {t.id for t in s.take("q", 9)} == {put[0].id, put[2].id}
    rows = s.sweep_dead("q", [put[0].id, put[3].id, uuid.UUID(int=1)])
    assert [r.code for r in rows] == ["not_dead", "message_not_found", ""] and rows[-1].done == 1


def test_space_is_given_back_by_the_slot(s):
    s.stop_clock(T0)
    first = [s.put("q", kind=2, value=at * 1000, body=b"x" * 5000) for at in range(300)]
    far = s.put("q", kind=2, value=2 * DAY)
    s.stop_clock(T0 + 5 * MIN)
    taken = s.take("q", 1000, lease=DAY)
    assert len(taken) == 300
    s.acks(taken[2:])
    assert s.settle(taken[1], "bury").code == ""
    size = lambda: s.one("SELECT sum(pg_table_size(oid)) AS n FROM pg_class WHERE relkind = 'r' AND relnamespace = 'dwell'::regnamespace AND relname LIKE 'body%%'").n
    full = size()
    assert full > 300 * 5000
    s.stop_clock(T0 + 15 * MIN)
    slot = int(str(taken[0].id)[15:18], 16)
    assert slot in s.maintain(T0 + 15 * MIN).given_back
    assert size() < 65 * 16_384 + 200_000, "what is held and what is dead was written again"
    row = s.all("SELECT * FROM @get_1('q', %s::uuid[], NULL, true, NULL) ORDER BY item", [t.id for t in taken[:2]])
    assert [(r.state, bytes(r.body)) for r in row] == [(3, b"x" * 5000), (4, b"x" * 5000)]
    assert slot not in s.maintain(T0 + 15 * MIN).given_back, "it is not written again and again"
    s.acks(taken[:1])
    assert s.sweep_dead("q", [taken[1].id])[-1].done == 1
    s.maintain(T0 + 10 * MIN - 1)
    s.maintain(T0 + 15 * MIN)
    assert size() < 65 * 16_384 + 200_000, size()
    assert s.get("q", id=far.id).name == "scheduled"
    again = s.put("q", kind=2, value=10)
    s.advance(10)
    assert ids(s.take("q")) == [again.id]
    # Slots rotate.
    for step in range(30):
        row = s.put("q", kind=2, value=HOUR - 1)
        s.advance(HOUR)
        t = s.take("q", 9)
        assert row.id in ids(t), step
        s.acks(t)
        s.maintain(s.now())
    assert first


def test_a_put_after_the_clock_stepped_back_is_handed_out(s):
    s.stop_clock(T0)
    s.put("q")
    s.acks(s.take("q"))
    s.stop_clock(T0 + 3 * HOUR)
    s.maintain(T0 + 3 * HOUR)
    s.stop_clock(T0)
    row = s.put("q", kind=2, value=MIN)
    s.advance(MIN)
    assert ids(s.take("q")) == [row.id]


def test_no_other_sql_reads_a_clock(s):
    for name, source in s.all("SELECT proname, prosrc FROM pg_proc WHERE pronamespace = 'dwell'::regnamespace"):
        if name != "clock_us":
            for word in ("now()", "clock_timestamp", "current_timestamp", "statement_timestamp", "transaction_timestamp",
                         "timeofday", "current_date", "localtime"):
                assert word not in source.lower(), (name, word)


def test_backoff_is_that_of_the_model(s):
    # As `Backoff::delay_ms`: min(cap, base × factor^(n − 1)) in whole nanoseconds, less the jitter.
    for base, factor, cap, jitter, attempt, random in [(1000, 200, 3_600_000, 20, 5, 1 << 31), (3, 133, 10**9, 0, 40, 7),
                                                       (7, 101, 10_000, 100, 300, (1 << 32) - 1), (0, 200, 5, 0, 9, 0)]:
        grown = min(base * 10**6, cap * 10**6)
        for _ in range(1, attempt):
            grown = min(grown * factor // 100, cap * 10**6)
        delay = grown // 10**6
        expected = delay - ((delay * jitter // 100 * random) >> 32)
        import json
        b = json.dumps({"base": base, "factor": factor, "cap": cap, "jitter": jitter})
        assert s.inner("SELECT backoff_ms(%s, %s, %s)", b, attempt, random)[0][0] == expected


def test_ids_and_numbers(s):
    rows = s.puts("q", [{"kind": 2, "value": 5}] * 20)
    assert [r.number for r in rows] == sorted(r.number for r in rows)
    for r in rows:
        assert r.id.version == 8 and r.id.int >> 80 == r.due and r.id.int & ((1 << 53) - 1) == r.number
        f, = s.inner("SELECT due_of(%s) AS due, number_of(%s) AS number, slot_in(%s) AS slot", r.id, r.id, r.id)
        assert (f.due, f.number, f.slot) == (r.due, r.number, (r.id.int >> 64) & 0xFFF)


def test_sessions(s):
    s.stop_clock(T0)
    begin = lambda client=None: s.one("SELECT @begin_session_1(%s::text, NULL) AS n", client).n
    beat = lambda session: s.one("SELECT @beat_1(%s) AS lives", session).lives
    s.puts("q", [{}] * 4)
    one, two = begin("a"), begin("b")
    mine, other, free = s.take("q", session=one)[0], s.take("q", session=two)[0], s.take("q")[0]
    s.advance(10_000)
    assert beat(one) and beat(two)
    s.advance(10_000)
    assert s.maintain().ended == 0 and s.get("q", id=mine.id).name == "leased"
    assert beat(two)
    s.advance(6_000)
    assert s.maintain().ended == 1, "not heard of in time"
    g = s.get("q", id=mine.id)
    assert (g.name, g.attempts, g.lapses) == ("ready", 1, 1) and s.settle(mine).code == "lease_lost"
    assert not beat(one)
    try:
        s.take("q", session=one)
        raise AssertionError("its leases would end with nothing")
    except Exception as error:
        assert error.diag.message_detail == "session_lost", error
    assert begin("b") != two
    assert s.get("q", id=other.id).lapses == 1, "another one began under its name"
    assert s.get("q", id=free.id).name == "leased", "a lease of no session goes on"
    three = begin()
    held = s.take("q", 9, session=three)
    assert s.one("SELECT @end_session_1(%s, NULL) AS n", three).n == len(held) == 3
    g = s.get("q", id=held[0].id)
    assert (g.name, g.releases, g.attempts) == ("ready", 1, held[0].attempts), "a clean end spends no attempt"


def test_numbers_leap_where_a_copy_goes_on(s):
    leap = 1 << 32
    opened = lambda: s.one("SELECT * FROM @open_1()")
    assert opened().version == 1 and not opened().has_leapt
    s.puts("other", [{}] * 3)
    a = s.put("q", kind=2, value=HOUR)
    s.all("SELECT setval('dwell.numbers', 1)")
    assert opened().has_leapt, "a number is stored that the sequence does not know"
    b = s.put("q", kind=2, value=HOUR)
    assert b.number > a.number + leap and not opened().has_leapt
    s.all("SELECT setval('dwell.place', 7)")
    # As in a restored dump: with transaction ids that are still in the future here.
    s.all("UPDATE @pend SET xid = '9000000000' RETURNING 1")
    assert opened().has_leapt and not opened().has_leapt
    assert s.put("q").number > b.number + leap
    assert s.purge("q") == 3
    s.maintain(), s.maintain()
    assert s.counts("q") == "unknown_queue" and s.take("q", 9) == [], "what came from elsewhere is purged too"
    s.all("SELECT setval('dwell.numbers', 1000, false)")
    s.all("SELECT setval('dwell.old_numbers', 0)")


def test_the_first_put_on_a_new_timeline_leaps(s):
    """Behind PgBouncer and in callers' transactions: no store is opened after the failover."""
    leap = 1 << 32
    lag = lambda: s.all("SELECT setval('dwell.timeline', last_value + 7) FROM dwell.timeline")
    s.one("SELECT * FROM @open_1()")
    highest = s.put("q", kind=2, value=HOUR).number
    puts = [lambda: s.put("q").number, lambda: s.put("q", key=b"k").number,
            lambda: s.one("SELECT number FROM @try_put('q', 'theirs')").number,
            lambda: s.one("SELECT @put_many('q', ARRAY['a']::bytea[]) AS ids").ids[0].int & ((1 << 62) - 1)]
    for put in puts:
        lag()
        with s.conn.transaction(force_rollback=True):
            first = put()
            assert first > highest + leap
        second = put()
        assert first < second < first + 100, "a rollback does not undo it, and it is done once"
        highest = second
    lag()
    session = s.one("SELECT @begin_session_1('c', NULL) AS n").n
    lag()
    assert s.one("SELECT @begin_session_1('c', NULL) AS n").n > session + leap
    assert s.one("SELECT count(*) AS n FROM pg_locks WHERE locktype = 'advisory'").n == 0


def test_a_purge_that_was_open_before_a_failover_spares_what_it_spared(s):
    s.one("SELECT * FROM @open_1()")
    other = type(s)(s.dsn)
    with other.conn.transaction():
        spared = other.put("q")
        s.put("q")
        assert s.purge("q") == 1
    s.all("SELECT setval('dwell.timeline', last_value + 7) FROM dwell.timeline")
    assert s.one("SELECT * FROM @open_1()").has_leapt
    s.maintain(), s.maintain()
    assert ids(s.take("q", 9)) == [spared.id]
    other.conn.close()


def test_purges_and_sessions_go_on_where_sequences_are_not_copied(s):
    session = s.one("SELECT @begin_session_1('c', NULL) AS n").n
    s.put("q"), s.purge("q"), s.put("q"), s.purge("q")
    for sequence in ("numbers", "purges", "sessions", "place", "timeline", "old_numbers"):
        s.all("SELECT setval(%s::regclass, seqstart, false) FROM pg_sequence WHERE seqrelid = %s::regclass",
              f"dwell.{sequence}", f"dwell.{sequence}")
    s.put("q")
    assert s.purge("q") == 1
    assert s.one("SELECT @begin_session_1('d', NULL) AS n").n > session


def test_maintenance_locks_no_table_in_use(s):
    s.stop_clock(T0)
    # What other tests have left.
    s.maintain(T0 + DAY)
    s.all("UPDATE @slot SET quiet_until = 0 RETURNING 1")
    held = s.put("q", kind=2, value=1000)
    s.advance(1000)
    taken = s.take("q", lease=DAY)[0]
    later = s.put("r", kind=2, value=55 * MIN)
    slot = lambda put: int(str(put.id)[15:18], 16)
    assert slot(held) != slot(later)
    # Both slots are over: the one has a lease's body, the other waits for its next turn.
    s.all("UPDATE @slot SET quiet_until = %s WHERE slot = ANY (%s) RETURNING 1", T0 + DAY, [slot(held), slot(later)])
    locks = lambda: [row.name for row in s.all(
        "SELECT relation::regclass::text AS name FROM pg_locks WHERE mode IN ('AccessExclusiveLock', 'ShareRowExclusiveLock') "
        "AND pid = pg_backend_pid() AND relation::regclass::text ~ 'dwell'")]
    with s.conn.transaction():
        assert (s.maintain(T0).given_back, locks()) == ([], [])
        assert not s.give_back(slot(held)) and locks() == []
    s.settle(taken)
    with s.conn.transaction():
        assert not s.give_back(slot(later)), "a message waits in it"
    other = type(s)(s.dsn)
    with other.conn.transaction():
        other.all(f"SELECT * FROM @body_{slot(held)}")
        assert not s.give_back(slot(held)), "it is read"
    assert s.give_back(slot(held)) and s.get("r", id=later.id).name == "scheduled"
    other.conn.close()


def test_what_a_slot_is_needed_for_is_found_by_index(s):
    with s.conn.transaction():
        s.conn.execute("SET LOCAL search_path = dwell, pg_temp; SET LOCAL enable_seqscan = off")
        for part in range(3, 7):
            plan = s.conn.execute(f"EXPLAIN SELECT FROM standing_{part} x WHERE slot_in(x.id) = 5").fetchall()
            assert any("Index Cond" in row[0] for row in plan), plan


def test_what_time_has_changed_is_applied_in_slices(s):
    calls = {
        "stats": "@stats_1('q', 0, NULL)", "list": "@list_1('q', 2, NULL, NULL, 1, 1, NULL)", "peek": "@peek_1('q', 2, NULL)",
        "purge": "@purge_1('q', NULL)", "configure": "@configure_1('q', '{}', NULL, NULL)",
        "forecast": "@forecast_1(ARRAY['q'], ARRAY[0]::bigint[], NULL)", "queues": "@queues_1(NULL, 9, NULL)",
        "revive": "@sweep_dead_1('q', NULL, 9, NULL, NULL, NULL, 0, NULL, NULL)", "delete": "@delete_queue_1('q', NULL)"}
    s.stop_clock(T0)
    leased = lambda: s.one("SELECT count(*) AS n FROM @standing WHERE part < 3").n
    for name, call in calls.items():
        s.puts("q", [{}] * 2100)
        assert len(s.take("q", 2100, lease=100)) == 2100
        s.advance(100)
        for left, again in ((1100, "on"), (100, "on"), (0, "")):
            rows = s.all(f"SELECT current_setting('dwell.again', true) AS again FROM (VALUES (1)) one LEFT JOIN {call} f ON true")
            assert (leased(), rows[-1].again or "") == (left, again), name
        s.purge("q")
        s.maintain()


def test_the_dead_are_discarded_in_slices(s):
    s.stop_clock(T0)
    s.put("q")
    s.settle(s.take("q")[0], "bury")
    s.all("INSERT INTO @standing SELECT (jsonb_populate_record(s, jsonb_build_object('id', gen_random_uuid()))).* "
          "FROM @standing s, generate_series(1, 120000) WHERE s.part = 6 RETURNING 1")
    s.all("INSERT INTO @tally SELECT qid, qid, 0, 0, 120000, 0 FROM @queue RETURNING 1")
    slice_ = s.sweep_dead("q", most=1 << 40)[-1]
    assert (slice_.done, slice_.is_more) == (100_000, True)
    slice_ = s.sweep_dead("q", most=1 << 40)[-1]
    assert (slice_.done, slice_.is_more) == (20_001, False)
