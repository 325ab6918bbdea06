/**
 * The overview: totals, rates, the forecast, and the largest queues.
 * @module
 */

/** @import { Forecast, Overview, TopQueue } from "./types.js" */
/** @import { Context, Part, View } from "./context.js" */
import { barChart } from "./chart.js";
import { h } from "./node.js";
import { instant, nothing, panel, pauseChip, queueLink, refusal, stat, tabs } from "./parts.js";
import { part } from "./refused.js";
import { fragment, withQuery } from "./route.js";
import { SPANS, dueLater, forecastBars, lastMost, lastRate, spanOf } from "./series.js";
import { countText, rateText, shortCount } from "./text.js";
import { durationText } from "./time.js";

/** @typedef {{ overview: Part<Overview>, forecast: Part<Forecast> | undefined }} Data */

/** @type {{ sort: string, name: string, of: (queue: TopQueue) => number }[]} */
const COLUMNS = [
    { sort: "scheduled", name: "scheduled", of: ({ counts }) => counts.scheduled },
    { sort: "ready", name: "ready", of: ({ counts }) => counts.ready },
    { sort: "leased", name: "leased", of: ({ counts }) => counts.leased },
    { sort: "dead", name: "dead", of: ({ counts }) => counts.dead },
    { sort: "waiting", name: "waiting takes", of: ({ waiting }) => waiting },
];

/**
 * By a count, the largest first, or by name, or by what is due next; the same count by name.
 * @param {TopQueue[]} queues
 * @param {string} sort
 */
export function sorted(queues, sort) {
    const byName = (/** @type {TopQueue} */ a, /** @type {TopQueue} */ b) => (a.queue < b.queue ? -1 : a.queue > b.queue ? 1 : 0);
    const column = COLUMNS.find((column) => column.sort === sort);
    const due = (/** @type {TopQueue} */ { next_due }) => (next_due === undefined ? Infinity : Date.parse(next_due));
    return [...queues].sort((a, b) => {
        if (column !== undefined && column.of(a) !== column.of(b)) return column.of(b) - column.of(a);
        if (sort === "due" && due(a) !== due(b)) return due(a) - due(b);
        return byName(a, b);
    });
}

/** @type {View<Data>} */
export const overview = {
    title: () => "Overview",

    async load(api, route) {
        const span = spanOf(route.query.span);
        const [all, forecast] = await Promise.all([
            part(api.get("v1/overview")),
            span === undefined ? undefined : part(api.get(`v1/forecast?span=${span.span}`)),
        ]);
        return { overview: all, forecast };
    },

    show(context, data, rows) {
        const all = data.overview;
        return [
            h("h1", { class: "unseen" }, "Overview"),
            all.ok ? totals(context, all.value) : refusal(all.problem, h("p", null, h("a", { href: "#/queues" }, "queues by name"))),
            fallsDue(context, data),
            rows.overview.ok ? queues(context, rows.overview.value) : null,
        ];
    },
};

/** @param {Context} context @param {Overview} overview */
function totals(context, overview) {
    const { census, recent } = overview;
    const counts = census?.counts;
    const last = recent[0];
    const rate = (/** @type {number[] | undefined} */ of) => {
        const perSecond = of === undefined ? undefined : lastRate(last, of);
        return perSecond === undefined ? "–" : rateText(perSecond);
    };
    const late = lastMost(last, last?.lateness_p99_ms ?? []);
    const count = (/** @type {number | undefined} */ of) => (of === undefined ? "–" : countText(of));
    return h("div", { class: "stats", key: "totals" }, [
        stat("scheduled", count(counts?.scheduled)),
        stat("ready", count(counts?.ready), { style: (counts?.ready ?? 0) > 0 ? "is-ready" : "", title: "due, and not handed out" }),
        stat("leased", count(counts?.leased)),
        stat("dead", count(counts?.dead), { style: (counts?.dead ?? 0) > 0 ? "is-dead" : "" }),
        stat("queues", count(census?.queues)),
        stat("waiting takes", count(census?.waiting)),
        stat("puts", [rate(last?.puts), h("small", null, "/s")], { style: "rate" }),
        stat("takes", [rate(last?.takes), h("small", null, "/s")], { style: "rate" }),
        stat("acks", [rate(last?.acks), h("small", null, "/s")], { style: "rate" }),
        stat("retries", [rate(last?.retries), h("small", null, "/s")], { style: "rate" }),
        stat("deaths", [rate(last?.deaths), h("small", null, "/s")], { style: "rate" }),
        stat("lateness p99", late === undefined ? "–" : durationText(late), { style: "rate", title: "the most of the last minute" }),
    ]);
}

