// The page without a mouse: everything is reached, and it is seen where one is.
import assert from "node:assert/strict";
import { ROUTES } from "./routes.mjs";
import { FIRST_WAIT_S, LONG_WAITS, until } from "./stage.mjs";

const TABS = 60;

export const cases = [
  ["with the keyboard alone one begins, says something, and ends a wait", typed],
  ["the focus is seen wherever it is", visible],
  ["the theme is chosen, and remembered", themed],
];

async function typed({ stage, open }) {
  await stage.open({ script: "overloaded:2", retry: LONG_WAITS });
  const tab = await open();
  await tab.goto(ROUTES.sessions);
  await tab.see("app-nav");
  await tab.page.keyboard.press("Tab");
  const first = await focused(tab);
  assert.match(first.text, /skip/i, `the first stop leads past the navigation: ${first.html}`);
  assert.ok(first.seen, "it is seen when it is reached");
  await tab.page.keyboard.press("Enter");
  const main = await tab.page.evaluate(() => document.activeElement.closest("main") !== null);
  assert.ok(main, `it leads to what the page is about: ${(await focused(tab)).html}`);
  await tabTo(tab, "new-session");
  await tab.page.keyboard.press("Enter");
  await tab.see("new-session-dialog");
  await tabTo(tab, "create-session");
  await tab.page.keyboard.press("Enter");
  await tab.see("composer");
  await tabTo(tab, "composer");
  await tab.page.keyboard.type("say hello");
  await tabTo(tab, "send");
  await tab.page.keyboard.press("Enter");
  await tab.see("retry-bubble");
  await tabTo(tab, "retry-now");
  await tab.page.keyboard.press("Enter");
  const second = async () => (await tab.seen("retry-countdown")) && (await tab.countdown()) > FIRST_WAIT_S;
  assert.ok(await until(second), "the second wait is seen");
  await tabTo(tab, "retry-now");
  await tab.page.keyboard.press("Enter");
  await tab.see("message-assistant", { text: /Hello/ });
  assert.equal((await stage.sessions()).length, 1, "one session was begun");
}

async function visible({ stage, open }) {
  await stage.open({ script: "overloaded:9", retry: LONG_WAITS });
  const session = await stage.begin();
  await stage.say(session, "say hello");
  const tab = await open({ motion: "reduce" });
  await tab.goto(ROUTES.session(session));
  await tab.see("retry-now");
  const stops = [];
  for (let stop = 0; stop < TABS; stop += 1) {
    await tab.page.keyboard.press("Tab");
    const { html, seen, ring } = await focused(tab);
    // Round once.
    if (html === "" || html === stops[0]) break;
    stops.push(html);
    assert.ok(seen, `it can be seen: ${html}`);
    assert.ok(ring, `it is marked while it has the focus: ${html}`);
  }
  assert.ok(stops.length >= 5, `there is something to reach: ${stops.join("\n")}`);
}

async function themed({ stage, open }) {
  await stage.open();
  const tab = await open();
  await tab.goto(ROUTES.sessions);
  await tab.see("theme-toggle");
  const colour = () => tab.page.evaluate(() => getComputedStyle(document.body).backgroundColor);
  const light = await colour();
  await tab.click("theme-toggle");
  // It may have three states, and the first of them may look like what the system wants.
  if ((await colour()) === light) await tab.click("theme-toggle");
  const dark = await colour();
  assert.notEqual(dark, light, "the colours change");
  await tab.page.reload();
  await tab.see("theme-toggle");
  assert.equal(await colour(), dark, "and stay after a reload");
}

/** Presses Tab until the element has the focus. */
async function tabTo(tab, id) {
  const stops = [];
  for (let stop = 0; stop < TABS; stop += 1) {
    const here = await focused(tab);
    if (here.id === id) return;
    stops.push(here.html);
    await tab.page.keyboard.press("Tab");
  }
  assert.fail(`${id} is not reached with Tab: ${[...new Set(stops)].join("\n")}`);
}

/** What has the focus, whether it is in sight, and whether it looks other than without the focus. */
function focused(tab) {
  return tab.page.evaluate(() => {
    const node = document.activeElement;
    if (!node || node === document.body) return { html: "", text: "" };
    // What it stands in may be marked in its place.
    const around = [node, node.parentElement, node.parentElement?.parentElement].filter(Boolean);
    const marks = () => {
      const styles = around.map((each) => getComputedStyle(each));
      return styles.map(({ outline, boxShadow, borderColor, backgroundColor }) => [outline, boxShadow, borderColor, backgroundColor]).join();
    };
    const box = node.getBoundingClientRect();
    const inSight = box.bottom > 0 && box.right > 0 && box.top < innerHeight && box.left < innerWidth;
    const withFocus = marks();
    node.blur();
    const without = marks();
    node.focus({ preventScroll: true });
    return {
      id: node.dataset.testid,
      html: node.outerHTML.replace(/\s+/g, " ").slice(0, 160),
      text: node.innerText ?? "",
      seen: inSight && box.width > 0 && box.height > 0,
      ring: withFocus !== without,
    };
  });
}
