/**
 * What a token allows, by the scopes in `/v1/me`. The server decides; this determines which buttons there are.
 * @module
 */

/** @import { Me, Verb } from "./types.js" */

/**
 * Whether one of these verbs is allowed in a queue.
 * @param {Me} me
 * @param {Verb[]} verbs
 * @param {string} queue
 */
export function may(me, verbs, queue) {
    return me.scopes.some((scope) => {
        const mark = scope.indexOf(":");
        if (mark < 0) return verbs.some((verb) => verb === scope);
        const names = scope.slice(mark + 1);
        if (!verbs.some((verb) => verb === scope.slice(0, mark))) return false;
        return names.endsWith("*") ? queue.startsWith(names.slice(0, -1)) : names === queue;
    });
}

/**
 * Whether one of these verbs is allowed in every possible queue.
 * @param {Me} me
 * @param {Verb[]} verbs
 */
export const mayEverywhere = (me, verbs) =>
    me.scopes.some((scope) => verbs.some((verb) => scope === `${verb}:*` || (verb === "metrics" && scope === verb)));

/** @param {Me} me @param {string} queue */
export const mayLook = (me, queue) => may(me, ["take", "manage", "look"], queue);

/** Whether a queue is dwell's own: such a queue can only be read, whatever the token. @param {string} queue */
export const isReserved = (queue) => queue.startsWith("dwell:");

/** @param {Me} me @param {string} queue */
export const mayMove = (me, queue) => may(me, ["put", "manage"], queue) && !isReserved(queue);

/** @param {Me} me @param {string} queue */
export const mayManage = (me, queue) => may(me, ["manage"], queue) && !isReserved(queue);

/** @param {Me} me @param {string} queue */
export const mayPut = (me, queue) => may(me, ["put"], queue) && !isReserved(queue);

/** @param {Me} me @param {string} queue */
export const mayForecast = (me, queue) => may(me, ["take", "manage", "look", "metrics"], queue);

/** Whether sinks and schedules may be seen, which are of no queue. @param {Me} me */
export const mayLookAll = (me) => mayEverywhere(me, ["manage", "look"]);

/** @param {Me} me */
export const mayManageAll = (me) => mayEverywhere(me, ["manage"]);

/** @param {Me} me */
export const mayOverview = (me) => mayEverywhere(me, ["metrics", "manage", "look"]);
