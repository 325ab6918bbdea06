/**
 * JSON formatted as text: no value is parsed and printed again, so that 9007199254740993 stays unchanged, and a
 * name that comes twice comes twice.
 * @module
 */

/** Deeper than this, lines are no longer moved to the right. */
const DEEPEST_INDENT = 32;

const SPACE = /[ \t\n\r]*/y;
const WORD = /-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?|true|false|null/y;

/**
 * The result of formatting: the text on lines, or the position at which it is not JSON.
 * @typedef {{ ok: true, text: string, isCut: boolean } | { ok: false, at: number }} Layout
 */

/**
 * Formats a text that is one JSON value. It is read once, from left to right, with a stack of brackets and no recursion, so
 * that no depth is too deep.
 * @param {string} text
 * @param {number} [longest] where the layout is cut, in UTF-16 units
 * @returns {Layout}
 */
export function layOut(text, longest = Infinity) {
    /** @type {string[]} */
    const out = [];
    /** @type {string[]} Closing brackets that are still to come. */
    const open = [];
    let at = 0;
    let length = 0;
    /** @type {"value" | "first" | "name" | "after"} */
    let expects = "value";

    const write = (/** @type {string} */ piece) => {
        if (length <= longest) out.push(piece);
        length += piece.length;
    };
    const line = () => write(`\n${"  ".repeat(Math.min(open.length, DEEPEST_INDENT))}`);
    const string = () => {
        const end = endOfString(text, at);
        const found = end === undefined ? undefined : text.slice(at, end);
        at = end ?? at;
        return found;
    };
    const token = (/** @type {RegExp} */ pattern) => {
        pattern.lastIndex = at;
        const found = pattern.exec(text)?.[0];
        if (found !== undefined) at += found.length;
        return found;
    };

    for (;;) {
        token(SPACE);
        const char = text[at];
        if (char === undefined) break;
        if (expects === "after") {
            if (char === "," && open.length > 0) {
                at += 1;
                write(",");
                line();
                expects = open.at(-1) === "}" ? "name" : "value";
            } else if (char === open.at(-1)) {
                at += 1;
                open.pop();
                line();
                write(char);
            } else {
                return { ok: false, at };
            }
            continue;
        }
        if (expects === "first" && char === open.at(-1)) {
            at += 1;
            open.pop();
            write(char);
            expects = "after";
            continue;
        }
        if (expects === "first") {
            line();
            expects = open.at(-1) === "}" ? "name" : "value";
        }
        if (expects === "name") {
            const name = string();
            token(SPACE);
            if (name === undefined || text[at] !== ":") return { ok: false, at };
            at += 1;
            write(`${name}: `);
            expects = "value";
        } else if (char === "{" || char === "[") {
            at += 1;
            write(char);
            open.push(char === "{" ? "}" : "]");
            expects = "first";
        } else {
            const value = char === '"' ? string() : token(WORD);
            if (value === undefined || value === "") return { ok: false, at };
            write(value);
            expects = "after";
        }
    }
    if (expects !== "after" || open.length > 0) return { ok: false, at };
    return { ok: true, text: out.join(""), isCut: length > longest };
}

/**
 * Where the string that begins at `at` ends; undefined where none does. By hand: a regular expression would keep a backtracking
 * state for each character, and strings may be long.
 * @param {string} text
 * @param {number} at
 */
function endOfString(text, at) {
    if (text[at] !== '"') return undefined;
    for (let next = at + 1; next < text.length; next += 1) {
        const code = text.charCodeAt(next);
        if (code === 0x22) return next + 1;
        if (code < 0x20) return undefined;
        if (code === 0x5c) {
            const escaped = text[next + 1] ?? "";
            const digits = escaped === "u" ? 4 : 0;
            if (!`"\\/bfnrtu`.includes(escaped) || escaped === "") return undefined;
            if (digits > 0 && !/^[0-9a-fA-F]{4}$/.test(text.slice(next + 2, next + 6))) return undefined;
            next += 1 + digits;
        }
    }
    return undefined;
}
