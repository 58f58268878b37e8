// A node's serial console on its page: opened for reading; who has the right exec may type, after taking the keyboard.

import * as api from "./api.js";
import { ask, failure } from "./ask.js";
import { h, part, put } from "./dom.js";
import { terminal } from "./terminal.js";
import { clock } from "./words.js";

const LINES = 200;
const PIECE = 16384;
const WAITS_MS = [1000, 2000, 5000, 10000];

/** @typedef {{state: string, why: string, writer: string, readers: string[], writes: boolean, lost: number}} How */

/**
 * The section, which is opened by a person, and what ends it. @param {import("./main.js").App} app @param {string} name
 * @returns {{element: HTMLElement, end: () => void}}
 */
export function consoleOf(app, name) {
  const body = h("div", {});
  /** @type {Session | null} */
  let session = null;
  const end = () => {
    session?.end();
    session = null;
  };
  const element = h("details", { class: "panel console", ontoggle: (/** @type {any} */ event) => {
    if (event.target !== element || element.open === (session !== null)) return;
    if (element.open) session = new Session(app, name, body);
    else end();
  } }, h("summary", {}, "Console"), body);
  return { element, end };
}

/** One who reads, and may type. */
class Session {
  /** @param {import("./main.js").App} app @param {string} name @param {HTMLElement} body */
  constructor(app, name, body) {
    this.app = app;
    this.path = `/v1/nodes/${api.quoted(name)}/console`;
    this.name = name;
    /** @type {import("./terminal.js").Screen | null} */
    this.screen = null;
    /** @type {WebSocket | null} */
    this.socket = null;
    /** @type {How | null} */
    this.how = null;
    this.wants = false;
    this.over = false;
    this.tries = 0;
    this.timer = 0;
    this.state = h("p", { class: "console-state", role: "status" }, "It is opened…");
    this.trouble = h("p", { class: "why", role: "alert" });
    this.acts = h("p", { class: "acts" });
    this.frame = h("div", { class: "screen", role: "group", "aria-label": `The console of ${name}` });
    this.log = h("pre", { class: "log", hidden: true, tabindex: 0, role: "group", "aria-label": `What the console of ${name} has said` });
    this.shows = part(this.acts);
    put(body, this.state, this.acts, this.trouble, this.frame, this.log);
    this.resized = new ResizeObserver(() => this.screen?.fit());
    this.start();
  }

  async start() {
    this.told();
    try {
      const screen = await terminal(this.frame, (text) => this.type(text), () => this.out());
      if (this.over) return screen.end();
      this.screen = screen;
    } catch {
      put(this.state, "This head has no xterm.js, which shows consoles here: ", h("code", {}, "make install"), " gets it. In a terminal, ",
        h("code", {}, `layercake console ${this.name}`), " shows the same. What was said last:");
      return this.readLog();
    }
    this.resized.observe(this.frame);
    this.screen.fit();
    this.connect(false);
  }

  end() {
    this.over = true;
    clearTimeout(this.timer);
    this.resized.disconnect();
    this.drop();
    this.screen?.end();
  }

  drop() {
    const socket = this.socket;
    this.socket = null;
    socket?.close();
  }

  /** Opens it anew: for reading, or to type too. @param {boolean} take whether the keyboard is taken from who has it */
  connect(take) {
    this.drop();
    const socket = new WebSocket(`wss://${location.host}${this.path}${this.wants ? "/write" : ""}${take ? "?take=1" : ""}`);
    socket.binaryType = "arraybuffer";
    this.socket = socket;
    let opened = false;
    const mine = () => this.socket === socket;
    socket.onopen = () => {
      opened = true;
      this.tries = 0;
      if (mine()) {
        this.screen?.clear();
        put(this.trouble);
      }
    };
    socket.onmessage = ({ data }) => {
      if (!mine()) return;
      if (typeof data === "string") this.hear(JSON.parse(data));
      else this.screen?.write(new Uint8Array(data));
    };
    socket.onclose = () => {
      if (!mine()) return;
      this.socket = null;
      this.how = null;
      this.wants = false; // the keyboard is not taken again without a person
      this.told();
      if (opened) this.again();
      else this.refused();
    };
  }

