// Every view of the page with something in it: what it shows is what there is, and everybody can use it.
import assert from "node:assert/strict";
import { inspect } from "./access.mjs";
import { ROUTES } from "./routes.mjs";
import { until } from "./stage.mjs";
import { secondsIn } from "./tab.mjs";

// Long enough for a look in every dress, however slow the machine is.
const LONG = "rate-limited:retry-after=3000";

export const cases = [
  view("sessions", sessions),
  view("session", session),
  view("session-waiting", waiting),
  view("session-failed", failed),
  view("gateway", gateway),
  view("run", run),
  view("runs", runs),
  view("policies", policies),
  view("providers", providers),
  view("token", token),
  view("gateway-page", gatewayPage),
  ["a token in the address opens the page", addressed],
  ["retry now ends the wait of a run", hurriedRun],
];

function view(name, show) {
  const body = async (scene) => {
    const tab = await show(scene);
    await inspect(tab, name, scene.need);
  };
  return [`the view ${name}`, body];
}

async function show({ open }, path) {
  const tab = await open();
  await tab.goto(path);
  await tab.see("app-nav");
  return tab;
}

async function sessions(scene) {
  const { stage } = scene;
  await stage.open();
  const answered = await stage.begin({ title: "An answered question" });
  await stage.say(answered, "say hello");
  const held = await stage.begin({ title: "A question that waits", model: LONG });
  await stage.say(held, "say hello");
  await stage.begin({ title: "<b>not bold</b> & nothing said" });
  await until(async () => (await stage.get(`/api/sessions/${held}`)).retry);
  const tab = await show(scene, ROUTES.sessions);
  await tab.see("session-list");
  await tab.see("session-row", { text: /A question that waits/ });
  await tab.see("session-row", { text: /<b>not bold<\/b>/ });
  assert.equal(await tab.seen("session-row"), (await stage.sessions()).length, "all of them are listed");
  await tab.click("session-row", { text: /An answered question/ });
  await tab.see("message-assistant", { text: /Hello/ });
  await tab.goto(ROUTES.sessions);
  await tab.see("session-row");
  return tab;
}

/** With a tool that was called, and text that looks like markup. */
async function session(scene) {
  const { stage } = scene;
  await stage.open();
  const id = await stage.begin({ model: "ok:agent,times=always" });
  const path = JSON.stringify({ path: "pipeline.yaml" });
  await stage.say(id, `call read ${path}\nsay <img src=x onerror=alert(1)> **read** \`it\``);
  const tab = await show(scene, ROUTES.session(id));
  await tab.see("transcript");
  await tab.see("message-user", { text: /call read/ });
  await tab.see("tool-call", { text: /read/ });
  await tab.see("message-assistant", { text: /<img src=x onerror=alert\(1\)>/ });
  return tab;
}

async function waiting(scene) {
  await scene.stage.open();
  const id = await scene.stage.begin({ model: LONG });
  await scene.stage.say(id, "say hello");
  const tab = await show(scene, ROUTES.session(id));
  await tab.see("retry-bubble", { text: /429/ });
  return tab;
}

async function failed(scene) {
  await scene.stage.open();
  const id = await scene.stage.begin({ model: "error:401,times=always" });
  await scene.stage.say(id, "say hello");
  const tab = await show(scene, ROUTES.session(id));
  await tab.see("error-bubble", { text: /401|key|auth/i });
  return tab;
}

async function gateway(scene) {
  const { stage } = scene;
  await stage.open();
  const port = await stage.hold(LONG);
  const tab = await show(scene, ROUTES.gateway);
  const row = await tab.see("waiting-row");
  const text = await row.evaluate((node) => node.innerText);
  assert.ok(secondsIn(text) > 200, `it says how long it waits: ${text}`);
  await tab.see("traffic-timeline");
  const attempts = async () => {
    const { requests } = await stage.get(`/api/gateways/${port}/traffic`);
    return requests[0].attempts.length ?? requests[0].attempts;
  };
  const before = await attempts();
  await tab.click("waiting-retry");
  assert.ok(await until(async () => (await attempts()) > before), `retry now asks again: ${before} attempts`);
  await tab.see("waiting-row");
  return tab;
}

/** The page that a gateway shows of itself. */
async function gatewayPage({ stage, open }) {
  await stage.open();
  await stage.hold(LONG);
  const { printed } = await stage.command("gateway", "page");
  const address = new URL(printed.match(/http:\S+/)[0]);
  const tab = await open({ origin: address.origin });
  await tab.goto(address.pathname + address.hash);
  await tab.see("waiting-row");
  await tab.see("traffic-timeline");
  return tab;
}

