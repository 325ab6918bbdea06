/**
 * Search: by a prefix of a queue's name, by number, by receipt; within a queue by id and by key. Bodies are not searched:
 * that would read all of them.
 * @module
 */

/** @import { Message, QueuePage } from "./types.js" */
/** @import { Part, View } from "./context.js" */
import { queuePath, segment } from "./command.js";
import { h } from "./node.js";
import { foreign, instant, nothing, panel, queueLink, refusal, stateChip } from "./parts.js";
import { part } from "./refused.js";
import { fragment, toMessage } from "./route.js";

/**
 * The possible meanings of a text.
 * @typedef {{ prefix?: string, number?: string, receipt?: string, id?: string, key?: string }} Meanings
 */

/** @typedef {{ what: string, found: Part<Message> }} Hit */
/** `places`: queues in which the text may be a key or an id, where none was named. */
/** @typedef {{ queues: Part<QueuePage> | undefined, places: Part<QueuePage> | undefined, hits: Hit[] }} Data */

/**
 * @param {string} text
 * @param {string | undefined} queue where id and key are looked for
 * @returns {Meanings}
 */
export function meaningsOf(text, queue) {
    const trimmed = text.trim();
    /** @type {Meanings} */
    const meanings = {};
    if (trimmed === "") return meanings;
    if (/^[A-Za-z0-9\-+/;.$_():@]{1,200}$/.test(trimmed) && !trimmed.startsWith("-")) meanings.prefix = trimmed;
    if (/^#?[1-9][0-9]{0,15}$/.test(trimmed)) meanings.number = trimmed.replace("#", "");
    if (/^AQ[A-Za-z0-9_-]{48,}$/.test(trimmed)) meanings.receipt = trimmed;
    if (queue !== undefined && queue !== "") {
        if (/^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/i.test(trimmed)) meanings.id = trimmed;
        if (new TextEncoder().encode(trimmed).length <= 512) meanings.key = trimmed;
    }
    return meanings;
}

/** @type {View<Data>} */
export const search = {
    title: ({ query }) => `Search ${query.q ?? ""}`,

    async load(api, { query }) {
        const { prefix, number, receipt, id, key } = meaningsOf(query.q ?? "", query.queue);
        const path = queuePath(query.queue ?? "");
        /** @type {[what: string, path: string, more?: string][]} */
        const asked = [];
        if (id !== undefined) asked.push(["id", `${path}/messages/${segment(id)}`]);
        // Where no live message has the key, the youngest of the dead that had it.
        if (key !== undefined) asked.push(["key", `${path}/keys/${segment(key)}`, "&dead=true"]);
        if (number !== undefined) asked.push(["number", `v1/numbers/${number}`]);
        if (receipt !== undefined) asked.push(["receipt", `v1/receipts/${receipt}`]);
        const [queues, places, ...hits] = await Promise.all([
            prefix === undefined ? undefined : part(api.get(`v1/queues?max=20&prefix=${segment(prefix)}`)),
            query.queue === undefined && (query.q ?? "").trim() !== "" ? part(api.get("v1/queues?max=100")) : undefined,
            ...asked.map(async ([what, path, more = ""]) => ({ what, found: await part(api.get(`${path}?body=false${more}`)) })),
        ]);
        return { queues, places, hits };
    },

    show(context, { queues, places, hits }) {
        const { q = "", queue } = context.route.query;
        const found = hits.filter(({ found }) => found.ok || !isAbsent(found.problem.code));
        const names = queues?.ok === true ? queues.value.queues : [];
        const known = places?.ok === true ? places.value : { queues: [] };
        const absent = hits.filter(({ found }) => !found.ok && isAbsent(found.problem.code)).map(({ what }) => what);
        return [
            h("header", { class: "title", key: "title" }, [
                h("h1", null, "Search for ", foreign(q)),
                queue === undefined ? null : h("p", { class: "note" }, "keys and ids in ", queueLink(queue)),
            ]),
            found.length === 0 ? null : panel("Messages", h("table", { class: "list" }, h("tbody", null, found.map(hit(context)))), null, "hits"),
            names.length === 0 ? null : panel("Queues that begin so", [
                h("ul", { class: "names" }, names.map(({ queue }) => h("li", { key: queue, "data-row": queue, tabindex: -1 }, queueLink(queue)))),
                queues?.ok === true && queues.value.next !== undefined ? h("p", null, h("a", { href: fragment(["queues"], { prefix: q.trim() }) }, "all of them")) : null,
            ], null, "names"),
            queues?.ok === false ? refusal(queues.problem) : null,
            found.length + names.length > 0 ? null : nothing([
                queue === undefined ? "No queue begins so. " : "Nothing is found. ",
                absent.length === 0 ? null : `No message has it as ${absent.join(", ")}. `,
                absent.length === 0 ? null : "Messages that are acked, cancelled or discarded are gone.",
            ]),
            known.queues.length === 0 ? null : panel("As a key or an id in", [
                h("ul", { class: "names" }, known.queues.map(({ queue }) =>
                    h("li", { key: queue, "data-row": queue, tabindex: -1 }, h("a", { class: "name", href: fragment(["search"], { q, queue }) }, foreign(queue))))),
                known.next === undefined ? null : h("p", { class: "note" }, "The first 100 queues by name; the page of any other searches in it, too."),
            ], null, "places"),
        ];
    },
};

/** @param {string} code */
const isAbsent = (code) => ["message_not_found", "unknown_queue", "malformed_id", "malformed_number", "malformed_receipt"].includes(code);

/** @param {import("./context.js").Context} context */
const hit = (context) => (/** @type {Hit} */ { what, found }) => {
    if (!found.ok) return h("tr", { key: what }, h("th", { scope: "row" }, what), h("td", null, refusal(found.problem)));
    const { queue, id, number, key, state, due } = found.value;
    return h("tr", { key: what, "data-row": id, tabindex: -1 }, [
        h("td", { class: "note" }, `by ${what}`),
        h("th", { scope: "row" }, h("a", { class: "name", href: toMessage(queue, id) }, key === undefined ? `#${number}` : foreign(key))),
        h("td", null, stateChip(state)),
        h("td", null, queueLink(queue)),
        h("td", { class: "when" }, "due ", instant(context, due)),
    ]);
};
