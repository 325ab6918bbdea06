/**
 * A browser, and pages that fail on what a page of dwell must never cause: an error in the console, a violation of its content
 * policy, a request to another host, an unexpected answer of 5xx.
 *
 * The browser is Debian's Chromium, or its Firefox ESR with `DWELL_BROWSER=firefox`. What they cannot do alike is here:
 * - Firefox keeps violations of the content policy out of what WebDriver BiDi reports, so the document's own event of them is
 *   counted, in both.
 * - Firefox emulates no media feature over WebDriver BiDi: its theme is that of the page's own choice.
 * - Firefox cannot slow a processor: the time to the first view is measured in Chromium alone.
 */
import assert from "node:assert/strict";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import puppeteer from "puppeteer-core";

/** Without these, Chromium sends requests to its vendor's hosts. */
const QUIET = ["--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync"];

export const isFirefox = process.env.DWELL_BROWSER === "firefox";

/** How long a browser may take to start on a machine that is busy. */
const START_MS = 180_000;

/** How long a test waits for what the page should show. */
const WAIT_MS = 60_000;

/** How long it waits for requests that follow the first ones. */
const IDLE_MS = 5_000;

export async function launch() {
    if (isFirefox) {
        const browser = await puppeteer.launch({
            browser: "firefox",
            executablePath: process.env.DWELL_FIREFOX ?? "/usr/bin/firefox-esr",
            headless: true,
            timeout: START_MS,
            extraPrefsFirefox: { "datareporting.policy.dataSubmissionEnabled": false, "network.captive-portal-service.enabled": false },
        });
        return { browser, close: () => browser.close() };
    }
    const profile = mkdtempSync(join(tmpdir(), "dwell-page-"));
    const browser = await puppeteer.launch({
        executablePath: process.env.DWELL_CHROMIUM ?? "/usr/bin/chromium",
        headless: true,
        timeout: START_MS,
        userDataDir: profile,
        // Chromium's sandbox does not work for root.
        args: [...QUIET, ...(process.getuid() === 0 ? ["--no-sandbox"] : [])],
    });
    return { browser, close: async () => { await browser.close(); rmSync(profile, { recursive: true, force: true }); } };
}

/**
 * A page in its own browser context, its faults so far, and what tests do with it. `expects` are texts of faults that the test
 * causes on purpose.
 */
export async function openPage(browser, address, { width = 1280, height = 900, theme = "light", expects = [] } = {}) {
    const context = await browser.createBrowserContext();
    const page = await context.newPage();
    page.setDefaultTimeout(START_MS);
    const faults = [];
    const fault = (text) => {
        if (!expects.some((expected) => text.includes(expected))) faults.push(text);
    };
    page.on("console", (message) => { if (message.type() === "error" || message.type() === "warn") fault(`console: ${message.text()}`); });
    page.on("pageerror", (error) => fault(`error: ${error.message}`));
    page.on("request", (request) => {
        // Chromium uses data: images for its own form fields.
        const own = request.url().startsWith(address) || request.url().startsWith("blob:") || request.url().startsWith("data:");
        if (!own) fault(`foreign request: ${request.url()}`);
    });
    page.on("response", (response) => { if (response.status() >= 500) fault(`${response.status()}: ${response.url()}`); });
    await page.setViewport({ width, height, deviceScaleFactor: 1 });
    await page.evaluateOnNewDocument(() => {
        document.addEventListener("securitypolicyviolation", ({ violatedDirective, blockedURI }) => console.error(`content policy: ${violatedDirective} ${blockedURI}`));
    });
    await setTheme(page, theme);
    const go = async (fragment) => {
        await page.goto(address + fragment);
        await page.waitForFunction(() => !["", "loading…"].includes(document.querySelector("main")?.textContent ?? ""), { timeout: WAIT_MS });
        // Later requests for what the view shows, such as a body.
        // A request that a reload has cut off may count as pending for ever.
        await page.waitForNetworkIdle({ idleTime: 100, timeout: IDLE_MS }).catch(() => {});
    };
    const text = (selector = "main") => page.$eval(selector, (element) => element.textContent ?? "");
    /** Waits until the element's text matches; if it does not in time, the text that is there is what the assertion shows. */
    const shows = async (wanted, selector = "main") => {
        const matches = ([source, flags, selector]) => new RegExp(source, flags).test(document.querySelector(selector)?.textContent ?? "");
        await page.waitForFunction(matches, { timeout: WAIT_MS, polling: 50 }, [wanted.source, wanted.flags, selector])
            .catch(async () => assert.match(await text(selector), wanted));
    };
    const until = (what, ...given) => page.waitForFunction(what, { timeout: WAIT_MS, polling: 50 }, ...given);
    /** Clicks the button of this name in the open dialog, else in the page, as soon as it is there and enabled. */
    const press = async (name, within = "main, dialog[open]") => {
        const handle = await page.waitForFunction(
            (name, within) => [...document.querySelectorAll(within)].reverse()
                .flatMap((place) => [...place.querySelectorAll("button, a.button, .views a")])
                .find((button) => button.textContent === name && !button.disabled),
            { timeout: WAIT_MS }, name, within,
        );
        await handle.click();
    };
    return { page, faults, go, text, shows, until, press, close: () => context.close() };
}

/** The theme of pages that are loaded from now on. */
export async function setTheme(page, theme) {
    if (isFirefox) {
        await page.evaluateOnNewDocument((theme) => {
            // Firefox runs this in the page's first empty document too, which has no storage.
            if (location.protocol !== "http:") return;
            // Firefox without a display is light.
            if (theme === "light") localStorage.removeItem("dwell.theme");
            else localStorage.setItem("dwell.theme", theme);
        }, theme);
    } else {
        await page.emulateMediaFeatures([{ name: "prefers-color-scheme", value: theme }]);
    }
}
