// Real clients through the gateway, with a scripted provider behind it that fails: is each served, by one request?
//
//     npm ci --prefix FOLDER               with clients/gateway/package.json and its lock file in it
//     node clients/gateway/gateway.mjs OUTLAST PYTHON CLAUDE_FOLDER PI_FOLDER FOLDER [--direct|--long] [WORD]
//
// Every case has a provider, a gateway, a client and a folder of its own; with a WORD, only those run that have it in
// their name. The clients reach nothing but this machine, and have no key but made-up ones. The time of the provider
// and of the gateway runs faster, that of the clients does not.
//     --long     outages of seven and of fifteen minutes in real time, all clients at once
//     --direct   no gateway: what the clients do by themselves, for the table in faults.mjs; nothing fails
// The exit status is 1 when a case failed, 2 when there was nothing to run.
import { existsSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { runCases, withDetails } from "../lanes.mjs";
import { comesBack, directly, held, killed, outlives, served, started } from "./cases.mjs";
import { FAULTS, OUTAGES, SCALE } from "./faults.mjs";
import { clients } from "./programs.mjs";
import { Scene } from "./scene.mjs";

const USAGE = "gateway.mjs OUTLAST PYTHON CLAUDE_FOLDER PI_FOLDER FOLDER [--direct|--long] [WORD]";
const typed = process.argv.slice(2);
const options = typed.filter((word) => word.startsWith("--"));
const given = typed.filter((word) => !word.startsWith("--"));
const [outlast, python, claudeFolder, piFolder, ownFolder, word = ""] = given;
if (!ownFolder || !existsSync(outlast)) {
  console.error(`usage: node clients/gateway/${USAGE}`);
  process.exit(2);
}
const all = clients({ python, claudeFolder, piFolder, ownFolder });
const { cases, scale, atOnce } = plan();
const chosen = cases.filter(({ name }) => name.includes(word));
const folder = mkdtempSync(join(tmpdir(), "outlast-gateway-"));
const scenes = new Set();
// What was started is in groups of its own, and does not hear of a Ctrl-C.
process.on("exit", () => {
  for (const scene of scenes) scene.remove();
  rmSync(folder, { recursive: true, force: true, maxRetries: 5 });
});
for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"]) process.on(signal, () => process.exit(1));
const failed = await runCases(chosen, run, { atOnce });
console.log(`gateway: ${chosen.length} cases, ${failed} failed`);
process.exit(chosen.length === 0 ? 2 : failed > 0 ? 1 : 0);

/** What is run, how fast time runs, and how many cases there are at once, where it is not the usual number. */
function plan() {
  const each = (list, make) => all.flatMap((client) => list.map((item) => make(client, item)));
  if (options.includes("--direct")) return { cases: each(FAULTS, directly), scale: 1 };
  if (options.includes("--long")) return { cases: each(OUTAGES, held), scale: 1, atOnce: Infinity };
  const named = (...names) => all.filter(({ name }) => names.includes(name));
  const cases = [
    // Those that wait longest come first.
    ...named("Claude Code").map(comesBack),
    ...named("Claude Code", "Codex", "openai chat SDK, streamed").map(killed),
    ...named("Claude Code", "Codex", "opencode, chat").map(outlives),
    ...each(FAULTS, served),
    ...all.filter(({ alone }) => alone).map(started),
  ];
  return { cases, scale: SCALE };
}

async function run({ body, scale: own }) {
  const place = mkdtempSync(join(folder, "case-"));
  const scene = new Scene({ outlast: resolve(outlast), folder: place, scale: own ?? scale });
  scenes.add(scene);
  try {
    return await body(scene);
  } catch (error) {
    throw withDetails(error, [scene.told()]);
  } finally {
    scene.remove();
    scenes.delete(scene);
  }
}
