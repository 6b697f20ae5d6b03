// One run: its steps as a graph and over time, what they wait for and what they ask.

import { api, part, post } from "./api.js";
import { phrase } from "./causes.js";
import { countdown, now, sinceThen } from "./clock.js";
import { attempt, confirm } from "./dialog.js";
import { button, h, replace, setText, show } from "./dom.js";
import { icon } from "./icons.js";
import { keepingFocus, page, section, whenOther } from "./page.js";
import { poll } from "./poll.js";
import { link } from "./router.js";
import { runGraph } from "./run-graph.js";
import { attemptCount, stepState } from "./run-layout.js";
import { runTimeline } from "./run-timeline.js";
import { stateChip } from "./states.js";
import { line, shortPath, words } from "./text.js";
import { clockTime, millis, span } from "./time.js";

/** The run of that name. */
export function runView(id) {
  return new RunView(id);
}

class RunView {
  constructor(id) {
    this.at = `runs/${part(id)}`;
    this.retryAll = button("Retry now", { class: "primary", "data-key": "r", hidden: true, test: "run-retry" }, () =>
      this.#do("retry_now", {}),
    );
    this.cancel = button("Cancel the run", { hidden: true, test: "run-cancel" }, () => this.#cancel());
    this.chip = h("span", { class: "chip-slot" });
    const { element, heading, body, fail, well } = page("Run", undefined, this.chip, this.retryAll, this.cancel);
    [this.element, this.heading, this.well, this.fail] = [element, heading, well, fail];
    heading.before(h("a", { class: "crumb", href: link("runs") }, icon("back"), "All runs"));
    this.facts = h("p", { class: "lead" });
    heading.after(this.facts);
    this.error = h("div", { class: "bubble error-bubble", role: "alert", hidden: true });
    this.hint = h(
      "p",
      { class: "bubble retry-bubble", hidden: true },
      "No process is at work on this run. ",
      h("code", {}, "outlast run --resume"),
      " carries it on.",
    );
    this.graph = runGraph((step) => this.#choose(step));
    this.timeline = runTimeline();
    this.steps = h("ul", { class: "facts" });
    body.append(
      this.error,
      this.hint,
      section("Steps", { class: "card" }, this.graph.element),
      section("Over time", { class: "card" }, this.timeline.element),
      section("What each step does", { class: "card" }, this.steps),
    );
    this.drawHead = whenOther((run) => this.#head(run));
    this.drawSteps = whenOther((steps) =>
      keepingFocus(this.steps, () =>
        replace(
          this.steps,
          steps.map((step) => this.#step(step)),
        ),
      ),
    );
    this.polling = poll(
      (signal) => this.#load(signal),
      1_000,
      (problem) => this.fail(problem),
    );
  }

  close() {
    this.polling.stop();
    this.graph.close();
    this.timeline.close();
  }

  async #load(signal) {
    const { run } = await api(this.at, { signal });
    const { steps = [], ...head } = run;
    this.drawHead({ ...head, isWaiting: steps.some((step) => step.waiting?.cause) });
    this.graph.update(run);
    this.timeline.update(run);
    this.drawSteps(steps);
    this.well();
    // A run that is over changes only when somebody takes it up again.
    return run.ended ? 10_000 : 1_000;
  }

  #head(run) {
    const name = line(run.pipeline, 120) || "Run";
    document.title = `${name} · Outlast`;
    setText(this.heading, name);
    const created = millis(run.created);
    const ended = millis(run.ended);
    replace(
      this.facts,
      [
        run.file && h("bdi", { class: "path", title: run.file }, shortPath(run.file)),
        run.directory && h("bdi", { class: "path", title: run.directory }, shortPath(run.directory)),
        created !== undefined && h("span", {}, "begun ", sinceThen(h("span", {}), created)),
        ended !== undefined && created !== undefined && h("span", {}, `took ${span(ended - created)}`),
      ]
        .filter(Boolean)
        .map((fact) => h("span", { class: "fact-part" }, fact)),
    );
    replace(this.chip, stateChip(run.outcome ?? run.state));
    show(this.retryAll, Boolean(run.isWaiting));
    show(this.cancel, !run.ended);
    show(this.hint, run.state === "unfinished");
    show(this.error, Boolean(run.error));
    if (run.error)
      replace(
        this.error,
        h("p", { class: "bubble-title" }, "✕ It did not end well"),
        h("p", { class: "bubble-message" }, line(run.error, 2_000)),
      );
  }

  #step(step) {
    const state = stepState(step);
    const attempts = attemptCount(step);
    const last = (step.attempts ?? []).findLast((one) => one.message || one.cause);
    const about = [
      step.kind && words(step.kind),
      step.needs?.length > 0 && `needs ${line(step.needs.join(", "), 200)}`,
      step.part_of && `part of ${line(step.part_of, 80)}`,
    ];
    return h(
      "li",
      { class: "fact step", tabindex: "-1", "data-step-row": step.id },
      h(
        "div",
        { class: "fact-name" },
        h("strong", {}, line(step.id, 120)),
        h("span", { class: "quiet" }, about.filter(Boolean).join(" · ")),
      ),
      h(
        "div",
        { class: "fact-state" },
        stateChip(state),
        attempts > 0 && h("span", { class: "quiet" }, `${attempts} ${attempts === 1 ? "attempt" : "attempts"}`),
      ),
      last && h("p", { class: "fact-more" }, last.cause && h("strong", {}, `${phrase(last.cause)}. `), line(last.message, 600)),
      step.waiting?.cause && this.#waiting(step),
      (step.question || (step.waiting && !step.waiting.cause)) && this.#question(step),
    );
  }

  #waiting({ id, waiting }) {
    const until = millis(waiting.until);
    const which = waiting.attempt ? ` (attempt ${waiting.attempt})` : "";
    return h(
      "div",
      { class: "bubble retry-bubble inline" },
      h(
        "p",
        { class: "bubble-title" },
        `⚠ ${phrase(waiting.cause)}`,
        until !== undefined && [", retrying in ", countdown(h("span", { class: "countdown" }), until), "…"],
      ),
      waiting.message && h("p", { class: "bubble-message" }, line(waiting.message, 600)),
      h("p", { class: "bubble-details" }, until === undefined ? "" : `at ${clockTime(until, now())}${which}`),
      h(
        "div",
        { class: "actions" },
        button("Retry now", { "data-focus": `retry-${id}`, "aria-label": `Retry now: ${line(id, 80)}` }, () =>
          this.#do("retry_now", { step: id }),
        ),
      ),
    );
  }