/** @param {Context} context @param {Data} data */
function fallsDue(context, { overview, forecast }) {
    const chosen = spanOf(context.route.query.span);
    const within = (/** @type {number} */ at) => {
        const count = overview.ok ? overview.value.census?.forecast.due_by[at] : undefined;
        return count === undefined ? "" : shortCount(count);
    };
    const choices = SPANS.map(({ span, name }, at) => ({
        name,
        href: withQuery(context.route, { span: span === "hour" ? undefined : span }),
        isChosen: span === chosen?.span,
        more: within(at),
    }));
    return panel("Falls due", forecastChart(context, forecast, undefined), tabs("span", choices), "due");
}

/**
 * The chart of a forecast, of all queues or of one, whose bars lead to its messages.
 * @param {Context} context
 * @param {Part<Forecast> | undefined} forecast
 * @param {((at: number) => string) | undefined} toMessages
 */
export function forecastChart(context, forecast, toMessages) {
    const chosen = spanOf(context.route.query.span);
    if (chosen === undefined || forecast === undefined) {
        const spans = SPANS.map(({ span }) => span).join(", ");
        return nothing(`There is no span “${context.route.query.span}”; there are ${spans}.`);
    }
    if (!forecast.ok) return refusal(forecast.problem);
    const bars = forecastBars(forecast.value, chosen.step);
    const later = dueLater(forecast.value);
    const { within } = forecast.value;
    return [
        barChart({
            name: `due ${chosen.what}`,
            key: "forecast",
            bars,
            step: chosen.step,
            mode: context.mode,
            unit: "due",
            ...(toMessages === undefined ? {} : { href: (bar) => toMessages(bar.from) }),
        }),
        h("p", { class: "note" }, [
            `${countText(forecast.value.scheduled - later)} in this span, ${countText(later)} later`,
            within > 0 ? `; each count to within ${countText(within)}` : null,
        ]),
    ];
}

/** @param {Context} context @param {Overview} overview */
function queues(context, overview) {
    if (overview.census === undefined) return panel("Queues", nothing("Queues are being counted for the first time; it takes a moment."));
    const { top, as_of, queues: total, unread = 0 } = overview.census;
    const sort = context.route.query.sort ?? "ready";
    const head = (/** @type {string} */ by, /** @type {string} */ name, style = "") =>
        h("th", { scope: "col", class: style, "aria-sort": sort === by ? (by === "name" || by === "due" ? "ascending" : "descending") : null }, [
            h("a", { href: withQuery(context.route, { sort: by === "ready" ? undefined : by }) }, name),
        ]);
    const number = (/** @type {number} */ count, /** @type {string} */ style) =>
        h("td", { class: `number ${count === 0 ? "zero" : style}`, "data-label": style }, countText(count));
    const row = (/** @type {TopQueue} */ queue) =>
        h("tr", { key: queue.queue, "data-row": queue.queue, tabindex: -1 }, [
            h("th", { scope: "row" }, queueLink(queue.queue), " ", pauseChip(context, queue.pause)),
            number(queue.counts.scheduled, "scheduled"),
            number(queue.counts.ready, "ready"),
            number(queue.counts.leased, "leased"),
            number(queue.counts.dead, "dead"),
            number(queue.waiting, "waiting"),
            h("td", { class: "when", "data-label": "next due" }, instant(context, queue.next_due)),
        ]);
    const table = h("table", { class: "list queues" }, [
        h("thead", null, h("tr", null, [
            head("name", "queue"),
            ...COLUMNS.map(({ sort, name }) => head(sort, name, "number")),
            head("due", "next due", "when"),
        ])),
        h("tbody", { "data-hold": "" }, sorted(top, sort).map(row)),
    ]);
    const aside = h("span", { class: "note" }, [
        total > top.length ? `those with the most, of ${countText(total)}; ` : null,
        unread > 0 ? `${countText(unread)} cannot be read now; ` : null,
        ["counted ", instant({ ...context, mode: "relative" }, as_of), " · "],
        h("a", { href: fragment(["queues"]) }, "all by name"),
    ]);
    return panel("Queues", top.length === 0 ? nothing("There is no queue yet. A first put makes one.") : table, aside, "queues");
}
