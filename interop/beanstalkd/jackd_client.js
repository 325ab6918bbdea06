// Runs the unmodified jackd (npm) against a running dwell, or beanstalkd:
//
//     node interop/beanstalkd/jackd_client.js 127.0.0.1:11300
//
// jackd 2.2.2, the latest version on npm, sends pauseTube without a line end, so no server ever answers it
// (`pause-tube ${tube} ${delay || 0}` in its dist/index.js, where every other command has \r\n). It sends the delay as
// given, so the test passes a string that ends with the line end.
// Not tested: pipelined commands, whose replies it splits wrongly; Buffers, which it puts as JSON.
"use strict";
const assert = require("assert");
const Jackd = require("jackd");

const [host, port] = process.argv[2].split(":");

async function refused(word, promise) {
    await assert.rejects(promise, (error) => error.message.startsWith(word), `not refused with ${word}`);
}

async function main() {
    const client = new Jackd();
    await client.connect({ host, port: Number(port) });
    assert.equal(await client.use("jackd"), "jackd");
    assert.equal(await client.watch("jackd"), 2);
    assert.equal(await client.ignore("default"), 1);
    await refused("NOT_IGNORED", client.ignore("jackd"));
    assert.equal(await client.listTubeUsed(), "jackd");
    assert.match(await client.listTubesWatched(), /- "?jackd"?/);

    // put, reserve, touch, delete
    let id = await client.put({ order: 7 }, { priority: 7, ttr: 30 });
    let job = await client.reserve();
    assert.deepEqual([job.id, JSON.parse(job.payload)], [id, { order: 7 }]);
    assert.match(await client.statsJob(id), /state: reserved/);
    await client.touch(id);
    await client.delete(id);
    await refused("NOT_FOUND", client.delete(id));

    // a delay
    const began = process.hrtime.bigint();
    id = await client.put("later", { delay: 1 });
    assert.equal((await client.peekDelayed()).id, id);
    await refused("TIMED_OUT", client.reserveWithTimeout(0));
    job = await client.reserveWithTimeout(10);
    assert.equal(job.id, id);
    assert(process.hrtime.bigint() - began >= 999_000_000n, "early");

    // release, kick, bury, peek
    await client.release(id, { priority: 3, delay: 100 });
    assert.match(await client.statsJob(id), /pri: 3/);
    assert.equal(await client.kick(10), 1);
    await client.reserveJob(id);
    await client.bury(id, 9);
    assert.equal((await client.peekBuried()).id, id);
    await client.kickJob(id);
    assert.equal((await client.peekReady()).id, id);
    assert.equal((await client.peek(id)).payload.toString(), "later");
    await client.delete(id);

    // pause: a job that was put is not handed out until the pause is over
    const paused = process.hrtime.bigint();
    await client.pauseTube("jackd", { delay: "1\r\n" });
    id = await client.put("paused");
    await refused("TIMED_OUT", client.reserveWithTimeout(0));
    assert.match(await client.statsTube("jackd"), /pause: 1\n/);
    assert.match(await client.statsTube("jackd"), /cmd-pause-tube: 1\n/);
    job = await client.reserveWithTimeout(10);
    assert.equal(job.id, id);
    assert(process.hrtime.bigint() - paused >= 999_000_000n, "the pause ended early");
    await client.delete(id);
    await refused("NOT_FOUND", client.pauseTube("nowhere", { delay: "1\r\n" }));

    // stats: they cover the whole server, where other clients may have left jobs
    const stats = await client.stats();
    for (const field of [/^current-jobs-ready: \d+$/m, /^cmd-pause-tube: [1-9]/m, /^total-jobs: [1-9]/m, /^pid: [1-9]/m]) {
        assert.match(stats, field);
    }
    assert.match(await client.listTubes(), /- "?jackd"?/);

    // a large body that contains line ends
    const text = "grüße\r\n".repeat(6_000);
    id = await client.put(text);
    job = await client.reserveWithTimeout(0);
    assert.equal(job.payload.toString(), text);
    await client.delete(id);

    // two connections
    const worker = new Jackd();
    await worker.connect({ host, port: Number(port) });
    await worker.watch("jackd");
    const waiting = worker.reserveWithTimeout(30);
    id = await client.put("to the other");
    assert.equal((await waiting).id, id);
    // This closes its connection, and the job is ready again.
    await worker.quit();
    job = await client.reserveWithTimeout(10);
    assert.equal(job.id, id);
    await client.delete(id);
    assert.match(await client.statsTube("jackd"), /current-jobs-ready: 0/);
    await client.quit();
    console.log("jackd: ok");
}

main().catch((error) => {
    console.error(error);
    process.exit(1);
});
