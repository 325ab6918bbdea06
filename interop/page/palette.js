/**
 * A screenshot as a PNG with a palette of at most 256 colours: a third of the size, and what a page shows is hardly changed.
 */
import { deflateSync, inflateSync } from "node:zlib";

const SIGNATURE = Buffer.from([0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a]);

/**
 * Writes a browser's PNG (8 bits a channel, not interlaced, with or without alpha, which is ignored) again with a palette: its most
 * frequent colours, and for each other the nearest of these.
 */
export function withPalette(png) {
    const { width, height, channels, pixels } = decode(png);
    const counts = new Map();
    const colours = new Uint32Array(width * height);
    for (let at = 0; at < colours.length; at += 1) {
        const from = at * channels;
        const colour = (pixels[from] << 16) | (pixels[from + 1] << 8) | pixels[from + 2];
        colours[at] = colour;
        counts.set(colour, (counts.get(colour) ?? 0) + 1);
    }
    const palette = chosen(counts);
    const places = new Map(palette.map((colour, at) => [colour, at]));
    const rows = Buffer.alloc(height * (width + 1));
    for (let at = 0; at < colours.length; at += 1) {
        const colour = colours[at];
        let place = places.get(colour);
        if (place === undefined) {
            place = nearest(palette, colour);
            places.set(colour, place);
        }
        rows[Math.floor(at / width) * (width + 1) + 1 + (at % width)] = place;
    }
    const head = Buffer.alloc(13);
    head.writeUInt32BE(width, 0);
    head.writeUInt32BE(height, 4);
    head.set([8, 3, 0, 0, 0], 8);
    const table = Buffer.from(palette.flatMap((colour) => [colour >> 16, (colour >> 8) & 255, colour & 255]));
    return Buffer.concat([SIGNATURE, chunk("IHDR", head), chunk("PLTE", table), chunk("IDAT", deflateSync(rows, { level: 9, memLevel: 9 })), chunk("IEND", Buffer.alloc(0))]);
}

/**
 * At most 256 colours: in each small cube of the colour space its most frequent one, the cubes with the most pixels first.
 */
function chosen(counts) {
    const cubes = new Map();
    for (const [colour, count] of counts) {
        const cube = ((colour >> 20) << 8) | (((colour >> 12) & 15) << 4) | ((colour >> 4) & 15);
        const known = cubes.get(cube) ?? { all: 0, most: 0, colour };
        known.all += count;
        if (count > known.most) Object.assign(known, { most: count, colour });
        cubes.set(cube, known);
    }
    // Grounds that differ little, such as a panel's and the page's, are in one cube, and each fills much of the screen.
    const frequent = [...counts].sort(([, a], [, b]) => b - a).slice(0, 32).map(([colour]) => colour);
    const others = [...cubes.values()].sort((a, b) => b.all - a.all).map(({ colour }) => colour);
    return [...new Set([...frequent, ...others])].slice(0, 256);
}

function nearest(palette, colour) {
    const away = (other) => ((other >> 16) - (colour >> 16)) ** 2 + (((other >> 8) & 255) - ((colour >> 8) & 255)) ** 2 + ((other & 255) - (colour & 255)) ** 2;
    let best = 0;
    for (let at = 1; at < palette.length; at += 1) if (away(palette[at]) < away(palette[best])) best = at;
    return best;
}

/** Node 18 has none. */
function crc32(bytes) {
    let crc = -1;
    for (const byte of bytes) {
        crc ^= byte;
        for (let bit = 0; bit < 8; bit += 1) crc = (crc >>> 1) ^ (crc & 1 ? 0xedb8_8320 : 0);
    }
    return ~crc >>> 0;
}

function chunk(name, data) {
    const body = Buffer.concat([Buffer.from(name, "latin1"), data]);
    const length = Buffer.alloc(4);
    length.writeUInt32BE(data.length);
    const check = Buffer.alloc(4);
    check.writeUInt32BE(crc32(body));
    return Buffer.concat([length, body, check]);
}

function decode(png) {
    const bytes = Buffer.from(png);
    const parts = [];
    let head;
    for (let at = SIGNATURE.length; at < bytes.length;) {
        const length = bytes.readUInt32BE(at);
        const name = bytes.toString("latin1", at + 4, at + 8);
        const data = bytes.subarray(at + 8, at + 8 + length);
        if (name === "IHDR") head = data;
        if (name === "IDAT") parts.push(data);
        at += 12 + length;
    }
    const [width, height, depth, type, interlaced] = [head.readUInt32BE(0), head.readUInt32BE(4), head[8], head[9], head[12]];
    const channels = { 2: 3, 6: 4 }[type];
    if (depth !== 8 || channels === undefined || interlaced !== 0) throw new Error(`a PNG of type ${type} with ${depth} bits`);
    const pixels = inflateSync(Buffer.concat(parts));
    return { width, height, channels, pixels: unfiltered(pixels, width * channels, height, channels) };
}

/** Undoes the filter of each row. */
function unfiltered(rows, stride, height, channels) {
    const pixels = Buffer.alloc(stride * height);
    for (let y = 0; y < height; y += 1) {
        const filter = rows[y * (stride + 1)];
        for (let x = 0; x < stride; x += 1) {
            const at = y * stride + x;
            const left = x >= channels ? pixels[at - channels] : 0;
            const up = y > 0 ? pixels[at - stride] : 0;
            const corner = y > 0 && x >= channels ? pixels[at - stride - channels] : 0;
            const predicted = [0, left, up, (left + up) >> 1, paeth(left, up, corner)][filter];
            pixels[at] = rows[y * (stride + 1) + 1 + x] + predicted;
        }
    }
    return pixels;
}

function paeth(left, up, corner) {
    const guess = left + up - corner;
    const [a, b, c] = [Math.abs(guess - left), Math.abs(guess - up), Math.abs(guess - corner)];
    return a <= b && a <= c ? left : b <= c ? up : corner;
}
