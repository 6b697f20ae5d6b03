// `outlast`, driven by a released client, in a home of its own. Everything that it says is kept and checked.
//
// The client sees what it asks for; `frames` holds every line as it was written, the answers among them. Whatever a case
// looks at itself, `finish` checks the rules of frames.mjs, that nothing was refused but what the case expected, that the
// process ends by SIGTERM when the client stops it, and that none is left.
import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { checkFrames } from "./frames.mjs";

/** The delay before the first retry with `longWaits`: no wait ends by itself while a case runs. */
export const LONG_WAIT_MS = 3_600_000;
const LONG_WAITS = `[retry]\nbase_delay_ms = ${LONG_WAIT_MS}\nmax_delay = "8h"\n`;

const shim = fileURLToPath(new URL("shim.mjs", import.meta.url));

export class Agent {
  frames = [];
  waiting = new Set();
  // Commands that the case expects to be refused.
  refused = [];
  ended = false;

  /**
   * `model` is a script of the scripted provider, `scale` how many times as fast as the wall's its clock runs. With
   * `longWaits` a wait for a retry ends only when the case ends it.
   */
  constructor(kit, { model = "ok", scale = 1, longWaits = false, args = [] } = {}) {
    this.folder = mkdtempSync(join(tmpdir(), "outlast-pi-"));
    this.cwd = join(this.folder, "work");
    mkdirSync(this.cwd);
    this.pidFile = join(this.folder, "pid");
    const home = join(this.folder, "home");
    mkdirSync(home);
    if (longWaits) writeFileSync(join(home, "outlast.toml"), LONG_WAITS);
    const env = {
      OUTLAST_BIN: kit.outlast,
      OUTLAST_HOME: home,
      OUTLAST_TIME_SCALE: String(scale),
      OUTLAST_PID_FILE: this.pidFile,
    };
    const options = { cliPath: shim, cwd: this.cwd, env, provider: "mock", model, args };
    this.client = noting(new kit.RpcClient(options), kit.called);
  }

  async start(kit) {
    const started = this.client.start();
    this.process = this.client.process;
    // The client sends SIGKILL one second after SIGTERM, which is too soon on a slow machine.
    this.kill = this.process.kill.bind(this.process);
    this.process.kill = (signal) => signal === "SIGKILL" || this.kill(signal);
    // Before the client's own listeners take anything out: 0.73.1 passes over one when another leaves.
    kit.attachJsonlLineReader(this.process.stdout, (line) => this.hear(line));
    this.exited = new Promise((resolve) => this.process.once("exit", (code, signal) => resolve({ code, signal })));
    await started;
    return this;
  }

  hear(line) {
    let frame;
    try {
      frame = JSON.parse(line);
    } catch {
      frame = { type: "not JSON", line };
    }
    this.frames.push(frame);
    for (const look of [...this.waiting]) look();
  }

  /** The next frame that is like this one, from that place on. */
  frame(like, from = 0) {
    return new Promise((resolve) => {
      const look = () => {
        const found = this.frames.slice(from).find((frame) => isLike(frame, like));
        if (!found) return;
        this.waiting.delete(look);
        resolve(found);
      };
      this.waiting.add(look);
      look();
    });
  }

  all(like) {
    return this.frames.filter((frame) => isLike(frame, like));
  }

  /** What the assistant said, in messages that went well. */
  answers() {
    const ends = this.all({ type: "message_end", message: { role: "assistant" } });
    return ends.map(({ message }) => message).filter((message) => !isFailed(message)).map(text);
  }

  /** The assistant's messages that did not go well. */
  failures() {
    const ends = this.all({ type: "message_end", message: { role: "assistant" } });
    return ends.map(({ message }) => message).filter(isFailed);
  }

  /** Ends so many waits for a retry, one after the other. */
  async retryNow(times = 1) {
    for (let attempt = 1; attempt <= times; attempt += 1) {
      await this.frame({ type: "auto_retry_start", attempt });
      const { success, error } = await this.client.send({ type: "retry_now" });
      if (!success) throw new Error(`retry_now was refused: ${error}`);
    }
  }

  /** Bytes as they are, past the client. */
  write(raw) {
    this.process.stdin.write(raw);
  }

  /** Ends its input; how it exits, when everything was said. */
  async hangUp() {
    this.process.stdin.end();
    this.ended = true;
    return this.exited;
  }

  async finish() {
    if (!this.ended) {
      await this.client.stop();
      const { code, signal } = await this.exited;
      if (signal) throw new Error(`it had to be ended with ${signal}`);
      if (code !== 143) throw new Error(`SIGTERM ended it with ${code}, expected 143`);
    }
    if (this.isAlive()) throw new Error("its process is still there");
    checkFrames(this.frames);
    const refused = this.all({ type: "response", success: false }).map(({ command, error }) => `${command}: ${error}`);
    const surprises = refused.filter((line) => !this.refused.some((expected) => line.startsWith(expected)));
    if (surprises.length) throw new Error(`refused: ${surprises.join("; ")}`);
  }

  isAlive() {
    try {
      return process.kill(this.pid(), 0);
    } catch {
      return false;
    }
  }

  pid() {
    const pid = existsSync(this.pidFile) ? Number(readFileSync(this.pidFile, "utf8")) : 0;
    if (!pid) throw new Error("outlast was not started");
    return pid;
  }

  /** Whatever happened, nothing stays behind. */
  remove() {
    for (const kill of [() => process.kill(this.pid(), "SIGKILL"), () => this.kill("SIGKILL")]) {
      try {
        kill();
      } catch {
        // It is gone already.
      }
    }
    rmSync(this.folder, { recursive: true, force: true, maxRetries: 5 });
  }
}

export function text(message) {
  const blocks = typeof message.content === "string" ? [{ type: "text", text: message.content }] : message.content;
  return blocks.filter((block) => block.type === "text").map((block) => block.text).join("");
}

function isFailed(message) {
  return message.stopReason === "error" || message.stopReason === "aborted";
}

/** Whether everything that `like` has is the same in it. */
export function isLike(value, like) {
  if (typeof like !== "object" || like === null) return value === like;
  if (typeof value !== "object" || value === null) return false;
  return Object.keys(like).every((key) => isLike(value[key], like[key]));
}

/** The client, with a note of each of its methods that is called. */
function noting(client, called) {
  return new Proxy(client, {
    get(target, name, receiver) {
      const value = Reflect.get(target, name, receiver);
      if (typeof value === "function") called.add(name);
      return value;
    },
  });
}
