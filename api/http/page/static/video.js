// Clips: a job is created, asked after until it is done, and its file fetched.

import { call, json, pause } from "./api.js";
import { make, seconds } from "./elements.js";
import { Card, showAsked } from "./feed.js";
import { Frame } from "./frames.js";

/** Makes a clip of what was said. */
export async function video(prompt, model, options) {
  showAsked(prompt);
  const card = new Card(`Clip: ${prompt}`);
  let job;
  await card.run(async () => {
    job = await json("/v1/videos", { method: "POST", body: { prompt, model, ...options }, signal: card.signal });
    const frame = new Frame(...job.size.split("x").map(Number));
    card.body.append(make("div", { class: "media" }, frame.element));
    try {
      job = await finished(job, frame, card.signal);
      const file = await call(`/v1/videos/${job.id}/content`, { signal: card.signal });
      frame.clip(await file.blob(), prompt, `hemiola-${job.seed}.mp4`);
      card.say([job.size.replace("x", " × "), `${job.num_frames} frames at ${job.fps} a second`, seconds(job.inference_time_s), `seed ${job.seed}`].join(" · "));
    } finally {
      frame.end();
    }
  });
  if (card.signal.aborted && job) await json(`/v1/videos/${job.id}`, { method: "DELETE" });
}

async function finished(job, frame, signal) {
  while (job.status === "queued" || job.status === "in_progress") {
    frame.progress(job.progress, job.status === "queued" ? "waiting" : `${job.progress} %`);
    await pause(300, signal);
    job = await json(`/v1/videos/${job.id}`, { signal });
  }
  if (job.status === "failed") throw new Error(job.error.message);
  return job;
}
