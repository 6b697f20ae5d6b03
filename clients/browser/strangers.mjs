// What a page of another site can do to the server: nothing.
//
// The strangers are a port of the same host, which the browser calls the same site, and another name of this machine.
import assert from "node:assert/strict";
import { createServer, request } from "node:http";

const HOSTS = ["127.0.0.1", "localhost"];
const SETTLE_MS = 1500;

export const cases = [
  ...HOSTS.map((host) => [`a page of another origin reads nothing and starts nothing (${host})`, (scene) => tried(scene, host)]),
  ["a name that is not this machine's is not answered", named],
  ["the page says what it may load", secured],
];

async function tried({ stage, open }, host) {
  await stage.open();
  const session = await stage.begin();
  const before = await standing(stage, session);
  const server = createServer((_, response) => response.setHeader("content-type", "text/html").end("<!doctype html><title>elsewhere</title>"));
  const port = await new Promise((resolve) => server.listen(0, "127.0.0.1", () => resolve(server.address().port)));
  try {
    const tab = await open({ origin: `http://${host}:${port}` });
    const answers = statuses(tab.page, stage.origin);
    await tab.goto("/");
    const got = await tab.page.evaluate(attack, stage.origin, session, SETTLE_MS);
    for (const [what, outcome] of Object.entries(got)) assert.equal(outcome, "nothing", `${what}: ${outcome}`);
    const frame = tab.page.frames().find((frame) => frame.name() === "embedded");
    const shown = await frame.evaluate(() => document.querySelectorAll("[data-testid]").length);
    assert.equal(shown, 0, "the page cannot be embedded");
    // The page itself is no secret, but it must not show in a frame.
    const passed = answers.filter(({ path, status }) => status < 400 && path !== "/");
    assert.deepEqual(passed, [], "what strangers ask is refused");
    assert.ok(answers.length > 5, `they did ask: ${JSON.stringify(answers)}`);
    assert.deepEqual(await standing(stage, session), before, "nothing was begun or said");
    assert.deepEqual(await stage.asked(), [], "the provider was not asked");
    // That it was refused is in its console.
    tab.forgive();
  } finally {
    server.close();
  }
}

/** What the server answered to requests of the page, however little of it the page may see. */
function statuses(page, origin) {
  const answers = [];
  page.on("response", (response) => {
    const { origin: from, pathname } = new URL(response.url());
    if (from === origin) answers.push({ path: pathname, method: response.request().method(), status: response.status() });
  });
  return answers;
}

async function standing(stage, session) {
  const sessions = await stage.sessions();
  const { events } = await stage.get(`/api/sessions/${session}/snapshot?dialect=turn`);
  return { sessions: sessions.map(({ id }) => id), events };
}

