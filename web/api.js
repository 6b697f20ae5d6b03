// Requests to the server. Addresses are relative to the page, wherever it is.
//
// Invariant: an error is always a `Problem` with a sentence for a person in `detail`. The token goes nowhere but here.

import { learnNow } from "./clock.js";
import { line } from "./text.js";
import { askForToken, token } from "./token.js";

/** Why a request did not do what it was to do. */
export class Problem extends Error {
  constructor({ status = 0, code = "", title = "", detail = "" }) {
    super(line(detail || title || `the server answered ${status}`, 600));
    [this.status, this.code, this.detail] = [status, code, this.message];
  }
}

/** Sends a request and returns the response; asks for the token when there has to be one. */
export async function send(path, { method = "GET", body, headers = {}, signal } = {}) {
  const address = new URL(`api/${path}`, document.baseURI);
  for (;;) {
    const used = token();
    const all = { ...headers };
    if (used) all.authorization = `Bearer ${used}`;
    if (body !== undefined) all["content-type"] = "application/json";
    const response = await reach(address, { method, headers: all, body: body && JSON.stringify(body), signal });
    if (response.ok) return response;
    const problem = await readProblem(response);
    if (response.status !== 401) throw problem;
    await askForToken(used, problem.detail);
  }
}

/** Sends a request and returns what the answer says. */
export async function api(path, options = {}) {
  const askedAt = Date.now();
  const response = await send(path, { ...options, headers: { accept: "application/json", ...options.headers } });
  if (response.status === 204) return {};
  const text = await response.text();
  let answer = {};
  try {
    answer = text ? JSON.parse(text) : {};
  } catch {
    throw new Problem({ status: response.status, detail: "The server's answer cannot be read." });
  }
  if (answer?.now) learnNow(answer.now, askedAt);
  return answer;
}

/** Asks the server to do something. */
export function post(path, body = {}) {
  return api(path, { method: "POST", body });
}

/** A name as a part of an address. */
export function part(name) {
  return encodeURIComponent(name);
}

async function reach(address, request) {
  try {
    return await fetch(address, { ...request, cache: "no-store" });
  } catch (error) {
    if (error?.name === "AbortError") throw error;
    throw new Problem({ code: "unreachable", detail: "The server cannot be reached." });
  }
}

async function readProblem(response) {
  const { status } = response;
  let said = {};
  try {
    said = JSON.parse((await response.text()).slice(0, 65_536));
  } catch {
    // Something in between answered, which has no problem to tell.
  }
  const { code, title, detail } = said ?? {};
  return new Problem({ status, code, title, detail });
}
