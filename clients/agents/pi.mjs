// pi as a step. It exits with 0 whatever happened.
import assert from "node:assert/strict";

const retry = { policy: "aggressive" };
const agent = "pi";
const MAKE = 'call bash {"command": "echo made > made.txt"}\nsay It is made.';

export const cases = [
  ["pi: it works where it is allowed to, and what it says is the step's output", async (stage) => {
    const ran = await stage.play("ok:agent,times=always", { agent, prompt: MAKE, allow: ["bash"] });
    assert.deepEqual(ran.attempts, [["done"]]);
    assert.equal(ran.output, "It is made.");
    assert.ok(stage.made("made.txt"));
    assert.ok(ran.ended[0].usage.input > 0, "what it used is known");
  }],

  ["pi: it runs nothing where it is not allowed to", async (stage) => {
    const ran = await stage.play("ok:agent,times=always", { agent, prompt: MAKE });
    assert.equal(ran.code, 0);
    assert.ok(!stage.made("made.txt"));
  }],

  ["pi: an overloaded provider is transient, and the step tries again", async (stage) => {
    // Each of its attempts is three requests.
    const ran = await stage.play("overloaded:5", { agent, prompt: "Hello", retry });
    assert.deepEqual(ran.attempts, [["transient", "overloaded", "wait"], ["done"]]);
    assert.equal(ran.code, 0);
  }],

  ["pi: a usage limit is transient", async (stage) => {
    let lifted;
    // The limit lasts until the first attempt has failed.
    const hear = ({ type }) => {
      if (type === "attempt_ended") lifted ??= stage.direct("ok");
    };
    const ran = await stage.play("usage-limit:reset=3600", { agent, prompt: "Hello", retry }, { hear });
    await lifted;
    assert.deepEqual(ran.attempts[0], ["transient", "usage_limit", "wait"]);
    assert.deepEqual(ran.attempts.at(-1), ["done"]);
  }],

  ["pi: a key that is not valid stops the step at once", async (stage) => {
    const ran = await stage.play("error:401,times=always", { agent, prompt: "Hello", retry });
    assert.deepEqual(ran.attempts, [["deterministic", "auth", "stop"]]);
    assert.equal(ran.code, 1);
  }],
];
