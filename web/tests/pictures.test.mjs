import assert from "node:assert/strict";
import { test } from "node:test";
import { attemptCount, graphLayout, layers, runBars, stepState } from "../run-layout.js";
import { concernsOne, isGood, learnTraffic, newTraffic, trafficRows, waitingRows } from "../traffic.js";

const NOW = Date.parse("2030-01-01T12:00:00Z");
const at = (seconds) => new Date(NOW + seconds * 1_000).toISOString();
const ids = (rows) => rows.map((row) => row.map(({ id }) => id));
const step = (id, ...needs) => ({ id, needs });

test("a step stands behind the last of those that it needs", () => {
  assert.deepEqual(ids(layers([step("d", "b", "c"), step("a"), step("b", "a"), step("c", "b")])), [["a"], ["b"], ["c"], ["d"]]);
});

test("steps of one layer stand where the arrows do not cross", () => {
  assert.deepEqual(ids(layers([step("a"), step("b"), step("y", "b"), step("x", "a")])), [
    ["a", "b"],
    ["x", "y"],
  ]);
});

test("steps that need each other or nothing that is there are drawn all the same", () => {
  assert.equal(layers([step("a", "b"), step("b", "a"), step("c", "gone")]).flat().length, 3);
});

test("no two steps stand on each other, in either direction", () => {
  const steps = [step("a"), step("b", "a"), step("c", "a"), step("d", "b", "c"), step("e", "a")];
  for (const isDown of [true, false]) {
    const box = { width: 100, height: 40 };
    const { nodes, width, height } = graphLayout(steps, { box, gap: { along: 30, across: 10 }, isDown, most: 900 });
    for (const one of nodes) {
      assert.ok(one.x >= 0 && one.y >= 0 && one.x + box.width <= width && one.y + box.height <= height);
      for (const other of nodes) {
        const apart = Math.abs(one.x - other.x) >= box.width || Math.abs(one.y - other.y) >= box.height;
        assert.ok(one === other || apart, `${one.step.id} ${other.step.id}`);
      }
    }
  }
});

test("a step that asks is shown so, whatever its phase", () => {
  assert.equal(stepState({ phase: "at_gate", question: { text: "?" } }), "asking");
  assert.equal(stepState({ phase: "completed" }), "completed");
  assert.equal(stepState({}), "idle");
  assert.equal(attemptCount({ attempts: [{}], earlier_attempts: 4 }), 5);
});

test("between attempts there is a wait: until the next, or as long as is known", () => {
  const attempts = [
    { number: 1, began: at(-60), ended: at(-50), outcome: "failed", cause: "overloaded", wait_until: at(-30) },
    { number: 2, began: at(-40), ended: at(-20), outcome: "failed", cause: "overloaded", wait_until: at(30) },
  ];
  const { rows, to } = runBars({ created: at(-60), steps: [{ id: "a", attempts }] }, NOW);
  assert.deepEqual(
    rows[0].waits.map((wait) => [(wait.from - NOW) / 1_000, (wait.to - NOW) / 1_000]),
    [
      [-50, -40],
      [-20, 30],
    ],
  );
  assert.equal(to, NOW + 18_000, "what is to come has a part of the room");
});

test("while a provider is waited for within an attempt, it is seen until when", () => {
  const waiting = { until: at(3), cause: "overloaded" };
  const { rows, to } = runBars(
    { created: at(-9), steps: [{ id: "a", waiting, attempts: [{ number: 1, began: at(-5) }] }] },
    NOW,
  );
  assert.deepEqual(rows[0].waits, [{ from: NOW, to: NOW + 3_000, cause: "overloaded" }]);
  assert.equal(to, NOW + 3_000);
});

test("the picture of a run that is over ends with it", () => {
  const run = {
    created: at(-60),
    ended: at(-10),
    steps: [{ id: "a", attempts: [{ number: 1, began: at(-60), ended: at(-20) }] }],
  };
  const { from, to, isOver } = runBars(run, NOW);
  assert.deepEqual([from - NOW, to - NOW, isOver], [-60_000, -10_000, true]);
});

test("what runs has a bar until now", () => {
  const { rows } = runBars({ created: at(-9), steps: [{ id: "a", attempts: [{ number: 1, began: at(-5) }] }] }, NOW);
  assert.deepEqual([rows[0].bars[0].to, rows[0].bars[0].isOpen], [NOW, true]);
});

const request = (id, seq, more = {}) => ({ id, seq, begun: at(-10), attempts: [], ...more });

test("an answer that says what changed is put together with what was known", () => {
  const traffic = newTraffic();
  learnTraffic(traffic, { seq: 2, requests: [request("a", 1), request("b", 2)] });
  learnTraffic(traffic, { seq: 3, requests: [request("a", 3, { ended: at(-1), status: 200 })] });
  assert.deepEqual([...traffic.requests.keys()], ["b", "a"]);
  assert.equal(traffic.requests.get("a").status, 200);
  assert.equal(traffic.seq, 3);
});

