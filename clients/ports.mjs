// Ports for servers that are started again at the same address.
import { createServer } from "node:net";

// Below the range from which the system takes ports of outgoing connections and of servers that ask for any port, so that
// nobody takes the port while its server is away.
const FIRST_PORT = 20_000;
const PORT_COUNT = 10_000;
const MAX_TRIES = 50;

/** Calls `start` with an address whose port is free; with another one if somebody else takes that port first. */
export async function listenOnFreePort(start) {
  for (let tries = 1; ; tries += 1) {
    const port = FIRST_PORT + Math.floor(Math.random() * PORT_COUNT);
    if (!(await isFree(port))) {
      if (tries < MAX_TRIES) continue;
      throw new Error(`no free port after ${tries} tries`);
    }
    const address = `127.0.0.1:${port}`;
    try {
      return await start(address);
    } catch (error) {
      if (tries >= MAX_TRIES || !/in use/i.test(error.message)) throw error;
    }
  }
}

function isFree(port) {
  return new Promise((resolve) => {
    const server = createServer().on("error", () => resolve(false));
    server.listen(port, "127.0.0.1", () => server.close(() => resolve(true)));
  });
}
