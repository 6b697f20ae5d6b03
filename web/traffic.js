// The last requests of a gateway, put together from answers that say what has changed. Pure.

import { millis } from "./time.js";

/** How many requests are kept. */
const MOST = 500;
/** How many of those that wait are shown: nobody reads more, and they are drawn anew every second. */
const MOST_WAITING = 200;

/** Nothing known yet. */
export function newTraffic() {
  return { seq: undefined, requests: new Map() };
}

/** Takes an answer in: a request that is there already is another now. A number that fell back means another gateway. */
export function learnTraffic(traffic, { seq, requests = [] }) {
  if (traffic.seq !== undefined && seq < traffic.seq) traffic.requests.clear();
  for (const request of requests) {
    // In again at the end: those that changed last are kept the longest.
    traffic.requests.delete(request.id);
    traffic.requests.set(request.id, request);
  }
  for (const id of traffic.requests.keys()) {
    if (traffic.requests.size <= MOST) break;
    traffic.requests.delete(id);
  }
  traffic.seq = seq;
  return traffic;
}

/** Of those that wait, the ones that are shown, and how many more there are. */
export function waitingRows(waiting) {
  return { shown: waiting.slice(0, MOST_WAITING), more: Math.max(0, waiting.length - MOST_WAITING) };
}

/**
 * Whether a problem concerns one gateway, and nothing else that is shown: it has ended meanwhile, or says nothing. The next
 * list says so, or does not have it any more.
 */
export function concernsOne({ status }) {
  return [404, 502, 503, 504].includes(status);
}

/**
 * The rows of a picture: the requests of the last `window` milliseconds, those that began last first, each as
 * `{request, from, to, waits: [{from, to, cause}], failures: [{at, cause, attempt}], end}`.
 */
export function trafficRows(traffic, { now, window, most }) {
  const since = now - window;
  return [...traffic.requests.values()]
    .map((request) => rowOf(request, now))
    .filter((row) => row.from !== undefined && row.to >= since)
    .sort((one, other) => other.from - one.from)
    .slice(0, most);
}

function rowOf(request, now) {
  const [begun, ended] = [millis(request.begun), millis(request.ended)];
  const to = ended ?? now;
  const attempts = request.attempts ?? [];
  const waits = [];
  const failures = [];
  attempts.forEach((attempt, at) => {
    const failedAt = millis(attempt.failed_at);
    if (failedAt !== undefined) failures.push({ at: failedAt, ...attempt });
    // One that was not made is a wait from the beginning on.
    const since = failedAt ?? (attempt.began === undefined ? begun : undefined);
    const until = millis(attempts[at + 1]?.began) ?? ended ?? millis(attempt.wake) ?? now;
    if (since !== undefined && until > since) waits.push({ from: since, to: until, cause: attempt.cause });
  });
  const end = ended === undefined ? undefined : { at: ended, outcome: request.outcome, status: request.status };
  return { request, from: begun, to: Math.max(to, ...waits.map((wait) => wait.to)), waits, failures, end };
}

/** Whether a request ended well. */
export function isGood({ outcome, status }) {
  if (status !== undefined && status !== null && status >= 400) return false;
  return outcome === "answered";
}
