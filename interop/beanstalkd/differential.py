#!/usr/bin/env python3
"""Plays the same random commands to beanstalkd and to dwell, and compares every reply.

    interop/beanstalkd/differential.py --dwell target/debug/dwell [--sequences 200] [--seed 1] [--only SEQUENCE]

A sequence has its own tubes and connections, so that many run concurrently on one pair of servers. Every put and
release has a distinct priority, so that the order of the jobs is fixed. One sequence of 25 is also played on
its own pair of servers, and then the values of stats are compared too.

Not compared, because they differ on purpose (docs/beanstalkd.md says why):
- ids: jobs are identified by the order of their puts
- the order of list-tubes
- stats: values, if sequences share a server; the names and order of the fields are compared, except those that begin with
  dwell-. On its own servers: pid, version but for its form, uptime, rusage, id, binlog; cmd-put if the line of a put continues after the size (not sent there)
- stats-job: age, file; time-left by more than a second; delay of a job that was released; kicks of a job that was
  kicked while delayed, or reserved by its id; releases once a connection has closed
- quotes around a tube's name: 1.12 writes none, 1.13 and dwell do
- stats-tube: pause-time-left by more than a second
- jobs buried, or released with a delay, within one millisecond of each other: the player lets two pass
- lines that only 1.12 accepts: kick -1, kick 5x, quit foo, reserve-with-timeout x or 5x, tubes named . and ..

The two servers read their clocks independently, and a busy machine may delay either of them. So two kinds of differences
are tolerated, and printed, if they do not recur when the sequence is played alone:
- seconds: only fields that count seconds differ
- moment: replies while the player lets time pass on purpose (a delay, a lease or a pause of a second or two)
Any other difference, even a single one, is a failure.
"""

import argparse
import concurrent.futures
import contextlib
import json
import random
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time

PATIENCE_S = 30
BODY_LIMIT = 65_535
NO_JOB = 9_000_000_000
# One in this many sequences is also played on its own servers.
ALONE_EVERY = 25

BAD_LINES = [
    "", " ", "foo", "put", "put ", "put 1", "put a 0 0 0", "put -1 0 0 0", "put 4294967296 0 0 0", "put 0 0 0 0x",
    "put 0 0 0 1 ", "use", "use ", "use  a", "use -a", "use a b", "watch", "watch ", "ignore", "ignore ", "ignore -a",
    "delete", "delete ", "delete x", "delete -1", "delete 1 ", "delete 18446744073709551616", "release", "release ",
    "release 1", "release 1 2", "release 1 2 3 4", "release 1 x 0", "bury", "bury 1", "bury 1 x", "bury 1 2 3", "touch",
    "touch ", "touch x", "reserve ", "reserved", "reserve-with-timeout", "reserve-job",
    "reserve-job x", "peek", "peek ", "peek x", "peek-ready x", "peek-delayed ", "peek-buriedx", "kick", "kick ", "kick x",
    "kick-job", "kick-job ", "kick-job x", "stats ", "statsx", "stats-tube", "stats-tube -", "stats-job", "stats-job x",
    "list-tubes ", "list-tube-used x", "list-tubes-watched x", "pause-tube", "pause-tube ", "pause-tube a",
    "pause-tube a x", "pause-tube a 1 ", "a" * 222, "b" * 300, "c" * 5_000, "stats\0", "STATS", "use " + "x" * 201,
    "delete 0", "peek 18446744073709551615", "release 0 0 0", "bury 0 0", "touch 0", "kick-job 0", "stats-job 0",
    "reserve-job 0", "stats-tube nowhere", "pause-tube nowhere 1",
]


# Puts with extra text after the size: both servers refuse them, but beanstalkd counts them as puts.
COUNTED_THOUGH_BAD = ("put 0 0 0 1 ", "put 0 0 0 0x")


class Differs(Exception):
    """The replies differ; has the kind of the difference."""

    def __init__(self, kind, text):
        super().__init__(text)
        self.kind = kind


FORGIVEN_ONCE = ("seconds", "moment")
# Prefixes of the fields of stats that are not compared on own servers.
OF_THE_PROCESS = ("pid", "version", "uptime", "rusage-", "id", "binlog-")
# Two numbers, as clients parse them.
VERSION = re.compile('"?[0-9]+[.][0-9]+"?')
# Fields that beanstalkd does not have.
OF_DWELL = "dwell-"


