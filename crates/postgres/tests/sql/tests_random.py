"""Random calls, compared answer by answer with a model that is a plain list: as `dwell_store::conformance`, for the SQL alone."""
import os
import random

T0 = 1_800_000_000_000
LEASE, MAX_ATTEMPTS = 30_000, 3
SPANS = [0, 1, 7, 500, 40_000, 700_000, 4_000_000, 90_000_000, 3_000_000_000]


class Model:
    """Messages as dicts: state is pending, leased or dead; the clock distinguishes scheduled from ready."""

    def __init__(self):
        self.messages, self.now = {}, T0

    def pass_time(self):
        for m in self.messages.values():
            if m["state"] == "leased" and m["deadline"] <= self.now:
                m["lapses"] += 1
                self.spend(m, m["deadline"])
            if m["state"] == "pending" and m["expires"] is not None and m["expires"] <= self.now:
                m["state"], m["reason"], m["died"] = "dead", 3, m["expires"]

    def spend(self, m, at):
        m["attempts"] += 1
        m["state"] = "pending"
        if m["attempts"] >= MAX_ATTEMPTS:
            m["state"], m["reason"], m["died"] = "dead", 1, at

    def owner(self, q, key):
        return next((m for m in self.messages.values()
                     if m["q"] == q and m["key"] == key and m["keyed"] and m["state"] != "dead"), None)

    def shown(self, m):
        return {"pending": "ready" if m["due"] <= self.now else "scheduled"}.get(m["state"], m["state"])

    def counts(self, q):
        names = [self.shown(m) for m in self.messages.values() if m["q"] == q]
        return tuple(names.count(n) for n in ("scheduled", "ready", "leased", "dead")) if names else "unknown_queue"


