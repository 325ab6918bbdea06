/**
 * The page in a browser, against real servers over the engine and over Redis: each view and action, bad input, tokens of each
 * scope, restarts, and the three users of docs/page.md.
 */
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { isFirefox, launch, openPage } from "../browser.js";
import { STORES, receiver, serve } from "../server.js";

/** @type {Awaited<ReturnType<typeof launch>>} */
let launched;
before(async () => {
    launched = await launch();
});
after(() => launched.close());

/**
 * Runs a test on a server over each store, with a page of it, and checks that the page had no fault.
 */
function onEach(name, body, { serverOptions = {}, stores = STORES, ...options } = {}) {
    for (const store of stores) {
        test(`${store}: ${name}`, { timeout: 240_000 }, async () => {
            const server = await serve({ store, ...(typeof serverOptions === "function" ? serverOptions() : serverOptions) });
            try {
                const opened = await openPage(launched.browser, server.address, options);
                try {
                    await body({ ...opened, server });
                    assert.deepEqual(opened.faults, []);
                } finally {
                    await opened.close();
                }
            } finally {
                await server.stop();
            }
        });
    }
}

const chip = (state) => [(state) => document.querySelector("main h1 .chip")?.textContent === state, state];

onEach("a developer watches a first delayed message come due", async ({ page, go, text, shows, until, press, server }) => {
    await go("#/");
    await shows(/no queue yet|counted for the first time/);
    await go("#/queues/first/put");
    await page.type("textarea[name=body]", '{"hello":"later"}');
    await page.select("select[name=when]", "delay");
    await page.$eval("input[name=delay]", (field) => field.select());
    await page.type("input[name=delay]", "12s");
    await press("put");
    await until(() => document.querySelector("main .outcome a") !== null);
    await page.click("main .outcome a");
    await until(...chip("scheduled"));
    await shows(/due(in \d|now)/, ".timeline");
    await until(() => document.querySelector("pre.json")?.textContent === '{\n  "hello": "later"\n}');
    await until(...chip("ready"));
    const [taken] = await server.take("first", 1, "&holder=worker%201");
    assert.ok(taken.lateness_ms >= 0);
    await until(...chip("leased"));
    await shows(/held byworker 1/);
    await server.call("POST", `receipts/${taken.receipt}/ack`);
    await until(() => document.querySelector("main .gone") !== null);
    await shows(/It is not there any more: acked/);
}, { expects: ["404"] });

onEach("on call with a key: why order 7 was not closed, and once more", async ({ page, go, text, shows, until, press, server }) => {
    await server.put("orders", Array.from({ length: 30 }, (_, at) => ({ body: `order ${at}`, key: `order-${at}`, max_attempts: 1, ...(at === 7 ? {} : { delay: "1h" }) })));
    const [taken] = await server.take("orders");
    await server.call("POST", `receipts/${taken.receipt}/retry`, { json: { error: "connect ECONNREFUSED 10.2.0.14:8443" } });
    await go("#/queues");
    await page.keyboard.press("j");
    await page.keyboard.press("Enter");
    await until(() => document.title.startsWith("orders"));
    await page.keyboard.press("/");
    await page.keyboard.type("order-7");
    await page.keyboard.press("Enter");
    await until(() => document.querySelector("main")?.textContent?.includes("by key"));
    await page.keyboard.press("Escape");
    await page.keyboard.press("j");
    await page.keyboard.press("Enter");
    await until(...chip("dead"));
    await shows(/attempts spent/);
    assert.equal(await text("pre.error"), "connect ECONNREFUSED 10.2.0.14:8443");
    await press("revive…");
    await shows(new RegExp(`dwell revive orders ${taken.id}`), "dialog");
    await press("revive 1 message");
    await until(() => document.querySelector("dialog")?.textContent?.includes("1 done, 0 refused."));
    await press("close");
    await until(...chip("ready"));
    const [again] = await server.take("orders");
    assert.equal(again.id, taken.id);
    // A receipt from a log leads to the message too, and a number does.
    await go(`#/search?q=${again.receipt}`);
    await until(() => document.querySelector("main")?.textContent?.includes("by receipt"));
    await go(`#/search?q=%23${again.number}`);
    await until(() => document.querySelector("main")?.textContent?.includes("by number"));
    // As it stands now, its queue listed in the overview after a census.
    await go("#/");
    await until(() => document.querySelector('tr[data-row="orders"]') !== null);
});

