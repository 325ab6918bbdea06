/**
 * Dialogs: an action as a sentence, as `curl` and as `dwell`; then its result, with each refusal.
 * @module
 */

/** @import { Command } from "./command.js" */
/** @import { Context } from "./context.js" */
/** @import { Most } from "./node.js" */
/** @import { Sweep } from "./sweep.js" */
/** @import { ProblemDocument } from "./types.js" */
import { curlText } from "./command.js";
import { h } from "./node.js";
import { copyable, foreign, refusal, refusals } from "./parts.js";
import { problemOf } from "./refused.js";
import { STEP, outcome, run } from "./sweep.js";
import { countText } from "./text.js";

/** @typedef {Record<string, string>} Values */

/**
 * @typedef {object} Field
 * @property {string} name
 * @property {string} label
 * @property {"text" | "instant" | "choice" | "number"} kind
 * @property {string} value
 * @property {[value: string, label: string][]} [choices]
 * @property {string} [help]
 * @property {(values: Values) => boolean} [isAsked]
 */

/**
 * @typedef {object} Dialog
 * @property {string} title
 * @property {string} queue or the name of a sink or a schedule
 * @property {string[]} ids the messages that it is about, none for the queue itself
 * @property {string} says what will have happened
 * @property {string} verb
 * @property {boolean} [isDanger]
 * @property {string} [name] has to be typed
 * @property {Field[]} fields
 * @property {(values: Values) => { command: Command, dwell: string } | string} make or what is missing
 * @property {"revive" | "discard"} [sweep]
 * @property {(answer: any) => Most} [done]
 */

/**
 * @typedef {object} Shown
 * @property {Dialog} dialog
 * @property {Values} values
 * @property {string} typedName
 * @property {"asks" | "runs" | "done" | "refused"} state
 * @property {unknown} [answer]
 * @property {ProblemDocument} [problem]
 * @property {Sweep} [sweep]
 */

/** The dialog that is open, if one is. It keeps no element. */
export class Dialogs {
    /** @type {Shown | undefined} */
    shown;
    /** @type {(() => void) | undefined} */
    #stop;

    /**
     * @param {{ send: (command: Command) => Promise<any>, redraw: () => void, refresh: () => void }} around
     */
    constructor(around) {
        this.around = around;
    }

    /** @param {Dialog} dialog */
    open(dialog) {
        const values = Object.fromEntries(dialog.fields.map(({ name, value }) => [name, value]));
        this.shown = { dialog, values, typedName: "", state: "asks" };
        this.around.redraw();
    }

    /** Closes it; a running action is stopped after the present step. */
    close() {
        this.stop();
        this.shown = undefined;
        this.around.refresh();
        this.around.redraw();
    }

    stop() {
        this.#stop?.();
    }

    /** @param {Partial<Shown>} changes */
    change(changes) {
        if (this.shown !== undefined) this.shown = { ...this.shown, ...changes };
        this.around.redraw();
    }

    async confirm() {
        const { shown } = this;
        if (shown === undefined || shown.state === "runs" || !mayRun(shown)) return;
        if (shown.dialog.sweep !== undefined) return this.#sweep(shown);
        const made = shown.dialog.make(shown.values);
        if (typeof made === "string") return;
        this.change({ state: "runs" });
        try {
            const answer = await this.around.send(made.command);
            if (this.shown?.dialog === shown.dialog) this.change({ state: "done", answer });
        } catch (error) {
            if (this.shown?.dialog === shown.dialog) this.change({ state: "refused", problem: problemOf(error) });
        }
        this.around.refresh();
    }

    /** @param {Shown} shown */
    async #sweep({ dialog, values }) {
        let isStopped = false;
        /** @type {() => void} */
        let wake = () => {};
        this.#stop = () => {
            isStopped = true;
            wake();
        };
        this.change({ state: "runs" });
        const perSecond = Number(values.rate);
        const show = (/** @type {Sweep} */ sweep) => {
            if (this.shown?.dialog === dialog) this.change({ sweep });
        };
        const sweep = await run(dialog.queue, dialog.sweep ?? "revive", perSecond > 0 ? perSecond : undefined, {
            send: this.around.send,
            problem: problemOf,
            show,
            isStopped: () => isStopped,
            pause: (ms) => new Promise((resolve) => {
                const timer = setTimeout(resolve, ms);
                wake = () => {
                    clearTimeout(timer);
                    resolve();
                };
                if (isStopped) wake();
            }),
        });
        if (this.shown?.dialog === dialog) this.change({ state: "done", sweep });
        this.#stop = undefined;
        this.around.refresh();
    }
}

/** @param {Shown} shown */
function mayRun({ dialog, values, typedName }) {
    const isNamed = dialog.name === undefined || typedName === dialog.name;
    return isNamed && typeof dialog.make(values) !== "string";
}

/**
 * @param {Context} context
 * @param {Shown} shown
 * @param {Dialogs} dialogs
 */
export function dialogView(context, shown, dialogs) {
    const { dialog, state } = shown;
    return h("form", { class: dialog.isDanger ? "danger" : "", onsubmit: (event) => {
        event.preventDefault();
        if (state === "asks" || state === "refused") void dialogs.confirm();
        else if (state === "done") dialogs.close();
    } }, [
        h("h2", { id: "dialog-title" }, dialog.title, " ", foreign(dialog.queue, "name")),
        state === "asks" || state === "refused" ? asks(context, shown, dialogs) : null,
        state === "runs" || (state === "done" && shown.sweep !== undefined) ? runs(shown) : null,
        state === "done" && shown.sweep === undefined ? isDone(shown) : null,
        state === "refused" && shown.problem !== undefined ? refusal(shown.problem) : null,
        h("footer", null, buttons(shown, dialogs)),
    ]);
}

