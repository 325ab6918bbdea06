/**
 * The page in a browser, against the mock server: each view and action, bad input, tokens, an unreachable server. The same on real
 * servers is in `real.test.js`.
 */
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { after, before, test } from "node:test";
import { launch, openPage, setTheme } from "../browser.js";
import { World, start } from "../mock.js";

const AXE = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");

/** @type {Awaited<ReturnType<typeof launch>>} */
let launched;
before(async () => {
    launched = await launch();
});
after(() => launched.close());

/**
 * Runs a test with its own server and a page of it, and checks that the page had no fault.
 * @param {(on: any) => Promise<void>} body
 */
const on = (body, { tokens, ...options } = {}) => async () => {
    const server = await start({ world: new World(), tokens });
    const opened = await openPage(launched.browser, server.address, options);
    try {
        await body({ ...opened, server });
        assert.deepEqual(opened.faults, []);
    } finally {
        await opened.close();
        await server.stop();
    }
};

test("the main journey by keyboard alone", on(async ({ page, go, shows, until, server }) => {
    await go("#/");
    await shows(/1,242/);
    await page.keyboard.press("j");
    await page.keyboard.press("j");
    assert.equal(await page.evaluate(() => document.activeElement?.getAttribute("data-row")), "billing-cycle");
    await page.keyboard.press("k");
    await page.keyboard.press("Enter");
    await until(() => location.hash === "#/queues/orders" && document.title.startsWith("orders"));
    await page.keyboard.press("/");
    await page.keyboard.type("order-41007");
    await page.keyboard.press("Enter");
    await until(() => document.querySelector("main")?.textContent?.includes("by key"));
    await page.keyboard.press("Escape");
    await page.keyboard.press("j");
    await page.keyboard.press("Enter");
    await until(() => document.querySelector("main h1")?.textContent?.includes("order-41007"));
    await page.waitForSelector("main .settings th bdi");
    // A header's name is on one line where there is room.
    assert.ok((await page.$eval("main .settings th bdi", (name) => name.getBoundingClientRect().height)) < 40);
    const message = [...server.world.messages.values()].find(({ key }) => key === "order-41007");
    assert.ok((await page.evaluate(() => location.hash)).endsWith(message.id));
    await page.evaluate(() => { location.hash = "#/queues/orders/messages"; });
    await until(() => document.querySelectorAll("main tr[data-row]").length === 100);
    for (const key of ["j", "x", "j", "j", "x"]) await page.keyboard.press(key);
    await until(() => document.querySelector(".selection strong")?.textContent === "2 selected");
    await page.keyboard.press("?");
    await until(() => document.querySelector("dialog")?.open === true);
    await page.keyboard.press("Escape");
    await until(() => document.querySelector("dialog")?.open === false);
    await page.keyboard.press("Escape");
    await until(() => document.querySelector(".selection") === null);
}));

test("a key whose queue is not known is looked for in the queues that there are", on(async ({ page, go, text, shows, until, server }) => {
    await go("#/");
    await page.keyboard.press("/");
    await page.keyboard.type("order-30005");
    await page.keyboard.press("Enter");
    await until(() => document.querySelector("main")?.textContent?.includes("As a key or an id in"));
    assert.ok(!(await text()).includes("are gone"));
    // Nothing was looked up in any queue yet.
    assert.ok(!server.log.some(({ path }) => path.includes("/keys/")));
    await page.keyboard.press("Escape");
    const names = await page.$$eval("main [data-row]", (rows) => rows.map((row) => row.getAttribute("data-row")));
    for (let at = 0; at <= names.indexOf("orders"); at += 1) await page.keyboard.press("j");
    await page.keyboard.press("Enter");
    await until(() => document.querySelector("main")?.textContent?.includes("by key"));
    await shows(/order-30005dead/);
}));

