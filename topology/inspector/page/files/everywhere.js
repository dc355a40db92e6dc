// Rows as all routers know them: where this router has a dash, another one has the value.

import { get } from "./api.js";
import { now } from "./ages.js";
import { RECEIVED } from "./store.js";
import { Wanted } from "./wanted.js";

const REFRESH_MS = 3000;
const LIMIT = 500;
/** What another router adds to rows that are otherwise as this one sees them. */
const ADDED = {
  topics: ["waiting", "published_rate", "delivered_rate", "accepted_p50_s", "accepted_p99_s"],
};

export class Everywhere extends Wanted {
  /** As `Wanted`. */
  constructor(scope, pace, onNews) {
    super(scope, pace, REFRESH_MS, onNews);
    /** Routers that did not reply: [{router, why}]. */
    this.missing = [];
    this.overview = null;
  }

  _forget() {
    super._forget();
    this.missing = [];
    this.overview = null;
  }

  /** Rows of this router with what the others know of them. */
  items(table, own) {
    const known = this._tables.get(table);
    return known ? own.map((item) => joined(table, item, known.get(item.key))) : own;
  }

  async _load() {
    if (!this._scope.isNetwork || !this._wanted.length) {
      return;
    }
    const mark = this._mark;
    const missing = new Map();
    await Promise.all(this._wanted.map(async ([table, query]) => {
      try {
        const answer = await get([table], { ...(table === "overview" ? {} : { limit: LIMIT }), ...query, network: "true" });
        answer.missing.forEach((each) => missing.set(each.rid, each));
        if (mark !== this._mark) {
          return;
        }
        if (table === "overview") {
          this.overview = answer;
        } else {
          answer.items.forEach((item) => { item[RECEIVED] = now(); });
          this._keep(mark, table, answer);
        }
      } catch {
        // The feed says when the router does not answer; until then the last rows stand.
      }
    }));
    if (mark === this._mark) {
      this.missing = [...missing.values()];
      this._onNews();
    }
  }
}

function joined(table, item, known) {
  if (!known) {
    return item;
  }
  if (ADDED[table]) {
    return { ...item, ...Object.fromEntries(ADDED[table].map((name) => [name, known[name]])) };
  }
  // The row has moved on to another router since that answer: what the feed says is newer.
  return known.rid === item.rid && known.epoch === item.epoch ? known : item;
}
