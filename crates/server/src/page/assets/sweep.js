/**
 * All dead messages of a queue, revived or discarded a few hundred at a time, so that it shows its progress, keeps a rate, and
 * can be stopped.
 *
 * It pages through the list instead of taking the oldest each time: a refused message stays in place, and would be met
 * for ever.
 * @module
 */

/** @import { Done, MessagePage, ProblemDocument, Swept } from "./types.js" */
/** @import { Command } from "./command.js" */
import { discard, queuePath, revive } from "./command.js";

/** The number of messages per step. */
export const STEP = 500;

/** The number of refusals that are kept for display. */
const MOST_REFUSALS = 1_000;

/** @typedef {{ id: string, error: ProblemDocument }} Refusal */

/**
 * @typedef {object} Sweep
 * @property {"running" | "stopped" | "done" | "failed"} state
 * @property {number} seen
 * @property {number} done
 * @property {number} refusedInAll
 * @property {Refusal[]} refused
 * @property {ProblemDocument} [problem]
 */

/** @returns {Sweep} */
export const begin = () => ({ state: "running", seen: 0, done: 0, refusedInAll: 0, refused: [] });

/**
 * @typedef {object} Surroundings
 * @property {(command: Command) => Promise<any>} send throws a {@link ProblemDocument}'s error
 * @property {(error: unknown) => ProblemDocument} problem
 * @property {(sweep: Sweep) => void} show
 * @property {() => boolean} isStopped
 * @property {(ms: number) => Promise<void>} pause returns early once it is stopped
 */

/**
 * Runs to the end, or until it is stopped or a step fails. The present step is finished.
 * @param {string} queue
 * @param {"revive" | "discard"} what
 * @param {number | undefined} perSecond messages
 * @param {Surroundings} around
 * @returns {Promise<Sweep>}
 */
export async function run(queue, what, perSecond, around) {
    let sweep = begin();
    const show = (/** @type {Partial<Sweep>} */ changes) => {
        sweep = { ...sweep, ...changes };
        around.show(sweep);
    };
    const step = perSecond === undefined ? STEP : Math.max(1, Math.min(STEP, Math.ceil(perSecond)));
    /** @type {string | undefined} */
    let cursor;
    try {
        for (;;) {
            if (around.isStopped()) {
                show({ state: "stopped" });
                return sweep;
            }
            const at = cursor === undefined ? "" : `&cursor=${encodeURIComponent(cursor)}`;
            const path = `${queuePath(queue)}/messages?state=dead&body=false&max=${step}${at}`;
            /** @type {MessagePage} */
            const page = await around.send({ method: "GET", path });
            const ids = page.messages.map(({ id }) => id);
            if (ids.length > 0) {
                /** @type {Swept} */
                const swept = await around.send(what === "revive" ? revive(queue, ids) : discard(queue, ids));
                show({
                    seen: sweep.seen + ids.length,
                    done: sweep.done + swept.done,
                    refusedInAll: sweep.refusedInAll + swept.refused_in_all,
                    refused: [...sweep.refused, ...swept.refused].slice(0, MOST_REFUSALS),
                });
            }
            cursor = page.next;
            if (cursor === undefined) {
                show({ state: "done" });
                return sweep;
            }
            if (perSecond !== undefined) await around.pause((step / perSecond) * 1_000);
        }
    } catch (error) {
        const problem = around.problem(error);
        // A queue without messages is deleted.
        if (problem.code === "unknown_queue" && sweep.seen > 0) show({ state: "done" });
        else show({ state: "failed", problem });
        return sweep;
    }
}

/**
 * The result of a request: the number of messages changed, and the refusals. One message is answered alone, many
 * are answered one by one, or with those alone that were refused.
 * @param {unknown} answer
 * @param {string[]} ids
 * @returns {{ done: number, refusedInAll: number, refused: Refusal[] }}
 */
export function outcome(answer, ids) {
    const { answers, done, refused, refused_in_all } = /** @type {{ answers?: Done[] } & Partial<Swept>} */ (answer ?? {});
    if (answers !== undefined) {
        /** @type {Refusal[]} */
        const found = [];
        answers.forEach(({ error }, at) => {
            if (error !== undefined) found.push({ id: ids[at] ?? "", error });
        });
        return { done: answers.length - found.length, refusedInAll: found.length, refused: found };
    }
    if (done !== undefined) return { done, refusedInAll: refused_in_all ?? 0, refused: refused ?? [] };
    return { done: ids.length, refusedInAll: 0, refused: [] };
}
