/**
 * Charts as SVG, each with the same numbers as a table. The drawing is visual only: a screen reader and the
 * keyboard get the table, which has the links too.
 * @module
 */

/** @import { Node } from "./node.js" */
/** @import { Bar } from "./series.js" */
/** @import { TimeMode } from "./time.js" */
import { h, s } from "./node.js";
import { axisTop } from "./series.js";
import { countText, shortCount } from "./text.js";
import { edgeText } from "./time.js";

const WIDTH = 600;
const HEIGHT = 120;

/**
 * Bars over time.
 * @param {object} what
 * @param {string} what.name
 * @param {Bar[]} what.bars
 * @param {number} what.step
 * @param {TimeMode} what.mode
 * @param {string} what.unit
 * @param {string} [what.key]
 * @param {(bar: Bar) => string} [what.href]
 */
export function barChart({ name, bars, step, mode, unit, key, href }) {
    const top = axisTop(bars.reduce((most, { count }) => Math.max(most, count), 0));
    const slot = WIDTH / Math.max(1, bars.length);
    const range = (/** @type {Bar} */ bar) => `${edgeText(bar.from, step, mode)}–${edgeText(bar.to, step, mode)}`;
    const drawn = bars.map((bar, at) => {
        const height = bar.count === 0 ? 0 : Math.max(1.5, (bar.count / top) * HEIGHT);
        const shape = [
            s("rect", { class: "slot", x: at * slot, y: 0, width: slot, height: HEIGHT }),
            s("rect", { class: "bar", x: at * slot + slot * 0.1, y: HEIGHT - height, width: slot * 0.8, height }),
            s("title", null, `${range(bar)}: ${countText(bar.count)} ${unit}`),
        ];
        // By its instant, so that a bar that moves to the left keeps its element under the pointer.
        const own = String(bar.to);
        return href === undefined || bar.count === 0
            ? s("g", { key: own }, shape)
            : s("a", { key: own, href: href(bar), tabindex: -1 }, shape);
    });
    const rows = bars.filter(({ count }) => count > 0).map((bar) => {
        const text = range(bar);
        const cell = href === undefined ? text : h("a", { href: href(bar) }, text);
        return h("tr", { key: String(bar.to) }, h("th", { scope: "row" }, cell), h("td", null, countText(bar.count)));
    });
    return h("figure", { class: "chart", key: key ?? name }, [
        h("div", { class: "plot", "aria-hidden": "true" }, [
            h("span", { class: "top" }, shortCount(top)),
            plot(drawn),
            axis(bars.map(({ from }) => from), bars.at(-1)?.to, step, mode),
        ]),
        table(name, [unit], rows, "Nothing in this span."),
    ]);
}

/**
 * @typedef {{ name: string, style: string, values: (number | null)[] }} Line
 */

/**
 * Lines over time, of one unit.
 * @param {object} what
 * @param {string} what.name
 * @param {Line[]} what.lines
 * @param {number[]} what.starts when each slot began
 * @param {number} what.step
 * @param {TimeMode} what.mode
 * @param {(value: number) => string} what.text
 */
export function lineChart({ name, lines, starts, step, mode, text }) {
    const all = lines.flatMap(({ values }) => values.filter((value) => value !== null));
    const top = axisTop(all.reduce((most, value) => Math.max(most, value), 0));
    const slot = WIDTH / Math.max(1, starts.length);
    const drawn = lines.map((line) => s("path", { class: `line ${line.style}`, key: line.name, d: pathOf(line, slot, top) }));
    const slots = starts.map((start, at) => {
        const values = lines.map(({ name, values }) => {
            const value = values[at];
            return `${name} ${value === null || value === undefined ? "–" : text(value)}`;
        });
        return s("g", { key: String(start) }, [
            s("rect", { class: "slot", x: at * slot, y: 0, width: slot, height: HEIGHT }),
            s("title", null, `${edgeText(start, step, mode)}: ${values.join(", ")}`),
        ]);
    });
    const rows = starts.flatMap((start, at) => {
        const values = lines.map(({ values }) => values[at] ?? null);
        if (values.every((value) => value === null || value === 0)) return [];
        const cells = values.map((value) => h("td", null, value === null ? "–" : text(value)));
        return [h("tr", { key: String(start) }, h("th", { scope: "row" }, edgeText(start, step, mode)), cells)];
    });
    const legend = lines.map(({ name, style }) => h("li", { class: style, key: name }, name));
    const last = starts.at(-1);
    return h("figure", { class: "chart", key: name }, [
        h("ul", { class: "legend", "aria-hidden": "true" }, legend),
        h("div", { class: "plot", "aria-hidden": "true" }, [
            h("span", { class: "top" }, text(top)),
            plot([...drawn, ...slots]),
            axis(starts, last === undefined ? undefined : last + step, step, mode),
        ]),
        table(name, lines.map(({ name }) => name), rows, "Nothing has happened in this time."),
    ]);
}

/**
 * @param {Line} line
 * @param {number} slot
 * @param {number} top
 */
function pathOf({ values }, slot, top) {
    let isDrawing = false;
    return values
        .map((value, at) => {
            if (value === null) {
                isDrawing = false;
                return "";
            }
            const x = ((at + 0.5) * slot).toFixed(1);
            const y = (HEIGHT - (value / top) * (HEIGHT - 2) - 1).toFixed(1);
            // A single point is a short line.
            const alone = !isDrawing && (values[at + 1] ?? null) === null ? `h${(slot / 2).toFixed(1)}` : "";
            const step = `${isDrawing ? "L" : "M"}${x} ${y}${alone}`;
            isDrawing = true;
            return step;
        })
        .join("");
}

/** @param {Node[]} drawn */
function plot(drawn) {
    const box = { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", focusable: "false" };
    const lines = [0, HEIGHT / 2, HEIGHT].map((y) => s("line", { class: "rule", x1: 0, x2: WIDTH, y1: y, y2: y }));
    return s("svg", box, lines, drawn);
}

/**
 * @param {number[]} starts
 * @param {number | undefined} end
 * @param {number} step
 * @param {TimeMode} mode
 */
function axis(starts, end, step, mode) {
    const middle = starts[Math.floor(starts.length / 2)];
    const edges = [starts[0], middle, end].filter((edge) => edge !== undefined);
    return h("div", { class: "axis" }, edges.map((edge) => h("span", null, edgeText(edge, step, mode))));
}

/**
 * @param {string} name
 * @param {string[]} columns
 * @param {Node[]} rows
 * @param {string} nothing
 */
function table(name, columns, rows, nothing) {
    const heads = ["time", ...columns].map((column) => h("th", { scope: "col" }, column));
    const body = h("table", null, h("thead", null, h("tr", null, heads)), h("tbody", null, rows));
    return h("details", { class: "numbers" }, [
        h("summary", null, `${name} as a table`),
        h("div", { class: "scrolls", tabindex: 0, role: "region", "aria-label": name }, rows.length === 0 ? h("p", null, nothing) : body),
    ]);
}
