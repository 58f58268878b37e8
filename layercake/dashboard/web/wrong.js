// "What is wrong": what is wrong with the head itself, then the causes, those that need a person first, each with the next step.

import * as api from "./api.js";
import { buttons } from "./actions.js";
import { h, part, put } from "./dom.js";
import { paced } from "./live.js";
import { age, counted, fold, howto, STATUSES } from "./words.js";

const PAUSE_MS = 1500;
/** What causes ask of people, the first thing first: the words over them. @type {Record<string, string>} */
const NEEDS = { person: "Needs a person", working: "The head is at it", waiting: "Waits, as it is meant to" };
/** The commands of nodes that have a button, by how they begin; that of a frozen site is none of them. @type {[string, string][]} */
const BUTTONS = [["layercake node clear ", "clear"], ["layercake thaw ", "thaw"], ["layercake node maintenance end ", "maintained"]];

/** @param {import("./main.js").App} app @param {HTMLElement} place */
export function wrong(app, place) {
  const counts = h("div", { class: "counts" });
  const heads = h("div", {});
  const head = h("div", {});
  const causes = h("div", { class: "causes" });
  put(place, h("h1", {}, "What is wrong"), counts, heads, head, causes);
  const [showCounts, showHeads, showHead, showCauses] = [part(counts), part(heads), part(head), part(causes)];
  /** @type {Set<string>} */
  const opened = new Set();

  const refresh = paced(async () => {
    try {
      const [status, found, { rolls }] = await Promise.all([api.get("/v1/status"), api.get("/v1/causes"), api.get("/v1/rolls", { limit: 30 })]);
      showCounts(status.nodes, () => bar(status.nodes));
      showHeads(status.heads.roles, () => roles(status.heads.roles));
      const troubles = ofHead(status);
      showHead(troubles, () => troubles.map((text) => h("p", { class: "alarm" }, text)));
      const going = rolls.filter((/** @type {any} */ one) => !["done", "failed", "aborted"].includes(one.state));
      showCauses([found, status.guard, going.map((/** @type {any} */ one) => [one.id, one.state, one.counts])], () => [
        ...ranked(found.causes, (one) => cause(app, one, outageOf(one, status.guard), opened)),
        ...found.beside.map((/** @type {any} */ one) => beside(one)),
        ...going.map((/** @type {any} */ one) => h("p", { class: "notice" }, h("a", { href: `#/rolls/${one.id}` }, `Roll ${one.id}`), ` to ${one.image} is ${one.state}: ${stands(one.counts)}.`)),
        found.causes.length ? stopped(found) : well(found, !troubles.length && going.every((/** @type {any} */ one) => one.state === "scheduled") && !found.beside.length && !status.guard.frozen),
      ]);
      app.fine();
    } catch (error) {
      app.failed(error);
    }
  }, () => PAUSE_MS);

  refresh();
  return app.live.listen({ events: refresh, anew: refresh, look: refresh });
}

/** @param {any[]} causes @param {(one: any) => HTMLElement} made */
function ranked(causes, made) {
  return Object.entries(NEEDS).flatMap(([needs, words]) => {
    const its = causes.filter((one) => one.needs === needs);
    return its.length ? [h("section", {}, h("h2", {}, words), ...its.map(made))] : [];
  });
}

/** How many nodes of a roll are how. @param {Record<string, number>} counts */
function stands(counts) {
  return Object.entries(counts).map(([state, count]) => `${count.toLocaleString("en-US")} ${state}`).join(", ");
}

/** The outage that a cause is. @param {any} one @param {any} guard */
function outageOf(one, guard) {
  return guard.outages.find((/** @type {any} */ outage) => one.status === "silent" && outage.nodes.includes(one.nodes[0]));
}

/** @param {Record<string, number>} nodes */
function bar(nodes) {
  const seldom = (/** @type {string[]} */ ...names) => names.filter((name) => nodes[name]);
  const order = ["quarantined", ...seldom("silent"), "blocked", "asking", ...seldom("unwell", "held", "waiting"), "working", ...seldom("maintenance"), "converged"];
  return [
    h("ul", { class: "tally" }, h("li", { class: "tile" }, h("b", {}, nodes.total.toLocaleString("en-US")), h("span", {}, "in all")), ...order.map((status) => h("li", { class: `tile ${status}${nodes[status] ? "" : " none"}` },
      h("b", {}, nodes[status].toLocaleString("en-US")), h("span", {}, status)))),
  ];
}

/** The heads of a site with several, the one that leads first. @param {string[]} words */
function roles(words) {
  return words.length ? h("p", { class: "note heads" }, `Heads: ${words.join(", ")}.`) : null;
}

/** What the head says of itself that somebody has to mend. @param {any} status @returns {string[]} */
function ofHead(status) {
  const down = status.services.filter((/** @type {any} */ s) => s.state !== "running").map((/** @type {any} */ s) => `${s.name} is ${s.state}`);
  const found = down.length ? [`Of the head's modules, ${down.join(", ")}.`] : [];
  if (!status.database.well) found.push(`The database cannot be written: ${status.database.trouble}. ${counted(status.database.waiting, "event")} wait.`);
  if (status.history && !status.history.well) found.push(`The inventory's history lacks ${counted(status.history.waiting, "change")}: ${status.history.trouble}. \`layercake inventory rebuild\` mends it.`);
  if (!status.loop.well) found.push(`The head is late with all that it does: ${status.loop.trouble}.`);
  for (const one of status.certificates) if (one.days < 7) found.push(`The certificate ${one.what} is good for ${one.days.toFixed(1)} days more.`);
  const { refuses, troubles } = status.heads;
  return [...(refuses ? [`${refuses}.`] : []), ...troubles, ...found, ...status.warnings];
}