onEach("support moves one reminder among many", async ({ page, go, text, shows, until, press, server }) => {
    for (let at = 0; at < 6; at += 1) {
        await server.put("reminders", Array.from({ length: 1_000 }, (_, next) => ({ body: "meeting", key: `user-${at * 1_000 + next}`, delay: `${2 + at}h` })));
    }
    await go("#/queues/reminders?span=day");
    await shows(/6,000 in this span, 0 later/);
    await page.keyboard.press("/");
    await page.keyboard.type("user-4321");
    await page.keyboard.press("Enter");
    await until(() => document.querySelector('main tr[data-row], main [data-row]') !== null);
    await page.keyboard.press("Escape");
    await page.keyboard.press("j");
    await page.keyboard.press("Enter");
    await until(() => document.querySelector("main h1")?.textContent?.includes("user-4321"));
    const id = await page.evaluate(() => location.hash.split("/").at(-1));
    await press("reschedule…");
    await page.select("dialog select[name=when]", "at");
    // Seven digits would be typed by hand; the field takes an instant of its own form.
    const at = new Date(Date.now() + 3 * 86_400_000);
    at.setUTCMilliseconds(0);
    await page.$eval("dialog input[name=at]", (field, value) => {
        field.value = value;
        field.dispatchEvent(new Event("input", { bubbles: true }));
    }, await page.evaluate((ms) => {
        const at = new Date(ms);
        const two = (number) => String(number).padStart(2, "0");
        return `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())}T${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}`;
    }, at.getTime()));
    await until(() => document.querySelector("dialog .commands") !== null);
    await press("reschedule 1 message");
    await until(() => document.querySelector("dialog")?.textContent?.includes("1 done, 0 refused."));
    await press("close");
    const moved = await server.get("reminders", id);
    assert.deepEqual([moved.key, moved.state, Date.parse(moved.due)], ["user-4321", "scheduled", at.getTime()]);
    // The others stay, and the list of that instant begins with the one that was moved.
    await go(`#/queues/reminders?span=day`);
    await until(() => document.querySelector("main")?.textContent?.includes("5,999 in this span, 1 later"));
    await go(`#/queues/reminders/messages?from=${encodeURIComponent(new Date(at.getTime() - 60_000).toISOString())}`);
    assert.deepEqual(await page.$$eval("tr[data-row]", (rows) => rows.map((row) => row.getAttribute("data-row"))), [id]);
    // A page of a hundred, and the next.
    await go("#/queues/reminders/messages");
    assert.equal(await page.$$eval("tr[data-row]", (rows) => rows.length), 100);
    const first = await page.$eval("tr[data-row]", (row) => row.getAttribute("data-row"));
    await page.click("a[rel=next]");
    await until((first) => document.querySelectorAll("tr[data-row]").length === 100 && document.querySelector("tr[data-row]").getAttribute("data-row") !== first, first);
});