const STEPS = [
  { id: "gather", command: "echo gathered" },
  { id: "draft", needs: ["gather"], command: "echo drafted" },
  { id: "ask", needs: ["gather"], prompt: "say hello", model: LONG, retry: { policy: "overnight" } },
  { id: "publish", needs: ["draft", "ask"], command: "echo published" },
];

/** A run of another process, one step of which waits. */
async function run(scene) {
  const { stage } = scene;
  await stage.open();
  stage.pipeline(STEPS);
  const found = await until(async () => (await stage.get("/api/runs")).runs[0]);
  assert.ok(found, "the run is known to the server");
  // Until the step has been refused.
  await until(async () => (await stage.asked()).length > 0);
  const tab = await show(scene, ROUTES.run(found.id));
  // It is drawn when the run has been read.
  await tab.see("run-graph", { text: new RegExp(STEPS.at(-1).id) });
  const graph = await tab.text("run-graph");
  for (const { id } of STEPS) assert.ok(graph.includes(id), `the graph shows ${id}: ${graph}`);
  await tab.see("run-timeline");
  await until(async () => /wait|retry/i.test(await tab.page.evaluate(() => document.body.innerText)));
  assert.match(await tab.page.evaluate(() => document.body.innerText), /wait|retry/i, "it says that a step waits");
  return tab;
}

async function hurriedRun(scene) {
  const { stage } = scene;
  await stage.open();
  stage.pipeline([{ id: "ask", prompt: "say hello", model: "overloaded:2", retry: { policy: "patient", base_delay: "1h", max_delay: "2h" } }]);
  const found = await until(async () => (await stage.get("/api/runs")).runs[0]);
  const tab = await show(scene, ROUTES.run(found.id));
  const waiting = async () => (await stage.get(`/api/runs/${found.id}`)).run.steps[0].waiting;
  for (const tries of [2, 3]) {
    assert.ok(await until(async () => (await waiting())?.attempt === tries), `try ${tries} is waited for`);
    await tab.click("run-retry");
    assert.ok(await until(async () => (await stage.asked()).length === tries), `try ${tries} is made at once`);
  }
  await tab.see("run-graph", { text: /completed/ });
}

async function runs(scene) {
  const { stage } = scene;
  await stage.open();
  for (const [name, command] of [["good", "true"], ["bad", "exit 1"]]) {
    const child = stage.pipeline([{ id: "only", command }], name);
    await new Promise((resolve) => child.on("close", resolve));
  }
  const tab = await show(scene, ROUTES.runs);
  for (const name of [/good/, /bad/]) await tab.see("run-row", { text: name });
  return tab;
}

async function policies(scene) {
  const { stage } = scene;
  await stage.open();
  const tab = await show(scene, ROUTES.policies);
  await tab.see("policy-card", { text: /overnight/ });
  const names = (await stage.get("/api/policies")).policies.map(({ name }) => name);
  const cards = await tab.texts("policy-card");
  assert.equal(cards.length, names.length, "there is a card for each");
  for (const name of names) assert.ok(cards.some((card) => card.includes(name)), `${name} has a card`);
  return tab;
}

/** An account that is at its limit, and a provider that is known to fail. */
async function providers(scene) {
  const { stage } = scene;
  await stage.open();
  await stage.command("-p", "say hello", "--provider", "openai", "--model", "usage-limit:reset=3600", "--policy", "none");
  const tab = await show(scene, ROUTES.providers);
  await tab.see("account-row", { text: /spare/ });
  await tab.see("gate-row", { text: /usage-limit.*down.*stated reset in .*0 wait/s });
  return tab;
}

/** A server that wants its token asks for it. */
async function token(scene) {
  const { stage, open } = scene;
  await stage.open({ settings: "[serve]\nrequire_token = true" });
  const word = stage.readToken();
  const tab = await open();
  await tab.goto(ROUTES.sessions);
  const type = async (text) => {
    const dialog = await tab.see("token-dialog");
    const input = await dialog.$("input");
    await input.type(text);
    await tab.page.keyboard.press("Enter");
  };
  await type("wrong");
  await tab.see("token-dialog", { text: /not accepted/ });
  await inspect(tab, "token-dialog", scene.need);
  await type(word);
  await tab.gone("token-dialog");
  await tab.see("new-session");
  // Without the token it was refused, and the browser says so.
  tab.forgive();
  return tab;
}

async function addressed(scene) {
  const { stage, open } = scene;
  await stage.open({ settings: "[serve]\nrequire_token = true" });
  const tab = await open();
  await tab.goto(`/#token=${stage.readToken()}`);
  await tab.see("new-session");
  assert.equal(await tab.seen("token-dialog"), 0, "it does not ask");
  assert.ok(!tab.page.url().includes(stage.token), "it does not stay in the address");
}