test("a first delayed message is watched as it comes due", on(async ({ page, go, shows, until, press, server }) => {
    const chip = [(state) => document.querySelector("main h1 .chip")?.textContent === state];
    await go("#/queues/first");
    // It is not there yet, which is said once.
    assert.equal(await page.$$eval("main .refusal", (all) => all.length), 1);
    await press("put a message");
    await page.waitForSelector("textarea[name=body]");
    await page.type("textarea[name=body]", '{"hello":"later"}');
    await page.select("select[name=when]", "delay");
    await page.$eval("input[name=delay]", (field) => field.select());
    await page.type("input[name=delay]", "15s");
    await press("put");
    await until(() => document.querySelector("main .outcome a") !== null);
    await page.click("main .outcome a");
    await until(...chip, "scheduled");
    await until(() => document.querySelector("pre.json")?.textContent === '{\n  "hello": "later"\n}');
    await until(...chip, "ready");
    const [message] = server.world.of("first");
    Object.assign(message, { state: "leased", lease_until: Date.now() + 60_000, holder: "worker 1" });
    await until(...chip, "leased");
    await shows(/held byworker 1/);
    server.world.remove(message);
    await until(() => document.querySelector("main .gone") !== null);
}, { expects: ["404"] }));

test("one reminder among many is moved by its key, and the others stay", on(async ({ page, go, shows, until, press, server }) => {
    const now = Date.now();
    for (let at = 0; at < 3_000; at += 1) server.world.add("reminders", { due: now + 7_200_000 + at * 1_000, key: `user-${at}` });
    const message = server.world.of("reminders").find(({ key }) => key === "user-1234");
    await go("#/queues/reminders?span=day");
    await shows(/3,000 in this span, 0 later/);
    await page.keyboard.press("/");
    await page.keyboard.type("user-1234");
    await page.keyboard.press("Enter");
    await until(() => document.querySelector("main")?.textContent?.includes("by key"));
    await page.keyboard.press("Escape");
    await page.keyboard.press("j");
    await page.keyboard.press("Enter");
    await until(() => document.querySelector("main h1")?.textContent?.includes("user-1234"));
    await press("reschedule…");
    await page.select("dialog select[name=when]", "at");
    const wanted = Math.floor(now / 1_000) * 1_000 + 3 * 86_400_000;
    await page.waitForSelector("dialog input[name=at]");
    await page.$eval("dialog input[name=at]", (field, ms) => {
        const at = new Date(ms);
        const two = (number) => String(number).padStart(2, "0");
        field.value = `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())}T${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}`;
        field.dispatchEvent(new Event("input", { bubbles: true }));
    }, wanted);
    await press("reschedule 1 message");
    await until(() => document.querySelector("dialog")?.textContent?.includes("1 done, 0 refused."));
    await press("close");
    assert.deepEqual([message.due, message.state], [wanted, "scheduled"]);
    await go("#/queues/reminders?span=day");
    await shows(/2,999 in this span, 1 later/);
    await go(`#/queues/reminders/messages?from=${encodeURIComponent(new Date(wanted - 60_000).toISOString())}`);
    assert.deepEqual(await page.$$eval("tr[data-row]", (rows) => rows.map((row) => row.getAttribute("data-row"))), [message.id]);
}));

test("no view scrolls sideways at 320 px, however long the names", on(async ({ page, go, server }) => {
    const long = "w".repeat(200);
    const message = server.world.add(long, { due: Date.now() + 3_600_000, key: "k".repeat(500), headers: { [`x-${"n".repeat(90)}`]: "v".repeat(900) }, body: Buffer.from("b".repeat(5_000)) });
    server.world.add(long, { state: "leased", due: Date.now() - 1_000, lease_until: Date.now() + 60_000, holder: "h".repeat(128) });
    const dead = server.world.add(long, { state: "dead", due: Date.now() - 1_000, dead_at: Date.now(), dead_reason: "buried", last_error: "e".repeat(4_000) });
    const name = "s".repeat(200);
    server.world.sinks.set(name, { ...server.world.sinks.get("shop"), name, destination: `${"d".repeat(200)}:443`, state: "ended", reason: "r".repeat(900), failed: { ["f".repeat(80)]: 1 } });
    server.world.sinks.get(name).queues[0].queue = long;
    server.world.schedules.set(name, { ...server.world.schedules.get("report"), name, queue: long, cron: "0,5,10,15,20,25,30,35,40,45,50,55 0-23 1-31 1-12 MON-FRI", body: "y".repeat(9_000) });
    const views = ["#/", "#/queues", `#/queues/${long}`, `#/queues/${long}/messages`, `#/queues/${long}/messages?state=leased`, `#/queues/${long}/messages?state=dead`, `#/queues/${long}/messages/${message.id}`, `#/queues/${long}/messages/${dead.id}`, `#/queues/${long}/put`,
        `#/search?q=${"k".repeat(500)}&queue=${long}`, "#/search?q=order-41007", "#/sinks", `#/sinks/${name}`, "#/schedules", `#/schedules/${name}`, `#/nothing/${long}`];
    for (const view of views) {
        await go(view);
        assert.equal(await page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth), 0, view.slice(0, 60));
    }
}, { width: 320, expects: ["404"] }));

