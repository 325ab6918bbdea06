/**
 * Queues by name, in pages: all that the token may know of, or those with a prefix.
 * @module
 */

/** @import { Queue, QueuePage } from "./types.js" */
/** @import { Context, Part, View } from "./context.js" */
import { h } from "./node.js";
import { codeLink, foreign, instant, nothing, panel, pauseChip, queueLink, refusal } from "./parts.js";
import { part } from "./refused.js";
import { fragment, withQuery } from "./route.js";
import { countText } from "./text.js";

/** @type {View<Part<QueuePage>>} */
export const queues = {
    title: ({ query }) => (query.prefix === undefined ? "Queues" : `Queues ${query.prefix}…`),

    load(api, route) {
        const { prefix, cursor } = route.query;
        const query = new URLSearchParams({ max: "100" });
        if (prefix !== undefined) query.set("prefix", prefix);
        if (cursor !== undefined) query.set("cursor", cursor);
        return part(api.get(`v1/queues?${query}`));
    },

    show(context, _, rows) {
        const { prefix = "" } = context.route.query;
        const search = h("form", { class: "inline", onsubmit: (event) => {
            event.preventDefault();
            context.go(fragment(["queues"], { prefix: context.typed.prefix ?? prefix }));
        } }, [
            h("label", null, "begins with ", h("input", {
                type: "text",
                name: "prefix",
                value: context.typed.prefix ?? prefix,
                autocomplete: "off",
                spellcheck: "false",
                oninput: (event) => context.type("prefix", event.target.value),
            })),
            h("button", { type: "submit" }, "show"),
        ]);
        return [h("h1", { class: "unseen" }, "Queues"), panel("Queues by name", rows.ok ? page(context, rows.value) : refusal(rows.problem), search, "queues")];
    },
};

/** @param {Context} context @param {QueuePage} page */
function page(context, { queues, unread = [], next }) {
    const count = (/** @type {number} */ count, /** @type {string} */ style) =>
        h("td", { class: `number ${count === 0 ? "zero" : style}`, "data-label": style }, countText(count));
    const row = (/** @type {Queue} */ queue) =>
        h("tr", { key: queue.queue, "data-row": queue.queue, tabindex: -1 }, [
            h("th", { scope: "row" }, queueLink(queue.queue), " ", pauseChip(context, queue.settings.pause)),
            count(queue.counts.scheduled, "scheduled"),
            count(queue.counts.ready, "ready"),
            count(queue.counts.leased, "leased"),
            count(queue.counts.dead, "dead"),
            count(queue.waiting, "waiting"),
            h("td", { class: "when", "data-label": "next due" }, instant(context, queue.next_due)),
        ]);
    const heads = ["scheduled", "ready", "leased", "dead", "waiting takes"].map((name) =>
        h("th", { scope: "col", class: "number" }, name),
    );
    const head = [h("th", { scope: "col" }, "queue"), ...heads, h("th", { scope: "col", class: "when" }, "next due")];
    const { prefix, cursor } = context.route.query;
    return [
        queues.length === 0 && unread.length === 0
            ? nothing(prefix === undefined ? "There is no queue that this token may know of." : ["No queue begins with ", foreign(prefix), "."])
            : h("table", { class: "list queues" }, [
                h("thead", null, h("tr", null, head)),
                h("tbody", { "data-hold": "" }, queues.map(row)),
            ]),
        unread.map(({ queue, error }) => h("p", { class: "refusal", key: queue }, queueLink(queue), ": ", codeLink(error.code), " ", foreign(error.detail))),
        h("nav", { class: "pager", "aria-label": "pages" }, [
            cursor === undefined ? null : h("a", { href: withQuery(context.route, { cursor: undefined }) }, "first page"),
            next === undefined ? null : h("a", { href: withQuery(context.route, { cursor: next }), rel: "next" }, "next page"),
        ]),
    ];
}
