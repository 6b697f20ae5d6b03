// A home with a scripted provider, the server of sessions before it, and what else one case needs.
//
// All of it is started for one case and ended with it. The provider is a process of its own: what its scripts have played
// already is not forgotten when the server of sessions is killed. Time runs as it does: a person looks at it.
import { spawn } from "node:child_process";
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { HANG_TIMEOUT_MS } from "../lanes.mjs";
import { listenOnFreePort } from "../ports.mjs";

const LOOK_MS = 50;
/** With it no wait ends by itself while somebody looks, however slow the machine is; the second is twice as long. */
export const FIRST_WAIT_S = 1000;
export const longWaits = (policy) => `policy = "${policy}"\nbase_delay_ms = ${FIRST_WAIT_S * 1000}\nmax_delay = "1h"`;
export const LONG_WAITS = longWaits("session");

export class Stage {
  started = [];
  said = "";

  constructor({ outlast, folder }) {
    this.outlast = outlast;
    this.folder = folder;
    this.work = join(folder, "work");
    this.home = join(folder, "outlast");
    for (const name of ["work", "home", "outlast"]) mkdirSync(join(folder, name));
    // Nothing of the person who runs this.
    this.env = { PATH: process.env.PATH, HOME: join(folder, "home"), TERM: "dumb", OUTLAST_HOME: this.home };
  }

  /** A provider, settings that lead to it, and the server; `script` and `retry` are for sessions that name none. */
  async open({ script = "ok", retry = 'policy = "overnight"', settings = "" } = {}) {
    this.provider = await this.listen(["mock", "--listen", "127.0.0.1:0"]);
    this.settings(script, retry, settings);
    await this.serve();
  }

  settings(script, retry, more) {
    const lines = [
      'provider = "anthropic"',
      `model = "${script}"`,
      "[retry]",
      retry,
      "[providers.anthropic]",
      `base_url = "${this.provider}"`,
      // An account of another provider: what happens to it concerns no session.
      "[providers.openai]",
      `base_url = "${this.provider}/v1"`,
      "[accounts.spare]",
      'provider = "openai"',
      `api_key_file = "${join(this.folder, "home/word")}"`,
      more,
    ];
    writeFileSync(join(this.folder, "home/word"), "made-up\n");
    writeFileSync(join(this.home, "outlast.toml"), lines.join("\n"));
  }

  /** Starts the server, or starts it again at the same address. */
  async serve() {
    const listen = (address) => this.listen(["serve", "--listen", address]);
    this.origin = this.origin ? await listen(new URL(this.origin).host) : await listenOnFreePort(listen);
    this.serving = this.started.at(-1);
  }

  /** Ends the server as a power cut would. */
  async kill() {
    const ended = new Promise((resolve) => this.serving.on("close", resolve));
    end(this.serving);
    await ended;
  }

  /** A gateway whose provider plays the script, and a request that it holds. */
  async hold(script) {
    this.gateway = await listenOnFreePort((address) => this.listen(["gateway", "--listen", address, "--upstream", `mock:${script}`]));
    const body = { model: "m", max_tokens: 9, stream: true, messages: [{ role: "user", content: "hi" }] };
    const ask = { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(body) };
    // It is given up when the case is over.
    this.held = fetch(`${this.gateway}/v1/messages`, ask).catch(() => undefined);
    return new URL(this.gateway).port;
  }

  /** Starts `outlast run` in the folder of the work. */
  pipeline(steps, name = "pipeline") {
    // JSON is YAML.
    writeFileSync(join(this.work, `${name}.yaml`), JSON.stringify({ name, steps }));
    return this.spawn([this.outlast, "run", `${name}.yaml`, "--json"], { cwd: this.work });
  }

  /** Runs one of our commands to its end; what it printed. */
  async command(...args) {
    const child = this.spawn([this.outlast, ...args], { cwd: this.work });
    let printed = "";
    child.stdout.setEncoding("utf8").on("data", (piece) => (printed += piece));
    const code = await ended(child);
    return { code, printed };
  }

  /** Starts one of our servers; where it listens. */
  listen(args) {
    const child = this.spawn([this.outlast, ...args], { cwd: this.work });
    return new Promise((found, failed) => {
      let said = "";
      const late = setTimeout(() => failed(new Error(`\`outlast ${args[0]}\` says nothing: ${said}`)), HANG_TIMEOUT_MS);
      for (const stream of [child.stdout, child.stderr]) {
        stream.setEncoding("utf8").on("data", (piece) => {
          said += piece;
          this.said += piece;
          const address = said.match(/listening on (http:\/\/[^\s"]+)/);
          if (!address) return;
          clearTimeout(late);
          found(address[1]);
        });
      }
      child.on("close", () => {
        clearTimeout(late);
        failed(new Error(`\`outlast ${args.join(" ")}\` ended: ${said}`));
      });
    });
  }

  spawn([program, ...args], options) {
    // In a group of its own, so that what it starts ends with it.
    const child = spawn(program, args, { env: this.env, ...options, detached: true, stdio: ["ignore", "pipe", "pipe"] });
    this.started.push(child);
    return child;
  }

  // --- the API, as a program on this machine uses it ---

  async api(method, path, body) {
    const headers = { "content-type": "application/json", ...(this.token && { authorization: `Bearer ${this.token}` }) };
    const response = await fetch(`${this.origin}${path}`, { method, headers, body: body && JSON.stringify(body) });
    const text = await response.text();
    if (!response.ok) throw new Error(`${method} ${path} answers ${response.status}: ${text.slice(0, 300)}`);
    return text ? JSON.parse(text) : undefined;
  }

  get = (path) => this.api("GET", path);

  /** Begins a session; its id. The page's own sessions retract what broke off, so do these. */
  async begin(settings = {}) {
    const made = await this.api("POST", "/api/sessions", { directory: this.work, after_content: "retract", ...settings });
    return made.id;
  }

  say(session, text, more = {}) {
    return this.api("POST", `/api/sessions/${session}/prompt`, { text, ...more });
  }

  async sessions() {
    return (await this.get("/api/sessions")).sessions;
  }

  readToken() {
    this.token = readFileSync(join(this.home, "serve.token"), "utf8").trim();
    return this.token;
  }

  /** What the provider was asked. */
  async asked() {
    const response = await fetch(`${this.provider}/_outlast/requests`);
    return (await response.json()).requests;
  }

  /** For whoever reads of a failure. */
  told() {
    return this.said.trim().split("\n").slice(-6).map((line) => line.slice(0, 300)).join("\n        ");
  }

  remove() {
    for (const child of this.started) end(child);
  }
}

/** Waits until something is so, and gives it; undefined when it hangs. */
export async function until(look, limitMs = HANG_TIMEOUT_MS) {
  for (const end = performance.now() + limitMs; performance.now() < end; ) {
    const found = await look();
    if (found) return found;
    await passing(LOOK_MS);
  }
  return undefined;
}

export function passing(milliseconds) {
  return new Promise((resolve) => setTimeout(resolve, milliseconds));
}

function ended(child) {
  return new Promise((resolve, reject) => {
    child.on("error", reject);
    child.on("close", (code, signal) => resolve(signal ?? code));
  });
}

/** Ends a program and what it started. */
function end(child) {
  try {
    process.kill(-child.pid, "SIGKILL");
  } catch (error) {
    // It is gone already.
    if (error.code !== "ESRCH") throw error;
  }
}
