/**
 * Makes the document match a description, and changes only differences: elements that stay keep their focus, selection and
 * scroll position.
 *
 * Ground rules:
 * 1. Text becomes a text node, and a value an attribute or a property that is named here. Nothing is read as markup or script.
 * 2. A link leads to a fragment of the page, to the page of an error code, or to bytes that the page has made.
 * 3. A field keeps its input until the description itself has another value.
 * @module
 */

/** @import { Node as Description, Value } from "./node.js" */

const SVG = "http://www.w3.org/2000/svg";

/** Set as properties: the attribute of that name is the value that a field began with. */
const PROPERTIES = new Set(["value", "checked", "disabled"]);

/** @type {WeakMap<Element, Description>} */
const made = new WeakMap();

/** @type {WeakMap<Element, Map<string, (event: any) => void>>} */
const listeners = new WeakMap();

/**
 * Makes these the children of `parent`.
 * @param {Element} parent
 * @param {(Description | string)[]} children
 */
export function patch(parent, children) {
    /** @type {Map<string, Element>} */
    const keyed = new Map();
    for (const child of parent.children) {
        const key = made.get(child)?.key;
        if (key !== undefined) keyed.set(key, child);
    }
    let at = parent.firstChild;
    for (const child of children) {
        const same = typeof child === "string" ? textAt(at) : elementFor(child, at, keyed);
        const node = same ?? make(child);
        if (typeof child === "string") {
            if (node.nodeValue !== child) node.nodeValue = child;
        } else {
            fill(/** @type {Element} */ (node), child);
        }
        if (node === at) at = at.nextSibling;
        else parent.insertBefore(node, at);
    }
    while (at !== null) {
        const next = at.nextSibling;
        parent.removeChild(at);
        at = next;
    }
}

/** @param {ChildNode | null} node */
const textAt = (node) => (node?.nodeType === Node.TEXT_NODE ? node : undefined);

/**
 * @param {Description} child
 * @param {ChildNode | null} at
 * @param {Map<string, Element>} keyed
 */
function elementFor(child, at, keyed) {
    const candidate = child.key === undefined ? at : keyed.get(child.key);
    if (!(candidate instanceof Element)) return undefined;
    const before = made.get(candidate);
    return before?.tag === child.tag && before.key === child.key ? candidate : undefined;
}

/** @param {Description | string} child */
function make(child) {
    if (typeof child === "string") return document.createTextNode(child);
    return child.svg ? document.createElementNS(SVG, child.tag) : document.createElement(child.tag);
}

/** @param {Element} element @param {Description} description */
function fill(element, description) {
    const before = made.get(element);
    made.set(element, description);
    for (const name of Object.keys(before?.attributes ?? {})) {
        if (!Object.hasOwn(description.attributes, name)) set(element, name, undefined, undefined);
    }
    patch(element, description.children);
    // After the children: a choice has its value among its options.
    for (const [name, value] of Object.entries(description.attributes)) {
        set(element, name, value, before?.attributes[name]);
    }
}

/** @param {Element} element @param {string} name @param {Value} value @param {Value} before */
function set(element, name, value, before) {
    if (name.startsWith("on")) {
        listen(element, name.slice(2), typeof value === "function" ? value : undefined);
    } else if (PROPERTIES.has(name)) {
        const field = /** @type {any} */ (element);
        const wanted = name === "value" ? (value ?? "") : value === true;
        if (value !== before && field[name] !== wanted) field[name] = wanted;
        // A choice that the browser has reset, because its option did not exist yet.
        if (name === "checked" && field.checked !== wanted) field.checked = wanted;
    } else if (value === undefined || value === null || value === false || (name === "href" && !leadsInside(String(value)))) {
        element.removeAttribute(name);
    } else if (element.getAttribute(name) !== String(value)) {
        element.setAttribute(name, value === true ? "" : String(value));
    }
}

/** @param {string} address */
const leadsInside = (address) => /^(#|errors\/[a-z_]+$)/.test(address);

/** @param {Element} element @param {string} event @param {((event: any) => void) | undefined} listener */
function listen(element, event, listener) {
    let own = listeners.get(element);
    if (own === undefined) {
        own = new Map();
        listeners.set(element, own);
    }
    const known = own;
    if (!known.has(event)) element.addEventListener(event, (given) => known.get(event)?.(given));
    if (listener === undefined) known.set(event, () => {});
    else known.set(event, listener);
}
