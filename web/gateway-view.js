// Gateways: what waits there, what a person can do about it, and how the last requests went.

import { api, post } from "./api.js";
import { phrase } from "./causes.js";
import { now, sinceThen } from "./clock.js";
import { attempt, confirm } from "./dialog.js";
import { button, chip, empty, h, replace, setText, show } from "./dom.js";
import { keepingFocus, page, section, whenOther } from "./page.js";
import { poll } from "./poll.js";
import { when } from "./providers-view.js";
import { line, words } from "./text.js";
import { clockTime, lasting, millis } from "./time.js";
import { concernsOne, learnTraffic, newTraffic, waitingRows } from "./traffic.js";
import { trafficTimeline } from "./traffic-timeline.js";

/** The view of gateways. */
export function gatewayView() {
  const { element, body, fail, well } = page(
    "Gateway",
    "Requests of agents that wait for their provider, and how the last ones went.",
  );
  const cards = new Map();
  const none = empty(
    "No gateway runs on this machine",
    "Start one with `outlast gateway`, or one together with an agent: `outlast gateway run -- claude`.",
  );
  document.title = "Gateway · Outlast";
  const polling = poll(
    async (signal) => {
      const { gateways = [] } = await api("gateways", { signal });
      const ports = new Set(gateways.map(({ port }) => port));
      for (const [port, card] of cards) if (!ports.has(port)) remove(cards, port, card);
      for (const gateway of gateways) {
        if (!cards.has(gateway.port)) add(cards, gateway, body, () => polling.soon());
        cards.get(gateway.port).update(gateway);
      }
      if (cards.size === 0) body.append(none);
      else none.remove();
      await Promise.all([...cards.values()].map((card) => card.learn(signal)));
      well();
    },
    1_000,
    fail,
  );
  const close = () => {
    polling.stop();
    for (const card of cards.values()) card.close();
  };
  return { element, close };
}

function add(cards, gateway, body, soon) {
  const card = new GatewayCard(gateway, soon);
  cards.set(gateway.port, card);
  body.append(card.element);
}

function remove(cards, port, card) {
  card.close();
  card.element.remove();
  cards.delete(port);
}

class GatewayCard {
  #traffic = newTraffic();

