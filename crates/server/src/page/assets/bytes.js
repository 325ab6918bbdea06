/**
 * Bytes of bodies: base64, text where they are UTF-8, hexadecimal dumps.
 * @module
 */

const UTF8 = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });

/**
 * @param {string} text RFC 4648 section 4
 * @returns {Uint8Array<ArrayBuffer>}
 */
export function fromBase64(text) {
    const binary = atob(text);
    const bytes = new Uint8Array(binary.length);
    for (let at = 0; at < binary.length; at += 1) bytes[at] = binary.charCodeAt(at);
    return bytes;
}

/**
 * The bytes as text; undefined where they are not UTF-8.
 * @param {Uint8Array} bytes
 */
export function asText(bytes) {
    try {
        return UTF8.decode(bytes);
    } catch {
        return undefined;
    }
}

/**
 * A dump in the form of `xxd`: offset, sixteen bytes, and their letters.
 * @param {Uint8Array} bytes
 * @param {number} [most] bytes that are shown
 */
export function hexDump(bytes, most = Infinity) {
    const shown = Math.min(bytes.length, most);
    /** @type {string[]} */
    const lines = [];
    for (let from = 0; from < shown; from += 16) {
        const row = Array.from(bytes.subarray(from, Math.min(from + 16, shown)));
        const hex = row.map((byte) => byte.toString(16).padStart(2, "0"));
        const pairs = [];
        for (let at = 0; at < 16; at += 2) pairs.push(`${hex[at] ?? "  "}${hex[at + 1] ?? "  "}`);
        const letters = row.map((byte) => (byte >= 0x20 && byte < 0x7f ? String.fromCharCode(byte) : "."));
        lines.push(`${from.toString(16).padStart(8, "0")}  ${pairs.join(" ")}  ${letters.join("")}`);
    }
    return lines.join("\n");
}