test("messages are cancelled, and refusals are listed with their codes", on(async ({ page, go, text, until, press, server }) => {
    await go("#/queues/orders/messages");
    const ids = await page.$$eval("tr[data-row]", (rows) => rows.slice(0, 3).map((row) => row.getAttribute("data-row")));
    for (const id of ids) await page.click(`tr[data-row="${id}"] input`);
    await press("cancel…");
    const commands = await text("dialog");
    assert.ok(commands.includes("/v1/queues/orders/messages:cancel") && commands.includes(`dwell cancel orders "$id"`), commands);
    // A consumer takes one of them while the dialog is open.
    Object.assign(server.world.messages.get(ids[1]), { state: "leased", lease_until: Date.now() + 60_000 });
    await press("cancel 3 messages");
    await until(() => document.querySelector("dialog")?.textContent?.includes("2 done, 1 refused."));
    assert.equal(await page.$eval("dialog a.code", (link) => link.getAttribute("href")), "errors/leased");
    await press("close");
    await until((id) => document.querySelector(`tr[data-row="${id}"]`) === null, ids[0]);
    assert.equal(server.world.messages.has(ids[1]), true);
    assert.equal(server.world.messages.has(ids[2]), false);
}));

test("leases are ended as they were listed, and a later one is not", on(async ({ page, go, text, shows, until, press, server }) => {
    await go("#/queues/orders/messages?state=leased");
    const [first, second] = server.world.of("orders", "leased");
    await shows(/granted.*holder.*worker 7 on host-a/s);
    for (const { id } of [first, second]) await page.click(`tr[data-row="${id}"] input`);
    await press("end leases…");
    const commands = await text("dialog");
    assert.ok(commands.includes("/v1/queues/orders/leases:expire") && commands.includes(`dwell expire-lease orders ${first.id} --takes 1`), commands);
    // Another consumer takes one of them while the dialog is open.
    second.counts.takes += 1;
    await press("end 2 leases");
    await until(() => document.querySelector("dialog")?.textContent?.includes("1 done, 1 refused."));
    assert.equal(await page.$eval("dialog a.code", (link) => link.getAttribute("href")), "errors/lease_changed");
    assert.deepEqual([first.state, second.state], ["ready", "leased"]);
    await press("close");
    await go(`#/queues/orders/messages/${second.id}`);
    await press("end lease…");
    await press("end 1 lease");
    await until(() => document.querySelector("main h1 .chip")?.textContent === "ready");
}));

