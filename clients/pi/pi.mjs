// A released client of the pi RPC protocol against `outlast rpc`: does it work unchanged?
//
//     node clients/pi/download.mjs FOLDER                                    prints where the clients are
//     node clients/pi/pi.mjs target/debug/outlast CLIENT_FOLDER VERSION      runs every case with one of them
//     node clients/pi/pi.mjs target/debug/outlast CLIENT_FOLDER VERSION retry      those with that word in their name
//
// Every case starts a process of its own, in a home of its own, with the scripted provider; several cases run at once. The
// exit status is 1 when a case failed or a method of the client was never called, 2 when there was nothing to run.
import assert from "node:assert/strict";
import { existsSync, readFileSync } from "node:fs";
import { join, resolve } from "node:path";
import { pathToFileURL } from "node:url";
import { runCases, withDetails, withHangTimeout } from "../lanes.mjs";
import { Agent } from "./agent.mjs";
import { cases as prompts } from "./cases/prompts.mjs";
import { cases as retries } from "./cases/retries.mjs";
import { cases as sessions } from "./cases/sessions.mjs";

// What the client does inside, and its ways to start and stop.
const INSIDE = ["constructor", "handleLine", "createProcessExitError", "rejectPendingRequests", "send", "getData"];

const [outlast, folder, version, word = ""] = process.argv.slice(2);
if (!version || !existsSync(outlast)) {
  console.error("usage: node clients/pi/pi.mjs OUTLAST CLIENT_FOLDER VERSION [WORD]");
  process.exit(2);
}
// Settings of the person who runs this are not part of it.
for (const name of Object.keys(process.env)) if (name.startsWith("OUTLAST_")) delete process.env[name];

// When a prompt is refused, the client leaves a promise behind that fails later. The case has failed by then.
process.on("unhandledRejection", () => {});

const { RpcClient } = await client("rpc-client.js");
const { attachJsonlLineReader } = await client("jsonl.js");
const kit = { RpcClient, attachJsonlLineReader, outlast: resolve(outlast), called: new Set() };
assert.equal(JSON.parse(readFileSync(join(folder, "package.json"))).version, version, "the client's version");

const chosen = [...prompts, ...retries, ...sessions].filter(([name]) => name.includes(word));
let failed = await runCases(chosen.map(([name, body]) => ({ name: `${version} ${name}`, body })), run);
if (!word) failed += await runCases([{ name: `${version} every method of the client was called` }], everyMethodWasCalled);
console.log(`client ${version}: ${chosen.length} cases, ${failed} failed`);
process.exit(chosen.length === 0 ? 2 : failed > 0 ? 1 : 0);

async function client(file) {
  return import(pathToFileURL(resolve(folder, "dist/modes/rpc", file)).href);
}

async function run({ body }) {
  const agents = [];
  const start = (options) => {
    const agent = new Agent(kit, options);
    agents.push(agent);
    return agent.start(kit);
  };
  const play = async () => {
    await body(start);
    for (const agent of agents) await agent.finish();
  };
  try {
    await withHangTimeout(play());
  } catch (error) {
    throw withDetails(error, agents.map(lastFrames));
  } finally {
    for (const agent of agents) agent.remove();
  }
}

function lastFrames({ frames }) {
  return `the last frames: ${frames.map(({ type, command }) => command ?? type).slice(-25).join(" ")}`;
}

async function everyMethodWasCalled() {
  const methods = Object.getOwnPropertyNames(RpcClient.prototype).filter((name) => !INSIDE.includes(name));
  assert.deepEqual(methods.filter((name) => !kit.called.has(name)), [], "methods that were not called");
}