  /** What a gate asks, and until when it is open. */
  #question({ id, question, waiting }) {
    const choices = question?.choices ?? [];
    const pick = ({ key, label }) =>
      button(line(label || key, 100), { "data-focus": `answer-${id}-${key}`, test: "answer" }, () =>
        this.#do("answer", { step: id, choice: key }),
      );
    const until = millis(waiting?.until);
    return h(
      "div",
      { class: "bubble ask-bubble" },
      h(
        "p",
        { class: "bubble-title" },
        question ? `? ${line(question.text, 2_000) || "A decision is needed"}` : "Waits for a time",
      ),
      until !== undefined &&
        h(
          "p",
          { class: "bubble-details" },
          `open until ${clockTime(until, now())}, `,
          countdown(h("span", { class: "countdown" }), until, "now"),
        ),
      choices.length > 0 && h("div", { class: "actions" }, choices.map(pick)),
    );
  }

  #choose(id) {
    const row = this.steps.querySelector(`[data-step-row="${CSS.escape(id)}"]`);
    row?.scrollIntoView({ block: "center" });
    row?.focus({ preventScroll: true });
  }

  async #do(what, body) {
    await attempt(() => post(`${this.at}/${what}`, body));
    this.polling.soon();
  }

  async #cancel() {
    if (await confirm("Cancel this run?", "Steps that run are ended. What they have done so far stays.", "Cancel the run"))
      await this.#do("cancel", {});
  }
}
