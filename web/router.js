// Which view is shown: the one that the address names after `#/`.
//
// A view is made by a function of its parameter and returns `{title, element}`, with `go(parameter)` if it can show another
// one without being made anew, and `close()` if it has something to end.

import { replace } from "./dom.js";

/** The name and the parameter in an address such as `#/sessions/ID`. */
export function readRoute(hash) {
  const [, name = "", ...rest] = /^#\//.test(hash) ? hash.split("/") : [];
  const raw = rest.join("/");
  try {
    return { name, parameter: raw ? decodeURIComponent(raw) : undefined };
  } catch {
    return { name, parameter: raw };
  }
}

/** The address of a view. */
export function link(name, parameter) {
  return parameter === undefined ? `#/${name}` : `#/${name}/${encodeURIComponent(parameter)}`;
}

/** Shows views as the address changes. `views` are the functions that make them, `main` is where they go. */
export function startRouter(views, main, { home, changed }) {
  let shown;
  let isFirst = true;

  const go = () => {
    const { name, parameter } = readRoute(window.location.hash);
    if (!views[name]) {
      window.history.replaceState(null, "", link(home));
      return go();
    }
    if (shown?.name === name && shown.view.go) {
      shown.view.go(parameter);
    } else {
      shown?.view.close?.();
      shown = { name, view: views[name](parameter) };
      replace(main, shown.view.element);
    }
    changed({ name, parameter, view: shown.view });
    if (!isFirst) focusHeading(main);
    isFirst = false;
  };

  window.addEventListener("hashchange", go);
  go();
  return { current: () => shown?.view };
}

/** Whoever cannot see the page is told where they are now. */
function focusHeading(main) {
  if (document.querySelector("dialog[open]")) return;
  const wanted = main.querySelector("[data-focus-first]") ?? main.querySelector("h1");
  if (!wanted) return;
  if (!wanted.hasAttribute("tabindex") && wanted.tagName === "H1") wanted.setAttribute("tabindex", "-1");
  wanted.focus({ preventScroll: true });
}