onEach("messages are cancelled, delivered now, ended, revived and discarded, and queues paused, purged and deleted", async ({ page, go, text, shows, until, press, server }) => {
    const ids = await server.put("jobs", Array.from({ length: 6 }, (_, at) => ({ body: `job ${at}`, delay: `${10 + at}m` })));
    await go("#/queues/jobs/messages");
    for (const id of ids.slice(0, 3)) await page.click(`tr[data-row="${id}"] input`);
    await press("cancel…");
    // A consumer takes one of them while the dialog is open.
    await server.call("POST", `queues/jobs/messages/${ids[1]}/take?lease=10m`);
    await press("cancel 3 messages");
    await until(() => document.querySelector("dialog")?.textContent?.includes("2 done, 1 refused."));
    assert.equal(await page.$eval("dialog a.code", (link) => link.getAttribute("href")), "errors/leased");
    await press("close");
    await go(`#/queues/jobs/messages/${ids[3]}`);
    await press("deliver now…");
    await press("deliver 1 message now");
    await until(() => document.querySelector("dialog")?.textContent?.includes("1 done, 0 refused."));
    await press("close");
    await until(...chip("ready"));
    await go("#/queues/jobs/messages?state=leased");
    await page.click(`tr[data-row="${ids[1]}"] input`);
    await press("end leases…");
    await press("end 1 lease");
    await until(() => document.querySelector("dialog")?.textContent?.includes("1 done, 0 refused."));
    await press("close");
    const ended = await server.get("jobs", ids[1]);
    assert.deepEqual([ended.counts.lapses, ended.state === "leased"], [1, false]);

    // 620 deaths: two steps of 500 at most.
    await server.put("dead", Array.from({ length: 620 }, () => ({ body: "x" })));
    const taken = [];
    while (taken.length < 620) taken.push(...(await server.take("dead", 620 - taken.length)));
    await server.call("POST", "settle", { json: taken.map(({ receipt }) => ({ receipt, action: "bury", reason: "no route" })) });
    await go("#/queues/dead/messages?state=dead");
    await press("revive all…");
    await press("revive all");
    await until(() => document.querySelector("dialog")?.textContent?.includes("All done."));
    await shows(/620 done, 0 refused/, "dialog");
    await press("close");
    assert.deepEqual((({ dead, ready }) => [dead, ready])((await server.stats("dead")).counts), [0, 620]);
    const two = await server.take("dead", 2);
    await server.call("POST", "settle", { json: two.map(({ receipt }) => ({ receipt, action: "bury" })) });
    await go(`#/queues/dead/messages/${two[0].id}`);
    await press("discard…");
    await press("discard 1 message");
    await until(() => document.querySelector("dialog")?.textContent?.includes("1 done, 0 refused."));
    await press("close");
    await until(() => document.querySelector("main .gone") !== null);
    await go("#/queues/dead/messages?state=dead");
    await press("discard all…");
    await page.type("dialog input[name=typed-name]", "dead");
    await press("discard all");
    await until(() => document.querySelector("dialog")?.textContent?.includes("All done."));
    await press("close");

    await go("#/queues/dead");
    await press("pause…");
    await press("pause");
    await until(() => document.querySelector("dialog .outcome")?.textContent?.startsWith("Paused, until 20"));
    await press("close");
    await until(() => document.querySelector("main h1 .chip.paused") !== null);
    assert.notEqual((await server.stats("dead")).settings.pause, "running");
    await press("resume…");
    await press("resume");
    await press("close");
    await until(() => document.querySelector("main h1 .chip.paused") === null);
    for (const [open, verb, removed] of [["purge…", "purge", "618"], ["delete…", "delete the queue", "1"]]) {
        await press(open);
        await page.type("dialog input[name=typed-name]", "dead");
        await press(verb);
        await until((removed) => document.querySelector("dialog .outcome")?.textContent === `${removed} messages are removed.`, removed);
        await press("close");
        // A queue without messages and settings is not there: one more message makes it again.
        if (verb === "purge") await server.put("dead", [{ body: "y", delay: "1h" }]);
    }
    await until(() => document.querySelector("main .refusal")?.textContent?.includes("unknown_queue"));
}, { expects: ["404"] });

