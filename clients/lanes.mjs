// Runs the cases of a program in parallel lanes: several at once, each with processes, ports and folders of its own.
//
// A case prints its result in one piece when it ends. After the last one come the slowest cases and the names of those that
// failed. OUTLAST_TEST_LANES sets the number of lanes.

const DEFAULT_LANES = 4;
const SLOWEST_COUNT = 5;

/** Limit that keeps a broken case from hanging. No case asserts it: a machine that is ten times slower stays below it. */
export const HANG_TIMEOUT_MS = 240_000;

const LANES = lanes(process.env.OUTLAST_TEST_LANES);

function lanes(text = String(DEFAULT_LANES)) {
  const count = Number(text);
  if (Number.isInteger(count) && count > 0) return count;
  throw new Error(`OUTLAST_TEST_LANES is a whole number of at least 1; it is \`${text}\``);
}

/**
 * Runs every case and returns how many failed. `run(item)` runs one case, an object with a `name`, and returns a note for its
 * line, if any; it throws when the case fails, and limits its own waits.
 */
export async function runCases(cases, run, { atOnce = LANES } = {}) {
  const waiting = [...cases];
  const results = [];
  const work = async () => {
    for (let next = waiting.shift(); next; next = waiting.shift()) results.push(await runCase(next, run));
  };
  await Promise.all(Array.from({ length: Math.min(atOnce, cases.length) }, work));
  return report(results);
}

async function runCase(item, run) {
  const began = performance.now();
  const seconds = () => (performance.now() - began) / 1000;
  try {
    const note = await run(item);
    const result = { name: item.name, seconds: seconds(), failed: false };
    console.log(`ok      ${item.name} (${[describe(result), note].filter(Boolean).join(", ")})`);
    return result;
  } catch (error) {
    const result = { name: item.name, seconds: seconds(), failed: true };
    console.log(`FAILED  ${item.name} (${describe(result)})\n        ${explain(error)}`);
    return result;
  }
}

/** Adds lines to an error, for the report of the case. */
export function withDetails(error, lines) {
  const failure = error instanceof Error ? error : new Error(String(error));
  failure.details = lines.filter(Boolean);
  return failure;
}

function explain(error) {
  const isOurs = (line) => line.includes("/clients/") && !line.includes("/lanes.mjs") && !line.includes("/node_modules/");
  const place = (error?.stack ?? "").split("\n").find(isOurs)?.trim() ?? "";
  return [error?.message ?? String(error), place, ...(error?.details ?? [])].filter(Boolean).join("\n        ");
}

/** Fails when the work hangs. */
export async function withHangTimeout(running) {
  let timer;
  const late = new Promise((_, reject) => {
    timer = setTimeout(() => reject(new Error(`the case hangs: no end after ${HANG_TIMEOUT_MS} ms`)), HANG_TIMEOUT_MS);
  });
  // After the limit nobody awaits the case any more.
  running.catch(() => {});
  return Promise.race([running, late]).finally(() => clearTimeout(timer));
}

/** Prints the slowest cases and the failed ones; the number of the latter. */
function report(results) {
  const slowest = results.toSorted((a, b) => b.seconds - a.seconds).slice(0, SLOWEST_COUNT);
  const line = (result) => `  ${describe(result).padStart(8)}  ${result.name}`;
  if (slowest.length > 1) console.log(`slowest:\n${slowest.map(line).join("\n")}`);
  const failed = results.filter((result) => result.failed);
  if (failed.length > 0) console.log(`failed:\n${failed.map(({ name }) => `  ${name}`).join("\n")}`);
  return failed.length;
}

function describe({ seconds }) {
  return `${seconds.toFixed(1)} s`;
}
