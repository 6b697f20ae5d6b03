import assert from "node:assert/strict";
import { test } from "node:test";
import { standing, waitOf } from "../standing.js";
import { SEAM } from "../text.js";
import { apply, fromSnapshot } from "../transcript.js";
import { begun, heard, kinds, later, retry, texts, types } from "./hear.mjs";

const CHANGES = [
  [{ type: "start", provider: "q", model: "n" }, ["head"]],
  [{ type: "renamed", title: "T" }, ["head"]],
  [{ type: "model_switched", from: "m", to: "n", cause: "overloaded" }, ["head", "add"]],
  [{ type: "auto_compaction_started", reason: "overflow", tokens: 9 }, ["head", "add"]],
  [{ type: "auto_compaction_ended", reason: "overflow", before: 9, after: 3 }, ["head", "add"]],
  [{ type: "auto_compaction_retry", attempt: 1, retry_at: later(4), cause: "network", message: "m" }, ["bubble"]],
  [{ type: "held", until: later(4) }, ["bubble"]],
  [{ type: "account_blocked", name: "a", cause: "usage_limit", until: later(9) }, ["add"]],
  [{ type: "warning", message: "w" }, ["add"]],
  [{ type: "corrected", cause: "malformed_output", message: "no JSON", attempt: 1, max_attempts: 3 }, ["add"]],
  [{ type: "unrecorded", message: "disk full" }, ["add"]],
  [{ type: "billed_twice", usage: { input: 1, output: 2 }, estimated: true }, ["add"]],
  [{ type: "tool_result", id: "unheard", output: "o" }, ["add"]],
  [{ type: "text_delta", text: "" }, []],
  [{ type: "usage", input: 1 }, []],
  [{ type: "done", stop_reason: "end_turn" }, []],
  [{ type: "sealed", status: "completed" }, ["head"]],
];
for (const [event, wanted] of CHANGES) {
  test(`${event.type} changes ${wanted.join(" and ") || "nothing"}`, () => {
    assert.deepEqual(kinds(heard(...begun).say(event)), wanted);
  });
}

test("what is known of the session follows its events", () => {
  const { state, say } = heard(...begun);
  assert.deepEqual([state.provider, state.model, standing(state)], ["p", "m", "running"]);
  say({ type: "model_switched", from: "m", to: "n" });
  say({ type: "renamed", title: "T" });
  assert.deepEqual([state.model, state.title], ["n", "T"]);
  say({ type: "auto_compaction_started", reason: "overflow", tokens: 9 });
  assert.equal(standing(state), "compacting");
  say({ type: "auto_compaction_ended", reason: "overflow", before: 9, after: 3 });
  assert.equal(standing(state), "running");
  say({ type: "sealed", status: "completed" });
  assert.equal(standing(state), "finished");
});

for (const between of [
  { type: "input", text: "meanwhile" },
  { type: "attempt_started", attempt: 2 },
  { type: "step_complete", stop_reason: "end_turn" },
  { type: "done", stop_reason: "end_turn" },
  { type: "error", cause: "network", message: "m", reason: "r" },
  { type: "sealed", status: "completed" },
  { type: "tool_call", id: "1", name: "a", arguments: "" },
  { type: "reasoning_delta", text: "hm" },
  { type: "text_delta", text: "x", turn_id: "t2" },
]) {
  test(`an answer does not go on after ${between.type}${between.turn_id ? " of another turn" : ""}`, () => {
    const { state } = heard(...begun, { type: "text_delta", text: "one" }, between, { type: "text_delta", text: "two" });
    assert.ok(texts(state).length >= 2 && texts(state)[0] === "one", JSON.stringify(texts(state)));
  });
}

test("reasoning that is done is not gone on with", () => {
  const { state } = heard(
    ...begun,
    { type: "reasoning_delta", text: "a" },
    { type: "reasoning_done", text: "a" },
    { type: "reasoning_delta", text: "b" },
  );
  assert.deepEqual(types(state), ["user", "reasoning", "reasoning"]);
});

test("the number of the attempt is known from its id alone", () => {
  const { state, say } = heard({ type: "input", text: "hello" }, { type: "text_delta", text: "lost", attempt_id: "t1.7" });
  say({ type: "retracted", attempt: 7 });
  assert.deepEqual(texts(state), []);
});

test("a number of another turn does not count for this one", () => {
  const { state } = heard(...begun);
  apply(state, { type: "text_delta", text: "new", turn_id: "t2" });
  assert.equal(state.items.at(-1).attempt, 0);
});

test("a tool that runs is seen to run", () => {
  const { state, last } = heard(
    ...begun,
    { type: "tool_call", id: "1", name: "a", arguments: "" },
    { type: "tool_started", id: "1", name: "a" },
  );
  assert.deepEqual([state.items.at(-1).phase, kinds(last)], ["running", ["update"]]);
});

test("the result of a call that was never heard of is shown once", () => {
  const { state } = heard(
    ...begun,
    { type: "tool_started", id: "9", name: "late" },
    { type: "tool_result", id: "9", output: "o" },
  );
  assert.deepEqual(
    state.items.slice(1).map(({ name, output }) => [name, output]),
    [["late", "o"]],
  );
});

test("a call that was taken back and is made again is another one", () => {
  const call = { type: "tool_call", id: "1", name: "a", arguments: "" };
  const { state } = heard(...begun, call, { type: "retracted", attempt: 1 }, { type: "tool_result", id: "1", output: "late" });
  assert.deepEqual(types(state), ["user", "note", "tool"]);
});

test("an attempt that begins tells of a wait that is over, and only then", () => {
  const { say } = heard(...begun);
  assert.deepEqual(kinds(say({ type: "attempt_started", attempt: 2 })), []);
  say(retry);
  assert.deepEqual(kinds(say({ type: "attempt_started", attempt: 3 })), ["bubble"]);
});

test("a retry that is scheduled counts before what the gate said", () => {
  const { state } = heard(...begun, { type: "held", until: later(3) }, retry);
  assert.deepEqual([waitOf(state).kind, waitOf(state).early], ["retry", undefined]);
});

test("a snapshot knows who holds the call, who is asked, and that it is made smaller", () => {
  const events = [{ type: "auto_compaction_started", reason: "overflow", tokens: 9 }];
  const session = {
    now: later(0),
    state: "waiting",
    model: { id: "n", provider: "q" },
    held: { until: later(5), cause: "network" },
  };
  const state = fromSnapshot({ session, events });
  assert.deepEqual(
    [waitOf(state).kind, waitOf(state).until, waitOf(state).cause, state.provider, state.compacting],
    ["held", later(5), "network", "q", true],
  );
  const early = fromSnapshot({
    session: { ...session, retry: { attempt: 1, cause: "network", message: "m", wake_at: later(9) } },
    events,
  });
  assert.deepEqual([waitOf(early).kind, waitOf(early).early], ["retry", later(5)]);
});

test("one seam is one mark, and what each attempt takes back is told", () => {
  const { state, say } = heard(
    ...begun,
    { type: "text_delta", text: "a" },
    { type: "attempt_started", attempt: 2 },
    { type: "seam", by: "prefill" },
    { type: "text_delta", text: "b" },
    { type: "text_delta", text: "c" },
  );
  assert.deepEqual(texts(state), [`a${SEAM}bc`]);
  assert.deepEqual(kinds(say({ type: "retracted", attempt: 2 })), ["update", "add"]);
  say({ type: "text_delta", text: "anew" });
  assert.deepEqual(texts(state), ["a", "anew"]);
});
