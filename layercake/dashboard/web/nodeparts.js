// The parts of a node's page.

import * as api from "./api.js";
import { failure } from "./ask.js";
import { h, put } from "./dom.js";
import { portOf, switchOf } from "./layout.js";
import { age, clock, seconds } from "./words.js";

/** Rows under heads. @param {string[]} heads @param {any[][]} rows @param {string} label */
export function table(heads, rows, label) {
  return h("div", { class: "wide", tabindex: 0, role: "group", "aria-label": label }, h("table", {},
    h("thead", {}, h("tr", {}, ...heads.map((head) => h("th", { scope: "col" }, head)))),
    h("tbody", {}, ...rows.map((cells) => h("tr", {}, ...cells.map((cell) => h("td", {}, cell)))))));
}

/** Variables as they are and as they are wanted. @param {any} view */
export function variables(view) {
  const rows = Object.entries(view.state).map(([name, value]) => [h("code", {}, name), h("b", { class: value === view.goal[name] || view.goal[name] === undefined ? "" : "differs" }, value), view.goal[name] ?? "-"]);
  return table(["Variable", "Is", "Wanted"], rows, "Variables");
}

/** Its containers, each with its log for who may read it. @param {import("./main.js").App} app @param {string} path @param {any} view @param {number} told */
export function containers(app, path, view, told) {
  const images = (/** @type {any[]} */ found) => found.map((one) => `${one.name}@${one.digest.replace("sha256:", "").slice(0, 12)}`).join(", ") || "none";
  const log = h("pre", { class: "log", hidden: true, tabindex: 0 });
  const read = async (/** @type {string} */ container) => {
    log.hidden = false;
    try {
      put(log, (await api.get(`${path}/logs`, { container, lines: 200 })).text || "(empty)");
      log.scrollTop = log.scrollHeight;
    } catch (error) {
      put(log, ...failure(error));
    }
  };
  const rows = view.containers.map((/** @type {any} */ c) => [
    c.name, c.state, c.health || "-", c.state === "running" ? age(c.started_s, told) : "-", String(c.retries),
    [c.last_error === "NOERROR" ? "" : c.last_error, c.error].filter(Boolean).join(": ") || "-",
    app.operates ? h("button", { type: "button", "data-key": `log ${c.name}`, onclick: () => read(c.name) }, "Log") : ""]);
  return [h("p", {}, `Wanted: ${images(view.images.wanted)}; runs: ${images(view.images.running)}`),
    rows.length ? table(["Container", "State", "Health", "Up", "Retries", "Error", ""].slice(0, app.operates ? 7 : 6), rows.map((/** @type {any[]} */ row) => row.slice(0, app.operates ? 7 : 6)), "Containers")
      : h("p", { class: "note" }, "It tells of none."), log];
}

/** What else there is to know. @param {any} view @param {number} told */
export function facts(view, told) {
  const cards = view.cards.map((/** @type {any} */ c) => (c.driver ? `${c.name} ${c.mac} ${c.driver}` : `${c.id} at ${c.slot}: no driver${c.absent.length ? `, it needs ${c.absent.join(" or ")}` : ""}`));
  const interfaces = view.interfaces.map((/** @type {any} */ i) => [i.name, i.kind, i.state, ...i.addresses, i.trouble].filter(Boolean).join(" "));
  const labels = Object.entries(view.labels).map(([key, value]) => `${key}=${value}`);
  const rows = [
    ["Address", [view.ip, view.network && `in ${view.network}`].filter(Boolean).join(" ")], ["MAC", view.macs.join(", ")], ["Groups", view.groups.join(", ")],
    ["Place", view.domains.join(", ")], ["Switch", [switchOf(view), portOf(view)].filter(Boolean).join(" ")], ["Labels", labels.join(", ")], ["Firmware", view.firmware], ["Profile", view.profile], ["Last heard", h("span", {}, age(view.last_seen_s, told))],
    ["BMC", view.bmc ? [view.bmc.driver, view.bmc.address].filter(Boolean).join(" ") : ""], ["Boot set", view.boots.runs], ["Boots next", view.boots.next !== view.boots.runs ? view.boots.next : ""],
    ["Clock", view.clock ? `${view.clock.off_ms.toFixed(1)} ms off ${view.clock.server}` : ""], ["Cards", cards.join("; ")], ["Interfaces", interfaces.join("; ")], ["Id", view.id],
  ].filter(([, value]) => value);
  return h("dl", {}, ...rows.flatMap(([name, value]) => [h("dt", {}, name), h("dd", {}, value)]));
}

