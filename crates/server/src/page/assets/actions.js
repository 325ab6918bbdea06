/**
 * Actions, as dialogs that ask for confirmation.
 * @module
 */

/** @import { Context } from "./context.js" */
/** @import { Dialog, Field, Values } from "./dialog.js" */
/** @import { When } from "./command.js" */
/** @import { LeaseRef } from "./types.js" */
import * as make from "./command.js";
import { dwell } from "./command.js";
import { STEP } from "./sweep.js";
import { countText } from "./text.js";
import { inputInstant, typedInstant } from "./time.js";

/** @param {string[]} ids */
const messages = (ids) => (ids.length === 1 ? "1 message" : `${countText(ids.length)} messages`);

/**
 * The fields of an instant: at once, after a delay, at an instant.
 * @param {Context} context
 * @param {boolean} withNow
 * @returns {Field[]}
 */
export function whenFields(context, withNow) {
    const zone = context.mode === "utc" ? "UTC" : "your own zone";
    return [
        {
            name: "when",
            label: "due",
            kind: "choice",
            value: withNow ? "now" : "delay",
            choices: [...(withNow ? /** @type {[string, string][]} */ ([["now", "at once"]]) : []), ["delay", "after a delay"], ["at", "at an instant"]],
        },
        {
            name: "delay",
            label: "delay",
            kind: "text",
            value: "15m",
            help: "with units: 250ms, 30m, 1h30m, 7d",
            isAsked: ({ when }) => when === "delay",
        },
        {
            name: "at",
            label: `instant, in ${zone}`,
            kind: "instant",
            value: inputInstant(context.now + 3_600_000, context.mode),
            isAsked: ({ when }) => when === "at",
        },
    ];
}

/**
 * Their value; an error text where it is invalid.
 * @param {Context} context
 * @param {Values} values
 * @returns {When | undefined | string}
 */
export function whenOf(context, { when, delay = "", at = "" }) {
    if (when === "now") return undefined;
    if (when === "delay") return delay.trim() === "" ? "Say after what delay: 30m, 1h30m." : { delay: delay.trim() };
    const due = typedInstant(at, context.mode);
    return due === undefined ? "Say at which instant." : { due };
}

/** @param {Context} _ @param {string} queue @param {string[]} ids @returns {Dialog} */
export const cancelDialog = (_, queue, ids) => ({
    title: `Cancel ${messages(ids)} of`,
    queue,
    ids,
    says: "What is cancelled is gone and comes back by no means. A message that somebody holds, or that is dead, is refused.",
    verb: `cancel ${messages(ids)}`,
    isDanger: true,
    fields: [],
    make: () => ({ command: make.cancel(queue, ids), dwell: dwell.cancel(queue, ids) }),
});

/** @param {Context} context @param {string} queue @param {string[]} ids @returns {Dialog} */
export const rescheduleDialog = (context, queue, ids) => ({
    title: `Reschedule ${messages(ids)} of`,
    queue,
    ids,
    says: "Each keeps its id, its key and its body, and is due at the new instant.",
    verb: `reschedule ${messages(ids)}`,
    fields: whenFields(context, false),
    make: (values) => {
        const when = whenOf(context, values);
        if (typeof when === "string" || when === undefined) return when ?? "Say when.";
        return { command: make.reschedule(queue, ids, when), dwell: dwell.reschedule(queue, ids, when) };
    },
});

/** @param {Context} _ @param {string} queue @param {string[]} ids @returns {Dialog} */
export const deliverDialog = (_, queue, ids) => ({
    title: `Deliver ${messages(ids)} now, of`,
    queue,
    ids,
    says: "Each is due at once, and goes to the next take. A queue that is paused hands out nothing.",
    verb: `deliver ${messages(ids)} now`,
    fields: [],
    make: () => ({
        command: make.reschedule(queue, ids, { delay: "0s" }),
        dwell: dwell.reschedule(queue, ids, { delay: "0s" }),
    }),
});

/** @param {Context} context @param {string} queue @param {string[]} ids @returns {Dialog} */
export const reviveDialog = (context, queue, ids) => ({
    title: `Revive ${messages(ids)} of`,
    queue,
    ids,
    says: "Each is scheduled again, with all its attempts before it. One whose key has a new owner is refused.",
    verb: `revive ${messages(ids)}`,
    fields: whenFields(context, true),
    make: (values) => {
        const when = whenOf(context, values);
        if (typeof when === "string") return when;
        return { command: make.revive(queue, ids, when), dwell: dwell.revive(queue, ids, when) };
    },
});

/** @param {Context} _ @param {string} queue @param {string[]} ids @returns {Dialog} */
export const discardDialog = (_, queue, ids) => ({
    title: `Discard ${messages(ids)} of`,
    queue,
    ids,
    says: "What is discarded is gone and comes back by no means. One that is not dead is refused.",
    verb: `discard ${messages(ids)}`,
    isDanger: true,
    fields: [],
    make: () => ({ command: make.discard(queue, ids), dwell: dwell.discard(queue, ids) }),
});

