// Claude Code as a step.
import assert from "node:assert/strict";

// It waits and tries again itself, unless it is told not to.
const AT_ONCE = { CLAUDE_CODE_MAX_RETRIES: "0" };
const retry = { policy: "aggressive" };
const agent = "claude";
const MAKE = 'call Bash {"command": "echo made > made.txt", "description": "Make a file"}\nsay It is made.';

// Longer than the program takes to end after the refusal, however slow the machine is.
const LIMIT_S = 20;

export const cases = [
  // The longest comes first.
  ["claude: the end of a usage limit is waited for", async (stage) => {
    // The limits of a plan, and their ends, are told to those who are logged in.
    const env = { ...AT_ONCE, ANTHROPIC_API_KEY: "", CLAUDE_CODE_OAUTH_TOKEN: "made-up" };
    const ran = await stage.play(`usage-limit:reset=${LIMIT_S}`, { agent, prompt: "Hello", retry, env });
    assert.deepEqual(ran.attempts, [["transient", "usage_limit", "wait"], ["done"]]);
    const [refused] = await stage.asked();
    // The provider tells the end in whole seconds.
    const difference = Date.parse(ran.ended[0].next.until) - (Date.parse(refused.time) + LIMIT_S * 1000);
    assert.ok(Math.abs(difference) <= 1000, `it waits ${difference} ms longer than the limit lasts`);
  }],

  ["claude: it works where it is allowed to, and what it says is the step's output", async (stage) => {
    const ran = await stage.play("ok:agent,times=always", { agent, prompt: MAKE, allow: ["bash"] });
    assert.deepEqual(ran.attempts, [["done"]]);
    assert.equal(ran.code, 0);
    assert.equal(ran.output, "It is made.");
    assert.ok(stage.made("made.txt"));
    assert.ok(ran.ended[0].usage.input > 0, "what it used is known");
    assert.ok(ran.ended[0].cost > 0, "what it cost is known");
  }],

  ["claude: it runs nothing where it is not allowed to", async (stage) => {
    const ran = await stage.play("ok:agent,times=always", { agent, prompt: MAKE });
    assert.equal(ran.code, 0);
    assert.ok(!stage.made("made.txt"));
  }],

  ["claude: what it outlasts itself is one attempt", async (stage) => {
    const ran = await stage.play("overloaded:2", { agent, prompt: "Hello", retry });
    assert.deepEqual(ran.attempts, [["done"]]);
  }],

  ["claude: an overloaded provider is transient, and the step tries again", async (stage) => {
    const ran = await stage.play("overloaded:2", { agent, prompt: "Hello", retry, env: AT_ONCE });
    const waited = ["transient", "overloaded", "wait"];
    assert.deepEqual(ran.attempts, [waited, waited, ["done"]]);
    assert.equal(ran.code, 0);
  }],

  ["claude: a key that is not valid stops the step at once", async (stage) => {
    const ran = await stage.play("error:401,times=always", { agent, prompt: "Hello", retry, env: AT_ONCE });
    assert.deepEqual(ran.attempts, [["deterministic", "auth", "stop"]]);
    assert.equal(ran.code, 1);
  }],

  ["claude: pi takes its place when the request is too large for it", async (stage) => {
    const runtime = { fallbacks: { claude: ["pi"] } };
    const ran = await stage.play("overflow", { agent, prompt: "Hello", retry }, { runtime });
    assert.deepEqual(ran.attempts, [["budget_exhausted", "context_overflow", "fall_back"], ["done"]]);
    assert.equal(ran.code, 0);
  }],

  ["claude: without its program nothing is tried again", async (stage) => {
    stage.env.PATH = "/usr/bin:/bin";
    const ran = await stage.play("ok", { agent, prompt: "Hello", retry });
    assert.deepEqual(ran.attempts, [["deterministic", "missing_binary", "stop"]]);
  }],
];
