/**
 * A message's body: as formatted JSON, as text, as hexadecimal; long bodies are shown piece by piece.
 * @module
 */

/** @import { Message } from "./types.js" */
/** @import { Context } from "./context.js" */
import { asText, hexDump } from "./bytes.js";
import { layOut } from "./json.js";
import { h } from "./node.js";
import { foreign, nothing, panel, refusal, tabs } from "./parts.js";
import { withQuery } from "./route.js";
import { cut, pieces, sizeText } from "./text.js";

/** The number of characters shown at first, and added at a time. */
const SHOWN = 64 * 1024;

/** More characters than these are marked in the text itself, not by an element each. */
const MOST_MARKS = 2_000;

/**
 * The forms of a body: each undefined where it does not apply.
 * @typedef {{ json: string | undefined, text: string | undefined, hex: string }} Forms
 */

/** @type {WeakMap<Uint8Array, Forms>} */
const known = new WeakMap();

/**
 * @param {Uint8Array} bytes
 * @returns {Forms}
 */
export function formsOf(bytes) {
    const before = known.get(bytes);
    if (before !== undefined) return before;
    const text = asText(bytes);
    const layout = text === undefined || !/^\s*[{[]/.test(text) ? undefined : layOut(text);
    // A dump is five times as long as its bytes.
    const forms = { json: layout?.ok === true ? layout.text : undefined, text, hex: hexDump(bytes, 256 * 1024) };
    known.set(bytes, forms);
    return forms;
}

/** @param {Context} context @param {Message} message */
export function bodyPanel(context, message) {
    const { queue, id, size } = message;
    const body = context.bodies.of(queue, id);
    const save = h("button", { type: "button", class: "quiet", onclick: () => context.bodies.save(queue, id) }, "save");
    const title = `Body, ${sizeText(size)}`;
    if (body === undefined) {
        const load = h("button", { type: "button", onclick: () => context.bodies.load(queue, id) }, `load ${sizeText(size)}`);
        return panel(title, h("p", null, "It is large, and loaded when you ask for it. ", load), null, "body");
    }
    if (body.state === "loading") return panel(title, nothing("loading…"), null, "body");
    if (body.state === "refused") {
        const again = h("button", { type: "button", onclick: () => context.bodies.load(queue, id) }, "again");
        return panel(title, refusal(body.problem, again), null, "body");
    }
    if (body.bytes.length === 0) return panel(title, nothing("It is empty."), null, "body");
    const forms = formsOf(body.bytes);
    const names = /** @type {const} */ (["json", "text", "hex"]);
    const there = names.filter((name) => forms[name] !== undefined);
    const chosen = there.find((name) => name === context.route.query.body) ?? there[0] ?? "hex";
    const choices = there.map((name) => ({
        name: name === "json" ? "JSON" : name,
        href: withQuery(context.route, { body: name === there[0] ? undefined : name }),
        isChosen: name === chosen,
    }));
    const note = forms.text === undefined ? "It is no UTF-8." : null;
    return panel(title, [shownText(context, chosen, forms[chosen] ?? ""), note === null ? null : h("p", { class: "note" }, note)], h("div", { class: "actions" }, tabs("form", choices), save), "body");
}

/** @param {Context} context @param {string} form @param {string} text */
function shownText(context, form, text) {
    const length = Number(context.typed.shown ?? SHOWN);
    const { text: shown, isCut } = cut(text, length);
    const more = () => context.type("shown", String(length + 4 * SHOWN));
    return [
        h("pre", { class: `body ${form}`, tabindex: 0, dir: "ltr", key: form }, marked(shown)),
        isCut
            ? h("p", { class: "note" }, `The first ${sizeText(length)} of ${sizeText(text.length)}. `, h("button", { type: "button", onclick: more }, "more"))
            : null,
    ];
}

/** @param {string} text */
function marked(text) {
    const all = pieces(text);
    if (all.length <= MOST_MARKS) return foreign(text);
    return h("bdi", null, all.map(({ text, hidden }) => (hidden ? `⟨${text}⟩` : text)).join(""));
}
