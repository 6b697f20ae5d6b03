// The last requests of a gateway as a picture: a row for each, marks for attempts that failed, bars for waits.

import { LEGEND, group, outline, phrase } from "./causes.js";
import { asTable, fitted, frame, hatch, timeAxis } from "./chart.js";
import { now } from "./clock.js";
import { chip, empty, h, replace, svg } from "./dom.js";
import { line, words } from "./text.js";
import { clockTime, millis, span } from "./time.js";
import { isGood, newTraffic, trafficRows } from "./traffic.js";

const ROW = 26;
const TOP = 26;
const MOST_ROWS = 60;
const WINDOWS = [
  { label: "5 min", millis: 300_000 },
  { label: "30 min", millis: 1_800_000 },
  { label: "2 h", millis: 7_200_000 },
  { label: "12 h", millis: 43_200_000 },
];

/** A picture of requests; `again(traffic)` draws what that holds, as it is now. */
export function trafficTimeline(name) {
  let traffic = newTraffic();
  let window = WINDOWS[0].millis;
  const table = h("div");
  const note = h("p", { class: "quiet" });
  const picture = frame((width) => draw({ traffic, width, window, note }), { test: "traffic-timeline" });
  const choices = WINDOWS.map(({ label, millis: length }) => {
    const input = h("input", { type: "radio", name: `window-${name}`, value: String(length), checked: length === window });
    input.addEventListener("change", () => {
      window = length;
      picture.now();
    });
    return h("label", { class: "way" }, input, h("span", {}, label));
  });
  const ways = h("fieldset", { class: "ways" }, h("legend", { class: "unseen" }, "How far back"), choices);
  const element = h("div", { class: "timeline" }, legend(), picture.element, note, table);
  return {
    element,
    ways,
    again(next) {
      traffic = next;
      picture.again();
      drawTable(table, traffic, window);
    },
    close: picture.close,
  };
}

function legend() {
  const mark = (name) =>
    svg(
      "svg",
      { width: 14, height: 14, "aria-hidden": "true" },
      svg("path", { d: outline(name, 7, 7, 5), class: `mark cause-${name}` }),
    );
  return h(
    "ul",
    { class: "legend", "aria-label": "Causes" },
    LEGEND.map(({ group: name, label }) => h("li", {}, mark(name), label)),
  );
}

function draw({ traffic, width, window, note }) {
  const time = now();
  const rows = trafficRows(traffic, { now: time, window, most: MOST_ROWS });
  note.textContent = rows.length >= MOST_ROWS ? `The last ${MOST_ROWS} requests are shown.` : "";
  if (rows.length === 0) return empty("No requests in this time", "They appear here as they come.");
  const names = width < 560 ? 0 : 210;
  const step = width < 560 ? ROW + 14 : ROW;
  const height = TOP + rows.length * step + 8;
  const right = 14;
  const ahead = Math.max(window * 0.06, ...rows.map((row) => Math.min(row.to - time, window * 0.25)));
  const [from, to] = [time - window, time + ahead];
  const x = (at) => names + ((Math.max(from, Math.min(to, at)) - from) / (to - from)) * (width - names - right);
  const { definition, fill } = hatch("wait");
  return svg(
    "svg",
    { width, height, role: "img", "aria-label": `${rows.length} requests over the last ${span(window)}` },
    definition,
    timeAxis({ from, to, x, top: TOP - 4, bottom: height, width: width - names }),
    rows.map((row, at) => drawRow({ row, x, y: TOP + at * step + step / 2 + (names ? 0 : 7), names, width, fill, time })),
    svg("line", { x1: x(time), x2: x(time), y1: TOP - 4, y2: height, class: "now-line" }),
  );
}

function drawRow({ row, x, y, names, width, fill, time }) {
  const { request, waits, failures, end } = row;
  const label = [line(request.client, 40) || "client", request.model && line(request.model, 60)].filter(Boolean).join(" · ");
  const shown = svg(
    "text",
    { x: names ? 0 : 2, y: names ? y + 4 : y - 12, class: "row-label" },
    fitted(label, names ? names - 12 : width - 4, "12.5px"),
  );
  const until = Math.min(time, end?.at ?? time);
  return svg(
    "g",
    {},
    svg("title", {}, `${label}, ${line(request.path, 120)}, begun ${clockTime(row.from, time)}`),
    shown,
    svg("line", { x1: x(row.from), x2: Math.max(x(until), x(row.from) + 1), y1: y, y2: y, class: end ? "span ended" : "span" }),
    waits.map((wait) =>
      svg(
        "rect",
        {
          x: x(wait.from),
          y: y - 5,
          width: Math.max(1, x(wait.to) - x(wait.from)),
          height: 10,
          rx: 2,
          fill,
          class: "wait-bar",
        },
        svg("title", {}, `${phrase(wait.cause)}: waits ${span(wait.to - wait.from)}`),
      ),
    ),
    failures.map((failure) =>
      svg(
        "path",
        { d: outline(group(failure.cause), x(failure.at), y), class: `mark cause-${group(failure.cause)}` },
        svg("title", {}, failureWords(failure)),
      ),
    ),
    end && endMark(end, x(end.at), y),
  );
}

function failureWords({ attempt, cause, status, message, at }) {
  const facts = [`Attempt ${attempt}: ${phrase(cause)}`, status, line(message, 200), clockTime(at, now())];
  return facts.filter(Boolean).join(", ");
}

function endMark(end, x, y) {
  const good = isGood(end);
  const title = svg("title", {}, [words(end.outcome), end.status].filter(Boolean).join(", ") || "ended");
  const sign = good ? `M${x - 3} ${y}l2.2 2.4l4 -4.8` : `M${x - 2.6} ${y - 2.6}l5.2 5.2M${x + 2.6} ${y - 2.6}l-5.2 5.2`;
  return svg(
    "g",
    { class: good ? "end-mark good" : "end-mark bad" },
    title,
    svg("circle", { cx: x, cy: y, r: 6.5 }),
    svg("path", { d: sign }),
  );
}

function drawTable(element, traffic, window) {
  const wasOpen = element.querySelector("details")?.open ?? false;
  const time = now();
  const rows = trafficRows(traffic, { now: time, window, most: MOST_ROWS }).map(({ request, failures, end, from }) => [
    line(request.client, 40) || "client",
    line(request.model, 60) || "–",
    clockTime(from, time),
    String(failures.length),
    failures.length > 0 ? phrase(failures.at(-1).cause) : "–",
    end ? chip(words(end.outcome) || "ended", isGood(end) ? "tone-good" : "tone-bad") : chip("under way", "tone-busy"),
    end ? span(millis(request.ended) - from) : span(time - from),
  ]);
  // Whoever reads the table is not interrupted each second while it is closed.
  if (!wasOpen && element.firstChild) return;
  const made = asTable("Requests", ["Client", "Model", "Begun", "Failed attempts", "Last cause", "End", "Took"], rows);
  made.open = wasOpen;
  made.addEventListener("toggle", () => made.open && made.isConnected && !wasOpen && drawTable(element, traffic, window));
  replace(element, made);
}