/** @param {Shown} shown @param {Dialogs} dialogs */
function buttons(shown, dialogs) {
    const { dialog, state } = shown;
    if (state === "runs" && dialog.sweep !== undefined) {
        return [h("button", { type: "button", key: "stop", class: "danger", onclick: () => dialogs.stop() }, "stop")];
    }
    const close = (/** @type {string} */ name) =>
        h("button", { type: "button", key: "close", class: "quiet", onclick: () => dialogs.close() }, name);
    if (state === "done" || state === "runs") return [close("close")];
    const attributes = { type: "submit", key: "do", class: dialog.isDanger ? "danger" : "primary", disabled: !mayRun(shown) };
    return [close("leave it"), h("button", attributes, dialog.verb)];
}

/** @param {Context} context @param {Shown} shown @param {Dialogs} dialogs */
function asks(context, shown, dialogs) {
    const { dialog, values, typedName } = shown;
    const change = (/** @type {string} */ name, /** @type {string} */ value) =>
        dialogs.change({ values: { ...values, [name]: value } });
    const made = dialog.make(values);
    const fields = dialog.fields.filter(({ isAsked }) => isAsked === undefined || isAsked(values));
    return [
        h("p", { key: "says" }, dialog.says),
        fields.map((field) => fieldView(field, values[field.name] ?? "", (value) => change(field.name, value))),
        dialog.name === undefined ? null : h("label", { class: "field", key: "typed-name" }, [
            h("span", { class: "label" }, "to go on, type the queue's name"),
            h("input", {
                type: "text",
                name: "typed-name",
                value: typedName,
                autocomplete: "off",
                autocapitalize: "off",
                spellcheck: "false",
                oninput: (event) => dialogs.change({ typedName: event.target.value }),
            }),
        ]),
        typeof made === "string"
            ? h("p", { class: "missing", key: "made" }, made)
            : h("div", { class: "commands", key: "made" }, [
                copyable(context, "curl", curlText(made.command, context.base, context.hasToken)),
                copyable(context, "dwell", made.dwell),
            ]),
    ];
}

/** @param {Field} field @param {string} value @param {(value: string) => void} change */
export function fieldView({ name, label, kind, choices = [], help }, value, change) {
    const shared = { name, id: `field-${name}`, "aria-describedby": help === undefined ? null : `help-${name}` };
    const types = { text: "text", instant: "datetime-local", number: "number", choice: "" };
    const control = kind === "choice"
        ? h("select", { ...shared, value, onchange: (event) => change(event.target.value) },
            choices.map(([value, label]) => h("option", { value, key: value }, label)))
        : h("input", {
            ...shared,
            type: types[kind],
            value,
            step: kind === "instant" ? 1 : null,
            min: kind === "number" ? 1 : null,
            autocomplete: "off",
            spellcheck: "false",
            oninput: (event) => change(event.target.value),
        });
    return h("div", { class: "field", key: name }, [
        h("label", { class: "label", for: `field-${name}` }, label),
        control,
        help === undefined ? null : h("small", { id: `help-${name}` }, help),
    ]);
}

/** @param {Shown} shown */
function isDone({ dialog, answer }) {
    if (dialog.done !== undefined) return h("p", { class: "outcome", role: "status" }, dialog.done(answer));
    const { done, refusedInAll, refused } = outcome(answer, dialog.ids);
    return h("div", { role: "status" }, [
        h("p", { class: "outcome" }, `${countText(done)} done, ${countText(refusedInAll)} refused.`),
        refusals(dialog.queue, refused, refusedInAll),
    ]);
}

/** @param {Shown} shown */
function runs({ dialog, sweep, state }) {
    if (dialog.sweep === undefined) return h("p", { role: "status" }, "under way…");
    const { seen = 0, done = 0, refusedInAll = 0, refused = [], problem } = sweep ?? {};
    const endings = { running: "", stopped: "Stopped.", done: "All done.", failed: "Ended early." };
    const total = Number(dialog.fields.find(({ name }) => name === "total")?.value ?? 0);
    return h("div", { role: "status" }, [
        h("progress", { max: Math.max(total, seen, 1), value: state === "done" && sweep?.state === "done" ? Math.max(total, seen, 1) : seen, "aria-label": "how far" }),
        h("p", { class: "outcome" }, [
            `${countText(seen)} of about ${countText(Math.max(total, seen))}: ${countText(done)} done, ${countText(refusedInAll)} refused. `,
            endings[sweep?.state ?? "running"],
        ]),
        problem === undefined ? null : refusal(problem),
        refusals(dialog.queue, refused, refusedInAll),
        state === "runs" ? h("p", { class: "note" }, `At most ${STEP} messages a step; Stop ends it after the step that is under way.`) : null,
    ]);
}

/** @param {Context} _ */
export function helpView(_) {
    /** @type {[string, string][]} */
    const keys = [
        ["/", "search"],
        ["j, k", "the next row, the row before"],
        ["x", "select the row, or not"],
        ["Enter", "open the row"],
        ["Escape", "close what is open; unselect all"],
        ["?", "this"],
    ];
    const rows = keys.map(([key, what]) => h("tr", { key }, h("th", { scope: "row" }, h("kbd", null, key)), h("td", null, what)));
    return h("div", null, [
        h("h2", { id: "dialog-title" }, "Keys"),
        h("table", { class: "settings" }, h("tbody", null, rows)),
        h("p", { class: "note" }, "Counts are asked for every 2 s while the page is seen. Rows stay where they are while the pointer is over them."),
    ]);
}
