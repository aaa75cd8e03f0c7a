// The column of what was asked and what came of it. Each answer is a card that can be stopped while it is made.

import { make } from "./elements.js";

const feed = document.getElementById("feed");
const running = new Set();

/** Shows what was asked. */
export function showAsked(text) {
  document.getElementById("welcome")?.remove();
  document.getElementById("clear").hidden = false;
  feed.append(make("p", { class: "asked" }, text));
}

/** One answer: `body` is filled by whoever makes it, and `foot` says how it is and what can be done with it. */
export class Card {
  constructor(what) {
    this.abort = new AbortController();
    this.body = make("div");
    this.facts = make("span", { class: "facts" });
    this.stopper = make("button", { class: "quiet", type: "button", onclick: () => this.stop() }, "Stop");
    this.foot = make("div", { class: "foot" }, this.stopper, this.facts);
    this.element = make("article", { class: "answer", "aria-busy": "true", "aria-label": what }, this.body, this.foot);
    feed.append(this.element);
    running.add(this);
    follow();
  }

  get signal() {
    return this.abort.signal;
  }

  stop() {
    this.abort.abort();
  }

  say(facts) {
    this.facts.textContent = facts;
  }

  /** Runs what fills the card; whatever goes wrong is shown in it. */
  async run(work) {
    try {
      await work();
    } catch (error) {
      if (error.name === "AbortError") this.say("Stopped.");
      else this.body.append(make("p", { class: "problem", role: "alert" }, error.message));
    } finally {
      running.delete(this);
      this.stopper.remove();
      this.element.setAttribute("aria-busy", "false");
    }
  }
}

/** Stops what was begun last; whether there was anything. */
export function stopLast() {
  const last = [...running].pop();
  last?.stop();
  return last !== undefined;
}

/** Stops everything and empties the column. */
export function clear() {
  for (const card of running) card.stop();
  location.reload();
}

// Follows what grows, unless the user has scrolled away from the end.
let isFollowing = true;
const distance = () => document.documentElement.scrollHeight - innerHeight - scrollY;
addEventListener("scroll", () => (isFollowing = distance() < 120), { passive: true });
new ResizeObserver(() => {
  if (isFollowing) scrollTo({ top: document.documentElement.scrollHeight });
}).observe(feed);

function follow() {
  isFollowing = true;
}
