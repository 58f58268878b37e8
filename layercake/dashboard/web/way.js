// A node's way from where it is to what is wanted, and the whole state graph with it.

import * as api from "./api.js";
import { h, put } from "./dom.js";
import { seconds } from "./words.js";

/** The way, step by step, with the one that is under way. @param {any} explanation */
export function way(explanation) {
  const { chain, active, goal, attempts, met } = explanation;
  const values = (/** @type {Record<string, string>} */ found) => Object.entries(found).map(([name, value]) => h("span", { class: "value" }, `${name}=${value}`));
  const known = Object.fromEntries(Object.entries(explanation.state).filter(([, value]) => value !== "UNKNOWN"));
  const steps = (chain ?? []).map((/** @type {any} */ step) => {
    const now = active?.mutation === step.name;
    const tried = attempts[step.name];
    return h("li", { class: now ? "step now" : tried ? "step tried" : "step", "aria-current": now ? "step" : null },
      h("b", {}, step.name), h("span", {}, step.doc), h("small", {}, `by the ${step.where}`, tried ? `, failed ${tried === 1 ? "once" : `${tried} times`}` : "",
        now ? `; attempt ${active.attempt}, for ${seconds(active.seconds)}${active.deadline_s === null ? "" : `, ${seconds(active.deadline_s)} left`}` : ""));
  });
  const first = active && !steps.some((/** @type {Element} */ one) => one.classList.contains("now"))
    ? h("li", { class: "step now", "aria-current": "step" }, h("b", {}, active.mutation), h("span", {}, active.doc), h("small", {}, `attempt ${active.attempt}, for ${seconds(active.seconds)}`)) : null;
  return h("ol", { class: "steps" },
    h("li", { class: "state here" }, h("b", {}, "is"), values(known).length ? values(known) : "nothing known"),
    first, ...steps,
    chain === null ? h("li", { class: "step none" }, h("b", {}, "no way"), h("span", {}, "Nothing leads from here to what is wanted.")) : null,
    h("li", { class: met ? "state goal met" : "state goal" }, h("b", {}, met ? "as wanted" : "wanted"), values(goal).length ? values(goal) : "nothing"));
}

/** The state graph, drawn by the head, with the node's way in it. @param {string} name @param {Element} place */
export async function graph(name, place) {
  const picture = await api.text("/v1/graph", { format: "svg", node: name });
  const image = h("img", { class: "graph", alt: `The state graph; the way of ${name} is drawn bold. The list of steps says the same.`, src: `data:image/svg+xml;charset=utf-8,${encodeURIComponent(picture)}` });
  put(place, h("div", { class: "wide", tabindex: 0, role: "group", "aria-label": "State graph" }, image));
}
