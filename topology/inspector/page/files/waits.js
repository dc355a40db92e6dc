// Publishers of all routers that have waited for over a second: one count for the badge, the notes, and the view.

import { get } from "./api.js";

const REFRESH_MS = 5000;
const LIMIT = 200;
const LATE_S = 1;
const STUCK_S = 10;

export class Waits {
  /** `onNews` is called after each answer. */
  constructor(onNews) {
    this._onNews = onNews;
    this.late = null;
    this.stuck = null;
  }

  start() {
    setInterval(() => document.hidden || this._load(), REFRESH_MS);
    this._load();
  }

  /** Counts an answer to the same question, whoever asked it. */
  count(items) {
    this.late = items.filter((each) => each.oldest_s >= LATE_S).length;
    this.stuck = items.filter((each) => each.oldest_s >= STUCK_S).length;
    this._onNews();
  }

  async _load() {
    try {
      this.count((await get(["waits"], { limit: LIMIT, min_s: LATE_S, network: "true" })).items);
    } catch {
      // The feed says when the router does not answer; until then the last counts stand.
    }
  }
}
