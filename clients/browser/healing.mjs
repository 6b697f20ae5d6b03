// What a page makes of what it is not told: a second click, a process that left, a server that refuses, a tab that nobody sees.
import assert from "node:assert/strict";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { ROUTES } from "./routes.mjs";
import { passing, until } from "./stage.mjs";

const LONG = "rate-limited:retry-after=3000";
const HALF_A_MINUTE = 30_000;

export const cases = [
  ["a form that is sent three times at once begins one session", begunOnce],
  ["a form that is sent three times at once starts one run", startedOnce],
  ["a session whose process has left can be written in and carried on", left],
  ["a turn that has ended in the moment of its snapshot has ended", ended],
  ["an answer that is older than what was heard does not count", outdated],
  ["why a session cannot be followed is shown until it can", refused],
  ["a tab that nobody sees hangs up, and misses nothing", unseen],
  ["gateways that say nothing take no other one with them, and of ten thousand requests the first are shown", crowded],
];

/** Sends the form of a dialog as impatient people do: with Enter, and two clicks on its button. */
async function sendThrice(tab, dialog) {
  const form = await tab.see(dialog);
  await form.evaluate((node) => {
    const sender = node.querySelector("[type=submit]");
    sender.form.requestSubmit();
    sender.click();
    sender.click();
  });
  await tab.gone(dialog);
  // A second one may come late.
  await passing(500);
}

async function begunOnce({ stage, open }) {
  await stage.open();
  const tab = await open();
  await tab.goto(ROUTES.sessions);
  await tab.click("new-session");
  await sendThrice(tab, "new-session-dialog");
  assert.equal((await stage.sessions()).length, 1, "one session was begun");
}

async function startedOnce({ stage, open }) {
  await stage.open();
  writeFileSync(join(stage.work, "pipeline.yaml"), JSON.stringify({ name: "pipeline", steps: [{ id: "only", command: "true" }] }));
  const tab = await open();
  await tab.goto(ROUTES.runs);
  await tab.click("start-run");
  const dialog = await tab.see("start-run-dialog");
  const file = await dialog.$("#run-file");
  // What went wrong can be mended, and the form sent again.
  await file.type("pipe");
  await tab.page.keyboard.press("Enter");
  const complained = await until(() => dialog.$eval(".toast", (node) => node.innerText).catch(() => ""));
  assert.ok(complained, "it says that there is no such file");
  tab.forgive();
  await file.type("line.yaml");
  await sendThrice(tab, "start-run-dialog");
  assert.equal((await stage.get("/api/runs")).runs.length, 1, "one run was started");
}

async function left({ stage, open }) {
  await stage.open();
  const other = stage.spawn([stage.outlast, "-p", "say hello", "--model", LONG], { cwd: stage.work });
  const session = await until(async () => (await stage.sessions()).find(({ state }) => state === "elsewhere"));
  assert.ok(session, `another process leads a session: ${JSON.stringify(await stage.sessions())}`);
  const tab = await open();
  await tab.goto(ROUTES.session(session.id));
  await tab.see("message-user", { text: /say hello/ });
  const isLocked = async () => (await tab.see("composer")).evaluate((node) => node.disabled);
  assert.equal(await isLocked(), true, "as long as it does, nothing can be said here");
  assert.equal(await tab.seen("resume"), 0, "nor is there anything to carry on");
  process.kill(-other.pid, "SIGKILL");
  assert.ok(await until(async () => !(await isLocked())), "it can be written in when that one has left");
  await tab.see("resume", { text: /Carry on/ });
  await tab.click("resume");
  await tab.see("retry-bubble");
}

