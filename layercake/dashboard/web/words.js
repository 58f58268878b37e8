// How things are said: statuses, times, ranges of nodes.

import { h } from "./dom.js";

/** The statuses of nodes, the worst first: a letter and a word beside the colour, for who does not see that. */
export const STATUSES = {
  quarantined: { letter: "Q", says: "given up on: a person has to look" },
  silent: { letter: "S", says: "fell silent with many others: an outage" },
  blocked: { letter: "B", says: "nothing leads to what is wanted" },
  asking: { letter: "?", says: "a person is asked to do something" },
  unwell: { letter: "U", says: "as wanted, but a container is not well" },
  held: { letter: "H", says: "the head holds back: a freeze, its turn, no evidence" },
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

const NUMBERS = /(?<![0-9])([0-9]{1,9})(?![0-9])/;

/**
 * Names as a range, as the command line folds them (layercake/inventory/ranges.py): n[0-3,7], r[1-2]n[01-16].
 * @param {Iterable<string>} names
 */
export function fold(names) {
  /** @type {Map<string, string[][]>} */
  const found = new Map();
  for (const name of new Set(names)) {
    const pieces = name.split(NUMBERS);
    const texts = pieces.filter((_, place) => place % 2 === 0).join("\0");
    const numbers = pieces.filter((_, place) => place % 2 === 1);
    const known = found.get(texts);
    if (known) known.push(numbers);
    else found.set(texts, [numbers]);
  }
  return [...found.keys()].sort().flatMap((key) => {
    const texts = key.split("\0");
    return rows(found.get(key) ?? []).map((row) => texts.map((text, place) => text + (row[place] ?? "")).join(""));
  }).join(",");
}

/** Each row stands for all combinations of what its places say. @param {string[][]} numbers @returns {string[][]} */
function rows(numbers) {
  if (numbers[0].length === 0) return [[]];
  /** @type {Map<string, {first: string[], lasts: string[]}>} */
  const lasts = new Map();
  for (const row of numbers) {
    const first = row.slice(0, -1);
    const known = lasts.get(first.join());
    if (known) known.lasts.push(row[row.length - 1]);
    else lasts.set(first.join(), { first, lasts: [row[row.length - 1]] });
  }
  /** @type {Map<string, string[][]>} */
  const firsts = new Map();
  for (const one of [...lasts.values()].sort((a, b) => compare(a.first, b.first))) {
    const range = bracket(one.lasts);
    const known = firsts.get(range);
    if (known) known.push(one.first);
    else firsts.set(range, [one.first]);
  }
  return [...firsts].flatMap(([last, first]) => rows(first).map((row) => [...row, last]));
}

/** The shorter first, place by place. @param {string[]} a @param {string[]} b */
function compare(a, b) {
  for (let place = 0; place < a.length; place++) {
    const order = a[place].length - b[place].length || Number(a[place]) - Number(b[place]);
    if (order) return order;
  }
  return 0;
}

/** @param {string} digits */
const padded = (digits) => digits.length > 1 && digits[0] === "0";

/** 7, or [0-3,7]; 07 is another than 7, and 10 is next to 09 and to 9. @param {string[]} numbers */
function bracket(numbers) {
  /** @type {[string, string][]} */
  const spans = [];
  let after = -1;
  let width = 0;
  for (const digits of numbers.sort((a, b) => compare([a], [b]))) {
    const span = spans[spans.length - 1];
    if (Number(digits) === after && (digits.length === width || !(padded(digits) || padded(span[0])))) span[1] = digits;
    else spans.push([digits, digits]);
    after = Number(digits) + 1;
    width = digits.length;
  }
  const words = spans.map(([first, last]) => (first === last ? first : `${first}-${last}`));
  return words.length === 1 && spans[0][0] === spans[0][1] ? words[0] : `[${words.join(",")}]`;
}
