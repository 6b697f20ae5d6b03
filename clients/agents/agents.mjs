// Real agent programs as steps of a pipeline, against the scripted provider: are they started, understood and retried right?
//
//     npm ci --prefix CLAUDE_FOLDER        with clients/agents/package.json and its lock file in it
//     npm ci --prefix PI_FOLDER            with clients/pi/package.json and its lock file in it
//     node clients/agents/agents.mjs target/debug/outlast CLAUDE_FOLDER PI_FOLDER [WORD]
//
// Every case has a provider, a home and a folder of its own, and several run at once; with a WORD, only those run that have it
// in their name. The programs reach nothing but the provider on this machine, and have no key but made-up ones. The exit
// status is 1 when a case failed, 2 when there was nothing to run.
import { existsSync, mkdirSync, mkdtempSync, readdirSync, rmSync, symlinkSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { runCases, withDetails } from "../lanes.mjs";
import { cases as claude } from "./claude.mjs";
import { cases as pi } from "./pi.mjs";
import { Stage } from "./stage.mjs";

const [outlast, claudeFolder, piFolder, word = ""] = process.argv.slice(2);
if (!piFolder || !existsSync(outlast)) {
  console.error("usage: node clients/agents/agents.mjs OUTLAST CLAUDE_FOLDER PI_FOLDER [WORD]");
  process.exit(2);
}
const folder = mkdtempSync(join(tmpdir(), "outlast-agents-"));
const chosen = [...claude, ...pi].filter(([name]) => name.includes(word));
const stages = new Set();
process.on("exit", () => {
  for (const stage of stages) stage.remove();
  rmSync(folder, { recursive: true, force: true, maxRetries: 5 });
});
for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"]) process.on(signal, () => process.exit(1));
const programs = bin();
const failed = await runCases(chosen.map(([name, body]) => ({ name, body })), run);
console.log(`agents: ${chosen.length} cases, ${failed} failed`);
process.exit(chosen.length === 0 ? 2 : failed > 0 ? 1 : 0);

/** A folder with the programs under the names by which steps know them. */
function bin() {
  const place = join(folder, "bin");
  mkdirSync(place);
  symlinkSync(claudeProgram(), join(place, "claude"));
  symlinkSync(resolve(piFolder, "node_modules/@mariozechner/pi-coding-agent/dist/cli.js"), join(place, "pi"));
  return place;
}

/** The package for this machine is the only one that was installed. */
function claudeProgram() {
  const packages = resolve(claudeFolder, "node_modules/@anthropic-ai");
  const found = readdirSync(packages).filter((name) => name.startsWith("claude-code-"));
  if (found.length === 0) throw new Error(`there is no program for this machine in ${packages}`);
  return join(packages, found[0], "claude");
}

async function run({ body }) {
  const stage = new Stage({ outlast: resolve(outlast), programs, folder: mkdtempSync(join(folder, "case-")) });
  stages.add(stage);
  try {
    await body(stage);
  } catch (error) {
    throw withDetails(error, [stage.told()]);
  } finally {
    stage.remove();
    stages.delete(stage);
  }
}
