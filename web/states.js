// How sessions, runs and steps stand, as a word in a colour.

import { chip } from "./dom.js";
import { words } from "./text.js";

const TONES = {
  running: "busy",
  working: "busy",
  compacting: "busy",
  reworking: "busy",
  retrying: "warn",
  waiting: "warn",
  held: "warn",
  unfinished: "warn",
  interrupted: "warn",
  at_gate: "ask",
  asking: "ask",
  failed: "bad",
  error: "bad",
  finished: "good",
  completed: "good",
  continued: "soft-bad",
};

/** The tone of a state. */
export function tone(state) {
  const name = String(state ?? "").replace(/ /g, "_");
  return Object.hasOwn(TONES, name) ? TONES[name] : "plain";
}

/** The chip of a state. */
export function stateChip(state) {
  return chip(state === "elsewhere" ? "open elsewhere" : words(state || "new"), `tone-${tone(state)}`);
}
