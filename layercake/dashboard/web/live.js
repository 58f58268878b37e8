// What happens, as it happens: the events of the head by a WebSocket. It comes back by itself; who listens learns that something may
// have been missed, and asks anew. A page that nobody sees has no connection and asks nothing.

import * as api from "./api.js";

/** @typedef {{id: number, at: number, node: string, kind: string, severity: string, text: string, data: any, security: boolean}} Event */
/** @typedef {{events?: (events: Event[]) => void, anew?: () => void, look?: () => void}} Listener */

const WAITS_MS = [250, 500, 1000, 2000, 4000];
const LOOK_MS = 5000;
/** How often the head is asked for a sign of life, and how long that is waited for: a head that hangs is told of within 5 s. */
const BEAT_MS = 2000;
const PATIENCE_MS = 2500;

export class Live {
  /** @param {(silent: number | null, why: string) => void} shown told for how many seconds the head has not answered, null while it does */
  constructor(shown) {
    this.shown = shown;
    this.answered = performance.now();
    this.silent = false;
    this.connected = false;
    /** @type {Set<Listener>} */
    this.listeners = new Set();
    /** @type {WebSocket | null} */
    this.socket = null;
    this.tries = 0;
    this.timer = 0;
  }

  /** Listens until the function that is returned is called. @param {Listener} listener */
  listen(listener) {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  }

  /** Begins, and goes on. */
  start() {
    document.addEventListener("visibilitychange", () => this.turn());
    window.addEventListener("online", () => this.turn());
    setInterval(() => document.hidden || this.tell((one) => one.look?.()), LOOK_MS);
    setInterval(() => document.hidden || this.beat(), BEAT_MS);
    this.turn();
  }

  /** A page that is seen is connected; one that is not has nothing open. */
  turn() {
    clearTimeout(this.timer);
    if (document.hidden) this.drop();
    else if (this.socket === null) this.connect();
  }

  /** Ends the connection; nothing comes of it any more. */
  drop() {
    const socket = this.socket;
    this.socket = null;
    socket?.close();
  }

  /** The head does not answer: what is open is worth nothing. */
  lost() {
    this.drop();
    this.again();
  }

  connect() {
    const socket = new WebSocket(`wss://${location.host}/v1/events/ws`);
    this.socket = socket;
    let opened = false;
    socket.onopen = () => {
      if (this.socket !== socket) return;
      opened = true;
      this.tries = 0;
      this.connected = true;
      this.alive();
      this.tell((one) => one.anew?.());
    };
    socket.onmessage = (message) => {
      if (this.socket !== socket) return;
      const events = JSON.parse(message.data).events;
      this.tell((one) => one.events?.(events));
    };
    socket.onclose = () => {
      if (this.socket !== socket) return;
      this.socket = null;
      this.again();
      if (!opened) api.get("/v1/session").catch(() => undefined); // says whether it is the session that is over
    };
  }

  /** Asks the head for a sign of life: a connection that is open says nothing of one that hangs. */
  async beat() {
    try {
      await api.sent("GET", "/v1/session", {}, undefined, PATIENCE_MS);
      this.alive();
    } catch {
      this.silent = true;
      this.shown((performance.now() - this.answered) / 1000, "the head does not answer");
    }
  }

  /** The head has answered. */
  alive() {
    this.answered = performance.now();
    this.silent = false;
    if (this.connected) this.shown(null, "");
  }

  again() {
    this.connected = false;
    if (!this.silent) this.shown((performance.now() - this.answered) / 1000, "not connected; trying again");
    clearTimeout(this.timer);
    const wait = WAITS_MS[Math.min(this.tries++, WAITS_MS.length - 1)];
    this.timer = setTimeout(() => this.turn(), wait * (0.75 + Math.random() / 2));
  }

  /** @param {(one: Listener) => void} how */
  tell(how) {
    for (const one of [...this.listeners]) how(one);
  }
}

/**
 * Work that is asked for often and done seldom: at once after a rest, then at most once in `pause()` milliseconds, never twice at a
 * time, and once more when it was asked for meanwhile, but for nobody who does not look. Failures are its own business.
 * @param {() => Promise<void>} work @param {() => number} pause @returns {() => void}
 */
export function paced(work, pause) {
  let asked = false;
  let busy = false;
  const run = async () => {
    busy = true;
    while (asked && !document.hidden) {
      asked = false;
      await work();
      await new Promise((done) => setTimeout(done, pause()));
    }
    busy = false;
  };
  return () => {
    asked = true;
    if (!busy && !document.hidden) run();
  };
}
