// Dialogs, and words that pass.

import { h, setOff } from "./dom.js";
import { icon } from "./icons.js";

/** Opens a dialog; focus goes back to where it was when it is closed. */
export function openDialog({ title, content, test, mayClose = true }) {
  const heading = h("h2", { id: `dialog-${Date.now()}` }, title);
  const close = mayClose && h("button", { type: "button", class: "icon-button", "aria-label": "Close" }, icon("close"));
  const dialog = h(
    "dialog",
    { "aria-labelledby": heading.id, test },
    h("div", { class: "dialog-head" }, heading, close || undefined),
    content,
  );
  if (close) {
    close.addEventListener("click", () => dialog.close());
    // A click beside it closes it.
    dialog.addEventListener("click", (event) => {
      if (event.target === dialog) dialog.close();
    });
  } else {
    dialog.addEventListener("cancel", (event) => event.preventDefault());
    dialog.addEventListener("submit", () => (mayClose = true));
  }
  dialog.addEventListener("close", () => {
    // Browsers close a dialog at the second Escape, whatever it says.
    if (mayClose) dialog.remove();
    else dialog.showModal();
  });
  document.body.append(dialog);
  dialog.showModal();
  return dialog;
}

/** Asks a question that is answered with yes or no. */
export function confirm(title, text, yes) {
  return new Promise((resolve) => {
    const content = h(
      "form",
      { method: "dialog", class: "stack" },
      h("p", {}, text),
      h(
        "div",
        { class: "actions" },
        h("button", { type: "submit", value: "no" }, "Keep it"),
        h("button", { type: "submit", value: "yes", class: "danger" }, yes),
      ),
    );
    const dialog = openDialog({ title, content });
    dialog.addEventListener("close", () => resolve(dialog.returnValue === "yes"));
  });
}

/** Says something once to whoever has the page read aloud. */
export function announce(text) {
  const announcer = document.getElementById("announcer");
  announcer.textContent = "";
  // A change is said; the same text twice is none.
  requestAnimationFrame(() => {
    announcer.textContent = text;
  });
}

/** Shows what went wrong with something that a person did. */
export function complain(problem) {
  if (problem?.name === "AbortError") return;
  const text = problem?.detail ?? problem?.message ?? "Something went wrong.";
  const close = h("button", { type: "button", class: "icon-button", "aria-label": "Dismiss" }, icon("close"));
  const toast = h("div", { class: "toast", role: "alert" }, h("span", {}, text), close);
  for (const old of document.querySelectorAll("dialog .toast")) old.remove();
  const gone = setTimeout(() => toast.remove(), 12_000);
  close.addEventListener("click", () => {
    clearTimeout(gone);
    toast.remove();
  });
  // Beside a dialog that is open nothing can be reached.
  const dialog = document.querySelector("dialog[open]");
  if (dialog) dialog.querySelector(".dialog-head").after(toast);
  else document.getElementById("toasts").append(toast);
}

/** Does something for a person, and says so when it goes wrong. Returns whether it went well. */
export async function attempt(act) {
  try {
    await act();
    return true;
  } catch (problem) {
    complain(problem);
    return false;
  }
}

/** Has a form do something for a person. While that is under way, sending the form once more does nothing. */
export function onSubmit(form, act) {
  const sender = form.querySelector("[type=submit]");
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    // The button is not `disabled`, so a second click or Enter still gets here.
    if (sender.getAttribute("aria-disabled") === "true") return;
    setOff(sender, true);
    await attempt(act);
    setOff(sender, false);
  });
}
