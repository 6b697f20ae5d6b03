// What a session has said so far, made of its events. Pure: no page, no clock; the time is that of the events.
//
// `apply(state, event)` takes one event in and returns what changed, so that a view changes no more than that:
// `{kind: "add" | "update" | "remove", item}`, or `{kind}` alone with `bubble` (a wait), `queue` or `head` (model, title,
// whether it runs). Events of a snapshot and events that just happen go the same way.
// Not here: what anything looks like (`transcript-view.js`), and how events come (`follow.js`).

import { describe, noteTone } from "./notes.js";
import { SEAM } from "./text.js";
import { millis } from "./time.js";

/** A session of which nothing is known yet. */
export function newTranscript() {
  return {
    items: [],
    tools: new Map(),
    open: undefined,
    seam: undefined,
    turn: "",
    attempt: 0,
    nextKey: 1,
    running: false,
    seal: undefined,
    retry: undefined,
    held: undefined,
    compacting: false,
    queue: { steering: [], follow_up: [] },
    model: "",
    provider: "",
    title: "",
    state: "",
  };
}

/** Takes an event in and says what changed. An event that nobody knows changes nothing. */
export function apply(state, event) {
  const changes = [];
  if (event === null || typeof event !== "object" || !Object.hasOwn(TAKE, event.type)) return changes;
  if (event.turn_id && event.turn_id !== state.turn) {
    state.turn = event.turn_id;
    state.attempt = 0;
    close(state);
  }
  const attempt = /\.(\d+)$/.exec(event.attempt_id ?? "");
  if (attempt) state.attempt = Number(attempt[1]);
  TAKE[event.type](state, event, changes);
  return changes;
}

/** Begins anew with a snapshot: its events, and then where the session stands. */
export function fromSnapshot(snapshot) {
  const state = newTranscript();
  for (const event of snapshot.events ?? []) apply(state, event);
  stand(state, snapshot.session ?? {});
  return state;
}

/** Where the session stands counts before what its events have said of it. */
export function stand(state, session) {
  const { retry, held, model } = session;
  state.running = ["running", "waiting"].includes(session.state);
  state.compacting &&= state.running;
  state.state = session.state ?? "";
  state.seal = session.last_seal ?? state.seal;
  state.title = session.title ?? state.title;
  [state.provider, state.model] = [model?.provider ?? state.provider, model?.id ?? state.model];
  state.queue = queueOf(session.queue);
  // What its event has said in addition: the code, and when the wait began.
  const known = state.retry?.attempt === retry?.attempt ? state.retry : undefined;
  state.retry = retry && { ...known, ...retry, retry_at: retry.wake_at };
  state.held = held && { ...held, isEarly: isEarly(state.retry, session.now) };
}

/** The text of an answer, with a mark wherever it broke off and goes on. */
export function answerText(item) {
  return item.parts.map((part) => (part.seam ? SEAM : "") + part.text.replaceAll(SEAM, "")).join("");
}

// --- What each event does ---