test("messages are rescheduled, delivered now, revived and discarded", on(async ({ page, go, shows, until, press, server }) => {
    const [first, second] = server.world.of("orders", "scheduled").slice(-2);
    await go(`#/queues/orders/messages/${first.id}`);
    await press("reschedule…");
    await page.select("dialog select[name=when]", "delay");
    await page.$eval("dialog input[name=delay]", (field) => { field.value = ""; });
    await page.type("dialog input[name=delay]", "30");
    await press("reschedule 1 message");
    await until(() => document.querySelector("dialog .refusal")?.textContent?.includes("malformed_delay"));
    await page.type("dialog input[name=delay]", "m");
    await press("reschedule 1 message");
    await until(() => document.querySelector("dialog")?.textContent?.includes("1 done, 0 refused."));
    assert.ok(Math.abs(first.due - Date.now() - 1_800_000) < 20_000, `${first.due}`);
    await press("close");

    await go(`#/queues/orders/messages/${second.id}`);
    await press("deliver now…");
    await press("deliver 1 message now");
    await until(() => document.querySelector("main h1 .chip")?.textContent === "ready");

    const [dead, other] = server.world.of("orders", "dead");
    await go(`#/queues/orders/messages/${dead.id}`);
    await shows(/ECONNREFUSED/);
    await press("revive…");
    await press("revive 1 message");
    await until(() => document.querySelector("main h1 .chip")?.textContent !== "dead");
    await press("close");
    await go(`#/queues/orders/messages/${other.id}`);
    await press("discard…");
    await press("discard 1 message");
    await until(() => document.querySelector("main .gone") !== null);
    assert.equal(server.world.messages.has(other.id), false);
}, { expects: ["400", "404"] }));

test("all dead messages go some hundred at a time, with progress, and stop when asked", on(async ({ page, go, until, press, server }) => {
    await go("#/queues/orders/messages?state=dead");
    await press("revive all…");
    await page.type("dialog input[name=rate]", "100");
    await press("revive all");
    await until(() => Number(document.querySelector("dialog progress")?.value) >= 100);
    await press("stop");
    await until(() => document.querySelector("dialog")?.textContent?.includes("Stopped."));
    const left = server.world.of("orders", "dead").length;
    assert.ok(left > 800 && left < 1_240, `${left} are left`);
    await press("close");
    await press("revive all…");
    await press("revive all");
    await until(() => document.querySelector("dialog")?.textContent?.includes("All done."));
    const steps = server.log.filter(({ path }) => path.endsWith("/dead/revive")).map(({ body }) => JSON.parse(body).ids.length);
    assert.ok(steps.every((step) => step <= 500) && steps.includes(500), `${steps}`);
    const refused = server.world.of("orders", "dead").length;
    assert.equal(await page.$$eval("dialog .refused tbody tr", (rows) => rows.length), refused);
}));

test("purge, delete and discard-all want the queue's name", on(async ({ page, go, until, press, server }) => {
    await go("#/queues/orders");
    for (const [open, verb] of [["purge…", "purge"], ["delete…", "delete the queue"]]) {
        await press(open);
        await page.type("dialog input[name=typed-name]", "order");
        assert.equal(await page.$eval("dialog button[type=submit]", (button) => button.disabled), true);
        await page.keyboard.press("Enter");
        assert.ok(server.world.queues.has("orders"));
        await page.type("dialog input[name=typed-name]", "s");
        await press(verb);
        await until(() => document.querySelector("dialog .outcome")?.textContent?.includes("are removed."));
        await press("close");
    }
    assert.equal(server.world.queues.has("orders"), false);
    await until(() => document.querySelector("main .refusal")?.textContent?.includes("unknown_queue"));
    await go("#/queues/odd/messages?state=dead");
    await press("discard all…");
    assert.equal(await page.$eval("dialog button[type=submit]", (button) => button.disabled), true);
}, { expects: ["404"] }));

test("a queue is paused with an end and resumed", on(async ({ page, go, until, press, server }) => {
    await go("#/queues/sms");
    await press("pause…");
    await press("pause");
    await until(() => document.querySelector("main .chip.paused") !== null);
    assert.ok(Date.parse(server.world.paused.get("sms")) > Date.now() + 800_000);
    await press("close");
    await press("resume…");
    await press("resume");
    await until(() => document.querySelector("main .chip.paused") === null);
    assert.equal(server.world.paused.has("sms"), false);
}));

