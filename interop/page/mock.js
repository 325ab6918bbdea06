/**
 * A mock server that answers from memory, by `docs/http.md` and by the design of the page: to view and test the page without
 * the real server. It keeps none of dwell's promises.
 *
 * node mock.js [PORT] serves it; `start` does the same for tests.
 */
import { createHash } from "node:crypto";
import { readFileSync, readdirSync } from "node:fs";
import { createServer } from "node:http";
import { fileURLToPath } from "node:url";

const ASSETS = fileURLToPath(new URL("../../crates/server/src/page/assets/", import.meta.url));
const TYPES = { html: "text/html; charset=utf-8", js: "text/javascript; charset=utf-8", css: "text/css; charset=utf-8", svg: "image/svg+xml" };
const POLICY =
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; " +
    "form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'";
const SPANS = { minute: [60, 1_000], hour: [60, 60_000], day: [24, 3_600_000], month: [30, 86_400_000] };
const STATES = ["scheduled", "ready", "leased", "dead"];
const EVERYTHING = ["put:*", "take:*", "manage:*", "look:*", "metrics"];

/** Pseudo-random numbers, the same in every run. */
function random(seed) {
    let state = seed;
    return () => {
        state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
        return state / 2 ** 32;
    };
}

class Problem extends Error {
    constructor(status, code, detail, more = {}) {
        super(code);
        this.status = status;
        this.body = { type: `/errors/${code}`, title: code.replaceAll("_", " "), status, detail, code, retryable: [429, 503].includes(status), ...more };
    }
}

const instant = (ms) => new Date(ms).toISOString();
const uuid = (due, at) => {
    const hex = `${due.toString(16).padStart(12, "0")}8000${(0x8000 + (at >> 16)).toString(16)}0000${(at & 0xffff_ffff).toString(16).padStart(8, "0")}`;
    return `${hex.slice(0, 8)}-${hex.slice(8, 12)}-${hex.slice(12, 16)}-${hex.slice(16, 20)}-${hex.slice(20, 32)}`;
};

/** Queues and messages, and the operations on them. */
export class World {
    constructor(now = Date.now()) {
        this.queues = new Map();
        this.messages = new Map();
        this.number = 0;
        this.random = random(7);
        this.paused = new Map();
        this.puts = [];
        this.fill(now);
    }

    add(queue, given) {
        this.number += 1;
        const id = uuid(given.due, this.number);
        const message = {
            id, number: this.number, queue, state: "scheduled", body: Buffer.from("{}"), created: given.due - 1_800_000, priority: 1024,
            attempt: 0, counts: { takes: 0, lapses: 0, releases: 0, buries: 0, revives: 0 }, headers: { "content-type": "application/json" }, ...given,
        };
        this.messages.set(id, message);
        if (!this.queues.has(queue)) this.queues.set(queue, new Set());
        this.queues.get(queue).add(id);
        return message;
    }

