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
/** Nobody looks for so long: the connection is left to other tabs, as a browser has few of them for one server. */
const UNSEEN = 30_000;

/**
 * Follows a session. `hear` has `snapshot(snapshot)`, `event(event)`, and `state(word, problem)` with `live`, `lost` or
 * `gone`; the problem is what the server said, if it said something. Nothing is heard while nobody looks for a while: it
 * comes when somebody does. Returns a function that ends it.
 */
export function follow(id, hear) {
  const following = new Following(id, hear);
  return () => following.end();
}

class Following {
  #place;
  #pause = SHORTEST_PAUSE;
  #connection = new AbortController();
  #isOver = false;
  #isResting = false;
  #leaving;
  #wake = () => {};
  #online = () => this.#wake();
  #look = () => (document.hidden ? this.#leaveLater() : this.#come());

  constructor(id, hear) {
    this.path = `sessions/${part(id)}/events?dialect=native`;
    this.hear = hear;
    window.addEventListener("online", this.#online);
    document.addEventListener("visibilitychange", this.#look);
    if (document.hidden) this.#leaveLater();
    this.#run();
  }

  end() {
    this.#isOver = true;
    clearTimeout(this.#leaving);
    window.removeEventListener("online", this.#online);
    document.removeEventListener("visibilitychange", this.#look);
    this.#connection.abort();
    this.#wake();
  }

  // --- Whether anybody looks ---

  #leaveLater() {
    clearTimeout(this.#leaving);
    this.#leaving = setTimeout(() => {
      this.#isResting = true;
      this.#connection.abort();
    }, UNSEEN);
  }

  #come() {
    clearTimeout(this.#leaving);
    this.#isResting = false;
    this.#pause = SHORTEST_PAUSE;
    this.#wake();
  }

  // --- One connection after the other, never two at once ---

  async #run() {
    for (;;) {
      while (this.#isResting && !this.#isOver) await this.#sleep();
      if (this.#isOver) return;
      const problem = await this.#once().catch((error) => error);
      if (this.#isOver) return;
      if (problem?.status === 404) {
        this.hear.state("gone", problem);
        return this.end();
      }
      const told = this.#learn(problem);
      // It was not lost but left.
      if (this.#isResting) continue;
      this.hear.state("lost", told);
      await this.#sleep(this.#pause * (0.75 + Math.random() / 2));
      this.#pause = Math.min(LONGEST_PAUSE, this.#pause * 2);
    }
  }

  async #once() {
    this.#connection = new AbortController();
    const { signal } = this.#connection;
    const headers = { accept: "text/event-stream" };
    if (this.#place) headers["last-event-id"] = this.#place;
    const response = await send(this.path, { headers, signal });
    this.hear.state("live");
    await readAll(response.body, (message) => this.#take(message), () => this.#connection.abort());
  }

  #take(message) {
    try {
      this.#tell(message);
    } catch (error) {
      // What cannot be read or shown is not read again: a snapshot is.
      this.#place = undefined;
      throw error;
    }
    this.#place = message.id || this.#place;
    this.#pause = SHORTEST_PAUSE;
  }

  #tell({ event, data }) {
    const said = JSON.parse(data);
    if (event === "snapshot") {
      learnNow(said.session?.now);
      this.hear.snapshot(said);
    } else {
      learnEvent(said.time);
      this.hear.event(said);
    }
  }

  /** What a person is to be told of a problem, if anything. */
  #learn(problem) {
    if (problem?.status === 410) this.#place = undefined;
    else if (problem?.status > 0) return problem;
    return undefined;
  }

  /** Waits until that time has passed, or something has happened. */
  #sleep(time) {
    return new Promise((resolve) => {
      this.#wake = resolve;
      if (time !== undefined) setTimeout(resolve, time);
    });
  }
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
