/**
 * A schedule: its next instants, its definition, and its actions.
 * @module
 */

/** @import { Schedule } from "./types.js" */
/** @import { Context, Part, View } from "./context.js" */
import { fromBase64, hexDump } from "./bytes.js";
import { deleteScheduleDialog, pauseScheduleDialog, resumeScheduleDialog, runScheduleDialog, schedulePath } from "./delivery.js";
import { mayManageAll, mayPut } from "./may.js";
import { h } from "./node.js";
import { button, foreign, nothing, panel, queueLink, refusal } from "./parts.js";
import { part } from "./refused.js";
import { fragment } from "./route.js";
import { cut } from "./text.js";
import { localText, relativeText, utcText } from "./time.js";
import { pausedChip, timesText } from "./view-schedules.js";

/** The number of instants, and the number of characters of a body, that are shown. */
const INSTANTS = 10;
const SHOWN = 4_096;

/** @typedef {{ schedule: Part<Schedule>, next: Part<{ instants: string[] }> | undefined }} Data */

/** @type {View<Data>} */
export const schedule = {
    title: ({ name }) => `${name} · schedule`,

    async load(api, { name }) {
        const found = await part(api.get(schedulePath(name)));
        return { schedule: found, next: found.ok ? await part(api.get(`${schedulePath(name)}/next?count=${INSTANTS}`)) : undefined };
    },

    show(context, { schedule: found, next }) {
        const { me, route } = context;
        const value = found.ok ? found.value : undefined;
        const manages = mayManageAll(me);
        return [
            h("header", { class: "title", key: "title" }, [
                h("h1", null, foreign(route.name), " ", pausedChip(value?.paused === true)),
                value === undefined ? null : h("p", { class: "note" }, timesText(value), ", into ", queueLink(value.queue)),
                value === undefined ? null : h("div", { class: "actions" }, [
                    button(manages && mayPut(me, value.queue), "run now…", () => context.open(runScheduleDialog(value))),
                    button(manages && !value.paused, "pause…", () => context.open(pauseScheduleDialog(value))),
                    button(manages && value.paused, "resume…", () => context.open(resumeScheduleDialog(value))),
                    button(manages, "delete…", () => context.open(deleteScheduleDialog(value)), "danger"),
                ]),
            ]),
            value === undefined
                ? found.ok ? null : refusal(found.problem, h("p", null, h("a", { href: "#/schedules" }, "the schedules of the store")))
                : [nextPanel(context, value, next), definition(value), body(value)],
        ];
    },
};

/** @param {Context} context @param {Schedule} schedule @param {Data["next"]} next */
function nextPanel(context, schedule, next) {
    const aside = h("span", { class: "note" }, schedule.paused ? "as if it were resumed" : "before jitter");
    if (next === undefined) return null;
    if (!next.ok) return panel("Next instants", refusal(next.problem), aside, "next");
    const rows = next.value.instants.map((instant) => {
        const ms = Date.parse(instant);
        return h("tr", { key: instant }, [
            h("th", { scope: "row", class: "when" }, relativeText(ms, context.now)),
            h("td", { class: "when" }, localText(ms, true)),
            h("td", { class: "when" }, utcText(ms)),
        ]);
    });
    const heads = ["relative", "local", "UTC"].map((name) => h("th", { scope: "col" }, name));
    const table = h("table", { class: "settings timeline instants" }, h("thead", null, h("tr", null, heads)), h("tbody", null, rows));
    return panel("Next instants", rows.length === 0 ? nothing("It has no instant any more.") : table, aside, "next");
}

/** @type {Record<Schedule["missed"], string>} */
const MISSED = { one: "one run for all of them", skip: "none is made up for", all: "each is made up for, at most 1,000" };

/** @type {Record<Schedule["overlap"], string>} */
const OVERLAP = { skip: "no further run", allow: "a further run beside it", replace: "the further run replaces it" };

/** @param {Schedule} schedule */
function definition(schedule) {
    // A run has the schedule's name as its key, unless runs may overlap.
    const run = schedule.overlap === "allow" ? null : h("a", { href: fragment(["search"], { q: schedule.name, queue: schedule.queue }) }, "its run");
    /** @type {[string, import("./node.js").Most][]} */
    const rows = [
        ["queue", [queueLink(schedule.queue), run === null ? null : " · ", run]],
        ["instants that were missed", `${schedule.missed}: ${MISSED[schedule.missed] ?? ""}`],
        ["while a run is not done", `${schedule.overlap}: ${OVERLAP[schedule.overlap] ?? ""}`],
        ["jitter", schedule.jitter === "0s" ? "none" : `up to ${schedule.jitter}`],
        ...Object.entries(schedule.headers ?? {}).map(([name, value]) => /** @type {[string, import("./node.js").Most]} */ ([`header ${name}`, foreign(value)])),
    ];
    const cells = rows.map(([name, value]) => h("tr", { key: name }, h("th", { scope: "row" }, foreign(name)), h("td", null, value)));
    return panel("Definition", h("table", { class: "settings" }, h("tbody", null, cells)), null, "definition");
}

/** @param {Schedule} schedule */
function body(schedule) {
    if (schedule.body_base64 !== undefined) {
        return panel("Body of runs", h("pre", { class: "hex", tabindex: 0 }, hexDump(fromBase64(schedule.body_base64), SHOWN)), null, "body");
    }
    const { text, isCut } = cut(schedule.body ?? "", SHOWN);
    const more = isCut ? h("p", { class: "note" }, `the first ${SHOWN} of ${schedule.body?.length} characters`) : null;
    return panel("Body of runs", text === "" ? nothing("It is empty.") : [h("pre", { class: "body", tabindex: 0 }, foreign(text)), more], null, "body");
}