class Connection:
    def __init__(self, port):
        self.socket = socket.create_connection(("127.0.0.1", port), PATIENCE_S)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.file = self.socket.makefile("rb")

    def send(self, data):
        self.socket.sendall(data)

    def reply(self):
        """Reads a line, and the body whose length it states."""
        line = self.file.readline()
        if not line.endswith(b"\r\n"):
            raise ConnectionError(f"closed in the middle of a reply: {line!r}")
        line = line[:-2].decode("ascii")
        if line.split(" ")[0] not in ("RESERVED", "FOUND", "OK"):
            return line, None
        body = self.file.read(int(line.rsplit(" ", 1)[1]) + 2)
        return line, body[:-2].decode("ascii")

    def close(self):
        self.file.close()
        self.socket.close()


class Side:
    """One server, from the view of a sequence."""

    def __init__(self, port, count):
        self.port = port
        self.connections = [Connection(port) for _ in range(count)]
        self.ids = []

    def ask(self, connection, line):
        """Sends a command to this side alone, and does not compare the reply."""
        self.connections[connection].send(line.encode() + b"\r\n")
        return self.connections[connection].reply()

    def sum(self, connection, tubes, fields):
        """The sum of some fields of stats-tube over tubes."""
        texts = [self.ask(connection, f"stats-tube {tube}")[1] or "" for tube in tubes]
        lines = [line.split(": ", 1) for text in texts for line in text.split("\n") if ": " in line]
        return sum(int(value) for name, value in lines if name in fields)

    def id(self, job):
        return self.ids[job] if job < len(self.ids) else NO_JOB


