/**
 * The answers of `/v1`, as types. `docs/http.md` describes them.
 * @module
 */

/** @typedef {"scheduled" | "ready" | "leased" | "dead"} StateKind */
/** @typedef {"minute" | "hour" | "day" | "month"} Span */
/** @typedef {"put" | "take" | "manage" | "look" | "metrics"} Verb */

/**
 * @typedef {object} Me
 * @property {string} [name]
 * @property {string[]} scopes
 */

/**
 * @typedef {object} Counts
 * @property {number} scheduled
 * @property {number} ready
 * @property {number} ready_urgent
 * @property {number} leased
 * @property {number} dead
 */

/**
 * @typedef {object} Queue
 * @property {string} queue
 * @property {Counts} counts
 * @property {number} waiting
 * @property {string} [next_due]
 * @property {Record<string, unknown>} settings
 * @property {string[]} own
 */

/**
 * @typedef {object} QueuePage
 * @property {Queue[]} queues
 * @property {{ queue: string, error: ProblemDocument }[]} [unread]
 * @property {string} [next]
 */

/**
 * @typedef {object} Message
 * @property {string} id
 * @property {number} number
 * @property {string} queue
 * @property {StateKind} state
 * @property {string} [body]
 * @property {string} [body_base64]
 * @property {string} [preview]
 * @property {string} [preview_base64]
 * @property {number} size
 * @property {string} due
 * @property {string} created
 * @property {string} [expires]
 * @property {string} [key]
 * @property {Record<string, string>} [headers]
 * @property {number} priority
 * @property {number} attempt
 * @property {number | "unlimited"} [max_attempts]
 * @property {string} [lease]
 * @property {string} [lease_until]
 * @property {string} [lease_granted] when its lease was granted or last extended
 * @property {string} [holder]
 * @property {string} [dead_reason]
 * @property {string} [dead_at]
 * @property {string} [last_error]
 * @property {string} [first_taken]
 * @property {string} [failed_at]
 * @property {{ takes: number, lapses: number, releases: number, buries: number, revives: number }} counts
 */

/**
 * A lease as a list has shown it: `takes` distinguishes it from a later one.
 * @typedef {object} LeaseRef
 * @property {string} id
 * @property {number} takes
 */

/**
 * @typedef {object} MessagePage
 * @property {Message[]} messages
 * @property {{ id: string, error: ProblemDocument }[]} [unread]
 * @property {string} [next]
 */

/**
 * @typedef {object} Forecast
 * @property {string} [queue]
 * @property {string} now
 * @property {number} scheduled
 * @property {string[]} edges
 * @property {number[]} due_by
 * @property {number} within
 */

/**
 * Counts in slots of one length, oldest first; the last one is the current slot.
 * @typedef {object} Series
 * @property {string} step
 * @property {string} end
 * @property {number[]} puts
 * @property {number[]} takes
 * @property {number[]} acks
 * @property {number[]} retries
 * @property {number[]} deaths
 * @property {(number | null)[]} lateness_p50_ms
 * @property {(number | null)[]} lateness_p99_ms
 * @property {(number | null)[]} lateness_max_ms
 */

/**
 * @typedef {object} Recent
 * @property {string} queue
 * @property {string} now
 * @property {boolean} kept
 * @property {Series[]} [recent]
 */

/**
 * @typedef {object} TopQueue
 * @property {string} queue
 * @property {Counts} counts
 * @property {number} waiting
 * @property {string} [next_due]
 * @property {string} pause
 */

/**
 * The result of a walk over all queues.
 * @typedef {object} Census
 * @property {string} as_of
 * @property {number} queues
 * @property {number} [unread]
 * @property {Counts} counts
 * @property {number} waiting
 * @property {TopQueue[]} top
 * @property {Forecast} forecast
 */

/**
 * @typedef {object} Overview
 * @property {string} now
 * @property {Census} [census]
 * @property {Series[]} recent
 */

/**
 * A queue of a sink.
 * @typedef {object} SinkQueue
 * @property {string} queue
 * @property {"closed" | "half_open" | "open"} breaker
 * @property {number} in_flight
 * @property {number} taken
 * @property {number} acked
 * @property {number} retried
 * @property {number} released
 * @property {number} buried
 * @property {number} lost
 */

/**
 * @typedef {object} Sink
 * @property {string} name
 * @property {string} kind
 * @property {string} destination
 * @property {"running" | "paused" | "ended"} state
 * @property {string} [reason]
 * @property {number} delivered
 * @property {number} uncertain
 * @property {Record<string, number>} failed
 * @property {SinkQueue[]} queues
 */

/**
 * @typedef {object} Schedule
 * @property {string} name
 * @property {string} queue
 * @property {string} [cron]
 * @property {string} [dialect]
 * @property {string} [zone]
 * @property {string} [every]
 * @property {string} [body]
 * @property {string} [body_base64]
 * @property {Record<string, string>} [headers]
 * @property {"one" | "skip" | "all"} missed
 * @property {"skip" | "allow" | "replace"} overlap
 * @property {string} jitter
 * @property {boolean} paused
 * @property {string} [next]
 */

/**
 * @typedef {object} Schedules
 * @property {Schedule[]} schedules
 * @property {ProblemDocument[]} [unread]
 */

/**
 * @typedef {object} ProblemDocument
 * @property {string} code
 * @property {string} title
 * @property {string} detail
 * @property {number} status
 * @property {boolean} retryable
 * @property {string} [id]
 * @property {number} [limit]
 */

/**
 * @typedef {object} Swept
 * @property {number} done
 * @property {number} refused_in_all
 * @property {{ id: string, error: ProblemDocument }[]} refused
 */

/**
 * One answer of a batch: the result, or the error.
 * @typedef {object} Done
 * @property {number} status
 * @property {ProblemDocument} [error]
 */

export {};