{
    /** @type {Awaited<ReturnType<typeof receiver>>} */
    let hook;
    before(async () => { hook = await receiver(); });
    after(() => hook.stop());
    onEach("a sink delivers, is tested, paused and resumed, and its breaker opens", async ({ go, text, shows, until, press, server }) => {
        hook.state.status = 200;
        await server.put("hooked", [{ body: "one" }, { body: "two" }]);
        await go("#/sinks");
        await until(() => /delivered2|2/.test(document.querySelector('tr[data-row="shop"]')?.textContent ?? "") && document.querySelector('tr[data-row="shop"] td:nth-child(6)')?.textContent === "2");
        await go("#/sinks/shop");
        await shows(/webhook to 127\.0\.0\.1:\d+/);
        await until(() => /^\d+(\.\d)? m?s$/.test(document.querySelector('tr[data-row="hooked"] td:nth-child(3)')?.textContent ?? ""));
        await press("test…");
        await press("test");
        await until(() => document.querySelector("dialog .outcome")?.textContent === "The destination is reached.");
        await press("close");
        await press("pause…");
        await press("pause");
        await press("close");
        await until(...chip("paused"));
        await server.put("hooked", [{ body: "three" }]);
        hook.state.status = 503;
        await press("resume…");
        await press("resume");
        await press("close");
        await until(...chip("running"));
        await until(() => document.querySelector("main")?.textContent?.includes("http_503") && document.querySelector(".breaker-open, .breaker-half_open") !== null);
    }, { serverOptions: () => ({ more: `[[sinks]]\nname = "shop"\nqueues = ["hooked"]\nkind = "webhook"\nurl = "${hook.url}"\n` }) });
}

onEach("schedules show their instants, and are run, paused, resumed and deleted", async ({ page, go, text, shows, until, press, server }) => {
    await server.call("PUT", "schedules/report", { json: { queue: "reports", cron: "30 9 * * MON-FRI", zone: "Europe/Berlin", body: "daily", overlap: "skip" } });
    await server.call("PUT", "schedules/tick", { json: { queue: "ticks", every: "1h" } });
    await go("#/schedules");
    await until(() => document.querySelectorAll("tr[data-row]").length === 2);
    // The queue that they are in is dwell's own: it can be read, and has no button.
    await go("#/queues/dwell:schedules/messages");
    await until(() => document.querySelectorAll("tr[data-row]").length === 2);
    assert.deepEqual(await page.$$eval("main input[type=checkbox], main .actions button:not([type=submit])", (all) => all.length), 0);
    await go("#/queues/dwell:schedules");
    assert.equal(await page.$$eval("main .actions *", (all) => all.length), 0);
    await go("#/schedules/report");
    const { instants } = await server.call("GET", "schedules/report/next?count=10");
    assert.deepEqual(await page.$$eval(".instants tbody td:last-child", (cells) => cells.map((cell) => new Date(cell.textContent.replace(" ", "T")).toISOString())), instants);
    await press("run now…");
    await press("run now");
    await until(() => document.querySelector("dialog .outcome a") !== null);
    await press("close");
    assert.equal((await server.stats("reports")).counts.ready, 1);
    await press("run now…");
    await press("run now");
    await until(() => document.querySelector("dialog .refusal")?.textContent?.includes("key_taken"));
    await press("leave it");
    await press("pause…");
    await press("pause");
    await press("close");
    await until(...chip("paused"));
    assert.equal((await server.call("GET", "schedules/report")).paused, true);
    await press("resume…");
    await press("resume");
    await press("close");
    await until(() => document.querySelector("main h1 .chip") === null);
    await press("delete…");
    await press("delete");
    await press("close");
    await until(() => document.querySelector("main .refusal")?.textContent?.includes("unknown_schedule"));
    await shows(/schedules of the store/);
}, { expects: ["404", "409"] });

