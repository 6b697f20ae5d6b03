// The yellow bubble: a wait that is seen, counts down, is ended by hand, and goes on whatever happens to page and server.
import assert from "node:assert/strict";
import { ROUTES } from "./routes.mjs";
import { FIRST_WAIT_S, LONG_WAITS, longWaits, passing, until } from "./stage.mjs";
import { secondsIn } from "./tab.mjs";

const GREETING = "Hello from the scripted provider";
// How far a countdown may be from the wake time that the server tells.
const LEEWAY_S = 2;
const LONG = "rate-limited:retry-after=3000";

export const cases = [
  ["a wait is seen before it ends, counts down, and is gone with the answer", counted],
  ["retry now ends the wait", hurried],
  ["retry now tries at once, whatever time the provider has stated", impatient],
  ["a turn that is given up ends with its error", exhausted],
  ["cancel ends the wait with the error", cancelled],
  ["a reload in the middle of a wait shows what is left of it", reloaded],
  ["a server that is killed in the middle of a wait goes on with it", killed],
  ["what comes while the page is reloaded is shown once", dripped],
  ["what is said while a turn waits is shown as queued", queued],
];

/** A session in the page. */
async function begun({ stage, open }, settings, how) {
  await stage.open(how);
  const session = await stage.begin(settings);
  const tab = await open();
  await tab.goto(ROUTES.session(session));
  return { session, tab };
}

/** A session in the page, in which something was just said. */
async function said(scene, settings, how) {
  const { session, tab } = await begun(scene, settings, how);
  await tab.send("say hello");
  return { session, tab };
}

async function counted(scene) {
  const { tab } = await begun(scene, { model: "rate-limited:retry-after=9" });
  // The page itself notes what it shows: on a slow machine the wait may be over before anybody else has looked.
  await tab.page.evaluate(noteWaits);
  await tab.send("say hello");
  await tab.see("message-assistant", { text: GREETING });
  await tab.gone("retry-bubble");
  assert.equal(await tab.seen("error-bubble"), 0, "nothing failed");
  assert.equal((await scene.stage.asked()).length, 2, "the provider was asked again once");
  const { bubbles, countdowns } = await tab.page.evaluate(() => globalThis.notedWaits);
  assert.match(bubbles.join(), /429/, "the code was shown");
  const seconds = countdowns.map(secondsIn).filter((number) => number !== undefined);
  assert.ok(seconds[0] > 0, `it was seen before the wait ended: ${countdowns}`);
  assert.ok(seconds.at(-1) < seconds[0], `it counted down: ${countdowns}`);
}

/** Runs in the page: notes every text of the bubble and of its countdown that can be seen. */
function noteWaits() {
  const noted = (globalThis.notedWaits = { bubbles: [], countdowns: [] });
  const note = (texts, id) => {
    const node = document.querySelector(`[data-testid="${id}"]`);
    const text = node?.checkVisibility() ? node.innerText : "";
    if (text && texts.at(-1) !== text) texts.push(text);
  };
  const look = () => {
    note(noted.bubbles, "retry-bubble");
    note(noted.countdowns, "retry-countdown");
  };
  const everything = { subtree: true, childList: true, characterData: true, attributes: true };
  new MutationObserver(look).observe(document.body, everything);
}

async function hurried(scene) {
  const { tab } = await said(scene, { model: "overloaded:2" }, { retry: LONG_WAITS });
  await retryTwice(tab);
  await tab.see("message-assistant", { text: GREETING });
  await tab.gone("retry-bubble");
}

/** Ends two waits by hand, each once it is seen. */
async function retryTwice(tab) {
  await tab.see("retry-bubble");
  await tab.click("retry-now");
  const long = await until(async () => (await tab.seen("retry-countdown")) && (await tab.countdown()) > FIRST_WAIT_S);
  assert.ok(long, "the second wait is seen");
  await tab.click("retry-now");
}

async function impatient(scene) {
  const { tab } = await said(scene, { model: LONG });
  await tab.see("retry-bubble");
  await tab.click("retry-now");
  const asked = await until(async () => (await scene.stage.asked()).length === 2);
  assert.ok(asked, `the provider is asked again: ${await tab.describe("retry-bubble")}`);
}

async function exhausted(scene) {
  const { session, tab } = await said(scene, { model: "overloaded:9" }, { retry: longWaits("standard") });
  await retryTwice(tab);
  const bubble = await tab.see("error-bubble");
  assert.match(await bubble.evaluate((node) => node.innerText), /overloaded/i, "it says what was wrong");
  await tab.gone("retry-bubble");
  await tab.shot("error");
  assert.equal((await scene.stage.asked()).length, 3, "so often does the policy try");
  const { retry } = await scene.stage.get(`/api/sessions/${session}`);
  assert.ok(!retry, "nothing waits any more");
  await tab.page.reload();
  await tab.see("error-bubble");
}

