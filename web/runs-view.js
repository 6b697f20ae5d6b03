// Runs of pipelines: the list, and how one is started.

import { api, post } from "./api.js";
import { sinceThen } from "./clock.js";
import { onSubmit, openDialog } from "./dialog.js";
import { button, empty, h, replace } from "./dom.js";
import { icon } from "./icons.js";
import { page, whenOther } from "./page.js";
import { poll } from "./poll.js";
import { link } from "./router.js";
import { runView } from "./run-view.js";
import { stateChip } from "./states.js";
import { line, shortPath } from "./text.js";
import { millis } from "./time.js";

/** The view of runs, or of the one that is named. */
export function runsView(about) {
  return (parameter) => new RunsView(about, parameter);
}

class RunsView {
  constructor(about, parameter) {
    this.about = about;
    this.element = h("div", { class: "runs" });
    this.go(parameter);
  }

  go(id) {
    this.close();
    this.shown = id === undefined ? listView(() => this.#openStart()) : runView(id);
    replace(this.element, this.shown.element);
  }

  close() {
    this.shown?.close();
  }

  #openStart() {
    const file = h("input", {
      id: "run-file",
      required: true,
      autocomplete: "off",
      spellcheck: "false",
      placeholder: "pipeline.yaml",
    });
    const directory = h("input", {
      id: "run-directory",
      value: this.about.directory ?? "",
      autocomplete: "off",
      spellcheck: "false",
    });
    const inputs = h("textarea", { id: "run-inputs", rows: "3", spellcheck: "false", placeholder: "name=value, one a line" });
    const form = h(
      "form",
      { class: "stack" },
      h("div", { class: "field" }, h("label", { for: "run-file" }, "Pipeline file"), file),
      h("div", { class: "field" }, h("label", { for: "run-directory" }, "Directory"), directory),
      h(
        "div",
        { class: "field" },
        h("label", { for: "run-inputs" }, "Inputs"),
        inputs,
        h("p", { class: "quiet" }, "Optional."),
      ),
      h("div", { class: "actions" }, h("button", { type: "submit", class: "primary" }, "Start")),
    );
    const dialog = openDialog({ title: "Start a run", content: form, test: "start-run-dialog" });
    onSubmit(form, async () => {
      const body = { file: file.value.trim(), inputs: readInputs(inputs.value) };
      if (directory.value.trim()) body.directory = directory.value.trim();
      const { id } = await post("runs", body);
      dialog.close();
      window.location.hash = link("runs", id);
    });
  }
}

/** Lines of `name=value` as an object. */
export function readInputs(text) {
  const lines = text.split("\n").filter((one) => one.trim() !== "");
  return Object.fromEntries(
    lines.map((one) => {
      const at = one.indexOf("=");
      return at < 0 ? [one.trim(), ""] : [one.slice(0, at).trim(), one.slice(at + 1).trim()];
    }),
  );
}

function listView(start) {
  const begin = button(
    [icon("plus"), h("span", {}, "Start a run")],
    { class: "primary", "data-key": "n", test: "start-run" },
    start,
  );
  const { element, body, fail, well } = page(
    "Runs",
    "Pipelines of steps, each with its own attempts, waits and results.",
    begin,
  );
  document.title = "Runs · Outlast";
  const draw = whenOther((runs) =>
    replace(
      body,
      runs.length === 0
        ? empty("No runs yet", "Start one here, or with `outlast run FILE` in a terminal.")
        : h("ul", { class: "rows card", test: "run-list" }, runs.map(row)),
    ),
  );
  const polling = poll(
    async (signal) => {
      const { runs = [] } = await api("runs", { signal });
      draw(runs);
      well();
    },
    3_000,
    fail,
  );
  return { element, close: polling.stop };
}

function row(run) {
  const when = h("span", { class: "when" });
  const changed = millis(run.changed ?? run.created);
  if (changed !== undefined) sinceThen(when, changed);
  return h(
    "li",
    {},
    h(
      "a",
      { class: "row", href: link("runs", run.id), test: "run-row" },
      h("span", { class: "row-title" }, line(run.pipeline, 120) || "Untitled pipeline"),
      h(
        "span",
        { class: "row-facts" },
        stateChip(run.state),
        when,
        h("bdi", { class: "path", title: run.directory }, shortPath(run.directory)),
      ),
    ),
  );
}
