// What each item of a transcript looks like. `draw` makes an element for it, `redraw` brings one up to date.

import { errorBubble } from "./bubbles.js";
import { h, replace, setText } from "./dom.js";
import { icon } from "./icons.js";
import { showMarkdown } from "./markdown-view.js";
import { clean, line } from "./text.js";
import { answerText } from "./transcript.js";

/** How much of a tool's output is shown. */
const LONGEST_OUTPUT = 60_000;

/** The element for an item. */
export function draw(item, isLast) {
  const element = h("li", { class: `item ${item.type}`, "data-key": item.key });
  switch (item.type) {
    case "user":
      append(element, "You", h("div", { class: "message", test: "message-user" }, clean(item.text)));
      break;
    case "assistant":
      append(element, "Assistant", h("div", { class: "message markdown", test: "message-assistant" }));
      break;
    case "reasoning":
      element.append(folded("thought", "Reasoning", h("div", { class: "reasoning-text" })));
      break;
    case "tool":
      element.append(toolCall(item));
      break;
    case "error":
      element.append(errorBubble(item, isLast));
      break;
    default:
      element.append(h("p", { class: `note ${item.tone ?? ""}` }, item.text));
  }
  redraw(element, item);
  return element;
}

/** Brings an element up to date with its item. */
export function redraw(element, item) {
  if (item.type === "assistant") {
    const seam = item.parts.findLast((part) => part.seam)?.seam;
    showMarkdown(element.querySelector(".message"), withPlainEnds(answerText(item)), seam);
  } else if (item.type === "reasoning") {
    setText(element.querySelector(".reasoning-text"), item.parts.map((part) => part.text).join(""));
  } else if (item.type === "tool") {
    fillTool(element, item);
  }
}

/** Line ends as they are in markdown; everything else is cleaned where it gets into the page. */
function withPlainEnds(text) {
  return text.replace(/\r\n?|[\u2028\u2029]/g, "\n").slice(0, 1_000_000);
}

function append(element, who, content) {
  element.append(h("span", { class: "unseen" }, `${who}: `), content);
}

function folded(picture, title, content) {
  return h("details", { class: "fold" }, h("summary", {}, icon(picture), h("span", {}, title)), content);
}

function toolCall(item) {
  return h(
    "details",
    { class: "fold tool-call", test: "tool-call" },
    h(
      "summary",
      {},
      icon("tool"),
      h("span", { class: "tool-name" }, line(item.name, 80)),
      h("span", { class: "tool-about" }, about(item.args)),
      h("span", { class: "tool-phase" }),
    ),
    h(
      "div",
      { class: "tool-body" },
      h("p", { class: "label" }, "Arguments"),
      h("pre", { tabindex: "0", "aria-label": "Arguments" }, pretty(item.args)),
      h("p", { class: "label output-label", hidden: true }, "Output"),
      h("pre", { class: "output", tabindex: "0", "aria-label": "Output", hidden: true }),
    ),
  );
}

const PHASES = {
  called: ["waits", "clock"],
  running: ["runs", "clock"],
  done: ["done", "check"],
  failed: ["failed", "cross"],
};

function fillTool(element, item) {
  const [word, picture] = PHASES[item.phase] ?? PHASES.called;
  const phase = element.querySelector(".tool-phase");
  if (phase.dataset.phase !== item.phase) {
    phase.dataset.phase = item.phase;
    replace(phase, icon(picture), h("span", {}, word));
  }
  if (item.output === undefined) return;
  const output = element.querySelector(".output");
  setText(output, clean(item.output, LONGEST_OUTPUT) || "(nothing)");
  output.hidden = false;
  element.querySelector(".output-label").hidden = false;
}

/** What a call is about, in a line: its command or path, else all of its arguments. */
function about(args) {
  const read = parsed(args);
  if (read === null || typeof read !== "object") return line(args, 160);
  const first = ["command", "path", "file", "pattern", "query", "url"].find((name) => typeof read[name] === "string");
  return line(first ? read[first] : args, 160);
}

function pretty(args) {
  const read = parsed(args);
  return read === undefined ? clean(args, LONGEST_OUTPUT) : clean(JSON.stringify(read, null, 2), LONGEST_OUTPUT);
}

function parsed(args) {
  try {
    return JSON.parse(args);
  } catch {
    return undefined;
  }
}
