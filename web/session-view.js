// One session: its transcript as it grows, what it waits for, and where a person writes.

import { api, part, post } from "./api.js";
import { waitBubble, waitSentence } from "./bubbles.js";
import { composer, showQueue } from "./composer.js";
import { announce, attempt } from "./dialog.js";
import { button, h, replace, setText, show } from "./dom.js";
import { follow } from "./follow.js";
import { icon } from "./icons.js";
import { link } from "./router.js";
import { openSettings } from "./settings-panel.js";
import { connectionWords, disagrees, problemWords, standing, waitOf } from "./standing.js";
import { stateChip } from "./states.js";
import { amount, line, shortPath } from "./text.js";
import { apply, fromSnapshot, newTranscript, stand } from "./transcript.js";
import { TranscriptView } from "./transcript-view.js";

/** A turn that was left, or failed, can be gone on with. */
const RESUMES = {
  failed: "Try again",
  unfinished: "Carry on",
};

/** The session of that name. `changed()` is called when what a list shows of it is another. */
export function sessionView(id, changed) {
  return new SessionView(id, changed);
}

class SessionView {
  #state = newTranscript();
  #said = "";
  #heard = 0;
  #bubble;
  #drawn;

  constructor(id, changed) {
    [this.id, this.at, this.changed] = [id, `sessions/${part(id)}`, changed];
    this.view = new TranscriptView();
    this.heading = h("h1", { class: "session-title", tabindex: "-1" }, "Session");
    this.facts = h("p", { class: "session-facts" });
    this.chip = h("span", { class: "chip-slot" });
    this.connection = h("p", { class: "connection", role: "status", hidden: true });
    this.wait = h("div", { class: "wait-slot" });
    this.working = h(
      "p",
      { class: "working", hidden: true },
      h("span", { class: "pulse", "aria-hidden": "true" }),
      h("span", { class: "working-words" }, "Working…"),
    );
    this.resume = button("Try again", { class: "resume", hidden: true, test: "resume" }, () => this.#ask("resume"));
    this.view.tail.append(this.wait, this.working, this.resume);
    this.queue = h("section", { class: "queue", "aria-label": "Queue", hidden: true, test: "queue" });
    this.composer = composer({ draft: id, say: (text, deliver) => this.#say(text, deliver), stop: () => this.#ask("abort") });
    this.element = h(
      "section",
      { class: "session", "aria-label": "Session" },
      this.#head(),
      this.connection,
      this.view.element,
      this.queue,
      this.composer.element,
    );
    this.end = follow(id, {
      snapshot: (snapshot) => this.#begin(snapshot),
      event: (event) => this.#take(event),
      state: (word, problem) => this.#connected(word, problem),
    });
  }

  close() {
    this.isClosed = true;
    this.end();
    this.view.close();
    clearTimeout(this.connecting);
  }

  focusComposer() {
    this.composer.focus();
  }

  /**
   * A list says how the session stands, or does not have it. Not all that changes is an event: another process leaves it,
   * or a snapshot is told in the moment in which a turn ends. So where the two disagree, the session is asked.
   */
  async compare(told) {
    if (!this.session || this.isGone || this.isClosed) return;
    if (told === undefined || disagrees(this.#state, told)) await this.#look();
  }

  #head() {
    const settings = button(
      icon("gear"),
      { class: "icon-button", "aria-label": "Session settings", test: "session-settings" },
      () => openSettings(this.id, () => this.#refresh()),
    );
    const back = h("a", { class: "icon-button back", href: link("sessions"), "aria-label": "All sessions" }, icon("back"));
    return h(
      "header",
      { class: "session-head" },
      back,
      h("div", { class: "session-names" }, this.heading, this.facts),
      this.chip,
      settings,
    );
  }

  // --- What comes from the server ---

  #begin(snapshot) {
    this.#heard += 1;
    this.#state = fromSnapshot(snapshot);
    this.session = snapshot.session ?? {};
    this.view.reset(this.#state, Boolean(snapshot.truncated));
    this.#paintAll();
  }

  #take(event) {
    this.#heard += 1;
    const changes = apply(this.#state, event);
    const kinds = new Set(changes.map(({ kind }) => kind));
    this.view.change(changes);
    if (kinds.has("queue")) showQueue(this.queue, this.#state.queue);
    if (kinds.has("bubble")) this.#paintWait();
    if (kinds.has("head") || kinds.has("bubble") || kinds.has("add")) this.#paintState();
    if (event.type === "sealed") this.#refresh();
  }

  async #refresh() {
    await this.#look();
    this.changed();
  }

  /** What is not part of events: usage, settings, the state as others see it. */
  async #look() {
    const heard = this.#heard;
    try {
      const session = await api(this.at);
      if (this.isClosed) return;
      this.session = session;
      // What was heard meanwhile knows better, and so do the events of a turn that runs.
      const isNews = !this.#state.running || disagrees(this.#state, session.state);
      if (isNews && heard === this.#heard) stand(this.#state, session);
      this.#paintAll();
    } catch {
      // The stream says so when the server is gone.
    }
  }

  #connected(word, problem) {
    if (word === "live") {
      clearTimeout(this.connecting);
      this.connecting = undefined;
      return show(this.connection, false);
    }
    this.lost = connectionWords(word, problem);
    const tell = () => {
      setText(this.connection, this.lost);
      show(this.connection, true);
    };
    this.isGone = word === "gone";
    if (this.isGone || !this.connection.hidden) return tell();
    // A moment without a connection is not worth a word.
    this.connecting ??= setTimeout(tell, 1_500);
  }

  // --- What a person does ---

  #ask(what) {
    return attempt(() => post(`${this.at}/${what}`));
  }

  #say(text, deliver) {
    this.view.toEnd();
    return attempt(() => post(`${this.at}/prompt`, deliver ? { text, deliver } : { text }));
  }

  // --- What is shown ---

  #paintAll() {
    showQueue(this.queue, this.#state.queue);
    this.#paintWait();
    this.#paintState();
  }

  #paintWait() {
    const wait = waitOf(this.#state);
    const drawn = JSON.stringify(wait);
    if (drawn === this.#drawn) return;
    this.#drawn = drawn;
    if (!wait) return this.#endWait();
    if (!this.#bubble) {
      this.#bubble = waitBubble([
        button("Retry now", { class: "primary", "data-key": "r", test: "retry-now" }, () => this.#ask("retry_now")),
        button("Cancel", { test: "retry-cancel" }, () => this.#ask("abort_retry")),
      ]);
      this.wait.append(this.#bubble.element);
    }
    this.#bubble.update(wait);
    if (wait.kind !== "trying") this.#announce(waitSentence(wait));
  }

  /** The bubble goes; focus that was in it stays near. */
  #endWait() {
    const hadFocus = this.wait.contains(document.activeElement);
    this.wait.replaceChildren();
    this.#bubble = undefined;
    if (hadFocus) this.view.scroller.focus({ preventScroll: true });
  }

  #paintState() {
    const state = this.#state;
    const word = standing(state);
    const title = line(state.title, 120) || line(state.items.find((item) => item.type === "user")?.text, 80) || "New session";
    setText(this.heading, title);
    const directory = this.session?.directory ?? "";
    replace(
      this.facts,
      state.model && h("span", {}, line(state.model, 80)),
      directory && h("span", { class: "path", title: directory }, icon("folder"), h("bdi", {}, shortPath(directory))),
      usageWords(this.session?.usage),
    );
    replace(this.chip, stateChip(word));
    const last = state.items.at(-1);
    const isSilent = state.running && !waitOf(state) && last?.type !== "assistant";
    show(this.working, isSilent);
    setText(this.working.querySelector(".working-words"), state.compacting ? "Making the conversation smaller…" : "Working…");
    const resumes = state.running ? undefined : RESUMES[word];
    show(this.resume, Boolean(resumes) && state.items.length > 0);
    if (resumes) setText(this.resume, resumes);
    const refusal = word === "elsewhere" ? "Another process leads this session. It can be read here." : undefined;
    const warning = state.running ? undefined : problemWords(this.session?.problem);
    this.composer.update({ isRunning: state.running, refusal, warning });
    this.#tell(word, title);
  }

  #tell(word, title) {
    const sign = { retrying: "⚠ ", held: "⚠ ", running: "● ", failed: "✕ " }[word] ?? "";
    document.title = `${sign}${title} · Outlast`;
    const said = {
      running: "Working.",
      finished: "The answer is complete.",
      failed: "The turn failed.",
      cancelled: "Stopped.",
    }[word];
    if (said && this.known !== undefined && this.known !== word) this.#announce(said);
    if (this.known !== word && this.known !== undefined) this.changed();
    this.known = word;
  }

  #announce(text) {
    if (text === this.#said) return;
    this.#said = text;
    announce(text);
  }
}

/** What all turns have used, as far as it is known. */
function usageWords(usage) {
  if (!usage) return undefined;
  const read = (usage.input ?? 0) + (usage.cache_read ?? 0) + (usage.cache_write ?? 0);
  return (
    read > 0 &&
    h("span", { class: "usage", title: "In all turns" }, `${amount(read)} tokens read, ${amount(usage.output)} written`)
  );
}
