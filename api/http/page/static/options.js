// The optional fields of each kind of request; what is left empty is not sent.

import { make } from "./elements.js";

const number = (step, min, max) => ({ type: "number", step, min, max, inputmode: "decimal" });
const SEED = ["seed", "Seed", { ...number(1, 0), placeholder: "random" }];
const STEPS = ["num_inference_steps", "Steps", { ...number(1, 1, 200), placeholder: "model's own" }];
const GUIDANCE = ["guidance_scale", "Guidance", { ...number(0.1, 0, 20), placeholder: "model's own" }];
const SIZE = ["size", "Size", { type: "text", placeholder: "e.g. 128x128", pattern: "\\d+[xX]\\d+" }];
const NEGATIVE = ["negative_prompt", "Keep away from", { type: "text", class: "long" }];
const FIELDS = {
  chat: [
    ["temperature", "Temperature", { ...number(0.05, 0, 2), placeholder: "model's own" }],
    ["top_p", "Top p", { ...number(0.05, 0, 1), placeholder: "model's own" }],
    ["max_tokens", "Most tokens", { ...number(1, 1), placeholder: "no limit" }],
    SEED,
  ],
  image: [SIZE, ["n", "How many", { ...number(1, 1, 10), placeholder: "1" }], STEPS, GUIDANCE, SEED, NEGATIVE],
  video: [SIZE, ["num_frames", "Frames", { ...number(1, 1), placeholder: "model's own" }], STEPS, GUIDANCE, SEED, NEGATIVE],
};

const panel = document.getElementById("options");
const kept = { chat: {}, image: {}, video: {} };

/** Shows the fields of one kind. */
export function showOptions(mode) {
  panel.replaceChildren(
    ...FIELDS[mode].map(([name, label, attributes]) => {
      const input = make("input", { name, ...attributes, value: kept[mode][name] ?? "" });
      input.addEventListener("input", () => (kept[mode][name] = input.value));
      return make("label", { class: attributes.class }, label, input);
    }),
  );
}

/** What was filled in for one kind, as fields of its request. */
export function optionsOf(mode) {
  const given = {};
  for (const [name, , { type }] of FIELDS[mode]) {
    const value = (kept[mode][name] ?? "").trim();
    if (value) given[name] = type === "number" ? Number(value) : value;
  }
  return given;
}
