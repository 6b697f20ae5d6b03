// The rules that hold for everything a server says, whatever was asked of it.
//
// A run is `agent_start`, turns, `agent_end`, `agent_settled`, each once and in this order; what belongs to a run stays
// inside of it. What was begun is ended. Answers name their command and repeat its id. A message, and every answer that
// has one, has all that programs written for the protocol read; more may be there.

const cost = { input: "number", output: "number", cacheRead: "number", cacheWrite: "number", total: "number" };
const usage = {
  input: "number",
  output: "number",
  cacheRead: "number",
  cacheWrite: "number",
  totalTokens: "number",
  cost,
};
const result = { content: "array" };
const call = { toolCallId: "string", toolName: "string" };
const messages = {
  user: { content: "any", timestamp: "number" },
  assistant: {
    content: "array",
    api: "string",
    provider: "string",
    model: "string",
    usage,
    stopReason: "string",
    timestamp: "number",
  },
  toolResult: { ...call, content: "array", isError: "boolean", timestamp: "number" },
};
const ofRun = {
  turn_start: {},
  turn_end: { message: "message", toolResults: "array" },
  message_start: { message: "message" },
  message_update: { message: "message", assistantMessageEvent: { type: "string" } },
  message_end: { message: "message" },
  tool_execution_start: { ...call, args: "any" },
  tool_execution_update: { ...call, args: "any", partialResult: "any" },
  tool_execution_end: { ...call, result, isError: "boolean" },
  auto_retry_start: { attempt: "number", maxAttempts: "number", delayMs: "number", errorMessage: "string" },
  auto_retry_end: { success: "boolean", attempt: "number" },
  agent_end: { messages: "array", willRetry: "boolean" },
};
const anywhere = {
  agent_start: {},
  agent_settled: { aborted: "boolean" },
  response: { success: "boolean" },
  queue_update: { steering: "array", followUp: "array" },
  compaction_start: { reason: "string" },
  compaction_end: { reason: "string", aborted: "boolean", willRetry: "boolean" },
  session_info_changed: {},
  thinking_level_changed: { level: "string" },
  summarization_retry_scheduled: { attempt: "number", delayMs: "number", errorMessage: "string" },
  summarization_retry_attempt_start: { source: "string" },
  summarization_retry_finished: {},
  entry_appended: { entry: "object" },
  bash_execution_update: { delta: "string" },
  extension_ui_request: { id: "string", method: "string" },
};

/** Fails when a value lacks something: `shape` is the name of a kind of value, or what each of its fields is like. */
export function has(value, shape, where) {
  if (typeof shape === "object") {
    if (kind(value) !== "object") throw new Error(`${where} is ${kind(value)}, expected an object`);
    for (const [name, inner] of Object.entries(shape)) has(value[name], inner, `${where}.${name}`);
  } else if (shape === "message") {
    hasMessage(value, where);
  } else if (shape === "any" ? value === undefined : kind(value) !== shape) {
    throw new Error(`${where} is ${kind(value)}, expected ${shape}`);
  }
}

export function hasMessage(message, where) {
  has(message, { role: "string" }, where);
  has(message, messages[message.role] ?? {}, `${where} (${message.role})`);
}

function kind(value) {
  if (value === undefined) return "missing";
  if (value === null) return "null";
  return Array.isArray(value) ? "array" : typeof value;
}

export function checkFrames(frames) {
  const state = { run: "none", turn: false, message: false, retry: false, tools: new Set(), ids: new Set() };
  frames.forEach((frame, place) => {
    try {
      checkFrame(frame, state);
    } catch (error) {
      const before = frames.slice(Math.max(0, place - 6), place).map(({ type }) => type);
      throw new Error(`frame ${place} (after ${before.join(", ")}): ${error.message}: ${cut(JSON.stringify(frame))}`);
    }
  });
}

function cut(line) {
  return line.length > 600 ? `${line.slice(0, 600)}…` : line;
}

function expect(condition, problem) {
  if (!condition) throw new Error(problem);
}

function checkFrame(frame, state) {
  const shape = ofRun[frame.type] ?? anywhere[frame.type];
  expect(shape, "this type is not known");
  has(frame, shape, frame.type);
  expect(!ofRun[frame.type] || state.run === "running", "it belongs to a run, and none is going on");
  steps[frame.type]?.(frame, state);
}

// What each frame does to what is going on.
const steps = {
  response(frame, { ids }) {
    expect(frame.success || typeof frame.error === "string", "no error is said");
    // A line that is no command has no name, and what cannot be read no id.
    if (!frame.success && (frame.command === "parse" || frame.command === undefined)) return;
    expect(typeof frame.command === "string", "the command's name is missing");
    expect(frame.id !== undefined, "the command's id is missing");
    expect(!ids.has(frame.id), "it is answered twice");
    ids.add(frame.id);
  },
  agent_start(_, state) {
    expect(state.run === "none", "a run is going on");
    state.run = "running";
  },
  agent_end(frame, state) {
    const open = state.turn || state.message || state.retry || state.tools.size > 0;
    expect(!open, "something was not ended");
    expect(frame.willRetry === false, "it announces a retry");
    for (const message of frame.messages) hasMessage(message, "agent_end.messages");
    state.run = "ended";
  },
  agent_settled(_, state) {
    expect(state.run === "ended", "no run has ended");
    state.run = "none";
  },
  turn_start(_, state) {
    expect(!state.turn, "a turn is open");
    state.turn = true;
  },
  turn_end(_, state) {
    expect(state.turn && !state.message, "no turn is open, or a message still is");
    state.turn = false;
  },
  message_start(_, state) {
    expect(state.turn && !state.message, "no turn is open, or a message still is");
    state.message = true;
  },
  message_update(_, state) {
    expect(state.message, "no message is open");
  },
  message_end(_, state) {
    expect(state.message, "no message is open");
    state.message = false;
  },
  tool_execution_start(frame, { tools }) {
    expect(!tools.has(frame.toolCallId), "it has started already");
    tools.add(frame.toolCallId);
  },
  tool_execution_end(frame, { tools }) {
    expect(tools.delete(frame.toolCallId), "it has not started");
  },
  auto_retry_start(_, state) {
    expect(!state.turn, "the failed turn is still open");
    state.retry = true;
  },
  auto_retry_end(_, state) {
    expect(state.retry, "no retry was said");
    state.retry = false;
  },
};
