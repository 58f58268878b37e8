// Questions over the page.

import { Failed } from "./api.js";
import { byId, h, put } from "./dom.js";

/**
 * Asks before something is done. `work` does it, with what was filled in; the dialog stays with what went wrong, if anything.
 * @param {{title: string, body: any[], act: string, danger?: boolean, work: (form: FormData) => Promise<string>}} question
 * @returns {Promise<boolean>} whether it was done
 */
export function ask({ title, body, act, danger = false, work }) {
  return new Promise((done) => {
    const before = document.activeElement;
    const trouble = h("p", { class: "why", role: "alert" });
    const go = h("button", { type: "submit", class: danger ? "main danger" : "main" }, act);
    const no = h("button", { type: "button" }, "Cancel");
    const form = h("form", { method: "dialog" }, h("h2", { id: "asked" }, title), ...body, trouble, h("p", { class: "buttons" }, no, go));
    const dialog = h("dialog", { "aria-labelledby": "asked" }, form);
    let result = false;
    const end = () => {
      dialog.remove();
      if (before instanceof HTMLElement && before.isConnected) before.focus();
      done(result);
    };
    no.addEventListener("click", () => dialog.close());
    dialog.addEventListener("close", end);
    form.addEventListener("submit", async (/** @type {globalThis.Event} */ event) => {
      event.preventDefault();
      go.disabled = true;
      try {
        say(await work(new FormData(form)));
        result = true;
        dialog.close();
      } catch (error) {
        put(trouble, ...failure(error));
        go.disabled = false;
      }
    });
    document.body.append(dialog);
    dialog.showModal();
    (form.querySelector("input, select, textarea") ?? no).focus();
  });
}

/** What went wrong, with what to do. @param {unknown} error @returns {any[]} */
export function failure(error) {
  if (!(error instanceof Failed)) return [String(error)];
  return error.hint ? [error.message, h("br"), h("small", {}, `hint: ${error.hint}`)] : [error.message];
}

let timer = 0;

/** Says something for a while, at the bottom of the page. @param {string} text */
export function say(text) {
  put(byId("said"), text);
  clearTimeout(timer);
  timer = setTimeout(() => put(byId("said")), 8000);
}
