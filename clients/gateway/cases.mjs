// What is tried with one client, and what must come of it.
import assert from "node:assert/strict";
import { SCALE } from "./faults.mjs";
import { end, passing } from "./scene.mjs";

const GREETING = "Hello from the scripted provider";
// An hour takes half a minute.
const FAST = 120;
// Takes eight seconds: within them a slow machine, too, kills a client or the gateway.
const HOLD_S = 8 * SCALE;

/** Behind the gateway a fault costs the client nothing but time: one request, one answer. */
export function served(client, fault) {
  const body = async (scene) => {
    await scene.provide(fault.script);
    await scene.stand();
    checkAnswer(await scene.ask(client));
    const asked = await scene.asked();
    assert.equal(asked.length, fault.fails + 1, `requests to the provider: ${asked.map(({ status }) => status)}`);
    fault.check?.(asked, scene);
    await checkSent(scene, client.known);
  };
  return { name: `${client.name}: ${fault.name}`, body };
}

/** However long it lasts, the client is served; it may have been sent back and have come again. */
export function held(client, { minutes, script }) {
  const body = async (scene) => {
    await scene.provide(script);
    await scene.stand();
    checkAnswer(await scene.ask(client, (minutes + 10) * 60_000));
    const asked = await scene.asked();
    await scene.until(() => scene.finished().at(-1)?.outcome === "answered");
    const ended = scene.finished().map(({ outcome }) => outcome);
    assert.match(ended.join(" "), /^(sent_back )*answered$/, "it never lost patience");
    return `requests to the gateway: ${ended.length} (${ended.join(" ")}), to the provider: ${asked.length}`;
  };
  return { name: `${client.name}: an outage of ${minutes} minutes`, body };
}

/** A hold that is longer than the client can bear ends, the client comes back by itself, and its wait goes on. */
export function comesBack(client) {
  const body = async (scene) => {
    await scene.provide("outage:5400");
    await scene.stand();
    checkAnswer(await scene.ask(client));
    await scene.until(() => scene.finished().length > 1);
    const sent = scene.finished().map(({ outcome }) => outcome);
    assert.deepEqual(sent, ["sent_back", "answered"]);
    const [taken] = scene.events("resumed");
    const [back] = scene.finished();
    assert.equal(taken?.attempts, back.attempts, "the attempts before it came back count");
  };
  return { name: `${client.name}: comes back to a hold`, body, scale: FAST };
}

/** When the gateway is killed and starts again, its client comes back by itself, and its wait goes on. */
export function outlives(client) {
  const body = async (scene) => {
    await scene.provide(`rate-limited:retry-after=${HOLD_S}`);
    await scene.stand();
    const answer = scene.ask(client);
    assert.ok(await scene.until(() => scene.events("waiting").length > 0), "it is held");
    assert.ok(await scene.until(() => scene.hasWritten(1)), "the hold is written");
    await scene.restart();
    checkAnswer(await answer);
    await scene.until(() => scene.events("resumed").length > 0);
    assert.equal(scene.events("resumed")[0]?.attempts, 1, "its wait goes on");
    const asked = await scene.asked();
    assert.equal(asked.length, 2, `requests to the provider: ${asked.map(({ status }) => status)}`);
  };
  return { name: `${client.name}: outlives a restart of the gateway`, body };
}

/** Nothing is asked for a client that is gone. */
export function killed(client) {
  const body = async (scene) => {
    await scene.provide(`rate-limited:retry-after=${HOLD_S}`);
    await scene.stand();
    const running = scene.begin(client);
    assert.ok(await scene.until(async () => (await scene.asked()).length === 1), "it asks");
    end(running.child);
    await running.ended;
    assert.ok(await scene.until(() => scene.finished().length === 1), "the gateway notices that it is gone");
    assert.equal(scene.finished()[0].outcome, "left");
    // Until after the time at which it would have been asked again.
    await passing((1.1 * HOLD_S * 1000) / SCALE);
    assert.equal((await scene.asked()).length, 1, "the provider was asked for nobody");
  };
  return { name: `${client.name}: killed while it is held`, body };
}

/** `outlast gateway run -- …` brings the gateway along. */
export function started(client) {
  const body = async (scene) => {
    await scene.provide("error:429+error:503+error:529");
    checkAnswer(await scene.launch(client));
    assert.deepEqual((await scene.asked()).map(({ status }) => status), [429, 503, 529, 200]);
    await checkSent(scene, client.knownAlone ?? client.known);
  };
  return { name: `${client.name.split(",")[0]}: started by the gateway`, body };
}

/** What the client does by itself. */
export function directly(client, fault) {
  const body = async (scene) => {
    await scene.provide(fault.script);
    const answer = await scene.ask(client);
    return `${answer?.includes(GREETING) ? "served" : "GAVE UP"}, asked ${(await scene.asked()).length} times`;
  };
  return { name: `${client.name}: ${fault.name}`, body };
}

function checkAnswer(answer) {
  assert.ok(answer !== undefined, "the client was not served");
  assert.equal(answer.split(GREETING).length - 1, 1, `it was answered once: ${answer}`);
}

/** The client did not send anything twice, and the gateway knew it. */
async function checkSent(scene, known) {
  await scene.until(() => scene.finished().length > 0);
  const sent = scene.finished().map(({ client, outcome }) => `${client} ${outcome}`).join(", ");
  assert.equal(sent, `${known} answered`, `requests to the gateway: ${sent}`);
}
