// The page: who is signed in, which view is shown, and what all views have in common.

import * as api from "./api.js";
import { ask, failure } from "./ask.js";
import { byId, h, put } from "./dom.js";
import { events } from "./events.js";
import { Fleet } from "./fleet.js";
import { Live } from "./live.js";
import { node } from "./node.js";
import { rack } from "./rack.js";
import { roll, rolls } from "./rolls.js";
import { begin } from "./signin.js";
import { age, clock, counted, fold, tick } from "./words.js";
import { alarms, wrong } from "./wrong.js";

/** What views get: who is signed in, the events, the nodes, and where to say what went wrong. */
export class App {
  constructor() {
    /** @type {import("./signin.js").Who | null} */
    this.who = null;
    this.failed = (/** @type {unknown} */ error) => this.trouble(error);
    this.fleet = new Fleet(this.failed);
    this.live = new Live((silent, why) => this.linked(silent, why));
    /** @type {() => void} */
    this.leave = () => undefined;
  }

  /** Whether who is signed in may do something to nodes. */
  get operates() {
    return this.who !== null && this.who.role !== "viewer";
  }

  /** Whether the whole site is his. */
  get site() {
    return this.who !== null && this.who.groups === null;
  }

  async start() {
    await begin((who) => this.known(who), () => location.hash.startsWith("#/rack") && this.fleet.refresh());
    this.live.listen({ events: this.fleet.look, anew: this.fleet.look, look: this.fleet.look });
    alarms(this, byId("alarms"));
    window.addEventListener("hashchange", () => this.show());
    setInterval(tick, 1000);
    byId("out").addEventListener("click", () => this.out());
    this.live.start();
    this.show();
  }

  /** @param {import("./signin.js").Who} who */
  known(who) {
    const before = this.who;
    this.who = who;
    const bound = who.groups === null ? "" : `, ${who.groups.join(", ")}`;
    put(byId("who"), h("b", {}, who.name), ` ${who.role}${bound}${who.exec ? ", exec" : ""}`);
    byId("who").title = who.expires === null ? "" : `until ${clock(who.expires)}`;
    byId("out").hidden = false;
    if (before !== null) {
      if (before.name !== who.name || before.role !== who.role) this.fleet.change = "";
      this.live.turn();
      this.fleet.look();
      if (before.role !== who.role || before.exec !== who.exec) this.show();
    }
  }

  async out() {
    await api.remove("/v1/session").catch(() => undefined);
    location.reload();
  }

  /** Says whether the head answers, and how old the picture is. @param {number | null} silent seconds since its last answer, null while it answers @param {string} why */
  linked(silent, why) {
    const place = byId("link");
    place.className = silent === null ? "live" : "lost";
    byId("content").classList.toggle("old", silent !== null);
    put(place, ...(silent === null ? ["live"] : [`${why}; what is shown is `, age(silent), " old"]));
  }

  /** Something could not be had: the page says so, and what it shows stays. @param {unknown} error */
  trouble(error) {
    if (error instanceof api.Failed && error.status === 0) this.live.lost();
    put(byId("said"), ...failure(error));
  }

  /** All could be had. */
  fine() {
    if (byId("said").textContent?.startsWith("cannot reach")) put(byId("said"));
  }

  /** @param {any} one */
  endOutage(one) {
    ask({
      title: `End the outage of ${one.where}?`, act: `Start ${counted(one.silent, "node")} anew`, danger: true,
      body: [h("p", {}, h("strong", { class: "target" }, fold(one.nodes))),
        h("p", {}, `This starts ${counted(one.silent, "silent node")} anew, some at a time, whatever may run there.`)],
      work: async () => {
        await api.post("/v1/guard/outage", { domain: one.domain });
        return "The outage is ended.";
      },
    }).catch(this.failed);
  }

  /** Shows the view of the address. */
  show() {
    this.leave();
    const [path, query] = location.hash.replace(/^#\/?/, "").split("?");
    const [view, ...rest] = path.split("/");
    const place = byId("content");
    const options = new URLSearchParams(query ?? "");
    const name = decodeURIComponent(rest.join("/"));
    const views = {
      "": () => wrong(this, place), rack: () => rack(this, place, options), node: () => node(this, place, name),
      rolls: () => (name ? roll(this, place, name) : rolls(this, place)), events: () => events(this, place, options),
    };
    const chosen = views[/** @type {keyof typeof views} */ (view)] ?? views[""];
    for (const link of document.querySelectorAll("nav a")) {
      const here = link instanceof HTMLElement && link.dataset.view === (view === "node" ? "rack" : view || "wrong");
      if (here) link.setAttribute("aria-current", "page");
      else link.removeAttribute("aria-current");
    }
    document.body.dataset.view = view === "" || !(view in views) ? "wrong" : view;
    this.leave = chosen() ?? (() => undefined);
    const title = place.querySelector("h1")?.textContent ?? "";
    document.title = `${title} - Layercake`;
    window.scrollTo(0, 0);
  }
}

const app = new App();
app.start().catch((error) => put(byId("content"), h("h1", {}, "Layercake"), h("p", { class: "why" }, ...failure(error))));
