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
  const found = [];
  for (const scheme of ["light", "dark"]) {
    for (const [width, size] of Object.entries({ wide: WIDE, narrow: NARROW })) {
      const dress = `${name}-${width}-${scheme}`;
      await tab.dress(scheme, size);
      await settle(tab);
      await tab.shot(dress);
      const problems = [...(await brokenRules(tab)), ...(await tooWide(tab)), ...(await nonsense(tab))];
      found.push(...problems.map((problem) => `${dress}: ${problem}`));
    }
  }
  tab.motion = "reduce";
  await tab.dress("light", WIDE);
  found.push(...(await moving(tab)));
  assert.deepEqual(found, [], `not everybody can use ${name}`);
}

/** Colours that fade from one dress to the next would be judged halfway. */
async function settle(tab) {
  await tab.page.evaluate(async () => {
    await new Promise((resolve) => requestAnimationFrame(() => requestAnimationFrame(resolve)));
    const fading = document.getAnimations().filter((animation) => animation instanceof CSSTransition);
    await Promise.allSettled(fading.map(({ finished }) => finished));
  });
}

async function brokenRules(tab) {
  const { violations, incomplete, passes } = await tab.page.evaluate(() => globalThis.axe.run(document));
  assert.ok(passes.length > 0, "nothing was judged");
  const grave = [...violations, ...invisible(incomplete)].filter(({ impact }) => GRAVE.includes(impact));
  return grave.map(({ id, impact, nodes }) => `${id} (${impact}): ${short(nodes.map(({ html }) => html))}`);
}

/** Text in the very colour of its background: the judge leaves open whether it is meant to be hidden. */
function invisible(open) {
  const same = ({ any }) => any.some(({ data }) => data?.contrastRatio === 1);
  return open.map((rule) => ({ ...rule, nodes: rule.nodes.filter(same) })).filter(({ nodes }) => nodes.length > 0);
}

async function tooWide(tab) {
  const over = await tab.page.evaluate(() => {
    const { scrollWidth, clientWidth } = document.documentElement;
    if (scrollWidth <= clientWidth) return [];
    const nodes = [...document.querySelectorAll("body *")].filter((node) => node.getBoundingClientRect().right > clientWidth + 1);
    return [`${scrollWidth} px in a window of ${clientWidth}`, ...nodes.map((node) => node.outerHTML)];
  });
  return over.length > 0 ? [short(over)] : [];
}

/** What a program says when it has not found the words. */
async function nonsense(tab) {
  const text = await tab.page.evaluate(() => document.body.innerText);
  return [...text.matchAll(/.*(\[object |\bundefined\b|\bNaN\b|Invalid Date).*/g)].map(([line]) => `it says: ${line}`);
}

/** What moves although the person wants nothing to. */
async function moving(tab) {
  await settle(tab);
  const running = await tab.page.evaluate(() => {
    const animations = document.getAnimations().filter(({ playState }) => playState === "running");
    return animations.map(({ animationName, transitionProperty, effect }) => {
      return `${animationName ?? transitionProperty} moves: ${effect?.target?.outerHTML}`;
    });
  });
  return running.map((what) => short([what]));
}

function short(texts) {
  return texts.slice(0, 4).map((text) => text.slice(0, 200)).join(" | ");
}
