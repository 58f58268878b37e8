// The rack: every node as a cell, by group or place, coloured by its status or by a variable; some of them by range and by query.

import * as api from "./api.js";
import { buttons } from "./actions.js";
import { failure } from "./ask.js";
import { h, part, put } from "./dom.js";
import { Grid } from "./grid.js";
import { groupings, portOf, switchOf } from "./layout.js";
import { paced } from "./live.js";
import { counted, STATUSES } from "./words.js";

const PALETTE = 8;
const PAUSE_MS = 1500;

/** @param {import("./main.js").App} app @param {HTMLElement} place @param {URLSearchParams} options */
export function rack(app, place, options) {
  /** @type {Set<string> | null} */
  let meant = null;
  let by = options.get("by") ?? "";
  let colour = options.get("colour") ?? "status";
  /** What is shown; what somebody types counts when it is sent. */
  const asked = { range: options.get("range") ?? "", where: options.get("where") ?? "" };
  const range = field("range", "Nodes", "n[0-31] or @group", asked.range);
  const where = field("where", "Query", "image=ERROR and unchanged>5m", asked.where);
  const grouping = h("select", { id: "by" });
  const colouring = h("select", { id: "colour" });
  const trouble = h("p", { class: "why", role: "alert" });
  const told = h("p", { id: "grid-node", class: "node-line", role: "status" }, "Point at a node, or move there with the arrow keys.");
  const legend = h("ul", { class: "legend", "aria-label": "What the cells mean" });
  const acts = h("div", { class: "acts" });
  const showLegend = part(legend);
  const showActs = part(acts);
  const looks = looksOf(() => colour, () => app.fleet.variables);
  const grid = new Grid(looks.of, (name, open) => {
    const row = app.fleet.rows.get(name);
    if (open) location.hash = `#/node/${encodeURIComponent(name)}`;
    else if (row) put(told, line(row, colour));
  });

  const rows = () => (meant === null ? [...app.fleet.rows.values()] : [...meant].map((name) => app.fleet.rows.get(name)).filter((row) => row !== undefined));
  const counts = paced(async () => {
    if (app.fleet.change) showLegend(looks.counts(rows()), () => looks.legend(rows()));
  }, () => 300);
  const all = () => {
    choices(grouping, groupings(app.fleet.rows.values()), by);
    choices(colouring, ["status", ...app.fleet.variables], colour);
    grid.show(rows(), grouping.value);
    counts();
    acting();
  };
  const acting = () => {
    const count = meant ? meant.size : 0;
    showActs([count, app.operates], () => (!app.operates ? [] : count ? [h("span", {}, `With the ${counted(count, "node")} shown:`),
      ...buttons(() => [...(meant ?? [])].join(","), ["on", "off", "cycle", "clear", "freeze", "thaw", "maintain", "maintained"], app.failed)]
      : [h("span", { class: "note" }, "Choose nodes by name or by query to do something with them.")]));
  };
  const filter = async () => {
    try {
      meant = asked.range || asked.where ? new Set((await api.get("/v1/nodes", { ...asked, fields: "name" })).nodes.map((/** @type {any} */ n) => n.name)) : null;
      put(trouble);
    } catch (error) {
      if (error instanceof api.Failed && error.status === 0) app.failed(error);
      else put(trouble, ...failure(error));
      return;
    }
    all();
  };
  const again = paced(filter, () => PAUSE_MS);
  const remember = () => {
    const words = new URLSearchParams();
    for (const [name, value] of [["range", asked.range], ["where", asked.where], ["by", by], ["colour", colour === "status" ? "" : colour]]) if (value) words.set(name, value);
    history.replaceState(null, "", `#/rack${words.size ? `?${words}` : ""}`);
  };

  grouping.addEventListener("change", () => { by = grouping.value; remember(); all(); });
  colouring.addEventListener("change", () => { colour = colouring.value; remember(); app.fleet.withState(colour !== "status"); grid.forget(); counts(); });
  const form = h("form", { class: "filter", role: "search", onsubmit: (/** @type {globalThis.Event} */ event) => { event.preventDefault(); asked.range = range.input.value.trim(); asked.where = where.input.value.trim(); remember(); filter(); } },
    range.label, where.label, h("button", { type: "submit", class: "main" }, "Show"),
    h("label", { for: "by" }, "By", grouping), h("label", { for: "colour" }, "Colour", colouring));
  put(place, h("h1", {}, "Rack"), form, trouble, acts, legend, told,
    h("p", { id: "grid-help", class: "unseen" }, "Arrow keys move from node to node, Enter opens one."), grid.element);

  app.fleet.withState(colour !== "status");
  const stop = app.fleet.listen((changed) => {
    if (changed === null || !grid.update(changed.filter((row) => meant === null || meant.has(row.name)))) all();
    else counts();
  });
  app.fleet.look();
  filter();
  const unheard = app.live.listen({ events: () => asked.where && again(), look: () => meant && again(), anew: () => meant && again() });
  return () => {
    stop();
    unheard();
    grid.end();
    app.fleet.withState(false);
  };
}

