/**
 * Writes screenshots of every view, in two widths and two themes, into `shots/`; reports views that would scroll horizontally.
 *
 * node look.js [VIEW ...]
 */
import { mkdirSync } from "node:fs";
import { launch, openPage } from "./browser.js";
import { start } from "./mock.js";

const server = await start();
const { nasty } = server.world;
const dead = server.world.of("orders", "dead")[0];
const views = {
    overview: "#/",
    queues: "#/queues",
    queue: "#/queues/orders",
    day: "#/queues/orders?span=day&recent=day",
    messages: "#/queues/orders/messages",
    dead: "#/queues/orders/messages?state=dead",
    odd: "#/queues/odd/messages",
    message: `#/queues/orders/messages/${server.world.of("orders", "scheduled")[0].id}`,
    buried: `#/queues/orders/messages/${dead.id}`,
    markup: `#/queues/odd/messages/${nasty.markup.id}`,
    rtl: `#/queues/odd/messages/${nasty.rtl.id}`,
    bytes: `#/queues/odd/messages/${nasty.bytes.id}`,
    line: `#/queues/odd/messages/${nasty.line.id}`,
    deep: `#/queues/odd/messages/${nasty.deep.id}`,
    error: `#/queues/odd/messages/${nasty.error.id}`,
    put: "#/queues/orders/put",
    search: "#/search?q=order-41007&queue=orders",
    unknown: "#/queues/orders/<b>nothing",
};
const wanted = process.argv.slice(2);
mkdirSync("shots", { recursive: true });
const { browser, close } = await launch();
let isWrong = false;
for (const theme of ["light", "dark"]) {
    for (const width of [1280, 320]) {
        const { page, faults, go, close } = await openPage(browser, server.address, { width, theme });
        for (const [name, fragment] of Object.entries(views)) {
            if (wanted.length > 0 && !wanted.includes(name)) continue;
            await go(fragment);
            const wide = await page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
            if (wide > 0) console.log(`${name} at ${width}: ${wide} px too wide`);
            isWrong ||= wide > 0;
            await page.screenshot({ path: `shots/${name}-${width}-${theme}.png`, fullPage: width === 1280 ? false : false });
        }
        for (const fault of faults) console.log(fault);
        isWrong ||= faults.length > 0;
        await close();
    }
}
await close();
await server.stop();
process.exitCode = isWrong ? 1 : 0;
