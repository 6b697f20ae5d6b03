// Prompts, what is said while one runs, and lines that are no commands.
import assert from "node:assert/strict";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { HANG_TIMEOUT_MS } from "../../lanes.mjs";
import { text } from "../agent.mjs";

export const GREETING = "Hello from the scripted provider: no network, no key, no cost. You said: ";

export const cases = [
  ["a prompt is answered", async (start) => {
    const agent = await start();
    const events = await agent.client.promptAndWait("Say hello");
    assert.equal(events.at(-1).type, agent.client.clearQueue ? "agent_settled" : "agent_end", "where the client stops");
    await agent.frame({ type: "agent_settled", aborted: false });
    assert.deepEqual(agent.answers(), [GREETING + "Say hello"]);
    const updates = agent.all({ type: "message_update", assistantMessageEvent: { type: "text_delta" } });
    const pieces = updates.map(({ assistantMessageEvent }) => assistantMessageEvent.delta);
    assert.equal(pieces.join(""), GREETING + "Say hello", "the pieces of the text");
    const [end] = agent.all({ type: "agent_end" });
    assert.deepEqual(end.messages.map(({ role }) => role), ["user", "assistant"]);
    assert.deepEqual(end.messages.map(text), ["Say hello", GREETING + "Say hello"]);
    const [answer] = agent.all({ type: "response", command: "prompt" });
    assert.equal(answer.data.disposition, "started");
    assert.equal(agent.client.getStderr(), "", "what it said beside the protocol");
  }],

  ["nothing is said after the end, and the end of the input ends the process", async (start) => {
    const agent = await start({ model: "overloaded:1", scale: 20 });
    await agent.client.promptAndWait("Say hello");
    assert.deepEqual(await agent.hangUp(), { code: 0, signal: null });
    assert.equal(agent.frames.at(-1).type, "agent_settled");
  }],

  ["a prompt can follow another at once", async (start) => {
    const agent = await start();
    for (let number = 1; number <= 20; number += 1) await agent.client.promptAndWait(`number ${number}`);
    await agent.client.getState();
    const answers = agent.all({ type: "response", command: "prompt" });
    assert.deepEqual(answers.map(({ data }) => data.disposition), Array(20).fill("started"));
    assert.equal(agent.all({ type: "agent_settled", aborted: false }).length, 20);
    assert.equal(agent.answers().at(-1), GREETING + "number 20");
  }],

  ["waitForIdle waits for the end", async (start) => {
    const agent = await start({ model: "overloaded:2", scale: 20 });
    const idle = agent.client.waitForIdle();
    await agent.client.prompt("Say hello");
    await idle;
    assert.deepEqual(agent.answers(), [GREETING + "Say hello"]);
  }],

  ["images arrive", async (start) => {
    const agent = await start({ model: "ok:image-seen" });
    const data = Buffer.from("not really a picture").toString("base64");
    await agent.client.promptAndWait("What is this?", [{ type: "image", data, mimeType: "image/png" }]);
    assert.deepEqual(agent.answers(), ["I see 1: image/png of 20 bytes."]);
  }],

  ["tools run", async (start) => {
    const agent = await start({ model: "ok:agent,times=always" });
    writeFileSync(join(agent.cwd, "note.txt"), "planted words\n");
    await agent.client.promptAndWait('call read {"path": "note.txt"}');
    await agent.frame({ type: "agent_settled" });
    const [began] = agent.all({ type: "tool_execution_start" });
    assert.deepEqual([began.toolName, began.args], ["read", { path: "note.txt" }]);
    const [ended] = agent.all({ type: "tool_execution_end" });
    assert.equal(ended.isError, false);
    assert.match(ended.result.content[0].text, /planted words/);
    const turns = agent.all({ type: "turn_end" });
    assert.deepEqual(turns.map(({ message }) => message.stopReason), ["toolUse", "stop"]);
    assert.deepEqual(turns.map(({ toolResults }) => toolResults.length), [1, 0]);
    const calls = turns[0].message.content.filter(({ type }) => type === "toolCall");
    assert.deepEqual(calls.map(({ name, arguments: args }) => [name, args]), [["read", { path: "note.txt" }]]);
  }],

  ["abort ends an answer in the middle", async (start) => {
    const agent = await start({ model: "stall:3" });
    await agent.client.prompt("Say hello");
    await agent.frame({ type: "message_update" });
    await agent.client.abort();
    await agent.frame({ type: "agent_settled", aborted: true });
    assert.deepEqual(agent.failures().map(({ stopReason }) => stopReason), ["aborted"]);
    assert.deepEqual(agent.answers(), []);
  }],

  ["an abort right behind a prompt ends it, and the client does not wait in vain", async (start) => {
    const agent = await start();
    for (let number = 1; number <= 10; number += 1) {
      const run = agent.client.promptAndWait("Say hello", undefined, HANG_TIMEOUT_MS);
      await Promise.all([run, agent.client.abort()]);
    }
  }],

  ["abort of nothing is answered", async (start) => {
    const agent = await start();
    for (const call of ["abort", "abortRetry", "abortBash"]) await agent.client[call]();
    assert.deepEqual(agent.frames.filter(({ type }) => type !== "response"), []);
  }],

  ["what is steered is said before the next call", async (start) => {
    const agent = await start({ model: "overloaded:1", longWaits: true });
    await agent.client.prompt("first");
    await agent.frame({ type: "auto_retry_start" });
    await agent.client.steer("rather second");
    await agent.frame({ type: "queue_update", steering: ["rather second"] });
    await agent.retryNow();
    await agent.frame({ type: "agent_settled" });
    assert.deepEqual(said(agent), ["first", "rather second"]);
    assert.match(agent.answers().join(), /rather second/);
    assert.deepEqual(agent.all({ type: "queue_update" }).at(-1).steering, []);
    const [answer] = agent.all({ type: "response", command: "steer" });
    assert.equal(answer.data.disposition, "queued");
  }],

  ["a follow-up is said when the turn is over, in the same run", async (start) => {
    const agent = await start({ model: "overloaded:1", longWaits: true });
    await agent.client.prompt("first");
    await agent.frame({ type: "auto_retry_start" });
    await agent.client.followUp("second");
    await agent.frame({ type: "queue_update", followUp: ["second"] });
    assert.equal((await agent.client.getState()).pendingMessageCount, 1);
    await agent.retryNow();
    await agent.frame({ type: "agent_settled" });
    assert.deepEqual(agent.answers(), [GREETING + "first", GREETING + "second"]);
    const [end] = agent.all({ type: "agent_end" });
    const roles = end.messages.filter((message) => message.stopReason !== "error").map(({ role }) => role);
    assert.deepEqual(roles, ["user", "assistant", "user", "assistant"]);
    const [answer] = agent.all({ type: "response", command: "follow_up" });
    assert.equal(answer.data.disposition, "queued");
  }],

  ["a prompt while another is answered says where it goes, or is refused", async (start) => {
    // The answer takes some seconds, and both prompts come while its first words do.
    const agent = await start({ model: "drip:3000", scale: 10 });
    agent.refused = ["prompt: "];
    await agent.client.prompt("first");
    await agent.frame({ type: "message_update" });
    const plain = await agent.client.send({ type: "prompt", message: "lost?" });
    assert.equal(plain.success, false);
    const queued = await agent.client.send({ type: "prompt", message: "second", streamingBehavior: "followUp" });
    assert.deepEqual([queued.success, queued.data?.disposition], [true, "queued"]);
    await agent.frame({ type: "agent_settled", aborted: false });
    assert.deepEqual(said(agent), ["first", "second"]);
  }],

  ["a prompt while another waits is said after it", async (start) => {
    for (const [failures, answers] of [[1, ["first", "second"]], [4, ["second"]]]) {
      const agent = await start({ model: `overloaded:${failures}`, longWaits: true });
      await agent.client.prompt("first");
      await agent.frame({ type: "auto_retry_start" });
      const queued = await agent.client.send({ type: "prompt", message: "second" });
      assert.deepEqual([queued.success, queued.data?.disposition], [true, "queued"]);
      // The fourth failure is the last: three retries are made.
      await agent.retryNow(Math.min(failures, 3));
      await agent.frame({ type: "message_end", message: { content: [{ text: GREETING + "second" }] } });
      assert.deepEqual(agent.answers(), answers.map((answer) => GREETING + answer));
    }
  }],

  ["what waits can be taken back", async (start) => {
    const agent = await start({ model: "overloaded:1", longWaits: true });
    await agent.client.prompt("first");
    await agent.frame({ type: "auto_retry_start" });
    await agent.client.steer("steered");
    await agent.client.followUp("followed");
    const taken = agent.client.clearQueue
      ? await agent.client.clearQueue()
      : (await agent.client.send({ type: "clear_queue" })).data;
    assert.deepEqual(taken, { steering: ["steered"], followUp: ["followed"] });
    await agent.retryNow();
    await agent.frame({ type: "agent_settled" });
    assert.deepEqual(said(agent), ["first"]);
  }],

  ["an unknown command is answered with its id", async (start) => {
    const agent = await start();
    agent.refused = ["bogus_command: Unknown command"];
    const answer = await agent.client.send({ type: "bogus_command" });
    assert.deepEqual([answer.command, answer.success], ["bogus_command", false]);
    assert.equal(answer.error, "Unknown command: bogus_command");
  }],

  ["a line that is no command is answered, and the next one counts", async (start) => {
    const agent = await start();
    agent.refused = ["parse: ", "undefined: "];
    for (const line of ["{bad json\n", "\n", "[]\n", "7\n", '{"id":"none"}\n', '\u0000\n']) agent.write(line);
    agent.write(Buffer.from([0x22, 0xff, 0xfe, 0x22, 0x0a]));
    await agent.frame({ type: "response", command: "parse", success: false });
    await agent.frame({ type: "response", id: "none", success: false });
    await agent.client.promptAndWait("Say hello");
    assert.deepEqual(agent.answers(), [GREETING + "Say hello"]);
    assert.equal(agent.all({ success: false }).length, 6, "one answer to each line that is not empty");
  }],

  ["only a line feed ends a line", async (start) => {
    const agent = await start();
    const odd = "one\u2028two\u2029three\rfour\u0085five 🦀";
    await agent.client.promptAndWait(odd);
    assert.deepEqual(agent.answers(), [GREETING + odd]);
    agent.write('{"id":"mine","type":"get_state"}\r\n');
    await agent.frame({ type: "response", id: "mine", success: true });
    const pieces = Buffer.from('{"id":"cut 🦀","type":"get_state"}\n');
    for (const byte of pieces) agent.write(Buffer.from([byte]));
    await agent.frame({ type: "response", id: "cut 🦀", success: true });
  }],
];

/** What was said to the model. */
function said(agent) {
  return agent.all({ type: "message_end", message: { role: "user" } }).map(({ message }) => text(message));
}
