/**
 * Sends requests to the server: the only module that knows the token, and that calls `fetch`.
 * @module
 */

/** @import { Command } from "./command.js" */
/** @import { Api } from "./context.js" */
/** @import { ProblemDocument } from "./types.js" */
import { Refused, own } from "./refused.js";

const STORED = "dwell.token";

/** The token of this tab. */
export const token = {
    get: () => sessionStorage.getItem(STORED) ?? undefined,
    /** @param {string} text */
    set: (text) => sessionStorage.setItem(STORED, text),
    forget: () => sessionStorage.removeItem(STORED),
};

/** How far the server's clock is ahead of ours, in milliseconds, to a second. */
let ahead = 0;

/** The server's time, as far as it is known. */
export const serverNow = () => Date.now() + ahead;

/** @param {Response} response */
function hear(response) {
    const date = Date.parse(response.headers.get("Date") ?? "");
    if (Number.isNaN(date)) return;
    // The header has whole seconds: a difference below two is meaningless.
    const away = date + 500 - Date.now();
    ahead = Math.abs(away) < 2_000 ? 0 : away;
}

/**
 * @param {string} method
 * @param {string} path relative to the page
 * @param {{ headers?: Record<string, string>, body?: string | undefined, signal?: AbortSignal | undefined }} options
 */
async function ask(method, path, { headers = {}, body, signal }) {
    const sent = new Headers(headers);
    const bearer = token.get();
    if (bearer !== undefined) sent.set("Authorization", `Bearer ${bearer}`);
    /** @type {RequestInit} */
    const request = { method, headers: sent, cache: "no-store", credentials: "omit", redirect: "error", referrerPolicy: "no-referrer" };
    if (body !== undefined) request.body = body;
    if (signal !== undefined) request.signal = signal;
    /** @type {Response} */
    let response;
    try {
        response = await fetch(new URL(path, document.baseURI), request);
    } catch (error) {
        if (signal?.aborted === true) throw error;
        throw own("unreachable", "the server does not answer", true);
    }
    hear(response);
    if (!response.ok) throw await refusalOf(response);
    return response;
}

/** @param {Response} response */
async function refusalOf(response) {
    try {
        /** @type {ProblemDocument} */
        const problem = await response.json();
        if (typeof problem.code === "string") return new Refused({ ...problem, detail: String(problem.detail), status: response.status });
    } catch {
        // Not an answer of the server itself.
    }
    const detail = `something between here and the server answered ${response.status} ${response.statusText}`;
    return new Refused({ code: "foreign_answer", title: detail, detail, status: response.status, retryable: response.status >= 500 });
}

/**
 * @param {AbortSignal} [signal]
 * @returns {Api}
 */
export function api(signal) {
    return {
        get: async (path) => json(await ask("GET", path, { signal })),
        send: async (command) => json(await ask(command.method, command.path, { ...carried(command), signal })),
        bytes: async (path) => {
            const response = await ask("GET", path, { headers: { Accept: "application/octet-stream" }, signal });
            return new Uint8Array(await response.arrayBuffer());
        },
    };
}

/** @param {Command} command */
function carried({ headers = {}, json, body }) {
    if (json === undefined) return { headers, body };
    return { headers: { ...headers, "Content-Type": "application/json" }, body: JSON.stringify(json) };
}

/** @param {Response} response */
async function json(response) {
    try {
        return await response.json();
    } catch {
        throw own("foreign_answer", "the answer is no JSON, or broke off", true);
    }
}
