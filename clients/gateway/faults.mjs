// What goes wrong at the provider, and what is to come of it behind the gateway.
import assert from "node:assert/strict";

// A wait of 90 seconds takes four and a half, and the clients, whose time is the real one, do not lose patience. The time
// limits of the gateway, such as ten seconds for a connection, still leave a slow machine enough.
export const SCALE = 20;

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

/** The provider was not asked again before its time, and the gateway did not plan to wait much longer. */
function waitedFor(seconds) {
  return (asked, scene) => {
    const between = (from, to) => (Date.parse(to) - Date.parse(from)) / 1000;
    const waited = between(asked[0].time, asked.at(-1).time);
    assert.ok(waited >= seconds, `asked again after ${waited} s`);
    const [{ time, wake }] = scene.events("waiting");
    assert.ok(between(time, wake) < seconds * 1.5, `the gateway waits ${between(time, wake)} s`);
  };
}