async function cancelled(scene) {
  const { session, tab } = await said(scene, { model: "overloaded:9" }, { retry: LONG_WAITS });
  await tab.see("retry-bubble");
  await tab.click("retry-cancel");
  await tab.see("error-bubble", { text: /overloaded/i });
  await tab.gone("retry-bubble");
  const { retry } = await scene.stage.get(`/api/sessions/${session}`);
  assert.ok(!retry, "nothing waits any more");
  assert.equal((await scene.stage.asked()).length, 1, "nothing was asked again");
}

async function reloaded(scene) {
  const { session, tab } = await said(scene, { model: LONG });
  await tab.see("retry-bubble");
  const { retry } = await scene.stage.get(`/api/sessions/${session}`);
  assert.ok(retry, "the server says that it waits");
  const text = await tab.text("retry-bubble");
  assert.ok(text.includes("429"), `the code is shown: ${text}`);
  assert.ok(text.includes(retry.message), `the message is shown: ${text}`);
  await tab.shot("bubble");
  const first = await tab.countdown();
  // A countdown that begins anew would be further away than the leeway.
  await until(async () => (await tab.countdown()) < first - LEEWAY_S);
  await tab.page.reload();
  await tab.see("retry-bubble");
  await checkRemaining(scene.stage, session, tab);
  assert.equal(await tab.seen("message-user"), 1, "what was said is there once");
  await tab.click("retry-cancel");
  await tab.see("error-bubble");
}

async function killed(scene) {
  const { stage } = scene;
  const { session, tab } = await said(scene, { model: "ok+overloaded:1" }, { retry: LONG_WAITS });
  await tab.see("message-assistant", { text: GREETING });
  await until(async () => !(await stage.get(`/api/sessions/${session}`)).turn);
  await tab.send("say it again");
  await tab.see("retry-bubble");
  const before = wakeTime(await stage.get(`/api/sessions/${session}`));
  assert.ok(before, "the server tells when the wait ends");
  await stage.kill();
  const lost = await until(() => tab.connection());
  assert.ok(lost, "the page says that the server is away");
  await stage.serve();
  // It comes back by itself: nobody touches the page.
  const back = await until(async () => (await tab.seen("retry-bubble")) && (await isRemaining(stage, session, tab)));
  assert.ok(back, "the page comes back to the wait");
  const after = wakeTime(await stage.get(`/api/sessions/${session}`));
  assert.equal(after, before, "the wait ends when it would have ended");
  assert.equal((await stage.asked()).length, 2, "nothing was asked again");
  await tab.click("retry-now");
  const again = await until(async () => (await stage.asked()).length > 2);
  assert.ok(again, "the provider is asked again");
  const answered = await until(async () => (await tab.seen("message-assistant")) === 2);
  assert.ok(answered, `it is answered: ${await tab.describe("message-assistant")}`);
  await tab.gone("retry-bubble");
  await once(tab, 2);
  // While the server was away, its requests had to fail.
  tab.forgive();
}

async function dripped(scene) {
  const { tab } = await said(scene, { model: "drip:400" });
  await tab.see("message-assistant", { text: /Hello/ });
  await tab.page.reload();
  await tab.see("message-assistant", { text: GREETING });
  await once(tab, 1);
}

async function queued(scene) {
  const { tab } = await said(scene, { model: "overloaded:1" }, { retry: LONG_WAITS });
  await tab.see("retry-bubble");
  await tab.send("and then goodbye");
  await tab.see("queue", { text: /goodbye/ });
  await tab.click("retry-now");
  // It goes along with the next call.
  await tab.see("message-assistant", { text: /You said: and then goodbye/ });
  await tab.gone("queue");
  assert.deepEqual(await tab.texts("message-user"), ["say hello", "and then goodbye"]);
  assert.equal(await tab.seen("message-assistant"), 1, "both are answered at once");
}

/** So many questions and answers are seen, each once. */
async function once(tab, turns) {
  // What is doubled may come late.
  await passing(500);
  assert.equal(await tab.seen("message-user"), turns, `questions: ${await tab.describe("message-user")}`);
  const answers = await tab.texts("message-assistant");
  assert.equal(answers.length, turns, `answers: ${JSON.stringify(answers)}`);
  for (const answer of answers) assert.equal(answer.split("Hello").length - 1, 1, `it is said once: ${answer}`);
}

async function checkRemaining(stage, session, tab) {
  const right = await until(() => isRemaining(stage, session, tab));
  assert.ok(right, `the countdown says ${await tab.countdown()} s, the server ${JSON.stringify(await stage.get(`/api/sessions/${session}`))}`);
}

/** Whether the countdown says what the server says, asked before and after: it may take a while to look. */
async function isRemaining(stage, session, tab) {
  const left = async () => {
    const state = await stage.get(`/api/sessions/${session}`);
    return (Date.parse(wakeTime(state)) - Date.parse(state.now)) / 1000;
  };
  const before = await left();
  const shown = await tab.countdown();
  return shown <= before + LEEWAY_S && shown >= (await left()) - LEEWAY_S;
}

function wakeTime({ retry }) {
  return retry?.wake_at;
}
