// What views share that are one page: a heading, a body that is drawn anew when what it shows is another, a problem.

import { h, setText, show } from "./dom.js";

/** A page. `aside` stands beside its heading. */
export function page(title, lead, ...aside) {
  const problem = h("p", { class: "problem", role: "status", hidden: true });
  const body = h("div", { class: "page-body" });
  const heading = h("h1", { tabindex: "-1" }, title);
  const head = h(
    "header",
    { class: "page-head" },
    h("div", {}, heading, lead && h("p", { class: "lead" }, lead)),
    aside.length > 0 && h("div", { class: "page-actions" }, aside),
  );
  return {
    element: h("div", { class: "page" }, head, problem, body),
    heading,
    body,
    fail(reason) {
      setText(problem, reason?.detail ?? "This cannot be read just now.");
      show(problem, true);
    },
    well: () => show(problem, false),
  };
}

/** A part of a page with a heading of its own. */
export function section(title, attributes, ...children) {
  return h("section", attributes, h("h2", {}, title), children);
}

/** Calls `draw` with a value only when it is another than the last time. */
export function whenOther(draw) {
  let last;
  return (value) => {
    const drawn = JSON.stringify(value);
    if (drawn === last) return;
    last = drawn;
    draw(value);
  };
}

/** Keeps the focus where it was while a part of the page is drawn anew: by `data-focus`, which names what had it. */
export function keepingFocus(element, draw) {
  const name = element.contains(document.activeElement) ? document.activeElement.dataset.focus : undefined;
  draw();
  if (name) element.querySelector(`[data-focus="${CSS.escape(name)}"]`)?.focus({ preventScroll: true });
}
