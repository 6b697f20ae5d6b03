// Small things that happen in a session, each in a line for a person. Pure.

import { phrase } from "./causes.js";
import { amount, clean, line } from "./text.js";
import { clockTime, millis } from "./time.js";

const WAYS = {
  resume: "its stream is taken up",
  prefill: "after its own words",
  prompt: "as the model was asked to",
  restart: "from the beginning",
};

const REASONS = {
  threshold: ": it comes close to what the model can read",
  overflow: ": it is more than the model can read",
  too_many_bytes: ": it has more bytes than the provider takes",
  slow_upload: ": sending it takes too long",
};

/** How an answer goes on that broke off. */
export function seamWords(by) {
  return `The answer broke off here and goes on (${WAYS[by] ?? "from there"})`;
}

/** The line about an event; nothing when there is nothing to say. */
export function describe(event) {
  const say = SAY[event.type];
  return say ? clean(say(event), 2_000) : "";
}

const SAY = {
  account_blocked: ({ name, cause, until, time }) =>
    `Account ${line(name)}: ${phrase(cause)}, set aside until ${at(until, time)}`,
  unrecorded: ({ message }) => `This cannot be written down, and could not be carried on after a crash: ${message}`,
  retracted: () => "The answer broke off. What it had said does not count; it is asked for anew.",
  model_switched({ from, to, cause, until, time }) {
    const why = cause ? `${phrase(cause)}: ` : "";
    const end = until ? `, until ${at(until, time)}` : "";
    return `${why}${line(to)} is asked instead of ${line(from)}${end}`;
  },
  corrected({ message, attempt, max_attempts: most }) {
    const problem = String(message ?? "").split("; ")[0];
    return `${problem}: the model is told so (${attempt}/${most})`;
  },
  warning: ({ message }) => message,
  billed_twice({ usage = {}, estimated }) {
    const read = (usage.input ?? 0) + (usage.cache_read ?? 0) + (usage.cache_write ?? 0);
    const written = usage.output ? ` and ${amount(usage.output)} written` : "";
    const about = estimated ? "about " : "";
    return `What had to be asked for again cost ${about}${amount(read)} tokens read${written} in addition`;
  },
  auto_compaction_started: ({ reason, tokens }) =>
    `Making the conversation of about ${amount(tokens)} tokens smaller${REASONS[reason] ?? ""}`,
  auto_compaction_ended({ before, after, error }) {
    if (error) return `The conversation could not be made smaller: ${error}`;
    return `The conversation was made smaller, from about ${amount(before)} to about ${amount(after)} tokens`;
  },
  sealed: ({ status }) => (status === "aborted" ? "Stopped" : ""),
};

/** Whether a person should look at it. */
export function noteTone({ type }) {
  return ["account_blocked", "unrecorded", "warning", "corrected"].includes(type) ? "warn" : "quiet";
}

function at(time, now) {
  const then = millis(time);
  return then === undefined ? "later" : clockTime(then, millis(now) ?? then);
}
