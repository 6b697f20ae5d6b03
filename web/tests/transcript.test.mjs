import assert from "node:assert/strict";
import { test } from "node:test";
import { disagrees, standing, waitOf } from "../standing.js";
import { SEAM } from "../text.js";
import { apply, fromSnapshot, stand } from "../transcript.js";
import { begun, heard, kinds, later, retry, texts, types } from "./hear.mjs";

test("pieces of an answer become one message", () => {
  const { state, last } = heard(...begun, { type: "text_delta", text: "Hel" }, { type: "text_delta", text: "lo" });
  assert.deepEqual(types(state), ["user", "assistant"]);
  assert.deepEqual(texts(state), ["Hello"]);
  assert.deepEqual(kinds(last), ["update"]);
});

test("an event that nobody knows changes nothing", () => {
  const { state } = heard(...begun);
  for (const odd of [{ type: "brand_new" }, { type: "constructor" }, { type: "__proto__" }, {}, null, "text", 5]) {
    assert.deepEqual(apply(state, odd), []);
  }
});

test("a scheduled retry is shown at once, with everything that is known of it", () => {
  const { state, last } = heard(...begun, retry);
  assert.deepEqual(kinds(last), ["bubble"]);
  const wait = waitOf(state);
  assert.equal(wait.kind, "retry");
  assert.deepEqual(
    [wait.attempt, wait.max_attempts, wait.retry_at, wait.cause, wait.message, wait.code],
    [1, 4, later(5), "overloaded", "Overloaded", "529"],
  );
  assert.equal(standing(state), "retrying");
});

test("while a retry is under way it is still shown, without a time", () => {
  const { state } = heard(...begun, retry, { type: "attempt_started", attempt: 2 });
  assert.equal(waitOf(state).kind, "trying");
});

for (const first of [
  { type: "text_delta", text: "x" },
  { type: "reasoning_delta", text: "x" },
  { type: "tool_call", id: "1", name: "bash", arguments: "{}" },
  { type: "step_complete", stop_reason: "end_turn" },
  { type: "retry_ended", success: true, attempt: 1 },
  { type: "retry_ended", success: false, attempt: 1, error: "Retry cancelled" },
  { type: "error", class: "transient", cause: "overloaded", message: "m", reason: "r" },
  { type: "sealed", status: "aborted" },
]) {
  test(`the bubble is gone with ${first.type}${"success" in first ? ` ${first.success}` : ""}`, () => {
    const { state, say } = heard(...begun, retry, { type: "attempt_started", attempt: 2 });
    assert.ok(kinds(say(first)).includes("bubble"));
    assert.equal(waitOf(state), undefined);
  });
}

test("an account that is chosen or tokens that are counted do not end a wait", () => {
  const { state } = heard(...begun, retry, { type: "account", name: "a" }, { type: "usage", input: 1, output: 0 });
  assert.equal(waitOf(state).kind, "retry");
});

test("an error that ends a turn stays, with its message, code and reason", () => {
  const { state } = heard(
    ...begun,
    retry,
    {
      type: "error",
      class: "transient",
      cause: "overloaded",
      message: "Overloaded",
      code: "529",
      reason: "every retry was used",
    },
    { type: "sealed", status: "error" },
  );
  const { cause, message, code, reason } = state.items.at(-1);
  assert.deepEqual(
    { cause, message, code, reason },
    { cause: "overloaded", message: "Overloaded", code: "529", reason: "every retry was used" },
  );
  assert.equal(standing(state), "failed");
});

test("a turn that a person ended has a note and no error", () => {
  const { state } = heard(...begun, retry, { type: "sealed", status: "aborted" });
  assert.deepEqual(types(state), ["user", "note"]);
  assert.equal(standing(state), "cancelled");
});

test("what an attempt said is gone when it is taken back, and nothing else", () => {
  const { state, say } = heard(
    ...begun,
    { type: "reasoning_delta", text: "first" },
    { type: "text_delta", text: "kept" },
    { type: "tool_call", id: "1", name: "read", arguments: "{}" },
    { type: "tool_result", id: "1", output: "o", is_error: false },
    { type: "attempt_started", attempt: 2 },
    { type: "reasoning_delta", text: "second" },
    { type: "text_delta", text: "lost" },
  );
  const changes = say({ type: "retracted", attempt: 2 });
  assert.deepEqual(kinds(changes), ["remove", "remove", "add"]);
  assert.deepEqual(types(state), ["user", "reasoning", "assistant", "tool", "note"]);
  assert.deepEqual(texts(state), ["kept"]);
});

