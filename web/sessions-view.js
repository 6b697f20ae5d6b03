// Sessions: the list, and beside it the one that is looked at.

import { api, post } from "./api.js";
import { sinceThen } from "./clock.js";
import { attempt, onSubmit, openDialog } from "./dialog.js";
import { button, empty, h, replace, show } from "./dom.js";
import { icon } from "./icons.js";
import { poll } from "./poll.js";
import { link } from "./router.js";
import { sessionView } from "./session-view.js";
import { stateChip } from "./states.js";
import { line, shortPath } from "./text.js";
import { millis } from "./time.js";

const PAGE = 50;

/** The view of sessions. `about` says in which folder the server works. */
export function sessionsView(about) {
  return (parameter) => new SessionsView(about, parameter);
}

class SessionsView {
  #sessions = [];
  #older = [];
  #drawn = "";
  #isNew = false;

  constructor(about, parameter) {
    this.about = about;
    this.list = h("ul", { class: "rows", test: "session-list", "aria-label": "Sessions" });
    this.more = button("Show older sessions", { class: "wide", hidden: true }, () => this.#showOlder());
    this.problem = h("p", { class: "problem", role: "status", hidden: true });
    const begin = button(
      [icon("plus"), h("span", {}, "New session")],
      { class: "primary", "data-key": "n", test: "new-session" },
      () => this.#openNew(),
    );
    this.title = h("h1", { tabindex: "-1" }, "Sessions");
    this.side = h(
      "section",
      { class: "side", "aria-label": "All sessions" },
      h("header", { class: "side-head" }, this.title, begin),
      this.problem,
      this.list,
      this.more,
    );
    this.detail = h("div", { class: "detail" });
    this.element = h("div", { class: "sessions" }, this.side, this.detail);
    this.go(parameter);
    this.polling = poll(
      (signal) => this.#load(signal),
      5_000,
      (problem) => this.#fail(problem),
    );
  }

  go(id) {
    this.current?.close();
    this.current = undefined;
    this.id = id;
    this.element.classList.toggle("has-detail", id !== undefined);
    // For whoever hears the page there is one heading of the first order at a time.
    this.title.setAttribute("aria-level", id === undefined ? "1" : "2");
    this.title.toggleAttribute("data-focus-first", id === undefined);
    if (id === undefined) {
      document.title = "Sessions · Outlast";
      replace(
        this.detail,
        empty("No session chosen", "Choose one, or begin a new one. What runs goes on, whether anybody watches or not."),
      );
    } else {
      this.current = sessionView(id, () => this.polling?.soon());
      replace(this.detail, this.current.element);
      this.current.heading.toggleAttribute("data-focus-first", true);
      if (this.#isNew) requestAnimationFrame(() => this.current?.focusComposer());
    }
    this.#isNew = false;
    this.#mark();
  }

  close() {
    this.polling.stop();
    this.current?.close();
  }

  async #load(signal) {
    const { sessions = [], more } = await api(`sessions?limit=${PAGE}`, { signal });
    this.#sessions = sessions;
    if (this.#older.length === 0) show(this.more, Boolean(more));
    show(this.problem, false);
    this.#draw();
    await this.current?.compare(sessions.find(({ id }) => id === this.id)?.state);
  }

  async #showOlder() {
    const last = [...this.#sessions, ...this.#older].at(-1);
    if (!last) return;
    await attempt(async () => {
      const { sessions = [], more } = await api(`sessions?limit=${PAGE}&before=${encodeURIComponent(last.id)}`);
      this.#older.push(...sessions);
      show(this.more, Boolean(more));
      this.#draw();
    });
  }

  #fail(problem) {
    this.problem.textContent = problem.detail ?? "Sessions cannot be read.";
    show(this.problem, true);
  }

  #draw() {
    const newest = new Set(this.#sessions.map(({ id }) => id));
    const all = [...this.#sessions, ...this.#older.filter(({ id }) => !newest.has(id))];
    const drawn = JSON.stringify(all);
    if (drawn === this.#drawn) return;
    this.#drawn = drawn;
    const focused = document.activeElement?.closest?.("[data-session]")?.dataset.session;
    const rows = all.map(row);
    replace(
      this.list,
      rows.length > 0 ? rows : h("li", {}, empty("No sessions yet", "Begin one here, or with `outlast` in a terminal.")),
    );
    this.#mark();
    if (focused) this.list.querySelector(`[data-session="${CSS.escape(focused)}"]`)?.focus({ preventScroll: true });
  }

  #mark() {
    for (const element of this.list.querySelectorAll("[data-session]")) {
      const isCurrent = element.dataset.session === this.id;
      if (isCurrent) element.setAttribute("aria-current", "page");
      else element.removeAttribute("aria-current");
    }
  }

  #openNew() {
    const directory = h("input", {
      id: "new-directory",
      value: this.about.directory ?? "",
      autocomplete: "off",
      spellcheck: "false",
    });
    const model = h("input", { id: "new-model", autocomplete: "off", spellcheck: "false", placeholder: "as configured" });
    const form = h(
      "form",
      { class: "stack" },
      h(
        "div",
        { class: "field" },
        h("label", { for: "new-directory" }, "Directory"),
        directory,
        h("p", { class: "quiet" }, "Where its tools work."),
      ),
      h(
        "div",
        { class: "field" },
        h("label", { for: "new-model" }, "Model"),
        model,
        h("p", { class: "quiet" }, "Optional. It can be changed later."),
      ),
      h("div", { class: "actions" }, h("button", { type: "submit", class: "primary", test: "create-session" }, "Begin")),
    );
    const dialog = openDialog({ title: "New session", content: form, test: "new-session-dialog" });
    onSubmit(form, async () => {
      const body = { after_content: "retract" };
      if (directory.value.trim()) body.directory = directory.value.trim();
      if (model.value.trim()) body.model = model.value.trim();
      const session = await post("sessions", body);
      dialog.close();
      this.#isNew = true;
      this.polling.soon();
      window.location.hash = link("sessions", session.id);
    });
  }
}

function row(session) {
  const title = line(session.title, 120) || "Untitled session";
  const changed = millis(session.changed ?? session.created);
  const when = h("span", { class: "when" });
  if (changed !== undefined) sinceThen(when, changed);
  return h(
    "li",
    {},
    h(
      "a",
      { class: "row", href: link("sessions", session.id), "data-session": session.id, test: "session-row" },
      h("span", { class: "row-title" }, title),
      h(
        "span",
        { class: "row-facts" },
        stateChip(session.state),
        when,
        h("bdi", { class: "path", title: session.directory }, shortPath(session.directory)),
      ),
    ),
  );
}
