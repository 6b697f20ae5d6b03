// What tests of the transcript share: a session that hears events.

import { answerText, apply, newTranscript } from "../transcript.js";

const AT = "2030-01-01T12:00:00.000Z";
export const later = (seconds) => new Date(Date.parse(AT) + seconds * 1_000).toISOString();

/** A session that has heard events of one turn; each gets a time and a place in it. */
export function heard(...events) {
  const state = newTranscript();
  const changes = events.map((event) => apply(state, { time: AT, turn_id: "t1", ...event }));
  return {
    state,
    changes: changes.flat(),
    last: changes.at(-1),
    say: (event) => apply(state, { time: AT, turn_id: "t1", ...event }),
  };
}

export const begun = [
  { type: "start", provider: "p", model: "m" },
  { type: "input", text: "hello" },
  { type: "attempt_started", attempt: 1 },
];
export const retry = {
  type: "retry_scheduled",
  attempt: 1,
  max_attempts: 4,
  delay_ms: 5_000,
  retry_at: later(5),
  cause: "overloaded",
  message: "Overloaded",
  code: "529",
};
export const kinds = (changes) => changes.map(({ kind }) => kind);
export const types = (state) => state.items.map(({ type }) => type);
export const texts = (state) => state.items.filter(({ type }) => type === "assistant").map(answerText);
