/**
 * A browser, and pages of it that fail on what a page of dwell must never do: an error in the console, a report of its policy, a
 * request to another host, an answer of 5xx that nobody expects.
 */
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import puppeteer from "puppeteer-core";

/** Without these, Chromium talks to its maker's hosts. */
const QUIET = ["--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync"];

export async function launch() {
    const profile = mkdtempSync(join(tmpdir(), "dwell-page-"));
    const browser = await puppeteer.launch({
        executablePath: process.env.DWELL_CHROMIUM ?? "/usr/bin/chromium",
        headless: true,
        userDataDir: profile,
        // Root has no sandbox of Chromium's.
        args: [...QUIET, ...(process.getuid() === 0 ? ["--no-sandbox"] : [])],
    });
    return { browser, close: async () => { await browser.close(); rmSync(profile, { recursive: true, force: true }); } };
}

/**
 * A page of its own context, and the faults that it has had. `expects` are texts of faults that the test brings about itself.
 */
export async function openPage(browser, address, { width = 1280, height = 900, theme = "light", expects = [] } = {}) {
    const context = await browser.createBrowserContext();
    const page = await context.newPage();
    const faults = [];
    const fault = (text) => {
        if (!expects.some((expected) => text.includes(expected))) faults.push(text);
    };
    page.on("console", (message) => { if (message.type() === "error" || message.type() === "warn") fault(`console: ${message.text()}`); });
    page.on("pageerror", (error) => fault(`error: ${error.message}`));
    page.on("request", (request) => {
        // Chromium draws its own fields with data: images.
        const own = request.url().startsWith(address) || request.url().startsWith("blob:") || request.url().startsWith("data:");
        if (!own) fault(`foreign request: ${request.url()}`);
    });
    page.on("response", (response) => { if (response.status() >= 500) fault(`${response.status()}: ${response.url()}`); });
    await page.setViewport({ width, height, deviceScaleFactor: 1 });
    await page.emulateMediaFeatures([{ name: "prefers-color-scheme", value: theme }]);
    const go = async (fragment) => {
        await page.goto(address + fragment);
        await page.waitForFunction(() => document.querySelector("main")?.textContent !== "loading…", { timeout: 10_000 });
        // What is drawn after the first answer: a body, say.
        await page.waitForNetworkIdle({ idleTime: 100, timeout: 10_000 }).catch(() => {});
    };
    return { page, faults, go, close: () => context.close() };
}
