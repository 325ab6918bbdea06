/**
 * Refusals as errors, and parts of a view that may be refused separately.
 * @module
 */

/** @import { ProblemDocument } from "./types.js" */
/** @import { Part } from "./context.js" */

/** What the server refused, or why it was not reached. */
export class Refused extends Error {
    /** @param {ProblemDocument} problem */
    constructor(problem) {
        super(`${problem.code}: ${problem.detail}`);
        this.problem = problem;
    }
}

/**
 * @param {string} code
 * @param {string} detail
 * @param {boolean} retryable
 * @returns {Refused}
 */
export function own(code, detail, retryable) {
    return new Refused({ code, title: detail, detail, status: 0, retryable });
}

/**
 * The text of any error: a refusal's own text, or that the page has a bug.
 * @param {unknown} error
 * @returns {ProblemDocument}
 */
export function problemOf(error) {
    if (error instanceof Refused) return error.problem;
    const detail = error instanceof Error ? error.message : String(error);
    return { code: "page_fault", title: "The page has a fault", detail, status: 0, retryable: false };
}

/**
 * A part of a view. A refusal that concerns this part alone is shown in its place; one that concerns the whole server, or the
 * token, ends the whole load.
 * @template T
 * @param {Promise<T>} promise
 * @returns {Promise<Part<T>>}
 */
export async function part(promise) {
    try {
        return { ok: true, value: await promise };
    } catch (error) {
        if (error instanceof Refused && error.problem.status >= 400 && error.problem.status < 500 && error.problem.status !== 401) {
            return { ok: false, problem: error.problem };
        }
        throw error;
    }
}