  /** It could not be opened: an answer to an ordinary request says why. */
  async refused() {
    let [why, never] = ["", false];
    try {
      const [one] = (await api.get("/v1/consoles", { range: this.name })).consoles;
      why = [`The console is ${one.state}.`, one.error || one.why].filter(Boolean).join(" ");
      never = one.state === "none" || one.state === "off";
    } catch (error) {
      why = failure(error).filter((part) => typeof part === "string").join("; ");
    }
    if (this.over) return;
    if (this.trouble.textContent !== why) put(this.trouble, why);
    if (never) put(this.state, "There is nothing to open.");
    else this.again();
  }

  again() {
    if (this.over) return;
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.over || this.socket || this.connect(false), WAITS_MS[Math.min(this.tries++, WAITS_MS.length - 1)]);
  }

  /** What the head says of it. @param {any} told */
  hear(told) {
    if (told.error !== undefined) {
      put(this.trouble, String(told.error));
      return;
    }
    if (told.lost) this.screen?.say(`${told.lost} bytes before this are not shown: they came faster than they were read`);
    const had = this.how?.writes ?? false;
    this.how = told;
    if (told.writes && !had) {
      put(this.trouble);
      this.screen?.focus();
    }
    this.told();
  }

  /** Shows how it is, and what can be done. */
  told() {
    const how = this.how;
    const writes = how?.writes ?? false;
    this.screen?.typing(writes);
    this.frame.classList.toggle("writes", writes);
    if (this.screen) put(this.state, how === null ? "not connected; trying again" : words(how));
    const may = this.app.who?.exec ?? false;
    this.shows([this.screen !== null, how?.state, how?.writer, writes, may], () => [
      this.screen && how && may && !writes ? this.button("type", how.writer || how.state === "taken" ? "Take the keyboard" : "Type", () => this.take()) : null,
      writes ? this.button("break", "Send a break", () => this.send({ break: true })) : null,
      writes ? this.button("leave", "Leave the keyboard", () => this.leave()) : null,
      this.button("log", "Last lines", () => this.readLog()),
      h("span", { class: "note" }, writes ? "Keys go to the machine; ctrl-] comes back here." :
        may ? "" : "For reading: to type, sign in with the right exec."),
    ]);
  }

  /** @param {string} key @param {string} label @param {() => void} act */
  button(key, label, act) {
    return h("button", { type: "button", "data-key": `console ${key}`, onclick: act }, label);
  }

  /** Takes the keyboard; of who has it, or of another session of the BMC, after a question. */
  take() {
    const how = this.how;
    if (how === null) return;
    if (!how.writer && how.state !== "taken") {
      this.wants = true;
      this.connect(false);
      return;
    }
    const whom = how.writer ? `${how.writer} has the keyboard, is told, and reads on.` : `Another session of its BMC has the console, and is ended: ${how.why}`;
    ask({
      title: `Take the console of ${this.name}?`, act: "Take the keyboard", danger: true, body: [h("p", {}, whom)],
      work: async () => {
        this.wants = true;
        this.connect(true);
        return `You take the console of ${this.name}.`;
      },
    }).catch(this.app.failed);
  }

  leave() {
    this.wants = false;
    this.connect(false);
  }

  /** The keyboard comes back to the page. */
  out() {
    const first = this.acts.querySelector("button");
    if (first instanceof HTMLElement) first.focus();
  }

  /** @param {string} text */
  type(text) {
    const data = new TextEncoder().encode(text);
    for (let at = 0; at < data.length; at += PIECE) this.send(data.subarray(at, at + PIECE));
  }

  /** @param {Uint8Array<ArrayBuffer> | object} what */
  send(what) {
    if (this.socket?.readyState === WebSocket.OPEN) this.socket.send(what instanceof Uint8Array ? what : JSON.stringify(what));
  }

  async readLog() {
    this.log.hidden = false;
    try {
      const { lines } = await api.get(`${this.path}/log`, { lines: LINES });
      put(this.log, lines.map((/** @type {any} */ line) => `${clock(line.at)} ${line.text}`).join("\n") || "(nothing yet)");
      this.log.scrollTop = this.log.scrollHeight;
    } catch (error) {
      put(this.log, ...failure(error));
    }
  }
}

/** How a console is, for people. @param {How} how */
function words(how) {
  const who = how.writes ? "you have the keyboard" : how.writer ? `${how.writer} has the keyboard` : "nobody types";
  const others = how.readers.length - 1;
  return [h("b", { class: `console-${how.state}` }, how.state), how.why ? ` (${how.why})` : "", "; ", h("b", { class: "writer" }, who),
    `; ${others < 1 ? "nobody else reads" : `${others} ${others === 1 ? "other reads" : "others read"}`}`];
}