test("a gateway that was started anew is a new one", () => {
  const traffic = newTraffic();
  learnTraffic(traffic, { seq: 9, requests: [request("old", 9)] });
  learnTraffic(traffic, { seq: 1, requests: [request("new", 1)] });
  assert.deepEqual([...traffic.requests.keys()], ["new"]);
});

test("what is kept is bounded, and the oldest goes first", () => {
  const traffic = newTraffic();
  for (let seq = 1; seq <= 700; seq += 1) learnTraffic(traffic, { seq, requests: [request(`r${seq}`, seq)] });
  assert.equal(traffic.requests.size, 500);
  assert.ok(traffic.requests.has("r700") && !traffic.requests.has("r200"));
});

test("a request's failures and waits are where they happened", () => {
  const traffic = newTraffic();
  const attempts = [
    { attempt: 1, began: at(-10), failed_at: at(-9), cause: "overloaded", wake: at(-4) },
    { attempt: 2, began: at(-5), failed_at: at(-4), cause: "network", wake: at(6) },
  ];
  learnTraffic(traffic, {
    seq: 1,
    requests: [request("a", 1, { attempts }), request("gone", 1, { begun: at(-999), ended: at(-990) })],
  });
  const rows = trafficRows(traffic, { now: NOW, window: 60_000, most: 9 });
  assert.equal(rows.length, 1);
  assert.deepEqual(
    rows[0].waits.map(({ from, to }) => [(from - NOW) / 1_000, (to - NOW) / 1_000]),
    [
      [-9, -5],
      [-4, 6],
    ],
  );
  assert.deepEqual(
    rows[0].failures.map(({ cause }) => cause),
    ["overloaded", "network"],
  );
  assert.equal(rows[0].end, undefined);
});

test("a request that was held before it was ever sent has waited from its beginning on", () => {
  const traffic = newTraffic();
  const wait = { attempt: 0, cause: "overloaded", wake: at(5) };
  learnTraffic(traffic, {
    seq: 2,
    requests: [request("a", 1, { attempts: [wait] }), request("b", 2, { attempts: [wait, { attempt: 1, began: at(-3) }] })],
  });
  const waits = trafficRows(traffic, { now: NOW, window: 60_000, most: 9 }).map((row) =>
    row.waits.map(({ from, to }) => [(from - NOW) / 1_000, (to - NOW) / 1_000]),
  );
  assert.deepEqual(waits, [[[-10, 5]], [[-10, -3]]]);
});

test("no more rows are drawn than were asked for, those that began last first", () => {
  const traffic = newTraffic();
  learnTraffic(traffic, {
    seq: 3,
    requests: [request("old", 1, { begun: at(-30) }), request("new", 2), request("older", 3, { begun: at(-40) })],
  });
  assert.deepEqual(
    trafficRows(traffic, { now: NOW, window: 60_000, most: 2 }).map((row) => row.request.id),
    ["new", "old"],
  );
});

test("arrows lead from what is needed, and from a step to where it can lead", () => {
  const steps = [step("a"), { id: "b", needs: ["a", "gone"], leads_to: ["a"] }];
  const { edges, leads } = graphLayout(steps, {
    box: { width: 10, height: 5 },
    gap: { along: 3, across: 1 },
    isDown: false,
    most: 22,
  });
  const names = (list) => list.map(({ from, to }) => [from.step.id, to.step.id]);
  assert.deepEqual([names(edges), names(leads)], [[["a", "b"]], [["b", "a"]]]);
});

test("an end is good or not by its status and outcome", () => {
  assert.equal(isGood({ outcome: "answered", status: 200 }), true);
  assert.equal(isGood({ outcome: "answered", status: 400 }), false);
  for (const outcome of ["cancelled", "failed", "broken", "sent_back", "left"])
    assert.equal(isGood({ outcome }), false, outcome);
});

test("a gateway that has ended or says nothing takes no other one with it", () => {
  for (const status of [404, 502, 503, 504]) assert.ok(concernsOne({ status }), String(status));
  // The server itself is away, or wants its token, or is asked too often.
  for (const status of [0, undefined, 401, 403, 429, 500]) assert.ok(!concernsOne({ status }), String(status));
});

test("of many that wait the first are shown, and the others are counted", () => {
  const waiting = (count) => Array.from({ length: count }, (_, id) => ({ id }));
  assert.deepEqual(waitingRows(waiting(0)), { shown: [], more: 0 });
  assert.deepEqual(waitingRows(waiting(200)), { shown: waiting(200), more: 0 });
  assert.deepEqual(waitingRows(waiting(10_000)), { shown: waiting(200), more: 9_800 });
});
