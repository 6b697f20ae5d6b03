// The page of `outlast serve` in a real browser, against the real program: does it show what happens, to everybody, and to nobody else?
//
//     npm ci --prefix FOLDER               with clients/browser/package.json and its lock file in it
//     node clients/browser/browser.mjs OUTLAST FOLDER [PICTURES] [WORD]
//
// Every case has a home, a server, a provider and a context of the browser of its own, and several run at once; with a WORD,
// only those run that have it in their name. Pictures of every view are left in PICTURES (target/browser), and one of every
// tab of a case that failed. The exit status is 1 when a case failed, 2 when there was nothing to run.
import { cpSync, existsSync, mkdirSync, mkdtempSync, readdirSync, rmSync } from "node:fs";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { delimiter, join, resolve } from "node:path";
import { HANG_TIMEOUT_MS, runCases, withDetails } from "../lanes.mjs";
import { cases as healing } from "./healing.mjs";
import { cases as keyboard } from "./keyboard.mjs";
import { cases as retry } from "./retry.mjs";
import { Stage } from "./stage.mjs";
import { cases as strangers } from "./strangers.mjs";
import { Tab } from "./tab.mjs";
import { cases as views } from "./views.mjs";

const PROGRAMS = ["chromium", "chromium-browser", "google-chrome-stable", "google-chrome"];

const [outlast, packages, pictures = "target/browser", word = ""] = process.argv.slice(2);
if (!packages || !existsSync(outlast)) {
  console.error("usage: node clients/browser/browser.mjs OUTLAST FOLDER [PICTURES] [WORD]");
  process.exit(2);
}
const need = createRequire(join(resolve(packages), "package.json"));
const chosen = [...retry, ...views, ...keyboard, ...healing, ...strangers].filter(([name]) => name.includes(word));
const folder = mkdtempSync(join(tmpdir(), "outlast-browser-"));
// They are taken here first: another copy of this program may clear PICTURES meanwhile.
const shots = join(folder, "pictures");
mkdirSync(shots);
const stages = new Set();
// What was started is in groups of its own, and does not hear of a Ctrl-C.
process.on("exit", () => {
  for (const stage of stages) stage.remove();
  leavePictures();
  rmSync(folder, { recursive: true, force: true, maxRetries: 5 });
});
for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"]) process.on(signal, () => process.exit(1));

const browser = await launch();
const failed = await runCases(chosen.map(([name, body]) => ({ name, body })), run);
await browser.close();
console.log(`browser: ${chosen.length - failed} passed, ${failed} failed`);
process.exit(chosen.length === 0 ? 2 : failed > 0 ? 1 : 0);

/** Puts the pictures where the person looks for them; with all cases run, in place of older ones. */
function leavePictures() {
  mkdirSync(pictures, { recursive: true });
  const ours = readdirSync(shots);
  const older = word ? [] : readdirSync(pictures).filter((name) => name.endsWith(".png") && !ours.includes(name));
  for (const name of older) rmSync(join(pictures, name), { force: true });
  for (const name of ours) cpSync(join(shots, name), join(pictures, name));
}

function launch() {
  const places = process.env.PATH.split(delimiter).flatMap((place) => PROGRAMS.map((name) => join(place, name)));
  const executablePath = places.find(existsSync);
  if (!executablePath) throw new Error("there is no chromium");
  // Nothing but the page is loaded, and root has no sandbox.
  const args = ["--no-first-run", "--disable-background-networking", "--disable-dev-shm-usage", "--lang=en-US"];
  if (process.getuid() === 0) args.push("--no-sandbox");
  const env = { ...process.env, HOME: folder };
  return need("puppeteer-core").launch({
    executablePath,
    args,
    env,
    headless: true,
    timeout: HANG_TIMEOUT_MS,
    protocolTimeout: HANG_TIMEOUT_MS,
  });
}

async function run({ name, body }) {
  const stage = new Stage({ outlast: resolve(outlast), folder: mkdtempSync(join(folder, "case-")) });
  const tabs = [];
  const open = async (options = {}) => {
    const tab = await Tab.open({ browser, origin: stage.origin, pictures: shots, ...options });
    tabs.push(tab);
    return tab;
  };
  stages.add(stage);
  try {
    await body({ stage, open, need });
    for (const tab of tabs) tab.checkQuiet();
  } catch (error) {
    throw withDetails(error, [...(await keep(name, tabs)), stage.told()]);
  } finally {
    for (const tab of tabs) await tab.close().catch(() => {});
    stage.remove();
    stages.delete(stage);
  }
}

/** Keeps what the tabs of a failed case show; what to look at. */
async function keep(name, tabs) {
  const told = [];
  for (const [number, tab] of tabs.entries()) {
    const file = `FAILED-${name.replaceAll(/\W+/g, "-")}-${number}`;
    await tab.shot(file).then(
      () => told.push(`see ${join(pictures, file)}.png`),
      (error) => told.push(`no picture: ${error.message}`),
    );
    told.push(...tab.complaints.slice(0, 5));
  }
  return told;
}
