// One page in the browser: what is seen of it, what it complains of, and pictures of it.
import assert from "node:assert/strict";
import { join } from "node:path";
import { HANG_TIMEOUT_MS } from "../lanes.mjs";
import { until } from "./stage.mjs";

export const WIDE = { width: 1280, height: 860 };
// The narrowest that everybody must be able to use: a wide window at four times the size.
export const NARROW = { width: 320, height: 640 };

export class Tab {
  complaints = [];

  constructor({ page, origin, pictures }) {
    this.page = page;
    this.origin = origin;
    this.pictures = pictures;
  }

  /** A tab of a context of its own: nothing is remembered from other cases. */
  static async open({ browser, origin, pictures, motion = "no-preference" }) {
    const context = await browser.createBrowserContext();
    const tab = new Tab({ page: await context.newPage(), origin, pictures });
    tab.motion = motion;
    tab.page.setDefaultTimeout(HANG_TIMEOUT_MS);
    tab.listen();
    // Several are driven at once, and each believes that it is the one in front.
    const wire = await tab.page.createCDPSession();
    await wire.send("Emulation.setFocusEmulationEnabled", { enabled: true });
    await tab.dress("light", WIDE);
    return tab;
  }

  listen() {
    const complain = (what) => this.complaints.push(what);
    this.page.on("console", (message) => {
      if (["error", "warn", "warning"].includes(message.type())) complain(`console: ${message.text()} ${message.location().url ?? ""}`);
    });
    this.page.on("pageerror", (error) => complain(`uncaught: ${error.message ?? error}`));
    this.page.on("requestfailed", (request) => {
      const why = request.failure()?.errorText;
      // The page itself gives up what it no longer needs.
      if (why !== "net::ERR_ABORTED") complain(`failed: ${request.method()} ${request.url()} ${why}`);
    });
    this.page.on("response", (response) => {
      if (response.status() >= 400) complain(`answered ${response.status()}: ${response.request().method()} ${response.url()}`);
    });
    this.page.on("request", (request) => {
      const { protocol, host } = new URL(request.url());
      if (!["data:", "blob:"].includes(protocol) && host !== new URL(this.origin).host) complain(`asks elsewhere: ${request.url()}`);
    });
  }

  /** How it looks: light or dark, wide or narrow. */
  async dress(scheme, size) {
    await this.page.emulateMediaFeatures([
      { name: "prefers-color-scheme", value: scheme },
      { name: "prefers-reduced-motion", value: this.motion },
    ]);
    await this.page.setViewport(size);
  }

  async goto(path) {
    await this.page.goto(this.origin + path, { waitUntil: "load" });
  }

  // --- what is seen ---

  /** Waits until the element is seen, and has the text; the element. */
  async see(id, { text } = {}) {
    const found = await until(async () => {
      for (const element of await this.all(id)) {
        if (!(await element.isVisible())) continue;
        if (!text || (await content(element)).match(text)) return element;
      }
      return undefined;
    });
    assert.ok(found, `${id}${text ? ` with ${text}` : ""} is not seen; seen: ${await this.describe(id)}`);
    return found;
  }

  /** Waits until no such element is seen. */
  async gone(id) {
    const gone = await until(async () => (await this.seen(id)) === 0);
    assert.ok(gone, `${id} is still there: ${await this.describe(id)}`);
  }

  /** How many are seen. */
  async seen(id) {
    const visible = await Promise.all((await this.all(id)).map((element) => element.isVisible()));
    return visible.filter(Boolean).length;
  }

  all(id) {
    return this.page.$$(`[data-testid="${id}"]`);
  }

  /** The texts of all of them. */
  async texts(id) {
    return Promise.all((await this.all(id)).map(content));
  }

  async text(id) {
    return content(await this.see(id));
  }

  /** How many seconds the countdown says are left. */
  async countdown() {
    const text = await this.text("retry-countdown");
    const seconds = secondsIn(text);
    assert.ok(seconds !== undefined, `the countdown says no time: ${text}`);
    return seconds;
  }

  /** What the page says of its connection; nothing when all is well, or it does not show a session yet. */
  async connection() {
    const notice = await this.page.$(".connection");
    return notice ? notice.evaluate((node) => (node.hidden ? "" : node.innerText)) : "";
  }

  async click(id, options) {
    const element = await this.see(id, options);
    await element.click();
  }

  /** Writes into the composer and sends it. */
  async send(text) {
    const composer = await this.see("composer");
    await composer.type(text);
    await this.click("send");
  }

  async describe(id) {
    const texts = await this.texts(id);
    if (texts.length > 0) return JSON.stringify(texts).slice(0, 500);
    const shown = await this.page.evaluate(() => document.body.innerText.replace(/\s+/g, " ").slice(0, 500));
    return `none, but «${shown}»`;
  }

  // --- what is kept ---

  async shot(name) {
    await this.page.screenshot({ path: join(this.pictures, `${name}.png`) });
  }

  /** Nothing went wrong that a person could see in the console, and nothing was asked elsewhere. */
  checkQuiet() {
    assert.deepEqual(this.complaints, [], "complaints of the page");
  }

  /** Forgets what had to go wrong, because the server was away. */
  forgive() {
    this.complaints.length = 0;
  }

  close() {
    return this.page.browserContext().close();
  }
}

function content(element) {
  return element.evaluate((node) => (node.innerText ?? node.textContent).trim());
}

/** The seconds of a text such as `retrying in 1m5s`, `65 s` or `1:05`. */
export function secondsIn(text) {
  const parts = [...text.matchAll(/(\d+)\s*([dhms])(?![a-z])/g)];
  const worth = { d: 86_400, h: 3600, m: 60, s: 1 };
  if (parts.length > 0) return parts.reduce((sum, [, amount, unit]) => sum + Number(amount) * worth[unit], 0);
  const clock = text.match(/(?:(\d+):)?(\d+):(\d\d)\b/);
  return clock ? Number(clock[1] ?? 0) * 3600 + Number(clock[2]) * 60 + Number(clock[3]) : undefined;
}