async function ended({ stage, open }) {
  await stage.open();
  const id = await stage.begin();
  await stage.say(id, "say hello");
  await until(async () => (await stage.get(`/api/sessions/${id}`)).state === "idle");
  const { place, ...snapshot } = await stage.get(`/api/sessions/${id}/snapshot?dialect=native`);
  snapshot.session.state = "running";
  delete snapshot.session.last_seal;
  const tab = await open();
  // Once, this is what the server says; what follows it is nothing.
  const body = `id: ${place}\nevent: snapshot\ndata: ${JSON.stringify({ place, ...snapshot })}\n\n`;
  const { asked, list } = await answer(tab, id, { status: 200, contentType: "text/event-stream", body });
  await tab.goto(ROUTES.session(id));
  await tab.see("abort");
  list();
  await tab.gone("abort");
  assert.ok(await until(() => asked.length > 1), "it goes on with what follows");
  assert.equal(asked[1].headers()["last-event-id"], place);
  assert.equal(await tab.seen("message-assistant"), 1);
}

async function outdated({ stage, open }) {
  await stage.open();
  const id = await stage.begin({ model: `ok+${LONG}` });
  const at = `/api/sessions/${id}`;
  const tab = await open();
  // With the end of the first turn the page asks how the session stands. It is told when the second turn waits already.
  const asked = [];
  await tab.page.setRequestInterception(true);
  tab.page.on("request", (request) => {
    const path = new URL(request.url()).pathname;
    if (path === at) asked.push(request);
    // What the list says would mend it.
    else if (path !== "/api/sessions") request.continue();
  });
  await tab.goto(ROUTES.session(id));
  await tab.send("say hello");
  await tab.see("message-assistant", { text: /Hello/ });
  assert.ok(await until(() => asked.length > 0), "the page asks");
  const old = await until(async () => [await stage.get(at)].find(({ state }) => state === "idle"));
  await stage.say(id, "again");
  await tab.see("retry-bubble");
  await asked[0].respond({ status: 200, contentType: "application/json", body: JSON.stringify(old) });
  await passing(500);
  assert.equal(await tab.seen("retry-bubble"), 1, "the wait is still seen");
}

async function refused({ stage, open }) {
  await stage.open();
  const id = await stage.begin();
  await stage.say(id, "say hello");
  const tab = await open();
  const problem = { status: 503, code: "unavailable", detail: "the <b>disk</b> is full" };
  const refusal = { status: 503, contentType: "application/problem+json", body: JSON.stringify(problem) };
  let isRefusing = true;
  const { asked, list } = await answer(tab, id, refusal, () => isRefusing);
  list();
  await tab.goto(ROUTES.session(id));
  const said = await until(() => tab.connection());
  assert.match(said ?? "", /the <b>disk<\/b> is full/);
  // It tries again by itself.
  await until(() => asked.length > 2);
  assert.match(await tab.connection(), /the <b>disk<\/b> is full/);
  isRefusing = false;
  await tab.see("message-assistant", { text: /Hello/ });
  assert.equal(await tab.connection(), "", "then there is nothing to say");
  tab.forgive();
}

async function unseen({ stage, open }) {
  await stage.open();
  const id = await stage.begin({ model: "ok:times=always" });
  await stage.say(id, "one");
  const tab = await open();
  // Half a minute is over soon.
  await tab.page.evaluateOnNewDocument((long) => {
    const plain = window.setTimeout;
    window.setTimeout = (act, time, ...more) => plain(act, time === long ? 300 : time, ...more);
  }, HALF_A_MINUTE);
  const streams = [];
  const isStream = (request) => request.url().includes(`/sessions/${id}/events`);
  tab.page.on("request", (request) => isStream(request) && streams.push({ after: request.headers()["last-event-id"] }));
  tab.page.on("requestfailed", (request) => isStream(request) && (streams.at(-1).isOver = true));
  await tab.goto(ROUTES.session(id));
  await tab.see("message-assistant", { text: /./ });
  const see = (isSeen) =>
    tab.page.evaluate((hidden) => {
      Object.defineProperty(document, "hidden", { get: () => hidden, configurable: true });
      document.dispatchEvent(new Event("visibilitychange"));
    }, !isSeen);
  await see(false);
  assert.ok(await until(() => streams[0].isOver), "the connection is given up");
  await stage.say(id, "two");
  await until(async () => (await stage.get(`/api/sessions/${id}`)).state === "idle");
  assert.deepEqual([streams.length, await tab.seen("message-user")], [1, 1], "nothing is heard meanwhile");
  await see(true);
  const shown = await until(async () => (await tab.seen("message-assistant")) === 2);
  assert.ok(shown, "what was missed is shown");
  await passing(500);
  assert.deepEqual(await tab.texts("message-user"), ["one", "two"]);
  assert.equal(await tab.seen("message-assistant"), 2, "and it is shown once");
  assert.equal(streams.length, 2);
  assert.ok(streams[1].after, "it went on from where it was");
}

