/**
 * The messages of a queue in one state, a hundred per page, and the actions on selected ones.
 * @module
 */

/** @import { Message, MessagePage, Queue, StateKind } from "./types.js" */
/** @import { Context, Part, View } from "./context.js" */
import { cancelDialog, deliverDialog, discardDialog, expireLeasesDialog, rescheduleDialog, reviveDialog, sweepDialog } from "./actions.js";
import { queuePath } from "./command.js";
import { mayLook, mayManage, mayMove } from "./may.js";
import { h } from "./node.js";
import { STATES, button, codeLink, foreign, instant, nothing, preview, refusal, tabs } from "./parts.js";
import { part } from "./refused.js";
import { toMessage, toMessages, toQueue, withQuery } from "./route.js";
import { countText, cut, shortCount, sizeText } from "./text.js";
import { inputInstant, typedInstant } from "./time.js";

/** @typedef {{ page: Part<MessagePage>, queue: Part<Queue> }} Data */

/** @param {string | undefined} text @returns {StateKind | undefined} */
const stateOf = (text) => STATES.find((state) => state === (text ?? "scheduled"));

/** @type {View<Data>} */
export const messages = {
    title: ({ queue, query }) => `${queue} · ${query.state ?? "scheduled"}`,

    async load(api, { queue, query }) {
        const path = queuePath(queue);
        const asked = new URLSearchParams({ state: query.state ?? "scheduled", max: "100", preview: "120" });
        if (query.from !== undefined && query.cursor === undefined) asked.set("from", query.from);
        if (query.cursor !== undefined) asked.set("cursor", query.cursor);
        const [page, found] = await Promise.all([part(api.get(`${path}/messages?${asked}`)), part(api.get(path))]);
        return { page, queue: found };
    },

    show(context, { queue: found }, { page }) {
        const { route } = context;
        const state = stateOf(route.query.state);
        const counts = found.ok ? found.value.counts : undefined;
        const choices = STATES.map((name) => ({
            name,
            href: toMessages(route.queue, { state: name === "scheduled" ? undefined : name }),
            isChosen: name === state,
            more: counts === undefined ? undefined : shortCount(counts[name]),
        }));
        return [
            h("header", { class: "title", key: "title" }, [
                h("h1", null, h("a", { href: toQueue(route.queue) }, foreign(route.queue)), h("small", null, " messages")),
                h("div", { class: "actions" }, [fromForm(context, state), allDead(context, state, counts?.dead ?? 0)]),
            ]),
            tabs("state", choices),
            page.ok && state !== undefined ? list(context, state, page.value) : null,
            page.ok ? null : refusal(page.problem, h("p", null, h("a", { href: toMessages(route.queue) }, "all scheduled messages"))),
        ];
    },
};

/** @param {Context} context @param {StateKind | undefined} state */
function fromForm(context, state) {
    const { route } = context;
    const given = route.query.from === undefined ? "" : Date.parse(route.query.from);
    const value = context.typed.from ?? (given === "" || Number.isNaN(given) ? "" : inputInstant(given, context.mode));
    return h("form", { class: "inline", key: "from", onsubmit: (event) => {
        event.preventDefault();
        const from = typedInstant(value, context.mode);
        context.go(toMessages(route.queue, { state: state === "scheduled" ? undefined : state, from }));
    } }, [
        h("label", null, "due from ", h("input", {
            type: "datetime-local",
            step: 1,
            name: "from",
            value,
            oninput: (event) => context.type("from", event.target.value),
        })),
        h("button", { type: "submit" }, "go"),
        route.query.from === undefined ? null : h("a", { href: withQuery(route, { from: undefined, cursor: undefined }) }, "from the first"),
    ]);
}

/** @param {Context} context @param {StateKind | undefined} state @param {number} dead */
function allDead(context, state, dead) {
    const { queue } = context.route;
    const isAllowed = state === "dead" && dead > 0 && mayManage(context.me, queue) && mayLook(context.me, queue);
    return [
        button(isAllowed, "revive all…", () => context.open(sweepDialog(context, queue, "revive", dead))),
        button(isAllowed, "discard all…", () => context.open(sweepDialog(context, queue, "discard", dead)), "danger"),
    ];
}

