/**
 * Parts that several views share.
 * @module
 */

/** @import { Most, Node } from "./node.js" */
/** @import { Message, ProblemDocument, StateKind } from "./types.js" */
/** @import { Context } from "./context.js" */
import { fromBase64, hexDump } from "./bytes.js";
import { h } from "./node.js";
import { toMessages, toQueue } from "./route.js";
import { pieces } from "./text.js";
import { instantText, localText, relativeText, utcText } from "./time.js";

/** @type {StateKind[]} */
export const STATES = ["scheduled", "ready", "leased", "dead"];

/** What a state means, in a few words. @type {Record<StateKind, string>} */
export const MEANINGS = {
    scheduled: "waits for its instant",
    ready: "its instant has come, nobody has it",
    leased: "somebody has it",
    dead: "set aside",
};

/**
 * Untrusted text: isolated from the direction of the text around it, and with invisible characters shown.
 * @param {string} text
 * @param {string} [style]
 */
export function foreign(text, style = "") {
    const shown = pieces(text).map((piece) => (piece.hidden ? h("span", { class: "hidden-char" }, piece.text) : piece.text));
    return h("bdi", style === "" ? null : { class: style }, shown);
}

/** @param {string} queue */
export const queueLink = (queue) => h("a", { class: "name", href: toQueue(queue) }, foreign(queue));

/**
 * An instant in the mode that the reader has chosen; all three in its tooltip.
 * @param {Context} context
 * @param {string | undefined} instant
 */
export function instant(context, instant) {
    if (instant === undefined) return h("span", { class: "none" }, "–");
    const ms = Date.parse(instant);
    if (Number.isNaN(ms)) return foreign(instant);
    const title = `${localText(ms, true)}\n${utcText(ms, true)}\n${relativeText(ms, context.now)}`;
    return h("time", { datetime: instant, title }, instantText(ms, context.mode, context.now));
}

/** @param {StateKind} state */
export const stateChip = (state) => h("span", { class: `chip ${state}`, title: MEANINGS[state] }, state);

/**
 * The pause of a queue's settings, where it has one.
 * @param {Context} context
 * @param {unknown} pause
 */
export function pauseChip(context, pause) {
    if (typeof pause !== "string" || pause === "running") return null;
    const end = pause === "paused" ? "" : [" until ", instant(context, pause)];
    return h("span", { class: "chip paused" }, "paused", end);
}

/** What the page itself finds: the server has no page about it, or is not there. */
const OWN = ["page_fault", "page_incomplete", "foreign_answer", "unreachable"];

/**
 * An error code, with a link to its page.
 * @param {string} code
 */
export const codeLink = (code) =>
    /^[a-z_]+$/.test(code) && !OWN.includes(code)
        ? h("a", { class: "code", href: `errors/${code}`, target: "_blank", rel: "noopener" }, code)
        : foreign(code, "code");

/**
 * A refusal, in place of the refused part.
 * @param {ProblemDocument} problem
 * @param {Most} [more]
 */
export function refusal(problem, more = null) {
    return h("div", { class: "refusal", role: "alert" }, [
        h("p", null, codeLink(problem.code), " ", foreign(problem.detail)),
        more,
    ]);
}

/**
 * Refusals by message.
 * @param {string} queue
 * @param {{ id: string, error: ProblemDocument }[]} refused
 * @param {number} inAll
 */
export function refusals(queue, refused, inAll) {
    if (inAll === 0) return null;
    const rows = refused.map(({ id, error }) =>
        h("tr", { key: id }, [
            h("td", { class: "id" }, h("a", { href: `${toMessages(queue)}/${encodeURIComponent(id)}` }, foreign(id))),
            h("td", null, codeLink(error.code)),
            h("td", null, foreign(error.detail)),
        ]),
    );
    const heads = ["message", "code", "why"].map((name) => h("th", { scope: "col" }, name));
    const more = inAll > refused.length ? h("p", null, `${inAll - refused.length} more are not listed.`) : null;
    return h("div", { class: "scrolls refused", tabindex: 0, role: "region", "aria-label": "refusals" }, [
        h("table", null, h("thead", null, h("tr", null, heads)), h("tbody", null, rows)),
        more,
    ]);
}

/**
 * @param {string} label
 * @param {Most} value
 * @param {{ href?: string, style?: string, more?: Most, title?: string }} [options]
 */
export function stat(label, value, { href, style = "", more = null, title } = {}) {
    const inside = [
        h("span", { class: "label" }, label),
        h("span", { class: "value" }, value),
        h("span", { class: "more" }, more),
    ];
    const attributes = { class: `stat ${style}`, key: label, title };
    return href === undefined ? h("div", attributes, inside) : h("a", { ...attributes, href }, inside);
}

/**
 * Choices, one of which is selected; each is a link.
 * @param {string} label
 * @param {{ name: Most, href: string, isChosen: boolean, more?: Most }[]} choices
 */
export function tabs(label, choices) {
    const links = choices.map(({ name, href, isChosen, more }) =>
        h("a", { href, "aria-current": isChosen ? "true" : null }, name, more === undefined ? null : h("small", null, more)),
    );
    return h("nav", { class: "tabs", "aria-label": label }, links);
}

/**
 * A button that is left out where the action is not allowed.
 * @param {boolean} isAllowed
 * @param {string} name
 * @param {() => void} press
 * @param {string} [style]
 */
export const button = (isAllowed, name, press, style = "") =>
    isAllowed ? h("button", { type: "button", class: style, key: name, onclick: () => press() }, name) : null;

/**
 * @param {Most} title
 * @param {Most} inside
 * @param {Most} [aside]
 * @param {string} [key]
 */
export function panel(title, inside, aside = null, key) {
    const head = h("header", null, h("h2", null, title), aside);
    return h("section", { class: "panel", ...(key === undefined ? {} : { key }) }, head, inside);
}

/**
 * The beginning of a message's body, as a list shows it.
 * @param {Message} message
 */
export function preview(message) {
    const bytes = message.preview_base64 ?? message.body_base64;
    if (bytes !== undefined) {
        const dump = hexDump(fromBase64(bytes), 16).slice(10, 50).trim();
        return h("span", { class: "preview hex", title: "no UTF-8: the first bytes" }, dump);
    }
    const text = message.preview ?? message.body ?? "";
    return text === "" ? h("span", { class: "none" }, message.size === 0 ? "empty" : "–") : foreign(text, "preview");
}

/** @param {Most} inside */
export const nothing = (inside) => h("p", { class: "nothing" }, inside);

/**
 * Text with a button that copies it.
 * @param {Context} context
 * @param {string} name
 * @param {string} text
 * @returns {Node}
 */
export function copyable(context, name, text) {
    return h("div", { class: "copyable" }, [
        h("span", { class: "label" }, name),
        h("code", { tabindex: 0 }, foreign(text)),
        h("button", { type: "button", class: "quiet", onclick: () => context.copy(text), "aria-label": `copy ${name}` }, "copy"),
    ]);
}
