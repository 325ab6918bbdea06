/**
 * The schedules of the store.
 * @module
 */

/** @import { Schedule, Schedules } from "./types.js" */
/** @import { Context, Part, View } from "./context.js" */
import { h } from "./node.js";
import { codeLink, foreign, instant, nothing, panel, queueLink, refusal } from "./parts.js";
import { part } from "./refused.js";
import { toSchedule } from "./route.js";

/** @type {View<Part<Schedules>>} */
export const schedules = {
    title: () => "Schedules",
    load: (api) => part(api.get("v1/schedules")),
    show: (context, _, rows) => [
        h("h1", { class: "unseen" }, "Schedules"),
        panel("Schedules", rows.ok ? list(context, rows.value) : refusal(rows.problem), h("span", { class: "note" }, "of the store: every server over it runs them"), "schedules"),
    ],
};

/** @param {boolean} isPaused */
export const pausedChip = (isPaused) => (isPaused ? h("span", { class: "chip paused" }, "paused") : null);

/** When a schedule runs, in its own words. @param {Schedule} schedule */
export function timesText({ cron, zone, dialect, every }) {
    if (cron === undefined) return every === undefined ? [] : [`every ${every}`];
    return [h("code", null, foreign(cron)), ` in ${zone ?? "UTC"}`, dialect === undefined ? null : `, as ${dialect} reads it`];
}

/** @param {Context} context @param {Schedules} schedules */
function list(context, { schedules, unread = [] }) {
    const heads = ["schedule", "runs", "queue", "next"].map((name) => h("th", { scope: "col" }, name));
    const rows = schedules.map((schedule) =>
        h("tr", { key: schedule.name, "data-row": schedule.name, tabindex: -1 }, [
            h("th", { scope: "row" }, h("a", { class: "name", href: toSchedule(schedule.name) }, foreign(schedule.name)), " ", pausedChip(schedule.paused)),
            h("td", { class: "wraps" }, timesText(schedule)),
            h("td", { class: "wraps", "data-label": "into" }, queueLink(schedule.queue)),
            h("td", { class: "when", "data-label": "next" }, instant(context, schedule.next)),
        ]),
    );
    return [
        schedules.length === 0 && unread.length === 0
            ? nothing(["There is no schedule. ", h("code", null, "dwell schedules put"), " defines one, and so does ", h("code", null, "[[schedules]]"), " in a server's configuration."])
            : h("table", { class: "list schedules" }, [
                h("thead", null, h("tr", null, heads)),
                h("tbody", { "data-hold": "" }, rows),
            ]),
        unread.map((problem, at) => h("p", { class: "refusal", key: `unread ${at}` }, codeLink(problem.code), " ", foreign(problem.detail))),
    ];
}
