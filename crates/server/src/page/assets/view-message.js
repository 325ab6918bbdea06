/**
 * A message: its time line, its attempts, its headers, its body, and its actions.
 * @module
 */

/** @import { Message } from "./types.js" */
/** @import { Context, Part, View } from "./context.js" */
import { cancelDialog, deliverDialog, discardDialog, expireLeasesDialog, rescheduleDialog, reviveDialog } from "./actions.js";
import { bodyPanel } from "./body.js";
import { queuePath, segment } from "./command.js";
import { mayManage, mayMove } from "./may.js";
import { h } from "./node.js";
import { button, foreign, nothing, panel, refusal, stateChip } from "./parts.js";
import { part } from "./refused.js";
import { toQueue } from "./route.js";
import { countText } from "./text.js";
import { localText, relativeText, utcText } from "./time.js";

/** `gone` says why the message, which was there before, is not there any more. */
/** @typedef {{ message: Part<Message>, gone?: string }} Data */

/** The maximum size of a body that is loaded automatically. */
const LOADED_UNASKED = 256 * 1024;

/** @type {View<Data> & { merge: (before: Data, next: Data) => Data, after: (context: Context, data: Data) => void }} */
export const message = {
    title: ({ queue, id }) => `${queue} · ${id.slice(-12)}`,

    async load(api, { queue, id }) {
        return { message: await part(api.get(`${queuePath(queue)}/messages/${segment(id)}?body=false`)) };
    },

    merge(before, next) {
        const isGone = !next.message.ok && ["message_not_found", "unknown_queue"].includes(next.message.problem.code);
        if (!isGone || !before.message.ok) return next;
        return { message: before.message, gone: "It is not there any more: acked, cancelled, discarded or purged since. This is how it stood last." };
    },

    after(context, { message }) {
        if (!message.ok || message.value.size > LOADED_UNASKED) return;
        const { queue, id } = message.value;
        if (context.bodies.of(queue, id) === undefined) context.bodies.load(queue, id);
    },

    show(context, { message: found, gone }) {
        const { queue, id } = context.route;
        if (!found.ok) {
            return [
                h("header", { class: "title" }, h("h1", null, foreign(id, "id"))),
                refusal(found.problem, h("p", null, "It may have been acked, cancelled or removed. ", h("a", { href: toQueue(queue) }, "The queue ", foreign(queue)))),
            ];
        }
        const { value } = found;
        return [
            head(context, value, gone !== undefined),
            gone === undefined ? null : h("p", { class: "gone", role: "status" }, gone),
            h("div", { class: "facts", key: "facts" }, [timeLine(context, value), facts(value)]),
            value.last_error === undefined ? null : panel("Last error", h("pre", { tabindex: 0, class: "error" }, foreign(value.last_error)), null, "error"),
            headers(value),
            bodyPanel(context, value),
        ];
    },
};

/** @param {Context} context @param {Message} message @param {boolean} isGone */
function head(context, message, isGone) {
    const { queue, id, state } = message;
    const moves = !isGone && mayMove(context.me, queue) && (state === "scheduled" || state === "ready");
    const raises = !isGone && mayManage(context.me, queue) && state === "dead";
    const ends = !isGone && mayManage(context.me, queue) && state === "leased";
    const lease = { id, takes: message.counts.takes };
    return h("header", { class: "title", key: "title" }, [
        h("h1", null, [
            message.key === undefined ? h("span", null, `#${message.number}`) : foreign(message.key),
            " ",
            stateChip(state),
        ]),
        h("p", { class: "note" }, [
            h("span", { class: "id" }, id),
            message.key === undefined ? null : ` · #${message.number}`,
            " · in ",
            h("a", { href: toQueue(queue) }, foreign(queue)),
            " ",
            h("button", { type: "button", class: "quiet", onclick: () => context.copy(id) }, "copy id"),
        ]),
        h("div", { class: "actions" }, [
            button(moves && state === "scheduled", "deliver now…", () => context.open(deliverDialog(context, queue, [id]))),
            button(moves, "reschedule…", () => context.open(rescheduleDialog(context, queue, [id]))),
            button(moves, "cancel…", () => context.open(cancelDialog(context, queue, [id])), "danger"),
            button(raises, "revive…", () => context.open(reviveDialog(context, queue, [id]))),
            button(raises, "discard…", () => context.open(discardDialog(context, queue, [id])), "danger"),
            button(ends, "end lease…", () => context.open(expireLeasesDialog(context, queue, [lease])), "danger"),
        ]),
    ]);
}

/**
 * The known events of a message, in order.
 * @param {Message} message
 * @returns {{ what: string, at: string }[]}
 */
export function events(message) {
    /** @type {[string, string | undefined][]} */
    const all = [
        ["put", message.created],
        ["due", message.due],
        ["first taken", message.first_taken],
        ["failed last", message.failed_at],
        ["lease granted", message.lease_granted],
        ["leased until", message.lease_until],
        ["dead", message.dead_at],
        ["expires", message.expires],
    ];
    return all
        .flatMap(([what, at]) => (at === undefined ? [] : [{ what, at }]))
        .sort((a, b) => Date.parse(a.at) - Date.parse(b.at));
}

/** @param {Context} context @param {Message} message */
function timeLine(context, message) {
    const rows = events(message).map(({ what, at }) => {
        const ms = Date.parse(at);
        return h("tr", { key: what, class: ms > context.now ? "ahead" : "" }, [
            h("th", { scope: "row" }, what),
            h("td", { class: "when" }, relativeText(ms, context.now)),
            h("td", { class: "when" }, localText(ms, true)),
            h("td", { class: "when" }, utcText(ms, true)),
        ]);
    });
    const heads = ["", "relative", "local", "UTC"].map((name) => h(name === "" ? "td" : "th", name === "" ? null : { scope: "col" }, name));
    return panel("Time line", h("table", { class: "settings timeline" }, h("thead", null, h("tr", null, heads)), h("tbody", null, rows)), null, "line");
}

/** @param {Message} message */
function facts(message) {
    const { counts } = message;
    const limit = message.max_attempts === undefined ? "the queue's limit" : message.max_attempts;
    /** @type {[string, string][]} */
    const rows = [
        ["attempts", `${message.attempt}, of ${limit}`],
        ["priority", String(message.priority)],
        ["lease", message.lease ?? "the queue's"],
        ["takes", countText(counts.takes)],
        ["lapsed leases", countText(counts.lapses)],
        ["releases", countText(counts.releases)],
        ["buries", countText(counts.buries)],
        ["revives", countText(counts.revives)],
    ];
    if (message.dead_reason !== undefined) rows.unshift(["dead because", message.dead_reason.replaceAll("_", " ")]);
    const holder = message.holder === undefined ? null : h("tr", { key: "holder" }, h("th", { scope: "row" }, "held by"), h("td", { class: "wraps" }, foreign(message.holder)));
    const cells = [holder, ...rows.map(([name, value]) => h("tr", { key: name }, h("th", { scope: "row" }, name), h("td", null, value)))];
    return panel("Counts", h("table", { class: "settings" }, h("tbody", null, cells)), null, "counts");
}

/** @param {Message} message */
function headers({ headers = {} }) {
    const rows = Object.entries(headers).map(([name, value]) =>
        h("tr", { key: name }, h("th", { scope: "row" }, foreign(name)), h("td", { class: "wraps" }, foreign(value))),
    );
    const inside = rows.length === 0 ? nothing("It has none.") : h("table", { class: "settings" }, h("tbody", null, rows));
    return panel("Headers", inside, null, "headers");
}