class Sequence:
    """One run of random commands. The choices depend only on the seed and the replies."""

    CONNECTIONS = 3
    TUBES = 3

    def __init__(self, seed, number, ports, alone=False):
        self.alone = alone
        self.is_waiting = False
        self.random = random.Random(f"{seed}/{number}")
        self.prefix = f"s{number}-{time.monotonic_ns():x}-"
        self.sides = [Side(port, self.CONNECTIONS + 1) for port in ports]
        self.log = []
        self.priorities = self.random.sample(range(3_000), 360) + self.random.sample(range(3_000, 2**32), 40)
        self.random.shuffle(self.priorities)
        self.jobs = 0
        self.released, self.kicked = set(), set()
        self.has_closed = False

    def tube(self):
        return self.prefix + self.random.choice("abc"[: self.TUBES])

    def job(self):
        """A job of this sequence, most likely a young one; sometimes none."""
        if not self.jobs or self.random.random() < 0.05:
            return 1_000_000
        return max(self.random.randrange(self.jobs), self.random.randrange(self.jobs))

    def send(self, connection, line, body=None):
        """Sends a command to both sides; `line` may name a job as {0}."""
        for side in self.sides:
            text = line(side) if callable(line) else line
            data = text.encode() + b"\r\n" + (body if body is not None else b"")
            side.connections[connection].send(data)
        shown = line(self.sides[1]) if callable(line) else line
        self.log.append(f"{connection}> {shown[:120]}{' + body' if body is not None else ''}")

    def read(self, connection):
        """Reads the replies of both sides, which must be equal; returns the normalized reply of the second."""
        raw = [side.connections[connection].reply() for side in self.sides]
        if all(line.startswith("INSERTED ") for line, _ in raw):
            for side, (line, _) in zip(self.sides, raw):
                side.ids.append(int(line.split(" ")[1]))
            self.jobs += 1
        shown = [self.comparable(side, *reply) for side, reply in zip(self.sides, raw)]
        self.log.append(f"{connection}< {raw[0][0]} | {raw[1][0]}")
        kind = self.difference(*shown)
        if kind is not None:
            kind = "moment" if self.is_waiting else kind
            raise Differs(kind, f"beanstalkd: {shown[0]}\ndwell:      {shown[1]}")
        return shown[1]

    def ask(self, connection, line, body=None):
        self.send(connection, line, body)
        return self.read(connection)

    def comparable(self, side, line, body):
        words = line.split(" ")
        if words[0] in ("RESERVED", "FOUND", "INSERTED"):
            words[1] = f"job{side.ids.index(int(words[1]))}"
        if words[0] != "OK":
            return " ".join(words), body
        lines = body.split("\n")
        if lines[1].startswith("- "):
            own = [name for name in lines[1:] if name.startswith("- " + self.prefix) or name == "- default"]
            return "names", own
        return "fields", [tuple(field.split(": ", 1)) for field in lines[1:] if field]

    def difference(self, theirs, ours):
        """Returns the kind of the difference, or None."""
        if theirs[0] != ours[0]:
            return "reply"
        if theirs[0] == "names":
            return None if sorted(theirs[1]) == sorted(ours[1]) else "names"
        if theirs[0] != "fields":
            return None if theirs == ours else "reply"
        fields = [(name, value) for name, value in ours[1] if not name.startswith(OF_DWELL)]
        if [name for name, _ in theirs[1]] != [name for name, _ in fields]:
            return "fields"
        left, right = dict(theirs[1]), dict(fields)
        if "pid" in left:
            return self.server_difference(left, right)
        kind = None
        for name in left:
            if name in ("age", "file", "id"):
                continue
            if name in ("time-left", "pause-time-left"):
                if abs(int(left[name]) - int(right[name])) > 1:
                    kind = "seconds"
                continue
            job = self.sides[0].ids.index(int(left["id"])) if "id" in left else None
            if name == "delay" and job in self.released or name == "kicks" and job in self.kicked:
                continue
            if name == "releases" and self.has_closed:
                continue
            if name in ("name", "tube") and left[name] == right[name].strip('"'):
                continue
            if left[name] != right[name]:
                return name
        return kind

    def server_difference(self, left, right):
        """The same for `stats`, whose values are compared only if the sequence has its own servers."""
        if not all(VERSION.fullmatch(side["version"]) for side in (left, right)):
            return f"version {left['version']} {right['version']}"
        if not self.alone:
            return None
        for name in left:
            if not name.startswith(OF_THE_PROCESS) and left[name].strip('"') != right[name].strip('"'):
                return f"{name} {left[name]} {right[name]}"
        return None

    # Steps

    def put(self, connection, delay=0, ttr=60, line="put {0} {1} {2} {3}"):
        body = bytes(self.random.choices(b"abc \r\n0", k=self.random.choice([0, 1, 5, 100])))
        line = line.format(self.priorities.pop(), delay, ttr, len(body))
        return self.ask(connection, line, body + b"\r\n")

    def bury(self, connection, job):
        self.ask(connection, lambda side: f"bury {side.id(job)} {self.priority}")
        time.sleep(0.002)

    def step(self):
        pick, connection = self.random, self.random.randrange(self.CONNECTIONS)
        job, tube, self.priority = self.job(), self.tube(), self.priorities.pop()
        kind = pick.choices(list(self.STEPS), weights=list(self.STEPS.values()))[0]
        if kind == "put":
            self.put(connection, pick.choice([0, 0, 0, 60, 100]), pick.choice([60, 100, 4_294_967_295]))
        elif kind == "put oddly":
            self.put(connection, 0, 60, "put  00{0}   {1} 0{2}  {3}")
        elif kind == "put without time":
            # Deleted within a second: otherwise the clocks of the two servers would be compared.
            self.put(connection, 0, 0)
            self.ask(connection, lambda side: f"stats-job {side.id(self.jobs - 1)}")
            self.ask(connection, lambda side: f"delete {side.id(self.jobs - 1)}")
        elif kind == "put badly":
            line, body = pick.choice(
                [
                    (f"put 1 0 60 {BODY_LIMIT + 1}", b"x" * (BODY_LIMIT + 1) + b"\r\n"),
                    (f"put 1 0 60 {BODY_LIMIT + 1} x", b"x" * (BODY_LIMIT + 1) + b"\r\n"),
                    ("put 1 0 60 3", b"abcde"),
                    ("put 1 0 60 0", b"xx"),
                ]
            )
            self.ask(connection, line, body)
        elif kind == "use":
            self.ask(connection, f"use {tube}")
        elif kind in ("watch", "ignore", "stats-tube"):
            self.ask(connection, f"{kind} {tube}")
        elif kind == "reserve":
            self.ask(connection, "reserve-with-timeout 0")
        elif kind == "reserve plainly":
            if self.is_something_ready(connection):
                self.ask(connection, "reserve")
        elif kind in ("reserve-job", "delete", "touch", "peek", "stats-job"):
            reply = self.ask(connection, lambda side: f"{kind} {side.id(job)}")
            if kind == "reserve-job" and reply[0].startswith("RESERVED"):
                self.kicked.add(job)
        elif kind == "release":
            delay = pick.choice([0, 0, 60])
            reply = self.ask(connection, lambda side: f"release {side.id(job)} {self.priority} {delay}")
            if reply[0] == "RELEASED":
                self.released.add(job)
                time.sleep(0.002)
        elif kind == "bury":
            self.bury(connection, job)
        elif kind == "finish":
            self.finish(connection)
        elif kind == "kick":
            used = self.ask(connection, "list-tube-used")[0].split(" ")[1]
            if dict(self.ask(connection, f"stats-tube {used}")[1])["current-jobs-buried"] == "0":
                self.kicked.update(range(self.jobs))
            self.ask(connection, f"kick {pick.choice([0, 1, 2, 100])}")
        elif kind == "kick-job":
            reply = self.ask(connection, lambda side: f"stats-job {side.id(job)}")
            if reply[0] == "fields" and dict(reply[1])["state"] == "delayed":
                self.kicked.add(job)
            self.ask(connection, lambda side: f"kick-job {side.id(job)}")
        elif kind == "pause":
            self.ask(connection, f"pause-tube {tube} {pick.choice([0, 0, 60])}")
        elif kind == "bad line":
            line = pick.choice(BAD_LINES)
            if not (self.alone and line in COUNTED_THOUGH_BAD):
                self.ask(connection, line)
        elif kind == "pipeline":
            self.pipeline(connection)
        elif kind == "reconnect":
            self.reconnect(connection)
        else:
            self.ask(connection, kind)

    STEPS = {
        "put": 20, "put oddly": 1, "put badly": 2, "put without time": 1, "use": 6, "watch": 6, "ignore": 3, "stats-tube": 5, "reserve": 12, "reserve plainly": 4,
        "reserve-job": 4, "delete": 5, "touch": 3, "peek": 3, "stats-job": 8, "release": 3, "bury": 3, "finish": 12,
        "kick": 4, "kick-job": 3, "pause": 2, "bad line": 5, "pipeline": 2, "reconnect": 1, "peek-ready": 2,
        "peek-delayed": 2, "peek-buried": 3, "list-tubes": 1, "list-tube-used": 1, "list-tubes-watched": 2, "stats": 1,
    }  # fmt: skip

    def is_something_ready(self, connection):
        """Whether a reserve without a timeout returns a job at once."""
        for name in self.ask(connection, "list-tubes-watched")[1]:
            stats = dict(self.ask(connection, f"stats-tube {name[2:].strip(chr(34))}")[1])
            if stats["current-jobs-ready"] != "0" and stats["pause"] == "0":
                return True
        return False

    def finish(self, connection):
        """Reserves a job, and sends one of the commands of its holder."""
        reply = self.ask(connection, "reserve-with-timeout 0")
        if not reply[0].startswith("RESERVED"):
            return
        job = int(reply[0].split(" ")[1].removeprefix("job"))
        what = self.random.choice(["delete", "release", "bury", "touch"])
        if what == "bury":
            return self.bury(connection, job)
        if what == "release":
            self.released.add(job)
            time.sleep(0.002)
            return self.ask(connection, lambda side: f"release {side.id(job)} {self.priority} 0")
        return self.ask(connection, lambda side: f"{what} {side.id(job)}")

    def pipeline(self, connection):
        """Several commands in one write."""
        count = self.random.randrange(2, 8)
        puts = "".join(f"put {self.priorities.pop()} 0 60 2\r\nab\r\n" for _ in range(count))
        self.send(connection, puts + "list-tube-used")
        for _ in range(count + 1):
            self.read(connection)
        self.send(connection, "\r\n".join(["reserve-with-timeout 0"] * count))
        got = [self.read(connection)[0] for _ in range(count)]
        jobs = [int(line.split(" ")[1].removeprefix("job")) for line in got if line.startswith("RESERVED")]
        jobs += [self.job()] + jobs[:1]
        self.send(connection, lambda side: "\r\n".join(f"delete {side.id(job)}" for job in jobs))
        for _ in jobs:
            self.read(connection)

    def reconnect(self, connection):
        """Closes a connection; its jobs are ready again before the next command is sent."""
        used = self.ask(connection, "list-tube-used")[0].split(" ")[1]
        watched = [name[2:].strip('"') for name in self.ask(connection, "list-tubes-watched")[1]]
        tied = sum(name.startswith(self.prefix) for name in [used, *watched])
        tubes, keeper = [self.prefix + name for name in "abcw"], self.CONNECTIONS
        ties = ("current-using", "current-watching")
        before = [side.sum(keeper, tubes, ties) for side in self.sides]
        self.has_closed = True
        self.log.append(f"{connection}> (closes)")
        for side in self.sides:
            side.connections[connection].close()
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            left = [side.sum(keeper, tubes, ties) for side in self.sides]
            held = [side.sum(keeper, tubes, ("current-jobs-reserved",)) for side in self.sides]
            if all(now <= count - tied for now, count in zip(left, before)) and held[0] == held[1]:
                break
            time.sleep(0.01)
        for side in self.sides:
            side.connections[connection] = Connection(side.port)
        self.begin(connection)

    def begin(self, connection):
        """Leaves the default tube, which all sequences share."""
        self.ask(connection, "list-tube-used")
        self.ask(connection, "list-tubes-watched")
        self.ask(connection, f"use {self.tube()}")
        self.ask(connection, f"watch {self.tube()}")
        self.ask(connection, "ignore default")

    def wait(self):
        """One of the steps that take time; margins are 0.3 s and more."""
        worker, other = self.random.sample(range(self.CONNECTIONS), 2)
        tube = self.prefix + "w"
        self.ask(worker, f"watch {tube}")
        for name in "abc":
            self.ask(worker, f"ignore {self.prefix}{name}")
        self.ask(worker, "ignore default")
        self.ask(other, f"use {tube}")
        kind = self.random.choice(["delay", "put", "time out", "lapse", "deadline soon", "pause"])
        self.log.append(f"-- {kind}")
        if kind == "delay":
            self.put(other, delay=1)
            self.ask(worker, "reserve-with-timeout 0")
            self.ask(worker, "reserve-with-timeout 2")
        elif kind == "put":
            self.send(worker, "reserve-with-timeout 2\r\nlist-tube-used")
            time.sleep(0.3)
            self.put(other)
            self.read(worker)
            self.read(worker)
        elif kind == "time out":
            self.ask(worker, "reserve-with-timeout 1")
        elif kind == "lapse":
            self.put(other, ttr=1)
            self.ask(worker, "reserve-with-timeout 0")
            time.sleep(1.4)
            # beanstalkd may not notice the deadline until the holder sends a command.
            self.ask(worker, "list-tube-used")
            time.sleep(0.1)
            self.ask(worker, lambda side: f"touch {side.id(self.jobs - 1)}")
            self.ask(other, lambda side: f"stats-job {side.id(self.jobs - 1)}")
            self.ask(worker, "reserve-with-timeout 0")
        elif kind == "deadline soon":
            self.put(other, ttr=2)
            self.ask(worker, "reserve-with-timeout 0")
            self.ask(worker, "reserve-with-timeout 10")
            self.ask(worker, "reserve-with-timeout 0")
            self.ask(worker, lambda side: f"touch {side.id(self.jobs - 1)}")
            self.ask(worker, "reserve-with-timeout 0")
        elif kind == "pause":
            self.ask(other, f"pause-tube {tube} 1")
            self.put(other)
            self.ask(worker, "reserve-with-timeout 0")
            self.ask(worker, "reserve-with-timeout 2")
            self.ask(worker, f"stats-tube {tube}")

    def play(self):
        keeper = self.CONNECTIONS
        try:
            # A tube's counters are lost with the tube, so the keeper watches all of them.
            for name in "abcw":
                self.ask(keeper, f"watch {self.prefix}{name}")
            for connection in range(self.CONNECTIONS):
                self.begin(connection)
            waits_at = self.random.randrange(60)
            for at in range(60):
                if at == waits_at:
                    self.is_waiting = True
                    self.wait()
                    self.is_waiting = False
                self.step()
            for job in range(self.jobs):
                self.ask(keeper, lambda side, job=job: f"stats-job {side.id(job)}")
            if self.alone:
                # Leases of a connection that ran out are counted at its next command.
                for connection in range(self.CONNECTIONS):
                    self.ask(connection, "list-tube-used")
                self.ask(keeper, "stats")
            self.log.append("-- quit")
            for side in self.sides:
                for connection in side.connections:
                    connection.send(b"quit\r\n")
                    left = connection.file.read()
                    if left:
                        raise Differs("reply", f"to quit: {left!r}")
        finally:
            for side in self.sides:
                for connection in side.connections:
                    connection.close()


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def start_beanstalkd():
    port = free_port()
    process = subprocess.Popen(["beanstalkd", "-l", "127.0.0.1", "-p", str(port)])
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            Connection(port).close()
            return process, port
        except OSError:
            if process.poll() is not None or time.monotonic() > deadline:
                raise
            time.sleep(0.01)


