/**
 * Splits untrusted text into visible and invisible parts.
 *
 * A control character, a mark that changes the direction of text, or a character without width can make a name look like another
 * one. Each is shown by its code.
 * @module
 */

/** @typedef {{ text: string, hidden: boolean }} Piece */

// Controls but tab and line feed; marks of direction; characters without width; line and paragraph separators; the byte order
// mark; unpaired surrogates; noncharacters. The replacement character of bytes that are not UTF-8 stays.
const HIDDEN =
    /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u061c\u115f\u1160\u180e\u200b-\u200f\u2028-\u202e\u2060-\u2069\u206a-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb]|[\ud800-\udbff](?![\udc00-\udfff])|(?<![\ud800-\udbff])[\udc00-\udfff]/g;

/** @type {Record<string, string>} */
const NAMES = { "\0": "NUL", "\r": "CR", "\u001b": "ESC", "\u007f": "DEL", "\u00ad": "SHY", "\ufeff": "BOM" };

/**
 * The pieces of a text, in order.
 * @param {string} text
 * @returns {Piece[]}
 */
export function pieces(text) {
    /** @type {Piece[]} */
    const found = [];
    let from = 0;
    for (const match of text.matchAll(HIDDEN)) {
        if (match.index > from) found.push({ text: text.slice(from, match.index), hidden: false });
        found.push({ text: codeOf(match[0]), hidden: true });
        from = match.index + match[0].length;
    }
    if (from < text.length) found.push({ text: text.slice(from), hidden: false });
    return found;
}

/** @param {string} char */
function codeOf(char) {
    return NAMES[char] ?? `U+${char.charCodeAt(0).toString(16).toUpperCase().padStart(4, "0")}`;
}

/**
 * At most `length` UTF-16 units of a text, never half a pair, and whether that is less than all.
 * @param {string} text
 * @param {number} length
 */
export function cut(text, length) {
    if (text.length <= length) return { text, isCut: false };
    const last = text.charCodeAt(length - 1);
    const end = last >= 0xd800 && last < 0xdc00 ? length - 1 : length;
    return { text: text.slice(0, end), isCut: true };
}

const COUNT = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });

/**
 * A count with thousands separators: `90,412`.
 * @param {number} count
 */
export const countText = (count) => COUNT.format(count);

/**
 * A short count: `90.4 k`, `1.2 M`.
 * @param {number} count
 */
export function shortCount(count) {
    /** @type {[number, string][]} */
    const units = [[1e9, "G"], [1e6, "M"], [1e3, "k"]];
    if (count < 10_000) return countText(count);
    const [size, name] = units.find(([size]) => count >= size) ?? [1, ""];
    const value = count / size;
    return `${value < 100 ? value.toFixed(1) : Math.floor(value)} ${name}`;
}

/**
 * A number of bytes: `13 B`, `1.0 MiB`.
 * @param {number} bytes
 */
export function sizeText(bytes) {
    if (bytes < 1_024) return `${bytes} B`;
    return bytes < 1_048_576 ? `${(bytes / 1_024).toFixed(1)} KiB` : `${(bytes / 1_048_576).toFixed(1)} MiB`;
}

/**
 * A rate: `0`, `0.4`, `12`, `3,400`.
 * @param {number} perSecond
 */
export function rateText(perSecond) {
    if (perSecond === 0 || perSecond >= 10) return countText(perSecond);
    return perSecond < 0.1 ? "<0.1" : perSecond.toFixed(1);
}