    fill(now) {
        const { random } = this;
        for (let at = 0; at < 900; at += 1) {
            const due = now + Math.floor(random() ** 2 * 2 * 86_400_000) + 500;
            const order = 41_000 + at;
            this.add("orders", { due, key: `order-${order}`, body: Buffer.from(`{"order":${order},"close_if":"unpaid","amount":9007199254740993,"currency":"EUR"}`) });
        }
        for (let at = 0; at < 400; at += 1) this.add("reminders-eu", { due: now + Math.floor(random() * 30 * 86_400_000), body: Buffer.from(`meeting ${at} begins in 15 minutes`), headers: { "content-type": "text/plain" } });
        for (let at = 0; at < 14; at += 1) this.add("orders", { state: "ready", due: now - Math.floor(random() * 90_000), key: `order-${40_900 + at}`, body: Buffer.from(`{"order":${40_900 + at}}`) });
        for (let at = 0; at < 3; at += 1) this.add("orders", {
            state: "leased", due: now - 9_000, lease_until: now + 21_000, lease_granted: now - 9_000, attempt: 1, key: `order-${40_800 + at}`, body: Buffer.from("{}"),
            counts: { takes: 1, lapses: 0, releases: 0, buries: 0, revives: 0 }, ...(at === 2 ? {} : { holder: at === 0 ? "worker 7 on host-a" : "pod\u202e<b>" }),
        });
        for (let at = 0; at < 1_240; at += 1) {
            const failed = now - Math.floor(random() * 6 * 3_600_000);
            this.add("orders", {
                state: "dead", due: failed - 60_000, dead_at: failed, dead_reason: at % 9 === 0 ? "expired" : "attempts_spent", attempt: 16,
                key: `order-${30_000 + at}`, last_error: "connect ECONNREFUSED 10.2.0.14:8443 (payments-7d9f)", first_taken: failed - 55_000, failed_at: failed,
                body: Buffer.from(`{"order":${30_000 + at},"close_if":"unpaid"}`), counts: { takes: 16, lapses: 2, releases: 0, buries: 0, revives: at % 3 },
            });
        }
        for (const [name, count] of [["mail/transactional", 220], ["webhooks;v=2", 90], ["retry.charge", 60], ["billing-cycle", 310], ["cart-timeouts", 160], ["sms", 24], ["push", 80], ["search-reindex", 12]]) {
            for (let at = 0; at < count; at += 1) this.add(name, { due: now + Math.floor(random() * 3 * 3_600_000), body: Buffer.from(`job ${at}`), headers: {} });
        }
        this.add("webhooks;v=2", { state: "dead", due: now - 500_000, dead_at: now - 400_000, dead_reason: "buried", attempt: 1, last_error: "410 Gone", body: Buffer.from("gone") });
        this.nasty = {
            markup: this.add("odd", { due: now + 60_000, key: "<img src=x onerror=alert(1)>", headers: { "x-note": "</td><script>alert(2)</script>" }, body: Buffer.from("<script>alert(3)</script><b>bold</b>") }),
            rtl: this.add("odd", { due: now + 61_000, key: "invoice\u202efdp.exe", body: Buffer.from("left \u202eright\u202c \u200bwidth\u0000nul \u0007bell") }),
            bytes: this.add("odd", { due: now + 62_000, body: Buffer.from([0xff, 0xfe, 0, 1, 2, 0x41, 0xc3, 0x28, ...Array.from({ length: 300 }, (_, at) => at & 255)]) }),
            line: this.add("odd", { due: now + 63_000, body: Buffer.from("x".repeat(1_048_576)) }),
            deep: this.add("odd", { due: now + 64_000, body: Buffer.from("[".repeat(100_000) + "]".repeat(100_000)) }),
            number: this.add("odd", { due: now + 65_000, body: Buffer.from('{"big":9007199254740993,"twice":1,"twice":2,"float":1.10,"e":"\\u202e"}') }),
            empty: this.add("odd", { due: now + 66_000, body: Buffer.alloc(0) }),
            far: this.add("odd", { due: 253_402_300_799_999, created: now, body: Buffer.from("the last instant") }),
            error: this.add("odd", { state: "dead", due: now - 1_000, dead_at: now - 500, dead_reason: "attempts_spent", attempt: 3, max_attempts: 3, last_error: `<h1>503</h1>\n${"long ".repeat(600)}`, body: Buffer.from("{") }),
        };
        this.paused.set("billing-cycle", instant(now + 900_000));
        const sinkQueue = (queue, breaker, given) => ({ queue, breaker, in_flight: 0, taken: 0, acked: 0, retried: 0, released: 0, buried: 0, lost: 0, ...given });
        this.sinks = new Map([
            { name: "shop", kind: "webhook", destination: "shop.example.com:443", state: "running", delivered: 1_204_877, uncertain: 3, failed: { http_503: 212, timed_out: 7 },
                queues: [sinkQueue("orders", "half_open", { in_flight: 3, taken: 1_204_890, acked: 1_204_870, released: 212 }), sinkQueue("webhooks;v=2", "open", { taken: 90, retried: 7, buried: 1 })] },
            { name: "mail", kind: "webhook", destination: "the header webhook-url", state: "paused", reason: "an operator has requested it", delivered: 12, uncertain: 0, failed: {}, queues: [sinkQueue("mail/transactional", "closed", { taken: 12, acked: 12 })] },
            { name: "sms-gateway", kind: "webhook", destination: "sms.example.net:8443", state: "ended", reason: "the queue is served by another sink <b>\u202e</b>", delivered: 0, uncertain: 0, failed: { refused: 1 }, queues: [sinkQueue("sms", "closed", {})] },
        ].map((sink) => [sink.name, sink]));
        const common = { missed: "one", overlap: "skip", jitter: "0s", paused: false };
        this.schedules = new Map([
            { name: "report", queue: "reports", cron: "30 9 * * MON-FRI", zone: "Europe/Berlin", body: "daily\u202e<b>", headers: { "content-type": "text/plain" }, ...common, jitter: "1m", step: 86_400_000 },
            { name: "tick", queue: "ticks", every: "5m", body_base64: Buffer.from([0xff, 0, 1]).toString("base64"), ...common, overlap: "allow", step: 300_000 },
            { name: "year-end", queue: "reports", cron: "0 0 0 1 1 ?", dialect: "quartz", zone: "UTC", body: "", ...common, paused: true, step: 365 * 86_400_000 },
        ].map((schedule) => [schedule.name, schedule]));
    }

