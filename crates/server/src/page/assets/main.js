/**
 * The page's entry point: its state, its requests, and the frame around every view.
 * @module
 */

/** @import { Body, Context, View } from "./context.js" */
/** @import { Dialog } from "./dialog.js" */
/** @import { Me, ProblemDocument } from "./types.js" */
/** @import { TimeMode } from "./time.js" */
/** @import { Route } from "./route.js" */
import { api, serverNow, token } from "./api.js";
import { queuePath, segment } from "./command.js";
import { Dialogs, dialogView, helpView } from "./dialog.js";
import { listenToKeys } from "./keys.js";
import { mayLookAll, mayOverview } from "./may.js";
import { h } from "./node.js";
import { codeLink, foreign, nothing, refusal } from "./parts.js";
import { patch } from "./patch.js";
import { Poller, pauseMs } from "./poll.js";
import { Refused, own, problemOf } from "./refused.js";
import { fragment, parseRoute, toMessages, toQueue } from "./route.js";
import { durationText } from "./time.js";
import { overview } from "./view-overview.js";

/** @typedef {View<any> & { merge?: (before: any, next: any) => any, after?: (context: Context, data: any) => void }} AnyView */

/** @type {AnyView} */
const unknown = {
    title: () => "No such view",
    load: async () => ({}),
    show: ({ route }) => [
        h("header", { class: "title" }, h("h1", null, "There is no such view")),
        h("p", null, "The address ", foreign(`#${route.text}`, "code"), " leads nowhere in this page. ", h("a", { href: "#/" }, "The overview")),
    ],
};

/** The views that are there: the others come when they are asked for. @type {Map<Route["view"], AnyView>} */
const views = new Map([["overview", /** @type {AnyView} */ (overview)], ["unknown", unknown]]);

/** @type {Record<string, () => Promise<AnyView>>} */
const COMING = {
    queues: async () => (await import("./view-queues.js")).queues,
    queue: async () => (await import("./view-queue.js")).queue,
    messages: async () => (await import("./view-messages.js")).messages,
    message: async () => (await import("./view-message.js")).message,
    put: async () => (await import("./view-put.js")).put,
    search: async () => (await import("./view-search.js")).search,
    sinks: async () => (await import("./view-sinks.js")).sinks,
    sink: async () => (await import("./view-sink.js")).sink,
    schedules: async () => (await import("./view-schedules.js")).schedules,
    schedule: async () => (await import("./view-schedule.js")).schedule,
};

/**
 * The module of a view. A server that was upgraded has another page, and none of this one's files.
 * @param {Route["view"]} name
 */
async function viewCalled(name) {
    const there = views.get(name);
    if (there !== undefined) return there;
    try {
        const view = await /** @type {() => Promise<AnyView>} */ (COMING[name])();
        views.set(name, view);
        return view;
    } catch {
        throw own(OTHER_VERSION, "a part of the page is not there: the server is away, or has become another version", true);
    }
}

const OTHER_VERSION = "page_incomplete";

/** Kept across tabs and visits; nothing else is. */
const KEPT = { theme: "dwell.theme", mode: "dwell.times" };

const state = {
    route: parseRoute(location.hash),
    /** The route that the data is of: the one before, until the first answer has come. */
    shown: parseRoute(location.hash),
    /** @type {Me | undefined} */
    me: undefined,
    /** @type {any} what was answered last */
    data: undefined,
    /** @type {any} what rows are made of */
    rows: undefined,
    /** @type {ProblemDocument | undefined} why the last question failed */
    failed: undefined,
    failures: 0,
    /** @type {number | undefined} when the last answer came */
    answeredAt: undefined,
    /** @type {number | undefined} since when rows stay as they are */
    heldSince: undefined,
    isPointed: false,
    /** @type {ProblemDocument | undefined} why a token is asked for */
    wantsToken: undefined,
    typedToken: "",
    typedSearch: "",
    isHelpOpen: false,
    said: "",
    /** @type {Set<string>} */
    selected: new Set(),
    /** @type {Record<string, string>} */
    typed: {},
    mode: /** @type {TimeMode} */ (localStorage.getItem(KEPT.mode) ?? "local"),
    theme: localStorage.getItem(KEPT.theme) ?? "auto",
};

