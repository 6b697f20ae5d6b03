import assert from "node:assert/strict";
import { test } from "node:test";
import { group, outline, phrase } from "../causes.js";
import { describe } from "../notes.js";
import { sseReader } from "../sse.js";
import { SEAM, amount, clean, line, safeAddress, shortPath, words } from "../text.js";
import { ago, axisStep, exactSpan, left, millis, span } from "../time.js";

test("nothing of a text can deceive whoever reads it", () => {
  assert.equal(clean("a\u202Eb\u2066c\u0000d\u001B[31me\u200Ff\u{E0041}g"), "abcd[31mefg");
  assert.equal(clean(`x${SEAM}y`), "xy");
  assert.equal(clean("tab\tline\nend"), "tab\tline\nend");
  assert.equal(clean("a\r\nb\rc\u2028d"), "a\nb\nc\nd");
  assert.equal(clean("😀\uD83D and \uDE00"), "😀 and ");
});

test("a text is bounded, and no letter is torn apart", () => {
  assert.equal(clean("abcdef", 4), "abcd… (2 more characters)");
  assert.equal(clean("abc😀", 4), "abc… (1 more characters)");
  assert.equal(line("a\n\n  b"), "a b");
  assert.equal(line("abcdef", 4), "abc…");
  assert.equal(clean(undefined), "");
  assert.equal(clean(5), "5");
  assert.equal(words("at_gate"), "at gate");
});

test("numbers and paths are said briefly", () => {
  assert.deepEqual([undefined, 9_999, 12_431, 1_250_000].map(amount), ["0", "9,999", "12k", "1.3M"]);
  assert.equal(shortPath("/home/ada/projects/ledger"), "…/projects/ledger");
  assert.equal(shortPath("/srv/app"), "/srv/app");
});

test("a link leads to the web or nowhere", () => {
  assert.equal(safeAddress("https://example.com/a"), "https://example.com/a");
  for (const odd of [
    "javascript:alert(1)",
    "data:text/html,x",
    "//example.com",
    "java\u0000script:x",
    "file:///etc",
    "https://",
    "",
  ]) {
    assert.equal(safeAddress(odd), undefined, odd);
  }
});

test("spans have two units at most", () => {
  assert.deepEqual([0, 5_000, 59_499, 60_000, 252_000, 3_840_000, 7_200_000, 97_200_000].map(span), [
    "0s",
    "5s",
    "59s",
    "1m",
    "4m12s",
    "1h4m",
    "2h",
    "1d3h",
  ]);
  assert.deepEqual([200, 1_500, 2_000, 90_000].map(exactSpan), ["200ms", "1.5s", "2s", "1m30s"]);
});

test("a countdown reads 1s until it is over, and never less than nothing", () => {
  assert.equal(left(5_000, 0), "5s");
  assert.equal(left(5_000, 4_999), "1s");
  assert.equal(left(5_000, 5_000), "0s");
  assert.equal(left(5_000, 9_000), "0s");
});

test("times that cannot be read are none", () => {
  assert.equal(millis("soon"), undefined);
  assert.equal(millis(undefined), undefined);
  assert.equal(millis("1970-01-01T00:00:01Z"), 1_000);
});

test("how long ago something was is said roughly", () => {
  assert.equal(ago(0, 1_000), "just now");
  assert.equal(ago(0, 42_000), "42s ago");
  assert.equal(ago(0, 130_000), "2m ago");
  assert.equal(ago(0, 3_840_000), "1h ago");
});

test("an axis has no more labels than fit", () => {
  for (const length of [1_000, 61_000, 3_600_000, 9e7, 9e9]) {
    assert.ok(length / axisStep(length, 6) <= 6, String(length));
  }
});

test("every cause has words, a group and a shape; an unknown one has them, too", () => {
  assert.equal(phrase("rate_limited"), "Rate limited");
  assert.equal(phrase("constructor"), "Something went wrong");
  assert.equal(group("toString"), "other");
  for (const name of ["load", "rate", "usage", "server", "network", "slow", "other"])
    assert.match(outline(name, 1, 1), /^M[^N]*Z$/);
});

test("a model that is left is told with why and until when", () => {
  const text = describe({
    type: "model_switched",
    from: "big",
    to: "small",
    cause: "overloaded",
    until: "2030-01-01T12:00:00Z",
    time: "2030-01-01T11:59:00Z",
  });
  assert.match(text, /^Server overloaded: small is asked instead of big, until \d\d:\d\d:\d\d$/);
});

const read = (...pieces) => {
  const reader = sseReader();
  return pieces.flatMap((piece) => reader.push(piece));
};

test("server-sent events are the same however they are cut", () => {
  const all = ': hello\n\nid: L-1\nevent: snapshot\ndata: {"a":\ndata: 1}\n\nid: L-2\r\ndata: x\r\n\r\ndata:y\n\n';
  const whole = read(all);
  assert.deepEqual(whole, [
    { id: "L-1", event: "snapshot", data: '{"a":\n1}' },
    { id: "L-2", event: "message", data: "x" },
    { id: "L-2", event: "message", data: "y" },
  ]);
  for (let cut = 1; cut < all.length; cut += 1)
    assert.deepEqual(read(all.slice(0, cut), all.slice(cut)), whole, `cut at ${cut}`);
  assert.deepEqual(read(...all), whole);
});

test("a line whose end is cut in two is one line, and a comment says nothing", () => {
  assert.deepEqual(read("data: a\r", "\ndata: b\r\n: data: c\r", "\n\r\n"), [
    { id: undefined, event: "message", data: "a\nb" },
  ]);
  assert.deepEqual(
    read("\ndata: a\n\n", "", "data: b\n\n").map(({ data }) => data),
    ["a", "b"],
  );
});

test("a place is not forged by what an event says", () => {
  assert.deepEqual(read("id: 1\ndata: x\nretry: 5\nodd\n\n"), [{ id: "1", event: "message", data: "x" }]);
});

test("an event that has no end is given up", () => {
  const reader = sseReader();
  const piece = `data: ${"x".repeat(1 << 20)}\n`;
  assert.throws(() => {
    for (let count = 0; count < 80; count += 1) reader.push(piece);
  }, /too long/);
});

test("an event that is not ended is not told", () => {
  assert.deepEqual(read("data: half\n"), []);
});
