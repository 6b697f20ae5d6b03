// Where a person writes. Enter sends, Shift+Enter begins a new line. While a turn runs, what is written goes to the model
// as soon as it can be told something, or when it has answered.

import { h, replace, setText, show } from "./dom.js";
import { icon } from "./icons.js";

const HINT = "Enter sends, Shift+Enter begins a new line";

/** What was written and not sent yet, for each session. */
const drafts = new Map();

/**
 * A composer. `draft` names what was written there before; `say(text, deliver)` says something and returns whether that
 * went well; `stop()` ends the turn.
 */
export function composer({ draft, say, stop }) {
  const { form, input, send, stopper, ways, hint } = parts(drafts.get(draft) ?? "");

  const fit = () => {
    input.style.height = "auto";
    input.style.height = `${Math.min(input.scrollHeight + 2, 240)}px`;
    if (input.value) drafts.set(draft, input.value);
    else drafts.delete(draft);
    // Nothing to send is no reason to lose the focus: it is said, and the button stays where it is.
    send.setAttribute("aria-disabled", String(input.value.trim() === ""));
  };
  const submit = async (event) => {
    event.preventDefault();
    const text = input.value;
    if (text.trim() === "" || input.disabled) return;
    input.value = "";
    fit();
    const isSaid = await say(text, ways.element.hidden ? undefined : ways.value());
    // What was not said is not lost.
    if (!isSaid && input.value === "") input.value = text;
    fit();
  };
  form.addEventListener("submit", submit);
  input.addEventListener("input", fit);
  input.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && !event.shiftKey && !event.isComposing) submit(event);
    else if (event.key === "Escape") input.blur();
  });
  stopper.addEventListener("click", stop);
  requestAnimationFrame(fit);

  return {
    element: form,
    focus: () => input.focus(),
    /** Whether a turn runs, and why nothing can be said, if so, or why it may fail. */
    update({ isRunning, refusal, warning }) {
      show(ways.element, isRunning);
      show(stopper, isRunning);
      input.disabled = Boolean(refusal);
      input.placeholder = isRunning ? "Say something meanwhile…" : "Write a message…";
      setText(hint, refusal ?? warning ?? HINT);
    },
  };
}

function parts(value) {
  const input = h("textarea", {
    rows: "1",
    id: "composer",
    "aria-label": "Message",
    "aria-describedby": "composer-hint",
    placeholder: "Write a message…",
    "data-key": "/",
    test: "composer",
    enterkeyhint: "send",
    value,
  });
  const send = h("button", { type: "submit", class: "primary send", "aria-label": "Send", test: "send" }, icon("send"));
  const stopper = h("button", { type: "button", class: "stop", "aria-label": "Stop the turn", test: "abort", hidden: true }, icon("stop"));
  const ways = deliverWays();
  const hint = h("p", { class: "composer-hint", id: "composer-hint" }, HINT);
  const form = h(
    "form",
    { class: "composer" },
    h("div", { class: "composer-row" }, input, stopper, send),
    h("div", { class: "composer-foot" }, ways.element, hint),
  );
  return { form, input, send, stopper, ways, hint };
}

function deliverWays() {
  const choice = (value, label, title, checked) => [
    h("label", { class: "way", title }, h("input", { type: "radio", name: "deliver", value, checked }), h("span", {}, label)),
  ];
  const element = h(
    "fieldset",
    { class: "ways", hidden: true },
    h("legend", { class: "unseen" }, "When it is said"),
    choice("steer", "Steer", "Said with the next call of the turn that runs", true),
    choice("follow_up", "Follow up", "Said when this turn has answered", false),
  );
  return { element, value: () => element.querySelector("input:checked")?.value ?? "steer" };
}

/** What waits to be said. */
export function showQueue(element, queue) {
  const { steering, follow_up: followUp } = queue;
  show(element, steering.length + followUp.length > 0);
  const row = (kind) => (text) => h("li", {}, h("span", { class: "chip" }, kind), h("span", { class: "queue-text" }, text));
  replace(
    element,
    h("p", { class: "label" }, "Waits to be said"),
    h("ul", {}, steering.map(row("steer")), followUp.map(row("follow-up"))),
  );
}
