// The live step timeline: a row a model, a block a step, the newest at the right, and one row of all together.
//
// Asks GET /v1/steps for what is new and draws a moment behind, so that blocks are complete when they come into view.

import { json } from "./api.js";
import { make } from "./elements.js";

const ROW = 24;
const GAP = 3; // above and below a block
const AXIS = 20;
const POLL_MS = 250;
const IDLE_POLL_MS = 1000;
const BEHIND_S = 0.7; // how old the right edge is
const LATE_S = 1.5; // a step is told of at most so long after it ended
const KEPT_S = 65;

// As in core/timeline.py, by quantum and phase.
const COLOURS = {
  "tokens/prefill": "#1D4E9E",
  "tokens/decode": "#3BA3E8",
  "blocks/encode": "#8E5BD0",
  "tokens/encode": "#8E5BD0",
  "blocks/denoise": "#F2A033",
  "blocks/decode": "#DF4F5F",
};
const OTHERS = ["#3FAE78", "#B08948", "#5C7C8A", "#C26FB2", "#8A8F98"];
const NAMES = {
  "tokens/prefill": "read prompt",
  "tokens/decode": "write text",
  "blocks/encode": "encode prompt",
  "tokens/encode": "encode prompt",
  "blocks/denoise": "denoise",
  "blocks/decode": "decode pixels",
};

const canvas = document.getElementById("timeline");
const names = document.getElementById("timeline-names");
const facts = document.getElementById("timeline-facts");
const legend = document.getElementById("timeline-legend");
const tip = document.getElementById("timeline-tip");
const isCalm = matchMedia("(prefers-reduced-motion: reduce)");

export class Timeline {
  constructor() {
    this.steps = []; // in order of their ends
    this.seen = new Set();
    this.models = [];
    this.colours = new Map();
    this.spanS = 10;
    this.heldAt = null; // the time of the right edge while it is held still
    this.offsetS = null; // the engine's clock less ours
    this.since = null;
    canvas.addEventListener("pointermove", (event) => this.point(event));
    canvas.addEventListener("pointerleave", () => (tip.hidden = true));
  }

  /** Rows for these from the start, whether or not they have done anything. */
  expect(models) {
    for (const model of models) this.row(model);
  }

  start() {
    this.poll();
    const draw = () => {
      if (!document.hidden) this.draw();
      if (isCalm.matches) setTimeout(draw, 500);
      else requestAnimationFrame(draw);
    };
    draw();
  }

  hold(isHeld) {
    this.heldAt = isHeld ? this.edge() : null;
  }

  async poll() {
    let wait = IDLE_POLL_MS;
    if (!document.hidden) {
      try {
        const begun = performance.now();
        const { now, data } = await json(this.since === null ? "/v1/steps" : `/v1/steps?since=${this.since}`);
        const ours = (begun + performance.now()) / 2000;
        this.offsetS = this.offsetS === null || Math.abs(this.offsetS - (now - ours)) > 1 ? now - ours : this.offsetS * 0.9 + (now - ours) * 0.1;
        this.since = (now - LATE_S).toFixed(3);
        if (this.add(data)) wait = POLL_MS;
      } catch {
        wait = 4 * IDLE_POLL_MS; // the page's status says what is wrong
      }
    }
    setTimeout(() => this.poll(), wait);
  }

  /** Whether anything is new. */
  add(records) {
    const before = this.steps.length;
    for (const step of records) {
      const key = `${step.lane}/${step.model}/${step.start_s}`;
      if (this.seen.has(key)) continue;
      this.seen.add(key);
      step.key = key;
      step.colour = this.colour(`${step.quantum}/${step.phase}`, step.phase);
      step.row = this.row(step.model);
      this.steps.push(step);
    }
    const isNew = this.steps.length > before;
    const oldest = this.now() - KEPT_S;
    let gone = 0;
    while (gone < this.steps.length && this.steps[gone].end_s < oldest) this.seen.delete(this.steps[gone++].key);
    if (gone) this.steps.splice(0, gone);
    return isNew;
  }

  row(model) {
    if (!this.models.includes(model)) {
      this.models.push(model);
      const shown = shortened(this.models);
      names.replaceChildren(...this.models.map((name, i) => make("div", { title: name }, shown[i])), make("div", {}, "all together"));
    }
    return this.models.indexOf(model);
  }

  colour(kind, phase) {
    if (!this.colours.has(kind)) {
      const unknown = [...this.colours.keys()].filter((each) => !(each in COLOURS)).length;
      this.colours.set(kind, COLOURS[kind] ?? OTHERS[unknown % OTHERS.length]);
      const shown = new Map([...this.colours].map(([each, colour]) => [NAMES[each] ?? each.split("/")[1], colour]));
      legend.replaceChildren(...[...shown].map(([name, colour]) => make("li", {}, swatch(colour), name)));
    }
    return this.colours.get(kind);
  }

  now() {
    return performance.now() / 1000 + (this.offsetS ?? 0);
  }

  edge() {
    return this.heldAt ?? this.now() - BEHIND_S;
  }

  get shown() {
    const right = this.edge();
    const left = right - this.spanS;
    return this.steps.filter((step) => step.end_s > left && step.start_s < right);
  }

