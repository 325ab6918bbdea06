/**
 * A queue: counts by state, the forecast, recent events, its settings, and its actions.
 * @module
 */

/** @import { Forecast, Queue, Recent, Series } from "./types.js" */
/** @import { Context, Part, View } from "./context.js" */
import { deleteDialog, pauseDialog, purgeDialog, resumeDialog } from "./actions.js";
import { lineChart } from "./chart.js";
import { queuePath } from "./command.js";
import { mayForecast, mayLook, mayManage, mayPut, may } from "./may.js";
import { h } from "./node.js";
import { MEANINGS, STATES, button, foreign, instant, nothing, panel, pauseChip, refusal, stat, tabs } from "./parts.js";
import { part } from "./refused.js";
import { toMessages, toPut, withQuery } from "./route.js";
import { SPANS, lastRate, slotStart, spanOf } from "./series.js";
import { countText, rateText } from "./text.js";
import { durationText, parseDuration } from "./time.js";
import { forecastChart } from "./view-overview.js";

/**
 * @typedef {object} Data
 * @property {Part<Queue> | undefined} queue
 * @property {Part<Forecast> | undefined} forecast
 * @property {Part<Recent> | undefined} recent
 */

/** @type {View<Data>} */
export const queue = {
    title: (route) => route.queue,

    async load(api, route, me) {
        const path = queuePath(route.queue);
        const span = spanOf(route.query.span);
        const known = may(me, ["put", "take", "manage", "look"], route.queue);
        const counted = mayForecast(me, route.queue);
        const [found, forecast, recent] = await Promise.all([
            known ? part(api.get(path)) : undefined,
            counted && span !== undefined ? part(api.get(`${path}/forecast?span=${span.span}`)) : undefined,
            counted ? part(api.get(`${path}/recent`)) : undefined,
        ]);
        return { queue: found, forecast, recent };
    },

    show(context, { queue: found, forecast, recent }) {
        const { route, me } = context;
        const value = found?.ok === true ? found.value : undefined;
        const settings = value?.settings ?? {};
        const isThere = value !== undefined;
        const isUnknown = found?.ok === false && found.problem.code === "unknown_queue";
        const isPaused = isThere && settings.pause !== "running";
        const manages = mayManage(me, route.queue);
        const looks = mayLook(me, route.queue);
        const counts = recent?.ok === true ? recent.value : undefined;
        return [
            h("header", { class: "title", key: "title" }, [
                h("h1", null, foreign(route.queue), " ", pauseChip(context, settings.pause)),
                h("div", { class: "actions" }, [
                    mayPut(me, route.queue) ? h("a", { class: "button", href: toPut(route.queue) }, "put a message") : null,
                    button(manages && !isPaused, "pause…", () => context.open(pauseDialog(context, route.queue))),
                    button(manages && isPaused, "resume…", () => context.open(resumeDialog(context, route.queue))),
                    button(manages && isThere, "purge…", () => context.open(purgeDialog(context, route.queue)), "danger"),
                    button(manages && isThere, "delete…", () => context.open(deleteDialog(context, route.queue)), "danger"),
                ]),
            ]),
            found === undefined
                ? nothing("The token reads forecast and rates of this queue, and no counts or messages.")
                : found.ok
                    ? numbers(context, found.value, looks)
                    : refusal(found.problem, isUnknown ? "It has no messages, no takes that wait and no settings of its own. A put makes it." : null),
            isUnknown ? null : fallsDue(context, forecast, looks),
            isUnknown ? null : counts === undefined ? (recent?.ok === false ? panel("Lately", refusal(recent.problem)) : null) : lately(context, counts),
            value === undefined ? null : settingsPanel(context, value),
        ];
    },
};

/** @param {Context} context @param {Queue} queue @param {boolean} looks */
function numbers(context, queue, looks) {
    const states = STATES.map((state) =>
        stat(state, countText(queue.counts[state]), {
            ...(looks ? { href: toMessages(queue.queue, { state: state === "scheduled" ? undefined : state }) } : {}),
            style: queue.counts[state] > 0 && (state === "ready" || state === "dead") ? `is-${state}` : "",
            more: state === "ready" && queue.counts.ready_urgent > 0 ? `${countText(queue.counts.ready_urgent)} urgent` : null,
            title: MEANINGS[state],
        }),
    );
    return h("div", { class: "stats", key: "counts" }, [
        ...states,
        stat("waiting takes", countText(queue.waiting)),
        stat("next due", instant(context, queue.next_due), { style: "text" }),
    ]);
}

