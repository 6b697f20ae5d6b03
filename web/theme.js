// Light, dark, or as the system has it.

import { setText } from "./dom.js";
import { icon } from "./icons.js";
import { forGood } from "./keep.js";

const NAME = "outlast.theme";
const THEMES = [
  { value: undefined, icon: "auto", label: "System" },
  { value: "light", icon: "sun", label: "Light" },
  { value: "dark", icon: "moon", label: "Dark" },
];

/** Makes a button change the colours, and keeps what was chosen. */
export function startTheme(button) {
  const now = document.documentElement.dataset.theme;
  let at = Math.max(
    0,
    THEMES.findIndex((theme) => theme.value === now),
  );
  const paint = () => {
    const theme = THEMES[at];
    if (theme.value) document.documentElement.dataset.theme = theme.value;
    else delete document.documentElement.dataset.theme;
    button.querySelector(".icon")?.replaceWith(icon(theme.icon));
    setText(button.querySelector(".label"), theme.label);
    button.setAttribute("aria-label", `Colours: ${theme.label}. Change`);
  };
  button.addEventListener("click", () => {
    at = (at + 1) % THEMES.length;
    forGood.put(NAME, THEMES[at].value);
    paint();
  });
  paint();
}
