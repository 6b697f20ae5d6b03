// A scripted provider, the gateway before it, and one client that is asked something.
//
// All of them are started for one case and ended with it. Without the gateway the client asks the provider itself.
import { spawn } from "node:child_process";
import { existsSync, mkdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { HANG_TIMEOUT_MS } from "../lanes.mjs";
import { listenOnFreePort } from "../ports.mjs";

const LOOK_MS = 50;

export class Scene {
  started = [];
  gatewaySaid = "";

  constructor({ outlast, folder, scale }) {
    this.outlast = outlast;
    this.folder = folder;
    for (const name of ["work", "home"]) mkdirSync(join(folder, name));
    // Nothing of the person who runs this.
    this.env = { PATH: process.env.PATH, HOME: join(folder, "home"), TERM: "dumb" };
    this.ours = { ...this.env, OUTLAST_HOME: join(folder, "outlast"), OUTLAST_TIME_SCALE: String(scale) };
  }

  async provide(script) {
    const args = ["mock", "--listen", "127.0.0.1:0", "--script", script];
    this.provider = await this.listen(args, () => {});
  }

  /** Starts the gateway. Its holds are kept by the port: one that is known, to come back to. */
  stand() {
    return listenOnFreePort((address) => this.standAt(address));
  }

  async standAt(address) {
    const args = ["gateway", "--listen", address, "--log", "json", "--upstream", this.provider];
    this.gateway = await this.listen(args, (piece) => (this.gatewaySaid += piece));
    this.standing = this.started.at(-1);
  }

  /** Kills the gateway and starts it again in its place. */
  async restart() {
    const ended = new Promise((resolve) => this.standing.on("close", resolve));
    end(this.standing);
    await ended;
    await this.standAt(new URL(this.gateway).host);
  }

  /** Whether the file of the gateway has a hold after so many attempts. The gateway writes holds in groups. */
  hasWritten(attempts) {
    const file = join(this.folder, "outlast", `gateway-${new URL(this.gateway).port}.db`);
    const places = [file, `${file}-wal`].filter(existsSync);
    return places.some((place) => readFileSync(place, "latin1").includes(`"attempts":${attempts}`));
  }

  /** Starts one of our servers; where it listens. */
  listen(args, hear) {
    const child = this.spawn([this.outlast, ...args], { env: this.ours });
    return new Promise((found, failed) => {
      let said = "";
      const late = setTimeout(() => failed(new Error(`\`outlast ${args[0]}\` says nothing: ${said}`)), HANG_TIMEOUT_MS);
      for (const stream of [child.stdout, child.stderr]) {
        stream.setEncoding("utf8").on("data", (piece) => {
          hear(piece);
          said += piece;
          const address = said.match(/listening on (http:\/\/[^\s"]+)/) ?? said.match(/"address":"([^"]+)"/);
          if (!address) return;
          clearTimeout(late);
          found(address[1].startsWith("http") ? address[1] : `http://${address[1]}`);
        });
      }
      child.on("close", () => failed(new Error(`\`outlast ${args.join(" ")}\` ended: ${said}`)));
      child.on("close", () => clearTimeout(late));
    });
  }

  /** Runs the client to its end, or until it is late: what it was answered. */
  async ask(client, limitMs = HANG_TIMEOUT_MS) {
    const running = this.begin(client);
    const late = setTimeout(() => end(running.child), limitMs);
    const code = await running.ended;
    clearTimeout(late);
    this.complained = running.complained;
    this.said = running.printed + running.complained;
    return code === 0 ? client.answer(running.printed) : undefined;
  }

  begin(client) {
    const { command, env, input } = client.start(this.folder, this.gateway ?? this.provider);
    const child = this.spawn(command, { cwd: join(this.folder, "work"), env: { ...this.env, ...env } });
    const running = { child, printed: "", complained: "" };
    child.stdout.setEncoding("utf8").on("data", (piece) => (running.printed += piece));
    child.stderr.setEncoding("utf8").on("data", (piece) => (running.complained += piece));
    child.stdin.on("error", () => {}).end(input ?? "");
    running.ended = new Promise((resolve, reject) => {
      child.on("error", reject);
      child.on("close", (code, signal) => resolve(signal ?? code));
    });
    return running;
  }

  spawn([program, ...args], options) {
    // In a group of its own: some clients are a program that starts the real one.
    const child = spawn(program, args, { ...options, detached: true, stdio: ["pipe", "pipe", "pipe"] });
    this.started.push(child);
    return child;
  }

  /** What the provider was asked. */
  async asked() {
    const response = await fetch(`${this.provider}/_outlast/requests`);
    return (await response.json()).requests;
  }

  /** The requests that the gateway says are over. */
  finished() {
    return this.events("finished");
  }

  /** What the gateway says of that kind. */
  events(kind) {
    const lines = this.gatewaySaid.split("\n").filter((line) => line.startsWith("{") && line.endsWith("}"));
    return lines.map((line) => JSON.parse(line)).filter(({ event }) => event === kind);
  }

  /** Waits until something is so; whether it came to be. */
  async until(isSo, limitMs = HANG_TIMEOUT_MS) {
    for (const end = performance.now() + limitMs; performance.now() < end; ) {
      if (await isSo()) return true;
      await passing(LOOK_MS);
    }
    return false;
  }

  /** Has the gateway start the client, and says what it was answered. */
  async launch(client) {
    const { command, env, input } = client.alone(this.folder);
    const args = ["gateway", "run", "--log", "json", "--upstream", this.provider, "--", ...command];
    const start = () => ({ command: [this.outlast, ...args], env: { ...this.ours, ...env }, input });
    const answer = await this.ask({ ...client, start });
    this.gatewaySaid = this.complained;
    return answer;
  }

  /** For whoever reads of a failure. */
  told() {
    const lines = (text) => (text ?? "").trim().split("\n").slice(-4).map((line) => line.slice(0, 400));
    const last = (text) => lines(text).join("\n        ");
    return `${last(this.said)}\n        gateway: ${last(this.gatewaySaid)}`;
  }

  remove() {
    for (const child of this.started) end(child);
  }
}

export function passing(milliseconds) {
  return new Promise((resolve) => setTimeout(resolve, milliseconds));
}

/** Ends a program and what it started. */
export function end(child) {
  try {
    process.kill(-child.pid, "SIGKILL");
  } catch (error) {
    // It is gone already.
    if (error.code !== "ESRCH") throw error;
  }
}
