// How a session stands, as its transcript has it: what it waits for, and all of it in a word. And how it is followed. Pure.

import { line } from "./text.js";

/** The wait that is to be shown, if there is one: `{kind: "retry" | "trying" | "held", …}`. */
export function waitOf(state) {
  const { retry, held } = state;
  if (held && !held.isEarly) return { kind: "held", ...held };
  if (!retry) return undefined;
  if (retry.retry_at === undefined) return { kind: "trying", ...retry };
  return { kind: "retry", ...retry, early: held?.until };
}

const SEALS = { completed: "finished", error: "failed", aborted: "cancelled" };

/** How it stands, in a word. */
export function standing(state) {
  if (state.running) {
    const wait = waitOf(state);
    if (wait) return wait.kind === "held" ? "held" : "retrying";
    return state.compacting ? "compacting" : "running";
  }
  if (["unfinished", "elsewhere"].includes(state.state)) return state.state;
  return SEALS[state.seal] ?? state.state;
}

/** Whether a session does something else than its transcript has it. What a turn waits for is told by events alone. */
export function disagrees(state, told) {
  const isBusy = ["running", "waiting"].includes(told);
  return state.running || isBusy ? state.running !== isBusy : state.state !== told;
}

/** What is said of a session in which nothing can be said as things are; that may have been mended since. */
export function problemWords(problem) {
  const told = line(problem, 300).replace(/[.\s]+$/, "");
  return told ? `Nothing can be said here as things are: ${told}.` : undefined;
}

/** What is said of a connection that is `lost`, with what the server has told of it, or of a session that is `gone`. */
export function connectionWords(word, problem) {
  if (word === "gone") return "There is no such session. It was deleted, or the server ended before anything was said in it.";
  const told = line(problem?.detail, 300).replace(/[.\s]+$/, "");
  return `${told ? `The session cannot be followed: ${told}` : "The connection is lost"}. Trying again…`;
}