onEach("what others wrote is text, and bad addresses change nothing", async ({ page, go, text, shows, until, press, server }) => {
    await page.evaluateOnNewDocument(() => { window.alert = () => { throw new Error("a script of a message ran"); }; });
    const markup = "</td><img src=x onerror=alert(1)><script>alert(2)</script>\u202efdp.exe";
    const bytes = (...all) => Buffer.from(all).toString("base64");
    const [odd, nul, raw, line, deep, number] = await server.put("odd", [
        { body: markup, key: markup, headers: { "content-type": "text/html", "x-note": markup }, delay: "1h" },
        { body: "a\u0000b\u0007", key: "nul\u0000", delay: "61m" },
        { body_base64: bytes(0xff, 0xfe, 0, 1, 2, 0x41, 0xc3, 0x28), delay: "62m" },
        { body: "x".repeat(1_048_576), delay: "63m" },
        { body: "[".repeat(100_000) + "]".repeat(100_000), delay: "64m" },
        { body: '{"big":9007199254740993,"twice":1,"twice":2}', delay: "65m" },
    ]);
    const [dying] = await server.put("odd", [{ body: "die" }]);
    const [taken] = await server.take("odd", 1, `&holder=${encodeURIComponent("<b>pod</b>\u202e")}`);
    await go(`#/queues/odd/messages/${dying}`);
    await shows(/held by<b>pod<\/b>U\+202E/);
    await server.call("POST", `receipts/${taken.receipt}/bury`, { json: { reason: `${markup}\u0000` } });
    await until(...chip("dead"));
    assert.ok((await text("pre.error")).includes("<script>alert(2)</script>U+202Efdp.exeNUL"));
    const before = await server.stats("odd");
    await go("#/queues/odd/messages");
    assert.ok((await text()).includes("<img src=x onerror=alert(1)>"));
    await go(`#/queues/odd/messages/${odd}`);
    await until(() => document.querySelector("main pre") !== null);
    assert.ok((await text()).includes("U+202Efdp.exe") && (await text("pre")).includes("<script>alert(2)</script>"));
    assert.equal(await page.$$eval("main script, main img, main td td", (found) => found.length), 0);
    await go(`#/queues/odd/messages/${nul}`);
    await until(() => document.querySelector("main pre")?.textContent === "aNULbU+0007");
    await go(`#/queues/odd/messages/${raw}`);
    await until(() => document.querySelector("main pre")?.textContent?.startsWith("00000000  fffe 0001 0241 c328"));
    await go(`#/queues/odd/messages/${line}`);
    await press("load 1.0 MiB");
    await until(() => document.querySelector("pre.body")?.textContent?.length === 65_536);
    await go(`#/queues/odd/messages/${deep}`);
    await until(() => document.querySelector("pre.json") !== null);
    await go(`#/queues/odd/messages/${number}`);
    await until(() => document.querySelector("pre")?.textContent?.includes('"big": 9007199254740993,\n  "twice": 1,\n  "twice": 2'));
    for (const [address, said] of [
        ["#/queues/a/b", /There is no such view/],
        ["#/queues/odd?span=year", /There is no span “year”/],
        ["#/queues/odd/messages?from=%2B12026-01-01T00%3A00%3A00Z", /due_out_of_range|malformed_instant/],
        ["#/queues/odd/messages?from=yesterday", /malformed_instant/],
        ["#/queues/odd/messages?state=sleeping", /invalid_parameter/],
        ["#/queues/odd/messages?cursor=x", /malformed_cursor|invalid_cursor|invalid_parameter/],
        ["#/queues/odd/messages/nothing", /malformed_id|message_not_found|invalid/],
        ["#/queues/%3Cimg%20src%3Dx%3E", /invalid_queue_name.*<img src=x>|<img src=x>.*invalid_queue_name/s],
        ["#/queues/none", /unknown_queue/],
        ["#/queues?prefix=%00", /invalid/],
        ["#/sinks/none", /unknown_sink/],
        ["#/schedules/none", /unknown_schedule/],
    ]) {
        await go(address);
        await shows(said);
    }
    assert.deepEqual((await server.stats("odd")).counts, before.counts);
}, { expects: ["400", "404"] });

const SCOPES = {
    root: ["put:*", "take:*", "manage:*", "look:*", "metrics"],
    putter: ["put:orders"],
    taker: ["take:orders"],
    manager: ["manage:orders"],
    looker: ["look:orders"],
    counter: ["metrics"],
};