const root = /** @type {HTMLElement} */ (document.getElementById("page"));

/** @type {Map<string, Body>} the last bodies, few of them */
const bodies = new Map();
const MOST_BODIES = 8;

/** @param {string} queue @param {string} id */
const bodyName = (queue, id) => `${queue} ${id}`;

/** @param {string} queue @param {string} id */
async function loadBody(queue, id) {
    const name = bodyName(queue, id);
    const keep = (/** @type {Body} */ body) => {
        bodies.delete(name);
        bodies.set(name, body);
        for (const [oldest] of bodies) {
            if (bodies.size <= MOST_BODIES) break;
            bodies.delete(oldest);
        }
        redraw();
    };
    keep({ state: "loading" });
    try {
        keep({ state: "there", bytes: await api().bytes(`${queuePath(queue)}/messages/${segment(id)}`) });
    } catch (error) {
        keep({ state: "refused", problem: problemOf(error) });
    }
}

/** @param {string} queue @param {string} id */
function saveBody(queue, id) {
    const body = bodies.get(bodyName(queue, id));
    if (body?.state !== "there") return;
    // Any content is saved as bytes, and never displayed in the page's origin.
    const address = URL.createObjectURL(new Blob([body.bytes], { type: "application/octet-stream" }));
    const link = document.createElement("a");
    link.href = address;
    link.download = `${id}.bin`;
    link.click();
    URL.revokeObjectURL(address);
}

const dialogs = new Dialogs({
    send: (command) => api().send(command),
    redraw,
    refresh: () => refresh(),
});

/** The name of the view that is shown. */
function viewName() {
    const { route, me } = state;
    const isSmall = route.view === "overview" && me !== undefined && !mayOverview(me);
    return isSmall ? "queues" : route.view;
}

/** The view that is shown, if it is there. */
const viewOf = () => views.get(viewName());

/** Views that are asked for once, known by their names before they are there. */
const isStill = () => ["put", "search", "unknown"].includes(state.route.view);

const poller = new Poller({
    async run(signal) {
        try {
            await ask(signal);
        } catch (error) {
            if (!signal.aborted) fail(error);
            throw error;
        }
    },
    failed(failures) {
        state.failures = failures;
        redraw();
    },
}, { isVisible: () => document.visibilityState === "visible" });

/**
 * Loads the view's data, and shows it.
 * @param {AbortSignal} signal
 */
async function ask(signal) {
    const { route } = state;
    if (state.me === undefined) state.me = await api(signal).get("v1/me");
    const view = await viewCalled(viewName());
    const data = await view.load(api(signal), route, /** @type {Me} */ (state.me));
    signal.throwIfAborted();
    state.data = state.data !== undefined && view.merge !== undefined ? view.merge(state.data, data) : data;
    state.failed = undefined;
    state.failures = 0;
    state.answeredAt = Date.now();
    state.shown = route;
    applyRows(appliesAtOnce);
    appliesAtOnce = false;
    view.after?.(context(), state.data);
    redraw();
}

/** @param {unknown} error */
function fail(error) {
    state.failed = problemOf(error);
    if (!(error instanceof Refused)) console.error(error);
    if (error instanceof Refused && error.problem.status === 401) {
        // Data that was loaded with the removed token is not shown any longer.
        Object.assign(state, { me: undefined, data: undefined, rows: undefined, wantsToken: error.problem });
        bodies.clear();
        dialogs.shown = undefined;
        poller.stop();
    }
}

/**
 * Rows show the last answer, unless the pointer is over them or a dialog is open.
 * @param {boolean} atOnce
 */
function applyRows(atOnce) {
    const isHeld = state.rows !== undefined && !atOnce && (state.isPointed || dialogs.shown !== undefined);
    if (!isHeld) {
        state.rows = state.data;
        state.heldSince = undefined;
    } else if (state.heldSince === undefined) {
        state.heldSince = Date.now();
    }
}

let appliesAtOnce = false;

