// Policies: how long each of them waits, as a picture and as numbers.

import { api } from "./api.js";
import { asTable, frame } from "./chart.js";
import { attempt } from "./dialog.js";
import { empty, h, replace, svg } from "./dom.js";
import { page } from "./page.js";
import { line, words } from "./text.js";
import { exactSpan, span } from "./time.js";

const HEIGHT = 150;
/** Room for the labels: above, below, at both sides. */
const ROOM = { top: 18, bottom: 20, left: 44, right: 52 };
/** When the longest delay is so many times the shortest, short ones would not be seen otherwise. */
const WIDE = 25;

/** The view of retry policies. */
export function policiesView() {
  const { element, body, fail } = page(
    "Policies",
    "How long each retry policy waits before each retry, and for how long it goes on.",
  );
  const frames = [];
  document.title = "Policies · Outlast";
  attempt(async () => {
    try {
      const { policies = [] } = await api("policies");
      const cards = policies.map((policy) => card(policy, frames));
      replace(body, cards.length > 0 ? h("div", { class: "cards" }, cards) : empty("No policies"));
    } catch (problem) {
      fail(problem);
    }
  });
  return { element, close: () => frames.forEach(({ close }) => close()) };
}

function card(policy, frames) {
  const delays = (policy.delays_ms ?? []).slice(0, 200);
  const facts = [
    delays.length === 0 ? "no retries" : `${delays.length} ${delays.length === 1 ? "retry" : "retries"}`,
    policy.total_ms > 0 && `${exactSpan(policy.total_ms)} of waiting`,
    policy.cap_ms !== undefined && policy.cap_ms !== null && `at most ${exactSpan(policy.cap_ms)} each`,
    policy.budget_ms !== undefined && policy.budget_ms !== null && `budget ${span(policy.budget_ms)}`,
    policy.jitter &&
      policy.jitter !== "none" &&
      `jitter: ${words(typeof policy.jitter === "string" ? policy.jitter : JSON.stringify(policy.jitter))}`,
  ].filter(Boolean);
  const made = h(
    "article",
    { class: "card policy", test: "policy-card" },
    h("h2", {}, line(policy.name, 60)),
    h("p", { class: "quiet" }, facts.join(" · ")),
  );
  if (delays.length === 0) {
    made.append(h("p", { class: "chart-empty" }, "One attempt. A failure ends it."));
    return made;
  }
  const sums = running(delays);
  const picture = frame((width) => chart({ delays, sums, width, name: policy.name }));
  frames.push(picture);
  const rows = delays.map((delay, at) => [String(at + 1), exactSpan(delay), span(sums[at])]);
  made.append(
    picture.element,
    h(
      "p",
      { class: "caption" },
      `Bars: the delay before each retry${isWide(delays) ? ", on a scale of ratios" : ""}. Line: waited in all.`,
    ),
    asTable(`Delays of ${line(policy.name, 60)}`, ["Retry", "Delay", "Waited in all"], rows),
  );
  return made;
}

function shortest(delays) {
  return Math.max(1, Math.min(...delays.map((delay) => delay || Math.max(...delays))));
}

function isWide(delays) {
  return Math.max(...delays) / shortest(delays) > WIDE;
}

function running(delays) {
  let sum = 0;
  return delays.map((delay) => (sum += delay));
}

function chart({ delays, sums, width, name }) {
  const [low, high, total] = [shortest(delays), Math.max(1, ...delays), Math.max(1, sums.at(-1))];
  const isLog = isWide(delays);
  const bottom = HEIGHT - ROOM.bottom;
  const tall = bottom - ROOM.top;
  const share = (delay) => (isLog ? Math.log((delay || low) / low + 1) / Math.log(high / low + 1) : delay / high);
  const slot = (width - ROOM.left - ROOM.right) / delays.length;
  const bar = Math.max(2, Math.min(36, slot * 0.62));
  const x = (at) => ROOM.left + slot * (at + 0.5);
  const y = (delay) => bottom - Math.max(2, share(delay) * tall);
  const sumY = (sum) => bottom - (sum / total) * tall;
  const bars = delays.map((delay, at) =>
    svg(
      "rect",
      { x: x(at) - bar / 2, y: y(delay), width: bar, height: bottom - y(delay), rx: Math.min(3, bar / 3), class: "delay-bar" },
      svg("title", {}, `Retry ${at + 1}: after ${exactSpan(delay)}, ${span(sums[at])} in all`),
    ),
  );
  const line = `M${ROOM.left} ${bottom}${sums.map((sum, at) => `H${x(at)}V${sumY(sum)}`).join("")}H${width - ROOM.right}`;
  const numbers = delays.map((_, at) => at).filter((at) => at % Math.ceil(24 / slot) === 0);
  return svg(
    "svg",
    {
      width,
      height: HEIGHT,
      role: "img",
      "aria-label": `Delays of ${name}: ${delays.slice(0, 8).map(exactSpan).join(", ")}${delays.length > 8 ? " and so on" : ""}; ${span(total)} in all`,
    },
    guides({ isLog, low, high, width, y }),
    bars,
    svg("path", { d: line, class: "sum-line" }),
    svg("text", { x: width - ROOM.right + 5, y: ROOM.top + 4, class: "axis-label sum-label" }, span(total)),
    numbers.map((at) => svg("text", { x: x(at), y: HEIGHT - 5, class: "axis-label", "text-anchor": "middle" }, String(at + 1))),
  );
}

/** Lines at a few delays: on a scale of ratios at round spans, else at the half and the whole. */
function guides({ isLog, low, high, width, y }) {
  const rounds = [1_000, 10_000, 60_000, 600_000, 1_800_000, 3_600_000];
  const wanted = isLog ? rounds.filter((delay) => delay >= low && delay <= high) : [high / 2, high];
  return wanted.map((delay) => [
    svg("line", { x1: ROOM.left, x2: width - ROOM.right, y1: y(delay), y2: y(delay), class: "grid" }),
    svg("text", { x: ROOM.left - 6, y: y(delay) + 4, class: "axis-label", "text-anchor": "end" }, exactSpan(delay)),
  ]);
}
