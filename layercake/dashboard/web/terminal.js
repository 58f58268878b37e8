// A terminal for what a machine writes. What is written there is hostile: it may colour and move what is shown in the terminal, and
// nothing else. The program is xterm.js, which lies beside the page where `make install` has put it.
//
// xterm.js makes <style> elements and style attributes, which the page's policy forbids; the same by script it allows. So it gets
// sheets that are made by script for the first, and spans whose style attribute is set as their style. It needs no exception.

const PROGRAM = "./xterm/xterm.js";
const FIT = "./xterm/fit.js";
const LOOKS = "./xterm/xterm.css";
const COLUMNS = 80;
const ROWS = 24;
const KEPT_LINES = 2000;
/** Bytes that wait to be shown. A page that does not keep up leaves out what is more. */
export const WAITING = 1 << 20;
/** No console is so wide or long; a terminal that is told to do something a thousand million times stands still. */
const BIGGEST = 9999;
const COUNTED = "@ABCDEFGHIJKLMPSTXZ`abdefr";

/** @typedef {{element: HTMLElement, write: (data: Uint8Array) => void, say: (text: string) => void, clear: () => void,
 *   typing: (on: boolean) => void, fit: () => void, focus: () => void, end: () => void}} Screen */

/**
 * A terminal. `typed` is called with what is typed, while somebody types; `left` when somebody leaves it by its key, ctrl-].
 * Raises if the head has no xterm.js. @param {HTMLElement} place @param {(text: string) => void} typed @param {() => void} left
 * @returns {Promise<Screen>}
 */
export async function terminal(place, typed, left) {
  const [{ Terminal }, { FitAddon }] = await Promise.all([import(PROGRAM), import(FIT), looks()]);
  const sheets = new Sheets();
  styledSpans();
  const found = new Terminal({
    cols: COLUMNS, rows: ROWS, scrollback: KEPT_LINES, disableStdin: true, cursorBlink: false,
    fontFamily: '"DejaVu Sans Mono", ui-monospace, monospace', fontSize: 14, theme: { background: "#10161d", foreground: "#e8edf3" },
    minimumContrastRatio: 4.5, logLevel: "off", linkHandler: { activate: () => undefined },
  });
  const fit = new FitAddon();
  found.loadAddon(fit);
  tame(found);
  sheets.during(() => found.open(place));
  return screen(found, fit, sheets, { typed, left });
}

/** Its style sheet is a part of the page from now on. */
function looks() {
  return new Promise((done, failed) => {
    const link = document.createElement("link");
    link.rel = "stylesheet";
    link.href = new URL(LOOKS, import.meta.url).href;
    const there = [...document.querySelectorAll("link")].some((one) => one.href === link.href && one.sheet !== null);
    if (there) return done(undefined);
    link.onload = done;
    link.onerror = failed;
    document.head.append(link);
  });
}

/** @param {any} found @param {any} fit @param {Sheets} sheets @param {{typed: (text: string) => void, left: () => void}} told @returns {Screen} */
function screen(found, fit, sheets, told) {
  const encoder = new TextEncoder();
  let on = false;
  let waiting = 0;
  let lost = 0;
  const write = (/** @type {Uint8Array} */ data) => {
    if (waiting + data.length > WAITING) {
      lost += data.length;
      return;
    }
    if (lost) {
      const text = `\r\n[${lost} bytes before this are not shown: the page did not keep up]\r\n`;
      lost = 0;
      found.write(text);
    }
    waiting += data.length;
    found.write(data, () => { waiting -= data.length; });
  };
  found.onData((/** @type {string} */ text) => on && told.typed(text));
  found.attachCustomKeyEventHandler((/** @type {KeyboardEvent} */ event) => {
    if (event.ctrlKey && event.key === "]") {
      if (event.type === "keydown") told.left();
      event.preventDefault();
      return false;
    }
    return on || (event.key !== "Tab" && !event.ctrlKey); // who only reads goes on by Tab, and has the browser's keys
  });
  return {
    element: found.element, write, say: (text) => write(encoder.encode(`\r\n[${text.replace(/[^\x20-\x7e\u00a0-\uffff]/g, "")}]\r\n`)),
    clear: () => found.reset(), focus: () => found.focus(),
    typing: (now) => { on = now; found.options.disableStdin = !now; found.options.cursorBlink = now; },
    fit: () => found.resize(Math.max(COLUMNS, fit.proposeDimensions()?.cols || COLUMNS), ROWS),
    end: () => { found.dispose(); sheets.end(); },
  };
}

/** What a machine can say that is not for the eyes is swallowed: titles, clipboards, links, colours of the page's, questions. @param {any} found */
function tame(found) {
  const nothing = () => true;
  for (const number of [0, 1, 2, 4, 7, 8, 9, 10, 11, 12, 50, 52, 99, 104, 110, 111, 112, 133, 633, 777, 1337]) found.parser.registerOscHandler(number, nothing);
  found.parser.registerDcsHandler({ intermediates: "$", final: "q" }, nothing);
  for (const id of [{ final: "t" }, { prefix: ">", final: "c" }, { prefix: "?", final: "n" }, { intermediates: "$", final: "p" },
    { prefix: "?", intermediates: "$", final: "p" }]) found.parser.registerCsiHandler(id, nothing);
  const huge = (/** @type {(number | number[])[]} */ params) => params.flat().some((number) => number > BIGGEST);
  for (const final of COUNTED) found.parser.registerCsiHandler({ final }, huge);
  for (const [intermediates, final] of [[" ", "@"], [" ", "A"], ["'", "}"], ["'", "~"]]) found.parser.registerCsiHandler({ intermediates, final }, huge);
}

/** Style sheets that are made by script, in place of elements. */
class Sheets {
  constructor() {
    /** @type {CSSStyleSheet[]} */
    this.made = [];
  }

  /** Does something; style elements that it makes are ours. @param {() => void} work */
  during(work) {
    const page = /** @type {any} */ (document);
    page.createElement = (/** @type {string} */ tag) => (tag === "style" ? this.style() : Document.prototype.createElement.call(document, tag));
    try {
      work();
    } finally {
      delete page.createElement;
    }
  }

  /** An element whose text is a style sheet. */
  style() {
    const sheet = new CSSStyleSheet();
    const element = Document.prototype.createElement.call(document, "span");
    element.hidden = true;
    Object.defineProperty(element, "textContent", { set: (text) => sheet.replaceSync(text) });
    this.made.push(sheet);
    document.adoptedStyleSheets.push(sheet);
    return element;
  }

  end() {
    document.adoptedStyleSheets = document.adoptedStyleSheets.filter((sheet) => !this.made.includes(sheet));
  }
}

/** The style attribute of a span is set as its style. */
function styledSpans() {
  HTMLSpanElement.prototype.setAttribute = function (/** @type {string} */ name, /** @type {string} */ value) {
    if (name === "style") this.style.cssText = value;
    else Element.prototype.setAttribute.call(this, name, value);
  };
}
