// Asking again and again, while somebody looks.

const LONGEST_PAUSE = 15_000;

/**
 * Asks at once, and again a while after each answer. Nothing is asked while the page is hidden. `ask` gets a signal and
 * may return a pause of its own, `Infinity` to ask no more; `fail` hears of problems. Returns `{stop, soon}`.
 */
export function poll(ask, pause, fail = () => {}) {
  let timer;
  let failures = 0;
  let isOver = false;
  let isAsking = false;
  let isAskedFor = false;
  const abort = new AbortController();

  const plan = (time) => {
    clearTimeout(timer);
    if (!isOver && !document.hidden && time !== Infinity) timer = setTimeout(run, time);
  };
  const run = async () => {
    if (isOver || document.hidden) return;
    if (isAsking) {
      isAskedFor = true;
      return;
    }
    isAsking = true;
    let next = pause;
    try {
      next = (await ask(abort.signal)) ?? pause;
      failures = 0;
    } catch (problem) {
      failures += 1;
      next = Math.min(LONGEST_PAUSE, pause * 2 ** failures);
      if (!isOver && problem?.name !== "AbortError") fail(problem);
    }
    isAsking = false;
    plan(isAskedFor ? 0 : next);
    isAskedFor = false;
  };
  const look = () => (document.hidden ? clearTimeout(timer) : run());
  document.addEventListener("visibilitychange", look);
  run();
  return {
    soon: run,
    stop() {
      isOver = true;
      clearTimeout(timer);
      abort.abort();
      document.removeEventListener("visibilitychange", look);
    },
  };
}
