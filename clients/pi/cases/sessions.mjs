// What a client can ask for between prompts: the state, the history, models, summaries, commands, other sessions.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { join, resolve } from "node:path";
import { text } from "../agent.mjs";
import { has, hasMessage } from "../frames.mjs";
import { GREETING } from "./prompts.mjs";

const rates = { input: "number", output: "number", cacheRead: "number", cacheWrite: "number" };
const model = {
  id: "string",
  name: "string",
  api: "string",
  provider: "string",
  baseUrl: "string",
  reasoning: "boolean",
  input: "array",
  cost: rates,
  contextWindow: "number",
  maxTokens: "number",
};
const state = {
  model,
  thinkingLevel: "string",
  isStreaming: "boolean",
  isCompacting: "boolean",
  steeringMode: "string",
  followUpMode: "string",
  sessionId: "string",
  autoCompactionEnabled: "boolean",
  messageCount: "number",
  pendingMessageCount: "number",
  retry: { enabled: "boolean" },
};
const stats = {
  sessionId: "string",
  userMessages: "number",
  assistantMessages: "number",
  toolCalls: "number",
  toolResults: "number",
  totalMessages: "number",
  tokens: { ...rates, total: "number" },
  cost: "number",
};
const compaction = { summary: "string", firstKeptEntryId: "string", tokensBefore: "number" };

