// Keys, and the dialog that tells them.

import { openDialog } from "./dialog.js";
import { h } from "./dom.js";
import { link } from "./router.js";

const GO = { s: "sessions", p: "providers", g: "gateway", r: "runs", l: "policies" };
/** How long the second key of two may take. */
const PATIENCE = 1_500;

/** Listens to keys. `views` are the names of those that there are. */
export function startKeys(views) {
  let goes;
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.isComposing) return;
    if (isTyping(event.target) || document.querySelector("dialog[open]")) return;
    const wanted = goes && Date.now() - goes < PATIENCE ? GO[event.key] : undefined;
    goes = event.key === "g" && !wanted ? Date.now() : undefined;
    if (wanted && views.includes(wanted)) window.location.hash = link(wanted);
    else if (event.key === "?") tellKeys(views);
    else if (event.key === "/") press("[data-key='/']", "focus", event);
    else if (event.key === "r" && !wanted) press("[data-key='r']", "click", event);
    else if (event.key === "n") press("[data-key='n']", "click", event);
  });
}

function press(selector, how, event) {
  const element = [...document.querySelectorAll(selector)].find((found) => found.checkVisibility?.() ?? true);
  if (!element) return;
  event.preventDefault();
  element[how]();
}

function isTyping(target) {
  return (
    target instanceof HTMLElement && (target.isContentEditable || ["INPUT", "TEXTAREA", "SELECT"].includes(target.tagName))
  );
}

/** Shows which keys there are. */
export function tellKeys(views) {
  const name = (word) => word[0].toUpperCase() + word.slice(1);
  const going = Object.entries(GO).filter(([, view]) => views.includes(view));
  const rows = [
    ...going.map(([key, view]) => [["g", key], name(view)]),
    ...(views.includes("sessions")
      ? [
          [["n"], "New session"],
          [["/"], "Write a message"],
        ]
      : []),
    [["r"], "Retry now"],
    [["Enter"], "Send the message"],
    [["Shift", "Enter"], "New line in the message"],
    [["Esc"], "Close a dialog, leave the message"],
    [["?"], "Show this"],
  ];
  const list = rows.map(([keys, what]) => [
    h(
      "dt",
      {},
      keys.map((key, at) => [at > 0 ? " " : "", h("kbd", {}, key)]),
    ),
    h("dd", {}, what),
  ]);
  openDialog({ title: "Keys", content: h("dl", { class: "keys" }, list) });
}
