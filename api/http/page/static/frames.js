// The place where a picture or clip will be: of its shape from the start, with progress until it is there.

import { make } from "./elements.js";

export class Frame {
  constructor(width, height) {
    this.shape = make("canvas", { width, height, "aria-hidden": "true" });
    this.bar = make("progress", { max: 100, value: 0 });
    this.words = make("span", {}, "waiting");
    this.making = make("div", { class: "making" }, this.words, this.bar);
    this.element = make("div", { class: "frame" }, this.shape, this.making);
  }

  progress(percent, words) {
    this.bar.value = percent;
    this.words.textContent = words;
  }

  /** Nothing more will come. */
  end() {
    if (this.making.isConnected) this.element.remove();
  }

  picture(blob, alt, name) {
    const url = URL.createObjectURL(blob);
    this.show(make("img", { src: url, alt }), url, name);
  }

  clip(blob, label, name) {
    const url = URL.createObjectURL(blob);
    const video = make("video", { src: url, controls: true, loop: true, playsinline: true, "aria-label": label });
    video.muted = true;
    this.show(video, url, name);
    if (!matchMedia("(prefers-reduced-motion: reduce)").matches) video.play().catch(() => {});
  }

  show(element, url, name) {
    const save = make("a", { class: "quiet save", href: url, download: name }, "Save");
    this.element.replaceChildren(element, save);
  }
}

/** Width and height of a size that was asked for, or a square. */
export function shapeOf(size) {
  const match = /^(\d+)x(\d+)$/i.exec(size ?? "");
  return match ? [Number(match[1]), Number(match[2])] : [256, 256];
}
