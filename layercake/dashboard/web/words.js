// How things are said: statuses, times, ranges of nodes.

import { h } from "./dom.js";

/** The statuses of nodes, the worst first: a letter and a word beside the colour, for who does not see that. */
export const STATUSES = {
  quarantined: { letter: "Q", says: "given up on: a person has to look" },
  blocked: { letter: "B", says: "nothing leads to what is wanted" },
  asking: { letter: "?", says: "a person is asked to do something" },
  held: { letter: "H", says: "the head holds back: an outage, a freeze, no evidence" },
  waiting: { letter: "R", says: "a step failed; it is tried again" },
  working: { letter: "W", says: "under way" },
  maintenance: { letter: "M", says: "as wanted, and a person works on it" },
  converged: { letter: "", says: "as wanted" },
};

/** Seconds in words, as the command line has them. @param {number | null | undefined} value */
export function seconds(value) {
  if (value === null || value === undefined) return "-";
  const whole = Math.max(0, Math.round(value));
  if (whole < 120) return `${whole} s`;
  if (whole < 7200) return `${Math.round(whole / 60)} min`;
  if (whole < 172800) return `${Math.round(whole / 3600)} h`;
  return `${Math.round(whole / 86400)} d`;
}

/** A link to a how-to page of the documentation, which the head serves. @param {string} page */
export function howto(page) {
  return h("a", { href: `/docs/howto/${encodeURIComponent(page)}.html`, target: "_blank", rel: "noopener" }, `docs: ${page}`);
}

/** The time of day, with the date if it is not of today. @param {number} at seconds since the epoch */
export function clock(at) {
  const when = new Date(at * 1000);
  const time = when.toLocaleTimeString("en-GB");
  return when.toDateString() === new Date().toDateString() ? time : `${date(when)} ${time}`;
}

/** @param {Date} when */
function date(when) {
  const two = (/** @type {number} */ n) => String(n).padStart(2, "0");
  return `${when.getFullYear()}-${two(when.getMonth() + 1)}-${two(when.getDate())}`;
}

/**
 * A time that counts on while the page is open. @param {number | null | undefined} age how long ago, in seconds, when it was told
 * @param {number} [told] when it was told: performance.now()
 */
export function age(age, told = performance.now()) {
  if (age === null || age === undefined) return h("span", {}, "-");
  return h("span", { class: "age", "data-since": told / 1000 - age }, seconds(age));
}

/** Moves all ages on. */
export function tick() {
  const now = performance.now() / 1000;
  for (const one of document.querySelectorAll(".age")) {
    if (one instanceof HTMLElement) {
      const text = seconds(now - Number(one.dataset.since));
      if (one.textContent !== text) one.textContent = text;
    }
  }
}

/** How many of something. @param {number} count @param {string} what */
export function counted(count, what) {
  return `${count.toLocaleString("en-US")} ${what}${count === 1 ? "" : "s"}`;
}

const NUMBERED = /^(.*\D|)(\d{1,15})(\D*)$/;

/**
 * Names as a range: n[0-3,7]. Names alike but for their last number are folded; the rest stands as it is.
 * @param {Iterable<string>} names
 */
export function fold(names) {
  /** @type {Map<string, {before: string, after: string, width: number, numbers: number[]}>} */
  const found = new Map();
  const alone = [];
  for (const name of names) {
    const parts = NUMBERED.exec(name);
    if (parts === null) {
      alone.push(name);
      continue;
    }
    const [, before, digits, after] = parts;
    const width = digits.length > 1 && digits.startsWith("0") ? digits.length : 0;
    const key = `${before}\0${after}\0${width}`;
    const entry = found.get(key) ?? { before, after, width, numbers: [] };
    entry.numbers.push(Number(digits));
    found.set(key, entry);
  }
  return [...[...found.values()].map(folded), ...alone].join(",");
}

/** @param {{before: string, after: string, width: number, numbers: number[]}} entry */
function folded({ before, after, width, numbers }) {
  const sorted = [...new Set(numbers)].sort((a, b) => a - b);
  const text = (/** @type {number} */ n) => String(n).padStart(width, "0");
  const spans = [];
  for (let i = 0; i < sorted.length; i++) {
    const first = sorted[i];
    while (sorted[i + 1] === sorted[i] + 1) i++;
    spans.push(first === sorted[i] ? text(first) : `${text(first)}-${text(sorted[i])}`);
  }
  return spans.length === 1 && !spans[0].includes("-") ? before + spans[0] + after : `${before}[${spans.join(",")}]${after}`;
}

/** What comes of many names in a sentence. @param {string} text @param {number} [most] */
export function cut(text, most = 160) {
  return text.length <= most ? text : `${text.slice(0, most)}…`;
}