test("sinks show state, breakers and lateness, and are tested, paused and resumed", on(async ({ page, go, shows, until, press, server }) => {
    await go("#/");
    await press("sinks", "nav.views");
    await until(() => document.querySelectorAll("main tr[data-row]").length === 3);
    await shows(/running.*shop\.example\.com:443.*open.*1,204,877.*219/s, 'tr[data-row="shop"]');
    await page.keyboard.press("j");
    await page.keyboard.press("Enter");
    await until(() => location.hash === "#/sinks/shop" && document.querySelectorAll("main tr[data-row]").length === 2);
    await shows(/half open.*\d ms/s, 'tr[data-row="orders"]');
    await shows(/http_503212/);
    await press("test…");
    await shows(/-X POST .*\/v1\/sinks\/shop\/test.*dwell sinks test shop/s, "dialog");
    await press("test");
    await until(() => document.querySelector("dialog .outcome")?.textContent === "The destination is reached.");
    await press("close");
    await press("pause…");
    await press("pause");
    await press("close");
    await until(() => document.querySelector("main h1 .chip")?.textContent === "paused");
    await shows(/an operator has requested it/);
    assert.equal(server.world.sinks.get("shop").state, "paused");
    await press("resume…");
    await press("resume");
    await press("close");
    await until(() => document.querySelector("main h1 .chip")?.textContent === "running");
    await go("#/sinks/sms-gateway");
    await shows(/It is ended: .*<b>U\+202E/);
    await press("test…");
    await press("test");
    await until(() => document.querySelector("dialog .outcome")?.textContent === "The destination is not reached: refused: 10.2.0.14:8443 U+202E<b>");
    await go("#/sinks/none");
    await shows(/unknown_sink/);
}, { expects: ["404"] }));

test("schedules show their next instants, and are run, paused, resumed and deleted", on(async ({ page, go, text, shows, until, press, server }) => {
    await go("#/schedules");
    await shows(/report 30 9 \* \* MON-FRI in Europe\/Berlin.*tick every 5m.*year-end paused.*as quartz reads it.*invalid_schedule/s);
    await go("#/schedules/report");
    assert.equal(await page.$$eval(".instants tbody tr", (rows) => rows.length), 10);
    assert.equal(await text("pre.body"), "dailyU+202E<b>");
    await press("run now…");
    await shows(/\/v1\/schedules\/report\/run.*dwell schedules run report/s, "dialog");
    await press("run now");
    await until(() => document.querySelector("dialog .outcome a") !== null);
    const [run] = server.world.of("reports");
    assert.equal(await page.$eval("dialog .outcome a", (link) => link.getAttribute("href")), `#/queues/reports/messages/${run.id}`);
    await press("close");
    await press("run now…");
    await press("run now");
    await until(() => document.querySelector("dialog .refusal")?.textContent?.includes("key_taken"));
    await press("leave it");
    await press("pause…");
    await press("pause");
    await press("close");
    await until(() => document.querySelector("main .chip.paused") !== null);
    assert.equal(server.world.schedules.get("report").paused, true);
    await press("resume…");
    await press("resume");
    await press("close");
    await until(() => document.querySelector("main .chip.paused") === null);
    await press("delete…");
    await shows(/-X DELETE .*dwell schedules delete report/s, "dialog");
    await press("delete");
    await press("close");
    await until(() => document.querySelector("main .refusal")?.textContent?.includes("unknown_schedule"));
    assert.equal(server.world.schedules.has("report"), false);
    await go("#/schedules/tick");
    await shows(/ff00 01/, "pre.hex");
}, { expects: ["404", "409"] }));

test("a message is put, and a second try puts nothing twice", on(async ({ page, go, until, press, server }) => {
    await go("#/queues/new%2Fone/put");
    await page.type("textarea[name=body]", '{"x":1}');
    await page.select("select[name=when]", "delay");
    await page.type("input[name=key]", "k 1");
    server.state.broken = true;
    await press("put");
    await until(() => document.querySelector("main .refusal") !== null);
    const token = server.log.at(-1).path;
    server.state.broken = false;
    await press("put");
    await until(() => document.querySelector("main .outcome") !== null);
    const puts = server.log.filter(({ method, path }) => method === "POST" && path.startsWith("/v1/queues/new%2Fone/messages"));
    assert.equal(puts.length, 2);
    assert.equal(token, puts[0].path);
    const [message] = server.world.of("new/one");
    assert.deepEqual([message.key, message.body.toString()], ["k 1", '{"x":1}']);
    assert.match(server.world.puts.at(-1).idempotencyKey, /^page-[0-9a-f]{32}$/);
    await press("put");
    await until(() => document.querySelector("main .refusal")?.textContent?.includes("key_taken"));
}, { expects: ["503", "409"] }));

