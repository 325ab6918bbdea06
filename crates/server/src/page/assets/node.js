/**
 * Descriptions of elements: plain objects, which tests read and `patch` applies to the document. Text is text: nothing here or
 * there parses markup.
 * @module
 */

/** @typedef {(event: any) => void} Listener */
/** @typedef {string | number | boolean | null | undefined | Listener} Value */
/** @typedef {Node | string | number | false | null | undefined} Child */
// A type that names itself is not written in JSDoc: as deep as any view nests.
/** @typedef {Child | Child[]} Some */
/** @typedef {Some | Some[]} More */
/** @typedef {More | More[]} Most */
/** @typedef {Most | Most[]} Children */

/**
 * @typedef {object} Node
 * @property {string} tag
 * @property {boolean} svg
 * @property {string} [key] keeps an element the same one among its siblings
 * @property {Record<string, Value>} attributes
 * @property {(Node | string)[]} children
 */

/**
 * @param {boolean} svg
 * @param {string} tag
 * @param {Record<string, Value> | null} given
 * @param {Children[]} children
 * @returns {Node}
 */
function make(svg, tag, given, children) {
    const { key, ...attributes } = given ?? {};
    /** @type {Node} */
    const node = { tag, svg, attributes, children: flat(children) };
    if (typeof key === "string") node.key = key;
    return node;
}

/** @param {Children[]} children @returns {(Node | string)[]} */
function flat(children) {
    const all = /** @type {Child[]} */ (children.flat(Infinity));
    return all
        .filter((child) => child !== false && child !== null && child !== undefined && child !== "")
        .map((child) => (typeof child === "number" ? String(child) : /** @type {Node | string} */ (child)));
}

/**
 * An element of HTML.
 * @param {string} tag
 * @param {Record<string, Value> | null} [attributes] `on…` is a listener; `key` names it among its siblings
 * @param {...Children} children
 */
export const h = (tag, attributes = null, ...children) => make(false, tag, attributes, children);

/**
 * An element of SVG.
 * @param {string} tag
 * @param {Record<string, Value> | null} [attributes]
 * @param {...Children} children
 */
export const s = (tag, attributes = null, ...children) => make(true, tag, attributes, children);

/**
 * All text of a description, for tests and for copying.
 * @param {Node | string} node
 * @returns {string}
 */
export const textOf = (node) => (typeof node === "string" ? node : node.children.map(textOf).join(""));