def walk(s, seed, steps):
    choose = random.Random(seed)
    model = Model()
    s.stop_clock(T0)
    queues = [f"a{seed}", f"b{seed}"]
    for q in queues:
        s.configure(q, max_attempts=MAX_ATTEMPTS, backoff={"base": 1000, "factor": 200, "cap": 5000, "jitter": 0})
    taken, gone, floors = [], [], {q: (0, 0) for q in queues}

    def some():
        ids = list(model.messages) + gone[-3:]
        return choose.choice(ids) if ids else None

    for step in range(steps):
        q = choose.choice(queues)
        what = choose.choices(["put", "take", "settle", "cancel", "move", "get", "advance", "counts", "list", "dead", "purge",
                               "maintain"], [30, 20, 25, 8, 8, 10, 12, 6, 5, 6, 1, 3])[0]
        model.pass_time()
        if what == "put":
            kind, value = choose.choice([(0, None), (1, model.now + choose.choice([-1, 1]) * choose.choice(SPANS)),
                                         (2, choose.choice(SPANS))])
            key = choose.choice([None, None, b"k1", b"k2\x00", b"k3"])
            conflict, priority = choose.randint(0, 2), choose.choice([1024, 1024, 1024, 3, 5000])
            due = model.now if kind == 0 else value if kind == 1 else model.now + value
            expires = choose.choice([None, None, None, max(due, model.now) + choose.choice(SPANS[1:5])])
            row = s.put(q, kind=kind, value=value, key=key, body=b"%d" % step,
                        opts={"conflict": conflict, "priority": priority, "expires": expires} if key or choose.random() < .7 or
                        priority != 1024 or expires else None)
            owner = key and model.owner(q, key)
            if owner and conflict == 0:
                assert (row.code, row.info) == ("key_taken", str(owner["id"])), row
            elif owner and conflict == 2 and owner["state"] == "leased":
                assert row.code == "leased", row
            elif owner and conflict == 2:
                owner["due"] = min(owner["due"], due)
                assert (row.id, row.due, row.outcome) == (owner["id"], owner["due"], 2), row
            else:
                assert (row.code, row.due, row.replaced) == ("", due, owner["id"] if owner else None), row
                if owner and owner["state"] == "leased":
                    owner["keyed"] = False
                elif owner:
                    gone.append(owner["id"])
                    del model.messages[owner["id"]]
                model.messages[row.id] = {"id": row.id, "q": q, "due": due, "priority": priority, "state": "pending", "key": key,
                                          "keyed": key is not None, "expires": expires, "attempts": 0, "lapses": 0,
                                          "takes": 0, "body": b"%d" % step}
        elif what == "take":
            several = [q] if choose.random() < .6 else queues
            most = choose.randint(1, 6)
            got = s.take(several, most, floors=floors[q] if len(several) == 1 else (0, 0))
            if len(several) == 1:
                # No other transaction puts, so the whole candidate is valid.
                floors[q] = tuple(s.last_floors)
            due = sorted((m for m in model.messages.values() if m["q"] in several and model.shown(m) == "ready"),
                         key=lambda m: (m["priority"], m["due"], m["id"]))[:most]
            assert [t.id for t in got] == [m["id"] for m in due], (seed, step, several, floors[q])
            for t, m in zip(got, due):
                m["takes"] += 1
                m["state"], m["deadline"], m["token"] = "leased", model.now + LEASE, t.token
                assert (t.body, t.attempts, t.takes, t.lapses, t.deadline) == (
                    m["body"], m["attempts"], m["takes"], m["lapses"], m["deadline"])
                assert t.key == (m["key"] if m["keyed"] else None)
                taken.append(t)
        elif what == "settle" and taken:
            t = choose.choice(taken[-6:])
            m = model.messages.get(t.id)
            action = choose.choice(["ack", "ack", "retry", "release", "bury", "extend", "give_back"])
            value = choose.choice([None, 0, 5, 2000]) if action in ("retry", "release") else None
            row = s.settle(t, action, value)
            if m is None or m["state"] != "leased" or m["token"] != t.token:
                assert row.code == "lease_lost", (action, row)
                continue
            assert row.code == "", row
            if action == "ack":
                gone.append(t.id)
                del model.messages[t.id]
            elif action == "extend":
                m["deadline"] = model.now + LEASE
            elif action == "retry":
                delay = min(1000 * 2 ** m["attempts"], 5000) if value is None else value
                model.spend(m, model.now)
                if m["state"] == "pending":
                    m["due"] = model.now + delay
            elif action == "release":
                m["state"] = "pending"
                m["due"] = m["due"] if value is None else model.now + value
            elif action == "give_back":
                m["state"] = "pending"
            else:
                m["attempts"] += 1
                m["state"], m["reason"], m["died"] = "dead", 2, model.now
            model.pass_time()
            if action not in ("ack", "extend"):
                assert row.what == model.shown(m), (action, row, m)
        elif what in ("cancel", "move") and some():
            id = some()
            key = choose.choice([None, None, b"k1", b"k2\x00"])
            m = model.owner(q, key) if key else model.messages.get(id)
            m = m if m and m["q"] == q else None
            delay = choose.choice(SPANS)
            row = s.change(q, id=None if key else id, key=key, kind=2 if what == "move" else None,
                           value=delay if what == "move" else None)
            if m is None:
                assert row.what == "not_found", row
            elif m["state"] != "pending":
                assert row.what == m["state"], row
            elif what == "cancel":
                assert row.what == "cancelled", row
                gone.append(m["id"])
                del model.messages[m["id"]]
            elif m["expires"] is not None and m["expires"] <= model.now + delay:
                assert row.code == "expires_before_due", row
            else:
                assert (row.what, row.due) == ("moved", model.now + delay), (seed, step, row, key, m, model.now)
                m["due"] = row.due
        elif what == "get" and some():
            id = some()
            m = model.messages.get(id)
            m = m if m and m["q"] == q else None
            g = s.get(q, id=id)
            if m is None:
                assert g.name in ("message_not_found", "unknown_queue"), g
            else:
                assert (g.name, g.due, g.attempts, g.lapses, g.body) == (
                    model.shown(m), m["due"], m["attempts"], m["lapses"], m["body"]), (g, m)
                if m["state"] == "dead":
                    assert (g.reason, g.died) == (m["reason"], m["died"]), (g, m)
        elif what == "advance":
            by = choose.choice(SPANS[1:-1])
            model.now += by
            s.advance(by)
        elif what == "counts":
            expected = model.counts(q)
            assert s.counts(q) == ((0, 0, 0, 0) if expected == "unknown_queue" else expected), (seed, step, s.counts(q), expected)
        elif what == "list":
            state = choose.choice(["scheduled", "ready", "leased", "dead"])
            expected = sorted((m["due"], m["id"]) for m in model.messages.values() if m["q"] == q and model.shown(m) == state)
            seen, after, most = [], (None, None), choose.randint(1, 5)
            while page := s.list(q, state, after, most):
                seen += [(r.due, r.id) for r in page]
                after = seen[-1]
            assert seen == expected, (seed, step, state)
        elif what == "dead":
            dead = sorted((m for m in model.messages.values() if m["q"] == q and m["state"] == "dead"),
                          key=lambda m: (m["died"], m["id"]))
            most, revive = choose.randint(1, 3), choose.random() < .6
            rows = s.sweep_dead(q, most=most, kind=2 if revive else None, value=5 if revive else None)
            done = 0
            for m in dead[:most]:
                if not revive:
                    gone.append(m["id"])
                    del model.messages[m["id"]]
                    done += 1
                elif m["keyed"] and model.owner(q, m["key"]):
                    assert any(r.id == m["id"] and r.code == "key_taken" for r in rows), rows
                else:
                    m["state"], m["attempts"], m["due"] = "pending", 0, model.now + 5
                    m["expires"] = m["expires"] if m["expires"] and m["expires"] > m["due"] else None
                    done += 1
            assert rows[-1].done == done, (rows, done)
        elif what == "purge":
            pending = [m["id"] for m in model.messages.values() if m["q"] == q and m["state"] == "pending"]
            assert s.purge(q) == len(pending), (seed, step)
            for id in pending:
                gone.append(id)
                del model.messages[id]
        elif what == "maintain":
            s.maintain(model.now)
    for q in queues:
        model.pass_time()
        expected = model.counts(q)
        counts = s.counts(q)
        assert counts == ((0, 0, 0, 0) if expected == "unknown_queue" else expected), (seed, counts, expected)
    s.check()


def test_random_calls_answer_as_a_plain_list_does(s):
    first, cases = int(os.environ.get("DWELL_SEED", "1")), int(os.environ.get("DWELL_CASES", "12"))
    for seed in range(first, first + cases):
        try:
            walk(s, seed, 150)
        except BaseException:
            print(f"seed {seed}: DWELL_SEED={seed} DWELL_CASES=1 … --only random", flush=True)
            raise
