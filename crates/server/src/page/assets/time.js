/**
 * Instants and durations for people. `now` and the zone are arguments: nothing here reads a clock.
 * @module
 */

/** @typedef {"local" | "utc" | "relative"} TimeMode */

const SECOND = 1_000;
const MINUTE = 60 * SECOND;
const HOUR = 60 * MINUTE;
const DAY = 24 * HOUR;

/** @type {[number, string][]} */
const UNITS = [
    [365 * DAY, "y"],
    [DAY, "d"],
    [HOUR, "h"],
    [MINUTE, "m"],
    [SECOND, "s"],
];

/** @param {number} number @param {number} [length] */
const padded = (number, length = 2) => String(number).padStart(length, "0");

/**
 * The first two units of a duration: `1 h 30 m`, `12 s`, `340 ms`.
 * @param {number} ms
 */
export function durationText(ms) {
    const whole = Math.round(Math.abs(ms));
    if (whole < SECOND) return `${whole} ms`;
    if (whole < 10 * SECOND && whole % SECOND !== 0) return `${(whole / SECOND).toFixed(1)} s`;
    const at = UNITS.findIndex(([length]) => whole >= length);
    const [length, name] = UNITS[at] ?? [SECOND, "s"];
    const first = Math.floor(whole / length);
    const next = UNITS[at + 1];
    const second = next === undefined ? 0 : Math.floor((whole % length) / next[0]);
    return second > 0 && next !== undefined ? `${first} ${name} ${second} ${next[1]}` : `${first} ${name}`;
}

/**
 * `in 12 m`, `3 h ago`, `now`.
 * @param {number} ms
 * @param {number} now
 */
export function relativeText(ms, now) {
    const away = ms - now;
    if (Math.abs(away) < SECOND) return "now";
    const whole = Math.trunc(away / SECOND) * SECOND;
    return away > 0 ? `in ${durationText(whole)}` : `${durationText(whole)} ago`;
}

/**
 * `2026-11-26 22:31:07.120Z`.
 * @param {number} ms
 * @param {boolean} [exact] with milliseconds, also where there are none
 */
export function utcText(ms, exact = false) {
    const text = new Date(ms).toISOString().replace("T", " ");
    return exact || !text.endsWith(".000Z") ? text : text.replace(".000Z", "Z");
}

/**
 * `2026-11-26 23:31:07`, in the browser's zone.
 * @param {number} ms
 * @param {boolean} [exact] with milliseconds and the zone
 */
export function localText(ms, exact = false) {
    const at = new Date(ms);
    const date = `${padded(at.getFullYear(), 4)}-${padded(at.getMonth() + 1)}-${padded(at.getDate())}`;
    const time = `${padded(at.getHours())}:${padded(at.getMinutes())}:${padded(at.getSeconds())}`;
    return exact ? `${date} ${time}.${padded(at.getMilliseconds(), 3)} ${zoneText(at)}` : `${date} ${time}`;
}

/** @param {Date} at */
function zoneText(at) {
    const minutes = -at.getTimezoneOffset();
    const size = Math.abs(minutes);
    return `${minutes < 0 ? "-" : "+"}${padded(Math.floor(size / 60))}:${padded(size % 60)}`;
}

/**
 * An instant in a mode.
 * @param {number} ms
 * @param {TimeMode} mode
 * @param {number} now
 */
export function instantText(ms, mode, now) {
    if (Number.isNaN(ms)) return "no instant";
    if (mode === "relative") return relativeText(ms, now);
    return mode === "utc" ? utcText(Math.floor(ms / SECOND) * SECOND) : localText(ms);
}

/**
 * The short text of an edge of a chart, as fine as its step.
 * @param {number} ms
 * @param {number} stepMs
 * @param {TimeMode} mode
 */
export function edgeText(ms, stepMs, mode) {
    const text = mode === "utc" ? utcText(ms) : localText(ms);
    if (stepMs >= DAY) return text.slice(5, 10);
    return stepMs >= MINUTE ? text.slice(11, 16) : text.slice(11, 19);
}

/**
 * What an `<input type="datetime-local">` holds, as the instant that requests carry; undefined where it holds none.
 * @param {string} text
 * @param {TimeMode} mode
 */
export function typedInstant(text, mode) {
    if (!/^\d{4}-\d\d-\d\dT\d\d:\d\d/.test(text)) return undefined;
    const ms = Date.parse(mode === "utc" ? `${text}Z` : text);
    return Number.isNaN(ms) ? undefined : new Date(ms).toISOString();
}

/**
 * An instant as an `<input type="datetime-local">` takes it.
 * @param {number} ms
 * @param {TimeMode} mode
 */
export function inputInstant(ms, mode) {
    const text = mode === "utc" ? utcText(ms, true) : localText(ms);
    return text.slice(0, 19).replace(" ", "T");
}

/**
 * A duration as dwell writes it, `1h30m`, in milliseconds; undefined where it is not one.
 * @param {string} text
 */
export function parseDuration(text) {
    const parts = /^(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m(?!s))?(?:(\d+)s)?(?:(\d+)ms)?$/.exec(text);
    if (parts === null || text === "") return undefined;
    const [d, h, m, s, ms] = parts.slice(1).map((part) => Number(part ?? 0));
    return (d ?? 0) * DAY + (h ?? 0) * HOUR + (m ?? 0) * MINUTE + (s ?? 0) * SECOND + (ms ?? 0);
}
