// Markdown as a tree. Pure, and never HTML: whatever is not known here stays text.
//
// `blocks(text)` cuts a text into blocks, each with its own source, so that a view can keep those that did not change
// while an answer grows. `inline(text)` reads what stands within one.

import { inline } from "./markdown-inline.js";

export { inline };

const FENCE = /^( {0,3})(`{3,}|~{3,})[ \t]*([^`\n]*)$/;
const HEADING = /^ {0,3}(#{1,6})[ \t]+(.*?)[ \t]*#*[ \t]*$/;
const RULE = /^ {0,3}([-*_])[ \t]*(?:\1[ \t]*){2,}$/;
const QUOTE = /^ {0,3}>[ \t]?/;
const ITEM = /^( *)([-*+]|\d{1,9}[.)])[ \t]+(.*)$/;
const DIVIDER = /^ {0,3}\|?[ \t]*:?-+:?[ \t]*(\|[ \t]*:?-+:?[ \t]*)*\|?[ \t]*$/;

/** How deep lists and quotes are followed. */
const DEEPEST = 6;

/** The blocks of a text. */
export function blocks(text, depth = 0) {
  const lines = text.split("\n");
  const out = [];
  let at = 0;
  while (at < lines.length) {
    if (lines[at].trim() === "") {
      at += 1;
      continue;
    }
    const { block, end } = blockAt(lines, at, depth);
    out.push({ ...block, source: lines.slice(at, end).join("\n") });
    at = end;
  }
  return out;
}

function blockAt(lines, at, depth) {
  const line = lines[at];
  const fence = FENCE.exec(line);
  if (fence) return fenced(lines, at, fence);
  const heading = HEADING.exec(line);
  if (heading) {
    return { block: { type: "heading", level: heading[1].length, text: heading[2] }, end: at + 1 };
  }
  if (RULE.test(line)) return { block: { type: "rule" }, end: at + 1 };
  if (QUOTE.test(line) && depth < DEEPEST) return quoted(lines, at, depth);
  if (ITEM.test(line) && depth < DEEPEST) return listed(lines, at, depth);
  if (isTable(lines, at)) return tabled(lines, at);
  return paragraph(lines, at);
}

/** A block of code; one that is not closed yet goes on to the end. */
function fenced(lines, at, [, indent, mark, language]) {
  let end = at + 1;
  const closes = (line) => {
    const close = /^ {0,3}(`{3,}|~{3,})[ \t]*$/.exec(line);
    return close && close[1][0] === mark[0] && close[1].length >= mark.length;
  };
  while (end < lines.length && !closes(lines[end])) end += 1;
  const inner = lines.slice(at + 1, end).map((line) => outdent(line, indent.length));
  const block = { type: "code", language: language.trim().split(/\s/)[0] ?? "", text: inner.join("\n") };
  return { block, end: Math.min(end + 1, lines.length) };
}

function quoted(lines, at, depth) {
  let end = at;
  while (end < lines.length && QUOTE.test(lines[end])) end += 1;
  const inner = lines.slice(at, end).map((line) => line.replace(QUOTE, ""));
  return { block: { type: "quote", blocks: blocks(inner.join("\n"), depth + 1) }, end };
}

function listed(lines, at, depth) {
  const [, indent, marker] = ITEM.exec(lines[at]);
  const ordered = /\d/.test(marker);
  const items = [];
  let end = at;
  let inner = [];
  const flush = () => {
    if (inner.length > 0) items.push(blocks(inner.join("\n"), depth + 1));
    inner = [];
  };
  let width = 0;
  while (end < lines.length) {
    const line = lines[end];
    const item = ITEM.exec(line);
    if (item && item[1].length <= indent.length + 1) {
      if (/\d/.test(item[2]) !== ordered || RULE.test(line)) break;
      flush();
      width = line.length - item[3].length;
      inner = [item[3]];
    } else if (line.trim() === "") {
      // An empty line belongs to the list when the list goes on after it.
      const next = lines.slice(end + 1, end + 4).find((other) => other.trim() !== "");
      const goesOn = next !== undefined && (/^ {2,}\S/.test(next) || sameList(next, ordered, indent));
      if (!goesOn) break;
      inner.push("");
    } else if (/^ {2,}/.test(line) || !startsBlock(lines, end)) {
      inner.push(outdent(line, width));
    } else {
      break;
    }
    end += 1;
  }
  flush();
  const start = ordered ? Number.parseInt(marker, 10) : undefined;
  return { block: { type: "list", ordered, start, items }, end };
}

function sameList(line, ordered, indent) {
  const item = ITEM.exec(line);
  return Boolean(item) && item[1].length <= indent.length + 1 && /\d/.test(item[2]) === ordered;
}

function outdent(line, most) {
  const spaces = /^ */.exec(line)[0].length;
  return line.slice(Math.min(spaces, most));
}

function isTable(lines, at) {
  const next = lines[at + 1];
  return lines[at].includes("|") && next !== undefined && next.includes("-") && DIVIDER.test(next) && next.includes("|");
}

function tabled(lines, at) {
  const head = cells(lines[at]);
  let end = at + 2;
  const rows = [];
  while (end < lines.length && lines[end].includes("|") && lines[end].trim() !== "") {
    const row = cells(lines[end]).slice(0, head.length);
    while (row.length < head.length) row.push("");
    rows.push(row);
    end += 1;
  }
  return { block: { type: "table", head, rows }, end };
}

function cells(line) {
  const inner = line
    .trim()
    .replace(/^\|/, "")
    .replace(/(?<!\\)\|$/, "");
  return inner.split(/(?<!\\)\|/).map((cell) => cell.trim().replaceAll("\\|", "|"));
}

function startsBlock(lines, at) {
  const line = lines[at];
  return [FENCE, HEADING, RULE, QUOTE, ITEM].some((start) => start.test(line));
}

function paragraph(lines, at) {
  let end = at + 1;
  while (end < lines.length && lines[end].trim() !== "" && !startsBlock(lines, end) && !isTable(lines, end)) end += 1;
  const text = lines
    .slice(at, end)
    .map((line) => line.replace(/^ +/, ""))
    .join("\n");
  return { block: { type: "paragraph", text }, end };
}