    schedule(name, now) {
        const found = this.schedules.get(name);
        if (found === undefined) throw new Problem(404, "unknown_schedule", `there is no schedule '${name}'`);
        const { step, ...shown } = found;
        const instants = Array.from({ length: 10 }, (_, at) => instant((Math.floor(now / step) + 1 + at) * step));
        return { shown: { ...shown, ...(found.paused ? {} : { next: instants[0] }) }, instants };
    }

    of(queue, state) {
        const ids = this.queues.get(queue);
        if (ids === undefined) throw new Problem(404, "unknown_queue", `there is no queue '${queue}'`);
        const all = [...ids].map((id) => this.messages.get(id));
        return all.filter((message) => state === undefined || message.state === state).sort((a, b) => a.due - b.due || (a.id < b.id ? -1 : 1));
    }

    remove(message) {
        this.messages.delete(message.id);
        const ids = this.queues.get(message.queue);
        ids?.delete(message.id);
        if (ids?.size === 0) this.queues.delete(message.queue);
    }

    tick(now) {
        for (const message of this.messages.values()) if (message.state === "scheduled" && message.due <= now) message.state = "ready";
    }

    counts(queue) {
        const counts = { scheduled: 0, ready: 0, ready_urgent: 0, leased: 0, dead: 0 };
        for (const id of this.queues.get(queue) ?? []) counts[this.messages.get(id).state] += 1;
        return counts;
    }

    stats(queue) {
        this.of(queue, "none");
        const [next] = this.of(queue, "scheduled");
        return {
            queue, counts: this.counts(queue), waiting: queue === "orders" ? 4 : 0, ...(next === undefined ? {} : { next_due: instant(next.due) }),
            settings: {
                lease: "30s", max_attempts: 16, backoff: { base: "1s", factor_percent: 200, cap: "1h", jitter_percent: 20 }, max_pending: null,
                pause: this.paused.get(queue) ?? "running", levels: [], partitions: 1, idempotency_ttl: "10m",
                dead_ttl: queue === "orders" ? "7d" : null, dead_max: null, on_expiry: "dead", max_leased: null, lapse_backoff: "never",
            },
            own: queue === "billing-cycle" ? ["pause", "max_attempts"] : queue === "orders" ? ["dead_ttl"] : [],
        };
    }