/** Loads again; changes are shown at once. */
function refresh() {
    appliesAtOnce = true;
    poller.restart();
}

/** @param {Route} next */
function turnTo(next) {
    const before = state.route;
    const isSame = before.view === next.view && before.queue === next.queue && before.id === next.id && before.name === next.name;
    state.route = next;
    if (!isSame) {
        Object.assign(state, { shown: next, data: undefined, rows: undefined, typed: {}, answeredAt: undefined, failed: undefined });
        window.scrollTo(0, 0);
        // Its subject is not visible any more; a running action ends with the present step.
        dialogs.stop();
        dialogs.shown = undefined;
    }
    if (!isSame || before.query.state !== next.query.state) state.selected.clear();
    // A change of the display needs no request.
    const asksFor = (/** @type {Route} */ { query }) => JSON.stringify({ ...query, body: "", sort: "", recent: "" });
    if (isSame && asksFor(before) === asksFor(next)) {
        state.shown = next;
    } else {
        state.typed = {};
        appliesAtOnce = true;
        poller.restart(isStill());
    }
    redraw();
}

/** @returns {Context} */
function context() {
    return {
        route: state.shown,
        me: state.me ?? { scopes: [] },
        now: serverNow(),
        mode: state.mode,
        base: new URL(".", document.baseURI).href,
        hasToken: token.get() !== undefined,
        selected: state.selected,
        typed: state.typed,
        go: (route, replaces = false) => (replaces ? location.replace(route) : location.assign(route)),
        select(id, isSelected) {
            if (isSelected) state.selected.add(id);
            else state.selected.delete(id);
            redraw();
        },
        selectAll(ids, isSelected) {
            for (const id of ids) isSelected ? state.selected.add(id) : state.selected.delete(id);
            redraw();
        },
        type(name, value) {
            state.typed = { ...state.typed, [name]: value };
            redraw();
        },
        open: (/** @type {Dialog} */ dialog) => dialogs.open(dialog),
        refresh,
        redraw,
        copy: (text) => void copy(text),
        send: (command) => api().send(command),
        bodies: {
            of: (queue, id) => bodies.get(bodyName(queue, id)),
            load: (queue, id) => void loadBody(queue, id),
            save: saveBody,
        },
    };
}

/** @param {string} text */
async function copy(text) {
    try {
        await navigator.clipboard.writeText(text);
        say("copied");
    } catch {
        // Without TLS a page has no clipboard.
        const field = document.createElement("textarea");
        field.value = text;
        document.body.append(field);
        field.select();
        say(document.execCommand("copy") ? "copied" : "the browser does not let the page copy");
        field.remove();
    }
}

/** @param {string} text */
function say(text) {
    state.said = text;
    redraw();
    setTimeout(() => {
        if (state.said === text) state.said = "";
        redraw();
    }, 2_000);
}

let isDrawing = false;

/** Draws once, soon: many changes at a time are one. */
function redraw() {
    if (isDrawing) return;
    isDrawing = true;
    queueMicrotask(() => {
        isDrawing = false;
        draw();
    });
}

function draw() {
    const view = viewOf();
    document.documentElement.dataset.theme = state.theme;
    document.title = state.wantsToken === undefined && view !== undefined ? `${view.title(state.route)} · dwell` : "dwell";
    patch(root, [frame(), h("main", { id: "main", key: state.route.view }, inside(view)), modal()]);
    const dialog = root.querySelector("dialog");
    const wantsDialog = dialogs.shown !== undefined || state.isHelpOpen;
    if (dialog !== null && wantsDialog && !dialog.open) dialog.showModal();
    if (dialog !== null && !wantsDialog && dialog.open) dialog.close();
}

/** @param {AnyView | undefined} view */
function inside(view) {
    if (state.wantsToken !== undefined) return [tokenForm(state.wantsToken)];
    if (state.data === undefined || view === undefined) {
        if (state.failed === undefined) return [nothing("loading…")];
        return [refusal(state.failed, h("p", null, again()))];
    }
    try {
        return view.show(context(), state.data, state.rows ?? state.data);
    } catch (error) {
        console.error(error);
        return [refusal(problemOf(error))];
    }
}

