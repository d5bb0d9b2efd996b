// The views and their addresses: every view is a link.

import { error, show } from "./dom.js";
import * as api from "./api.js";
import * as attack from "./attack.js";
import * as classify from "./classify.js";
import * as runs from "./runs.js";

const VIEWS = {
  classify: classify.view, attack: attack.view, runs: runs.list, compare: runs.compare, image: runs.image, training: runs.training, study: runs.study, api: api.view,
};
const PARENT = { compare: "runs", image: "runs", training: "runs", study: "runs" };
const main = document.getElementById("main");
let leave = null;

async function open() {
  const [path, search] = location.hash.replace(/^#\//, "").split("?");
  const name = VIEWS[path] ? path : (await start());
  if (name !== path) { history.replaceState(null, "", `#/${name}`); }
  for (const link of document.querySelectorAll("nav a")) {
    if (link.dataset.view === (PARENT[name] ?? name)) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  leave?.abort();
  leave = new AbortController();
  const { signal } = leave;
  show(main);
  try {
    await VIEWS[name](main, new URLSearchParams(search ?? ""), signal);
  } catch (problem) {
    if (!signal.aborted) main.append(error(problem.message));
  }
}

async function start() {
  try { return (await (await fetch("/v1/models")).json()).models.length ? "classify" : "runs"; } catch { return "runs"; }
}

const THEMES = { auto: ["◐", "as the system"], light: ["☀", "light"], dark: ["☾", "dark"] };
const button = document.getElementById("theme");
function theme(name) {
  if (name === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = name;
  button.textContent = THEMES[name][0];
  button.setAttribute("aria-label", `Colours: ${THEMES[name][1]}`);
  button.title = `Colours: ${THEMES[name][1]}`;
  button.dataset.name = name;
  try { localStorage.setItem("theme", name); } catch { /* a private window */ }
}
let kept = "auto";
try { kept = localStorage.getItem("theme") ?? "auto"; } catch { /* a private window */ }
theme(THEMES[kept] ? kept : "auto");
button.addEventListener("click", () => {
  const names = Object.keys(THEMES);
  theme(names[(names.indexOf(button.dataset.name) + 1) % names.length]);
});

addEventListener("hashchange", () => { open(); main.focus({ preventScroll: true }); });
open();
