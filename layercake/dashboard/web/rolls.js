// Rolls: how far each is, its batches as they go, and orders to it.

import * as api from "./api.js";
import { ask } from "./ask.js";
import { h, part, put } from "./dom.js";
import { paced } from "./live.js";
import { clock, counted } from "./words.js";

const PAUSE_MS = 700;
const OVER = ["done", "failed", "aborted"];
const GRID = 2000;
/** How a node of a roll stands: its letter, and the colour of its cell. @type {Record<string, [string, string]>} */
const STANDS = {
  done: ["", "converged"], waiting: ["", "unknown"], staging: ["S", "v0"], staged: ["s", "v2"], busy: ["B", "held"], switching: ["W", "working"],
  watching: ["G", "waiting"], "to go back": ["c", "blocked"], "going back": ["r", "blocked"], failed: ["F", "quarantined"],
  "rolled back": ["R", "blocked"], skipped: ["-", "held"],
};

/** @param {import("./main.js").App} app @param {HTMLElement} place */
export function rolls(app, place) {
  const list = h("div", { class: "rolls" });
  put(place, h("h1", {}, "Rolls"), list);
  const show = part(list);
  const refresh = paced(async () => {
    try {
      const found = (await api.get("/v1/rolls", { limit: 30 })).rolls;
      show(found, () => (found.length ? found.map((/** @type {any} */ one) => card(app, one)) : h("p", { class: "note" }, "There was no roll yet. `layercake image roll` begins one.")));
      app.fine();
    } catch (error) {
      app.failed(error);
    }
  }, () => PAUSE_MS);
  refresh();
  return app.live.listen({ events: (events) => events.some((e) => /^(roll|image)\./.test(e.kind)) && refresh(), anew: refresh, look: refresh });
}

/** One roll with its batches. @param {import("./main.js").App} app @param {HTMLElement} place @param {string} id */
export function roll(app, place, id) {
  const top = h("div", { class: "rolls" });
  const batches = h("div", { class: "batches" });
  put(place, h("h1", {}, `Roll ${id}`), top, batches);
  const [showTop, showBatches] = [part(top), part(batches)];
  const refresh = paced(async () => {
    try {
      const found = (await api.get(`/v1/rolls/${api.quoted(id)}`, { nodes: "all" })).roll;
      const { nodes, ...rest } = found;
      showTop(rest, () => card(app, rest));
      showBatches(nodes, () => inBatches(nodes));
      app.fine();
    } catch (error) {
      app.failed(error);
    }
  }, () => PAUSE_MS);
  refresh();
  return app.live.listen({ events: (events) => events.some((e) => /^(roll|image)\./.test(e.kind)) && refresh(), anew: refresh, look: refresh });
}

const kindOf = (/** @type {string} */ state) => (STANDS[state] ?? ["", "unknown"])[1];
const letterOf = (/** @type {string} */ state) => (STANDS[state] ?? [state[0]])[0];

/** @param {import("./main.js").App} app @param {any} one */
function card(app, one) {
  const counts = Object.entries(one.counts).filter(([, count]) => count);
  const order = (/** @type {string} */ what, danger = false) => h("button", { type: "button", class: danger ? "danger" : "", "data-key": `${one.id} ${what}`, onclick: () => command(app, one, what, danger) }, what[0].toUpperCase() + what.slice(1));
  const goes = !OVER.includes(one.state);
  return h("article", { class: `roll ${one.state.replace(" ", "-")}` },
    h("h2", {}, h("a", { href: `#/rolls/${one.id}`, "data-key": `roll ${one.id}` }, `Roll ${one.id}`), ` to ${one.image}: `, h("span", { class: "status" }, one.state)),
    one.reason ? h("p", { class: "why" }, one.reason) : null,
    h("div", { class: "progress", role: "img", "aria-label": counts.map(([state, count]) => `${count} ${state}`).join(", ") }, ...counts.map(([state, count]) => {
      const bar = h("span", { class: kindOf(state) });
      bar.style.width = `${(Number(count) / Math.max(1, one.nodes_total)) * 100}%`;
      return bar;
    })),
    h("ul", { class: "legend" }, ...counts.map(([state, count]) => h("li", {}, h("span", { class: `cell ${kindOf(state)}`, "aria-hidden": "true" }, letterOf(state)), ` ${state} `, h("b", {}, Number(count).toLocaleString("en-US"))))),
    h("p", { class: "note" }, `${counted(one.nodes_total, "node")}, ${one.kind}; ${one.state === "scheduled" ? `begins at ${clock(one.starts)}; asked for by` : `${goes ? `batch ${one.batch}${one.stage ? ` of stage ${one.stage}` : ""}; ` : ""}begun by`} ${one.by} at ${clock(one.at)}${one.ended ? `, over at ${clock(one.ended)}` : ""}`),
    app.operates && goes ? h("p", { class: "buttons" }, one.state === "scheduled" ? null : one.state === "paused" ? order("resume") : order("pause"), order("abort", true)) : null);
}

/** @param {any[]} nodes */
function inBatches(nodes) {
  /** @type {Map<string, any[]>} */
  const found = new Map();
  for (const one of nodes) {
    const key = `${one.stage}\0${one.batch}`;
    const its = found.get(key);
    if (its) its.push(one);
    else found.set(key, [one]);
  }
  const failed = nodes.filter((one) => one.reason || one.trouble).slice(0, 50);
  return [
    failed.length ? h("section", {}, h("h2", {}, "What failed"), h("ul", { class: "why" }, ...failed.map((one) => h("li", {},
      h("a", { href: `#/node/${encodeURIComponent(one.name)}`, "data-key": `failed ${one.name}` }, one.name), ` ${one.state}: ${[one.reason, one.trouble].filter(Boolean).join(": ")}`)))) : null,
    ...[...found].map(([key, its]) => {
      const [stage, batch] = key.split("\0");
      const title = Number(batch) > 0 ? `Batch ${batch}` : "Not in a batch yet";
      return h("section", {}, h("h2", {}, stage && stage !== "all" ? `${stage}: ${title}` : title),
        nodes.length <= GRID ? h("ul", { class: "squares" }, ...its.map((one) => h("li", {}, h("a", { href: `#/node/${encodeURIComponent(one.name)}`, class: `cell ${kindOf(one.state)}`, title: `${one.name}: ${one.state}`, "data-key": one.name },
          h("span", { "aria-hidden": "true" }, letterOf(one.state)), h("span", { class: "unseen" }, `${one.name}: ${one.state}`)))))
          : h("p", {}, counted(its.length, "node")));
    })];
}

/** @param {import("./main.js").App} app @param {any} one @param {string} what @param {boolean} danger */
function command(app, one, what, danger) {
  const means = /** @type {Record<string, string>} */ ({ pause: "No further switch begins.", resume: "It goes on.", abort: "It ends; nodes that have switched stay." });
  ask({ title: `${what[0].toUpperCase() + what.slice(1)} roll ${one.id} to ${one.image}?`, act: `${what[0].toUpperCase() + what.slice(1)} roll ${one.id}`, danger,
    body: [h("p", {}, `${counted(one.nodes_total, "node")}, ${one.counts.done ?? 0} of them done. ${means[what]}`)],
    work: async () => `Roll ${one.id}: ${(await api.post(`/v1/rolls/${one.id}/${what}`, {})).roll.state}` }).catch(app.failed);
}
