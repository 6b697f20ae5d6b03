import assert from "node:assert/strict";
import { test } from "node:test";
import { blocks, inline } from "../markdown.js";

const shape = (text) => blocks(text).map(({ type }) => type);
const plain = (nodes) =>
  nodes
    .map((node) =>
      node.children ? `<${node.type}>${plain(node.children)}</>` : node.type === "code" ? `\`${node.text}\`` : node.text,
    )
    .join("");
const read = (text) => plain(inline(text));

test("a text is cut into blocks, and each knows its source", () => {
  const text = "# Title\n\nOne\ntwo\n\n```rust\nfn x() {}\n\n```\n- a\n- b\n\n> said\n\n---\n| a | b |\n|---|---|\n| 1 | 2 |";
  assert.deepEqual(shape(text), ["heading", "paragraph", "code", "list", "quote", "rule", "table"]);
  assert.equal(blocks(text)[1].source, "One\ntwo");
});

test("code that is not closed yet is code", () => {
  const [block] = blocks("```js\nlet a = 1;\n**b**");
  assert.deepEqual([block.type, block.language, block.text], ["code", "js", "let a = 1;\n**b**"]);
});

test("blocks that are complete keep their source while the text grows", () => {
  const text = "One *two*\n\n- a\n- b\n\n```\ncode\n```\n\nlast words";
  for (let end = text.indexOf("last"); end <= text.length; end += 1) {
    assert.deepEqual(
      blocks(text.slice(0, end))
        .slice(0, 3)
        .map(({ source }) => source),
      blocks(text)
        .slice(0, 3)
        .map(({ source }) => source),
    );
  }
});

test("lists can be in lists, and have more than one line", () => {
  const [list] = blocks("1. one\n   - in\n   - there\n2. two\n   goes on\n\n   and on\n");
  assert.equal(list.ordered, true);
  assert.deepEqual(
    list.items.map((item) => item.map(({ type }) => type)),
    [
      ["paragraph", "list"],
      ["paragraph", "paragraph"],
    ],
  );
});

test("a list ends where something else begins", () => {
  assert.deepEqual(shape("- a\n- b\n\nafter"), ["list", "paragraph"]);
  assert.deepEqual(shape("- a\n1. b"), ["list", "list"]);
});

test("emphasis, code and links", () => {
  assert.equal(read("a **b *c* d** `e*f*` _g_ ~~h~~"), "a <strong>b <emphasis>c</> d</> `e*f*` <emphasis>g</> <strike>h</>");
  assert.equal(read("[x](https://e.org/a_b) and https://e.org/c."), "<link>x</> and <link>https://e.org/c</>.");
  assert.equal(read("``a ` b``"), "`a ` b`");
});

test("what is not emphasis stays as it is", () => {
  for (const text of ["2 * 3 * 4", "snake_case_name", "a ** b", "*not closed", "\u0060", "5*"]) assert.equal(read(text), text);
  assert.equal(read("\\*no\\*"), "*no*");
});

test("a link that leads elsewhere than to the web is text", () => {
  assert.equal(read("[x](javascript:alert)"), "x (javascript:alert)");
  assert.equal(
    inline("[x](javascript:alert(1))").some(({ type }) => type === "link"),
    false,
  );
});

test("HTML is text", () => {
  assert.deepEqual(inline("<b onclick=x>"), [{ type: "text", text: "<b onclick=x>" }]);
  assert.deepEqual(shape("<script>\nx\n</script>"), ["paragraph"]);
});

// How many times as long the long text is, and how many times as long as the short texts together it may take: with work
// that grows with the square it takes PARTS times as long, whatever the machine.
const PARTS = 16;
const MAX_GROWTH = 6;
const MIN_ROUNDS = 8;
const MAX_ROUNDS = 20;

/** CPU milliseconds of some work. */
function cost(work) {
  const began = process.cpuUsage();
  work();
  const { user, system } = process.cpuUsage(began);
  return (user + system) / 1000;
}

/** How much more one long text costs than the same amount of short ones: least of both, so that other work does not count. */
function growth(parse, piece, length) {
  const short = piece.repeat(length / PARTS / piece.length);
  const long = piece.repeat(length / piece.length);
  let [least, most] = [Infinity, Infinity];
  for (let round = 0; round < MAX_ROUNDS; round += 1) {
    least = Math.min(least, cost(() => Array.from({ length: PARTS }, () => parse(short))));
    most = Math.min(most, cost(() => parse(long)));
    if (round >= MIN_ROUNDS && most < MAX_GROWTH * least) break;
  }
  return most / least;
}

test("hostile texts take no more time than others", () => {
  const found = [];
  for (const piece of ["*", "_", "**a ", "`", "[", "[a](", "\\", "~~", "*a_", "`` ` "]) found.push([piece, growth(inline, piece, 19_000)]);
  for (const piece of ["> ", "- ", "|-", "```\n", "1. \n"]) found.push([piece, growth(blocks, piece, 20_000 * piece.length)]);
  for (const [piece, times] of found) assert.ok(times < MAX_GROWTH, `${JSON.stringify(piece)} costs ${times} times as much`);
});
