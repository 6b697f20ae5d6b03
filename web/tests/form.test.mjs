import assert from "node:assert/strict";
import { test } from "node:test";
import { onSubmit } from "../dialog.js";

/** A form with one button, as far as sending it goes. */
function form() {
  const attributes = new Map();
  const sender = {
    dataset: {},
    getAttribute: (name) => attributes.get(name) ?? null,
    setAttribute: (name, value) => attributes.set(name, value),
    removeAttribute: (name) => attributes.delete(name),
  };
  const element = Object.assign(new EventTarget(), { querySelector: () => sender });
  return {
    element,
    isOff: () => attributes.get("aria-disabled") === "true",
    /** Sends it; whether the browser was kept from doing so itself. */
    send: () => !element.dispatchEvent(new Event("submit", { cancelable: true })),
  };
}

/** Something that takes as long as it is let. */
function slow() {
  const asked = [];
  return { asked, act: () => new Promise((resolve, reject) => asked.push({ resolve, reject })) };
}

const settled = () => new Promise((resolve) => setImmediate(resolve));

test("a form that is sent twice at once does its work once", async () => {
  const { element, isOff, send } = form();
  const { asked, act } = slow();
  onSubmit(element, act);
  assert.ok(send() && send() && send(), "the browser itself sends nothing");
  assert.deepEqual([asked.length, isOff()], [1, true]);
  asked[0].resolve();
  await settled();
  assert.equal(isOff(), false);
});

test("a form whose work failed can be sent again", async () => {
  const { element, isOff, send } = form();
  const { asked, act } = slow();
  onSubmit(element, act);
  send();
  // A problem of this name needs no page to be shown on.
  asked[0].reject(Object.assign(new Error("given up"), { name: "AbortError" }));
  await settled();
  assert.equal(isOff(), false);
  send();
  assert.deepEqual([asked.length, isOff()], [2, true]);
});
