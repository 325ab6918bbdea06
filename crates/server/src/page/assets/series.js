/**
 * Forecasts and recent counts, as data of charts.
 * @module
 */

/** @import { Forecast, Series, Span } from "./types.js" */
import { parseDuration } from "./time.js";

/** @type {{ span: Span, name: string, step: number, what: string }[]} */
export const SPANS = [
    { span: "minute", name: "1 min", step: 1_000, what: "by second" },
    { span: "hour", name: "1 h", step: 60_000, what: "by minute" },
    { span: "day", name: "24 h", step: 3_600_000, what: "by hour" },
    { span: "month", name: "30 d", step: 86_400_000, what: "by day" },
];

/**
 * The span of a route's query.
 * @param {string | undefined} text
 * @returns {{ span: Span, name: string, step: number, what: string } | undefined} nothing for a span that there is not
 */
export function spanOf(text) {
    return SPANS.find(({ span }) => span === (text ?? "hour"));
}

/**
 * A bar: the number of messages between two instants.
 * @typedef {{ from: number, to: number, count: number }} Bar
 */

/**
 * The bars between the edges of a forecast; the first begins a step before its edge, or now.
 * @param {Forecast} forecast
 * @param {number} step
 * @returns {Bar[]}
 */
export function forecastBars(forecast, step) {
    return forecast.edges.map((edge, at) => {
        const to = Date.parse(edge);
        const before = at === 0 ? 0 : (forecast.due_by[at - 1] ?? 0);
        return { from: to - step, to, count: Math.max(0, (forecast.due_by[at] ?? 0) - before) };
    });
}

/**
 * The number due later than the last edge.
 * @param {Forecast} forecast
 */
export const dueLater = (forecast) => Math.max(0, forecast.scheduled - (forecast.due_by.at(-1) ?? 0));

/**
 * When a slot of a series began.
 * @param {Series} series
 * @param {number} at
 */
export function slotStart(series, at) {
    const step = parseDuration(series.step) ?? 0;
    return Date.parse(series.end) - (series.puts.length - at) * step;
}

/**
 * The rate per second over the last complete minute: the current slot is left out.
 * @param {Series | undefined} series
 * @param {number[]} counts
 */
export function lastRate(series, counts) {
    if (series === undefined) return undefined;
    const seconds = (parseDuration(series.step) ?? 10_000) / 1_000;
    const slots = Math.max(1, Math.round(60 / seconds));
    const complete = counts.slice(-slots - 1, -1);
    if (complete.length === 0) return undefined;
    return complete.reduce((sum, count) => sum + count, 0) / (complete.length * seconds);
}

/**
 * The highest value of the last minute, the current slot included; nothing where there is none.
 * @param {Series | undefined} series
 * @param {(number | null)[]} values
 */
export function lastMost(series, values) {
    if (series === undefined) return undefined;
    const slots = Math.max(1, Math.round(60_000 / (parseDuration(series.step) ?? 10_000)));
    const there = values.slice(-slots - 1).filter((value) => value !== null);
    return there.length === 0 ? undefined : Math.max(...there);
}

/**
 * The top of an axis: a round number, at least 1.
 * @param {number} most
 */
export function axisTop(most) {
    if (most <= 1) return 1;
    const power = 10 ** Math.floor(Math.log10(most));
    const steps = power >= 10 ? [1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 10] : [1, 2, 3, 4, 5, 6, 8, 10];
    const top = steps.find((step) => step * power >= most) ?? 10;
    return top * power;
}
