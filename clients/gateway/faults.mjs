// What goes wrong at the provider, and what is to come of it behind the gateway.
import assert from "node:assert/strict";

// A wait of 90 seconds takes three, and the clients, whose time is the real one, do not lose patience.
export const SCALE = 30;

// `fails`: how many requests the fault costs.
//
// What the same clients do with these faults when nothing is between them and the provider was measured once, with
// `--direct`, and stands here to show that these cases can fail. A number is how often the provider was asked; a dash
// before it says that the client gave up.
//
//                                 statuses  limit    drop   cut    error
//   anthropic SDK, streamed       -3        2        -1     -1     -1
//   anthropic SDK, whole          -3        2        2      2      -1
//   openai chat SDK, streamed     -3        2        -1     -1     -1
//   openai chat SDK, whole        -3        2        2      2      -1
//   openai responses SDK, str.    -3        2        -1     -1     -1
//   openai responses SDK, whole   -3        2        2      2      -1
//   Claude Code                   4         -1       2      2      2
//   Codex                         -1        2        2      2      -1
//   opencode, anthropic           4         2        2      2      2
//   opencode, chat                4         2        2      2      2
//   pi, chat                      -3        2        2      2      2
export const FAULTS = [
  { name: "statuses", script: "error:429+error:503+error:529", fails: 3 },
  { name: "limit", script: "rate-limited:retry-after=90", fails: 1, check: waitedFor(90) },
  { name: "drop", script: "drop-after:0", fails: 1 },
  { name: "cut", script: "cut:20", fails: 1 },
  { name: "error", script: "in-band:overloaded,after=0", fails: 1 },
];

export const OUTAGES = [
  { minutes: 7, script: "outage:420" },
  { minutes: 15, script: "outage:900" },
];

/** The provider was not asked again before its time, and soon after it. */
function waitedFor(seconds) {
  return (asked) => {
    const [first, second] = [asked[0], asked.at(-1)].map(({ time }) => Date.parse(time) / 1000);
    const waited = second - first;
    assert.ok(waited >= seconds && waited < seconds * 2, `asked again after ${waited} s`);
  };
}