test("what others wrote is text, and what cannot be seen is shown", on(async ({ page, go, text, server }) => {
    await page.evaluateOnNewDocument(() => { window.alert = () => { throw new Error("a script of a message ran"); }; });
    const { nasty } = server.world;
    await go("#/queues/odd/messages");
    assert.ok((await text()).includes("<img src=x onerror=alert(1)>"));
    await go(`#/queues/odd/messages/${nasty.markup.id}`);
    assert.ok((await text()).includes("<script>alert(3)</script><b>bold</b>") && (await text()).includes("</td><script>alert(2)</script>"));
    assert.equal(await page.$$eval("main script, main b, main img", (found) => found.length), 0);
    await go(`#/queues/odd/messages/${nasty.rtl.id}`);
    assert.ok((await text()).includes("invoiceU+202Efdp.exe") && (await text("pre")).includes("NULnul"));
    await go(`#/queues/odd/messages/${nasty.number.id}`);
    assert.ok((await text("pre")).includes('"big": 9007199254740993,\n  "twice": 1,\n  "twice": 2,\n  "float": 1.10'));
    await go(`#/queues/odd/messages/${nasty.bytes.id}`);
    assert.ok((await text("pre")).startsWith("00000000  fffe 0001 0241 c328"));
    await go(`#/queues/odd/messages/${nasty.error.id}`);
    assert.ok((await text("pre.error")).startsWith("<h1>503</h1>"));
}));

test("a body is loaded when it is small or asked for, and shown piece by piece", on(async ({ page, go, text, until, press, server }) => {
    const { line, deep } = server.world.nasty;
    await go(`#/queues/odd/messages/${line.id}`);
    assert.ok((await text()).includes("loaded when you ask for it"));
    const bodies = () => server.log.filter(({ path }) => path.endsWith(line.id)).length;
    assert.equal(bodies(), 0);
    await press("load 1.0 MiB");
    await until(() => document.querySelector("pre.body")?.textContent?.length === 65_536);
    await press("more");
    await until(() => document.querySelector("pre.body")?.textContent?.length === 65_536 * 5);
    assert.equal(bodies(), 1);
    const began = Date.now();
    await go(`#/queues/odd/messages/${deep.id}`);
    await until(() => document.querySelector("pre.json") !== null);
    assert.ok(Date.now() - began < 5_000);
}));

test("fragments that are no route, spans that there are not, instants past 9999", on(async ({ go, shows, until, page }) => {
    await go("#/queues/a/b");
    await shows(/There is no such view/);
    await go("#/queues/orders?span=year");
    await shows(/There is no span “year”/);
    await go("#/queues/orders/messages?from=%2B12026-01-01T00%3A00%3A00Z");
    await shows(/due_out_of_range/);
    await go("#/queues/orders/messages?state=sleeping");
    await shows(/invalid_parameter/);
    await go("#/queues/orders/messages/nothing");
    await shows(/message_not_found/);
    await page.evaluate(() => { location.hash = "#/"; });
    await until(() => document.title === "Overview · dwell");
}, { expects: ["400", "404"] }));

test("rows stay where they are under the pointer, and go on when it leaves", on(async ({ page, go, until, server }) => {
    await go("#/queues/orders/messages");
    const row = await page.$("tr[data-row]:nth-child(5)");
    await row.hover();
    const first = await page.$eval("tr[data-row]", (row) => row.getAttribute("data-row"));
    server.world.remove(server.world.messages.get(first));
    await until(() => document.querySelector(".status")?.textContent?.startsWith("rows held since"));
    assert.equal(await page.$eval("tr[data-row]", (row) => row.getAttribute("data-row")), first);
    await page.mouse.move(5, 5);
    await until((first) => document.querySelector("tr[data-row]")?.getAttribute("data-row") !== first, first);
}));

test("a message that is settled under the reader's eyes stays, as it stood last", on(async ({ go, text, until, server }) => {
    const [message] = server.world.of("orders", "leased");
    await go(`#/queues/orders/messages/${message.id}`);
    server.world.remove(message);
    await until(() => document.querySelector("main .gone") !== null);
    assert.ok((await text()).includes(message.key));
}, { expects: ["404"] }));

