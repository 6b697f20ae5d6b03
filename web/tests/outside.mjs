// What tests of the page's connections share: as much of a browser as these need, and a server that does what it is told.
//
// Has to be imported before the modules that are tested.

globalThis.window = new EventTarget();
globalThis.document = Object.assign(new EventTarget(), { hidden: false, baseURI: "http://127.0.0.1:4190/" });

/** Whether anybody looks at the page. */
export function look(isLooked) {
  document.hidden = !isLooked;
  document.dispatchEvent(new Event("visibilitychange"));
}

/** Lets everything happen that waits for nothing but its turn. */
export async function settle() {
  for (let turn = 0; turn < 20; turn += 1) await new Promise((resolve) => setImmediate(resolve));
}

/** A server of one session. `asked` are the requests so far; each is answered by the next of `answers`, or waits. */
export function server(...answers) {
  const asked = [];
  globalThis.fetch = async (address, { headers, signal }) => {
    const request = { path: address.pathname, after: headers["last-event-id"], signal };
    asked.push(request);
    const answer = answers.shift();
    return answer ? answer(request) : new Promise((_, reject) => signal.addEventListener("abort", () => reject(signal.reason)));
  };
  return { asked, answers };
}

/** An answer that is a problem. */
export function problem(status, detail) {
  return () => new Response(JSON.stringify({ status, detail, code: "made_up" }), { status });
}

/** An answer that goes on: `say(text)` brings text, `end()` ends it, `breakOff()` is what browsers do when the network is gone. */
export function stream() {
  let control;
  const told = { isOver: false };
  const answer = ({ signal }) => {
    const body = new ReadableStream({
      start: (given) => (control = given),
      cancel: () => (told.isOver = true),
    });
    signal.addEventListener("abort", () => {
      told.isOver = true;
      control.error(signal.reason);
    });
    return new Response(body, { headers: { "content-type": "text/event-stream" } });
  };
  const say = (text) => control.enqueue(new TextEncoder().encode(text));
  return Object.assign(told, { answer, say, end: () => control.close(), breakOff: () => control.error(new TypeError("network error")) });
}
