// The steps of a run and what they need, as a picture. Each step leads to what is known of it below.

import { fitted, frame } from "./chart.js";
import { h, svg } from "./dom.js";
import { attemptCount, graphLayout, stepState } from "./run-layout.js";
import { tone } from "./states.js";
import { line, words } from "./text.js";

const BOX = { width: 172, height: 54 };
const GAP = { along: 56, across: 18 };
const EDGE = 6;

/** The picture; `update(run)` draws it when it is another, `choose(id)` is called with the step that is pressed. */
export function runGraph(choose) {
  let run;
  let drawn;
  const picture = frame((width) => (run ? draw(run, width, choose) : h("span")), { class: "graph", test: "run-graph" });
  return {
    element: picture.element,
    update(next) {
      run = next;
      const key = JSON.stringify(
        next.steps?.map((step) => [step.id, step.needs, stepState(step), step.kind, attemptCount(step)]),
      );
      if (key === drawn) return;
      drawn = key;
      const focused = picture.element.contains(document.activeElement) ? document.activeElement.dataset.step : undefined;
      picture.now();
      if (focused) picture.element.querySelector(`[data-step="${CSS.escape(focused)}"]`)?.focus({ preventScroll: true });
    },
    close: picture.close,
  };
}

function draw(run, width, choose) {
  const steps = run.steps ?? [];
  const most = width - EDGE * 2;
  const { box, layout, isDown } = fit(steps, most);
  const shift = Math.max(EDGE, (width - layout.width) / 2);
  const total = Math.max(width, layout.width + EDGE * 2);
  return svg(
    "svg",
    {
      width: total,
      height: layout.height + EDGE * 2 + (layout.leads.length > 0 ? 12 : 0),
      role: "group",
      "aria-label": `${steps.length} steps`,
    },
    svg(
      "g",
      { transform: `translate(${shift} ${EDGE})` },
      layout.edges.map((edge) => arrow(edge, box, isDown)),
      layout.leads.map((edge) => lead(edge, box, isDown)),
      layout.nodes.map((node) => drawNode(node, box, choose)),
    ),
  );
}

/** From the left when that fits, with smaller boxes if need be; else from the top, with boxes that fit side by side. */
function fit(steps, most) {
  for (const width of [BOX.width, 148, 128]) {
    const [box, gap] = [
      { ...BOX, width },
      { ...GAP, along: width / 3 },
    ];
    const layout = graphLayout(steps, { box, gap, isDown: false, most });
    if (layout.fits) return { box, layout, isDown: false };
  }
  const wide = graphLayout(steps, { box: BOX, gap: GAP, isDown: true, most });
  const widest = Math.round((wide.width + GAP.across) / (BOX.width + GAP.across));
  const side = Math.floor((most - (widest - 1) * GAP.across) / widest);
  const box = { ...BOX, width: Math.min(BOX.width, Math.max(92, side)) };
  return { box, layout: graphLayout(steps, { box, gap: GAP, isDown: true, most }), isDown: true };
}

function arrow({ from, to }, box, isDown) {
  const start = isDown ? [from.x + box.width / 2, from.y + box.height] : [from.x + box.width, from.y + box.height / 2];
  const end = isDown ? [to.x + box.width / 2, to.y] : [to.x, to.y + box.height / 2];
  const [x1, y1] = start;
  const [x2, y2] = end;
  const bend = isDown ? (y2 - y1) / 2 : (x2 - x1) / 2;
  const line = isDown
    ? `M${x1} ${y1}C${x1} ${y1 + bend} ${x2} ${y2 - bend} ${x2} ${y2 - 6}`
    : `M${x1} ${y1}C${x1 + bend} ${y1} ${x2 - bend} ${y2} ${x2 - 6} ${y2}`;
  const head = isDown ? `M${x2 - 4} ${y2 - 7}h8l-4 7Z` : `M${x2 - 7} ${y2 - 4}v8l7 -4Z`;
  return svg(
    "g",
    { class: tone(stepState(from.step)) === "good" ? "edge done" : "edge", "aria-hidden": "true" },
    svg("path", { d: line }),
    svg("path", { d: head, class: "head" }),
  );
}

/** Where a step can lead beside those that need it, also back: a bow that is no need. */
function lead({ from, to }, box, isDown) {
  // Beside them when they stand below each other, else below them.
  const isBeside = isDown ? from.y !== to.y : from.x === to.x;
  const [near, far] = isBeside ? [from.x + box.width, to.x + box.width] : [from.y + box.height, to.y + box.height];
  const bow = Math.max(near, far) + 20;
  const line = isBeside
    ? `M${near} ${from.y + box.height / 2}C${bow} ${from.y + box.height / 2} ${bow} ${to.y + box.height / 2} ${far} ${to.y + box.height / 2}`
    : `M${from.x + box.width / 2} ${near}C${from.x + box.width / 2} ${bow} ${to.x + box.width / 2} ${bow} ${to.x + box.width / 2} ${far}`;
  return svg("path", { d: line, class: "lead-line", "aria-hidden": "true" });
}

function drawNode({ step, x, y }, box, choose) {
  const state = stepState(step);
  const attempts = attemptCount(step);
  const more = [words(state), attempts > 1 && `${attempts} attempts`].filter(Boolean).join(", ");
  const press = (event) => {
    if (event.type === "keydown" && event.key !== "Enter" && event.key !== " ") return;
    event.preventDefault();
    choose(step.id);
  };
  return svg(
    "g",
    {
      class: `node tone-${tone(state)}`,
      transform: `translate(${x} ${y})`,
      tabindex: "0",
      role: "button",
      "data-step": step.id,
      onclick: press,
      onkeydown: press,
    },
    svg("title", {}, [`${line(step.id, 120)} ${more}`, step.kind && words(step.kind)].filter(Boolean).join(", ")),
    svg("rect", { width: box.width, height: box.height, rx: 8, class: "node-box" }),
    svg("path", {
      d: `M8 0h0a8 8 0 0 0 -8 8v${box.height - 16}a8 8 0 0 0 8 8h0Z`,
      class: "node-side",
      transform: "scale(.6 1)",
    }),
    svg("text", { x: 14, y: 22, class: "node-name" }, fitted(line(step.id, 80), box.width - 22, "600 13.5px")),
    svg("text", { x: 14, y: 41, class: "node-state" }, fitted(more, box.width - 22, "12px")),
  );
}
