// Requests to the head. A session that is over is not an error of the page: somebody signs in over it, and the request is sent again.

/** What the head refused, or could not do. */
export class Failed extends Error {
  /** @param {number} status 0: it was not reached @param {string} message @param {string} hint */
  constructor(status, message, hint) {
    super(message);
    this.status = status;
    this.hint = hint;
  }
}

const LIMIT_MS = 30000;
const LONG_MS = 200000;

/** @type {() => Promise<void>} */
let signIn = () => Promise.reject(new Error("nobody can sign in yet"));

/** Says how somebody signs in. @param {() => Promise<void>} how */
export function signsIn(how) {
  signIn = how;
}

/** The JSON at a path. @param {string} path @param {Record<string, string | number>} [query] */
export function get(path, query = {}) {
  return ask("GET", path, query, undefined);
}

/** The text at a path. @param {string} path @param {Record<string, string | number>} query @returns {Promise<string>} */
export async function text(path, query) {
  return (await answered("GET", path, query, undefined)).text();
}

/** Asks for a change. @param {string} path @param {unknown} body */
export function post(path, body) {
  return ask("POST", path, {}, body);
}

/** Ends something. @param {string} path */
export function remove(path) {
  return ask("DELETE", path, {}, undefined);
}

/** @param {string} method @param {string} path @param {Record<string, string | number>} query @param {unknown} body @returns {Promise<any>} */
async function ask(method, path, query, body) {
  const answer = await answered(method, path, query, body);
  try {
    return await answer.json();
  } catch {
    throw new Failed(answer.status, "cannot read the head's answer", "is it the head that listens there?");
  }
}

/** @param {string} method @param {string} path @param {Record<string, string | number>} query @param {unknown} body @returns {Promise<Response>} */
async function answered(method, path, query, body) {
  for (;;) {
    const answer = await sent(method, path, query, body);
    if (answer.ok) return answer;
    if (answer.status !== 401) throw await failure(answer);
    await signIn();
  }
}

/**
 * One request, whatever is answered.
 * @param {string} method @param {string} path @param {Record<string, string | number>} query @param {unknown} body @param {number} [limit] milliseconds
 */
export async function sent(method, path, query, body, limit = method === "GET" ? LIMIT_MS : LONG_MS) {
  const words = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) if (value !== "") words.set(name, String(value));
  const address = words.size ? `${path}?${words}` : path;
  /** @type {Record<string, string>} */
  const headers = { "X-Layercake": "1" };
  if (body !== undefined) headers["Content-Type"] = "application/json";
  try {
    return await fetch(address, {
      method, headers, body: body === undefined ? undefined : JSON.stringify(body), cache: "no-store", redirect: "error",
      credentials: "same-origin", signal: AbortSignal.timeout(limit),
    });
  } catch (error) {
    const late = error instanceof DOMException && error.name === "TimeoutError";
    throw new Failed(0, `cannot reach the head: ${late ? "no answer in time" : "no connection"}`, late && method !== "GET" ?
      "what was asked may still happen" : "is `layercake serve` running?");
  }
}

/** What an answer says went wrong. @param {Response} answer */
export async function failure(answer) {
  let said;
  try {
    said = await answer.json();
  } catch {
    said = {};
  }
  return new Failed(answer.status, String(said.error ?? `the head answered ${answer.status}`), String(said.hint ?? ""));
}

/** A name as one part of a path. @param {string} name */
export function quoted(name) {
  return encodeURIComponent(name);
}