/** @param {string} id @param {string} label @param {string} hint @param {string} value */
function field(id, label, hint, value) {
  const input = h("input", { id, type: "search", placeholder: hint, autocomplete: "off", spellcheck: "false", maxlength: 4000, value });
  return { input, label: h("label", { for: id }, label, input) };
}

/** @param {HTMLSelectElement} select @param {string[]} words @param {string} chosen */
function choices(select, words, chosen) {
  if ([...select.options].map((one) => one.value).join("\0") !== words.join("\0")) {
    put(select, ...words.map((word) => h("option", { value: word, selected: word === chosen }, word)));
  }
}

/** A node in a line. @param {import("./fleet.js").Row} row @param {string} colour */
function line(row, colour) {
  const more = [[switchOf(row), portOf(row)].filter(Boolean).join(" "), row.wanted === "off" ? "wanted off" : "", ...row.stopped, colour === "status" ? "" : `${colour}=${row.state?.[colour] ?? "?"}`].filter(Boolean);
  return `${row.name}: ${row.status}${more.length ? ` (${more.join(", ")})` : ""}`;
}

/** What cells look like, and what that means. @param {() => string} colour @param {() => string[]} variables */
function looksOf(colour, variables) {
  /** @type {Map<string, number>} */
  const values = new Map();
  const numberOf = (/** @type {string} */ value) => {
    if (!values.has(value)) values.set(value, values.size % PALETTE);
    return values.get(value) ?? 0;
  };
  const valueOf = (/** @type {import("./fleet.js").Row} */ row) => (colour() === "status" || !variables().includes(colour()) ? row.status : row.state?.[colour()] ?? "UNKNOWN");
  const looked = (/** @type {string} */ value) => {
    const known = STATUSES[/** @type {keyof typeof STATUSES} */ (value)];
    if (known) return { kind: value, letter: known.letter };
    return { kind: value === "UNKNOWN" ? "unknown" : /ERROR|FATAL|HANG|FOREIGN|DRIFTED/.test(value) ? "quarantined" : `v${numberOf(value)}`, letter: value === "UNKNOWN" ? "" : value[0] };
  };
  return {
    of: (/** @type {import("./fleet.js").Row} */ row) => ({ ...looked(valueOf(row)), hollow: row.wanted === "off" && ["converged", "maintenance"].includes(row.status), stopped: row.stopped[0] ?? "" }),
    counts: (/** @type {import("./fleet.js").Row[]} */ rows) => {
      /** @type {Record<string, number>} */
      const found = {};
      for (const row of rows) found[valueOf(row)] = (found[valueOf(row)] ?? 0) + 1;
      return found;
    },
    legend(/** @type {import("./fleet.js").Row[]} */ rows) {
      const counts = this.counts(rows);
      const known = colour() === "status" ? Object.keys(STATUSES) : Object.keys(counts).sort();
      return known.map((value) => {
        const { kind, letter } = looked(value);
        const says = STATUSES[/** @type {keyof typeof STATUSES} */ (value)]?.says;
        return h("li", { class: counts[value] ? "" : "none", title: says ?? null }, h("span", { class: `cell ${kind}`, "aria-hidden": "true" }, letter), ` ${value} `, h("b", {}, (counts[value] ?? 0).toLocaleString("en-US")));
      });
    },
  };
}
