// The bubbles about waits and errors: why nothing comes, when it goes on, and what a person can do about it.

import { phrase } from "./causes.js";
import { countdown, everyMoment, now } from "./clock.js";
import { h, replace, setOff, setText } from "./dom.js";
import { line } from "./text.js";
import { clockTime, millis } from "./time.js";

/** A gate that would have had the call try by then has not. */
const IN_VAIN = 1_000;

/** When a retry will happen, as things are: by its own schedule, or sooner when the gate would have it so. */
export function wakeOf(wait, time) {
  const own = millis(wait.kind === "held" ? wait.until : wait.retry_at);
  const early = millis(wait.early);
  return early !== undefined && own !== undefined && early < own && time < early + IN_VAIN ? early : own;
}

/** The wait in a sentence that is said once. */
export function waitSentence(wait) {
  if (wait.kind === "trying") return `${phrase(wait.cause)}: trying again now, ${counted(wait)}.`;
  const at = clockTime(wakeOf(wait, now()) ?? now(), now());
  if (wait.kind === "held") return `${held(wait)}, held until ${at}.`;
  return `${phrase(wait.cause)}, retrying at ${at}, ${counted(wait)}.`;
}

/**
 * The yellow bubble about a wait, with `update(wait)` for what comes of it: it stays the same element, so that whoever
 * has a button of it in reach keeps it. `buttons` are *Retry now* and *Cancel*.
 */
export function waitBubble(buttons) {
  const body = h("div", {});
  const actions = h("div", { class: "actions" }, buttons);
  const element = h("div", { class: "bubble retry-bubble", role: "status", test: "retry-bubble" }, body, actions);
  const update = (wait) => {
    element.dataset.kind = wait.kind;
    replace(
      body,
      h("p", { class: "bubble-title" }, h("span", { "aria-hidden": "true" }, "⚠ "), titleOf(wait)),
      wait.message && h("p", { class: "bubble-message" }, line(wait.message, 600)),
      h("p", { class: "bubble-details" }, detailsOf(wait)),
      progress(wait),
    );
    // While it is tried there is nothing to hasten or to call off; the room stays.
    for (const button of buttons) setOff(button, wait.kind === "trying");
  };
  return { element, update };
}

function titleOf(wait) {
  if (wait.kind === "trying") return `${phrase(wait.cause)}, trying again now…`;
  const counter = countdown(h("span", { class: "countdown", test: "retry-countdown" }), (time) => wakeOf(wait, time));
  if (wait.kind === "held") return [`${held(wait)}, held until ${until(wait)}, next try in `, counter, "…"];
  const what = wait.isSummary ? "retrying the summary in " : "retrying in ";
  return [`${phrase(wait.cause)}, ${what}`, counter, "…"];
}

function held(wait) {
  return wait.cause ? phrase(wait.cause) : "Others are ahead";
}

function until(wait) {
  const at = millis(wait.until);
  return at === undefined ? "later" : clockTime(at, now());
}

function counted({ attempt, max_attempts: most }) {
  if (!attempt) return "once more";
  return most ? `retry ${attempt} of ${most}` : `retry ${attempt}`;
}

/** The facts below the title: the code, which retry it is, when it happens. */
function detailsOf(wait) {
  if (wait.kind === "held") return "Other calls have met the same trouble; one of them probes, and the others follow.";
  const facts = [];
  if (wait.code) facts.push(h("span", {}, "code ", h("code", {}, line(wait.code, 80))));
  facts.push(h("span", {}, counted(wait)));
  const at = millis(wait.retry_at);
  if (wait.kind === "retry" && at !== undefined) {
    const time = h("time", { datetime: new Date(at).toISOString() });
    everyMoment(time, (moment) => setText(time, clockTime(wakeOf(wait, moment), moment)));
    facts.push(h("span", {}, "at ", time));
  }
  return facts.map((fact, index) => [index > 0 ? h("span", { class: "dot", "aria-hidden": "true" }, " · ") : "", fact]);
}

/** How much of the wait is over, where it is known when it began. */
function progress(wait) {
  const bar = h("div", { class: "bubble-progress-bar" });
  const track = h("div", { class: "bubble-progress", "aria-hidden": "true" }, bar);
  const end = millis(wait.retry_at ?? wait.until);
  const began = millis(wait.began) ?? (wait.delay_ms === undefined ? undefined : end - wait.delay_ms);
  if (wait.kind !== "retry" || began === undefined || end === undefined || end <= began) {
    track.classList.add("unknown");
    return track;
  }
  everyMoment(track, (time) => {
    const share = Math.min(1, Math.max(0, (time - began) / (end - began)));
    bar.style.width = `${(share * 100).toFixed(1)}%`;
  });
  return track;
}

/** The red bubble about the error that ended a turn. */
export function errorBubble(item, isLast) {
  const facts = [
    item.code && h("span", {}, "code ", h("code", {}, line(item.code, 80))),
    item.reason && h("span", {}, `not tried again: ${line(item.reason, 300)}`),
  ].filter(Boolean);
  return h(
    "div",
    { class: "bubble error-bubble", role: isLast ? "alert" : undefined, test: "error-bubble" },
    h("p", { class: "bubble-title" }, h("span", { "aria-hidden": "true" }, "✕ "), phrase(item.cause)),
    h("p", { class: "bubble-message" }, line(item.message, 2_000)),
    facts.length > 0 &&
      h(
        "p",
        { class: "bubble-details" },
        facts.map((fact, at) => [at > 0 ? h("span", { class: "dot", "aria-hidden": "true" }, " · ") : "", fact]),
      ),
  );
}
