// Where the page begins: the token, what the server can show, and then the view that the address names.

import { api } from "./api.js";
import { h, replace, setText } from "./dom.js";
import { gatewayView } from "./gateway-view.js";
import { icon } from "./icons.js";
import { startKeys, tellKeys } from "./keys.js";
import { policiesView } from "./policies-view.js";
import { poll } from "./poll.js";
import { providersView } from "./providers-view.js";
import { link, startRouter } from "./router.js";
import { runsView } from "./runs-view.js";
import { sessionsView } from "./sessions-view.js";
import { startTheme } from "./theme.js";
import { takeTokenFromAddress } from "./token.js";

const TITLES = { sessions: "Sessions", providers: "Providers", gateway: "Gateway", runs: "Runs", policies: "Policies" };

const main = document.getElementById("main");
const nav = document.getElementById("nav");
const offline = document.getElementById("offline");

function entries(views) {
  const made = views.map((name) => h("a", { href: link(name), "data-view": name }, icon(name), h("span", {}, TITLES[name])));
  replace(nav, made);
}

function mark(name) {
  for (const entry of nav.querySelectorAll("a")) {
    if (entry.dataset.view === name) entry.setAttribute("aria-current", "page");
    else entry.removeAttribute("aria-current");
  }
}

function start(about) {
  const views = (about.views ?? Object.keys(TITLES)).filter((name) => TITLES[name]);
  const makers = {
    sessions: sessionsView(about),
    providers: providersView,
    gateway: gatewayView,
    runs: runsView(about),
    policies: policiesView,
  };
  entries(views);
  setText(document.getElementById("version"), about.version ? `Outlast ${about.version}` : "Outlast");
  startKeys(views);
  document.getElementById("help").addEventListener("click", () => tellKeys(views));
  startRouter(Object.fromEntries(views.map((name) => [name, makers[name]])), main, {
    home: views.includes("sessions") ? "sessions" : (views.find((name) => name === "gateway") ?? views[0]),
    changed: ({ name }) => mark(name),
  });
}

takeTokenFromAddress();
startTheme(document.getElementById("theme"));
document.getElementById("help").prepend(icon("help"));
document.querySelector(".skip").addEventListener("click", (event) => {
  event.preventDefault();
  main.focus();
});

let isStarted = false;
// The clock is asked for again now and then: both clocks drift, and machines sleep.
poll(
  async (signal) => {
    const about = await api("about", { signal });
    offline.hidden = true;
    if (!isStarted) start(about);
    isStarted = true;
    return 60_000;
  },
  2_000,
  (problem) => {
    setText(offline, `${problem.detail ?? "The server cannot be reached."} Trying again…`);
    offline.hidden = false;
  },
);
