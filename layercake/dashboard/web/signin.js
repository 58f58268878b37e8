// Signing in: by the ticket of a link, or a token that is typed in. It is put over the page, which stays as it is.

import * as api from "./api.js";
import { h, put } from "./dom.js";

const PATH = "/dashboard/session";

/** @typedef {{name: string, role: string, groups: string[] | null, exec: boolean, expires: number | null, version: string}} Who */

/** @type {Promise<void> | null} */
let asking = null;

/** The ticket of the address, which is out of it from now on. */
function ticket() {
  const found = /^#ticket=([\w-]+)$/.exec(location.hash);
  if (found === null) return "";
  history.replaceState(null, "", `${location.pathname}#/`);
  return found[1];
}

/** Trades a ticket or a token for a session. @param {Record<string, string | boolean>} what @returns {Promise<Who>} */
async function trade(what) {
  const answer = await api.sent("POST", PATH, {}, what);
  if (!answer.ok) throw await api.failure(answer);
  return answer.json();
}

/**
 * Signs in: by the address, by the session that there is, or by asking. @param {(who: Who) => void} known
 * @param {() => void} meanwhile what may be asked for at once, if there may be a session
 */
export async function begin(known, meanwhile) {
  let why = "";
  api.signsIn(() => (asking ??= ask(known, why).finally(() => { asking = null; })));
  const text = ticket();
  if (text) {
    try {
      await trade({ ticket: text });
    } catch (error) {
      why = said(error);
    }
  }
  meanwhile();
  known(await api.get("/v1/session"));
  why = "The session is over. Nothing on the page is lost.";
}

/** @param {unknown} error */
function said(error) {
  return error instanceof api.Failed ? [error.message, error.hint].filter(Boolean).join(": ") : String(error);
}

/** Asks for a token until one is good. @param {(who: Who) => void} known @param {string} why @returns {Promise<void>} */
function ask(known, why) {
  return new Promise((done) => {
    const field = h("input", {
      type: "password", id: "token", autocomplete: "off", spellcheck: "false", required: true, "aria-describedby": "sign-in-why",
    });
    const trouble = h("p", { id: "sign-in-why", class: "why", role: "alert" }, why);
    const exec = h("input", { type: "checkbox", id: "exec" });
    const button = h("button", { type: "submit", class: "main" }, "Sign in");
    const form = h("form", { method: "dialog" },
      h("h2", { id: "sign-in" }, "Sign in"),
      trouble,
      h("label", { for: "token" }, "Token"), field,
      h("label", { class: "tick" }, exec, "With its right exec: to type on consoles"),
      h("p", { class: "note" }, "Or type ", h("code", {}, "layercake dashboard"), " on the head and open the link that it prints."),
      button);
    const dialog = h("dialog", { class: "sign-in", "aria-labelledby": "sign-in" }, form);
    dialog.addEventListener("cancel", (/** @type {globalThis.Event} */ event) => event.preventDefault());
    form.addEventListener("submit", async (/** @type {globalThis.Event} */ event) => {
      event.preventDefault();
      button.disabled = true;
      try {
        known(await trade({ token: field.value.trim(), ...(exec.checked ? { exec: true } : {}) }));
        dialog.close();
        dialog.remove();
        done();
      } catch (error) {
        put(trouble, said(error));
        field.select();
        field.focus();
      } finally {
        button.disabled = false;
      }
    });
    document.body.append(dialog);
    dialog.showModal();
    field.focus();
  });
}
