/**
 * The context of a view in addition to its data, and the requests that it may make.
 * @module
 */

/** @import { Me, ProblemDocument } from "./types.js" */
/** @import { TimeMode } from "./time.js" */
/** @import { Route } from "./route.js" */
/** @import { Dialog } from "./dialog.js" */
/** @import { Command } from "./command.js" */
/** @import { Children } from "./node.js" */

/**
 * @typedef {object} Context
 * @property {Route} route
 * @property {Me} me
 * @property {number} now by the server's clock, as far as it is known
 * @property {TimeMode} mode
 * @property {string} base where the page is, with a slash at the end
 * @property {boolean} hasToken
 * @property {Set<string>} selected ids of messages
 * @property {Record<string, string>} typed what stands in fields of the view, by their names
 * @property {(route: string, replaces?: boolean) => void} go
 * @property {(id: string, isSelected: boolean) => void} select
 * @property {(ids: string[], isSelected: boolean) => void} selectAll
 * @property {(name: string, value: string) => void} type
 * @property {(dialog: Dialog) => void} open
 * @property {() => void} refresh loads again, and applies the answer to rows at once
 * @property {() => void} redraw
 * @property {(text: string) => void} copy
 * @property {(command: Command) => Promise<any>} send
 * @property {Bodies} bodies
 */

/**
 * A body that was loaded, or is being loaded, or was refused.
 * @typedef {{ state: "loading" } | { state: "there", bytes: Uint8Array<ArrayBuffer> } | { state: "refused", problem: ProblemDocument }} Body
 */

/**
 * Bodies by queue and id, loaded once each.
 * @typedef {object} Bodies
 * @property {(queue: string, id: string) => Body | undefined} of
 * @property {(queue: string, id: string) => void} load
 * @property {(queue: string, id: string) => void} save
 */

/**
 * Sends a request to the server.
 * @typedef {object} Api
 * @property {(path: string) => Promise<any>} get
 * @property {(command: Command) => Promise<any>} send
 * @property {(path: string) => Promise<Uint8Array<ArrayBuffer>>} bytes
 */

/**
 * A part of a view's data: the answer, or the error.
 * @template T
 * @typedef {{ ok: true, value: T } | { ok: false, problem: ProblemDocument }} Part
 */

/**
 * A view: its requests, and its display. `rows` is the data that rows are made of, which does not change while the pointer
 * is over them.
 * @template D
 * @typedef {object} View
 * @property {(route: Route) => string} title
 * @property {(api: Api, route: Route, me: Me) => Promise<D>} load
 * @property {(context: Context, data: D, rows: D) => Children} show
 */

export {};