def start_dwell(binary, folder):
    arguments = ["--json", "serve", "--data", folder, "--durability", "os", "--listen", "127.0.0.1:0"]
    arguments += ["--beanstalkd", "127.0.0.1:0", "--max-body", str(BODY_LIMIT)]
    process = subprocess.Popen([binary, *arguments], stdout=subprocess.PIPE, text=True)
    serving = json.loads(process.stdout.readline())
    return process, int(serving["beanstalkd"].rsplit(":", 1)[1])


def play(seed, number, ports, alone=False):
    """Plays a sequence; returns the kind and the text of the difference, or None."""
    sequence = None
    try:
        sequence = Sequence(seed, number, ports, alone)
        sequence.play()
        return None
    except (Differs, OSError, ValueError) as wrong:
        log = sequence.log if sequence else []
        kind = wrong.kind if isinstance(wrong, Differs) else type(wrong).__name__
        where = f"sequence {number}{', on servers of its own' if alone else ''}: {kind}"
        return kind, f"{where}\n{wrong}\nlast commands:\n  " + "\n  ".join(log[-25:])


@contextlib.contextmanager
def servers(binary):
    """Starts a beanstalkd and a dwell, and yields their ports."""
    with tempfile.TemporaryDirectory() as folder:
        theirs, their_port = start_beanstalkd()
        try:
            ours, our_port = start_dwell(binary, folder)
            try:
                # As in start_beanstalkd, so that both have had the same number of connections.
                Connection(our_port).close()
                yield their_port, our_port
            finally:
                ours.terminate()
                ours.wait(PATIENCE_S)
        finally:
            theirs.terminate()
            theirs.wait(PATIENCE_S)