/**
 * The leases are those that were shown: a message that was taken again since is refused.
 * @param {Context} _
 * @param {string} queue
 * @param {LeaseRef[]} leases
 * @returns {Dialog}
 */
export const expireLeasesDialog = (_, queue, leases) => {
    const what = leases.length === 1 ? "1 lease" : `${countText(leases.length)} leases`;
    return {
        title: `End ${what} of`,
        queue,
        ids: leases.map(({ id }) => id),
        says: "As if its deadline were now: an attempt is spent, the holder's receipt is good for nothing, and the message is ready, scheduled or dead. " +
            "If its holder works on, it is done twice. One that somebody else has taken since is refused.",
        verb: `end ${what}`,
        isDanger: true,
        fields: [],
        make: () => ({ command: make.expireLeases(queue, leases), dwell: dwell.expireLeases(queue, leases) }),
    };
};

/**
 * All dead messages, a few hundred at a time.
 * @param {Context} _
 * @param {string} queue
 * @param {"revive" | "discard"} what
 * @param {number} total
 * @returns {Dialog}
 */
export const sweepDialog = (_, queue, what, total) => ({
    title: `${what === "revive" ? "Revive" : "Discard"} all dead messages of`,
    queue,
    ids: [],
    says: what === "revive"
        ? `All that are dead, about ${countText(total)}, are due at once again, ${STEP} a step. A rate spares whoever takes them.`
        : `All that are dead, about ${countText(total)}, are gone for good, ${STEP} a step.`,
    verb: `${what} all`,
    isDanger: what === "discard",
    ...(what === "discard" ? { name: queue } : {}),
    fields: [
        { name: "rate", label: "messages a second at most", kind: "number", value: "", help: "empty for as fast as it goes" },
        { name: "total", label: "", kind: "text", value: String(total), isAsked: () => false },
    ],
    sweep: what,
    make: ({ rate = "" }) => {
        if (rate !== "" && !(Number(rate) > 0)) return "A rate is more than nothing, or empty.";
        return {
            command: { method: "POST", path: `${make.queuePath(queue)}/dead/${what}`, json: { all: true } },
            dwell: `dwell ${what} ${make.quoted(queue)} --all`,
        };
    },
});

/** @param {Context} context @param {string} queue @returns {Dialog} */
export const pauseDialog = (context, queue) => ({
    title: "Pause",
    queue,
    ids: [],
    says: "The queue goes on to take puts and hands out nothing. What is leased may be settled.",
    verb: "pause",
    fields: [
        {
            name: "end",
            label: "ends",
            kind: "choice",
            value: "for",
            choices: [["for", "after a time"], ["until", "at an instant"], ["never", "when somebody resumes it"]],
        },
        { name: "for", label: "time", kind: "text", value: "15m", help: "with units: 30m, 1h30m", isAsked: ({ end }) => end === "for" },
        {
            name: "until",
            label: `instant, in ${context.mode === "utc" ? "UTC" : "your own zone"}`,
            kind: "instant",
            value: inputInstant(context.now + 3_600_000, context.mode),
            isAsked: ({ end }) => end === "until",
        },
    ],
    make: (values) => {
        const { end, until = "" } = values;
        const time = (values.for ?? "").trim();
        const at = typedInstant(until, context.mode);
        if (end === "for" && time === "") return "Say for how long: 15m, 1h30m.";
        if (end === "until" && at === undefined) return "Say until when.";
        const given = end === "for" ? { for: time } : end === "until" && at !== undefined ? { until: at } : {};
        return { command: make.pause(queue, given), dwell: dwell.pause(queue, given) };
    },
    done: (answer) => {
        const pause = answer?.settings?.pause;
        return pause === "paused" ? "Paused, until somebody resumes it." : `Paused, until ${pause}.`;
    },
});

/** @param {Context} _ @param {string} queue @returns {Dialog} */
export const resumeDialog = (_, queue) => ({
    title: "Resume",
    queue,
    ids: [],
    says: "What is due goes out again.",
    verb: "resume",
    fields: [],
    make: () => ({ command: make.resume(queue), dwell: dwell.resume(queue) }),
    done: () => "It hands out again.",
});

/** @param {any} answer */
const removed = (answer) => `${countText(Number(answer?.removed ?? 0))} messages are removed.`;

/** @param {Context} _ @param {string} queue @returns {Dialog} */
export const purgeDialog = (_, queue) => ({
    title: "Purge",
    queue,
    ids: [],
    says: "All scheduled and ready messages are gone for good. Leased and dead ones stay, and so do later puts.",
    verb: "purge",
    isDanger: true,
    name: queue,
    fields: [],
    make: () => ({ command: make.purge(queue), dwell: dwell.purge(queue) }),
    done: removed,
});

/** @param {Context} _ @param {string} queue @returns {Dialog} */
export const deleteDialog = (_, queue) => ({
    title: "Delete",
    queue,
    ids: [],
    says: "All messages but the leased, and the queue's own settings, are gone for good. A later put makes the queue anew.",
    verb: "delete the queue",
    isDanger: true,
    name: queue,
    fields: [],
    make: () => ({ command: make.deleteQueue(queue), dwell: dwell.deleteQueue(queue) }),
    done: removed,
});