export const cases = [
  ["get_state has everything", async (start) => {
    const agent = await start();
    const before = await agent.client.getState();
    has(before, state, "state");
    assert.deepEqual([before.model.provider, before.model.id], ["mock", "ok"]);
    assert.deepEqual([before.isStreaming, before.isCompacting, before.messageCount], [false, false, 0]);
    assert.deepEqual([before.steeringMode, before.followUpMode], ["one-at-a-time", "one-at-a-time"]);
    assert.equal(before.retry.enabled, true);
    await agent.client.promptAndWait("Say hello");
    assert.equal((await agent.client.getState()).messageCount, 2);
  }],

  ["settings are kept for the session", async (start) => {
    const { client } = await start();
    await client.setSteeringMode("all");
    await client.setFollowUpMode("all");
    await client.setAutoCompaction(false);
    const changed = await client.getState();
    assert.deepEqual([changed.steeringMode, changed.followUpMode], ["all", "all"]);
    assert.equal(changed.autoCompactionEnabled, false);
    await client.setAutoCompaction(true);
    assert.equal((await client.getState()).autoCompactionEnabled, true);
  }],

  ["models are listed, chosen and cycled", async (start) => {
    const agent = await start();
    const { client } = agent;
    agent.refused = ["set_model: Model not found: nope/x"];
    const models = await client.getAvailableModels();
    assert.ok(models.length > 0, "no model is listed");
    for (const listed of models) has(listed, model, "model");
    const chosen = await client.setModel("mock", "ok:reasoning");
    has(chosen, model, "model");
    assert.equal((await client.getState()).model.id, "ok:reasoning");
    await client.promptAndWait("Say hello");
    assert.ok(agent.all({ type: "message_update", assistantMessageEvent: { type: "thinking_delta" } }).length > 0);
    await assert.rejects(client.setModel("nope", "x"), { message: "Model not found: nope/x" });
    assert.equal((await client.getState()).model.id, "ok:reasoning");
    const next = await client.cycleModel();
    if (next !== null) has(next, { model, thinkingLevel: "string", isScoped: "boolean" }, "cycled");
  }],

  ["how much a model thinks can be asked for", async (start) => {
    const { client } = await start();
    await client.setThinkingLevel("high");
    const { thinkingLevel } = await client.getState();
    const next = await client.cycleThinkingLevel();
    if (next !== null) has(next, { level: "string" }, "cycled");
    if (!client.getAvailableThinkingLevels) return;
    const levels = await client.getAvailableThinkingLevels();
    assert.ok(levels.includes(thinkingLevel), `${thinkingLevel} is not one of ${levels}`);
  }],

  ["the history can be read", async (start) => {
    const agent = await start({ model: "overloaded:1", scale: 20 });
    const { client } = agent;
    assert.equal(await client.getLastAssistantText(), null);
    await client.promptAndWait("first");
    await client.promptAndWait("second");
    const messages = await client.getMessages();
    for (const message of messages) hasMessage(message, "message");
    assert.deepEqual(messages.map(text), ["first", GREETING + "first", "second", GREETING + "second"]);
    assert.equal(await client.getLastAssistantText(), GREETING + "second");
    const counted = await client.getSessionStats();
    has(counted, stats, "stats");
    assert.deepEqual([counted.userMessages, counted.tokens.output > 0], [2, true]);
    assert.ok(Array.isArray(await client.getCommands()), "no commands");
    if (!client.getEntries) return;
    const { entries, leafId } = await client.getEntries();
    for (const entry of entries) has(entry, { type: "string", id: "string", parentId: "any", timestamp: "string" }, "entry");
    assert.equal(leafId, entries.at(-1).id);
    const later = await client.getEntries(entries[0].id);
    assert.deepEqual(later.entries.map(({ id }) => id), entries.slice(1).map(({ id }) => id));
    agent.refused = ["get_entries: Entry not found: none"];
    await assert.rejects(client.getEntries("none"), { message: "Entry not found: none" });
    const { tree, leafId: leaf } = await client.getTree();
    assert.equal(leaf, leafId);
    for (const node of tree) has(node, { entry: { id: "string" }, children: "array" }, "node");
  }],

  ["a session has a name", async (start) => {
    const agent = await start();
    agent.refused = ["set_session_name: Session name cannot be empty"];
    await agent.client.setSessionName(" named ");
    await agent.frame({ type: "session_info_changed", name: "named" });
    await agent.client.setSessionName("  ");
    assert.equal((await agent.client.getState()).sessionName, "named");
    assert.equal(agent.all({ type: "response", success: false }).length, 1);
  }],

  ["compact puts a summary in place of what was said", async (start) => {
    const agent = await start({ model: "ok:agent,times=always" });
    for (const number of [1, 2, 3]) await agent.client.promptAndWait(`number ${number}, ${"and so on ".repeat(200)}`);
    const result = await agent.client.compact("Keep the numbers");
    has(result, compaction, "compaction");
    assert.ok(result.summary && result.tokensBefore > 0, "nothing was summed up");
    const [began] = agent.all({ type: "compaction_start" });
    assert.equal(began.reason, "manual");
    const [ended] = agent.all({ type: "compaction_end" });
    assert.deepEqual([ended.reason, ended.aborted, ended.willRetry], ["manual", false, false]);
    assert.equal(ended.result.summary, result.summary);
    const messages = await agent.client.getMessages();
    assert.ok(messages.some(({ role }) => role === "compactionSummary"), "the history has no summary");
    const { data } = await agent.client.send({ type: "get_entries" });
    assert.ok(data.entries.some(({ id }) => id === result.firstKeptEntryId), "what is kept begins with no entry");
    await agent.client.promptAndWait("number 4");
    assert.equal(agent.failures().length, 0);
  }],

  ["bash runs a command, and the model hears of it", async (start) => {
    const agent = await start();
    const ran = await agent.client.bash("echo hi; pwd; exit 3");
    assert.deepEqual([ran.exitCode, ran.cancelled, ran.truncated], [3, false, false]);
    assert.equal(ran.output.split("\n")[0], "hi");
    assert.ok(ran.output.includes(agent.cwd.split("/").at(-2)), "it ran elsewhere");
    const [message] = (await agent.client.getMessages()).filter(({ role }) => role === "bashExecution");
    assert.deepEqual([message.command, message.exitCode], ["echo hi; pwd; exit 3", 3]);
  }],

  ["abort_bash ends a command", async (start) => {
    const agent = await start();
    // Longer than the client waits for an answer.
    const running = agent.client.bash("echo begun; sleep 3600; echo over");
    await agent.client.getState();
    await agent.client.abortBash();
    const ran = await running;
    assert.equal(ran.cancelled, true);
    assert.ok(!ran.output.includes("over"), ran.output);
  }],

  ["a session is exported", async (start) => {
    const agent = await start();
    await agent.client.promptAndWait("planted words");
    const wanted = join(agent.folder, "session.html");
    assert.equal((await agent.client.exportHtml(wanted)).path, wanted);
    const { path } = await agent.client.exportHtml();
    for (const file of [wanted, resolve(agent.cwd, path)]) assert.match(readFileSync(file, "utf8"), /planted words/);
  }],

  ["sessions are forked, cloned, left and taken up again", async (start) => {
    const agent = await start();
    const { client } = agent;
    await client.promptAndWait("first");
    await client.promptAndWait("second");
    const original = await client.getState();
    const choices = await client.getForkMessages();
    assert.deepEqual(choices.map((choice) => choice.text), ["first", "second"]);

    assert.deepEqual(await client.fork(choices[1].entryId), { text: "second", cancelled: false });
    assert.deepEqual((await client.getMessages()).map(text), ["first", GREETING + "first"]);
    const fork = await client.getState();
    assert.notEqual(fork.sessionId, original.sessionId);

    assert.deepEqual(await client.clone(), { cancelled: false });
    const clone = await client.getState();
    assert.notEqual(clone.sessionId, fork.sessionId);
    assert.deepEqual((await client.getMessages()).map(text), ["first", GREETING + "first"]);

    assert.deepEqual(await client.newSession(), { cancelled: false });
    assert.equal((await client.getState()).messageCount, 0);
    await client.promptAndWait("elsewhere");
    assert.deepEqual(agent.answers().at(-1), GREETING + "elsewhere");

    const place = original.sessionFile ?? original.sessionId;
    assert.deepEqual(await client.switchSession(place), { cancelled: false });
    assert.equal((await client.getState()).sessionId, original.sessionId);
    assert.equal((await client.getMessages()).length, 4);
  }],

  ["what is asked for during a run is answered at once", async (start) => {
    const agent = await start({ model: "overloaded:9", longWaits: true });
    await agent.client.prompt("Say hello");
    await agent.frame({ type: "auto_retry_start" });
    const { client } = agent;
    const questions = [client.getState(), client.getMessages(), client.getSessionStats(), client.bash("echo hi")];
    await Promise.all([...questions, client.getAvailableModels(), client.getCommands(), client.setAutoCompaction(true)]);
    for (const type of ["auto_retry_end", "agent_end"]) assert.equal(agent.all({ type }).length, 0, `${type} came first`);
    await client.abort();
    await agent.frame({ type: "agent_settled", aborted: true });
  }],
];
