// Markdown on the page. What did not change while an answer grows stays as it is, also what is selected in it.

import { h } from "./dom.js";
import { blocks, inline } from "./markdown.js";
import { seamWords } from "./notes.js";
import { SEAM } from "./text.js";

/** Shows a text in an element; call it again with the text that is there now. */
export function showMarkdown(element, text, seam) {
  const next = blocks(text);
  const known = element.outlastBlocks ?? [];
  let same = 0;
  while (same < known.length && same < next.length && known[same] === next[same].source) same += 1;
  while (element.childNodes.length > same) element.lastChild.remove();
  for (const block of next.slice(same)) element.append(showBlock(block, seam));
  element.outlastBlocks = next.map((block) => block.source);
}

function showBlock(block, seam) {
  const inner = (text) => showInline(inline(text), seam);
  switch (block.type) {
    case "code":
      return codeBlock(block, seam);
    case "heading":
      // The page has its own h1 and h2.
      return h(`h${Math.min(6, block.level + 2)}`, {}, inner(block.text));
    case "rule":
      return h("hr");
    case "quote":
      return h(
        "blockquote",
        {},
        block.blocks.map((one) => showBlock(one, seam)),
      );
    case "list":
      return h(
        block.ordered ? "ol" : "ul",
        { start: block.start > 1 ? String(block.start) : undefined },
        block.items.map((item) => listItem(item, seam)),
      );
    case "table":
      return table(block, inner);
    default:
      return h("p", {}, inner(block.text));
  }
}

function listItem(item, seam) {
  const isTight = item.filter((block) => block.type === "paragraph").length <= 1;
  const inner = item.map((block) =>
    isTight && block.type === "paragraph" ? showInline(inline(block.text), seam) : showBlock(block, seam),
  );
  return h("li", {}, inner);
}

function codeBlock({ language, text }, seam) {
  const copy = h("button", { type: "button", class: "copy" }, "Copy");
  copy.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(text.replaceAll(SEAM, ""));
      copy.textContent = "Copied";
    } catch {
      copy.textContent = "Not allowed";
    }
    setTimeout(() => (copy.textContent = "Copy"), 1_500);
  });
  const head = h("div", { class: "code-head" }, h("span", {}, language || "text"), copy);
  const code = h(
    "pre",
    { tabindex: "0", "aria-label": `Code${language ? `, ${language}` : ""}` },
    h("code", {}, withSeams(text, seam)),
  );
  return h("div", { class: "code" }, head, code);
}

function table({ head, rows }, inner) {
  return h(
    "div",
    { class: "table-scroll", tabindex: "0" },
    h(
      "table",
      {},
      h(
        "thead",
        {},
        h(
          "tr",
          {},
          head.map((cell) => h("th", { scope: "col" }, inner(cell))),
        ),
      ),
      h(
        "tbody",
        {},
        rows.map((row) =>
          h(
            "tr",
            {},
            row.map((cell) => h("td", {}, inner(cell))),
          ),
        ),
      ),
    ),
  );
}

function showInline(nodes, seam) {
  const inner = (node) => showInline(node.children, seam);
  return nodes.map((node) => {
    switch (node.type) {
      case "code":
        return h("code", {}, withSeams(node.text, seam));
      case "strong":
        return h("strong", {}, inner(node));
      case "emphasis":
        return h("em", {}, inner(node));
      case "strike":
        return h("s", {}, inner(node));
      case "link":
        return h("a", { href: node.href, rel: "noopener noreferrer nofollow", target: "_blank" }, inner(node));
      default:
        return withSeams(node.text, seam);
    }
  });
}

/** The text, with a mark in the page wherever the answer broke off. */
function withSeams(text, by) {
  if (!text.includes(SEAM)) return text;
  const words = seamWords(by);
  const mark = () => h("span", { class: "seam", title: words, role: "note", "aria-label": words }, "⌁");
  return text.split(SEAM).map((piece, at) => [at > 0 ? mark() : undefined, piece]);
}
