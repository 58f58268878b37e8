// All nodes of the head, as far as the rack shows them, kept up to date: what has changed since the last answer is asked for, and all
// of them when the head says so (it was started anew, or the last answer is too old).

import * as api from "./api.js";
import { paced } from "./live.js";

/**
 * @typedef {{switch?: string, port?: string, relay?: string, circuit?: string, remote?: string}} Place
 * @typedef {{name: string, status: string, wanted: string, stopped: string[], groups: string[], domains: string[],
 *   network: string | null, labels: Record<string, string>, place: Place | null, state?: Record<string, string>}} Row
 */

const FIELDS = "name,status,wanted,stopped,groups,domains,network,labels,place";
const QUICK_MS = 60;
const BUSY_MS = 1000;
const MANY = 50;

export class Fleet {
  /** @param {(error: unknown) => void} failed */
  constructor(failed) {
    /** @type {Map<string, Row>} */
    this.rows = new Map();
    /** @type {string[]} */
    this.variables = [];
    /** @type {Set<(changed: Row[] | null) => void>} */
    this.listeners = new Set();
    this.change = "";
    this.fields = FIELDS;
    this.failed = failed;
    this.wait = QUICK_MS;
    /** Asks for what is new; often is fine. */
    this.refresh = paced(() => this.fetch(), () => this.wait);
    /** Asks, if somebody looks. */
    this.look = () => this.listeners.size && this.refresh();
  }

  /** Calls with the rows that have changed, null for any of them, until the function that is returned is called. @param {(changed: Row[] | null) => void} listener */
  listen(listener) {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  }

  /** Whether the values of variables are wanted too. @param {boolean} wanted */
  withState(wanted) {
    const fields = wanted ? `${FIELDS},state` : FIELDS;
    if (fields !== this.fields) {
      this.fields = fields;
      this.change = "";
      this.refresh();
    }
  }

  async fetch() {
    const fields = this.fields;
    const began = performance.now();
    let answer;
    try {
      answer = await api.get("/v1/nodes", { fields, since: this.change });
    } catch (error) {
      this.failed(error);
      this.wait = BUSY_MS;
      return;
    }
    if (fields !== this.fields) return;
    const many = !answer.whole && answer.nodes.length > MANY; // then a busy head is asked less often
    this.wait = many ? Math.min(BUSY_MS, Math.max(QUICK_MS, performance.now() - began)) : QUICK_MS;
    this.change = answer.change;
    this.variables = answer.variables;
    if (answer.whole) this.rows = new Map();
    let order = answer.whole || answer.removed.length > 0;
    for (const row of answer.nodes) {
      order ||= moved(this.rows.get(row.name), row);
      this.rows.set(row.name, row);
    }
    for (const name of answer.removed) this.rows.delete(name);
    if (order || answer.nodes.length) for (const listener of [...this.listeners]) listener(order ? null : answer.nodes);
  }
}

/** Whether a node may be shown elsewhere than before. @param {Row | undefined} before @param {Row} now */
function moved(before, now) {
  const where = (/** @type {Row} */ row) => JSON.stringify([row.groups, row.domains, row.network, row.labels, row.place]);
  return before === undefined || where(before) !== where(now);
}
