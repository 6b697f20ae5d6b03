// The server's clock, and everything on the page that counts down to a time of it.
//
// Invariant: a countdown is told from the time at which it ends and the server's clock, so it is right after a reload, a
// sleep of the machine, and on a machine whose own clock is wrong. Nothing ticks while nobody looks.

import { setText } from "./dom.js";
import { ago, left, millis } from "./time.js";

let offset = 0;
let timer;
const watched = new Map();

/** What time it is at the server. */
export function now() {
  return Date.now() + offset;
}

/** An answer said what time it is; half of the time that it took has passed since. */
export function learnNow(time, askedAt) {
  const said = millis(time);
  if (said === undefined) return;
  const heardAt = Date.now();
  offset = said - (askedAt === undefined ? heardAt : (askedAt + heardAt) / 2);
}

/** Something happened at that time: it is not earlier now. */
export function learnEvent(time) {
  const said = millis(time);
  if (said !== undefined) offset = Math.max(offset, said - Date.now());
}

/** Has `paint` called several times a second for as long as the element is part of the page. */
export function everyMoment(element, paint) {
  paint(now());
  watched.set(element, paint);
  start();
  return element;
}

/** An element that counts down to a time, and says `over` from then on. Whoever reads the page aloud is not told of each second. */
export function countdown(element, until, over = "0s") {
  element.setAttribute("aria-hidden", "true");
  return everyMoment(element, (time) => {
    const target = typeof until === "function" ? until(time) : until;
    setText(element, target === undefined ? "" : target <= time ? over : left(target, time));
  });
}

/** An element that says how long ago something was, or in other words of its time and now. */
export function sinceThen(element, at, say = ago) {
  return everyMoment(element, (time) => setText(element, say(at, time)));
}

function start() {
  if (timer === undefined && !document.hidden && watched.size > 0) timer = setInterval(tick, 250);
}

function stop() {
  clearInterval(timer);
  timer = undefined;
}

function tick() {
  const time = now();
  for (const [element, paint] of watched) {
    if (element.isConnected) paint(time);
    else watched.delete(element);
  }
  if (watched.size === 0) stop();
}

document.addEventListener("visibilitychange", () => {
  if (document.hidden) return stop();
  tick();
  start();
});
