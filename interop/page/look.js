/**
 * Writes screenshots of every view, in two widths and two themes, into `shots/`; reports views that would scroll horizontally.
 * With `--docs` it writes those that docs/page.md shows into `docs/page/`, with a palette each.
 *
 * node look.js [--docs] [VIEW ...]
 */
import { mkdirSync, writeFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { launch, openPage } from "./browser.js";
import { start } from "./mock.js";
import { withPalette } from "./palette.js";

/** The largest screenshot that is kept with the documentation, in bytes. */
const MOST_KEPT = 100_000;

const server = await start();
const { nasty } = server.world;
const dead = server.world.of("orders", "dead")[0];
const kept = {
    overview: "#/",
    queues: "#/queues",
    queue: "#/queues/orders",
    messages: "#/queues/orders/messages",
    dead: "#/queues/orders/messages?state=dead",
    message: `#/queues/orders/messages/${dead.id}`,
    action: `#/queues/orders/messages/${dead.id}`,
    put: "#/queues/orders/put",
    search: "#/search?q=order-41007&queue=orders",
    sinks: "#/sinks",
    sink: "#/sinks/shop",
    schedules: "#/schedules",
    schedule: "#/schedules/report",
};
const others = {
    day: "#/queues/orders?span=day&recent=day",
    odd: "#/queues/odd/messages",
    waiting: `#/queues/orders/messages/${server.world.of("orders", "scheduled")[0].id}`,
    markup: `#/queues/odd/messages/${nasty.markup.id}`,
    rtl: `#/queues/odd/messages/${nasty.rtl.id}`,
    bytes: `#/queues/odd/messages/${nasty.bytes.id}`,
    line: `#/queues/odd/messages/${nasty.line.id}`,
    deep: `#/queues/odd/messages/${nasty.deep.id}`,
    error: `#/queues/odd/messages/${nasty.error.id}`,
    ended: "#/sinks/sms-gateway",
    bare: "#/schedules/tick",
    unknown: "#/queues/orders/<b>nothing",
};
/** Views that are shown with a dialog open: the button that opens it. */
const opens = { action: "revive…" };

const isDocs = process.argv.includes("--docs");
const wanted = process.argv.slice(2).filter((word) => word !== "--docs");
const views = isDocs ? kept : { ...kept, ...others };
const into = isDocs ? fileURLToPath(new URL("../../docs/page/", import.meta.url)) : "shots/";
mkdirSync(into, { recursive: true });
const { browser, close } = await launch();
let isWrong = false;
const wrong = (text) => {
    console.log(text);
    isWrong = true;
};
for (const theme of ["light", "dark"]) {
    for (const width of [1280, 320]) {
        const { page, faults, go, press, until, close } = await openPage(browser, server.address, { width, theme, height: isDocs ? 720 : 900 });
        for (const [name, fragment] of Object.entries(views)) {
            if (wanted.length > 0 && !wanted.includes(name)) continue;
            await go(fragment);
            if (opens[name] !== undefined) {
                await press(opens[name]);
                await until(() => document.querySelector("dialog")?.open === true);
            }
            const wide = await page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
            if (wide > 0) wrong(`${name} at ${width}: ${wide} px too wide`);
            const shot = await page.screenshot();
            const file = isDocs ? withPalette(shot) : shot;
            if (isDocs && file.length > MOST_KEPT) wrong(`${name} at ${width}, ${theme}: ${file.length} bytes`);
            writeFileSync(`${into}${name}-${width}-${theme}.png`, file);
            if (opens[name] !== undefined) await press("leave it");
        }
        for (const fault of faults) wrong(fault);
        await close();
    }
}
await close();
await server.stop();
process.exitCode = isWrong ? 1 : 0;