/** @param {Context} context @param {Part<Forecast> | undefined} forecast @param {boolean} looks */
function fallsDue(context, forecast, looks) {
    const { route } = context;
    if (!mayForecast(context.me, route.queue)) return null;
    const chosen = spanOf(route.query.span);
    const choices = SPANS.map(({ span, name }) => ({
        name,
        href: withQuery(route, { span: span === "hour" ? undefined : span }),
        isChosen: span === chosen?.span,
    }));
    const at = (/** @type {number} */ from) => toMessages(route.queue, { from: new Date(from).toISOString() });
    return panel("Falls due", forecastChart(context, forecast, looks ? at : undefined), tabs("span", choices), "due");
}

/** @param {Context} context @param {Recent} recent */
function lately(context, { kept, recent = [] }) {
    const [fine, coarse] = recent;
    if (!kept || fine === undefined) {
        return panel("Lately", nothing("Rates are kept for the busiest queues, and this is none of them."), null, "lately");
    }
    const isDay = context.route.query.recent === "day" && coarse !== undefined;
    const series = isDay && coarse !== undefined ? coarse : fine;
    const step = parseDuration(series.step) ?? 10_000;
    // The last slot is incomplete, and would look like a drop.
    const starts = series.puts.slice(0, -1).map((_, at) => slotStart(series, at));
    const perSecond = (/** @type {number[]} */ counts) => counts.slice(0, -1).map((count) => count / (step / 1_000));
    const late = (/** @type {(number | null)[]} */ ms) => ms.slice(0, -1);
    const shared = { starts, step, mode: context.mode };
    const choices = [
        { name: "15 min", href: withQuery(context.route, { recent: undefined }), isChosen: !isDay },
        { name: "24 h", href: withQuery(context.route, { recent: "day" }), isChosen: isDay },
    ];
    const now = (/** @type {keyof Series} */ of) => {
        const perSecond = lastRate(fine, /** @type {number[]} */ (fine[of]));
        return perSecond === undefined ? "–" : rateText(perSecond);
    };
    const sentence = `In the last minute ${now("puts")} puts, ${now("takes")} takes, ${now("acks")} acks, ${now("retries")} retries and ${now("deaths")} deaths a second.`;
    const inside = h("div", { class: "side-by-side" }, [
        lineChart({ name: "per second", ...shared, text: rateText, lines: [
            { name: "puts", style: "a", values: perSecond(series.puts) },
            { name: "takes", style: "b", values: perSecond(series.takes) },
            { name: "acks", style: "c", values: perSecond(series.acks) },
            { name: "retries", style: "d", values: perSecond(series.retries) },
            { name: "deaths", style: "e", values: perSecond(series.deaths) },
        ] }),
        lineChart({ name: "lateness", ...shared, text: durationText, lines: [
            { name: "p50", style: "a", values: late(series.lateness_p50_ms) },
            { name: "p99", style: "b", values: late(series.lateness_p99_ms) },
            { name: "most", style: "e", values: late(series.lateness_max_ms) },
        ] }),
    ]);
    return panel("Lately", [inside, h("p", { class: "note" }, sentence)], tabs("time", choices), "lately");
}

/**
 * A setting as text, including one of a later server.
 * @param {unknown} value
 * @returns {string}
 */
export function settingText(value) {
    if (value === null) return "no limit";
    if (Array.isArray(value)) return value.length === 0 ? "none" : value.map(settingText).join(" ");
    if (typeof value === "object") {
        return Object.entries(value ?? {}).map(([name, of]) => `${name} ${settingText(of)}`).join(", ");
    }
    return String(value);
}

/** @param {Context} context @param {Queue} queue */
function settingsPanel(context, queue) {
    const rows = Object.entries(queue.settings).map(([name, value]) => {
        const isOwn = queue.own.includes(name);
        return h("tr", { key: name }, [
            h("th", { scope: "row" }, name),
            h("td", null, foreign(settingText(value))),
            h("td", { class: isOwn ? "own" : "default" }, isOwn ? "this queue" : "default"),
        ]);
    });
    const head = ["setting", "value", "from"].map((name) => h("th", { scope: "col" }, name));
    const table = h("table", { class: "settings" }, h("thead", null, h("tr", null, head)), h("tbody", null, rows));
    const aside = h("span", { class: "note" }, "changed by ", h("code", null, "dwell configure"));
    return panel("Settings", table, aside, "settings");
}