    show(message, { body = true, preview } = {}) {
        const { body: bytes, due, created, lease_until, lease_granted, dead_at, first_taken, failed_at, expires, ...rest } = message;
        const text = bytes.toString("utf8");
        const isText = Buffer.from(text).equals(bytes);
        const optional = { lease_until, lease_granted, dead_at, first_taken, failed_at, expires };
        const given = Object.entries(optional).flatMap(([name, ms]) => (ms === undefined ? [] : [[name, instant(ms)]]));
        const shown = preview !== undefined
            ? (isText ? { preview: [...text].slice(0, preview).join("") } : { preview_base64: bytes.subarray(0, preview).toString("base64") })
            : body ? (isText ? { body: text } : { body_base64: bytes.toString("base64") }) : {};
        return { ...rest, ...shown, size: bytes.length, due: instant(due), created: instant(created), ...Object.fromEntries(given) };
    }

    forecast(messages, now, span) {
        const [count, step] = SPANS[span] ?? [];
        if (count === undefined) throw new Problem(400, "invalid_parameter", "parameter 'span': one of minute, hour, day, month is expected");
        const first = (Math.floor(now / step) + 1) * step;
        const edges = Array.from({ length: count }, (_, at) => first + at * step);
        return this.edges(messages, now, edges);
    }

    edges(messages, now, edges) {
        const dues = messages.map(({ due }) => due);
        return { now: instant(now), scheduled: dues.length, edges: edges.map(instant), due_by: edges.map((edge) => dues.filter((due) => due <= edge).length), within: 0 };
    }

    recent(now, scale) {
        const series = (step, text, slots) => {
            const end = (Math.floor(now / step) + 1) * step;
            const seconds = step / 1_000;
            const at = (slot) => Math.floor(end / step) - slots + slot;
            const wave = (slot, size, shift) => Math.max(0, Math.round(scale * seconds * size * (1 + 0.4 * Math.sin((at(slot) + shift) / 9) + 0.2 * random(at(slot) * 31 + shift)())));
            const of = (size, shift) => Array.from({ length: slots }, (_, slot) => (slot === slots - 1 ? Math.round(wave(slot, size, shift) * ((now % step) / step)) : wave(slot, size, shift)));
            const late = (most, shift) => Array.from({ length: slots }, (_, slot) => (slot % 37 === 9 ? null : Math.round(most * (0.5 + random(at(slot) * 17 + shift)()))));
            return {
                step: text, end: instant(end), puts: of(12, 0), takes: of(11, 3), acks: of(10.5, 4), retries: of(0.4, 7), deaths: of(0.02, 2),
                lateness_p50_ms: late(2, 1), lateness_p99_ms: late(14, 2), lateness_max_ms: late(60, 3),
            };
        };
        return [series(10_000, "10s", 90), series(600_000, "10m", 144)];
    }
}

function files() {
    const names = readdirSync(ASSETS).sort();
    const hash = createHash("sha256");
    for (const name of names) hash.update(name).update(readFileSync(ASSETS + name));
    const digest = hash.digest("hex").slice(0, 16);
    return { digest, document: readFileSync(`${ASSETS}index.html`, "utf8").replaceAll("{digest}", digest) };
}

/**
 * Serves a world. `tokens` maps names, which are also the secrets, to scopes; without it no token is required. Requests are
 * recorded in `log`, and `broken` answers every request with 503.
 */
export async function start({ port = 0, tokens, world = new World() } = {}) {
    const log = [];
    const state = { world, tokens, log, broken: false, gone: false, policyReports: [] };
    const server = createServer((request, response) => {
        const chunks = [];
        request.on("data", (chunk) => chunks.push(chunk));
        request.on("end", () => {
            const url = new URL(request.url, "http://mock");
            const body = Buffer.concat(chunks);
            log.push({ method: request.method, path: url.pathname + url.search, body: body.toString() });
            try {
                answer(state, request, response, url, body);
            } catch (error) {
                if (!(error instanceof Problem)) console.error(error);
                const problem = error instanceof Problem ? error : new Problem(500, "internal", String(error));
                const headers = { "content-type": "application/problem+json" };
                response.writeHead(problem.status, headers).end(JSON.stringify(problem.body));
            }
        });
    });
    await new Promise((resolve) => server.listen(port, "127.0.0.1", resolve));
    return { ...state, state, address: `http://127.0.0.1:${server.address().port}/`, stop: () => new Promise((resolve) => { server.closeAllConnections(); server.close(resolve); }) };
}