test("a server that is away makes the page stale, not empty, and it comes back", on(async ({ page, go, shows, until, server }) => {
    await go("#/");
    server.state.broken = true;
    await until(() => document.querySelector(".status.stale")?.textContent?.includes("unavailable"));
    await shows(/orders/);
    server.state.broken = false;
    await until(() => document.querySelector(".status.live") !== null);
}, { expects: ["503"] }));

test("nothing is asked while the page is hidden", on(async ({ page, go, until, server }) => {
    await go("#/queues/orders");
    await page.evaluate(() => {
        Object.defineProperty(document, "visibilityState", { value: "hidden", configurable: true });
        document.dispatchEvent(new Event("visibilitychange"));
    });
    await page.waitForNetworkIdle({ idleTime: 500 });
    const asked = server.log.length;
    // There is no event for the absence of a request: wait longer than the interval to the next one.
    await new Promise((resolve) => setTimeout(resolve, 2_600));
    assert.equal(server.log.length, asked);
    await page.evaluate(() => {
        Object.defineProperty(document, "visibilityState", { value: "visible", configurable: true });
        document.dispatchEvent(new Event("visibilitychange"));
    });
    await page.waitForResponse((response) => response.url().includes("/v1/queues/orders"));
}));

test("a server that has become another version is said to be one", on(async ({ page, go, shows, until, server }) => {
    await go("#/");
    await page.setRequestInterception(true);
    page.on("request", (request) => {
        if (request.url().endsWith("/view-queue.js")) void request.respond({ status: 404, body: "" });
        else void request.continue();
    });
    await page.evaluate(() => { location.hash = "#/queues/orders"; });
    await until(() => document.querySelector("main .refusal")?.textContent?.includes("page_incomplete"));
    await shows(/load the page anew/);
    assert.ok(!server.log.some(({ path }) => path === "/v1/queues/orders"));
    // Firefox reports that the refusal is no script.
}, { expects: ["404", "disallowed MIME type"] }));

const TOKENS = {
    all: ["put:*", "take:*", "manage:*", "look:*", "metrics"],
    looker: ["look:orders"],
    counter: ["metrics"],
    putter: ["put:sms"],
    viewer: ["look:*"],
    manager: ["manage:*"],
};
const refused = { tokens: TOKENS, expects: ["401", "403"] };

test("a token is asked for, kept in the tab alone, and forgotten when it is revoked", on(async ({ page, go, text, until, press, server }) => {
    await page.goto(server.address);
    await until(() => document.querySelector("input[name=token]") !== null);
    await page.type("input[name=token]", "ключ");
    await press("go on");
    await until(() => document.querySelector("main .refusal")?.textContent?.includes("visible ASCII"));
    assert.ok(!server.log.some(({ path }) => path === "/v1/overview"));
    await page.$eval("input[name=token]", (field) => field.select());
    await page.type("input[name=token]", "wrong");
    await press("go on");
    await until(() => document.querySelector("main .refusal")?.textContent?.includes("token_unknown"));
    await page.type("input[name=token]", "all");
    await press("go on");
    await until(() => document.querySelector("main")?.textContent?.includes("Falls due"));
    assert.deepEqual(await page.evaluate(() => [Object.keys(sessionStorage), JSON.stringify(localStorage), document.cookie]), [["dwell.token"], "{}", ""]);
    await go("#/queues/orders");
    await press("purge…");
    assert.ok((await text("dialog")).includes("Bearer $DWELL_TOKEN") && !(await text("dialog")).includes("Bearer all"));
    delete server.state.tokens.all;
    server.state.tokens.other = ["look:*"];
    await until(() => document.querySelector("input[name=token]") !== null && document.querySelector("dialog")?.open === false);
    assert.ok(!(await text()).includes("Falls due"), "nothing is shown on of what was seen with it");
}, { tokens: { ...TOKENS }, expects: ["401"] }));

