// Failures of the provider: what a client hears of them, and what it can do about them.
import assert from "node:assert/strict";
import { LONG_WAIT_MS } from "../agent.mjs";
import { has } from "../frames.mjs";
import { GREETING } from "./prompts.mjs";

// The waits of a policy that end by themselves take a fraction of a second.
const SCALE = 20;
// How much of an hour-long wait may be over when a case reads its end.
const SPENT_MS = 600_000;

export const cases = [
  ["a retry that succeeds is one run with one end", async (start) => {
    const agent = await start({ model: "overloaded:1", scale: SCALE });
    const events = await agent.client.promptAndWait("Say hello");
    await agent.frame({ type: "agent_settled", aborted: false });
    assert.ok(events.some(({ type }) => type === "auto_retry_end"), "the client came back too early");
    const [began, ...more] = agent.all({ type: "auto_retry_start" });
    assert.deepEqual([began.attempt, began.maxAttempts, began.delayMs, more.length], [1, 3, 2000, 0]);
    assert.deepEqual(ends(agent), [{ success: true, attempt: 1, finalError: undefined }]);
    assert.deepEqual(agent.answers(), [GREETING + "Say hello"]);
    assert.deepEqual(agent.failures().map(({ errorMessage }) => errorMessage), [began.errorMessage]);
    const stay = await agent.client.getMessages();
    assert.deepEqual(stay.map(({ role, stopReason }) => stopReason ?? role), ["user", "stop"], "what the model sees");
  }],

  ["retries that are spent end with the error", async (start) => {
    const agent = await start({ model: "overloaded:9", scale: SCALE });
    const events = await agent.client.promptAndWait("Say hello");
    await agent.frame({ type: "agent_settled", aborted: false });
    assert.ok(events.some(({ type }) => type === "auto_retry_end"), "the client came back too early");
    const began = agent.all({ type: "auto_retry_start" });
    assert.deepEqual(began.map(({ attempt }) => attempt), [1, 2, 3]);
    assert.deepEqual(began.map(({ maxAttempts }) => maxAttempts), [3, 3, 3]);
    assert.deepEqual(began.map(({ delayMs }) => delayMs), [2000, 4000, 8000]);
    const [end, ...more] = ends(agent);
    assert.deepEqual([end.success, end.attempt, more.length], [false, 3, 0]);
    assert.equal(typeof end.finalError, "string");
    assert.equal(agent.failures().length, 4);
    const last = agent.all({ type: "agent_end" })[0].messages.at(-1);
    assert.deepEqual([last.role, last.stopReason], ["assistant", "error"]);
    assert.ok(last.errorMessage, "the last message says no error");
  }],

  ["a failure that is not retried is said once", async (start) => {
    const agent = await start({ model: "error:403,times=always" });
    await agent.client.promptAndWait("Say hello");
    await agent.frame({ type: "agent_settled", aborted: false });
    assert.deepEqual(agent.all({ type: "auto_retry_start" }), []);
    assert.equal(agent.failures().length, 1);
  }],

  ["an answer that breaks off is begun anew", async (start) => {
    const agent = await start({ model: "drop-after:5", scale: SCALE });
    await agent.client.promptAndWait("Say hello");
    await agent.frame({ type: "agent_settled", aborted: false });
    assert.equal(agent.failures().length, 1);
    assert.deepEqual(agent.answers(), [GREETING + "Say hello"]);
  }],

  ["abort ends a wait at once", async (start) => {
    const agent = await start({ model: "overloaded:9", longWaits: true });
    await agent.client.prompt("Say hello");
    await agent.frame({ type: "auto_retry_start" });
    await Promise.all([agent.client.abort(), agent.frame({ type: "agent_settled", aborted: true })]);
    assert.deepEqual(ends(agent), [{ success: false, attempt: 1, finalError: "Retry cancelled" }]);
    assert.equal(agent.failures().length, 1, "the failed attempt, and nothing more");
    assert.equal((await agent.client.getState()).isStreaming, false);
  }],

  ["abort_retry gives up at once, with the error", async (start) => {
    const agent = await start({ model: "overloaded:1", longWaits: true });
    await agent.client.prompt("Say hello");
    await agent.frame({ type: "auto_retry_start" });
    await Promise.all([agent.client.abortRetry(), agent.frame({ type: "agent_settled", aborted: false })]);
    assert.deepEqual(ends(agent), [{ success: false, attempt: 1, finalError: "Retry cancelled" }]);
    const last = agent.all({ type: "agent_end" })[0].messages.at(-1);
    assert.deepEqual([last.role, last.stopReason], ["assistant", "error"]);
    await agent.client.promptAndWait("And now?");
    assert.match(agent.answers().at(-1), /And now\?/);
  }],

  ["a prompt can follow an abort at once", async (start) => {
    for (const giveUp of ["abort", "abortRetry"]) {
      const agent = await start({ model: "overloaded:1", longWaits: true });
      await agent.client.prompt("Say hello");
      await agent.frame({ type: "auto_retry_start" });
      await agent.client[giveUp]();
      await agent.client.promptAndWait("And now?");
      assert.match(agent.answers().at(-1), /And now\?/);
    }
  }],

  ["set_auto_retry off: one error and no retry", async (start) => {
    const agent = await start({ model: "overloaded:1", scale: SCALE });
    await agent.client.setAutoRetry(false);
    assert.equal((await agent.client.getState()).retry.enabled, false);
    await agent.client.promptAndWait("Say hello");
    await agent.frame({ type: "agent_settled", aborted: false });
    assert.deepEqual(agent.all({ type: "auto_retry_start" }), []);
    assert.equal(agent.failures().length, 1);
    await agent.client.setAutoRetry(true);
    assert.equal((await agent.client.getState()).retry.enabled, true);
    await agent.client.promptAndWait("Say hello");
    assert.deepEqual(agent.answers(), [GREETING + "Say hello"]);
  }],

  ["get_state says what is waited for", async (start) => {
    const agent = await start({ model: "overloaded:9", longWaits: true });
    await agent.client.prompt("Say hello");
    await agent.frame({ type: "auto_retry_start" });
    const { isStreaming, isRunning, retry } = await agent.client.getState();
    // As pi has it: nothing is streamed now. That more will come is said beside it.
    assert.deepEqual([isStreaming, isRunning], [false, true]);
    has(retry, { enabled: "boolean", attempt: "number", maxAttempts: "number", cause: "string", wakeAt: "any" }, "retry");
    assert.deepEqual([retry.enabled, retry.attempt, retry.maxAttempts], [true, 1, 3]);
    const left = new Date(retry.wakeAt) - Date.now();
    assert.ok(left > LONG_WAIT_MS - SPENT_MS && left <= LONG_WAIT_MS, `it wakes in ${left} ms`);
    await agent.client.abort();
  }],

  ["a client that stops or goes away during a wait ends the process", async (start) => {
    // The first one is ended by SIGTERM, when the case is over.
    for (const isStopped of [true, false]) {
      const agent = await start({ model: "overloaded:9", longWaits: true });
      await agent.client.prompt("Say hello");
      await agent.frame({ type: "auto_retry_start" });
      if (isStopped) continue;
      assert.deepEqual(await agent.hangUp(), { code: 0, signal: null });
    }
  }],

  ["a second run counts its retries anew", async (start) => {
    const agent = await start({ model: "overloaded:5", scale: SCALE });
    await agent.client.promptAndWait("one");
    await agent.client.promptAndWait("two");
    await agent.client.getState();
    const attempts = agent.all({ type: "auto_retry_start" }).map(({ attempt }) => attempt);
    assert.deepEqual(attempts, [1, 2, 3, 1]);
    assert.deepEqual(ends(agent).map(({ success }) => success), [false, true]);
  }],
];

function ends(agent) {
  const found = agent.all({ type: "auto_retry_end" });
  return found.map(({ success, attempt, finalError }) => ({ success, attempt, finalError }));
}