/** What happened to it, the newest first. @param {import("./live.js").Event[]} events */
export function history(events) {
  if (!events.length) return h("p", { class: "note" }, "Nothing is told of it.");
  return h("ol", { class: "events" }, ...[...events].reverse().map((event) => eventLine({ ...event, node: "" })));
}

/** An event as a line. @param {import("./live.js").Event} event */
export function eventLine(event) {
  return h("li", { class: event.severity }, h("time", {}, clock(event.at)), " ",
    event.node ? [h("a", { href: `#/node/${encodeURIComponent(event.node)}` }, event.node), " "] : "", h("code", {}, event.kind), " ", h("span", { class: "text" }, event.text));
}

// -- what is asked for when somebody wants to see it

/** A section that is filled when it is opened. @param {string} title @param {string} label @param {() => Promise<any>} ask */
export function onRequest(title, label, ask) {
  const body = h("div", {});
  const read = async () => {
    put(body, h("p", { class: "note" }, "The head asks…"));
    try {
      put(body, await ask());
    } catch (error) {
      put(body, h("p", { class: "why", role: "alert" }, ...failure(error)));
    }
  };
  return h("details", { class: "panel", ontoggle: (/** @type {any} */ event) => event.target.open && read() }, h("summary", {}, title),
    h("p", {}, h("button", { type: "button", onclick: read }, label)), body);
}

/** @param {string} name */
export async function sensors(name) {
  const [answer] = (await api.post("/v1/calls/power.sensors", { range: name })).answers;
  if (!answer.ok) throw new api.Failed(200, answer.error, answer.hint);
  const rows = answer.answer.map((/** @type {any} */ s) => [s.name, s.value === null ? "-" : `${s.value} ${s.unit}`, s.health]);
  return rows.length ? table(["Sensor", "Value", "Health"], rows, "Sensors") : h("p", {}, "Its BMC has none.");
}

/** @param {string} path */
export async function files(path) {
  const found = await api.get(`${path}/files`);
  const rows = found.files.map((/** @type {any} */ f) => [h("code", {}, f.path), f.for.join(", "), f.mode, `${f.owner}:${f.group}`, f.secret ? "secret" : String(f.size), f.error]);
  return [h("p", {}, found.current ? "The node has them as they are wanted." : "The node has not said yet that it has them as they are wanted."),
    found.errors.length ? h("ul", { class: "why" }, ...found.errors.map((/** @type {string} */ text) => h("li", {}, text))) : null,
    rows.length ? table(["File", "For", "Mode", "Owner", "Bytes", "Error"], rows, "Files") : h("p", {}, "It has none beside those of its images.")];
}

/** @param {string} name */
export async function hardware(name) {
  const { machine, report } = await api.get(`/v1/machines/${api.quoted(name)}`);
  const memory = machine.memory ? `${(machine.memory / 2 ** 30).toFixed(0)} GiB` : "";
  const rows = [["Maker", machine.vendor], ["Product", machine.product], ["Serial number", machine.serial], ["CPUs", String(machine.cpus || "")], ["Memory", memory],
    ["Disks", String(machine.disks || "")], ["GPUs", String(machine.gpus || "")], ["BMC", machine.bmc], ["Switch", [machine.switch, machine.port].filter(Boolean).join(" ")],
    ["Reported", `${seconds(machine.seen_s)} ago`], ["Differs", machine.drift.join("; ")]].filter(([, value]) => value);
  return [h("dl", {}, ...rows.flatMap(([key, value]) => [h("dt", {}, key), h("dd", {}, value)])),
    report ? h("details", {}, h("summary", {}, "All that it reported"), h("pre", { class: "log", tabindex: 0 }, JSON.stringify(report, null, 2))) : null];
}
