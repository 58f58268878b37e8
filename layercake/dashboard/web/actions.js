// What an operator does to nodes: with the questions of the command line. Each has its target; no target is ever "all" by itself.

import * as api from "./api.js";
import { ask } from "./ask.js";
import { h } from "./dom.js";
import { counted, fold } from "./words.js";

/**
 * @typedef {{key: string, label: string, title: string, danger?: boolean, stops?: boolean, force?: boolean, reason?: boolean,
 *   time?: boolean, says: string, path: string, body: (range: string, form: FormData) => any}} Action
 */

const FORCE = "BUSY nodes too, and without waiting for their images to stop";

/** @param {FormData} form */
const forced = (form) => form.get("force") === "on";

/** @type {Action[]} */
export const ACTIONS = [
  { key: "on", label: "Power on", title: "Power on", says: "They are wanted up: powered on, and booted.", path: "/v1/power",
    body: (range) => ({ range, action: "on" }) },
  { key: "off", label: "Power off", title: "Power off", danger: true, force: true, path: "/v1/power",
    says: "They are wanted off; what runs there is stopped first.", body: (range, form) => ({ range, action: "off", force: forced(form) }) },
  { key: "cycle", label: "Power cycle", title: "Power cycle", danger: true, force: true, path: "/v1/power",
    says: "They are switched off and on, and boot anew.", body: (range, form) => ({ range, action: "cycle", force: forced(form) }) },
  { key: "clear", label: "Clear", title: "Clear the quarantine of", says: "They are tried anew.", path: "/v1/nodes/clear",
    body: (range) => ({ range }) },
  { key: "freeze", label: "Freeze", title: "Freeze", reason: true, says: "They are observed, and nothing is done to them.",
    path: "/v1/guard/freeze", body: (range, form) => ({ range, reason: String(form.get("reason")) }) },
  { key: "thaw", label: "Thaw", title: "Thaw", says: "What the head held back goes on.", path: "/v1/guard/thaw", body: (range) => ({ range }) },
  { key: "maintain", label: "Begin maintenance", title: "Begin the maintenance of", reason: true, path: "/v1/maintenance/begin",
    says: "They are left out of rolls, of remedies and of Slurm.", body: (range, form) => ({ range, reason: String(form.get("reason")) }) },
  { key: "maintained", label: "End maintenance", title: "End the maintenance of", says: "They are back in rolls and remedies.",
    path: "/v1/maintenance/end", body: (range) => ({ range }) },
  { key: "remedy", label: "Start anew", title: "Start anew", danger: true, path: "/v1/nodes/remedy",
    says: "They are silent, and may still be at work. They are started anew.", body: (range) => ({ range }) },
  { key: "take", label: "Take over", title: "Take over", danger: true, path: "/v1/nodes/take",
    says: "They were found running. Whatever runs there ends, and they boot anew.", body: (range) => ({ range }) },
];

/** Asks, with how many nodes it is about and what runs there, and does it. @param {Action} action @param {string} range */
export async function perform(action, range) {
  const target = range.trim();
  if (!target) return false;
  const found = (await api.get("/v1/nodes", { range: target, fields: "name,in_use,state" })).nodes;
  const names = found.map((/** @type {any} */ n) => n.name);
  const busy = found.filter((/** @type {any} */ n) => n.state.busy === "BUSY").map((/** @type {any} */ n) => n.name);
  const running = found.filter((/** @type {any} */ n) => n.in_use).length;
  const shown = fold(names);
  return ask({
    title: `${action.title} ${names.length === 1 ? names[0] : counted(names.length, "node")}?`, act: `${action.label} ${counted(names.length, "node")}`, danger: action.danger,
    body: [
      h("p", {}, h("strong", { class: "target" }, shown)),
      h("p", {}, `${counted(names.length, "node")}, ${running} of them running, ${busy.length ? `${busy.length} BUSY (${fold(busy)})` : "none BUSY"}.`),
      h("p", {}, action.says),
      action.reason && h("label", {}, "Why; the others will want to know", h("input", { name: "reason", required: true, maxlength: 300, autocomplete: "off" })),
      action.force && h("label", { class: "tick" }, h("input", { type: "checkbox", name: "force" }), FORCE),
    ],
    work: async (form) => {
      const answer = await api.post(action.path, action.body(target, form));
      const refused = (answer.nodes ?? []).filter((/** @type {any} */ n) => n.accepted === false);
      if (refused.length) throw new api.Failed(200, `not accepted by ${fold(refused.map((/** @type {any} */ n) => n.node))}`, refused[0].why);
      return `${action.label}: ${shown}`;
    },
  });
}

/**
 * Buttons for nodes: those of an operator. `range` says which, when one is pressed. @param {() => string} range
 * @param {string[]} keys @param {(error: unknown) => void} failed
 */
export function buttons(range, keys, failed) {
  return ACTIONS.filter((action) => keys.includes(action.key)).map((action) => h("button", {
    type: "button", class: action.danger ? "danger" : "", "data-key": `act-${action.key}`,
    onclick: () => perform(action, range()).catch(failed),
  }, action.label));
}
