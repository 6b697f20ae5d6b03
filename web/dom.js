// Elements, made without HTML.
//
// Invariant: every text that gets into the page through here was cleaned. There is no other way in.

import { clean } from "./text.js";

const SVG = "http://www.w3.org/2000/svg";

/** An element: `on…` are listeners, `test` is the name that tests know it by, the rest are attributes. */
export function h(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

/** The same for pictures. */
export function svg(tag, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "test") element.setAttribute("data-testid", value);
    else if (name === "value") element.value = clean(value);
    else if (value === true) element.setAttribute(name, "");
    else element.setAttribute(name, clean(value));
  }
  append(element, children);
  return element;
}

/** Adds children: elements, texts, lists of them; nothing for what is not there. */
export function append(element, ...children) {
  for (const child of children.flat(Infinity)) {
    if (child === undefined || child === null || child === false) continue;
    element.append(child instanceof Node ? child : clean(child));
  }
  return element;
}

/** Puts other children in place of those that are there. */
export function replace(element, ...children) {
  element.replaceChildren();
  return append(element, ...children);
}

/** Sets a text, only when it is another one: whoever reads the page aloud is told of changes alone. */
export function setText(element, text) {
  const next = clean(text);
  if (element.textContent !== next) element.textContent = next;
}

/** Shows or hides. */
export function show(element, isShown) {
  if (element.hidden === isShown) element.hidden = !isShown;
}

/** A button that says what goes wrong with what it does, and cannot be pressed twice meanwhile. */
export function button(label, attributes, act) {
  const element = h("button", { type: "button", ...attributes }, label);
  element.addEventListener("click", async (event) => {
    if (element.getAttribute("aria-disabled") === "true") return;
    element.setAttribute("aria-disabled", "true");
    try {
      await act(event);
    } finally {
      setOff(element, element.dataset.off === "true");
    }
  });
  return element;
}

/** Has a button do nothing for a time. It keeps the focus, which one that is `disabled` would lose. */
export function setOff(element, isOff) {
  element.dataset.off = String(isOff);
  if (isOff) element.setAttribute("aria-disabled", "true");
  else element.removeAttribute("aria-disabled");
}

/** A small word about how something stands. */
export function chip(word, tone = "") {
  return h("span", { class: `chip ${tone}` }, word);
}

/** What is said where there is nothing. */
export function empty(title, ...more) {
  return h(
    "div",
    { class: "empty" },
    h("p", { class: "empty-title" }, title),
    more.map((text) => h("p", {}, text)),
  );
}
