// Small things that the browser keeps for the page. A browser that keeps nothing is no reason to fail.

function put(store, name, value) {
  try {
    if (value === undefined) store().removeItem(name);
    else store().setItem(name, value);
  } catch {
    // It holds for this page then, and no longer.
  }
}

function get(store, name) {
  try {
    return store().getItem(name) ?? undefined;
  } catch {
    return undefined;
  }
}

const tab = () => window.sessionStorage;
const browser = () => window.localStorage;

/** Kept until the tab is closed. */
export const forTab = { get: (name) => get(tab, name), put: (name, value) => put(tab, name, value) };
/** Kept for good. */
export const forGood = { get: (name) => get(browser, name), put: (name, value) => put(browser, name, value) };
