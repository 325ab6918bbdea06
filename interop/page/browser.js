/**
 * A browser, and pages that fail on what a page of dwell must never cause: an error in the console, a violation of its content
 * policy, a request to another host, an unexpected answer of 5xx.
 */
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import puppeteer from "puppeteer-core";

/** Without these, Chromium sends requests to its vendor's hosts. */
const QUIET = ["--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync"];

export async function launch() {
    const profile = mkdtempSync(join(tmpdir(), "dwell-page-"));
    const browser = await puppeteer.launch({
        executablePath: process.env.DWELL_CHROMIUM ?? "/usr/bin/chromium",
        headless: true,
        userDataDir: profile,
        // Chromium's sandbox does not work for root.
        args: [...QUIET, ...(process.getuid() === 0 ? ["--no-sandbox"] : [])],
    });
    return { browser, close: async () => { await browser.close(); rmSync(profile, { recursive: true, force: true }); } };
}

/**
 * A page in its own browser context, and its faults so far. `expects` are texts of faults that the test causes on purpose.
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
        // Chromium uses data: images for its own form fields.
        const own = request.url().startsWith(address) || request.url().startsWith("blob:") || request.url().startsWith("data:");
        if (!own) fault(`foreign request: ${request.url()}`);
    });
    page.on("response", (response) => { if (response.status() >= 500) fault(`${response.status()}: ${response.url()}`); });
    await page.setViewport({ width, height, deviceScaleFactor: 1 });
    await page.emulateMediaFeatures([{ name: "prefers-color-scheme", value: theme }]);
    const go = async (fragment) => {
        await page.goto(address + fragment);
        await page.waitForFunction(() => document.querySelector("main")?.textContent !== "loading…", { timeout: 10_000 });
        // Later requests for what the view shows, such as a body.
        await page.waitForNetworkIdle({ idleTime: 100, timeout: 10_000 }).catch(() => {});
    };
    return { page, faults, go, close: () => context.close() };
}