test("what an earlier turn said under the same number stays", () => {
  const { state } = heard(...begun, { type: "text_delta", text: "old" }, { type: "sealed", status: "completed" });
  apply(state, { type: "attempt_started", attempt: 1, turn_id: "t2" });
  apply(state, { type: "text_delta", text: "new", turn_id: "t2" });
  apply(state, { type: "retracted", attempt: 1, turn_id: "t2" });
  assert.deepEqual(texts(state), ["old"]);
});

test("after a seam the same answer goes on, and the place is marked", () => {
  const { state } = heard(
    ...begun,
    { type: "text_delta", text: "func" },
    retry,
    { type: "attempt_started", attempt: 2 },
    { type: "seam", by: "prefill" },
    { type: "text_delta", text: "tion" },
  );
  assert.deepEqual(texts(state), [`func${SEAM}tion`]);
});

test("when an answer with a seam is taken back, each attempt takes its own part", () => {
  const { state, say } = heard(
    ...begun,
    { type: "text_delta", text: "one" },
    { type: "attempt_started", attempt: 2 },
    { type: "seam", by: "prefill" },
    { type: "text_delta", text: "two" },
  );
  say({ type: "retracted", attempt: 1 });
  assert.deepEqual(texts(state), [`${SEAM}two`]);
  say({ type: "retracted", attempt: 2 });
  assert.deepEqual(texts(state), []);
});

test("the mark of a seam does not come from outside", () => {
  const { state } = heard(...begun, { type: "text_delta", text: `a${SEAM}b` });
  assert.deepEqual(texts(state), ["ab"]);
});

test("a tool's call, start and result are one item", () => {
  const { state } = heard(
    ...begun,
    { type: "tool_call", id: "1", name: "bash", arguments: '{"command":"ls"}' },
    { type: "tool_started", id: "1", name: "bash" },
    { type: "tool_result", id: "1", output: "no", is_error: true },
  );
  const { phase, output, name } = state.items.at(-1);
  assert.deepEqual([phase, output, name], ["failed", "no", "bash"]);
});

test("a tool id that is used again belongs to the last call", () => {
  const { state } = heard(
    ...begun,
    { type: "tool_call", id: "1", name: "a", arguments: "" },
    { type: "tool_result", id: "1", output: "A" },
    { type: "tool_call", id: "1", name: "b", arguments: "" },
    { type: "tool_result", id: "1", output: "B" },
  );
  assert.deepEqual(
    state.items.slice(1).map(({ name, output }) => [name, output]),
    [
      ["a", "A"],
      ["b", "B"],
    ],
  );
});

test("at a gate without a retry the call is held", () => {
  const { state } = heard(...begun.slice(0, 2), { type: "held", until: later(9), cause: "overloaded" });
  assert.deepEqual([waitOf(state).kind, waitOf(state).until], ["held", later(9)]);
  assert.equal(standing(state), "held");
  apply(state, { type: "attempt_started", attempt: 1, turn_id: "t1" });
  assert.equal(waitOf(state), undefined);
});

test("before a retry's own time a gate only makes it earlier, after it the gate holds", () => {
  const { state, say } = heard(...begun, retry, { type: "held", until: later(2), cause: "overloaded" });
  assert.deepEqual([waitOf(state).kind, waitOf(state).early], ["retry", later(2)]);
  say({ type: "held", until: later(9), time: later(6) });
  assert.deepEqual([waitOf(state).kind, waitOf(state).until], ["held", later(9)]);
});

test("a snapshot's events and then its session make the state", () => {
  const events = [...begun, { type: "text_delta", text: "half" }, { ...retry, attempt: 2 }].map((event) => ({
    ...event,
    turn_id: "t1",
  }));
  const session = {
    state: "waiting",
    model: { id: "m2", provider: "q" },
    title: "T",
    queue: { steering: ["a"], follow_up: [] },
    retry: { attempt: 2, max_attempts: 4, cause: "network", message: "reset", wake_at: later(30) },
  };
  const state = fromSnapshot({ session, events });
  const { retry_at: at, cause, code } = waitOf(state);
  assert.deepEqual([at, cause, code], [later(30), "network", "529"]);
  assert.deepEqual(
    [state.model, state.provider, state.title, state.queue.steering, state.running],
    ["m2", "q", "T", ["a"], true],
  );
  apply(state, { type: "retracted", attempt: 1, turn_id: "t1" });
  assert.deepEqual(texts(state), []);
});

test("the code of an earlier retry is not that of a later one", () => {
  const session = { state: "waiting", retry: { attempt: 2, cause: "network", message: "reset", wake_at: later(30) } };
  assert.equal(waitOf(fromSnapshot({ session, events: [retry] })).code, undefined);
});

