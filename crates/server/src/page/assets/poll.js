/**
 * Polls: every two seconds while the page is visible, never while it is hidden, and less often while it fails.
 * @module
 */

const INTERVAL_MS = 2_000;
const LONGEST_MS = 30_000;

/**
 * The delay after a number of consecutive failures.
 * @param {number} failures
 */
export const pauseMs = (failures) => Math.min(LONGEST_MS, INTERVAL_MS * 2 ** Math.min(failures, 10));

/**
 * @typedef {object} Task
 * @property {(signal: AbortSignal) => Promise<void>} run one question and its answer; throws where it failed
 * @property {(failures: number) => void} failed
 */

/** One task at a time, with one request in flight. */
export class Poller {
    /** @type {AbortController | undefined} */
    #running;
    /** @type {ReturnType<typeof setTimeout> | undefined} */
    #timer;
    #failures = 0;
    #isStill = false;

    /**
     * @param {Task} task
     * @param {{ isVisible: () => boolean }} around
     */
    constructor(task, around) {
        this.task = task;
        this.around = around;
    }

    /**
     * Cancels the request in flight, and polls at once.
     * @param {boolean} [isStill] makes one request, and no other before the next restart
     */
    restart(isStill = this.#isStill) {
        this.#isStill = isStill;
        this.stop();
        void this.#ask();
    }

    stop() {
        this.#running?.abort();
        this.#running = undefined;
        clearTimeout(this.#timer);
    }

    /** The page is seen again, or not any more. */
    visibility() {
        clearTimeout(this.#timer);
        if (this.around.isVisible() && this.#running === undefined && !this.#isStill) void this.#ask();
    }

    async #ask() {
        const running = new AbortController();
        this.#running = running;
        let isWell = true;
        try {
            await this.task.run(running.signal);
            this.#failures = 0;
        } catch {
            if (running.signal.aborted) return;
            isWell = false;
            this.#failures += 1;
            this.task.failed(this.#failures);
        }
        if (this.#running !== running) return;
        this.#running = undefined;
        if (this.around.isVisible() && !(this.#isStill && isWell)) {
            this.#timer = setTimeout(() => void this.#ask(), pauseMs(this.#failures));
        }
    }
}
