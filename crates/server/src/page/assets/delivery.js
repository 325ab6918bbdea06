/**
 * Actions on sinks and schedules: each as a request, as `dwell`, and as a dialog that asks for confirmation.
 * @module
 */

/** @import { Dialog } from "./dialog.js" */
/** @import { Schedule, Sink } from "./types.js" */
import { quoted, segment } from "./command.js";
import { h } from "./node.js";
import { foreign } from "./parts.js";
import { toMessage } from "./route.js";

/** @param {string} name */
export const sinkPath = (name) => `v1/sinks/${segment(name)}`;

/** @param {string} name */
export const schedulePath = (name) => `v1/schedules/${segment(name)}`;

/**
 * What an action on a sink or a schedule has in common with the others: no fields, and a request without a body.
 * @param {"sinks" | "schedules"} kind
 * @param {string} name
 * @param {"test" | "pause" | "resume" | "run" | "delete"} what
 */
function asked(kind, name, what) {
    const path = kind === "sinks" ? sinkPath(name) : schedulePath(name);
    const command = what === "delete" ? { method: "DELETE", path } : { method: "POST", path: `${path}/${what}` };
    return { queue: name, ids: [], fields: [], verb: what, make: () => ({ command, dwell: `dwell ${kind} ${what} ${quoted(name)}` }) };
}

/** @param {Sink} sink @returns {Dialog} */
export const testSinkDialog = ({ name }) => ({
    ...asked("sinks", name, "test"),
    title: "Test the sink",
    says: "The server connects to the destination, TLS included, and sends no message.",
    done: (answer) => {
        if (answer?.reached === true) return "The destination is reached.";
        if (answer?.reached === false) return ["The destination is not reached: ", foreign(String(answer.error ?? "the server does not say why"))];
        return "Each message names its own destination: there is none to connect to.";
    },
});

/** @param {Sink} sink @returns {Dialog} */
export const pauseSinkDialog = ({ name }) => ({
    ...asked("sinks", name, "pause"),
    title: "Pause the sink",
    says: "It takes nothing more, and finishes what it has taken. The pause ends with the server; one that has to outlast it is a pause of the queues.",
    done: () => "It takes nothing more.",
});

/** @param {Sink} sink @returns {Dialog} */
export const resumeSinkDialog = ({ name }) => ({
    ...asked("sinks", name, "resume"),
    title: "Resume the sink",
    says: "It takes messages again.",
    done: () => "It takes messages again.",
});

/** What a run by hand does beside an earlier run. @type {Record<Schedule["overlap"], string>} */
const BESIDE = {
    skip: "While an earlier run is not done, it is refused.",
    replace: "An earlier run that is not taken yet is replaced.",
    allow: "Earlier runs stay.",
};

/** @param {Schedule} schedule @returns {Dialog} */
export const runScheduleDialog = ({ name, queue, overlap }) => ({
    ...asked("schedules", name, "run"),
    title: "Run the schedule",
    says: `A run is put into ${queue} now, besides those of its instants. ${BESIDE[overlap] ?? ""}`,
    verb: "run now",
    done: ({ id, number }) => ["The run is message ", h("a", { href: toMessage(queue, String(id)) }, `#${number}`), "."],
});

/** @param {Schedule} schedule @returns {Dialog} */
export const pauseScheduleDialog = ({ name }) => ({
    ...asked("schedules", name, "pause"),
    title: "Pause the schedule",
    says: "It puts no run until it is resumed. Runs that were put stay, and instants that pass meanwhile are left out.",
    done: () => "It puts no run until it is resumed.",
});

/** @param {Schedule} schedule @returns {Dialog} */
export const resumeScheduleDialog = ({ name }) => ({
    ...asked("schedules", name, "resume"),
    title: "Resume the schedule",
    says: "It goes on with its next instant.",
    done: () => "It goes on with its next instant.",
});

/** @param {Schedule} schedule @returns {Dialog} */
export const deleteScheduleDialog = ({ name }) => ({
    ...asked("schedules", name, "delete"),
    title: "Delete the schedule",
    says: "It puts no run any more. Runs that were put stay. One that a server's configuration has is defined again when that server starts or reloads.",
    isDanger: true,
    done: () => "The schedule is removed.",
});
