/**
 * Commands on messages and queues: each as requests to `/v1`, as `curl`, and as `dwell`.
 *
 * A request is shown and sent by the same object. The token is never shown.
 * @module
 */

/** @import { LeaseRef } from "./types.js" */

/**
 * @typedef {object} Command
 * @property {string} method
 * @property {string} path relative to the page
 * @property {Record<string, string>} [headers]
 * @property {unknown} [json]
 * @property {string} [body]
 */

/** @typedef {{ delay: string } | { due: string }} When */

/** @param {string} queue */
export const queuePath = (queue) => `v1/queues/${segment(queue)}`;

/** Percent-encodes as `/v1` does. @param {string} text */
export function segment(text) {
    return encodeURIComponent(text.toWellFormed()).replace(/[!'()*]/g, (char) => `%${char.charCodeAt(0).toString(16).toUpperCase()}`);
}

/** @param {Record<string, string | undefined>} query */
function queryText(query) {
    const pairs = Object.entries(query).filter(([, value]) => value !== undefined && value !== "");
    const text = pairs.map(([name, value]) => `${name}=${segment(value ?? "")}`).join("&");
    return text === "" ? "" : `?${text}`;
}

/**
 * @param {string} queue
 * @param {string[]} ids
 * @returns {Command}
 */
export function cancel(queue, ids) {
    const [id] = ids;
    if (ids.length === 1 && id !== undefined) {
        return { method: "DELETE", path: `${queuePath(queue)}/messages/${segment(id)}` };
    }
    return { method: "POST", path: `${queuePath(queue)}/messages:cancel`, json: ids.map((id) => ({ id })) };
}

/**
 * @param {string} queue
 * @param {string[]} ids
 * @param {When} when
 * @returns {Command}
 */
export function reschedule(queue, ids, when) {
    const [id] = ids;
    if (ids.length === 1 && id !== undefined) {
        return { method: "POST", path: `${queuePath(queue)}/messages/${segment(id)}/reschedule${queryText(when)}` };
    }
    const json = ids.map((id) => ({ id, ...when }));
    return { method: "POST", path: `${queuePath(queue)}/messages:reschedule`, json };
}

/**
 * @param {string} queue
 * @param {string[]} ids
 * @param {When} [when]
 * @returns {Command}
 */
export function revive(queue, ids, when) {
    return { method: "POST", path: `${queuePath(queue)}/dead/revive`, json: { ids, ...when } };
}

/**
 * @param {string} queue
 * @param {string[]} ids
 * @returns {Command}
 */
export function discard(queue, ids) {
    return { method: "POST", path: `${queuePath(queue)}/dead/discard`, json: { ids } };
}

/**
 * @param {string} queue
 * @param {LeaseRef[]} leases
 * @returns {Command}
 */
export function expireLeases(queue, leases) {
    return { method: "POST", path: `${queuePath(queue)}/leases:expire`, json: leases.map(({ id, takes }) => ({ id, takes })) };
}

/**
 * @param {string} queue
 * @param {{ for?: string, until?: string }} end
 * @returns {Command}
 */
export const pause = (queue, end) => ({ method: "POST", path: `${queuePath(queue)}/pause${queryText(end)}` });

/** @param {string} queue @returns {Command} */
export const resume = (queue) => ({ method: "POST", path: `${queuePath(queue)}/resume` });

/** @param {string} queue @returns {Command} */
export const purge = (queue) => ({ method: "POST", path: `${queuePath(queue)}/purge` });

/** @param {string} queue @returns {Command} */
export const deleteQueue = (queue) => ({ method: "DELETE", path: queuePath(queue) });

/**
 * @typedef {object} PutFields
 * @property {string} body
 * @property {string} contentType
 * @property {When | undefined} when
 * @property {string} key
 * @property {string} onConflict
 * @property {string} priority
 * @property {string} expires
 * @property {string} maxAttempts
 * @property {string} lease
 * @property {string} idempotencyKey
 */

/**
 * @param {string} queue
 * @param {PutFields} fields
 * @returns {Command}
 */
export function put(queue, fields) {
    const query = queryText({
        ...fields.when,
        key: fields.key,
        on_conflict: fields.key === "" ? "" : fields.onConflict,
        priority: fields.priority,
        expires: fields.expires,
        max_attempts: fields.maxAttempts,
        lease: fields.lease,
    });
    /** @type {Record<string, string>} */
    const headers = { "Content-Type": fields.contentType };
    if (fields.idempotencyKey !== "") headers["Idempotency-Key"] = fields.idempotencyKey;
    return { method: "POST", path: `${queuePath(queue)}/messages${query}`, headers, body: fields.body };
}

/**
 * A word as a POSIX shell reads it.
 * @param {string} text
 */
export function quoted(text) {
    if (/^[A-Za-z0-9_@%+=:,./-]+$/.test(text)) return text;
    // Characters that a terminal would not show are written by their codes: $'…' of bash, zsh and ksh.
    if (/[\u0000-\u001f\u007f]/.test(text)) {
        const escape = (/** @type {string} */ char) => `\\x${char.charCodeAt(0).toString(16).padStart(2, "0")}`;
        return `$'${text.replace(/[\\']/g, "\\$&").replace(/\n/g, "\\n").replace(/[\u0000-\u001f\u007f]/g, escape)}'`;
    }
    return `'${text.replace(/'/g, "'\\''")}'`;
}

/**
 * The command line that sends the same.
 * @param {Command} command
 * @param {string} base where the page is, with a slash at the end
 * @param {boolean} withToken
 */
export function curlText(command, base, withToken) {
    const words = ["curl"];
    const text = command.json === undefined ? command.body : JSON.stringify(command.json);
    if (command.method !== "POST" || text === undefined) words.push(`-X ${command.method}`);
    if (withToken) words.push(`-H "Authorization: Bearer $DWELL_TOKEN"`);
    if (command.json !== undefined) words.push("-H 'Content-Type: application/json'");
    for (const [name, value] of Object.entries(command.headers ?? {})) words.push(`-H ${quoted(`${name}: ${value}`)}`);
    if (text !== undefined) words.push(`--data-raw ${quoted(text)}`);
    words.push(quoted(base + command.path));
    return words.join(" ");
}

/** An option and its value, also one that begins as an option does. @param {string} name @param {string} value */
const option = (name, value) => `${name}${value.startsWith("-") ? "=" : " "}${quoted(value)}`;

/** @param {When | undefined} when */
function whenWords(when) {
    if (when === undefined) return [];
    return "delay" in when ? [`--delay ${quoted(when.delay)}`] : [`--due ${quoted(when.due)}`];
}

/**
 * One `dwell` per message, or a loop over them.
 * @param {string[]} ids
 * @param {(id: string) => string} one
 */
function each(ids, one) {
    const [id] = ids;
    if (ids.length === 1 && id !== undefined) return one(id);
    return `for id in ${ids.join(" ")}; do ${one('"$id"')}; done`;
}

/** The same actions for `dwell`. */
export const dwell = {
    /** @param {string} queue @param {string[]} ids */
    cancel: (queue, ids) => each(ids, (id) => `dwell cancel ${quoted(queue)} ${id}`),
    /** @param {string} queue @param {string[]} ids @param {When} when */
    reschedule: (queue, ids, when) =>
        each(ids, (id) => ["dwell reschedule", quoted(queue), id, ...whenWords(when)].join(" ")),
    /** @param {string} queue @param {string[]} ids @param {When} [when] */
    revive: (queue, ids, when) => ["dwell revive", quoted(queue), ...ids, ...whenWords(when)].join(" "),
    /** @param {string} queue @param {string[]} ids */
    discard: (queue, ids) => ["dwell discard", quoted(queue), ...ids].join(" "),
    /** @param {string} queue @param {LeaseRef[]} leases */
    expireLeases: (queue, leases) =>
        leases.map(({ id, takes }) => `dwell expire-lease ${quoted(queue)} ${id} --takes ${takes}`).join("; "),
    /** @param {string} queue @param {{ for?: string, until?: string }} end */
    pause: (queue, end) => {
        const words = ["dwell pause", quoted(queue)];
        if (end.for !== undefined) words.push(`--for ${quoted(end.for)}`);
        if (end.until !== undefined) words.push(`--until ${quoted(end.until)}`);
        return words.join(" ");
    },
    /** @param {string} queue */
    resume: (queue) => `dwell resume ${quoted(queue)}`,
    /** @param {string} queue */
    purge: (queue) => `dwell purge ${quoted(queue)} --yes`,
    /** @param {string} queue */
    deleteQueue: (queue) => `dwell delete-queue ${quoted(queue)} --yes`,
    /** @param {string} queue @param {PutFields} fields */
    put: (queue, fields) => {
        /** @type {[string, string][]} */
        const options = [
            ["--content-type", fields.contentType],
            ["--key", fields.key],
            ["--on-conflict", fields.key === "" ? "" : fields.onConflict],
            ["--priority", fields.priority],
            ["--expires", fields.expires],
            ["--max-attempts", fields.maxAttempts],
            ["--lease", fields.lease],
            ["--idempotency-key", fields.idempotencyKey],
        ];
        const given = options.filter(([, value]) => value !== "").map(([name, value]) => option(name, value));
        const body = fields.body === "" ? "''" : quoted(fields.body);
        const words = ["dwell put", quoted(queue), body, ...whenWords(fields.when), ...given];
        // A body of `-` is read from standard input.
        if (fields.body === "-") words.unshift("printf - |");
        return words.join(" ");
    },
};
