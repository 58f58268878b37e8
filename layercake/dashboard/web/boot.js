// The last boot of a node as a time line: which step came when, and how long it was until the next.

import { h } from "./dom.js";
import { clock, seconds } from "./words.js";

const OF_BOOT = /^boot\.|^node\.joined$|^power\.(state|cycle|cycled)$|^image\.(started|healthy)$/;
const BEGINS = /^power\.|^boot\.discover-seen$/;
const PAUSE_S = 900;
const MOST = 40;

/** The events of the last boot, oldest first. @param {import("./live.js").Event[]} history */
export function lastBoot(history) {
  const found = history.filter((event) => OF_BOOT.test(event.kind));
  let begin = found.length - 1;
  while (begin > 0) {
    const [before, event] = [found[begin - 1], found[begin]];
    if (event.at - before.at > PAUSE_S) break;
    if (BEGINS.test(event.kind) && /joined|started|healthy|stalled/.test(before.kind)) break;
    begin--;
  }
  return found.slice(Math.max(0, begin, found.length - MOST));
}

/** The time line. @param {import("./live.js").Event[]} events @param {any} times how long boots take */
export function timeline(events, times) {
  if (events.length === 0) return [h("p", { class: "note" }, "No boot was seen.")];
  const [first, last] = [events[0].at, events[events.length - 1].at];
  const whole = Math.max(1, last - first);
  const rows = events.map((event, i) => {
    const [since, until] = [event.at - first, (events[i + 1]?.at ?? event.at) - first];
    const bar = h("span", { class: `bar ${event.severity}` });
    bar.style.marginLeft = `${(since / whole) * 100}%`;
    bar.style.width = `max(3px, ${((until - since) / whole) * 100}%)`;
    return h("tr", {}, h("td", { class: "number" }, `+${since.toFixed(since < 10 ? 1 : 0)} s`), h("td", {}, event.kind.replace(/^boot\./, "")),
      h("td", { class: "track", "aria-hidden": "true" }, bar), h("td", { class: "text" }, event.text));
  });
  const usual = times?.usual_s ? `; usually ${seconds(times.usual_s)} until its agent joins` : "";
  return [h("p", { class: "note" }, `Since ${clock(first)}, ${seconds(last - first)}${usual}`),
    h("div", { class: "wide", tabindex: 0, role: "group", "aria-label": "Steps of the boot" },
      h("table", { class: "boot" }, h("thead", {}, h("tr", {}, ...["After", "Step", "", "What"].map((word) => h("th", { scope: "col" }, word || h("span", { class: "unseen" }, "Length"))))), h("tbody", {}, ...rows)))];
}