/** @param {{well: number, stopped: string[]}} found @param {boolean} quiet nothing else is wrong, or under way */
function well({ well, stopped }, quiet) {
  if (!well) return h("p", { class: "well" }, "There are no nodes. `layercake apply FILE` brings some.");
  const left = stopped.length ? ` ${counted(stopped.length, "node")} of them frozen or in maintenance: ${fold(stopped)}.` : "";
  return h("p", { class: "well" }, `${quiet && !left ? "All is well: " : ""}${well === 1 ? "the one node is" : `all ${well.toLocaleString("en-US")} nodes are`} as wanted.${left}`);
}

/** Of nodes that are as wanted, those that a person keeps the head from. @param {{stopped: string[]}} found */
function stopped({ stopped }) {
  return stopped.length ? h("p", { class: "note stopped-too" }, `As wanted, and frozen or in maintenance: ${counted(stopped.length, "node")}, `, h("span", { class: "range" }, fold(stopped)), ".") : null;
}

/** A command, to be copied as it stands. @param {any} one @param {...any} more */
function next(one, ...more) {
  return h("p", { class: "buttons next" },
    one.command ? [h("code", {}, one.command), h("button", { type: "button", "data-key": `copy ${one.text}`, onclick: () => navigator.clipboard.writeText(one.command) }, "Copy")] : h("span", {}, one.next),
    ...more);
}

/** What is wrong beside that nodes are not as wanted. @param {any} one */
function beside(one) {
  return h("article", { class: "cause beside" },
    h("h3", {}, one.nodes.length ? [h("span", { class: "count" }, one.nodes.length.toLocaleString("en-US")), " "] : [],
      "beside that", one.age_s ? [", ", age(one.age_s), " ago"] : "", ": ", h("span", { class: "text" }, one.text)),
    one.range ? h("p", { class: "range" }, one.range) : null,
    next(one, one.page ? howto(one.page) : null));
}

/** Three lines, and more when it is opened. @param {import("./main.js").App} app @param {any} one @param {any} outage @param {Set<string>} opened */
function cause(app, one, outage, opened) {
  const letter = STATUSES[/** @type {keyof typeof STATUSES} */ (one.status)]?.letter ?? "!";
  const key = `${one.status} ${one.next} ${one.nodes[0]}`;
  const first = h("a", { href: `#/node/${encodeURIComponent(one.nodes[0])}`, "data-key": `such ${key}` }, one.nodes[0]);
  const more = h("dl", { hidden: !opened.has(key) },
    h("dt", {}, "To do"), h("dd", {}, one.next),
    one.domains ? [h("dt", {}, "Domains"), h("dd", { class: "domains" }, one.domains)] : [],
    one.common.length ? [h("dt", {}, "All in"), h("dd", {}, one.common.join(", "))] : [],
    ...one.rolls.flatMap((/** @type {any} */ roll) => [h("dt", {}, `Roll ${roll.id} to ${roll.image}`), h("dd", { class: "range" }, roll.range)]),
    one.example ? [h("dt", {}, "Such as"), h("dd", {}, first, `: ${one.example}`)] : [],
    h("dt", {}, "Read"), h("dd", {}, howto(one.page)));
  const opener = h("button", { type: "button", class: "more", "aria-expanded": String(opened.has(key)), "data-key": `more ${key}`, onclick: () => {
    more.hidden = !more.hidden;
    opener.setAttribute("aria-expanded", String(!more.hidden));
    if (more.hidden) opened.delete(key);
    else opened.add(key);
  } }, "More");
  const keys = BUTTONS.filter(([command]) => one.command.startsWith(command)).map(([, action]) => action);
  return h("article", { class: `cause ${one.status}` },
    h("h3", {},
      h("span", { class: "count" }, one.nodes.length.toLocaleString("en-US")), " ",
      h("span", { class: `mark ${one.status}`, "aria-hidden": "true" }, letter),
      h("span", { class: "status" }, one.status), one.longest_s ? [" for ", age(one.longest_s)] : "", ": ",
      h("span", { class: "text" }, one.text)),
    h("p", { class: "range" }, one.nodes.length === 1 ? h("a", { href: `#/node/${encodeURIComponent(one.nodes[0])}`, "data-key": `one ${key}` }, one.range) : one.range),
    next(one,
      app.operates ? buttons(() => one.range, keys, app.failed) : [],
      outage && app.operates && app.site ? h("button", { type: "button", class: "danger", "data-key": `end ${key}`, onclick: () => app.endOutage(outage) }, "End the outage") : null,
      h("a", { class: "button", href: `#/rack?${new URLSearchParams({ range: one.range })}`, "data-key": `rack ${key}` }, "Show in the rack"),
      opener),
    more);
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
    lines.push(h("div", { class: "alarm outage" },
      h("strong", {}, `Outage of ${one.where}`), `: ${one.silent.toLocaleString("en-US")} of ${counted(one.members, "node")} silent for `, age(one.seconds),
      one.domains.length ? [" (", h("span", { class: "domains" }, fold(one.domains)), ")"] : "", ". Nothing is done to them until they are back. ",
      app.operates && app.site ? h("button", { type: "button", class: "danger", onclick: () => app.endOutage(one) }, "End the outage") : "",
    ));
  }
  const { booting, waiting } = found.boots;
  if (waiting) lines.push(h("div", { class: "notice" }, `${counted(booting, "boot")} under way, ${waiting.toLocaleString("en-US")} wait for their turn.`));
  return lines;
}