const TAKE = {
  start(state, event, changes) {
    [state.running, state.seal] = [true, undefined];
    [state.provider, state.model] = [event.provider, event.model];
    changes.push({ kind: "head" });
  },
  input(state, event, changes) {
    close(state);
    add(state, changes, { type: "user", text: event.text, time: event.time });
  },
  queue_changed(state, event, changes) {
    state.queue = queueOf(event);
    changes.push({ kind: "queue" });
  },
  renamed(state, event, changes) {
    state.title = event.title;
    changes.push({ kind: "head" });
  },
  account_blocked: note,
  attempt_started(state, event, changes) {
    state.attempt = event.attempt;
    close(state);
    const waited = state.held || state.retry;
    state.held = undefined;
    if (state.retry) state.retry = { ...state.retry, retry_at: undefined };
    if (waited) changes.push({ kind: "bubble" });
  },
  text_delta(state, event, changes) {
    hear(state, changes);
    write(state, changes, { type: "assistant", text: event.text, time: event.time });
  },
  reasoning_delta(state, event, changes) {
    hear(state, changes);
    write(state, changes, { type: "reasoning", text: event.text, time: event.time });
  },
  reasoning_done(state, event, changes) {
    hear(state, changes);
    // Its pieces came before, where they may be read at all; a snapshot may have it whole.
    if (state.open?.type !== "reasoning" && event.text) {
      write(state, changes, { type: "reasoning", text: event.text, time: event.time });
    }
    close(state);
  },
  tool_call(state, event, changes) {
    hear(state, changes);
    close(state);
    const { id, name, arguments: args, time } = event;
    const item = add(state, changes, { type: "tool", id, name, args, phase: "called", time });
    state.tools.set(id, item);
  },
  tool_started(state, event, changes) {
    tool(state, event, changes, { phase: "running" });
  },
  tool_result(state, event, changes) {
    const phase = event.is_error ? "failed" : "done";
    tool(state, event, changes, { phase, output: event.output });
  },
  unrecorded: note,
  usage() {},
  retracted(state, event, changes) {
    retract(state, event.attempt, changes);
    note(state, event, changes);
  },
  seam(state, event) {
    // The answer that broke off is the last one of this turn; what follows goes on in it.
    const last = state.items.findLast((item) => item.type !== "note");
    state.open = last?.type === "assistant" && last.turn === state.turn ? last : undefined;
    state.seam = event.by;
  },
  model_switched(state, event, changes) {
    state.model = event.to;
    changes.push({ kind: "head" });
    note(state, event, changes);
  },
  corrected: note,
  warning: note,
  billed_twice: note,
  step_complete(state, _event, changes) {
    hear(state, changes);
    close(state);
  },
  retry_scheduled(state, event, changes) {
    state.retry = { ...event, began: event.time };
    state.held = undefined;
    changes.push({ kind: "bubble" });
  },
  held(state, event, changes) {
    state.held = { until: event.until, cause: event.cause, isEarly: isEarly(state.retry, event.time) };
    changes.push({ kind: "bubble" });
  },
  auto_compaction_started(state, event, changes) {
    state.compacting = true;
    changes.push({ kind: "head" });
    note(state, event, changes);
  },
  auto_compaction_retry(state, event, changes) {
    state.retry = { ...event, began: event.time, isSummary: true };
    changes.push({ kind: "bubble" });
  },
  auto_compaction_ended(state, event, changes) {
    state.compacting = false;
    if (state.retry?.isSummary) hear(state, changes);
    changes.push({ kind: "head" });
    note(state, event, changes);
  },
  retry_ended(state, _event, changes) {
    hear(state, changes);
  },
  error(state, event, changes) {
    hear(state, changes);
    close(state);
    const { cause, message, code, reason, time } = event;
    add(state, changes, { type: "error", cause, message, code, reason, time });
  },
  done(state, _event, changes) {
    hear(state, changes);
    close(state);
  },
  sealed(state, event, changes) {
    hear(state, changes);
    close(state);
    [state.running, state.compacting, state.seal, state.state] = [false, false, event.status, "idle"];
    changes.push({ kind: "head" });
    if (event.status === "aborted") note(state, event, changes);
  },
};

// --- How they do it ---

function close(state) {
  [state.open, state.seam] = [undefined, undefined];
}

function add(state, changes, item) {
  const whole = { key: state.nextKey++, turn: state.turn, attempt: state.attempt, ...item };
  state.items.push(whole);
  changes.push({ kind: "add", item: whole });
  return whole;
}

/** A piece of an answer or of reasoning: added to what is being said, or the beginning of something new. */
function write(state, changes, piece) {
  if (!piece.text) return;
  const part = { attempt: state.attempt, text: piece.text, seam: state.seam };
  const { open } = state;
  if (open?.type === piece.type) {
    const last = open.parts.at(-1);
    if (last.attempt === part.attempt && !part.seam) last.text += part.text;
    else open.parts.push(part);
    changes.push({ kind: "update", item: open });
  } else {
    const { type, time } = piece;
    state.open = add(state, changes, { type, parts: [part], time });
  }
  state.seam = undefined;
}

function tool(state, event, changes, fields) {
  const known = state.tools.get(event.id);
  if (known) {
    Object.assign(known, fields);
    changes.push({ kind: "update", item: known });
    return;
  }
  const { id, name = "tool", time } = event;
  state.tools.set(id, add(state, changes, { type: "tool", id, name, args: "", time, ...fields }));
}

function note(state, event, changes) {
  const text = describe(event);
  if (text) add(state, changes, { type: "note", tone: noteTone(event), text, time: event.time });
}

/** Something came: whatever was waited for is over. */
function hear(state, changes) {
  if (!state.retry && !state.held) return;
  [state.retry, state.held] = [undefined, undefined];
  changes.push({ kind: "bubble" });
}

/** Takes back what an attempt of this turn has said. */
function retract(state, attempt, changes) {
  close(state);
  const said = (item) => item.turn === state.turn && ["assistant", "reasoning", "tool"].includes(item.type);
  for (const item of state.items.filter(said)) {
    const kept = item.parts?.filter((part) => part.attempt !== attempt) ?? [];
    const isGone = item.parts ? kept.length === 0 : item.attempt === attempt;
    if (isGone) {
      state.items.splice(state.items.indexOf(item), 1);
      if (state.tools.get(item.id) === item) state.tools.delete(item.id);
      changes.push({ kind: "remove", item });
    } else if (item.parts && kept.length < item.parts.length) {
      item.parts = kept;
      changes.push({ kind: "update", item });
    }
  }
}

/** Before a retry's own time, a gate can only make it come sooner. */
function isEarly(retry, now) {
  return (millis(retry?.retry_at) ?? 0) > (millis(now) ?? 0);
}

function queueOf(queue) {
  return { steering: queue?.steering ?? [], follow_up: queue?.follow_up ?? [] };
}
