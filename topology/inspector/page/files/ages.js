// Ages that grow by themselves between two pieces of news: one clock for the whole page.

import { h, setText } from "./dom.js";
import { duration } from "./format.js";

const TICK_MS = 500;

/** Now, in seconds of this page's own clock. Ages are kept as moments on it. */
export function now() {
  return performance.now() / 1000;
}

/** An element that shows how long ago a moment was; `counts` "down" shows how long until it. */
export function age(moment, { counts = "up" } = {}) {
  const element = h("span", { class: "age", data: { moment: String(moment), counts } });
  show(element);
  return element;
}

/** Lets all ages on the page grow; returns nothing, runs as long as the page. */
export function startClock() {
  setInterval(() => document.querySelectorAll(".age").forEach(show), TICK_MS);
}

function show(element) {
  const passed = now() - Number(element.dataset.moment);
  setText(element, duration(element.dataset.counts === "down" ? -passed : passed));
}
