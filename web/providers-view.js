// Providers: which accounts may be used, and where calls are held because others have failed.

import { api } from "./api.js";
import { phrase } from "./causes.js";
import { countdown, now } from "./clock.js";
import { chip, empty, h, replace } from "./dom.js";
import { page, section, whenOther } from "./page.js";
import { poll } from "./poll.js";
import { line } from "./text.js";
import { clockTime, millis } from "./time.js";

/** The view of accounts and gates. */
export function providersView() {
  const { element, body, fail, well } = page(
    "Providers",
    "What is known of accounts and providers, shared by everything that runs on this machine.",
  );
  const draw = whenOther(({ accounts, gates }) => {
    replace(
      body,
      section(
        "Accounts",
        { class: "card" },
        accounts.length > 0
          ? h("ul", { class: "facts" }, accounts.map(accountRow))
          : empty("No accounts configured", "Keys from the environment are used as they are."),
      ),
      section(
        "Gates",
        { class: "card" },
        gates.length > 0
          ? h("ul", { class: "facts" }, gates.map(gateRow))
          : empty(
              "Every provider answers",
              "Providers at which calls fail are listed here. When nothing works any more, one request at a time probes, and the others wait for it.",
            ),
      ),
    );
  });
  const polling = poll(
    async (signal) => {
      const { accounts = [], gates = [] } = await api("shared_state", { signal });
      draw({ accounts, gates });
      well();
    },
    2_000,
    fail,
  );
  document.title = "Providers · Outlast";
  return { element, close: polling.stop };
}

function accountRow(account) {
  const isFree = account.state !== "blocked";
  return h(
    "li",
    { class: "fact", test: "account-row" },
    h(
      "div",
      { class: "fact-name" },
      h("strong", {}, line(account.name, 100)),
      h("span", { class: "quiet" }, line(account.provider, 60), account.model && ` · ${line(account.model, 80)}`),
    ),
    h(
      "div",
      { class: "fact-state" },
      chip(isFree ? "free" : "blocked", isFree ? "tone-good" : "tone-warn"),
      !isFree && account.cause && h("span", {}, phrase(account.cause)),
    ),
    h("div", { class: "fact-time" }, !isFree && when("free", account.until, "time unknown")),
  );
}

function gateRow(gate) {
  const waiting = Number(gate.waiting) || 0;
  return h(
    "li",
    { class: "fact", test: "gate-row" },
    h("div", { class: "fact-name" }, h("strong", {}, line(gate.name, 160))),
    h("div", { class: "fact-state" }, modeChip(gate.mode), h("span", {}, gate.cause ? phrase(gate.cause) : "Failing")),
    h(
      "div",
      { class: "fact-time" },
      // Gateways before 0.2 have no sentence.
      gate.state ? h("span", {}, line(gate.state, 200)) : h("span", { class: "quiet" }, `${waiting} wait`),
    ),
  );
}

/** The state of a gate in a word; gateways before 0.2 name none. */
function modeChip(mode) {
  if (mode === "down") return chip("down", "tone-bad");
  return chip(mode === "paced" ? "recovering" : "failing", "tone-warn");
}

/** A time, and how long it is until then; `unknown` when it is. */
export function when(what, until, unknown) {
  const at = millis(until);
  if (at === undefined) return h("span", { class: "quiet" }, unknown);
  return h(
    "span",
    { class: "when-both" },
    `${what} at ${clockTime(at, now())}`,
    h("span", { class: "countdown-chip" }, countdown(h("span", { class: "countdown" }), at, "now")),
  );
}
