// Where the steps of a run stand in its picture, and when they did what. Pure.

import { millis } from "./time.js";

/** The layers of steps: each step is one layer behind the last of those that it needs. */
export function layers(steps) {
  const known = new Map(steps.map((step) => [step.id, step]));
  const depths = new Map();
  const depth = (id, path) => {
    if (depths.has(id)) return depths.get(id);
    // Steps that need each other cannot be; a file that says so is drawn all the same.
    if (path.has(id)) return 0;
    const needs = (known.get(id)?.needs ?? []).filter((need) => known.has(need));
    const inner = new Set(path).add(id);
    const own = needs.length === 0 ? 0 : 1 + Math.max(...needs.map((need) => depth(need, inner)));
    depths.set(id, own);
    return own;
  };
  const rows = [];
  for (const step of steps) {
    const at = depth(step.id, new Set());
    (rows[at] ??= []).push(step);
  }
  return ordered(rows.filter(Boolean));
}

/** Each layer ordered by where the steps stand that its own need, so that few arrows cross. */
function ordered(rows) {
  const places = new Map();
  const middle = (step) => {
    const at = (step.needs ?? []).map((need) => places.get(need)).filter((place) => place !== undefined);
    return at.length === 0 ? 0 : at.reduce((sum, place) => sum + place, 0) / at.length;
  };
  return rows.map((row) => {
    const sorted = row
      .map((step, index) => ({ step, index, at: middle(step) }))
      .sort((one, other) => one.at - other.at || one.index - other.index);
    sorted.forEach(({ step }, index) => places.set(step.id, (index + 0.5) / sorted.length));
    return sorted.map(({ step }) => step);
  });
}

/** The picture of steps: `{nodes: [{step, x, y}], edges, leads: [{from, to}], width, height}`, from the left or from the top. */
export function graphLayout(steps, { box, gap, isDown, most }) {
  const rows = layers(steps);
  const [along, across] = isDown ? [box.height, box.width] : [box.width, box.height];
  const [alongGap, acrossGap] = isDown ? [gap.along * 0.6, gap.across] : [gap.along, gap.across];
  const widest = Math.max(1, ...rows.map((row) => row.length));
  const breadth = widest * across + (widest - 1) * acrossGap;
  const nodes = [];
  rows.forEach((row, depth) => {
    const own = row.length * across + (row.length - 1) * acrossGap;
    row.forEach((step, index) => {
      const a = depth * (along + alongGap);
      const b = (breadth - own) / 2 + index * (across + acrossGap);
      nodes.push({ step, x: isDown ? b : a, y: isDown ? a : b });
    });
  });
  const length = rows.length * along + Math.max(0, rows.length - 1) * alongGap;
  const [width, height] = isDown ? [breadth, length] : [length, breadth];
  const ids = new Map(nodes.map((node) => [node.step.id, node]));
  const others = (names) => (names ?? []).filter((name) => ids.has(name)).map((name) => ids.get(name));
  const edges = nodes.flatMap((node) => others(node.step.needs).map((need) => ({ from: need, to: node })));
  const leads = nodes.flatMap((node) => others(node.step.leads_to).map((other) => ({ from: node, to: other })));
  return { nodes, edges, leads, width, height, fits: width <= most };
}

/** How many attempts a step has had. */
export function attemptCount(step) {
  return (step.attempts?.length ?? 0) + (step.earlier_attempts ?? 0);
}

/** How a step stands, in one of the words that have a colour. */
export function stepState(step) {
  if (step.question) return "asking";
  return step.phase ?? "idle";
}

/** The bars of a run: `{from, to, rows: [{step, bars: [{from, to, outcome, …}], waits: [{from, to, cause}]}]}`. */
export function runBars(run, now) {
  const began = millis(run.created) ?? now;
  const over = millis(run.ended);
  const end = over ?? now;
  const rows = (run.steps ?? []).map((step) => stepBars(step, end));
  const times = rows.flatMap(({ waits }) => waits.map(({ to }) => to));
  // What is to come has a part of the room at most, however long it takes.
  const ahead = Math.max(AHEAD_LEAST, (end - began) * AHEAD);
  const to = Math.max(end, began + 1_000, Math.min(end + ahead, Math.max(...times, end)));
  return { from: began, to, rows, isOver: over !== undefined };
}

/** How much of the time that has passed is shown of what is to come, and the least, in milliseconds. */
const AHEAD = 0.3;
const AHEAD_LEAST = 5_000;

function stepBars(step, end) {
  const attempts = step.attempts ?? [];
  const bars = [];
  const waits = [];
  attempts.forEach((attempt, at) => {
    const from = millis(attempt.began);
    if (from === undefined) return;
    const ended = millis(attempt.ended);
    bars.push({ ...attempt, from, to: Math.max(ended ?? end, from), isOpen: ended === undefined });
    const next = millis(attempts[at + 1]?.began);
    const until = next ?? millis(attempt.wait_until);
    if (ended !== undefined && until !== undefined && until > ended)
      waits.push({ from: ended, to: until, cause: attempt.cause });
  });
  // Within an attempt it is known until when a provider is waited for, and not since when.
  const until = millis(step.waiting?.until);
  if (bars.at(-1)?.isOpen && until > end) waits.push({ from: end, to: until, cause: step.waiting.cause });
  return { step, bars, waits };
}
