// The real clients: how each is started in a folder of its own against an address, and what it was answered.
//
// They are left as they come, with their own retries and time limits, but for what would reach other places than the
// address, and for what would be a second request: a prompt is one. `known` is the client's name at the gateway. Agents
// also say how they are started where nothing tells them of an address (`alone`), for the gateway to do so, and by what
// name it then knows them, when that is another.
import { existsSync, mkdirSync, readdirSync, writeFileSync } from "node:fs";
import { join, resolve } from "node:path";
import { fileURLToPath } from "node:url";

const PROMPT = "Say hello\n";
const ASK = fileURLToPath(new URL("ask.py", import.meta.url));

/** All clients, from the folders where their packages are. */
export function clients({ python, claudeFolder, piFolder, ownFolder }) {
  const found = { python: resolve(python), claude: claude(claudeFolder), pi: pi(piFolder), ...own(ownFolder) };
  for (const [name, place] of Object.entries(found)) {
    if (!existsSync(place)) throw new Error(`there is no ${name} for this machine: ${place}`);
  }
  const sdks = ["anthropic", "chat", "responses"].flatMap((dialect) =>
    ["streamed", "whole"].map((form) => sdk(found.python, dialect, form)),
  );
  return [
    ...sdks,
    claudeCode(found.claude),
    codex(found.codex),
    opencode(found.opencode, "anthropic"),
    opencode(found.opencode, "chat"),
    agentPi(found.pi),
  ];
}

// --- where the programs are ---

function claude(folder) {
  const packages = resolve(folder, "node_modules/@anthropic-ai");
  const name = readdirSync(packages).find((name) => name.startsWith("claude-code-"));
  return join(packages, name ?? "claude-code-for-this-machine", "claude");
}

function pi(folder) {
  // The gateway knows programs by their names.
  return resolve(folder, "node_modules/.bin/pi");
}

function own(folder) {
  const packages = resolve(folder, "node_modules");
  const name = readdirSync(packages).find((name) => name.startsWith("opencode-"));
  return {
    codex: join(packages, "@openai/codex/bin/codex.js"),
    opencode: join(packages, name ?? "opencode-for-this-machine", "bin/opencode"),
  };
}

// --- how they are asked ---

function sdk(python, dialect, form) {
  return {
    name: `${dialect === "anthropic" ? "anthropic" : `openai ${dialect}`} SDK, ${form}`,
    known: dialect === "anthropic" ? "anthropic-sdk-python" : "openai-sdk-python",
    start: (folder, address) => ({ command: [python, ASK, dialect, form, address] }),
    answer: (printed) => printed,
  };
}

function claudeCode(program) {
  const alone = (folder) => ({
    command: [program, "-p", "--output-format", "stream-json", "--verbose"],
    env: {
      ANTHROPIC_API_KEY: "made-up",
      CLAUDE_CONFIG_DIR: join(folder, "claude"),
      CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC: "1",
      DISABLE_AUTOUPDATER: "1",
    },
    input: PROMPT,
  });
  return {
    name: "Claude Code",
    known: "claude-code",
    // It is given more patience.
    knownAlone: "claude-code-patient",
    alone,
    start: (folder, address) => add(alone(folder), { ANTHROPIC_BASE_URL: address }),
    answer: (printed) => {
      const ended = lines(printed).findLast(({ type }) => type === "result");
      // A failure is called a success too.
      return ended?.is_error === false ? ended.result : undefined;
    },
  };
}

function codex(program) {
  const alone = (folder) => ({
    command: [program, "exec", "--json", "--skip-git-repo-check", "--color", "never", "-s", "read-only", "-"],
    env: { CODEX_HOME: place(folder, "codex"), OPENAI_API_KEY: "made-up" },
    input: PROMPT,
  });
  return {
    name: "Codex",
    known: "codex",
    alone,
    start: (folder, address) => {
      const provider = `[model_providers.mock]\nname = "mock"\nbase_url = "${address}/v1"\nwire_api = "responses"\n`;
      const settings = `model = "scripted"\nmodel_provider = "mock"\n${provider}env_key = "OPENAI_API_KEY"\n`;
      writeFileSync(join(place(folder, "codex"), "config.toml"), settings);
      return alone(folder);
    },
    answer: (printed) => {
      const said = lines(printed);
      if (!said.some(({ type }) => type === "turn.completed")) return undefined;
      return said.findLast(({ item }) => item?.type === "agent_message")?.item.text;
    },
  };
}

function opencode(program, dialect) {
  const npm = { anthropic: "@ai-sdk/anthropic", chat: "@ai-sdk/openai-compatible" }[dialect];
  const alone = (folder, model = "anthropic/claude-sonnet-4-5") => ({
    // Without a title it asks for one at the same time.
    command: [program, "run", "--format", "json", "--pure", "--title", "Hello", "--model", model],
    env: { ANTHROPIC_API_KEY: "made-up", OPENCODE_DISABLE_AUTOUPDATE: "1", OPENCODE_DISABLE_MODELS_FETCH: "1" },
    input: PROMPT,
  });
  return {
    name: `opencode, ${dialect}`,
    known: "opencode",
    alone: dialect === "anthropic" ? alone : undefined,
    start: (folder, address) => {
      const options = { baseURL: `${address}/v1`, apiKey: "made-up" };
      const provider = { mock: { npm, name: "mock", options, models: { scripted: {} } } };
      const settings = { autoupdate: false, share: "disabled", provider };
      writeFileSync(join(folder, "opencode.json"), JSON.stringify(settings));
      return add(alone(folder, "mock/scripted"), { OPENCODE_CONFIG: join(folder, "opencode.json") });
    },
    answer: (printed) => {
      const said = lines(printed);
      if (said.some(({ type }) => type === "error")) return undefined;
      const begun = said.findLastIndex(({ type }) => type === "step_start");
      return said.slice(begun).flatMap(({ type, part }) => (type === "text" ? [part.text] : [])).join("");
    },
  };
}

function agentPi(program) {
  const alone = (folder, provider = "anthropic", model = "claude-sonnet-4-5") => ({
    command: [program, "-p", "--mode", "json", "--no-session", "--provider", provider, "--model", model],
    env: { PI_CODING_AGENT_DIR: place(folder, "pi"), PI_OFFLINE: "1", ANTHROPIC_API_KEY: "made-up" },
    input: PROMPT,
  });
  return {
    name: "pi, chat",
    // It cannot be told from other programs on that SDK, unless the gateway itself started it.
    known: "openai-sdk-node",
    knownAlone: "pi",
    alone,
    start: (folder, address) => {
      const models = [{ id: "scripted" }];
      const mock = { baseUrl: `${address}/v1`, api: "openai-completions", apiKey: "made-up", models };
      writeFileSync(join(place(folder, "pi"), "models.json"), JSON.stringify({ providers: { mock } }));
      return alone(folder, "mock", "scripted");
    },
    answer: (printed) => {
      const messages = lines(printed).flatMap(({ type, message }) => (type === "message_end" ? [message] : []));
      const last = messages.findLast(({ role }) => role === "assistant");
      // It exits with 0 whatever happened.
      if (last?.stopReason !== "stop") return undefined;
      return last.content.map(({ text }) => text ?? "").join("");
    },
  };
}

function add(started, env) {
  return { ...started, env: { ...started.env, ...env } };
}

function place(folder, name) {
  const made = join(folder, name);
  mkdirSync(made, { recursive: true });
  return made;
}

/** What is printed as JSON, one value a line. */
function lines(printed) {
  return printed.split("\n").filter((line) => line.startsWith("{")).map((line) => JSON.parse(line));
}
