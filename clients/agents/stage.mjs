// A scripted provider and a pipeline with one agent step, run to its end.
import { spawn } from "node:child_process";
import { existsSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { HANG_TIMEOUT_MS } from "../lanes.mjs";

export class Stage {
  events = [];
  said = "";

  constructor({ outlast, programs, folder }) {
    this.outlast = outlast;
    this.folder = folder;
    this.work = join(folder, "work");
    mkdirSync(this.work);
    mkdirSync(join(folder, "pi"));
    // Nothing of the person who runs this.
    this.env = { PATH: `${programs}:${process.env.PATH}`, HOME: folder, OUTLAST_HOME: join(folder, "home") };
  }

  /** Runs a step against a provider that plays the script; how the run went. `hear` gets every event as it comes. */
  async play(script, step, { runtime = {}, hear = () => {} } = {}) {
    const address = await this.provide(script);
    this.provider = address;
    this.configurePi(address);
    const env = { ...this.variables(address), ...step.env };
    const steps = [{ id: "work", ...step, env }];
    // JSON is YAML.
    writeFileSync(join(this.folder, "pipeline.yaml"), JSON.stringify({ runtime, steps }));
    const code = await this.run(hear);
    const ended = this.events.filter(({ type }) => type === "attempt_ended");
    return {
      code,
      output: this.output(),
      attempts: ended.map(({ problem, next }) => (problem ? [problem.class, problem.cause, next.do] : ["done"])),
      ended,
    };
  }

  provide(script) {
    const args = ["mock", "--listen", "127.0.0.1:0", "--script", script];
    this.mock = spawn(this.outlast, args, { env: this.env, stdio: ["ignore", "pipe", "pipe"] });
    return new Promise((resolve, reject) => {
      let said = "";
      const hear = (piece) => {
        said += piece;
        const found = said.match(/listening on (http:\S+)/);
        if (found) resolve(found[1]);
      };
      for (const stream of [this.mock.stdout, this.mock.stderr]) stream.setEncoding("utf8").on("data", hear);
      this.mock.on("error", reject);
      this.mock.on("close", () => reject(new Error(`the provider did not start: ${said}`)));
    });
  }

  /** What leads the programs to the provider, and nowhere else. */
  variables(address) {
    return {
      ANTHROPIC_BASE_URL: address,
      ANTHROPIC_API_KEY: "made-up",
      CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC: "1",
      CLAUDE_CONFIG_DIR: join(this.folder, "claude"),
      DISABLE_AUTOUPDATER: "1",
      PI_CODING_AGENT_DIR: join(this.folder, "pi"),
      PI_OFFLINE: "1",
    };
  }

  configurePi(address) {
    const models = [{ id: "scripted" }];
    const mock = { baseUrl: `${address}/v1`, api: "openai-completions", apiKey: "made-up", models };
    writeFileSync(join(this.folder, "pi/models.json"), JSON.stringify({ providers: { mock } }));
    // What is tested here is whether the step tries again.
    const settings = { defaultProvider: "mock", defaultModel: "scripted", retry: { enabled: false } };
    writeFileSync(join(this.folder, "pi/settings.json"), JSON.stringify(settings));
  }

  /** The requests that the provider got. */
  async asked() {
    const response = await fetch(`${this.provider}/_outlast/requests`);
    return (await response.json()).requests;
  }

  /** Has the provider play another script from now on. */
  async direct(script) {
    const response = await fetch(`${this.provider}/_outlast/script`, { method: "POST", body: JSON.stringify({ script }) });
    if (!response.ok) throw new Error(`the provider refused the script: ${await response.text()}`);
  }

  run(hear) {
    const args = ["run", "../pipeline.yaml", "--json"];
    const child = spawn(this.outlast, args, { cwd: this.work, env: this.env, stdio: ["ignore", "pipe", "pipe"] });
    this.running = child;
    const late = setTimeout(() => child.kill("SIGKILL"), HANG_TIMEOUT_MS);
    let rest = "";
    child.stdout.setEncoding("utf8").on("data", (piece) => {
      const lines = (rest + piece).split("\n");
      rest = lines.pop();
      for (const line of lines.filter(Boolean)) {
        const event = JSON.parse(line);
        this.events.push(event);
        hear(event);
      }
    });
    child.stderr.setEncoding("utf8").on("data", (piece) => (this.said += piece));
    return new Promise((resolve, reject) => {
      child.on("error", reject);
      child.on("close", (code, signal) => {
        clearTimeout(late);
        resolve(signal ?? code);
      });
    });
  }

  /** What the step said in the end; nothing when it did not end well. */
  output() {
    const ended = this.events.find(({ type }) => type === "step_ended");
    const hash = ended?.artifacts?.output?.hash;
    if (!hash) return undefined;
    const place = join(this.folder, "home/artifacts", hash.slice(0, 2), hash.slice(2));
    return readFileSync(place, "utf8");
  }

  made(name) {
    return existsSync(join(this.work, name));
  }

  /** For whoever reads of a failure. */
  told() {
    const problems = this.events.flatMap(({ problem }) => (problem ? [JSON.stringify(problem)] : []));
    return [...problems, this.said.trim()].join("\n        ");
  }

  remove() {
    for (const child of [this.running, this.mock]) child?.kill("SIGKILL");
  }
}