  draw() {
    const rows = this.models.length + (this.models.length ? 1 : 0);
    const width = canvas.clientWidth;
    const height = Math.max(rows, 1) * ROW + AXIS;
    const scale = devicePixelRatio || 1;
    if (canvas.width !== Math.round(width * scale) || canvas.height !== Math.round(height * scale)) {
      canvas.width = Math.round(width * scale);
      canvas.height = Math.round(height * scale);
      canvas.style.height = `${height}px`;
    }
    const pen = canvas.getContext("2d");
    pen.setTransform(scale, 0, 0, scale, 0, 0);
    pen.clearRect(0, 0, width, height);
    const style = getComputedStyle(canvas);
    this.sheet(pen, width, rows, { line: style.outlineColor, soft: style.color, band: style.caretColor });
    const steps = this.shown;
    const right = this.edge();
    const x = (time) => width - ((right - time) / this.spanS) * width;
    for (const step of steps) this.block(pen, step, x(step.start_s), x(step.end_s), rows);
    this.tell(steps, right);
  }

  sheet(pen, width, rows, colours) {
    pen.fillStyle = colours.band;
    for (let row = 0; row < rows; row++) {
      pen.beginPath();
      pen.roundRect(0, row * ROW + GAP, width, ROW - 2 * GAP, 4);
      pen.fill();
    }
    const gap = [0.5, 1, 2, 5, 10].find((each) => (each / this.spanS) * width >= 62) ?? 10;
    pen.fillStyle = colours.soft;
    pen.strokeStyle = colours.line;
    pen.font = "11px system-ui, sans-serif";
    for (let ago = 0; ago < this.spanS; ago += gap) {
      const at = width - (ago / this.spanS) * width;
      pen.beginPath();
      pen.moveTo(at - 0.5, 0);
      pen.lineTo(at - 0.5, rows * ROW);
      pen.stroke();
      pen.textAlign = ago === 0 ? "right" : "center";
      pen.fillText(ago === 0 ? "now" : `−${ago} s`, at, rows * ROW + 14);
    }
  }

  block(pen, step, left, right, rows) {
    const wide = right - left;
    const filled = wide > 3 ? wide - 1 : Math.max(wide, 0.75);
    pen.fillStyle = step.colour;
    pen.beginPath();
    pen.roundRect(left, step.row * ROW + GAP, filled, ROW - 2 * GAP, Math.min(3, filled / 2));
    pen.fill();
    pen.fillRect(left, (rows - 1) * ROW + 2 * GAP, filled, ROW - 4 * GAP);
    if (wide > 20 && step.rows > 1) {
      pen.fillStyle = "#ffffff";
      pen.font = "600 11px system-ui, sans-serif";
      pen.textAlign = "center";
      pen.fillText(String(step.rows), left + filled / 2, step.row * ROW + ROW / 2 + 4);
    }
  }

  /** In words what the picture shows; not more often than can be read. */
  tell(steps, right) {
    if (performance.now() - (this.told ?? -1e9) < 400) return;
    this.told = performance.now();
    let text = "Nothing runs.";
    if (steps.length) {
      const ordered = [...steps].sort((one, other) => one.start_s - other.start_s);
      const turns = ordered.filter((step, i) => i && step.model !== ordered[i - 1].model).length;
      const left = right - this.spanS;
      const busy = steps.reduce((sum, step) => sum + Math.min(step.end_s, right) - Math.max(step.start_s, left), 0);
      const lanes = new Set(steps.map((step) => step.lane)).size;
      const share = Math.min(100, Math.round((100 * busy) / this.spanS / lanes));
      text = `${steps.length} steps · ${turns} turns · ${share} % busy`;
    }
    if (facts.textContent !== text) {
      facts.textContent = text;
      canvas.setAttribute("aria-label", `The last ${this.spanS} seconds: ${text}`);
    }
  }

  /** Says what the step under the pointer is. */
  point(event) {
    const { left, top, width } = canvas.getBoundingClientRect();
    const time = this.edge() - (1 - (event.clientX - left) / width) * this.spanS;
    const row = Math.floor((event.clientY - top) / ROW);
    const slack = (2 / width) * this.spanS;
    const step = this.shown.find((each) => (row === this.models.length || each.row === row) && each.start_s - slack <= time && time <= each.end_s + slack);
    tip.hidden = step === undefined;
    if (!step) return;
    const lasted = ((step.end_s - step.start_s) * 1000).toPrecision(3);
    tip.textContent = `${step.phase} · ${lasted} ms${step.rows > 1 ? ` · ${step.rows} requests` : ""}`;
    tip.style.left = `${Math.min(Math.max(event.clientX - left - tip.offsetWidth / 2, 0), width - tip.offsetWidth)}px`;
    tip.style.top = `${(row + 1) * ROW}px`;
  }
}

/** Names without what they all begin with, up to a dash or slash. */
function shortened(models) {
  if (models.length < 2) return models;
  let same = 0;
  while (models.every((name) => name[same] === models[0][same] && same < name.length)) same++;
  const cut = models[0].slice(0, same).search(/[-/][^-/]*$/) + 1;
  return models.map((name) => name.slice(cut));
}

function swatch(colour) {
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  svg.setAttribute("aria-hidden", "true");
  const box = document.createElementNS("http://www.w3.org/2000/svg", "rect");
  for (const [name, value] of Object.entries({ width: 10, height: 10, rx: 3, fill: colour })) box.setAttribute(name, value);
  svg.append(box);
  return svg;
}
