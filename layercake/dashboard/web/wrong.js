// "What is wrong": the causes, that of most nodes first, each with the next step. Before them, what is wrong with the head itself.

import * as api from "./api.js";
import { buttons } from "./actions.js";
import { failure } from "./ask.js";
import { h, part, put } from "./dom.js";
import { paced } from "./live.js";
import { age, counted, cut, fold, howto, STATUSES } from "./words.js";

const PAUSE_MS = 1500;
const NAMES = 240;

/** @param {import("./main.js").App} app @param {HTMLElement} place */
export function wrong(app, place) {
  const counts = h("div", { class: "counts" });
  const head = h("div", {});
  const causes = h("div", { class: "causes" });
  put(place, h("h1", {}, "What is wrong"), counts, head, causes);
  const [showCounts, showHead, showCauses] = [part(counts), part(head), part(causes)];

  const refresh = paced(async () => {
    try {
      const [status, found] = await Promise.all([api.get("/v1/status"), api.get("/v1/causes")]);
      showCounts(status.nodes, () => bar(status.nodes));
      const troubles = ofHead(status);
      showHead(troubles, () => troubles.map((text) => h("p", { class: "alarm" }, text)));
      const [first, rest] = [found.causes.filter(stuck), found.causes.filter((/** @type {any} */ one) => !stuck(one))];
      showCauses([found.causes, found.beside], () => [
        ...(found.causes.length ? [...first, ...rest].map((one) => cause(app, one)) : [well(found.well)]), ...found.beside.map(beside)]);
      app.fine();
    } catch (error) {
      app.failed(error);
    }
  }, () => PAUSE_MS);

  refresh();
  return app.live.listen({ events: refresh, anew: refresh, look: refresh });
}

/** Whether somebody has to do something: nodes that are on their way come after those that are not. @param {any} one */
function stuck(one) {
  return one.status !== "working" && one.status !== "waiting";
}

/** @param {Record<string, number>} nodes */
function bar(nodes) {
  const order = ["quarantined", "blocked", "asking", "working", "converged"];
  return [
    h("ul", { class: "tally" }, h("li", { class: "tile" }, h("b", {}, nodes.total.toLocaleString("en-US")), h("span", {}, "in all")), ...order.map((status) => h("li", { class: `tile ${status}${nodes[status] ? "" : " none"}` },
      h("b", {}, nodes[status].toLocaleString("en-US")), h("span", {}, status === "working" ? "under way" : status === "converged" ? "as wanted" : status)))),
  ];
}

/** What the head says of itself that somebody has to mend. @param {any} status @returns {string[]} */
function ofHead(status) {
  const down = status.services.filter((/** @type {any} */ s) => s.state !== "running").map((/** @type {any} */ s) => `${s.name} is ${s.state}`);
  const found = down.length ? [`Of the head's modules, ${down.join(", ")}.`] : [];
  if (!status.database.well) found.push(`The database cannot be written: ${status.database.trouble}. ${counted(status.database.waiting, "event")} wait.`);
  if (status.history && !status.history.well) found.push(`The inventory's history lacks ${counted(status.history.waiting, "change")}: ${status.history.trouble}. \`layercake inventory rebuild\` mends it.`);
  if (!status.loop.well) found.push(`The head is late with all that it does: ${status.loop.trouble}.`);
  for (const one of status.certificates) if (one.days < 7) found.push(`The certificate ${one.what} is good for ${one.days.toFixed(1)} days more.`);
  return [...found, ...status.warnings];
}

/** @param {number} count */
function well(count) {
  return h("p", { class: "well" }, count ? `All is well: ${count === 1 ? "the one node is" : `all ${count.toLocaleString("en-US")} nodes are`} as wanted.`
    : "There are no nodes. `layercake apply FILE` brings some.");
}

/** What is wrong beside that nodes are not as wanted. @param {any} one */
function beside(one) {
  const range = cut(fold(one.nodes), NAMES);
  return h("article", { class: "cause beside" },
    h("h2", {}, one.nodes.length ? [h("span", { class: "count" }, one.nodes.length.toLocaleString("en-US")), " "] : [],
      "beside that", one.age_s ? [", ", age(one.age_s), " ago"] : "", ": ",
      h("span", { class: "text" }, one.text)),
    h("dl", {},
      h("dt", {}, "Next"), h("dd", {}, h("code", { class: "next" }, one.next.replaceAll("NODE", cut(fold(one.nodes), 80)))),
      one.nodes.length ? [h("dt", {}, one.nodes.length === 1 ? "Node" : "Nodes"), h("dd", { class: "range" }, range)] : [],
      one.page ? [h("dt", {}, "Read"), h("dd", {}, howto(one.page))] : []));
}

