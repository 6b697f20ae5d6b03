// How long until a client has its first answer: `outlast rpc` beside `pi --mode rpc`, on this machine, one after the other.
//
//     npm ci --prefix FOLDER            with clients/pi/package.json and its lock file in FOLDER
//     node clients/pi/startup.mjs target/debug/outlast FOLDER
//
// Both are started as they are installed, with a home of their own, offline, and asked for their state at once. The ratio
// of the medians is about 60 to 100 and must be at least 5, so that other work on the machine does not matter; the exit status
// is 1 when it is less.
import { spawn } from "node:child_process";
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { HANG_TIMEOUT_MS } from "../lanes.mjs";

const RUNS = 3;
const MIN_RATIO = 5;

const [outlast, installed] = process.argv.slice(2);
if (!installed) {
  console.error("usage: node clients/pi/startup.mjs OUTLAST FOLDER");
  process.exit(2);
}
const folder = mkdtempSync(join(tmpdir(), "outlast-startup-"));
try {
  process.exitCode = await compare();
} finally {
  rmSync(folder, { recursive: true, force: true, maxRetries: 5 });
}

async function compare() {
  const [ours, theirs] = [outlastCommand(), piCommand()];
  // The first start of each reads its files from the disk; that is not what is compared.
  for (const command of [ours, theirs]) await firstAnswer(command);
  const times = { ours: [], theirs: [] };
  for (let run = 0; run < RUNS; run += 1) {
    times.theirs.push(await firstAnswer(theirs));
    times.ours.push(await firstAnswer(ours));
  }
  const ratio = median(times.theirs) / median(times.ours);
  console.log(`start-up to the first answer, median of ${RUNS}:`);
  console.log(`  outlast rpc           ${describe(times.ours)}`);
  console.log(`  pi 0.73.1 --mode rpc  ${describe(times.theirs)}`);
  console.log(`  ratio ${ratio.toFixed(1)}, at least ${MIN_RATIO} is needed`);
  return ratio >= MIN_RATIO ? 0 : 1;
}

function outlastCommand() {
  const env = { PATH: process.env.PATH, HOME: folder, OUTLAST_HOME: join(folder, "outlast") };
  return { program: resolve(outlast), args: ["rpc", "--provider", "mock", "--model", "ok"], env };
}

function piCommand() {
  const home = join(folder, "pi");
  mkdirSync(home);
  const mock = { baseUrl: "http://127.0.0.1:9/v1", api: "openai-completions", apiKey: "none", models: [{ id: "ok" }] };
  writeFileSync(join(home, "models.json"), JSON.stringify({ providers: { mock } }));
  const env = { PATH: process.env.PATH, HOME: folder, PI_CODING_AGENT_DIR: home, PI_OFFLINE: "1" };
  const cli = resolve(installed, "node_modules/@mariozechner/pi-coding-agent/dist/cli.js");
  return { program: process.execPath, args: [cli, "--mode", "rpc", "--provider", "mock", "--model", "ok"], env };
}

/** Milliseconds from the start of the process until its state is known. */
function firstAnswer({ program, args, env }) {
  return new Promise((resolve, reject) => {
    const began = performance.now();
    const child = spawn(program, args, { cwd: folder, env, stdio: ["pipe", "pipe", "inherit"] });
    const late = setTimeout(() => child.kill("SIGKILL"), HANG_TIMEOUT_MS);
    let said = "";
    let took;
    child.stdin.on("error", () => {});
    child.stdin.write('{"id":"first","type":"get_state"}\n');
    child.stdout.setEncoding("utf8").on("data", (piece) => {
      said += piece;
      if (took !== undefined || !said.split("\n").slice(0, -1).some(isAnswer)) return;
      took = performance.now() - began;
      child.stdin.end();
    });
    child.on("error", reject);
    // The next one starts when this one is gone, so that they do not share the machine.
    child.on("close", (code, signal) => {
      clearTimeout(late);
      if (took === undefined) reject(new Error(`${program} gave no answer (${signal ?? code}): ${said.slice(0, 500)}`));
      else resolve(took);
    });
  });
}

function isAnswer(line) {
  const frame = JSON.parse(line);
  return frame.id === "first" && frame.success === true && frame.data.model.id === "ok";
}

function median(numbers) {
  return numbers.toSorted((a, b) => a - b)[Math.floor(numbers.length / 2)];
}

function describe(numbers) {
  const [least, most] = [Math.min(...numbers), Math.max(...numbers)].map((number) => number.toFixed(1));
  return `${median(numbers).toFixed(1)} ms (${least} to ${most})`;
}
