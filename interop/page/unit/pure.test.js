/** Tests of the pure functions of the page, without a browser. */
import assert from "node:assert/strict";
import { readFileSync, readdirSync } from "node:fs";
import { test } from "node:test";

const ASSETS = "../../../crates/server/src/page/assets/";
const load = (/** @type {string} */ name) => import(ASSETS + name);

test("every module but those that touch the document can be loaded without one", async () => {
    const touching = ["main.js", "patch.js"];
    const names = readdirSync(new URL(ASSETS, import.meta.url)).filter((name) => name.endsWith(".js"));
    for (const name of names.filter((name) => !touching.includes(name))) await load(name);
});

test("the document names the modules of the first view, and no others", () => {
    const read = (/** @type {string} */ name) => readFileSync(new URL(ASSETS + name, import.meta.url), "utf8");
    /** @type {Set<string>} */
    const needed = new Set();
    const need = (/** @type {string} */ name) => {
        if (needed.has(name)) return;
        needed.add(name);
        for (const found of read(name).matchAll(/^(?:import|export) [^;]*? from "\.\/([a-z-]+\.js)";/gms)) need(found[1] ?? "");
    };
    need("main.js");
    const named = [...read("index.html").matchAll(/modulepreload" href="page\/\{digest\}\/([a-z-]+\.js)"/g)].map((found) => found[1]);
    assert.deepEqual(named, [...needed].sort());
});

test("routes survive their text, whatever the names", async () => {
    const { parseRoute, toMessages, toMessage, toSchedule, toSink, withQuery } = await load("route.js");
    for (const name of ["orders", "a/b", "a;v=2?&#", "$@:()+", "%2F", "заказ 7", "<b>"]) {
        const route = parseRoute(toMessages(name, { state: "dead", from: "2026-11-26T22:00:00.000Z" }));
        assert.deepEqual([route.view, route.queue], ["messages", name]);
        assert.deepEqual(route.query, { state: "dead", from: "2026-11-26T22:00:00.000Z" });
        assert.deepEqual(parseRoute(toMessage(name, "id")).id, "id");
        assert.equal(parseRoute(withQuery(route, { state: undefined, cursor: "x" })).query.cursor, "x");
        const sink = parseRoute(toSink(name));
        assert.deepEqual([sink.view, sink.name, withQuery(sink, {})], ["sink", name, toSink(name)]);
        assert.deepEqual([parseRoute(toSchedule(name)).view, parseRoute(toSchedule(name)).name], ["schedule", name]);
    }
    assert.equal(parseRoute("").view, "overview");
    assert.equal(parseRoute("#/").view, "overview");
    for (const bad of ["#/nothing", "#/queues/a/b", "#/queues/%ff", "#/queues/a?state=%e0%a4", "#/?state=dead", "#/queues/a/messages?state=a&state=b", "#/queues/a/messages/b/c", "#/sinks/a/b", "#/schedules?state=dead", "#/sinks/%ff"]) {
        assert.equal(parseRoute(bad).view, "unknown", bad);
    }
});

test("JSON is laid out and never parsed", async () => {
    const { layOut } = await load("json.js");
    const laid = (/** @type {string} */ text) => layOut(text);
    assert.deepEqual(laid('{"a":9007199254740993,"a":1.10,"b":[],"c":{},"d":[1,{"e":"\\u0041"}]}'), {
        ok: true,
        isCut: false,
        text: '{\n  "a": 9007199254740993,\n  "a": 1.10,\n  "b": [],\n  "c": {},\n  "d": [\n    1,\n    {\n      "e": "\\u0041"\n    }\n  ]\n}',
    });
    for (const good of ["null", " true ", "-0.0e+7", '"\\\\\\""', "[[],[]]", '{"":""}', "1E400"]) {
        assert.equal(laid(good).ok, true, good);
        assert.deepEqual(JSON.parse(laid(good).text), JSON.parse(good), good);
    }
    for (const bad of ["", "{", "[1,]", '{"a"}', '{"a":1,}', "01", "+1", "[1 2]", '"\n"', '"\\x"', '"\\u12"', '"', "nul", "[]]", "{]", '{a:1}', "\u00a01", "NaN", "1."]) {
        assert.equal(laid(bad).ok, false, bad);
        assert.throws(() => JSON.parse(bad), bad);
    }
});

test("whatever JSON.parse takes is laid out, and nothing else, and only spaces differ", async () => {
    const { layOut } = await load("json.js");
    const parts = ["{", "}", "[", "]", ",", ":", '"a"', '"\\""', "1", "-2.5e3", "true", "null", " ", "\n", '"', "\\", "x"];
    let state = 1;
    const next = () => {
        state = (Math.imul(state, 1_103_515_245) + 12_345) >>> 0;
        return state / 2 ** 32;
    };
    let good = 0;
    const grow = (/** @type {number} */ depth) => {
        /** @type {() => string} */
        const value = () => {
            const kind = Math.floor(next() * (depth > 3 ? 3 : 5));
            if (kind === 0) return '"s"';
            if (kind === 1) return "12.50";
            if (kind === 2) return "false";
            const inside = Array.from({ length: Math.floor(next() * 4) }, () => grow(depth + 1));
            return kind === 3 ? `[${inside.join(" ,")}]` : `{${inside.map((value) => `"k":${value}`).join(", ")}}`;
        };
        return value();
    };
    for (let round = 0; round < 20_000; round += 1) {
        let text = round % 2 === 0 ? grow(0) : Array.from({ length: 1 + Math.floor(next() * 7) }, () => parts[Math.floor(next() * parts.length)]).join("");
        if (round % 4 === 2) text = text.slice(0, Math.floor(next() * text.length));
        let isJson = true;
        try {
            JSON.parse(text);
        } catch {
            isJson = false;
        }
        const layout = layOut(text);
        assert.equal(layout.ok, isJson, JSON.stringify(text));
        if (!layout.ok) continue;
        good += 1;
        const bare = (/** @type {string} */ text) => text.replace(/[ \n]/g, "");
        assert.equal(bare(layout.text), bare(text));
    }
    assert.ok(good > 5_000, `${good} were JSON`);
});

test("no JSON is too deep or too long", async () => {
    const { layOut } = await load("json.js");
    const deep = layOut("[".repeat(100_000) + "]".repeat(100_000));
    assert.equal(deep.ok, true);
    assert.ok(deep.text.length < 20_000_000, `${deep.text.length}`);
    assert.equal(layOut("[".repeat(100_000)).ok, false);
    assert.equal(layOut(`"${"x\\\\".repeat(1_000_000)}"`).ok, true);
    const cut = layOut(`[${"1,".repeat(10_000)}1]`, 1_000);
    assert.ok(cut.ok && cut.isCut && cut.text.length < 1_100);
});

test("what would not be seen in a text is shown by its code", async () => {
    const { pieces, cut } = await load("text.js");
    const shown = (/** @type {string} */ text) => pieces(text).map((/** @type {any} */ piece) => (piece.hidden ? `<${piece.text}>` : piece.text)).join("");
    assert.equal(shown("invoice\u202efdp.exe"), "invoice<U+202E>fdp.exe");
    assert.equal(shown("a\u0000b\r\nc\td\ufeff\u200b"), "a<NUL>b<CR>\nc\td<BOM><U+200B>");
    assert.equal(shown("\ud83d\ude00 \ud83d x \ude00"), "😀 <U+D83D> x <U+DE00>");
    assert.equal(shown("ä 日本 עברית"), "ä 日本 עברית");
    assert.equal(shown(""), "");
    assert.deepEqual(cut("a😀b", 2), { text: "a", isCut: true });
    assert.deepEqual(cut("ab", 2), { text: "ab", isCut: false });
});

test("durations and instants read as people read them", async () => {
    const { durationText, relativeText, utcText, parseDuration, typedInstant, inputInstant, edgeText } = await load("time.js");
    for (const [ms, text] of [[0, "0 ms"], [999, "999 ms"], [1_500, "1.5 s"], [9_000, "9 s"], [61_000, "1 m 1 s"], [3_600_000, "1 h"], [5_400_000, "1 h 30 m"], [90_061_000, "1 d 1 h"]]) {
        assert.equal(durationText(ms), text);
    }
    assert.equal(relativeText(10_000, 0), "in 10 s");
    assert.equal(relativeText(0, 3_600_000), "1 h ago");
    assert.equal(relativeText(0, 500), "now");
    assert.equal(utcText(Date.parse("2026-11-26T22:31:07.120Z")), "2026-11-26 22:31:07.120Z");
    for (const [text, ms] of [["10s", 10_000], ["10m", 600_000], ["1h30m", 5_400_000], ["250ms", 250], ["7d", 604_800_000], ["1m250ms", 60_250]]) {
        assert.equal(parseDuration(text), ms, text);
    }
    for (const bad of ["", "10", "m", "1.5h", "30 m"]) assert.equal(parseDuration(bad), undefined, bad);
    const at = Date.parse("2026-11-26T22:31:07.000Z");
    assert.equal(typedInstant(inputInstant(at, "utc"), "utc"), "2026-11-26T22:31:07.000Z");
    assert.equal(Date.parse(typedInstant(inputInstant(at, "local"), "local") ?? ""), at);
    for (const bad of ["", "tomorrow", "2026-13-40T00:00", "10000-01-01"]) assert.equal(typedInstant(bad, "utc"), undefined, bad);
    assert.equal(edgeText(at, 60_000, "utc"), "22:31");
    assert.equal(edgeText(at, 86_400_000, "utc"), "11-26");
});

test("bars are the differences of a forecast", async () => {
    const { forecastBars, dueLater, axisTop, lastRate, spanOf } = await load("series.js");
    const forecast = { now: "", scheduled: 30, edges: ["1970-01-01T00:01:00Z", "1970-01-01T00:02:00Z", "1970-01-01T00:03:00Z"], due_by: [4, 4, 25], within: 0 };
    assert.deepEqual(forecastBars(forecast, 60_000).map((/** @type {any} */ { from, to, count }) => [from, to, count]), [[0, 60_000, 4], [60_000, 120_000, 0], [120_000, 180_000, 21]]);
    assert.equal(dueLater(forecast), 5);
    assert.deepEqual([0, 1, 3, 7, 10, 11, 23, 99, 1_234].map(axisTop), [1, 1, 3, 8, 10, 12, 25, 100, 1_500]);
    assert.equal(lastRate({ step: "10s", end: "", puts: [0, 0, 60, 60, 60, 60, 60, 60, 5] }, [0, 0, 60, 60, 60, 60, 60, 60, 5]), 6);
    assert.equal(lastRate(undefined, []), undefined);
    assert.equal(spanOf(undefined)?.span, "hour");
    assert.equal(spanOf("year"), undefined);
});

test("scopes allow what the server allows", async () => {
    const { may, mayEverywhere, mayOverview } = await load("may.js");
    const me = { scopes: ["look:orders-*", "put:mail", "metrics"] };
    assert.ok(may(me, ["look"], "orders-eu") && may(me, ["look"], "orders-") && !may(me, ["look"], "orders"));
    assert.ok(may(me, ["put"], "mail") && !may(me, ["put"], "mails") && !may(me, ["take"], "mail"));
    assert.ok(may(me, ["metrics"], "anything") && mayOverview(me) && !mayOverview({ scopes: ["look:a*", "manage:b"] }));
    assert.ok(mayEverywhere({ scopes: ["manage:*"] }, ["manage"]) && !mayEverywhere({ scopes: ["manage:a*"] }, ["manage"]));
    assert.ok(!may({ scopes: [] }, ["look"], "a"));
    const { mayLook, mayLookAll, mayManage, mayManageAll, mayMove, mayPut } = await load("may.js");
    const all = { scopes: ["put:*", "take:*", "manage:*", "look:*", "metrics"] };
    for (const [queue, changes] of [["dwell", true], ["dwell:schedules", false]]) {
        assert.deepEqual([mayLook, mayMove, mayManage, mayPut].map((may) => may(all, queue)), [true, changes, changes, changes], queue);
    }
    for (const [scope, looks, manages] of [["look:*", true, false], ["manage:*", true, true], ["metrics", false, false], ["look:a*", false, false], ["put:*", false, false]]) {
        assert.deepEqual([mayLookAll({ scopes: [scope] }), mayManageAll({ scopes: [scope] })], [looks, manages], scope);
    }
});

test("an action on a sink or a schedule is the same request, whoever sends it", async () => {
    const { deleteScheduleDialog, pauseSinkDialog, runScheduleDialog, testSinkDialog } = await load("delivery.js");
    const { curlText } = await load("command.js");
    const name = "a;b/$(c)";
    const made = (/** @type {any} */ dialog) => dialog.make({});
    const { command, dwell } = made(pauseSinkDialog({ name }));
    assert.equal(curlText(command, "http://h/", false), "curl -X POST http://h/v1/sinks/a%3Bb%2F%24%28c%29/pause");
    assert.equal(dwell, "dwell sinks pause 'a;b/$(c)'");
    assert.deepEqual(made(deleteScheduleDialog({ name: "report" })), { command: { method: "DELETE", path: "v1/schedules/report" }, dwell: "dwell schedules delete report" });
    assert.equal(made(runScheduleDialog({ name: "report", queue: "q", overlap: "skip" })).command.path, "v1/schedules/report/run");
    assert.match(runScheduleDialog({ name: "report", queue: "q", overlap: "skip" }).says, /refused/);
    const { done } = testSinkDialog({ name });
    assert.equal(done({ reached: true }), "The destination is reached.");
    assert.match(JSON.stringify(done({ reached: false, error: "refused" })), /not reached.*refused/);
    assert.match(done({}), /none to connect to/);
});

test("the breaker of a sink is the worst of its queues", async () => {
    const { worst } = await load("view-sinks.js");
    const of = (/** @type {string[]} */ ...breakers) => worst(breakers.map((breaker) => ({ breaker })));
    assert.deepEqual([of(), of("closed"), of("closed", "half_open"), of("half_open", "open", "closed")], ["closed", "closed", "half_open", "open"]);
});

test("the lateness of the last minute is the highest, where something was taken", async () => {
    const { lastMost } = await load("series.js");
    const series = { step: "10s" };
    assert.equal(lastMost(series, [900, 1, null, 3, 2, null, 1, null]), 3);
    assert.equal(lastMost(series, [9, null, null, null, null, null, null, null]), undefined);
    assert.equal(lastMost(undefined, [1]), undefined);
});

test("commands are what a shell sends", async () => {
    const { execFileSync } = await import("node:child_process");
    const command = await load("command.js");
    for (const text of ["plain", "it's", 'a "b" $HOME `id` \\', "line\nbreak\ttab", "-x", "\u0001\u007f", "ünï 日", "!*?[]{}~#&;|<>()"]) {
        const out = execFileSync("bash", ["-c", `printf %s ${command.quoted(text)}`], { encoding: "utf8" });
        assert.equal(out, text, command.quoted(text));
    }
    const put = command.put("a/b", { body: "@file", contentType: "text/plain", when: { delay: "30m" }, key: "k 1", onConflict: "replace", priority: "", expires: "", maxAttempts: "", lease: "", idempotencyKey: "" });
    assert.equal(put.path, "v1/queues/a%2Fb/messages?delay=30m&key=k%201&on_conflict=replace");
    assert.equal(
        command.curlText(put, "http://h/", true),
        `curl -H "Authorization: Bearer $DWELL_TOKEN" -H 'Content-Type: text/plain' --data-raw @file 'http://h/v1/queues/a%2Fb/messages?delay=30m&key=k%201&on_conflict=replace'`,
    );
    assert.equal(command.dwell.revive("q", ["a", "b"], { delay: "1m" }), "dwell revive q a b --delay 1m");
    assert.equal(command.dwell.cancel("q", ["a", "b"]), 'for id in a b; do dwell cancel q "$id"; done');
    assert.equal(command.cancel("q", ["a"]).method, "DELETE");
    assert.deepEqual(command.cancel("q", ["a", "b"]).json, [{ id: "a" }, { id: "b" }]);
    const leases = [{ id: "a", takes: 1 }, { id: "b", takes: 3 }];
    const ended = command.expireLeases("a/b", leases);
    assert.deepEqual([ended.method, ended.path, ended.json], ["POST", "v1/queues/a%2Fb/leases:expire", leases]);
    assert.equal(command.dwell.expireLeases("it's", leases), "dwell expire-lease 'it'\\''s' a --takes 1; dwell expire-lease 'it'\\''s' b --takes 3");
});

test("a sweep of all dead messages goes on past refusals, and ends", async () => {
    const { run, STEP } = await load("sweep.js");
    const dead = Array.from({ length: 1_250 }, (_, at) => String(at).padStart(4, "0"));
    /** @type {number[]} */
    const steps = [];
    const around = (/** @type {() => boolean} */ isStopped, /** @type {any[]} */ shown) => ({
        problem: (/** @type {any} */ error) => error.problem,
        show: (/** @type {any} */ sweep) => shown.push(sweep),
        isStopped,
        pause: async () => {},
        send: async (/** @type {any} */ { method, path, json }) => {
            if (method === "GET") {
                const after = new URL(path, "http://h").searchParams.get("cursor") ?? "";
                const rest = dead.filter((id) => id > after);
                const page = rest.slice(0, STEP);
                return { messages: page.map((id) => ({ id })), ...(rest.length > page.length ? { next: page.at(-1) } : {}) };
            }
            steps.push(json.ids.length);
            const refused = json.ids.filter((/** @type {string} */ id) => id.endsWith("7")).map((/** @type {string} */ id) => ({ id, error: { code: "key_taken" } }));
            return { done: json.ids.length - refused.length, refused_in_all: refused.length, refused };
        },
    });
    const sweep = await run("q", "revive", undefined, around(() => false, []));
    assert.deepEqual([sweep.state, sweep.seen, sweep.done, sweep.refusedInAll], ["done", 1_250, 1_125, 125]);
    assert.deepEqual(steps, [500, 500, 250]);
    /** @type {any[]} */
    const shown = [];
    const stopped = await run("q", "discard", undefined, around(() => shown.length > 0, shown));
    assert.deepEqual([stopped.state, stopped.seen], ["stopped", 500], "the step that is under way is finished");
    const failing = { ...around(() => false, []), send: async () => { throw Object.assign(new Error(), { problem: { code: "outcome_unknown" } }); } };
    assert.equal((await run("q", "revive", undefined, failing)).problem.code, "outcome_unknown");
});

test("what a request did to each message is distinguished", async () => {
    const { outcome } = await load("sweep.js");
    const error = { code: "leased" };
    assert.deepEqual(outcome({ answers: [{ status: 200 }, { status: 409, error }] }, ["a", "b"]), { done: 1, refusedInAll: 1, refused: [{ id: "b", error }] });
    assert.deepEqual(outcome({ done: 2, refused_in_all: 0, refused: [] }, ["a", "b"]), { done: 2, refusedInAll: 0, refused: [] });
    assert.deepEqual(outcome({ outcome: "cancelled", id: "a" }, ["a"]), { done: 1, refusedInAll: 0, refused: [] });
});

test("it asks less often the longer it fails", async () => {
    const { pauseMs } = await load("poll.js");
    assert.deepEqual([0, 1, 2, 3, 4, 100].map(pauseMs), [2_000, 4_000, 8_000, 16_000, 30_000, 30_000]);
});

test("keys are for the page where nobody types", async () => {
    const { asked, step } = await load("keys.js");
    const key = (/** @type {string} */ key, more = {}) => ({ key, ctrlKey: false, metaKey: false, altKey: false, ...more });
    assert.equal(asked(key("j"), false), "next");
    assert.equal(asked(key("j"), true), undefined);
    assert.equal(asked(key("/", { ctrlKey: true }), false), undefined);
    assert.equal(asked(key("constructor"), false), undefined);
    assert.equal(asked(key("Escape"), true), "escape");
    assert.deepEqual([step(-1, 3, "next"), step(-1, 3, "before"), step(2, 3, "next"), step(0, 3, "before"), step(0, 0, "next")], [0, 2, 2, 0, -1]);
});

test("dumps are those of xxd", async () => {
    const { hexDump, fromBase64, asText } = await load("bytes.js");
    assert.equal(hexDump(fromBase64("AEEf/2FiY2RlZmdoaWprbG0=")), "00000000  0041 1fff 6162 6364 6566 6768 696a 6b6c  .A..abcdefghijkl\n00000010  6d                                       m");
    assert.equal(asText(new Uint8Array([0xc3, 0x28])), undefined);
    assert.equal(asText(new Uint8Array([0xef, 0xbb, 0xbf, 0x61])), "\ufeffa");
});

test("search tells what a text may be", async () => {
    const { meaningsOf } = await load("view-search.js");
    assert.deepEqual(meaningsOf(" orders ", undefined), { prefix: "orders" });
    assert.deepEqual(meaningsOf("#17", undefined), { number: "17" });
    assert.deepEqual(meaningsOf("17", "q"), { prefix: "17", number: "17", key: "17" });
    assert.deepEqual(Object.keys(meaningsOf(`AQ${"a".repeat(60)}`, undefined)), ["prefix", "receipt"]);
    assert.deepEqual(Object.keys(meaningsOf("01a218ac-590d-8000-8000-0000000006bb", "q")), ["prefix", "id", "key"]);
    assert.deepEqual(meaningsOf("заказ 7", undefined), {});
    assert.deepEqual(meaningsOf("", "q"), {});
});

test("a message's time line is what is kept of it, in order", async () => {
    const { events } = await load("view-message.js");
    const at = (/** @type {number} */ s) => new Date(s * 1_000).toISOString();
    assert.deepEqual(events({ created: at(1), due: at(9), dead_at: at(20), first_taken: at(10) }).map((/** @type {any} */ { what }) => what), ["put", "due", "first taken", "dead"]);
});

test("leases are ended by those who manage the queue, as they were shown", async () => {
    const { messages } = await load("view-messages.js");
    const { message: one } = await load("view-message.js");
    const counts = (/** @type {number} */ takes) => ({ takes, lapses: 0, releases: 0, buries: 0, revives: 0 });
    const held = (/** @type {string} */ id, /** @type {number} */ takes, more = {}) => ({
        id, number: 1, queue: "q", state: "leased", size: 0, body: "", due: "2026-11-26T22:00:00Z", created: "2026-11-26T21:00:00Z", priority: 1_024, attempt: 1,
        lease_until: "2026-11-26T22:31:00Z", lease_granted: "2026-11-26T22:30:00Z", counts: counts(takes), ...more,
    });
    const page = { ok: true, value: { messages: [held("a", 2, { holder: "host\u202ea" }), held("b", 5)] } };
    const queue = { ok: false, problem: { code: "forbidden" } };
    /** @type {any[]} */
    const opened = [];
    const context = (/** @type {string[]} */ scopes, /** @type {string} */ state) => ({
        route: { view: "messages", queue: "q", id: "a", query: { state } }, me: { scopes }, mode: "utc", now: Date.parse("2026-11-26T22:30:30Z"), typed: {},
        selected: new Set(["a", "elsewhere"]), open: (/** @type {any} */ dialog) => opened.push(dialog), copy() {},
        bodies: { of: () => undefined, load() {} },
    });
    const nodes = (/** @type {any} */ node) => {
        /** @type {any[]} */
        const all = [];
        const walk = (/** @type {any} */ node) => {
            if (Array.isArray(node)) return node.forEach(walk);
            if (node === null || typeof node !== "object") return;
            all.push(node);
            walk(node.children);
        };
        walk(node);
        return all;
    };
    const text = (/** @type {any} */ node) => JSON.stringify(node);
    const named = (/** @type {any} */ shown, /** @type {string} */ name) => nodes(shown).find((node) => node.tag === "button" && text(node.children).includes(name));
    const list = (/** @type {any} */ context) => messages.show(context, { page, queue }, { page, queue });

    const managed = context(["manage:q"], "leased");
    const shown = list(managed);
    for (const part of ["granted", "holder", "U+202E"]) assert.ok(text(shown).includes(part), part);
    named(shown, "end leases").attributes.onclick();
    assert.deepEqual(opened.pop().make({}).command.json, [{ id: "a", takes: 2 }], "of those that are selected and to be seen");
    for (const scopes of [["put:q", "take:q", "look:q"], ["manage:other", "look:q"]]) {
        const seen = list(context(scopes, "leased"));
        assert.equal(named(seen, "end leases"), undefined);
        assert.ok(!nodes(seen).some((node) => node.attributes?.type === "checkbox"));
    }
    assert.ok(!text(list(context(["manage:q"], "scheduled"))).includes("granted"));

    const lease = { message: { ok: true, value: held("a", 2, { holder: "worker 7" }) } };
    const view = one.show(managed, lease, lease);
    assert.ok(text(view).includes("worker 7") && text(view).includes("lease granted"));
    named(view, "end lease").attributes.onclick();
    assert.deepEqual(opened.pop().make({}).command.json, [{ id: "a", takes: 2 }]);
    assert.equal(named(one.show(context(["look:q", "put:q"], "leased"), lease, lease), "end lease"), undefined);
});

test("queues are sorted by a count, then by name", async () => {
    const { sorted } = await load("view-overview.js");
    const queue = (/** @type {string} */ queue, /** @type {number} */ ready, /** @type {string | undefined} */ next_due) => ({ queue, counts: { scheduled: 0, ready, leased: 0, dead: 0 }, waiting: 0, next_due, pause: "running" });
    const all = [queue("b", 1, "2026-01-02T00:00:00Z"), queue("a", 1, undefined), queue("c", 9, "2026-01-01T00:00:00Z")];
    const names = (/** @type {string} */ sort) => sorted(all, sort).map((/** @type {any} */ { queue }) => queue).join("");
    assert.deepEqual([names("ready"), names("name"), names("due"), names("nothing")], ["cab", "abc", "cba", "abc"]);
});
