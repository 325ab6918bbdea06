/**
 * Routes: a fragment as a view with its names and its query, and back.
 *
 * A fragment that is not a route becomes the route `unknown`, which keeps the text.
 * @module
 */

/**
 * @typedef {object} Route
 * @property {"overview" | "queues" | "queue" | "messages" | "message" | "put" | "search" | "sinks" | "sink" | "schedules" | "schedule" | "unknown"} view
 * @property {string} queue
 * @property {string} id
 * @property {string} name of a sink or a schedule
 * @property {Record<string, string>} query
 * @property {string} text
 */

/** @type {{ view: Route["view"], path: string[], query: string[] }[]} */
const ROUTES = [
    { view: "overview", path: [], query: ["span", "sort"] },
    { view: "queues", path: ["queues"], query: ["prefix", "cursor"] },
    { view: "search", path: ["search"], query: ["q", "queue"] },
    { view: "queue", path: ["queues", ":queue"], query: ["span", "recent"] },
    { view: "messages", path: ["queues", ":queue", "messages"], query: ["state", "from", "cursor"] },
    { view: "message", path: ["queues", ":queue", "messages", ":id"], query: ["body"] },
    { view: "put", path: ["queues", ":queue", "put"], query: [] },
    { view: "sinks", path: ["sinks"], query: [] },
    { view: "sink", path: ["sinks", ":name"], query: [] },
    { view: "schedules", path: ["schedules"], query: [] },
    { view: "schedule", path: ["schedules", ":name"], query: [] },
];

/**
 * Reads a fragment, with or without its `#`.
 * @param {string} fragment
 * @returns {Route}
 */
export function parseRoute(fragment) {
    const text = fragment.replace(/^#/, "");
    /** @type {Route} */
    const unknown = { view: "unknown", queue: "", id: "", name: "", query: {}, text };
    const mark = text.indexOf("?");
    const path = mark < 0 ? text : text.slice(0, mark);
    const parts = path.split("/").filter((part) => part !== "");
    const names = parts.map(decode);
    const query = parseQuery(mark < 0 ? "" : text.slice(mark + 1));
    if (query === undefined || names.includes(undefined)) return unknown;
    for (const route of ROUTES) {
        if (route.path.length !== parts.length) continue;
        if (!route.path.every((part, at) => part.startsWith(":") || part === parts[at])) continue;
        if (!Object.keys(query).every((name) => route.query.includes(name))) continue;
        const named = (/** @type {string} */ name) => names[route.path.indexOf(name)] ?? "";
        return { view: route.view, queue: named(":queue"), id: named(":id"), name: named(":name"), query, text };
    }
    return unknown;
}

/**
 * @param {string} text
 * @returns {string | undefined}
 */
function decode(text) {
    try {
        return decodeURIComponent(text);
    } catch {
        return undefined;
    }
}

/**
 * @param {string} text
 * @returns {Record<string, string> | undefined} nothing where a name comes twice or is not UTF-8
 */
function parseQuery(text) {
    /** @type {Record<string, string>} */
    const query = {};
    for (const pair of text.split("&").filter((pair) => pair !== "")) {
        const mark = pair.indexOf("=");
        const name = decode(mark < 0 ? pair : pair.slice(0, mark));
        const value = decode(mark < 0 ? "" : pair.slice(mark + 1));
        if (name === undefined || value === undefined || Object.hasOwn(query, name)) return undefined;
        query[name] = value;
    }
    return query;
}

/**
 * The fragment of a path with its names filled in; empty and undefined values are left out of the query.
 * @param {string[]} path
 * @param {Record<string, string | undefined>} [query]
 */
export function fragment(path, query = {}) {
    const pairs = Object.entries(query).filter(([, value]) => value !== undefined && value !== "");
    const text = pairs.map(([name, value]) => `${name}=${encodeURIComponent((value ?? "").toWellFormed())}`).join("&");
    return `#/${path.map((part) => encodeURIComponent(part.toWellFormed())).join("/")}${text === "" ? "" : `?${text}`}`;
}

/** @param {string} queue @param {Record<string, string | undefined>} [query] */
export const toQueue = (queue, query) => fragment(["queues", queue], query);

/** @param {string} queue @param {Record<string, string | undefined>} [query] */
export const toMessages = (queue, query) => fragment(["queues", queue, "messages"], query);

/** @param {string} queue @param {string} id */
export const toMessage = (queue, id) => fragment(["queues", queue, "messages", id]);

/** @param {string} queue */
export const toPut = (queue) => fragment(["queues", queue, "put"]);

/** @param {string} sink */
export const toSink = (sink) => fragment(["sinks", sink]);

/** @param {string} schedule */
export const toSchedule = (schedule) => fragment(["schedules", schedule]);

/**
 * The same route with some of its query changed.
 * @param {Route} route
 * @param {Record<string, string | undefined>} changes
 */
export function withQuery(route, changes) {
    const { view, queue, id, name, query } = route;
    const row = ROUTES.find((row) => row.view === view);
    /** @type {Record<string, string>} */
    const names = { ":queue": queue, ":id": id, ":name": name };
    const path = (row?.path ?? []).map((part) => names[part] ?? part);
    return fragment(path, { ...query, ...changes });
}