/** @param {import("./main.js").App} app @param {any} one */
function cause(app, one) {
  const range = fold(one.nodes);
  const letter = STATUSES[/** @type {keyof typeof STATUSES} */ (one.status)]?.letter ?? (one.status === "stopped" ? "F" : "!");
  const next = one.next.replaceAll("NODE", cut(range, 80));
  const quarantined = one.status === "quarantined";
  return h("article", { class: `cause ${one.status}` },
    h("h2", {},
      h("span", { class: "count" }, one.nodes.length.toLocaleString("en-US")), " ",
      h("span", { class: `mark ${one.status}`, "aria-hidden": "true" }, letter),
      h("span", { class: "status" }, one.status), one.longest_s ? [" since ", age(one.longest_s)] : "", ": ",
      h("span", { class: "text" }, one.text)),
    h("dl", {},
      h("dt", {}, "Next"), h("dd", {}, h("code", { class: "next" }, next)),
      h("dt", {}, one.nodes.length === 1 ? "Node" : "Nodes"), h("dd", { class: "range" }, one.nodes.length === 1
        ? h("a", { href: `#/node/${encodeURIComponent(one.nodes[0])}`, "data-key": `${one.text} ${one.nodes[0]}` }, one.nodes[0]) : cut(range, NAMES)),
      one.common.length ? [h("dt", {}, "All in"), h("dd", {}, one.common.join(", "))] : [],
      one.example && one.example !== one.text ? [h("dt", {}, "Such as"), h("dd", {},
        h("a", { href: `#/node/${encodeURIComponent(one.nodes[0])}`, "data-key": `such ${one.text}` }, one.nodes[0]), `: ${one.example}`)] : [],
      h("dt", {}, "Read"), h("dd", {}, howto(one.page))),
    h("p", { class: "buttons" },
      h("a", { class: "button", href: `#/rack?${new URLSearchParams({ range })}`, "data-key": `rack ${one.text}` }, "Show in the rack"),
      app.operates ? buttons(() => range, quarantined ? ["clear"] : one.status === "stopped" ? ["thaw"] : [], app.failed) : []));
}

/** The alarms on top of every view: outages, a frozen site, boots that wait. @param {import("./main.js").App} app @param {HTMLElement} place */
export function alarms(app, place) {
  const show = part(place);
  const refresh = paced(async () => {
    try {
      const found = await api.get("/v1/guard");
      show(found, () => guard(app, found));
    } catch (error) {
      app.failed(error);
    }
  }, () => PAUSE_MS);
  app.live.listen({
    events: (events) => events.some((e) => /^(outage|guard|remedy|maintenance|head)\./.test(e.kind)) && refresh(), anew: refresh, look: refresh,
  });
}

/** @param {import("./main.js").App} app @param {any} found */
function guard(app, found) {
  const lines = [];
  if (found.frozen) {
    lines.push(h("div", { class: "alarm" }, h("strong", {}, "The whole site is frozen"), ` by ${found.frozen.by}: ${found.frozen.reason}. Nothing is done to any node. `,
      h("code", {}, "layercake thaw")));
  }
  for (const one of found.outages) {
    lines.push(h("div", { class: "alarm" },
      h("strong", {}, `Outage of ${one.where}`), `: ${one.silent} of ${counted(one.members, "node")} silent since `, age(one.seconds), `: `,
      h("span", { class: "range" }, cut(fold(one.nodes))), ". Nothing is done to them until they are back. ",
      app.operates && app.site ? h("button", { type: "button", class: "danger", onclick: () => app.endOutage(one) }, "End the outage") : "",
    ));
  }
  const { booting, waiting } = found.boots;
  if (waiting) lines.push(h("div", { class: "notice" }, `${counted(booting, "boot")} under way, ${waiting.toLocaleString("en-US")} wait for their turn.`));
  return lines;
}