test("a retry that is under way when somebody comes is shown without a time", () => {
  const session = { state: "running", retry: { attempt: 1, cause: "network", message: "reset" } };
  assert.equal(waitOf(fromSnapshot({ session, events: [...begun, retry] })).kind, "trying");
});

test("how the last turn ended is known from the snapshot, too, unless it has not", () => {
  const of = (state, seal) => standing(fromSnapshot({ session: { state, last_seal: seal }, events: [] }));
  assert.deepEqual(
    [of("idle", "error"), of("idle"), of("unfinished", "completed"), of("elsewhere", "error"), of("new")],
    ["failed", "idle", "unfinished", "elsewhere", "new"],
  );
});

test("a session that was unfinished is not any more when its turn ends", () => {
  const state = fromSnapshot({ session: { state: "unfinished" }, events: [] });
  apply(state, { type: "sealed", status: "completed" });
  assert.equal(standing(state), "finished");
});

test("a snapshot of a session at rest has no wait, whatever its events said", () => {
  const state = fromSnapshot({
    session: { state: "unfinished" },
    events: [...begun, retry].map((event) => ({ ...event, turn_id: "t1" })),
  });
  assert.equal(waitOf(state), undefined);
  assert.equal(standing(state), "unfinished");
});

test("the failed summary is waited for, and its end ends the wait", () => {
  const { state, say } = heard(
    ...begun,
    { type: "auto_compaction_started", reason: "overflow", tokens: 9 },
    { type: "auto_compaction_retry", attempt: 1, retry_at: later(4), cause: "overloaded", message: "m" },
  );
  assert.equal(waitOf(state).isSummary, true);
  say({ type: "auto_compaction_ended", reason: "overflow", before: 9, after: 3, will_retry: true });
  assert.equal(waitOf(state), undefined);
});

test("reasoning that comes whole is shown once", () => {
  const whole = heard(...begun, { type: "reasoning_done", text: "all" });
  const pieces = heard(
    ...begun,
    { type: "reasoning_delta", text: "al" },
    { type: "reasoning_delta", text: "l" },
    { type: "reasoning_done", text: "all" },
  );
  for (const { state } of [whole, pieces]) {
    assert.deepEqual(
      state.items.filter(({ type }) => type === "reasoning").map((item) => item.parts.map(({ text }) => text).join("")),
      ["all"],
    );
  }
});

test("what waits to be said is known", () => {
  const { state, last } = heard({ type: "queue_changed", steering: ["a"], follow_up: ["b"] });
  assert.deepEqual(kinds(last), ["queue"]);
  assert.deepEqual(state.queue, { steering: ["a"], follow_up: ["b"] });
});

test("a list disagrees when it tells of another state, and not for how a turn runs", () => {
  const page = (state) => fromSnapshot({ session: { state }, events: [] });
  const words = ["new", "idle", "running", "waiting", "unfinished", "elsewhere"];
  for (const here of words) {
    for (const told of words) {
      const isSame = here === told || [here, told].every((word) => ["running", "waiting"].includes(word));
      assert.equal(disagrees(page(here), told), !isSame, `${here} here, ${told} there`);
    }
  }
});

test("what events have said counts when a list is compared", () => {
  const { state, say } = heard(...begun);
  assert.deepEqual([disagrees(state, "running"), disagrees(state, "idle")], [false, true]);
  say({ type: "sealed", status: "completed" });
  assert.deepEqual([disagrees(state, "running"), disagrees(state, "idle")], [true, false]);
});

test("a session that another process has left can be led here", () => {
  const events = [
    { type: "start", turn_id: "t1", provider: "p", model: "m" },
    { type: "input", turn_id: "t1", text: "hello" },
  ];
  const locked = fromSnapshot({ session: { state: "elsewhere" }, events });
  assert.deepEqual([standing(locked), locked.running], ["elsewhere", false]);
  for (const state of ["idle", "unfinished"]) {
    const left = fromSnapshot({ session: { state: "elsewhere" }, events });
    stand(left, { state });
    assert.deepEqual([standing(left), standing(fromSnapshot({ session: { state }, events }))], [state, state]);
  }
});

test("a turn that was told to run and has ended meanwhile has ended", () => {
  const { state } = heard(...begun, retry, { type: "auto_compaction_started", reason: "overflow", tokens: 9 });
  stand(state, { state: "idle", last_seal: "completed" });
  assert.deepEqual([standing(state), waitOf(state), state.running, state.compacting], ["finished", undefined, false, false]);
});
