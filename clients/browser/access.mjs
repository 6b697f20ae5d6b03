// Whether everybody can use what a tab shows: light and dark, wide and narrow, without motion. Leaves a picture of each.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { NARROW, WIDE } from "./tab.mjs";

const GRAVE = ["serious", "critical"];

/** Looks at the tab in every dress; `name` is the view's, for the pictures. */
export async function inspect(tab, name, need) {
  const judge = readFileSync(need.resolve("axe-core/axe.min.js"), "utf8");
  // Through the wire of the browser, so that the page's own rules for scripts stay as they are.
  await tab.page.evaluate(judge);
  for (const scheme of ["light", "dark"]) {
    for (const [width, size] of Object.entries({ wide: WIDE, narrow: NARROW })) {
      const dress = `${name}-${width}-${scheme}`;
      await tab.dress(scheme, size);
      await settle(tab);
      await tab.shot(dress);
      await checkRules(tab, dress);
      await checkWidth(tab, dress);
    }
  }
  tab.motion = "reduce";
  await tab.dress("light", WIDE);
  await checkStill(tab, name);
}

/** Colours that fade from one dress to the next would be judged halfway. */
async function settle(tab) {
  await tab.page.evaluate(async () => {
    await new Promise((resolve) => requestAnimationFrame(() => requestAnimationFrame(resolve)));
    const fading = document.getAnimations().filter((animation) => animation instanceof CSSTransition);
    await Promise.allSettled(fading.map(({ finished }) => finished));
  });
}

async function checkRules(tab, dress) {
  const { violations, incomplete, passes } = await tab.page.evaluate(() => globalThis.axe.run(document));
  assert.ok(passes.length > 0, `${dress}: nothing was judged`);
  const grave = [...violations, ...invisible(incomplete)].filter(({ impact }) => GRAVE.includes(impact));
  const told = grave.map(({ id, impact, nodes }) => `${id} (${impact}): ${nodes.map(({ html }) => html.slice(0, 200)).slice(0, 3).join(" | ")}`);
  assert.deepEqual(told, [], `${dress}: rules are broken`);
}

/** Text in the very colour of its background: the judge leaves open whether it is meant to be hidden. */
function invisible(open) {
  const same = ({ any }) => any.some(({ data }) => data?.contrastRatio === 1);
  return open.map((rule) => ({ ...rule, nodes: rule.nodes.filter(same) })).filter(({ nodes }) => nodes.length > 0);
}

async function checkWidth(tab, dress) {
  const over = await tab.page.evaluate(() => {
    const { scrollWidth, clientWidth } = document.documentElement;
    if (scrollWidth <= clientWidth) return undefined;
    const wide = [...document.querySelectorAll("body *")].filter((node) => node.getBoundingClientRect().right > clientWidth + 1);
    return `${scrollWidth} px in ${clientWidth}: ${wide.slice(0, 5).map((node) => node.outerHTML.slice(0, 120)).join(" | ")}`;
  });
  assert.equal(over, undefined, `${dress} is wider than the window`);
}

async function checkStill(tab, name) {
  await settle(tab);
  const moving = await tab.page.evaluate(() => {
    const running = document.getAnimations().filter(({ playState }) => playState === "running");
    return running.map(({ animationName, transitionProperty, effect }) => {
      return `${animationName ?? transitionProperty} of ${effect?.target?.outerHTML.slice(0, 120)}`;
    });
  });
  assert.deepEqual(moving, [], `${name}: whoever wants no motion sees some`);
}
