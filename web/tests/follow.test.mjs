import assert from "node:assert/strict";
import { test } from "node:test";
import { look, problem, server, settle, stream } from "./outside.mjs";
import { follow } from "../follow.js";
import { connectionWords, problemWords } from "../standing.js";

/** Follows a session with a clock that stands still; what is heard. */
function following(context) {
  context.mock.timers.enable({ apis: ["setTimeout"] });
  const heard = { states: [], said: [] };
  const end = follow("a/b", {
    snapshot: ({ text }) => heard.said.push(`snapshot ${text}`),
    event: ({ text }) => heard.said.push(text),
    state: (word, told) => heard.states.push(told ? [word, told.detail] : [word]),
  });
  context.after(end);
  return Object.assign(heard, { end, pass: (time) => context.mock.timers.tick(time) });
}

const event = (place, text) => `id: ${place}\ndata: ${JSON.stringify({ text })}\n\n`;
const snapshot = (place, text) => `event: snapshot\n${event(place, text)}`;

test("why a session cannot be followed is told, and it is tried again", async (context) => {
  const { answer, say } = stream();
  const { asked } = server(problem(503, "the disk is full"), problem(403, "not from there"), answer);
  const heard = following(context);
  await settle();
  assert.deepEqual(heard.states, [["lost", "the disk is full"]]);
  heard.pass(700);
  await settle();
  assert.deepEqual(heard.states.at(-1), ["lost", "not from there"]);
  // The second pause is longer than the first.
  heard.pass(700);
  await settle();
  assert.equal(asked.length, 2);
  heard.pass(700);
  await settle();
  say(snapshot("L-1", "all"));
  await settle();
  assert.deepEqual([asked.length, heard.states.at(-1), heard.said], [3, ["live"], ["snapshot all"]]);
});

test("a connection that broke off has no more to tell, and goes on from the last place", async (context) => {
  const first = stream();
  const { asked } = server(first.answer, problem(410, "stale"));
  const heard = following(context);
  await settle();
  first.say(snapshot("L-1", "all") + event("L-2", "more"));
  await settle();
  first.end();
  await settle();
  assert.deepEqual(heard.states, [["live"], ["lost"]]);
  heard.pass(700);
  await settle();
  // A place that is too far back is nothing that a person can do something about: a snapshot comes.
  assert.deepEqual(heard.states.at(-1), ["lost"]);
  heard.pass(1_500);
  await settle();
  assert.deepEqual(
    asked.map(({ after }) => after),
    [undefined, "L-2", undefined],
  );
});

for (const [what, bad, after] of [
  ["a network that is gone", undefined, "L-1"],
  ["an event that is no JSON", "id: L-2\ndata: {\n\n", undefined],
  ["an event that nobody can show", "id: L-2\ndata: null\n\n", undefined],
]) {
  test(`after ${what} it goes on with ${after ? "the last place" : "a snapshot"}`, async (context) => {
    const first = stream();
    const { asked } = server(first.answer);
    const heard = following(context);
    await settle();
    first.say(snapshot("L-1", "all"));
    await settle();
    if (bad) first.say(bad);
    else first.breakOff();
    await settle();
    heard.pass(700);
    await settle();
    assert.deepEqual([asked.length, asked[1].after, heard.states], [2, after, [["live"], ["lost"]]]);
  });
}

test("a session that is not there is asked for once", async (context) => {
  const { asked } = server(problem(404, "there is no session a/b"));
  const heard = following(context);
  await settle();
  heard.pass(60_000);
  await settle();
  assert.deepEqual([asked.length, heard.states], [1, [["gone", "there is no session a/b"]]]);
  assert.equal(asked[0].path, "/api/sessions/a%2Fb/events");
});

test("nobody looks for a while: the connection is left, and gone on with from the last place", async (context) => {
  const [first, second] = [stream(), stream()];
  const { asked } = server(first.answer, second.answer);
  const heard = following(context);
  context.after(() => look(true));
  await settle();
  first.say(snapshot("L-1", "all") + event("L-2", "more") + "id: L-3\ndata: {");
  await settle();
  look(false);
  heard.pass(29_999);
  await settle();
  assert.equal(first.isOver, false, "a short look elsewhere costs nothing");
  heard.pass(1);
  await settle();
  assert.ok(first.isOver);
  // Neither time nor a network that is back has it ask again.
  heard.pass(600_000);
  window.dispatchEvent(new Event("online"));
  await settle();
  assert.deepEqual([asked.length, heard.states], [1, [["live"]]]);
  look(true);
  await settle();
  second.say(event("L-3", "the rest"));
  await settle();
  assert.deepEqual(
    [asked.map(({ after }) => after), heard.said, heard.states],
    [[undefined, "L-2"], ["snapshot all", "more", "the rest"], [["live"], ["live"]]],
  );
});

test("a look elsewhere that is over in time leaves nothing", async (context) => {
  const only = stream();
  const { asked } = server(only.answer);
  const heard = following(context);
  await settle();
  look(false);
  heard.pass(20_000);
  look(true);
  heard.pass(20_000);
  await settle();
  assert.deepEqual([asked.length, only.isOver], [1, false]);
});

test("a tab that nobody has looked at yet gives up what it asks for as well", async (context) => {
  const { asked } = server(problem(503, "busy"));
  look(false);
  context.after(() => look(true));
  const heard = following(context);
  await settle();
  heard.pass(700);
  await settle();
  assert.deepEqual([asked.length, asked[1].signal.aborted], [2, false]);
  heard.pass(29_300);
  await settle();
  heard.pass(600_000);
  await settle();
  assert.deepEqual([asked.length, asked[1].signal.aborted], [2, true]);
  look(true);
  await settle();
  assert.equal(asked.length, 3);
});

test("a server that is away is not asked again while nobody looks, and at once when somebody does", async (context) => {
  const { asked } = server(problem(503, "busy"));
  const heard = following(context);
  context.after(() => look(true));
  await settle();
  look(false);
  heard.pass(30_000);
  await settle();
  assert.equal(asked.length, 1);
  look(true);
  await settle();
  assert.equal(asked.length, 2);
});

test("what is ended asks no more, whether somebody looks or not", async (context) => {
  const only = stream();
  const { asked } = server(only.answer);
  const heard = following(context);
  await settle();
  look(false);
  heard.pass(30_000);
  await settle();
  heard.end();
  look(true);
  await settle();
  assert.deepEqual([asked.length, only.isOver], [1, true]);
});

test("what is said of a lost connection is one short line", () => {
  assert.equal(connectionWords("lost"), "The connection is lost. Trying again…");
  assert.equal(
    connectionWords("lost", { detail: "the disk\nis \u202Efull.\n" }),
    "The session cannot be followed: the disk is full. Trying again…",
  );
  assert.ok(connectionWords("lost", { detail: "x".repeat(9_999) }).length < 400);
  assert.match(connectionWords("gone"), /^There is no such session\./);
});

test("why nothing can be said is told as a sentence, and only then", () => {
  assert.equal(problemWords(undefined), undefined);
  assert.equal(problemWords("set a key.\n"), "Nothing can be said here as things are: set a key.");
  assert.ok(problemWords("x".repeat(9_999)).length < 400);
});
