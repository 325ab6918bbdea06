/**
 * A sink: its state, what has failed, its queues with their breakers and lateness, and its actions.
 * @module
 */

/** @import { Recent, Sink, SinkQueue } from "./types.js" */
/** @import { Part, View } from "./context.js" */
import { queuePath } from "./command.js";
import { pauseSinkDialog, resumeSinkDialog, sinkPath, testSinkDialog } from "./delivery.js";
import { mayManageAll } from "./may.js";
import { h } from "./node.js";
import { button, foreign, nothing, panel, queueLink, refusal, stat } from "./parts.js";
import { part } from "./refused.js";
import { lastMost } from "./series.js";
import { countText } from "./text.js";
import { durationText } from "./time.js";
import { breakerChip, sinkChip, sum } from "./view-sinks.js";

/** The number of queues whose lateness is asked for: the first ones. */
const MOST_RECENTS = 10;

/** @typedef {{ sink: Part<Sink>, recents: Record<string, Part<Recent>> }} Data */

/** @type {View<Data>} */
export const sink = {
    title: ({ name }) => `${name} · sink`,

    async load(api, { name }) {
        const found = await part(api.get(sinkPath(name)));
        const queues = found.ok ? found.value.queues.slice(0, MOST_RECENTS) : [];
        const recents = await Promise.all(queues.map(async (/** @type {SinkQueue} */ { queue }) => [queue, await part(api.get(`${queuePath(queue)}/recent`))]));
        return { sink: found, recents: Object.fromEntries(recents) };
    },

    show(context, { sink: found, recents }) {
        const { name } = context.route;
        const manages = mayManageAll(context.me);
        const value = found.ok ? found.value : undefined;
        return [
            h("header", { class: "title", key: "title" }, [
                h("h1", null, foreign(name), " ", value === undefined ? null : sinkChip(value.state)),
                value === undefined ? null : h("p", { class: "note" }, value.kind, " to ", foreign(value.destination)),
                value === undefined ? null : h("div", { class: "actions" }, [
                    button(manages, "test…", () => context.open(testSinkDialog(value))),
                    button(manages && value.state === "running", "pause…", () => context.open(pauseSinkDialog(value))),
                    button(manages && value.state === "paused", "resume…", () => context.open(resumeSinkDialog(value))),
                ]),
            ]),
            value === undefined
                ? found.ok ? null : refusal(found.problem, h("p", null, h("a", { href: "#/sinks" }, "the sinks of this server")))
                : inside(value, recents),
        ];
    },
};

/** @param {Sink} sink @param {Data["recents"]} recents */
function inside(sink, recents) {
    const { delivered, uncertain, failed, queues, reason } = sink;
    const failures = sum(failed);
    const flying = queues.reduce((all, { in_flight }) => all + in_flight, 0);
    return [
        reason === undefined ? null : h("p", { class: "gone", key: "reason" }, `It is ${sink.state}: `, foreign(reason)),
        h("div", { class: "stats of-4", key: "counts" }, [
            stat("in flight", countText(flying)),
            stat("delivered", countText(delivered)),
            stat("failed", countText(failures), { style: failures > 0 ? "is-dead" : "" }),
            stat("uncertain", countText(uncertain), { style: uncertain > 0 ? "is-ready" : "", title: "requests without an answer; their messages are sent again" }),
        ]),
        panel("Queues", queueTable(queues, recents), h("span", { class: "note" }, "lateness: the most of the last minute, of all who take"), "queues"),
        panel("Failed deliveries", failureTable(failed), null, "failed"),
    ];
}

/** @param {SinkQueue[]} queues @param {Data["recents"]} recents */
function queueTable(queues, recents) {
    if (queues.length === 0) return nothing("It has no queue.");
    /** @type {(keyof SinkQueue)[]} */
    const counted = ["in_flight", "taken", "acked", "retried", "released", "buried", "lost"];
    const heads = ["queue", "breaker", "lateness p99", ...counted.map((name) => name.replaceAll("_", " "))];
    const rows = queues.map((queue) => {
        const late = lateness(recents[queue.queue]);
        return h("tr", { key: queue.queue, "data-row": queue.queue, tabindex: -1 }, [
            h("th", { scope: "row" }, queueLink(queue.queue)),
            h("td", { "data-label": "breaker" }, breakerChip(queue.breaker)),
            h("td", { class: `number ${late === undefined ? "zero" : ""}`, "data-label": "lateness" }, late === undefined ? "–" : durationText(late)),
            counted.map((name) => {
                const count = Number(queue[name]);
                return h("td", { class: `number ${count === 0 ? "zero" : ""}`, "data-label": name.replaceAll("_", " ") }, countText(count));
            }),
        ]);
    });
    return h("table", { class: "list sinks" }, [
        h("thead", null, h("tr", null, heads.map((name, at) => h("th", { scope: "col", class: at > 1 ? "number" : "" }, name)))),
        h("tbody", { "data-hold": "" }, rows),
    ]);
}

/** @param {Part<Recent> | undefined} recent */
function lateness(recent) {
    const fine = recent?.ok === true ? recent.value.recent?.[0] : undefined;
    return lastMost(fine, fine?.lateness_p99_ms ?? []);
}

/** @param {Record<string, number>} failed */
function failureTable(failed) {
    const rows = Object.entries(failed).sort(([, a], [, b]) => b - a).map(([code, count]) =>
        h("tr", { key: code }, h("th", { scope: "row" }, foreign(code, "code")), h("td", null, countText(count))),
    );
    return rows.length === 0 ? nothing("None has failed since it started.") : h("table", { class: "settings" }, h("tbody", null, rows));
}