async function crowded({ stage, open }) {
  await stage.open();
  const now = new Date().toISOString();
  const waiting = Array.from({ length: 10_000 }, (_, number) => ({ id: `r${number}`, client: "c", attempts: 1, since: now, wake: now }));
  const gateways = [
    { port: 1, address: "127.0.0.1:1", problem: "it does not answer" },
    { port: 2, address: "127.0.0.1:2", status: { listening_since: now, counters: {} } },
    { port: 3, address: "127.0.0.1:3", status: { listening_since: now, counters: {}, waiting } },
  ];
  const retried = [];
  const inVain = [];
  const answers = {
    "/api/gateways": () => [200, { now, gateways }],
    "/api/gateways/1/traffic": (request) => [503, { status: 503, detail: `asked ${inVain.push(request)} times` }],
    // It has fallen silent since the list was made.
    "/api/gateways/2/traffic": () => [503, { status: 503, detail: "it does not answer" }],
    "/api/gateways/3/traffic": () => [200, { now, seq: 1, requests: [] }],
    "/api/gateways/3/retry_now": (request) => [200, { retried: retried.push(request.postData()) }],
  };
  const tab = await open();
  await tab.page.setRequestInterception(true);
  tab.page.on("request", (request) => {
    const play = answers[new URL(request.url()).pathname];
    if (!play) return request.continue();
    const [status, body] = play(request);
    return request.respond({ status, contentType: "application/json", body: JSON.stringify(body) });
  });
  await tab.goto(ROUTES.gateway);
  await tab.see("waiting-more", { text: /9,800 more wait/ });
  assert.equal(await tab.seen("waiting-row"), 200);
  // Until all of them have been asked once more.
  await tab.page.waitForResponse((response) => response.url().includes("/gateways/3/traffic"));
  await passing(100);
  const problems = await tab.page.$$eval(".problem", (nodes) => nodes.filter((node) => !node.hidden).map((node) => node.innerText));
  assert.deepEqual(problems, ["it does not answer"], "only what concerns one gateway is said, and beside it");
  assert.equal(inVain.length, 0, "a gateway that says nothing is not asked for more");
  await tab.click("retry-all");
  assert.ok(await until(() => retried.length > 0));
  assert.deepEqual(retried, ["{}"], "all means all");
  tab.forgive();
}

/**
 * Answers requests for what happens in a session in the server's place, as long as `isPlayed(number)` says so of the request of
 * that number; `asked` are all such requests. The list of sessions is held back until `list()`.
 */
async function answer(tab, id, response, isPlayed = (number) => number === 1) {
  const asked = [];
  let list;
  const listed = new Promise((resolve) => (list = resolve));
  await tab.page.setRequestInterception(true);
  tab.page.on("request", async (request) => {
    if (request.url().includes("/api/sessions?")) await listed;
    const isStream = request.url().includes(`/sessions/${id}/events`);
    if (isStream) asked.push(request);
    await (isStream && isPlayed(asked.length) ? request.respond(response) : request.continue());
  });
  return { asked, list };
}
