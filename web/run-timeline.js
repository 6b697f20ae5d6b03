// When the steps of a run did what, as a picture: bars for attempts, hatched ones for waits, a line for now.

import { phrase } from "./causes.js";
import { asTable, fitted, frame, hatch, timeAxis } from "./chart.js";
import { now } from "./clock.js";
import { h, replace, svg } from "./dom.js";
import { runBars } from "./run-layout.js";
import { tone } from "./states.js";
import { line, words } from "./text.js";
import { clockTime, span } from "./time.js";

const TOP = 26;

/** The picture; `update(run)` draws it as it is now. */
export function runTimeline() {
  let run;
  const table = h("div");
  const picture = frame((width) => (run ? draw(run, width) : h("span")), { test: "run-timeline" });
  return {
    element: h("div", { class: "timeline" }, picture.element, table),
    update(next) {
      run = next;
      picture.again();
      const wasOpen = table.querySelector("details")?.open ?? false;
      const made = tableOf(next);
      made.open = wasOpen;
      replace(table, made);
    },
    close: picture.close,
  };
}

function draw(run, width) {
  const time = now();
  const { from, to, rows, isOver } = runBars(run, time);
  const isNarrow = width < 560;
  const names = isNarrow ? 0 : 160;
  const step = isNarrow ? 40 : 28;
  const height = TOP + rows.length * step + 6;
  const x = (at) => names + 4 + ((Math.min(at, to) - from) / (to - from)) * (width - names - 16);
  const { definition, fill } = hatch("wait");
  return svg(
    "svg",
    {
      width,
      height,
      role: "img",
      "aria-label": `When ${rows.length} steps ran, from ${clockTime(from, time)} to ${clockTime(Math.min(to, time), time)}`,
    },
    definition,
    timeAxis({ from, to, x, top: TOP - 4, bottom: height, width: width - names }),
    rows.map((row, at) => drawRow({ row, x, y: TOP + at * step + step / 2 + (isNarrow ? 7 : 0), names, width, fill })),
    !isOver && svg("line", { x1: x(time), x2: x(time), y1: TOP - 4, y2: height, class: "now-line" }),
  );
}

function drawRow({ row, x, y, names, width, fill }) {
  const { step, bars, waits } = row;
  const label = fitted(line(step.id, 80), names ? names - 12 : width - 8, "12.5px");
  const wide = (from, to) => Math.max(3, x(to) - x(from));
  return svg(
    "g",
    {},
    svg("text", { x: names ? 0 : 2, y: names ? y + 4 : y - 13, class: "row-label" }, label),
    waits.map((wait) =>
      svg(
        "rect",
        { x: x(wait.from), y: y - 6, width: wide(wait.from, wait.to), height: 12, rx: 2, fill, class: "wait-bar" },
        svg("title", {}, `${phrase(wait.cause)}: waits ${span(wait.to - wait.from)}`),
      ),
    ),
    bars.map((bar) =>
      svg(
        "rect",
        {
          x: x(bar.from),
          y: y - 8,
          width: wide(bar.from, bar.to),
          height: 16,
          rx: 3,
          class: `attempt-bar tone-${bar.isOpen ? tone(step.phase) : tone(outcomeOf(bar))}`,
        },
        svg("title", {}, barWords(bar)),
      ),
    ),
  );
}

function outcomeOf(bar) {
  if (bar.outcome) return bar.outcome;
  return bar.cause || bar.class ? "failed" : "completed";
}

function barWords(bar) {
  const facts = [
    `Attempt ${bar.number}`,
    bar.isOpen ? "runs" : words(outcomeOf(bar)),
    bar.cause && phrase(bar.cause),
    line(bar.message, 200),
    span(bar.to - bar.from),
  ];
  return facts.filter(Boolean).join(", ");
}

function tableOf(run) {
  const time = now();
  const rows = runBars(run, time).rows.flatMap(({ step, bars }) =>
    bars.map((bar) => [
      line(step.id, 80),
      `${bar.visit ?? 1}.${bar.number}`,
      clockTime(bar.from, time),
      span(bar.to - bar.from),
      bar.isOpen ? "runs" : words(outcomeOf(bar)),
      bar.cause ? phrase(bar.cause) : "–",
    ]),
  );
  return asTable("Attempts", ["Step", "Visit and attempt", "Began", "Took", "Outcome", "Cause"], rows);
}
