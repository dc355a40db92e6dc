// Publishers that have waited for over a second: one answer for the badge, the notes, the map and the views.

import { get } from "./api.js";
import { now } from "./ages.js";
import { RECEIVED, since } from "./store.js";

const REFRESH_MS = 5000;
const LIMIT = 200;
const LATE_S = 1;
const STUCK_S = 10;

export class Waits {
  /** `onNews` is called after each answer. */
  constructor(scope, onNews) {
    this._scope = scope;
    this._onNews = onNews;
    this.items = [];
    this.late = null;
    this.stuck = null;
  }

  start() {
    setInterval(() => document.hidden || this.load(), REFRESH_MS);
    this.load();
  }

  /** Counts an answer to the same question, whoever asked it. */
  take(items) {
    this.items = items;
    this.late = items.filter((each) => each.oldest_s >= LATE_S).length;
    this.stuck = items.filter((each) => each.oldest_s >= STUCK_S).length;
    this._onNews();
  }

  /** Subscriptions that publishers have waited for longer than ten seconds. */
  get stuckHolders() {
    return holdersOf(this.items).filter((each) => now() - each.began >= STUCK_S);
  }

  async load() {
    const asked = this._scope.isNetwork;
    try {
      const { items } = await get(["waits"], { limit: LIMIT, min_s: LATE_S, ...this._scope.query });
      if (asked === this._scope.isNetwork) {
        items.forEach((item) => { item[RECEIVED] = now(); });
        this.take(items);
      }
    } catch {
      // The feed says when the router does not answer; until then the last counts stand.
    }
  }
}

/** The other way round: each subscription with the number of publishers it holds, and since when. */
export function holdersOf(waits) {
  const found = new Map();
  for (const wait of waits) {
    for (const each of wait.waiting_for) {
      const began = since(wait, each.since_s ?? wait.oldest_s);
      const holder = found.get(each.key)
        ?? { key: each.key, name: each.subscription, topic: wait.topic, vhost: wait.vhost, router: each.router, rid: each.rid, state: each.state, publishers: 0, began };
      holder.publishers += 1;
      holder.began = Math.min(holder.began, began);
      found.set(each.key, holder);
    }
  }
  return [...found.values()];
}
