/**
 * A form that puts a message.
 * @module
 */

/** @import { Context, View } from "./context.js" */
/** @import { Field, Values } from "./dialog.js" */
/** @import { PutFields } from "./command.js" */
import { whenFields, whenOf } from "./actions.js";
import { curlText, dwell, put as putCommand } from "./command.js";
import { fieldView } from "./dialog.js";
import { mayPut } from "./may.js";
import { h } from "./node.js";
import { copyable, foreign, instant, nothing, refusal } from "./parts.js";
import { problemOf } from "./refused.js";
import { toMessage, toQueue } from "./route.js";
import { typedInstant } from "./time.js";

/** @typedef {{}} Data */

/** @param {Context} context @returns {Field[]} */
const fields = (context) => [
    ...whenFields(context, true),
    { name: "key", label: "key", kind: "text", value: "", help: "your own name for it, unique among the queue's live messages" },
    {
        name: "conflict",
        label: "if the key is taken",
        kind: "choice",
        value: "reject",
        choices: [["reject", "refuse"], ["replace", "replace the other"], ["keep", "keep the other, the earlier instant wins"]],
        isAsked: ({ key = "" }) => key !== "",
    },
    { name: "type", label: "content type", kind: "text", value: "application/json" },
    { name: "priority", label: "priority", kind: "number", value: "", help: "smaller first; empty for 1024" },
    { name: "attempts", label: "attempts", kind: "text", value: "", help: "a number or unlimited; empty for the queue's" },
    { name: "lease", label: "lease", kind: "text", value: "", help: "with units: 30s, 5m; empty for the queue's" },
    { name: "expires", label: "expires", kind: "instant", value: "", help: "dead if nobody has taken it by then" },
];

/**
 * @param {Context} context
 * @param {Values} values
 * @returns {PutFields | string} or what is missing
 */
export function fieldsOf(context, values) {
    const when = whenOf(context, values);
    if (typeof when === "string") return when;
    const { body = "", type = "", key = "", conflict = "reject", priority = "", attempts = "", lease = "", expires = "", idempotencyKey = "" } = values;
    const until = expires === "" ? "" : typedInstant(expires, context.mode);
    if (until === undefined) return "Say when it expires, or leave it empty.";
    const shared = { body, contentType: type.trim(), when, key, onConflict: conflict, priority, lease: lease.trim() };
    return { ...shared, expires: until, maxAttempts: attempts.trim(), idempotencyKey };
}

/** @type {View<Data>} */
export const put = {
    title: ({ queue }) => `${queue} · put`,
    load: async () => ({}),

    show(context) {
        const { route, typed } = context;
        const asked = fields(context);
        const values = { ...Object.fromEntries(asked.map(({ name, value }) => [name, value])), ...typed };
        const made = fieldsOf(context, values);
        const command = typeof made === "string" ? undefined : putCommand(route.queue, made);
        return [
            h("header", { class: "title", key: "title" }, h("h1", null, "Put a message into ", h("a", { href: toQueue(route.queue) }, foreign(route.queue)))),
            mayPut(context.me, route.queue) ? null : nothing("The token may not put into this queue."),
            h("form", { class: "put panel", key: "put", onsubmit: (event) => {
                event.preventDefault();
                if (command !== undefined) void send(context, command);
            } }, [
                h("label", { class: "field wide" }, [
                    h("span", { class: "label" }, "body"),
                    h("textarea", {
                        name: "body",
                        rows: 8,
                        spellcheck: "false",
                        value: values.body ?? "",
                        oninput: (event) => context.type("body", event.target.value),
                    }),
                ]),
                h("div", { class: "fields" }, asked
                    .filter(({ isAsked }) => isAsked === undefined || isAsked(values))
                    .map((field) => fieldView(field, values[field.name] ?? "", (value) => context.type(field.name, value)))),
                typeof made === "string" || command === undefined
                    ? h("p", { class: "missing" }, typeof made === "string" ? made : "")
                    : h("div", { class: "commands" }, [
                        copyable(context, "curl", curlText(command, context.base, context.hasToken)),
                        copyable(context, "dwell", dwell.put(route.queue, made)),
                    ]),
                outcome(context),
                h("footer", null, h("button", { type: "submit", class: "primary", disabled: command === undefined || !mayPut(context.me, route.queue) || typed.state === "runs" }, "put")),
            ]),
        ];
    },
};

/** @param {Context} context @param {import("./command.js").Command} command */
async function send(context, command) {
    // The same key until an answer has arrived: a retry after a failure puts nothing twice.
    const idempotencyKey = context.typed.idempotencyKey || randomKey();
    context.type("idempotencyKey", idempotencyKey);
    context.type("state", "runs");
    try {
        const answer = await context.send({ ...command, headers: { ...command.headers, "Idempotency-Key": idempotencyKey } });
        context.type("answer", JSON.stringify({ answer }));
        context.type("idempotencyKey", "");
    } catch (error) {
        context.type("answer", JSON.stringify({ problem: problemOf(error) }));
    }
    context.type("state", "");
}

/** 128 random bits. `randomUUID` is not there on a page that is not served by TLS. */
function randomKey() {
    const bytes = crypto.getRandomValues(new Uint8Array(16));
    return `page-${Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("")}`;
}

/** @param {Context} context */
function outcome(context) {
    if (context.typed.answer === undefined || context.typed.answer === "") return null;
    const { answer, problem } = JSON.parse(context.typed.answer);
    if (problem !== undefined) return refusal(problem);
    return h("p", { class: "outcome", role: "status" }, [
        `${answer.outcome}: `,
        h("a", { href: toMessage(context.route.queue, answer.id) }, foreign(`#${answer.number}`)),
        ", due ",
        instant(context, answer.due),
    ]);
}
