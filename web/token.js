// The token that the server asks for when it can be reached from elsewhere.
//
// It is kept for as long as the tab is open, and taken out of the page's address at once.

import { openDialog } from "./dialog.js";
import { h } from "./dom.js";
import { forTab } from "./keep.js";

const NAME = "outlast.token";
let current = forTab.get(NAME);
let asking;

/** The token, if there is one. */
export function token() {
  return current;
}

/** Takes the token out of an address such as `#token=…`, with which the server may have been opened. */
export function takeTokenFromAddress() {
  const found = /^#(.*&)?token=([^&]+)/.exec(window.location.hash);
  if (!found) return;
  remember(decodeURIComponent(found[2]));
  window.history.replaceState(null, "", window.location.pathname + window.location.search);
}

/** Asks for the token, once for however many requests need it. `used` is the one that was refused. */
export function askForToken(used, detail) {
  if (current !== used) return Promise.resolve();
  asking ??= ask(detail, used).finally(() => {
    asking = undefined;
  });
  return asking;
}

function remember(value) {
  current = value;
  forTab.put(NAME, value);
}

function ask(detail, used) {
  return new Promise((resolve) => {
    const input = h("input", {
      id: "token",
      type: "password",
      autocomplete: "off",
      spellcheck: "false",
      required: true,
      autofocus: true,
    });
    const said = used ? "That token was not accepted." : "";
    const form = h(
      "form",
      { method: "dialog", class: "stack" },
      h("p", {}, detail || "This server asks for a token."),
      h(
        "p",
        { class: "quiet" },
        "It is in Outlast’s folder on the machine that the server runs on: ",
        h("code", {}, "serve.token"),
        ", or that of a gateway, ",
        h("code", {}, "gateway.token"),
        ".",
      ),
      said && h("p", { class: "field-error", role: "alert" }, said),
      h("label", { for: "token" }, "Token"),
      input,
      h("div", { class: "actions" }, h("button", { class: "primary", type: "submit" }, "Go on")),
    );
    form.addEventListener("submit", () => {
      remember(input.value.trim());
      resolve();
    });
    openDialog({ title: "Token needed", content: form, test: "token-dialog", mayClose: false });
  });
}
