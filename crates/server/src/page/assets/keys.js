/**
 * The keyboard: rows are walked with `j` and `k`, selected with `x`, opened with Enter; `/` searches, `?` lists the keys.
 * @module
 */

/**
 * The command of a key; undefined in a text field, or with a modifier.
 * @param {{ key: string, ctrlKey: boolean, metaKey: boolean, altKey: boolean }} event
 * @param {boolean} isTyping
 * @returns {"search" | "next" | "before" | "select" | "open" | "escape" | "help" | undefined}
 */
export function asked({ key, ctrlKey, metaKey, altKey }, isTyping) {
    if (ctrlKey || metaKey || altKey) return undefined;
    if (key === "Escape") return "escape";
    if (isTyping) return undefined;
    /** @type {Record<string, "search" | "next" | "before" | "select" | "open" | "help">} */
    const keys = { "/": "search", j: "next", k: "before", x: "select", Enter: "open", "?": "help" };
    return Object.hasOwn(keys, key) ? keys[key] : undefined;
}

/**
 * The next position: from none to the first or the last, and not past the ends.
 * @param {number} at
 * @param {number} length
 * @param {"next" | "before"} where
 */
export function step(at, length, where) {
    if (length === 0) return -1;
    if (at < 0) return where === "next" ? 0 : length - 1;
    return Math.max(0, Math.min(length - 1, at + (where === "next" ? 1 : -1)));
}

/**
 * @param {Document} document
 * @param {{ help: () => void, escape: () => void, isDialogOpen: () => boolean }} on
 */
export function listenToKeys(document, on) {
    document.addEventListener("keydown", (event) => {
        const target = event.target instanceof Element ? event.target : document.body;
        const isTyping = target.closest("input:not([type=checkbox]), textarea, select") !== null;
        const wanted = asked(event, isTyping);
        // A dialog closes by itself on Escape, and has no rows.
        if (wanted === undefined || on.isDialogOpen()) return;
        if (wanted === "search") focusSearch(document);
        else if (wanted === "help") on.help();
        else if (wanted === "escape") on.escape();
        else if (!onRows(document, wanted, target)) return;
        if (wanted !== "escape") event.preventDefault();
    });
}

/** @param {Document} document */
function focusSearch(document) {
    const field = document.querySelector("input[type=search]");
    if (field instanceof HTMLInputElement) {
        field.focus();
        field.select();
    }
}

/** @param {Document} document @param {"next" | "before" | "select" | "open"} wanted @param {Element} target */
function onRows(document, wanted, target) {
    const rows = /** @type {HTMLElement[]} */ ([...document.querySelectorAll("[data-row]")]);
    const own = target.closest("[data-row]");
    const at = rows.findIndex((row) => row === own);
    if (wanted === "next" || wanted === "before") {
        const row = rows[step(at, rows.length, wanted)];
        row?.focus();
        row?.scrollIntoView({ block: "nearest" });
        return row !== undefined;
    }
    const row = rows[at];
    // Enter on a link or a box inside of a row belongs to that.
    if (row === undefined || (wanted === "open" && target !== row)) return false;
    const pressed = row.querySelector(wanted === "select" ? "input[type=checkbox]" : "a.name");
    if (pressed instanceof HTMLElement) pressed.click();
    return pressed !== null;
}
