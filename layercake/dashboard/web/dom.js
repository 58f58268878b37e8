// Elements out of data. Text goes into a page as text, never as markup: what a node, a BMC or a packet calls itself can do nothing.

/** @typedef {Node | string | number | null | undefined | false} Child */
/** @typedef {Record<string, string | number | boolean | null | undefined | ((event: any) => void)>} Attributes */

const SVG = "http://www.w3.org/2000/svg";

/**
 * An element with attributes and children; `on...` are listeners, true is an attribute without a value.
 * @param {string} tag @param {Attributes} [attributes] @param {...(Child | Child[])} children @returns {any}
 */
export function h(tag, attributes = {}, ...children) {
  return made(document.createElement(tag), attributes, children);
}

/**
 * The same of an SVG element.
 * @param {string} tag @param {Attributes} [attributes] @param {...(Child | Child[])} children @returns {SVGElement}
 */
export function s(tag, attributes = {}, ...children) {
  return made(document.createElementNS(SVG, tag), attributes, children);
}

/** @template {Element} E @param {E} element @param {Attributes} attributes @param {(Child | Child[])[]} children @returns {E} */
function made(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") element.addEventListener(name.slice(2), value);
    else if (value === true) element.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) element.setAttribute(name, String(value));
  }
  element.append(...kept(children));
  return element;
}

/** @param {(Child | Child[])[]} children @returns {(Node | string)[]} */
function kept(children) {
  const found = [];
  for (const child of children.flat()) {
    if (child instanceof Node) found.push(child);
    else if (child !== null && child !== undefined && child !== false && child !== "") found.push(String(child));
  }
  return found;
}

/**
 * Puts children in place of those that are there. Who has the keyboard's focus keeps it, if its `data-key` is there again.
 * @param {Element} element @param {...(Child | Child[])} children
 */
export function put(element, ...children) {
  const active = document.activeElement;
  const key = active instanceof HTMLElement && element.contains(active) ? active.dataset.key : undefined;
  element.replaceChildren(...kept(children));
  if (key !== undefined) {
    for (const found of element.querySelectorAll("[data-key]")) {
      if (found instanceof HTMLElement && found.dataset.key === key) found.focus({ preventScroll: true });
    }
  }
}

/** The element of an id that the page has. @param {string} id @returns {HTMLElement} */
export function byId(id) {
  const found = document.getElementById(id);
  if (found === null) throw new Error(`the page has no ${id}`);
  return found;
}

/**
 * A part of a view that is made anew only when what it shows is other than before: what somebody has marked with the mouse stays.
 * @param {Element} element @returns {(data: unknown, make: () => (Child | Child[])) => void}
 */
export function part(element) {
  let before = "";
  return (data, make) => {
    const now = JSON.stringify(data, (name, value) => (MOVING.test(name) ? undefined : value)) ?? "";
    if (now !== before) {
      before = now;
      put(element, make());
    }
  };
}

const MOVING = /_s$|^seconds$/;