function answer(state, request, response, url, body) {
    const { world, tokens } = state;
    const now = Date.now();
    world.tick(now);
    const json = (value, status = 200) => response.writeHead(status, { "content-type": "application/json", "cache-control": "no-store" }).end(JSON.stringify(value));
    const path = url.pathname;
    const { digest, document } = files();
    if (path === "/") return response.writeHead(200, { "content-type": TYPES.html, "content-security-policy": POLICY, "referrer-policy": "no-referrer" }).end(document);
    if (path.startsWith(`/page/${digest}/`)) {
        const name = path.split("/")[3];
        return response.writeHead(200, { "content-type": TYPES[name.split(".").pop()], "cache-control": "public, max-age=31536000, immutable" }).end(readFileSync(ASSETS + name));
    }
    if (path.startsWith("/errors/")) return response.writeHead(200, { "content-type": "text/plain; charset=utf-8" }).end(`# ${path.slice(8)}\n`);
    if (state.broken) throw new Problem(503, "unavailable", "the store cannot serve");

    const bearer = request.headers.authorization?.replace(/^Bearer /i, "");
    if (tokens !== undefined) {
        if (bearer === undefined) throw new Problem(401, "token_required", "this server asks who is calling: send `Authorization: Bearer TOKEN`");
        if (tokens[bearer] === undefined) throw new Problem(401, "token_unknown", "the server does not know this token");
    }
    const scopes = tokens?.[bearer] ?? EVERYTHING;
    const may = (verbs, queue) => scopes.some((scope) => {
        const [verb, names] = scope.split(":");
        return verbs.includes(verb) && (names === undefined || names === queue || (names.endsWith("*") && queue.startsWith(names.slice(0, -1))));
    });
    const need = (verbs, queue) => {
        if (!may(verbs, queue)) throw new Problem(403, "forbidden", `the token is not good for this: it needs the scope ${verbs.map((verb) => `${verb}:${queue}`).join(" or ")}`);
    };
    if (path === "/v1/me") return json({ ...(tokens === undefined ? {} : { name: bearer }), scopes });
    if (path === "/v1/overview" || path === "/v1/forecast") {
        if (!scopes.some((scope) => ["metrics", "manage:*", "look:*"].includes(scope))) throw new Problem(403, "forbidden", "the token is not good for this: it needs the scope metrics or manage:* or look:*");
        const scheduled = [...world.messages.values()].filter(({ state }) => state === "scheduled");
        if (path === "/v1/forecast") return json(world.forecast(scheduled, now, url.searchParams.get("span")));
        const top = [...world.queues.keys()].map((queue) => { const { settings, own, ...rest } = world.stats(queue); return { ...rest, pause: settings.pause }; });
        const counts = { scheduled: 0, ready: 0, ready_urgent: 0, leased: 0, dead: 0 };
        for (const queue of top) for (const name of Object.keys(counts)) counts[name] += queue.counts[name];
        return json({
            now: instant(now), recent: world.recent(now, 3),
            census: {
                as_of: instant(now - 1_400), queues: top.length, counts, waiting: 4, top,
                forecast: world.edges(scheduled, now, [60_000, 3_600_000, 86_400_000, 30 * 86_400_000].map((ms) => now + ms)),
            },
        });
    }
    if (path === "/v1/queues") {
        const prefix = url.searchParams.get("prefix") ?? "";
        const names = [...world.queues.keys()].filter((name) => name.startsWith(prefix) && may(["put", "take", "manage", "look"], name)).sort();
        return json({ queues: names.map((name) => world.stats(name)) });
    }
    const find = (queue, id) => {
        const message = world.messages.get(id);
        if (message === undefined || message.queue !== queue) throw new Problem(404, "message_not_found", `queue '${queue}' has no such message`);
        return message;
    };
    const numbered = /^\/v1\/numbers\/(\d+)$/.exec(path);
    if (numbered !== null) {
        const message = [...world.messages.values()].find(({ number }) => number === Number(numbered[1]));
        if (message === undefined || !may(["take", "manage", "look"], message.queue)) throw new Problem(404, "message_not_found", `no message has the number ${numbered[1]}`);
        return json(world.show(message, { body: false }));
    }
    const needAll = (verbs) => {
        if (!scopes.some((scope) => verbs.some((verb) => scope === `${verb}:*`))) throw new Problem(403, "forbidden", `the token is not good for this: it needs the scope ${verbs.map((verb) => `${verb}:*`).join(" or ")}`);
    };
    if (path === "/v1/sinks") { needAll(["manage", "look"]); return json({ sinks: [...world.sinks.values()] }); }
    const sunk = /^\/v1\/sinks\/([^/]+)(?:\/(test|pause|resume))?$/.exec(path);
    if (sunk !== null) {
        needAll(sunk[2] === undefined ? ["manage", "look"] : ["manage"]);
        const sink = world.sinks.get(decodeURIComponent(sunk[1]));
        if (sink === undefined) throw new Problem(404, "unknown_sink", `this server runs no sink '${decodeURIComponent(sunk[1])}'; look at /v1/sinks`);
        if (sunk[2] === "test") return json(sink.name === "shop" ? { reached: true } : sink.name === "mail" ? {} : { reached: false, error: "refused: 10.2.0.14:8443 \u202e<b>" });
        if (sunk[2] === "pause") Object.assign(sink, { state: "paused", reason: "an operator has requested it" });
        if (sunk[2] === "resume") Object.assign(sink, { state: "running", reason: undefined });
        return json(sink);
    }
    if (path === "/v1/schedules") {
        needAll(["manage", "look"]);
        const all = [...world.schedules.keys()].sort().map((name) => world.schedule(name, now).shown);
        return json({ schedules: all, unread: [{ code: "invalid_schedule", title: "", status: 400, detail: "schedule 'later' was written by a later version", retryable: false }] });
    }
    const planned = /^\/v1\/schedules\/([^/]+)(?:\/(next|run|pause|resume))?$/.exec(path);
    if (planned !== null) {
        const reads = request.method === "GET";
        needAll(reads ? ["manage", "look"] : ["manage"]);
        const name = decodeURIComponent(planned[1]);
        const { shown, instants } = world.schedule(name, now);
        if (planned[2] === "next") return json({ instants });
        if (planned[2] === "run") {
            need(["put"], shown.queue);
            const key = shown.overlap === "allow" ? undefined : name;
            const standing = key === undefined ? undefined : [...world.messages.values()].find((message) => message.queue === shown.queue && message.key === key);
            if (standing !== undefined) throw new Problem(409, "key_taken", `the key is taken by message ${standing.id}`, { id: standing.id });
            const message = world.add(shown.queue, { due: now, state: "ready", key });
            return json({ id: message.id, number: message.number, due: instant(now), outcome: "created" }, 201);
        }
        if (request.method === "DELETE") { world.schedules.delete(name); return json({ removed: 1 }); }
        if (planned[2] !== undefined) world.schedules.get(name).paused = planned[2] === "pause";
        return json(world.schedule(name, now).shown);
    }
    const match = /^\/v1\/queues\/([^/]+)(?:\/(.*))?$/.exec(path);
    if (match === null) throw new Problem(404, "unknown_route", "there is nothing at this path");
    const queue = decodeURIComponent(match[1]);
    const rest = match[2] ?? "";
    const fields = body.length > 0 && request.headers["content-type"] === "application/json" && rest !== "messages" ? JSON.parse(body) : {};
    const dueOf = (given) => {
        const { delay, due } = { ...Object.fromEntries(url.searchParams), ...given };
        if (due !== undefined) return Date.parse(due);
        const units = { ms: 1, s: 1_000, m: 60_000, h: 3_600_000, d: 86_400_000 };
        if (delay === undefined) return now;
        if (!/^(\d+(ms|[smhd]))+$/.test(delay)) throw new Problem(400, "malformed_delay", `'${delay.slice(0, 80)}' is no duration: write it with units, 30m or 1h30m`);
        return now + [...delay.matchAll(/(\d+)(ms|[smhd])/g)].reduce((sum, [, count, unit]) => sum + Number(count) * units[unit], 0);
    };
    const refuse = (message, wanted) => {
        if (message.state === "leased") throw new Problem(409, "leased", `somebody holds message ${message.id}`, { id: message.id });
        if (wanted === "live" && message.state === "dead") throw new Problem(409, "dead", `message ${message.id} is dead`, { id: message.id });
        if (wanted === "dead" && message.state !== "dead") throw new Problem(409, "not_dead", `message ${message.id} is not dead`, { id: message.id });
    };
    const each = (items, one) => json({ answers: items.map((item) => { try { return { status: 200, ...one(item) }; } catch (error) { return { status: error.status, error: error.body }; } }) });
    const move = (message, due) => { refuse(message, "live"); message.due = due; message.state = due <= Date.now() ? "ready" : "scheduled"; return { outcome: "moved", id: message.id, due: instant(due) }; };
    const cancel = (message) => { refuse(message, "live"); world.remove(message); return { outcome: "cancelled", id: message.id }; };
    const swept = (ids, one) => {
        const refused = [];
        for (const id of ids) { try { one(find(queue, id)); } catch (error) { refused.push({ id, error: error.body }); } }
        return json({ done: ids.length - refused.length, refused_in_all: refused.length, refused });
    };

    if (rest === "") {
        if (request.method === "DELETE") { need(["manage"], queue); const all = world.of(queue); all.forEach((message) => world.remove(message)); return json({ removed: all.length }); }
        need(["put", "take", "manage", "look"], queue);
        return json(world.stats(queue));
    }
    if (rest === "forecast") { need(["take", "manage", "look", "metrics"], queue); return json({ queue, ...world.forecast(world.of(queue, "scheduled"), now, url.searchParams.get("span")) }); }
    if (rest === "recent") { need(["take", "manage", "look", "metrics"], queue); return json(queue === "odd" ? { queue, now: instant(now), kept: false } : { queue, now: instant(now), kept: true, recent: world.recent(now, 1) }); }
    if (rest === "pause" || rest === "resume") {
        need(["manage"], queue);
        const { for: time, until } = Object.fromEntries(url.searchParams);
        if (rest === "resume") world.paused.delete(queue);
        else world.paused.set(queue, until ?? (time === undefined ? "paused" : instant(dueOf({ delay: time }))));
        return json(world.stats(queue));
    }
    if (rest === "purge") { need(["manage"], queue); const all = world.of(queue).filter(({ state }) => state === "scheduled" || state === "ready"); all.forEach((message) => world.remove(message)); return json({ removed: all.length }); }
    if (rest === "messages" && request.method === "POST") {
        need(["put"], queue);
        const key = url.searchParams.get("key") ?? undefined;
        const standing = key === undefined ? undefined : [...world.messages.values()].find((message) => message.queue === queue && message.key === key && message.state !== "dead");
        if (standing !== undefined) throw new Problem(409, "key_taken", `the key is taken by message ${standing.id}`, { id: standing.id });
        const due = dueOf({});
        const message = world.add(queue, { due, created: now, body, key, headers: { "content-type": request.headers["content-type"] } });
        world.puts.push({ idempotencyKey: request.headers["idempotency-key"], id: message.id });
        return json({ id: message.id, number: message.number, due: instant(due), outcome: "created" }, 201);
    }
    if (rest === "messages") {
        need(["take", "manage", "look"], queue);
        const { state: wanted = "scheduled", cursor, from, max = "100", preview, body: whole } = Object.fromEntries(url.searchParams);
        if (!STATES.includes(wanted)) throw new Problem(400, "invalid_parameter", "parameter 'state': one of scheduled, ready, leased, dead is expected");
        if (from !== undefined && !/^\d{4}-/.test(from)) throw new Problem(400, from.startsWith("+") ? "due_out_of_range" : "malformed_instant", `'${from.slice(0, 40)}' lies outside 1970 to 9999`);
        let all = world.of(queue, wanted);
        if (from !== undefined) all = all.filter(({ due }) => due >= Date.parse(from));
        if (cursor !== undefined) {
            const [due, id] = cursor.split("~");
            all = all.filter((message) => message.due > Number(due) || (message.due === Number(due) && message.id > id));
        }
        const page = all.slice(0, Number(max));
        const last = page.at(-1);
        return json({
            messages: page.map((message) => world.show(message, { body: whole !== "false", preview: preview === undefined ? undefined : Number(preview) })),
            ...(all.length > page.length ? { next: `${last.due}~${last.id}` } : {}),
        });
    }
    if (rest === "messages:cancel") { need(["put", "manage"], queue); return each(fields, ({ id }) => cancel(find(queue, id))); }
    if (rest === "messages:reschedule") { need(["put", "manage"], queue); return each(fields, ({ id, ...when }) => move(find(queue, id), dueOf(when))); }
    if (rest === "leases:expire") {
        need(["manage"], queue);
        return each(fields, ({ id, takes }) => {
            const message = find(queue, id);
            if (message.state !== "leased") throw new Problem(409, "not_leased", `nobody holds message ${id}`, { id });
            if (message.counts.takes !== takes) throw new Problem(409, "lease_changed", `message ${id} was taken again since`, { id, takes: message.counts.takes });
            Object.assign(message, { state: "ready", lease_until: undefined, lease_granted: undefined, holder: undefined });
            message.counts.lapses += 1;
            return { state: "ready" };
        });
    }
    if (rest === "dead/revive") {
        need(["manage"], queue);
        return swept(fields.ids, (message) => {
            refuse(message, "dead");
            if (message.number % 400 === 0) throw new Problem(409, "key_taken", "the key is taken by another message");
            Object.assign(message, { state: "ready", attempt: 0, due: dueOf({ delay: fields.delay, due: fields.due }), dead_at: undefined, dead_reason: undefined });
            if (message.due > now) message.state = "scheduled";
            message.counts.revives += 1;
        });
    }
    if (rest === "dead/discard") { need(["manage"], queue); return swept(fields.ids, (message) => { refuse(message, "dead"); world.remove(message); }); }
    const keyed = /^keys\/([^/]+)$/.exec(rest);
    if (keyed !== null) {
        need(["take", "manage", "look"], queue);
        const key = decodeURIComponent(keyed[1]);
        const had = world.of(queue).filter((message) => message.key === key);
        const dead = had.filter(({ state }) => state === "dead").sort((a, b) => b.dead_at - a.dead_at || (a.id < b.id ? 1 : -1));
        const message = had.find(({ state }) => state !== "dead") ?? (url.searchParams.get("dead") === "true" ? dead[0] : undefined);
        if (message === undefined) throw new Problem(404, "message_not_found", `queue '${queue}' has no such message`);
        return json(world.show(message, { body: false }));
    }
    const one = /^messages\/([^/]+)(?:\/(reschedule))?$/.exec(rest);
    if (one === null) throw new Problem(404, "unknown_route", "there is nothing at this path");
    if (request.method === "DELETE") { need(["put", "manage"], queue); return json(cancel(find(queue, one[1]))); }
    if (one[2] !== undefined) { need(["put", "manage"], queue); return json(move(find(queue, one[1]), dueOf({}))); }
    need(["take", "manage", "look"], queue);
    const message = find(queue, one[1]);
    if (request.headers.accept === "application/octet-stream") {
        return response.writeHead(200, { "content-type": message.headers["content-type"] ?? "application/octet-stream", "content-security-policy": "sandbox", "content-disposition": "attachment" }).end(message.body);
    }
    return json(world.show(message, { body: url.searchParams.get("body") !== "false" }));
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
    const { address } = await start({ port: Number(process.argv[2] ?? 7_499) });
    console.log(address);
}