function again() {
    const seconds = durationText(pauseMs(state.failures));
    const anew = h("button", { type: "button", key: "anew", onclick: () => location.reload() }, "load the page anew");
    return [
        `It is asked again after ${seconds}. `,
        h("button", { type: "button", key: "now", onclick: () => poller.restart() }, "now"),
        " ",
        state.failed?.code === OTHER_VERSION ? anew : null,
    ];
}

/** @param {ProblemDocument} problem */
function tokenForm(problem) {
    return h("form", { class: "token panel", onsubmit: (event) => {
        event.preventDefault();
        const typed = state.typedToken.trim();
        if (!/^[\x21-\x7e]+$/.test(typed)) {
            state.wantsToken = own("token_unknown", "a token has visible ASCII characters alone", false).problem;
            redraw();
            return;
        }
        token.set(typed);
        Object.assign(state, { wantsToken: undefined, typedToken: "", failed: undefined });
        redraw();
        poller.restart(isStill());
    } }, [
        h("h1", null, "This server asks who is calling"),
        problem.code === "token_required" ? null : h("p", { class: "refusal", role: "alert" }, codeLink(problem.code), " ", foreign(problem.detail)),
        h("label", { class: "field" }, [
            h("span", { class: "label" }, "token"),
            h("input", {
                type: "password",
                name: "token",
                value: state.typedToken,
                autocomplete: "off",
                required: true,
                oninput: (event) => {
                    state.typedToken = event.target.value;
                },
            }),
        ]),
        h("p", { class: "note" }, "It is kept for this tab, until the tab is closed, and sent to this server alone. ", h("code", null, "dwell token new"), " makes one."),
        h("footer", null, h("button", { type: "submit", class: "primary" }, "go on")),
    ]);
}

function frame() {
    const { route } = state;
    const within = ["queue", "messages", "message", "put"].includes(route.view) ? route.queue : route.query.queue;
    return h("header", { class: "masthead", key: "masthead" }, [
        h("a", { class: "skip", href: "#main", onclick: (event) => {
            event.preventDefault();
            const first = root.querySelector("main :is(a, button, input, [tabindex])");
            if (first instanceof HTMLElement) first.focus();
        } }, "skip to the page"),
        h("a", { class: "brand", href: "#/", title: "overview" }, "dwell"),
        h("nav", { class: "views", "aria-label": "views" }, viewLinks()),
        h("nav", { class: "crumbs", "aria-label": "where" }, crumbs()),
        h("form", { class: "search", role: "search", onsubmit: (event) => {
            event.preventDefault();
            const q = state.typedSearch.trim();
            if (q !== "") location.assign(fragment(["search"], { q, queue: within }));
        } }, h("input", {
            type: "search",
            name: "q",
            "aria-label": within === undefined ? "search: queue, number, receipt" : "search: key, id, queue, number, receipt",
            placeholder: within === undefined ? "/  queue, number, receipt" : "/  key, id, number, receipt",
            value: state.typedSearch,
            autocomplete: "off",
            spellcheck: "false",
            oninput: (event) => {
                state.typedSearch = event.target.value;
            },
        })),
        h("div", { class: "tools" }, [status(), tools()]),
    ]);
}

/** Links to lists, as far as the token reads them. */
function viewLinks() {
    const { me, route, wantsToken } = state;
    if (me === undefined || wantsToken !== undefined) return [];
    const all = ["queues", ...(mayLookAll(me) ? ["sinks", "schedules"] : [])];
    return all.map((name) => h("a", { href: fragment([name]), key: name, "aria-current": route.view === name ? "page" : null }, name));
}

function crumbs() {
    const { view, queue, id, name, query } = state.route;
    const here = (/** @type {any} */ text) => h("span", { "aria-current": "page" }, text);
    if (view === "search") return [here("search")];
    if (name !== "") return [here(foreign(name))];
    if (queue === "") return [];
    if (view === "queue") return [here(foreign(queue))];
    const first = h("a", { href: toQueue(queue) }, foreign(queue));
    if (view === "put") return [first, here("put")];
    if (view === "messages") return [first, here(query.state ?? "scheduled")];
    return [first, h("a", { href: toMessages(queue) }, "messages"), here(foreign(id.slice(-12)))];
}

