// One node: how it is, why, and its way; live as long as it is looked at.

import * as api from "./api.js";
import { buttons } from "./actions.js";
import { failure } from "./ask.js";
import { lastBoot, timeline } from "./boot.js";
import { consoleOf } from "./console.js";
import { h, part, put } from "./dom.js";
import { paced } from "./live.js";
import { containers, facts, files, hardware, history, onRequest, sensors, variables } from "./nodeparts.js";
import { STATUSES, age } from "./words.js";
import { graph, way } from "./way.js";

const PAUSE_MS = 400;
const NEWEST = 60;

/** @param {import("./main.js").App} app @param {HTMLElement} place @param {string} name */
export function node(app, place, name) {
  const path = `/v1/nodes/${api.quoted(name)}`;
  /** @type {Record<string, ReturnType<typeof part>>} */
  const shows = {};
  /** A part of the page with a title. @param {string} key @param {string} title */
  const section = (key, title) => {
    const body = h("div", {});
    shows[key] = part(body);
    return h("section", { class: `panel ${key}`, "aria-labelledby": `h-${key}` }, h("h2", { id: `h-${key}` }, title), body);
  };
  const lead = h("div", { class: "lead" });
  shows.lead = part(lead);
  const serial = app.operates ? consoleOf(app, name) : null;
  const drawn = h("div", {});
  const whole = h("details", { class: "panel graph" }, h("summary", {}, "The state graph"), drawn);
  put(place, h("h1", {}, name), lead,
    app.operates ? h("p", { class: "acts" }, ...buttons(() => name, ["on", "off", "cycle", "clear", "freeze", "thaw", "maintain", "maintained", "remedy", "take"], app.failed)) : null,
    h("div", { class: "panels" }, section("way", "Its way"), h("div", {}, section("variables", "Variables"), section("facts", "Facts")),
      section("boot", "Last boot"), section("containers", "Containers"), section("history", "History")),
    whole,
    serial?.element,
    onRequest("Sensors", "Read the sensors", () => sensors(name)),
    app.operates ? onRequest("Files", "List its files", () => files(path)) : null,
    app.operates && app.site ? onRequest("Hardware", "Show its hardware", () => hardware(name)) : null);

  const draw = async () => whole.open && graph(name, drawn).catch((error) => put(drawn, h("p", { class: "why" }, ...failure(error))));
  whole.addEventListener("toggle", draw);
  let state = "";
  const refresh = paced(async () => {
    try {
      const [{ node: view, history: events }, { explanation }] = await Promise.all([api.get(path), api.get(`${path}/explain`)]);
      const told = performance.now();
      shows.lead([view.status, explanation.summary, explanation.blocked, explanation.unhealthy, troubles(explanation), view.stopped], () => leading(view, explanation, told));
      shows.way([explanation.state, explanation.goal, explanation.chain, explanation.active, explanation.attempts, Math.round(told / 1000)], () => way(explanation));
      shows.variables([view.state, view.goal], () => variables(view));
      shows.boot(events.length && events[events.length - 1].id, () => timeline(lastBoot(events), view.boot_time));
      shows.containers(view.containers, () => containers(app, path, view, told));
      shows.facts({ ...view, status_text: "", active: null }, () => facts(view, told));
      shows.history(events.length && events[events.length - 1].id, () => history(events.slice(-NEWEST)));
      const now = JSON.stringify([view.state, view.goal]);
      if (now !== state) draw();
      state = now;
      app.fine();
    } catch (error) {
      if (error instanceof api.Failed && error.status !== 0) put(lead, h("p", { class: "why", role: "alert" }, ...failure(error)));
      else app.failed(error);
    }
  }, () => PAUSE_MS);
  refresh();
  const unheard = app.live.listen({ events: (events) => events.some((one) => one.node === name || one.node === "") && refresh(), anew: refresh, look: refresh });
  return () => {
    unheard();
    serial?.end();
  };
}

/** What is wrong with its parts. @param {any} explanation @returns {string[]} */
function troubles(explanation) {
  return ["network", "files", "disks", "tpm", "hardware"].flatMap((what) => explanation[what].map((/** @type {string} */ text) => `${what}: ${text}`));
}

/** The first lines: its status, and the cause. @param {any} view @param {any} explanation @param {number} told */
function leading(view, explanation, told) {
  const letter = STATUSES[/** @type {keyof typeof STATUSES} */ (view.status)]?.letter ?? "";
  const lines = [...explanation.blocked, explanation.unhealthy && `unwell: ${explanation.unhealthy}`, ...troubles(explanation)].filter(Boolean);
  return [
    h("p", { class: `verdict ${view.status}` }, h("span", { class: `mark ${view.status}`, "aria-hidden": "true" }, letter), h("b", {}, view.status),
      explanation.summary ? [": ", h("span", { class: "text" }, explanation.summary)] : "", " (unchanged for ", age(view.since_s, told), ")"),
    view.stopped.length ? h("p", { class: "alarm" }, `Nothing is done to it: ${view.stopped.join(", ")}.`) : null,
    lines.length > 1 || (lines.length && lines[0] !== explanation.summary) ? h("ul", { class: "why" }, ...lines.map((text) => h("li", {}, text))) : null,
    explanation.trouble.length && !["converged", "maintenance", "unwell"].includes(view.status) ? h("p", { class: "note" }, "Last trouble: ", explanation.trouble[explanation.trouble.length - 1].text) : null,
  ];
}
