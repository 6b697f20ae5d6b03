// What stands within a block of markdown: code, emphasis, links. Pure.
//
// Invariant: the work grows with the length of the text alone. Once a mark is known not to be closed, it is not looked
// for again; and a text that is too long stays as it is.

import { safeAddress } from "./text.js";

/** A longer text has no emphasis. */
const LONGEST = 20_000;
/** How deep emphasis is followed. */
const DEEPEST = 5;

const MARKS = [
  { mark: "**", type: "strong" },
  { mark: "__", type: "strong" },
  { mark: "~~", type: "strike" },
  { mark: "*", type: "emphasis" },
  { mark: "_", type: "emphasis" },
];

/** The pieces of a text: `{type: "text" | "code", text}`, `{type: "strong" | …, children}`, `{type: "link", href, children}`. */
export function inline(text, depth = 0) {
  if (text.length > LONGEST || depth > DEEPEST) return [{ type: "text", text }];
  const reader = { text, depth, unclosed: new Set(), out: [], plain: "" };
  let at = 0;
  while (at < text.length) {
    const taken = piece(reader, at);
    if (taken > 0) {
      at += taken;
    } else {
      reader.plain += text[at];
      at += 1;
    }
  }
  flush(reader);
  return reader.out;
}

function flush(reader) {
  if (reader.plain) reader.out.push({ type: "text", text: reader.plain });
  reader.plain = "";
}

function push(reader, node, length) {
  flush(reader);
  reader.out.push(node);
  return length;
}

/** How many characters a piece that begins there has; 0 when none does. */
function piece(reader, at) {
  const { text } = reader;
  switch (text[at]) {
    case "\\":
      if (/[\\`*_{}[\]()#+\-.!|~<>]/.test(text[at + 1] ?? "")) {
        reader.plain += text[at + 1];
        return 2;
      }
      return 0;
    case "`":
      return code(reader, at);
    case "[":
      return link(reader, at);
    case "*":
    case "_":
    case "~":
      return emphasis(reader, at);
    case "h":
      return address(reader, at);
    default:
      return 0;
  }
}

function code(reader, at) {
  const { text, unclosed } = reader;
  const mark = /^`+/.exec(text.slice(at, at + 100))[0];
  if (!unclosed.has(mark)) {
    let end = text.indexOf(mark, at + mark.length);
    while (end >= 0 && text[end + mark.length] === "`") {
      const run = /^`+/.exec(text.slice(end, end + 100))[0];
      end = text.indexOf(mark, end + run.length);
    }
    if (end >= 0) {
      const inner = text.slice(at + mark.length, end).replaceAll("\n", " ");
      const trimmed = /^ .* $/.test(inner) && inner.trim() !== "" ? inner.slice(1, -1) : inner;
      return push(reader, { type: "code", text: trimmed }, end + mark.length - at);
    }
    unclosed.add(mark);
  }
  reader.plain += mark;
  return mark.length;
}

function link(reader, at) {
  const { text, depth } = reader;
  const found =
    /^\[((?:[^[\]\n\\]|\\.){1,500})\]\(<?([^\s()<>]{1,2000}(?:\([^\s()<>]{0,500}\)[^\s()<>]{0,500})?)>?(?:[ \t]+"[^"\n]{0,300}")?\)/.exec(
      text.slice(at, at + 4_000),
    );
  if (!found) return 0;
  const href = safeAddress(found[2]);
  const children = inline(found[1], depth + 1);
  if (href) return push(reader, { type: "link", href, children }, found[0].length);
  // Where it leads is shown, and not followed.
  flush(reader);
  reader.out.push(...children, { type: "text", text: ` (${found[2]})` });
  return found[0].length;
}

function address(reader, at) {
  const { text } = reader;
  if (at > 0 && /[\w/]/.test(text[at - 1])) return 0;
  const found = /^https?:\/\/[^\s<>"'`\]]{1,2000}/.exec(text.slice(at, at + 2_010));
  if (!found) return 0;
  let shown = found[0].replace(/[.,;:!?*_~]+$/, "");
  if (shown.endsWith(")") && !shown.includes("(")) shown = shown.slice(0, -1);
  const href = safeAddress(shown);
  return href ? push(reader, { type: "link", href, children: [{ type: "text", text: shown }] }, shown.length) : 0;
}

function emphasis(reader, at) {
  const { text, depth, unclosed } = reader;
  const kind = MARKS.find(({ mark }) => text.startsWith(mark, at));
  if (!kind) return 0;
  const { mark, type } = kind;
  const opens = /\S/.test(text[at + mark.length] ?? " ") && !(mark[0] === "_" && /\w/.test(text[at - 1] ?? ""));
  if (opens && !unclosed.has(mark)) {
    const end = closing(text, at + mark.length, mark);
    if (end > 0) {
      const children = inline(text.slice(at + mark.length, end), depth + 1);
      return push(reader, { type, children }, end + mark.length - at);
    }
    unclosed.add(mark);
  }
  reader.plain += mark;
  return mark.length;
}

function closing(text, from, mark) {
  let end = text.indexOf(mark, from + 1);
  while (end >= 0) {
    const afterWord = /\S/.test(text[end - 1]) && text[end - 1] !== "\\";
    const isLonger = mark.length === 1 && (text[end + 1] === mark || text[end - 1] === mark);
    const insideWord = mark[0] === "_" && /\w/.test(text[end + mark.length] ?? "");
    if (afterWord && !isLonger && !insideWord) return end;
    end = text.indexOf(mark, end + (isLonger ? 2 : 1));
  }
  return 0;
}