function status() {
    const { failed, answeredAt, heldSince } = state;
    const since = answeredAt === undefined ? "" : ` since ${new Date(answeredAt).toLocaleTimeString()}`;
    const [style, text] = state.said !== ""
        ? ["live", state.said]
        : failed !== undefined && state.wantsToken === undefined
            ? ["stale", `stale${since}: ${failed.code}`]
            : heldSince !== undefined
                ? ["held", `rows held since ${new Date(heldSince).toLocaleTimeString()}`]
                : isStill() || state.wantsToken !== undefined
                    ? ["still", ""]
                    : ["live", "live"];
    return h("span", { class: `status ${style}`, role: "status" }, text);
}

function tools() {
    const select = (/** @type {string} */ label, /** @type {string} */ value, /** @type {[string, string][]} */ choices, /** @type {(value: string) => void} */ change) =>
        h("select", { key: label, "aria-label": label, value, onchange: (event) => change(event.target.value) },
            choices.map(([value, name]) => h("option", { value, key: value }, name)));
    return [
        select("times", state.mode, [["local", "local time"], ["utc", "UTC"], ["relative", "relative"]], (mode) => {
            state.mode = /** @type {TimeMode} */ (mode);
            localStorage.setItem(KEPT.mode, mode);
            redraw();
        }),
        select("theme", state.theme, [["auto", "system theme"], ["light", "light"], ["dark", "dark"]], (theme) => {
            state.theme = theme;
            localStorage.setItem(KEPT.theme, theme);
            redraw();
        }),
        h("button", { type: "button", class: "quiet", key: "help", "aria-label": "keys", onclick: () => {
            state.isHelpOpen = true;
            redraw();
        } }, "?"),
        token.get() === undefined ? null : h("button", { type: "button", class: "quiet", key: "leave", title: state.me?.name, onclick: () => {
            token.forget();
            location.reload();
        } }, "forget token"),
    ];
}

function modal() {
    const { shown } = dialogs;
    const content = shown !== undefined
        ? dialogView(context(), shown, dialogs)
        : state.isHelpOpen
            ? h("form", { onsubmit: (event) => {
                event.preventDefault();
                closeModal();
            } }, helpView(context()), h("footer", null, h("button", { type: "submit" }, "close")))
            : null;
    return h("dialog", { key: "dialog", "aria-labelledby": "dialog-title", oncancel: (event) => {
        event.preventDefault();
        closeModal();
    } }, content);
}

function closeModal() {
    state.isHelpOpen = false;
    if (dialogs.shown !== undefined) {
        const isDone = dialogs.shown.state === "done";
        if (isDone) state.selected.clear();
        dialogs.close();
    }
    redraw();
}

/** @param {boolean} isPointed whether the pointer is over rows */
function pointed(isPointed) {
    if (isPointed === state.isPointed) return;
    state.isPointed = isPointed;
    if (!isPointed && state.heldSince !== undefined) {
        applyRows(dialogs.shown === undefined);
        redraw();
    }
}

listenToKeys(document, {
    help() {
        state.isHelpOpen = true;
        redraw();
    },
    escape() {
        state.selected.clear();
        if (document.activeElement instanceof HTMLElement) document.activeElement.blur();
        redraw();
    },
    isDialogOpen: () => dialogs.shown !== undefined || state.isHelpOpen,
});

document.addEventListener("pointermove", ({ target, pointerType }) => {
    pointed(pointerType === "mouse" && target instanceof Element && target.closest("[data-hold]") !== null);
});
document.documentElement.addEventListener("pointerleave", () => pointed(false));
document.addEventListener("visibilitychange", () => poller.visibility());
addEventListener("hashchange", () => turnTo(parseRoute(location.hash)));
// Relative times are updated, also without requests.
setInterval(() => {
    if (document.visibilityState === "visible") redraw();
}, 1_000);

draw();
poller.restart(isStill());
