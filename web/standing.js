// How a session stands, as its transcript has it: what it waits for, and all of it in a word. Pure.

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
