// Conversations: the answer appears as it is generated, and the conversation goes on from what was said.

import { stream } from "./api.js";
import { make, seconds } from "./elements.js";
import { Card, showAsked } from "./feed.js";

const conversation = [];

/** Says something and shows the answer. */
export async function chat(prompt, model, options) {
  showAsked(prompt);
  const card = new Card("Answer");
  const text = make("div", { class: "answer-text" });
  card.body.append(text);
  conversation.push({ role: "user", content: prompt });
  const turn = { role: "assistant", content: "" };
  await card.run(async () => {
    const body = { model, messages: [...conversation], stream: true, stream_options: { include_usage: true }, ...options };
    try {
      await follow(stream("/v1/chat/completions", body, card.signal), turn, text, card);
    } finally {
      conversation.push(turn);
    }
  });
  if (turn.content) card.foot.prepend(copier(turn.content));
}

async function follow(events, turn, text, card) {
  const begun = performance.now();
  let first;
  let usage;
  for await (const { data } of events) {
    if (data === undefined) continue;
    usage = data.usage ?? usage;
    const delta = data.choices[0]?.delta ?? {};
    const thought = delta.reasoning_content ?? delta.reasoning;
    if (thought) reasoning(card).append(thought);
    if (delta.content) {
      first ??= performance.now();
      turn.content += delta.content;
      text.append(delta.content);
    }
  }
  if (usage && first) card.say(facts(usage, begun, first));
}

function reasoning(card) {
  const there = card.body.querySelector("details p");
  if (there) return there;
  const made = make("p");
  card.body.prepend(make("details", {}, make("summary", {}, "Reasoning"), made));
  return made;
}

function facts(usage, begun, first) {
  const now = performance.now();
  const rate = (usage.completion_tokens - 1) / Math.max((now - first) / 1000, 0.001);
  const shown = [`${usage.completion_tokens} tokens`, `first after ${seconds((first - begun) / 1000)}`];
  if (usage.completion_tokens > 1) shown.push(`then ${rate.toFixed(0)} a second`);
  return shown.join(" · ");
}

function copier(text) {
  const button = make("button", { class: "quiet", type: "button" }, "Copy");
  button.addEventListener("click", async () => {
    await navigator.clipboard.writeText(text);
    button.textContent = "Copied";
  });
  return button;
}
