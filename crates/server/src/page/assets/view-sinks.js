/**
 * The sinks of this server.
 * @module
 */

/** @import { Sink, SinkQueue } from "./types.js" */
/** @import { Part, View } from "./context.js" */
import { h } from "./node.js";
import { foreign, nothing, panel, refusal } from "./parts.js";
import { part } from "./refused.js";
import { toSink } from "./route.js";
import { countText } from "./text.js";

/** @type {View<Part<{ sinks: Sink[] }>>} */
export const sinks = {
    title: () => "Sinks",
    load: (api) => part(api.get("v1/sinks")),
    show: (_, __, rows) => [
        h("h1", { class: "unseen" }, "Sinks"),
        panel("Sinks", rows.ok ? list(rows.value.sinks) : refusal(rows.problem), h("span", { class: "note" }, "of this server; counted since each has started"), "sinks"),
    ],
};

/** @param {Sink["state"]} state */
export const sinkChip = (state) => h("span", { class: `chip ${state}` }, state);

/** The breaker that says most about the destination: open before half open before closed. @param {SinkQueue[]} queues */
export function worst(queues) {
    const all = queues.map(({ breaker }) => breaker);
    return all.find((breaker) => breaker === "open") ?? all.find((breaker) => breaker !== "closed") ?? "closed";
}

/** @param {SinkQueue["breaker"]} breaker */
export const breakerChip = (breaker) => h("span", { class: `chip breaker-${breaker}` }, breaker.replaceAll("_", " "));

/** @param {Record<string, number>} counts */
export const sum = (counts) => Object.values(counts).reduce((all, count) => all + count, 0);

/** @param {Sink[]} sinks */
function list(sinks) {
    if (sinks.length === 0) {
        return nothing(["This server runs no sink. Sinks stand in its configuration, as ", h("code", null, "[[sinks]]"), "."]);
    }
    const heads = ["sink", "destination", "breaker", "queues", "in flight", "delivered", "failed", "uncertain"];
    const isNumber = (/** @type {string} */ name) => !["sink", "destination", "breaker"].includes(name);
    return h("table", { class: "list sinks" }, [
        h("thead", null, h("tr", null, heads.map((name) => h("th", { scope: "col", class: isNumber(name) ? "number" : "" }, name)))),
        h("tbody", { "data-hold": "" }, sinks.map(row)),
    ]);
}

/** @param {Sink} sink */
function row({ name, kind, destination, state, delivered, uncertain, failed, queues }) {
    const number = (/** @type {string} */ label, /** @type {number} */ count, style = "") =>
        h("td", { class: `number ${count === 0 ? "zero" : style}`, "data-label": label }, countText(count));
    return h("tr", { key: name, "data-row": name, tabindex: -1 }, [
        h("th", { scope: "row" }, h("a", { class: "name", href: toSink(name) }, foreign(name)), " ", sinkChip(state)),
        h("td", { class: "wraps" }, kind, " ", foreign(destination)),
        h("td", { "data-label": "breaker" }, breakerChip(worst(queues))),
        number("queues", queues.length),
        number("in flight", queues.reduce((all, { in_flight }) => all + in_flight, 0)),
        number("delivered", delivered),
        number("failed", sum(failed), "dead"),
        number("uncertain", uncertain, "ready"),
    ]);
}