  constructor({ port }, soon) {
    [this.port, this.soon] = [port, soon];
    this.heading = h("h2", {});
    this.facts = h("p", { class: "quiet" });
    this.chips = h("span", { class: "chip-slot" });
    this.problem = h("p", { class: "problem", role: "status", hidden: true });
    this.numbers = h("dl", { class: "numbers" });
    this.retryAll = button("Retry all now", { "data-key": "r", hidden: true, test: "retry-all" }, () => this.#retry());
    this.waiting = h("div", { class: "waiting" });
    this.timeline = trafficTimeline(String(port));
    this.element = h(
      "article",
      { class: "gateway" },
      h(
        "div",
        { class: "card" },
        h("header", { class: "card-head" }, this.heading, this.chips),
        this.facts,
        this.problem,
        this.numbers,
      ),
      section("Waiting", { class: "card" }, h("div", { class: "card-corner" }, this.retryAll), this.waiting),
      section(
        "Last requests",
        { class: "card" },
        h("div", { class: "card-corner" }, this.timeline.ways),
        this.timeline.element,
      ),
    );
    this.drawHead = whenOther((head) => this.#head(head));
    this.drawNumbers = whenOther((counters) => replace(this.numbers, numbers(counters)));
    this.drawWaiting = whenOther((rows) => keepingFocus(this.waiting, () => this.#rows(rows)));
  }

  close() {
    this.timeline.close();
  }

  update({ address, status: told, problem }) {
    const status = told ?? {};
    this.isSilent = Boolean(problem);
    if (status.listening_since !== this.since) this.#traffic = newTraffic();
    this.since = status.listening_since;
    const { version, listening_since: since, draining, upstreams = [], waiting = [], counters = {} } = status;
    this.drawHead({ address, version, since, draining, upstreams, problem });
    this.drawNumbers(counters);
    this.drawWaiting(waitingRows(waiting));
    show(this.retryAll, waiting.length > 1);
  }

  async learn(signal) {
    // What it does not say of itself it does not say of its requests, and whoever asks waits for that.
    if (this.isSilent) return;
    const after = this.#traffic.seq === undefined ? "" : `?after=${this.#traffic.seq}`;
    try {
      learnTraffic(this.#traffic, await api(`gateways/${this.port}/traffic${after}`, { signal }));
      this.timeline.again(this.#traffic);
    } catch (problem) {
      if (!concernsOne(problem)) throw problem;
    }
  }

  #head({ address, version, since, draining, upstreams, problem }) {
    setText(this.heading, line(address, 120) || `Port ${this.port}`);
    const up = millis(since);
    const where = upstreams.map(({ dialect, url, policy }) => `${line(dialect, 40)} → ${line(url, 120)} (${line(policy, 40)})`);
    replace(
      this.facts,
      [version && `Outlast ${line(version, 40)}`, up !== undefined && `up since ${clockTime(up, now())}`, ...where]
        .filter(Boolean)
        .map((fact) => h("span", { class: "fact-part" }, fact)),
    );
    const [word, tone] = problem ? ["silent", "tone-bad"] : draining ? ["ending", "tone-warn"] : ["listening", "tone-good"];
    replace(this.chips, chip(word, tone));
    show(this.problem, Boolean(problem));
    setText(this.problem, line(problem, 600));
  }

  #rows({ shown, more }) {
    const list = () =>
      h(
        "ul",
        { class: "facts" },
        shown.map((request) => this.#row(request)),
      );
    replace(
      this.waiting,
      shown.length === 0 ? empty("Nothing waits") : list(),
      more > 0 && h("p", { class: "quiet", test: "waiting-more" }, `… and ${more.toLocaleString("en")} more wait.`),
    );
  }

  #row(request) {
    const since = millis(request.since);
    const who = [line(request.client, 60) || "client", request.model && line(request.model, 80)].filter(Boolean).join(" · ");
    return h(
      "li",
      { class: "fact waiting-row", test: "waiting-row", "data-id": request.id },
      h(
        "div",
        { class: "fact-name" },
        h("strong", {}, who),
        h(
          "span",
          { class: "quiet" },
          [line(request.path, 80), request.account && `account ${line(request.account, 60)}`, line(request.id, 60)]
            .filter(Boolean)
            .join(" · "),
        ),
      ),
      h(
        "div",
        { class: "fact-state" },
        chip(request.cause ? phrase(request.cause) : "Others are ahead", "tone-warn"),
        h(
          "span",
          { class: "quiet" },
          `attempt ${request.attempts}`,
          request.resent > 0 && `, sent again ${request.resent}×`,
          request.left && ", its client left",
        ),
        since !== undefined && h("span", { class: "quiet" }, sinceThen(h("span", {}), since, lasting)),
      ),
      h("div", { class: "fact-time" }, when("next try", request.wake, "next try when its turn comes")),
      h(
        "div",
        { class: "actions" },
        button(
          "Retry now",
          { "data-key": "r", "data-focus": `retry-${request.id}`, test: "waiting-retry", "aria-label": `Retry now: ${who}` },
          () => this.#retry(request.id),
        ),
        button("Cancel", { "data-focus": `cancel-${request.id}`, test: "waiting-cancel", "aria-label": `Cancel: ${who}` }, () =>
          this.#cancel(request.id, who),
        ),
      ),
    );
  }

  async #retry(id) {
    await attempt(() => post(`gateways/${this.port}/retry_now`, id === undefined ? {} : { id }));
    this.soon();
  }

  async #cancel(id, who) {
    if (!(await confirm("Cancel this request?", `${who} is told that its request was cancelled.`, "Cancel the request")))
      return;
    await attempt(() => post(`gateways/${this.port}/cancel`, { id }));
    this.soon();
  }
}

const COUNTED = [
  "connections",
  "in_flight",
  "held",
  "requests",
  "answered",
  "attempts_failed",
  "retries",
  "taken_up",
  "refused",
];

function numbers(counters) {
  const known = COUNTED.filter((name) => counters[name] !== undefined);
  return known.map((name) => h("div", {}, h("dt", {}, words(name)), h("dd", {}, Number(counters[name]).toLocaleString("en"))));
}