onEach("a token sees and does what its scope allows, and nothing once it is revoked", async ({ page, go, text, shows, until, press, server }) => {
    const [id] = await server.put("orders", [{ body: "x", delay: "1h" }]);
    await server.put("other", [{ body: "x", delay: "1h" }]);
    const buttons = () => page.$$eval("main button, main a.button", (all) => all.map((button) => button.textContent).filter((name) => name.endsWith("…") || name === "put a message"));
    await page.goto(server.address);
    await until(() => document.querySelector("input[name=token]") !== null);
    for (const [name, ofQueue, ofMessage] of [
        ["putter", ["put a message"], undefined],
        ["taker", [], []],
        ["manager", ["pause…", "purge…", "delete…"], ["deliver now…", "reschedule…", "cancel…"]],
        ["looker", [], []],
        ["counter", [], undefined],
    ]) {
        await page.evaluate((token) => sessionStorage.setItem("dwell.token", token), `secret-${name}`);
        await page.reload();
        await go("#/queues/orders");
        assert.deepEqual(await buttons(), ofQueue, name);
        assert.equal((await text()).includes("no counts or messages"), name === "counter", name);
        await go(`#/queues/orders/messages/${id}`);
        if (ofMessage === undefined) await shows(/forbidden/);
        else assert.deepEqual(await buttons(), ofMessage, name);
        // A queue that the token does not allow is as if it were not there.
        await go("#/queues");
        assert.equal((await text()).includes("other"), false, name);
        await go("#/");
        assert.equal((await text()).includes("Falls due"), name === "counter", name);
        await go("#/schedules");
        await shows(/forbidden/);
    }
    await page.evaluate(() => sessionStorage.setItem("dwell.token", "secret-root"));
    await page.reload();
    await go(`#/queues/orders/messages/${id}`);
    await press("cancel…");
    const { root, ...others } = SCOPES;
    await server.changeTokens({ successor: root, ...others });
    await until(() => document.querySelector("input[name=token]") !== null && document.querySelector("dialog")?.open === false);
    await shows(/token_unknown/);
    assert.equal((await server.get("orders", id)).state, "scheduled");
    await page.type("input[name=token]", "secret-successor");
    await press("go on");
    await until(...chip("scheduled"));
}, { serverOptions: { tokens: SCOPES }, expects: ["401", "403"] });

onEach("a server that is killed and starts again makes the page stale, and it comes back", async ({ go, text, shows, until, server }) => {
    const [id] = await server.put("orders", [{ body: "kept", key: "order-7", delay: "1h" }]);
    await go(`#/queues/orders/messages/${id}`);
    await until(...chip("scheduled"));
    await server.kill();
    await until(() => document.querySelector(".status.stale")?.textContent?.includes("unreachable"));
    await shows(/order-7/);
    await server.startAgain();
    await until(() => document.querySelector(".status.live") !== null);
    await shows(/order-7 scheduled/, "main h1");
    // The page acts on the new process.
    await server.call("DELETE", `queues/orders/messages/${id}`);
    await until(() => document.querySelector("main .gone") !== null);
}, { expects: ["404", "Failed to load resource", "CORS"] });

// With DWELL_BARS=1 also: usable within a second on a processor slowed four times. Without it the times are only printed,
// since what else runs on the machine decides them.
test("engine: the first view is small and names no other host", { skip: isFirefox && "Firefox cannot slow a processor, and does not say how many bytes came" }, async () => {
    const server = await serve({ store: "engine" });
    try {
        await server.put("orders", Array.from({ length: 50 }, () => ({ body: "x", delay: "30m" })));
        const times = [];
        let sent = 0;
        // The best of a few: what else runs on the machine takes its share.
        for (let round = 0; round < 5; round += 1) {
            const { page, faults, close } = await openPage(launched.browser, server.address);
            const session = await page.createCDPSession();
            await session.send("Network.enable");
            sent = 0;
            session.on("Network.loadingFinished", ({ encodedDataLength }) => { sent += encodedDataLength; });
            await page.emulateCPUThrottling(4);
            await page.goto(`${server.address}#/`);
            await page.waitForFunction(() => document.querySelector("main .stats") !== null, { timeout: 30_000, polling: "mutation" });
            times.push(await page.evaluate(() => performance.now()));
            await page.emulateCPUThrottling(1);
            assert.deepEqual(faults, []);
            await close();
        }
        console.log(`# first view: ${sent} bytes, usable after ${times.map(Math.round).join(", ")} ms`);
        assert.ok(sent > 10_000 && sent <= 60_000, `${sent} bytes`);
        if (process.env.DWELL_BARS === "1") assert.ok(Math.min(...times) <= 1_000, `${times} ms`);
    } finally {
        await server.stop();
    }
});
