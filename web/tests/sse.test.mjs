import assert from "node:assert/strict";
import { test } from "node:test";
import { sseReader } from "../sse.js";

/** Numbers from 0 to 1 that look random, the same for the same seed. */
function numbers(seed) {
  let state = seed;
  return () => {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
    return state / 2 ** 32;
  };
}

/** Bytes cut at places that nobody has chosen: in the middle of letters, of line ends, and of the mark at the beginning. */
function cut(bytes, next, longest) {
  const pieces = [];
  for (let at = 0; at < bytes.length; ) {
    const end = at + Math.floor(next() * (longest + 1));
    pieces.push(bytes.subarray(at, end));
    at = end;
  }
  return pieces;
}

/** What is heard of pieces of bytes that come as a connection brings them. */
async function heard(pieces) {
  const reader = sseReader();
  const messages = [];
  for await (const text of ReadableStream.from(pieces).pipeThrough(new TextDecoderStream())) messages.push(...reader.push(text));
  return messages;
}

const MESSAGES = [
  [[": hello"], []],
  [
    ["id: L-1", "event: snapshot", `data: {"a":"ä😀\u2028${"é".repeat(300)}"}`, "data: zwei"],
    [{ id: "L-1", event: "snapshot", data: `{"a":"ä😀\u2028${"é".repeat(300)}"}\nzwei` }],
  ],
  [["id:L-2", "data", "data: "], [{ id: "L-2", event: "message", data: "\n" }]],
  [["data: x"], [{ id: "L-2", event: "message", data: "x" }]],
];

test("server-sent events are the same however their bytes are cut and their lines end", async () => {
  const wanted = MESSAGES.flatMap(([, said]) => said);
  for (let seed = 1; seed <= 300; seed += 1) {
    const next = numbers(seed);
    // One kind of end for each message: `\r` before an empty line that ends with `\n` would be no more than one end.
    const ended = MESSAGES.map(([lines]) => {
      const end = ["\n", "\r\n", "\r"][Math.floor(next() * 3)];
      return [...lines, ""].map((line) => line + end).join("");
    });
    const bytes = new TextEncoder().encode(`\uFEFF${ended.join("")}`);
    assert.deepEqual(await heard(cut(bytes, next, 1 + (seed % 40))), wanted, `seed ${seed}`);
  }
});

test("however long a line is, it is looked through once", (context) => {
  const { split } = String.prototype;
  const { join } = Array.prototype;
  const restore = () => {
    String.prototype.split = split;
    Array.prototype.join = join;
  };
  context.after(restore);
  let looked = 0;
  String.prototype.split = function counting(...given) {
    looked += this.length;
    return split.apply(this, given);
  };
  Array.prototype.join = function counting(...given) {
    const joined = join.apply(this, given);
    looked += joined.length;
    return joined;
  };
  const reader = sseReader();
  const piece = "x".repeat(1_000);
  reader.push("data: ");
  for (let count = 0; count < 1_000; count += 1) assert.equal(reader.push(piece).length, 0);
  const [{ data }] = reader.push("\n\n");
  restore();
  assert.equal(data.length, 1_000_000);
  // Once for its end, once to put it together, once more for the data of the message.
  assert.ok(looked <= 3.1 * data.length, `${looked} characters for ${data.length}`);
});

test("a line that has no end is given up, in however small pieces it comes", () => {
  const reader = sseReader();
  const piece = "x".repeat(1 << 20);
  for (let count = 0; count < 64; count += 1) reader.push(piece);
  assert.throws(() => reader.push("x"), /too long/);
});
