// What pictures of time share: a frame that is drawn anew when it gets another width, an axis, patterns.

import { h, replace, svg } from "./dom.js";
import { axisStep, clockTime } from "./time.js";

let patterns = 0;
let ruler;
/** How long a picture stays as it is while it is pointed at. */
const PATIENCE = 4_000;

/**
 * A frame for a picture. `draw(width)` returns it, and is called again for another width and by `again()`. What moves or
 * has the focus in it is the business of whoever draws. `now()` does so at once.
 */
export function frame(draw, attributes = {}) {
  const element = h("div", { ...attributes, class: `chart ${attributes.class ?? ""}` });
  let width = 0;
  let paintedAt = 0;
  const paint = () => {
    if (width === 0) return;
    paintedAt = Date.now();
    replace(element, draw(width));
  };
  const again = () => {
    // What is pointed at says what it is after a moment; it is not taken away before.
    if (!element.matches(":hover") || Date.now() - paintedAt > PATIENCE) paint();
  };
  const resizing = new ResizeObserver(([entry]) => {
    const next = Math.floor(entry.contentRect.width);
    if (next === width) return;
    width = next;
    paint();
  });
  resizing.observe(element);
  return { element, again, now: paint, close: () => resizing.disconnect() };
}

/** A pattern of slanted lines for waits, and the reference to it. */
export function hatch(className) {
  patterns = (patterns + 1) % 1_000_000;
  const id = `hatch-${patterns}`;
  const pattern = svg(
    "pattern",
    { id, width: 6, height: 6, patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)" },
    svg("rect", { width: 6, height: 6, class: `${className}-ground` }),
    svg("rect", { width: 2.4, height: 6, class: `${className}-line` }),
  );
  return { definition: svg("defs", {}, pattern), fill: `url(#${id})` };
}

/** An axis of time: lines from `top` to `bottom`, and their labels above. */
export function timeAxis({ from, to, x, top, bottom, width }) {
  const step = axisStep(to - from, Math.max(2, Math.floor(width / 96)));
  const zone = new Date(from).getTimezoneOffset() * 60_000;
  const first = Math.ceil((from - zone) / step) * step + zone;
  const marks = [];
  for (let at = first; at <= to; at += step) {
    const label = clockTime(at, to).replace(/^.*, /, "");
    marks.push(
      svg("line", { x1: x(at), x2: x(at), y1: top, y2: bottom, class: "grid" }),
      svg("text", { x: x(at), y: top - 6, class: "axis-label", "text-anchor": "middle" }, short(label, step)),
    );
  }
  return svg("g", { "aria-hidden": "true" }, marks);
}

/** Seconds only where they differ. */
function short(label, step) {
  return step >= 60_000 ? label.split(":").slice(0, 2).join(":") : label;
}

/** A text cut so that it fits so many pixels, in a font such as `600 13.5px`. */
export function fitted(text, pixels, font) {
  ruler ??= document.createElement("canvas").getContext("2d");
  ruler.font = `${font} ${getComputedStyle(document.body).fontFamily}`;
  const fits = (one) => ruler.measureText(one).width <= pixels;
  if (fits(text)) return text;
  let [low, high] = [0, text.length];
  while (low < high) {
    const middle = Math.ceil((low + high) / 2);
    if (fits(`${text.slice(0, middle)}…`)) low = middle;
    else high = middle - 1;
  }
  return `${text.slice(0, low)}…`;
}

/** The same as a table, for whoever cannot see the picture or wants the numbers. */
export function asTable(caption, head, rows) {
  return h(
    "details",
    { class: "as-table" },
    h("summary", {}, "As a table"),
    h(
      "div",
      { class: "table-scroll", tabindex: "0", role: "region", "aria-label": caption },
      h(
        "table",
        {},
        h("caption", { class: "unseen" }, caption),
        h(
          "thead",
          {},
          h(
            "tr",
            {},
            head.map((cell) => h("th", { scope: "col" }, cell)),
          ),
        ),
        h(
          "tbody",
          {},
          rows.map((row) =>
            h(
              "tr",
              {},
              row.map((cell, at) => h(at === 0 ? "th" : "td", at === 0 ? { scope: "row" } : {}, cell)),
            ),
          ),
        ),
      ),
    ),
  );
}
