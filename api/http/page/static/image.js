// Pictures: streamed, so that every denoise step is seen as progress.

import { stream } from "./api.js";
import { make, seconds } from "./elements.js";
import { Card, showAsked } from "./feed.js";
import { Frame, shapeOf } from "./frames.js";

/** Makes pictures of what was said. */
export async function image(prompt, model, options) {
  showAsked(prompt);
  const card = new Card(`Pictures: ${prompt}`);
  const frames = Array.from({ length: options.n ?? 1 }, () => new Frame(...shapeOf(options.size)));
  const row = make("div", { class: frames.length > 1 ? "media several" : "media" }, ...frames.map((frame) => frame.element));
  card.body.append(row);
  await card.run(async () => {
    try {
      await follow(stream("/v1/images/generations", { prompt, model, stream: true, partial_images: 2, ...options }, card.signal), frames, prompt, card);
    } finally {
      for (const frame of frames) frame.end();
    }
  });
}

async function follow(events, frames, prompt, card) {
  const seeds = [];
  for await (const { event, data, comment } of events) {
    if (comment?.startsWith("progress ")) {
      const { index, done, total } = JSON.parse(comment.slice(9));
      frames[index].progress((100 * done) / total, `step ${done} of ${total}`);
    }
    if (event === "image_generation.completed") {
      frames[data.index].picture(blobOf(data), prompt, `hemiola-${data.seed}.${data.output_format}`);
      seeds[data.index] = data.seed;
      const which = frames.length > 1 ? "seeds" : "seed";
      card.say([`${data.size.replace("x", " × ")}`, seconds(data.inference_time_s), `${which} ${seeds.filter((seed) => seed !== undefined).join(", ")}`].join(" · "));
    }
  }
}

function blobOf({ b64_json, output_format }) {
  const bytes = Uint8Array.from(atob(b64_json), (character) => character.charCodeAt(0));
  return new Blob([bytes], { type: `image/${output_format}` });
}