/** Runs in the stranger's page: tries everything, and says what came of it. */
async function attack(server, session, settleMs) {
  const result = {};
  const read = async (name, path, options) => {
    try {
      const response = await fetch(server + path, options);
      const text = response.type === "opaque" ? "" : await response.text();
      result[name] = text === "" ? "nothing" : `read ${response.status} ${text.slice(0, 80)}`;
    } catch {
      result[name] = "nothing";
    }
  };
  const sessions = "/api/sessions";
  const prompt = `/api/sessions/${session}/prompt`;
  const text = JSON.stringify({ text: "a stranger's words" });
  const json = { "content-type": "application/json" };
  const plain = { "content-type": "text/plain" };
  await read("GET", sessions);
  await read("GET with credentials", sessions, { credentials: "include" });
  await read("GET without CORS", sessions, { mode: "no-cors" });
  await read("GET a snapshot", `/api/sessions/${session}/snapshot`);
  await read("GET the page", "/");
  for (const [name, path] of [["a session", sessions], ["a prompt", prompt]]) {
    await read(`POST ${name}`, path, { method: "POST", headers: json, body: text });
    await read(`POST ${name} as text`, path, { method: "POST", headers: plain, body: text });
    await read(`POST ${name} without CORS`, path, { method: "POST", mode: "no-cors", headers: plain, body: text });
    await read(`POST ${name} without a type`, path, { method: "POST", mode: "no-cors", body: new Blob([text]) });
  }
  const settled = (name, begin) =>
    new Promise((resolve) => {
      begin((what) => resolve((result[name] = what)));
      setTimeout(() => resolve((result[name] ??= "nothing")), settleMs);
    });
  const events = settled("EventSource", (say) => {
    const source = new EventSource(`${server}/api/sessions/${session}/events?dialect=turn`);
    source.onopen = () => say("it opened");
    source.onmessage = ({ data }) => say(`read ${data}`);
    source.addEventListener("snapshot", ({ data }) => say(`read ${data}`));
  });
  const socket = settled("WebSocket", (say) => {
    const socket = new WebSocket(`${server.replace("http", "ws")}/api/ws`);
    socket.onopen = () => say("it opened");
    socket.onmessage = ({ data }) => say(`read ${data}`);
  });
  const form = (name, path, type) =>
    settled(name, () => {
      const frame = Object.assign(document.createElement("iframe"), { name: `target ${name}` });
      const form = Object.assign(document.createElement("form"), { method: "POST", action: server + path, enctype: type, target: frame.name });
      // As text, this is an object with one more name in it.
      const [key, value] = type === "text/plain" ? ['{"text":"a stranger\'s words","x":"', '"}'] : ["text", "a stranger's words"];
      form.append(Object.assign(document.createElement("input"), { name: key, value }));
      document.body.append(frame, form);
      form.submit();
    });
  const forms = ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data"].flatMap((type) => [
    form(`form for a session as ${type}`, sessions, type),
    form(`form for a prompt as ${type}`, prompt, type),
  ]);
  const embedded = settled("embedding", () => {
    const frame = Object.assign(document.createElement("iframe"), { name: "embedded", src: `${server}/` });
    document.body.append(frame);
  });
  const script = settled("script", (say) => {
    const script = Object.assign(document.createElement("script"), { src: `${server}/api/sessions` });
    script.onload = () => say("it was loaded");
    document.body.append(script);
  });
  await Promise.all([events, socket, embedded, script, ...forms]);
  return result;
}

/** A name that somebody has pointed at this machine. */
async function named({ stage }) {
  await stage.open();
  for (const host of ["stranger.example", `stranger.example:${new URL(stage.origin).port}`]) {
    for (const path of ["/", "/api/sessions", "/healthz"]) {
      const status = await ask(stage.origin + path, { host });
      assert.ok(status >= 400 && status < 500, `${path} for ${host} is answered ${status}`);
    }
  }
  assert.equal(await ask(`${stage.origin}/api/sessions`, {}), 200, "for its own name it is answered");
}

function ask(url, headers) {
  return new Promise((resolve, reject) => {
    request(url, { headers }, (response) => resolve(response.resume().statusCode))
      .on("error", reject)
      .end();
  });
}

async function secured({ stage }) {
  await stage.open();
  const { headers } = await fetch(`${stage.origin}/`);
  const policy = headers.get("content-security-policy") ?? "";
  const rules = Object.fromEntries(policy.split(";").map((rule) => rule.trim().split(/\s+(.*)/s)));
  assert.match(rules["default-src"] ?? "", /^'(none|self)'$/, `nothing is loaded from elsewhere: ${policy}`);
  assert.equal(rules["frame-ancestors"], "'none'", `it cannot be embedded: ${policy}`);
  assert.ok(rules["base-uri"] && rules["form-action"], `no base and no form leads elsewhere: ${policy}`);
  assert.doesNotMatch(policy, /unsafe|\*|https?:|wss?:/, "nothing is loosened");
  assert.equal(headers.get("x-content-type-options"), "nosniff");
  assert.match(headers.get("referrer-policy") ?? "", /no-referrer|same-origin/);
}
