#!/usr/bin/env python3
"""Runs the unmodified greenstalk (PyPI) against a running dwell.

    interop/beanstalkd/greenstalk_client.py 127.0.0.1:11300
"""

import sys
import time

import greenstalk


def refused(error, call, *arguments, **named):
    try:
        call(*arguments, **named)
    except error:
        return
    raise AssertionError(f"{call.__name__}{arguments} was not refused with {error.__name__}")


def main():
    host, port = sys.argv[1].rsplit(":", 1)
    address = (host, int(port))
    with greenstalk.Client(address, use="greenstalk", watch="greenstalk") as client:
        assert client.using() == "greenstalk" and client.watching() == ["greenstalk"]

        # put, reserve, delete
        job_id = client.put("hello", priority=7, ttr=30)
        job = client.reserve(timeout=0)
        assert (job.id, job.body) == (job_id, "hello")
        assert client.stats_job(job)["state"] == "reserved"
        client.touch(job)
        client.delete(job)
        refused(greenstalk.NotFoundError, client.delete, job)

        # a delay
        began = time.monotonic()
        job_id = client.put("later", delay=1)
        assert client.stats_job(job_id)["state"] == "delayed"
        assert client.peek_delayed().id == job_id
        refused(greenstalk.TimedOutError, client.reserve, timeout=0)
        job = client.reserve(timeout=10)
        assert job.id == job_id and time.monotonic() - began >= 0.999

        # release with a delay and a priority, kick
        client.release(job, priority=3, delay=100)
        assert client.stats_job(job)["pri"] == 3
        assert client.kick(10) == 1
        job = client.reserve(timeout=0)

        # bury, peek, kick
        client.bury(job, priority=9)
        assert client.peek_buried().id == job.id
        client.kick_job(job)
        assert client.peek_ready().id == job.id
        assert client.reserve_job(job.id).id == job.id
        client.delete(job)

        # priorities, and two tubes
        low, high = client.put("low", priority=100), client.put("high", priority=1)
        assert [client.reserve(timeout=0).id for _ in range(2)] == [high, low]
        client.delete(low)
        client.delete(high)
        assert client.watch("other") == 2 and client.ignore("other") == 1
        refused(greenstalk.NotIgnoredError, client.ignore, "greenstalk")

        # pause
        client.pause_tube("greenstalk", 1)
        job_id = client.put("paused")
        refused(greenstalk.TimedOutError, client.reserve, timeout=0)
        stats = client.stats_tube("greenstalk")
        assert stats["pause"] == 1 and stats["current-jobs-ready"] == 1
        job = client.reserve(timeout=10)
        assert job.id == job_id

        # the jobs reserved by a connection are released when it closes
        client.close()
    with greenstalk.Client(address, watch="greenstalk") as client:
        job = client.reserve(timeout=10)
        assert job.id == job_id
        client.delete(job)
        refused(greenstalk.DeadlineSoonError, hold_and_reserve, client)
        refused(greenstalk.JobTooBigError, client.put, "x" * (2 * 1024 * 1024))
        refused(greenstalk.BadFormatError, client.use, "-no")
        assert client.stats()["current-jobs-reserved"] == 1
        assert "default" in client.tubes()
    print("greenstalk: ok")


def hold_and_reserve(client):
    client.use("greenstalk")
    client.put("short", ttr=1)
    client.reserve(timeout=0)
    client.reserve(timeout=5)


if __name__ == "__main__":
    main()
