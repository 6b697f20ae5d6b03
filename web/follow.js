// Following a session: a stream of events that is taken up again whenever it breaks off.
//
// Invariant: what follows a place is heard once, in order. When that is not possible, a snapshot comes, and everything
// before it is forgotten.

import { part, send } from "./api.js";
import { learnEvent, learnNow } from "./clock.js";
import { sseReader } from "./sse.js";

const SHORTEST_PAUSE = 500;
const LONGEST_PAUSE = 10_000;
/** Nothing, not even a sign of life, for so long: the connection is given up. */
const SILENCE = 60_000;

/**
 * Follows a session. `hear` has `snapshot(snapshot)`, `event(event)`, and `state(word, problem)` with `live`, `lost` or
 * `gone`; the problem is what the server said, if it said something. Returns a function that ends it.
 */
export function follow(id, hear) {
  let place;
  let pause = SHORTEST_PAUSE;
  let connection = new AbortController();
  let isOver = false;
  let wake = () => {};

  const take = ({ id: at, event, data }) => {
    const said = JSON.parse(data);
    if (event === "snapshot") {
      learnNow(said.session?.now);
      hear.snapshot(said);
    } else {
      learnEvent(said.time);
      hear.event(said);
    }
    place = at || place;
    pause = SHORTEST_PAUSE;
  };

  const once = async () => {
    connection = new AbortController();
    const headers = { accept: "text/event-stream" };
    if (place) headers["last-event-id"] = place;
    const path = `sessions/${part(id)}/events?dialect=native`;
    const response = await send(path, { headers, signal: connection.signal });
    hear.state("live");
    await readAll(response.body, take, () => connection.abort());
  };

  const run = async () => {
    while (!isOver) {
      let told;
      try {
        await once();
      } catch (problem) {
        if (isOver) return;
        if (problem.status === 404) return hear.state("gone", problem);
        // What cannot be read is not read again: a snapshot is.
        if (problem.status === 410 || problem instanceof SyntaxError || problem instanceof TypeError) place = undefined;
        else if (problem.status > 0) told = problem;
      }
      if (isOver) return;
      hear.state("lost", told);
      await new Promise((resolve) => {
        wake = resolve;
        setTimeout(resolve, pause * (0.75 + Math.random() / 2));
      });
      pause = Math.min(LONGEST_PAUSE, pause * 2);
    }
  };

  const online = () => wake();
  window.addEventListener("online", online);
  run();
  return () => {
    isOver = true;
    connection.abort();
    wake();
    window.removeEventListener("online", online);
  };
}

async function readAll(body, take, giveUp) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  const sse = sseReader();
  let silence;
  try {
    for (;;) {
      silence = setTimeout(giveUp, SILENCE);
      const { done, value } = await reader.read();
      clearTimeout(silence);
      if (done) return;
      for (const message of sse.push(value)) take(message);
    }
  } finally {
    clearTimeout(silence);
    reader.cancel().catch(() => {});
  }
}