/** @param {Context} context @param {StateKind} state @param {MessagePage} page */
function list(context, state, { messages, unread = [], next }) {
    const { route, me } = context;
    const ids = messages.map(({ id }) => id);
    // The only action on leased messages is to end the lease, which the scope `put` does not allow.
    const isSelectable = mayManage(me, route.queue) || (state !== "leased" && mayMove(me, route.queue));
    const areAll = ids.length > 0 && ids.every((id) => context.selected.has(id));
    const when = { scheduled: "due", ready: "due", leased: "leased until", dead: "dead since" }[state];
    const heads = [
        isSelectable
            ? h("th", { scope: "col", class: "check" }, h("input", {
                type: "checkbox",
                "aria-label": "select all of this page",
                checked: areAll,
                onchange: () => context.selectAll(ids, !areAll),
            }))
            : null,
        h("th", { scope: "col" }, when),
        state === "leased" ? [h("th", { scope: "col" }, "granted"), h("th", { scope: "col" }, "holder")] : null,
        h("th", { scope: "col" }, "message"),
        h("th", { scope: "col", class: "number" }, "attempts"),
        h("th", { scope: "col", class: "number" }, "size"),
        state === "dead" ? h("th", { scope: "col", class: "why" }, "why") : null,
        h("th", { scope: "col", class: "body" }, "body"),
    ];
    const table = h("table", { class: `list messages ${isSelectable ? "selectable" : ""}` }, [
        h("thead", null, h("tr", null, heads)),
        h("tbody", { "data-hold": "" }, messages.map((message) => row(context, state, message, isSelectable))),
    ]);
    const first = withQuery(route, { cursor: undefined });
    return [
        messages.length === 0 && unread.length === 0
            ? nothing(route.query.from === undefined ? `No message is ${state}.` : `No message is ${state} and due from there on.`)
            : h("div", { class: "panel", key: "rows" }, table),
        unread.map(({ id, error }) => h("p", { class: "refusal", key: id }, foreign(id), ": ", codeLink(error.code), " ", foreign(error.detail))),
        h("nav", { class: "pager", key: "pager", "aria-label": "pages" }, [
            route.query.cursor === undefined ? null : h("a", { href: first }, "first page"),
            next === undefined ? null : h("a", { href: withQuery(route, { cursor: next }), rel: "next" }, "next page"),
        ]),
        selection(context, state, messages),
    ];
}

/** @param {Context} context @param {StateKind} state @param {Message} message @param {boolean} isSelectable */
function row(context, state, message, isSelectable) {
    const at = state === "leased" ? message.lease_until : state === "dead" ? message.dead_at : message.due;
    const isSelected = context.selected.has(message.id);
    const attempts = message.max_attempts === undefined ? String(message.attempt) : `${message.attempt} of ${message.max_attempts}`;
    const error = message.last_error === undefined ? null : foreign(cut(message.last_error, 200).text);
    return h("tr", { key: message.id, "data-row": message.id, tabindex: -1, class: isSelected ? "selected" : "" }, [
        isSelectable
            ? h("td", { class: "check" }, h("input", {
                type: "checkbox",
                "aria-label": `select message ${message.number}`,
                checked: isSelected,
                onchange: () => context.select(message.id, !isSelected),
            }))
            : null,
        h("td", { class: "when" }, instant(context, at)),
        state === "leased" ? leaseCells(context, message) : null,
        h("th", { scope: "row", class: "which" }, [
            h("a", { class: "name", href: toMessage(message.queue, message.id) }, message.key === undefined ? h("span", { class: "id" }, message.id) : foreign(message.key)),
            h("span", { class: "note" }, ` #${message.number}`),
        ]),
        h("td", { class: `number ${message.attempt === 0 ? "zero" : ""}`, "data-label": "attempts" }, attempts),
        h("td", { class: "number size", "data-label": "size" }, sizeText(message.size)),
        state === "dead" ? h("td", { class: "why" }, [message.dead_reason?.replaceAll("_", " ") ?? "", error === null ? null : ": ", error]) : null,
        h("td", { class: "body" }, [state === "dead" || error === null ? null : h("span", { class: "why" }, error, " "), preview(message)]),
    ]);
}

/** @param {Context} context @param {Message} message */
function leaseCells(context, { lease_granted, holder }) {
    return [
        h("td", { class: "when", "data-label": "granted" }, instant(context, lease_granted)),
        h("td", { class: `holder ${holder === undefined ? "zero" : ""}`, "data-label": "holder" }, holder === undefined ? "–" : foreign(holder)),
    ];
}

/** @param {Context} context @param {StateKind} state @param {Message[]} shown */
function selection(context, state, shown) {
    const { route, me } = context;
    const ids = [...context.selected];
    if (ids.length === 0) return null;
    const moves = mayMove(me, route.queue) && (state === "scheduled" || state === "ready");
    const raises = mayManage(me, route.queue) && state === "dead";
    // Only the visible ones: the current take of others is not known any more.
    const leases = shown.filter(({ id }) => context.selected.has(id)).map(({ id, counts }) => ({ id, takes: counts.takes }));
    const ends = mayManage(me, route.queue) && state === "leased" && leases.length > 0;
    return h("div", { class: "selection", key: "selection", role: "region", "aria-label": "selection" }, [
        h("strong", null, `${countText(ids.length)} selected`),
        button(moves, "deliver now…", () => context.open(deliverDialog(context, route.queue, ids))),
        button(moves, "reschedule…", () => context.open(rescheduleDialog(context, route.queue, ids))),
        button(moves, "cancel…", () => context.open(cancelDialog(context, route.queue, ids)), "danger"),
        button(raises, "revive…", () => context.open(reviveDialog(context, route.queue, ids))),
        button(raises, "discard…", () => context.open(discardDialog(context, route.queue, ids)), "danger"),
        button(ends, "end leases…", () => context.open(expireLeasesDialog(context, route.queue, leases)), "danger"),
        h("button", { type: "button", class: "quiet", onclick: () => context.selectAll(ids, false) }, "unselect"),
    ]);
}
