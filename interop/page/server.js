/**
 * A real `dwell serve` on a free port of the loopback, over the engine or over a Redis of its own, and calls of its `/v1`.
 *
 * The binary is `target/debug/dwell` of the workspace, or `DWELL_BIN`. A server can be killed and started again on the same
 * port, and its tokens can be changed while it runs.
 */
import { spawn } from "node:child_process";
import { createHash } from "node:crypto";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";

const BINARY = process.env.DWELL_BIN ?? fileURLToPath(new URL("../../target/debug/dwell", import.meta.url));
const REDIS = process.env.DWELL_REDIS_SERVER ?? "redis-server";

/** How long a process may take to say that it serves. */
const START_MS = 60_000;

export const STORES = ["engine", "redis"];

/** A child process whose lines of output can be waited for. */
class Child {
    #heard = [];
    #waiting = new Set();

    constructor(program, args) {
        this.process = spawn(program, args, { stdio: ["ignore", "pipe", "pipe"] });
        this.ended = new Promise((resolve) => {
            this.process.on("exit", resolve);
            this.process.on("error", (error) => { this.#hear(`${program}: ${error.message}`); resolve(error); });
        });
        for (const stream of [this.process.stdout, this.process.stderr]) createInterface({ input: stream }).on("line", (line) => this.#hear(line));
    }

    #hear(line) {
        this.#heard.push(line);
        for (const look of this.#waiting) look();
    }

    /** The first line, from now on or not yet asked for, that contains the text. */
    async line(text) {
        return new Promise((resolve, reject) => {
            const look = () => {
                const at = this.#heard.findIndex((line) => line.includes(text));
                if (at < 0) return;
                settle(() => resolve(this.#heard.splice(0, at + 1).at(-1)));
            };
            const fail = (why) => settle(() => reject(new Error(`${why}, without '${text}':\n${this.#heard.slice(-20).join("\n")}`)));
            const timer = setTimeout(() => fail("too late"), START_MS);
            const settle = (end) => { clearTimeout(timer); this.#waiting.delete(look); end(); };
            this.#waiting.add(look);
            void this.ended.then(() => fail("it has ended"));
            look();
        });
    }

    async stop(signal = "SIGTERM") {
        this.process.kill(signal);
        const timer = setTimeout(() => this.process.kill("SIGKILL"), 15_000);
        await this.ended;
        clearTimeout(timer);
    }
}

/** The tables of tokens. A token is the text `secret-NAME`. */
const tokensToml = (tokens) => Object.entries(tokens).map(([name, scopes]) =>
    `[[tokens]]\nname = "${name}"\nsha256 = "${createHash("sha256").update(`secret-${name}`).digest("hex")}"\nscopes = ${JSON.stringify(scopes)}\n`).join("\n");

/**
 * Starts a server. `tokens` maps names to scopes; `more` is further text of its configuration.
 */
export async function serve({ store = "engine", tokens = {}, more = "" } = {}) {
    const folder = mkdtempSync(join(tmpdir(), "dwell-page-server-"));
    let redis;
    let url = "engine";
    if (store === "redis") {
        const socket = join(folder, "redis.sock");
        // A socket of its own in place of a port, which another process might take first.
        redis = new Child(REDIS, ["--port", "0", "--unixsocket", socket, "--dir", folder, "--save", "", "--appendonly", "no"]);
        await redis.line("eady to accept connections");
        url = `redis+unix://${socket}`;
    }
    const file = join(folder, "dwell.toml");
    let listen = "127.0.0.1:0";
    let child;
    const configure = (tokens) => writeFileSync(file, [
        `[store]\nurl = ${JSON.stringify(url)}\ndata = ${JSON.stringify(join(folder, "data"))}\nsegment = "4MiB"\n`,
        `[http]\nlisten = "${listen}"\n[beanstalkd]\nlisten = "off"\n[shutdown]\ndrain = "1s"\n`,
        more, tokensToml(tokens),
    ].join("\n"));
    const start = async () => {
        child = new Child(BINARY, ["--json", "serve", "--config", file]);
        const { http } = JSON.parse(await child.line('"event":"serving"'));
        listen = new URL(http).host;
        configure(server.tokens);
        return `${http}/`;
    };
    const server = {
        store,
        tokens,
        address: "",
        /** Sends a request to `/v1/…`; the answer's JSON, or an error with its code. */
        async call(method, path, { json, body, headers = {}, token } = {}) {
            const given = { ...headers };
            const bearer = token ?? Object.keys(server.tokens)[0];
            if (bearer !== undefined) given.authorization = `Bearer secret-${bearer}`;
            if (json !== undefined) given["content-type"] = "application/json";
            const response = await fetch(`${server.address}v1/${path}`, { method, headers: given, body: json === undefined ? body : JSON.stringify(json), signal: AbortSignal.timeout(30_000) });
            const answer = await response.json();
            if (!response.ok) throw new Error(`${method} ${path}: ${answer.code}: ${answer.detail}`);
            return answer;
        },
        /** Puts messages, as items of a batch; their ids. */
        async put(queue, items) {
            const { answers } = await server.call("POST", `queues/${encodeURIComponent(queue)}/messages:batch`, { json: items });
            return answers.map(({ id, error }) => { if (id === undefined) throw new Error(`${queue}: ${JSON.stringify(error)}`); return id; });
        },
        async take(queue, max = 1, query = "") {
            const { messages } = await server.call("POST", `queues/${encodeURIComponent(queue)}/take?max=${max}&lease=60s&wait=10s${query}`);
            return messages;
        },
        get: (queue, id) => server.call("GET", `queues/${encodeURIComponent(queue)}/messages/${id}`),
        stats: (queue) => server.call("GET", `queues/${encodeURIComponent(queue)}`),
        /** Takes effect at once, as a reload does. */
        async changeTokens(tokens) {
            configure(tokens);
            child.process.kill("SIGHUP");
            await child.line('"event":"reloaded"');
            server.tokens = tokens;
        },
        kill: () => child.stop("SIGKILL"),
        async startAgain() { server.address = await start(); },
        async stop() {
            await child.stop();
            await redis?.stop("SIGKILL");
            rmSync(folder, { recursive: true, force: true });
        },
    };
    configure(tokens);
    try {
        server.address = await start();
    } catch (error) {
        await redis?.stop("SIGKILL");
        throw error;
    }
    return server;
}

/** An HTTP server that answers each webhook with `status`, and counts them. */
export async function receiver() {
    const state = { status: 200, seen: [] };
    const http = createServer((request, response) => {
        request.resume().on("end", () => {
            state.seen.push(request.headers["webhook-id"]);
            response.writeHead(state.status).end();
        });
    });
    await new Promise((resolve) => http.listen(0, "127.0.0.1", resolve));
    return { state, url: `http://127.0.0.1:${http.address().port}/hook`, stop: () => new Promise((resolve) => { http.closeAllConnections(); http.close(resolve); }) };
}