test("what a token may not do has no button", on(async ({ page, go, shows, until, server }) => {
    const be = async (token, fragment) => {
        await page.evaluate((token) => sessionStorage.setItem("dwell.token", token), token);
        await page.reload();
        await go(fragment);
    };
    const buttons = () => page.$$eval("main button, main a.button", (all) => all.map((button) => button.textContent));
    await page.goto(server.address);
    await be("looker", "#/");
    await shows(/Queues by name/);
    await go("#/queues/orders");
    assert.deepEqual(await buttons(), []);
    await go("#/queues/orders/messages?state=dead");
    assert.equal(await page.$$eval("main input[type=checkbox]", (all) => all.length), 0);
    assert.ok(!(await buttons()).some((name) => name?.includes("all")));
    await be("counter", "#/queues/orders");
    await shows(/no counts or messages/);
    await shows(/Falls due/);
    await go("#/queues/orders/messages");
    await shows(/forbidden/);
    await be("putter", "#/queues/sms");
    assert.deepEqual(await buttons(), ["put a message"]);
    await until(() => document.querySelector(".stats a") === null);
}, refused));

test("sinks and schedules have links and buttons for those alone who may use them", on(async ({ page, go, shows, server }) => {
    const be = async (token, fragment) => {
        await page.evaluate((token) => sessionStorage.setItem("dwell.token", token), token);
        await page.reload();
        await go(fragment);
    };
    const buttons = () => page.$$eval("main .actions button", (all) => all.map((button) => button.textContent));
    const links = () => page.$$eval("nav.views a", (all) => all.map((link) => link.textContent));
    await page.goto(server.address);
    for (const token of ["looker", "counter", "putter"]) {
        await be(token, "#/sinks");
        assert.deepEqual(await links(), ["queues"], token);
        await shows(/forbidden.*manage:\* or look:\*/);
        await go("#/schedules/report");
        await shows(/forbidden/);
        assert.deepEqual(await buttons(), []);
    }
    await be("viewer", "#/sinks/shop");
    assert.deepEqual(await links(), ["queues", "sinks", "schedules"]);
    await shows(/1,204,877/);
    assert.deepEqual(await buttons(), []);
    await go("#/schedules/report");
    await shows(/Next instants/);
    assert.deepEqual(await buttons(), []);
    await be("manager", "#/sinks/shop");
    assert.deepEqual(await buttons(), ["test…", "pause…"]);
    // A run is a put, which managing does not include.
    await go("#/schedules/report");
    assert.deepEqual(await buttons(), ["pause…", "delete…"]);
    await be("all", "#/schedules/year-end");
    assert.deepEqual(await buttons(), ["run now…", "resume…", "delete…"]);
}, refused));

test("axe finds nothing, in any view and theme", on(async ({ page, go, server, press }) => {
    await page.evaluateOnNewDocument(AXE);
    const dead = server.world.of("orders", "dead")[0];
    const views = ["#/", "#/queues", "#/queues/orders", "#/queues/orders/messages", "#/queues/orders/messages?state=leased", "#/queues/orders/messages?state=dead", `#/queues/orders/messages/${dead.id}`, "#/queues/orders/put", "#/search?q=order-41007&queue=orders", "#/search?q=order-41007", "#/sinks", "#/sinks/shop", "#/sinks/sms-gateway", "#/schedules", "#/schedules/report", "#/schedules/tick", "#/nothing"];
    for (const theme of ["light", "dark"]) {
        await setTheme(page, theme);
        for (const view of views) {
            await go("#/");
            await go(view);
            if (view === "#/queues/orders/messages") await page.click("tr[data-row] input");
            await noFindings(page, `${view} ${theme}`);
        }
        await go("#/queues/orders");
        await press("purge…");
        await noFindings(page, `dialog ${theme}`);
    }
}));

async function noFindings(page, where) {
    const found = await page.evaluate(() => window.axe.run(document, { resultTypes: ["violations"] }));
    const said = found.violations.map(({ id, nodes }) => `${id}: ${nodes.slice(0, 3).map(({ html, failureSummary }) => `${html.slice(0, 160)} ${failureSummary}`).join(" | ")}`);
    assert.deepEqual(said, [], where);
}