def play_alone(binary, seed, number):
    with servers(binary) as ports:
        return play(seed, number, ports, alone=True)


def judge(first, again):
    """Returns whether a difference is a failure, and its text; `again` plays the sequence alone."""
    kind, text = first
    if kind not in FORGIVEN_ONCE:
        return True, text
    second = again()
    if second is None:
        return False, f"did not differ again: {text}"
    return True, second[1]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--dwell", required=True)
    parser.add_argument("--sequences", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", type=int, help="this sequence of the seed alone")
    parser.add_argument("--at-once", type=int, default=8)
    asked = parser.parse_args()
    if shutil.which("beanstalkd") is None:
        sys.exit("beanstalkd is not installed (Debian: apt-get install beanstalkd)")
    began, failures, once = time.monotonic(), 0, 0
    numbers = [asked.only] if asked.only is not None else range(asked.sequences)
    own = [number for number in numbers if number % ALONE_EVERY == 0 or asked.only is not None]
    with servers(asked.dwell) as ports, concurrent.futures.ThreadPoolExecutor(asked.at_once) as pool:
        shared = pool.map(lambda number: play(asked.seed, number, ports), numbers)
        alone = pool.map(lambda number: play_alone(asked.dwell, asked.seed, number), own)
        played = [(number, wrong, lambda number=number: play(asked.seed, number, ports)) for number, wrong in zip(numbers, shared)]
        played += [
            (number, wrong, lambda number=number: play_alone(asked.dwell, asked.seed, number))
            for number, wrong in zip(own, alone)
        ]
        for number, wrong, again in played:
            if wrong is None:
                continue
            counts, text = judge(wrong, again)
            print(text, file=sys.stderr)
            if counts:
                failures += 1
                print(f"again: --seed {asked.seed} --only {number}", file=sys.stderr)
            else:
                once += 1
    took = time.monotonic() - began
    print(
        f"{len(numbers)} sequences, and {len(own)} on servers of their own, {failures} differ, "
        f"{once} differed once in a clock's way, {took:.0f} s"
    )
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
