// Small pictures, drawn as lines. They say nothing that words beside them do not.

import { svg } from "./dom.js";

const PATHS = {
  sessions: "M4 5.5h16v10H9.5L5.5 19v-3.5H4Z",
  providers: "M12 3.5 20 7v5.5c0 4-3.2 6.8-8 8-4.8-1.2-8-4-8-8V7Z M8.8 11.8l2.3 2.3 4.2-4.4",
  gateway: "M4 6v12 M20 6v12 M4 12h16 M13.5 8.5 17 12l-3.5 3.5",
  runs: "M6 4.5a2 2 0 1 1 0 4 2 2 0 0 1 0-4Z M18 10a2 2 0 1 1 0 4 2 2 0 0 1 0-4Z M6 15.5a2 2 0 1 1 0 4 2 2 0 0 1 0-4Z M8 6.5h3.5L16 11 M8 17.5h3.5L16 13",
  policies: "M4 19.5V16 M9 19.5V13 M14 19.5V9 M19 19.5V4.5",
  close: "M6 6l12 12 M18 6 6 18",
  back: "M14.5 5.5 8 12l6.5 6.5",
  plus: "M12 5v14 M5 12h14",
  send: "M12 19.5V5 M6 10.5 12 4.5l6 6",
  stop: "M7 7h10v10H7Z",
  gear: "M4 7h9 M17 7h3 M15 5v4 M4 17h3 M11 17h9 M9 15v4",
  down: "M12 5v14 M6 13l6 6 6-6",
  sun: "M12 8a4 4 0 1 0 0 8 4 4 0 0 0 0-8Z M12 2.5v2 M12 19.5v2 M2.5 12h2 M19.5 12h2 M5.3 5.3l1.4 1.4 M17.3 17.3l1.4 1.4 M5.3 18.7l1.4-1.4 M17.3 6.7l1.4-1.4",
  moon: "M19.5 14.5A8 8 0 0 1 9.5 4.5a8 8 0 1 0 10 10Z",
  auto: "M12 4a8 8 0 1 0 0 16Z M12 4a8 8 0 0 1 0 16",
  help: "M9 9.2a3 3 0 1 1 4.4 2.6c-1 .6-1.4 1.1-1.4 2.2 M12 17.5v.1",
  tool: "M14.5 6.5a4 4 0 0 0-5 5L4 17l3 3 5.5-5.5a4 4 0 0 0 5-5L15 12l-3-3Z",
  thought: "M12 4.5c4.4 0 8 2.7 8 6s-3.6 6-8 6c-.9 0-1.8-.1-2.6-.3L5.5 19l.7-4C4.8 13.9 4 12.3 4 10.5c0-3.3 3.6-6 8-6Z",
  check: "M5 12.5l4.5 4.5L19 7.5",
  cross: "M7 7l10 10 M17 7 7 17",
  clock: "M12 4a8 8 0 1 0 0 16 8 8 0 0 0 0-16Z M12 7.5V12l3 2",
  question: "M9 9.2a3 3 0 1 1 4.4 2.6c-1 .6-1.4 1.1-1.4 2.2 M12 17.5v.1",
  folder: "M4 6.5h5.5l2 2H20v10H4Z",
};

/** The picture of that name. */
export function icon(name) {
  return svg(
    "svg",
    { viewBox: "0 0 24 24", class: "icon", "aria-hidden": "true", focusable: "false" },
    svg("path", { d: PATHS[name] ?? "" }),
  );
}
