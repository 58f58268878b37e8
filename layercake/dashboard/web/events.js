// What happened, the newest first, and what happens.

import * as api from "./api.js";
import { h, put } from "./dom.js";
import { eventLine } from "./nodeparts.js";

const KEPT = 500;

/** @param {import("./main.js").App} app @param {HTMLElement} place @param {URLSearchParams} options */
export function events(app, place, options) {
  const list = h("ol", { class: "events", "aria-label": "Events, the newest first" });
  const node = h("input", { id: "event-node", type: "search", autocomplete: "off", spellcheck: "false", value: options.get("node") ?? "" });
  const kind = h("input", { id: "event-kind", type: "search", placeholder: "power.", autocomplete: "off", spellcheck: "false", value: options.get("kind") ?? "" });
  const grave = h("input", { id: "event-grave", type: "checkbox" });
  const alarms = h("input", { id: "event-security", type: "checkbox" });
  const hold = h("button", { type: "button", "aria-pressed": "false" }, "Hold still");
  put(place, h("h1", {}, "Events"),
    h("form", { class: "filter", role: "search", onsubmit: (/** @type {globalThis.Event} */ event) => { event.preventDefault(); load(); } },
      h("label", { for: "event-node" }, "Node", node), h("label", { for: "event-kind" }, "Kind begins with", kind), h("label", { class: "tick" }, grave, "Warnings and errors only"),
      h("label", { class: "tick" }, alarms, "Security only"), h("button", { type: "submit", class: "main" }, "Show"), hold), list);

  let last = 0;
  let held = false;
  /** @type {import("./live.js").Event[]} */
  let coming = [];
  let frame = 0;
  const meant = (/** @type {import("./live.js").Event} */ e) => (!node.value.trim() || e.node === node.value.trim()) && e.kind.startsWith(kind.value.trim())
    && (!grave.checked || e.severity === "warning" || e.severity === "error") && (!alarms.checked || e.security);
  const flush = () => {
    frame = 0;
    const fresh = coming.filter((e) => e.id > last && meant(e)).slice(-KEPT);
    coming = [];
    if (!fresh.length) return;
    last = fresh[fresh.length - 1].id;
    list.prepend(...fresh.reverse().map(eventLine));
    while (list.childElementCount > KEPT) list.lastElementChild?.remove();
  };
  const load = async () => {
    try {
      const found = (await api.get("/v1/events", { limit: KEPT, node: node.value.trim(), kind: kind.value.trim(), severity: grave.checked ? "warning" : "", security: alarms.checked ? "1" : "" })).events;
      put(list);
      [last, coming] = [0, found];
      flush();
      app.fine();
    } catch (error) {
      app.failed(error);
    }
  };
  for (const tick of [grave, alarms]) tick.addEventListener("change", load);
  hold.addEventListener("click", () => {
    held = !held;
    hold.setAttribute("aria-pressed", String(held));
    if (!held) load();
  });
  load();
  const stop = app.live.listen({
    events: (found) => {
      if (held) return;
      coming.push(...found);
      if (coming.length > 4 * KEPT) coming = coming.slice(-KEPT);
      if (!frame) frame = requestAnimationFrame(flush);
    },
    anew: () => held || load(),
  });
  return () => {
    stop();
    cancelAnimationFrame(frame);
  };
}
