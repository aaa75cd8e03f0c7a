// Puts the page together: modes, models, the composer, the theme, the timeline, and how the server is.

import { call, models, onKeyNeeded } from "./api.js";
import { chat } from "./chat.js";
import { make } from "./elements.js";
import { clear, stopLast } from "./feed.js";
import { image } from "./image.js";
import { optionsOf, showOptions } from "./options.js";
import { Timeline } from "./timeline.js";
import { video } from "./video.js";

const MAKERS = { chat, image, video };
const PLACEHOLDERS = { chat: "Say something", image: "Describe a picture", video: "Describe a clip" };
const IDEAS = {
  chat: "Tell me a short story about a fox.",
  image: "a red fox in the snow",
  video: "a red ball rolls across a green meadow",
};

const $ = (id) => document.getElementById(id);
const prompt = $("prompt");
const timeline = new Timeline();
let served = { chat: [], image: [], video: [] };

const mode = () => document.querySelector("input[name=mode]:checked").value;

function send(kind, text, model) {
  MAKERS[kind](text, model, optionsOf(kind));
}

function showMode() {
  const kind = mode();
  prompt.placeholder = PLACEHOLDERS[kind];
  $("model").closest("label").classList.toggle("only", served[kind].length < 2);
  $("model").replaceChildren(...served[kind].map((id) => make("option", { value: id }, id)));
  showOptions(kind);
}

function grow() {
  prompt.style.height = "auto";
  prompt.style.height = `${prompt.scrollHeight}px`;
  $("send").disabled = !prompt.value.trim();
}

function showIdeas() {
  const kinds = Object.keys(IDEAS).filter((kind) => served[kind].length);
  const buttons = kinds.map((kind) => idea(kind, IDEAS[kind], [kind]));
  if (kinds.length > 1) buttons.push(idea("all", "All of it at once", kinds));
  $("ideas")?.replaceChildren(...buttons);
}

function idea(name, text, kinds) {
  const ask = () => kinds.forEach((kind) => send(kind, IDEAS[kind], served[kind][0]));
  return make("button", { type: "button", "data-mode": name, onclick: ask }, make("i"), text);
}

async function connect() {
  for (;;) {
    try {
      served = await models();
      break;
    } catch (error) {
      status("away", error.message);
      await new Promise((resolve) => setTimeout(resolve, 2000));
    }
  }
  const all = [...new Set(Object.values(served).flat())];
  for (const input of document.querySelectorAll("input[name=mode]")) {
    input.closest("label").hidden = served[input.value].length === 0;
  }
  const first = document.querySelector("#modes label:not([hidden]) input");
  if (first && !served[mode()].length) first.checked = true;
  timeline.expect(all);
  timeline.start();
  showMode();
  showIdeas();
  watch(all.length === 1 ? all[0] : `${all.length} models`);
}

/** Says whether the server is there, every few seconds. */
async function watch(name) {
  for (;;) {
    try {
      await call("/health");
      status("ready", name);
    } catch (error) {
      status("away", error.status === 503 ? "not ready" : "not reachable");
    }
    await new Promise((resolve) => setTimeout(resolve, 5000));
  }
}

function status(state, text) {
  $("status").dataset.state = state;
  if ($("status-text").textContent !== text) $("status-text").textContent = text;
}

function askForKey() {
  const dialog = $("key-dialog");
  if (!dialog.open) dialog.showModal();
  return new Promise((resolve) => dialog.addEventListener("close", () => resolve($("key").value), { once: true }));
}

function switchTheme() {
  const isDark = matchMedia("(prefers-color-scheme: dark)").matches;
  const shown = document.documentElement.dataset.theme ?? (isDark ? "dark" : "light");
  setTheme(shown === "dark" ? "light" : "dark");
}

function setTheme(theme) {
  document.documentElement.dataset.theme = theme;
  localStorage.setItem("hemiola-theme", theme);
}

$("composer").addEventListener("submit", (event) => {
  event.preventDefault();
  const text = prompt.value.trim();
  if (!text) return;
  prompt.value = "";
  grow();
  send(mode(), text, $("model").value);
});
prompt.addEventListener("input", grow);
prompt.addEventListener("keydown", (event) => {
  if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
  event.preventDefault();
  $("composer").requestSubmit();
});
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape" && !$("key-dialog").open) stopLast();
});
$("modes").addEventListener("change", showMode);
$("options-toggle").addEventListener("click", () => {
  const panel = $("options");
  panel.hidden = !panel.hidden;
  $("options-toggle").setAttribute("aria-expanded", String(!panel.hidden));
});
$("theme").addEventListener("click", switchTheme);
$("clear").addEventListener("click", clear);
$("pause").addEventListener("click", () => {
  const isHeld = $("pause").getAttribute("aria-pressed") !== "true";
  $("pause").setAttribute("aria-pressed", String(isHeld));
  timeline.hold(isHeld);
});
for (const input of document.querySelectorAll("input[name=span]")) {
  input.addEventListener("change", () => (timeline.spanS = Number(input.value)));
}
onKeyNeeded(askForKey);
if (localStorage.getItem("hemiola-theme")) setTheme(localStorage.getItem("hemiola-theme"));
grow();
connect();
