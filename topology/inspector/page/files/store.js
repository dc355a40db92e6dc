// What the page knows: tables of items by key, fed by snapshots and changes, plus who has gone since it was opened.

import { now } from "./ages.js";

const GONE_FOR_S = 600;
/** Routers and links that disappeared are shown for ten minutes: long enough to see what happened over a coffee. */
const GONE_LIMIT = 100;
const REMEMBERED = new Set(["routers", "links"]);
/** When an item arrived, on the page's clock: its ages count from then. */
export const RECEIVED = Symbol("received");

export class Store {
  constructor() {
    this.tables = new Map();
    this.next = new Map();
    this.gone = new Map();
    this._received = new Set();
    this._dirty = new Set();
    this._listeners = new Set();
    this._scheduled = false;
  }

  table(name) {
    let table = this.tables.get(name);
    if (!table) {
      table = new Map();
      this.tables.set(name, table);
    }
    return table;
  }

  items(name) {
    return [...this.table(name).values()];
  }

  /** Whether the router has sent this table: one that is empty is not one that has not come yet. */
  has(name) {
    return this._received.has(name);
  }

  get overview() {
    return this.items("overview")[0] ?? null;
  }

  /** Calls back once a frame with the set of tables that changed; returns what ends it. */
  subscribe(listener) {
    this._listeners.add(listener);
    return () => this._listeners.delete(listener);
  }

  snapshot(name, items, next = null) {
    const old = this.tables.get(name);
    const fresh = new Map(items.map((item) => [item.key ?? name, stamp(item)]));
    this.tables.set(name, fresh);
    this._received.add(name);
    this.next.set(name, next);
    // A page beyond the first says nothing about what is missing from it.
    if (old && REMEMBERED.has(name) && next === null) {
      for (const [key, item] of old) {
        if (!fresh.has(key)) {
          this._remember(name, key, item);
        }
      }
    }
    fresh.forEach((_, key) => this.gone.delete(`${name} ${key}`));
    this._changed(name);
  }

  /** A further page of a table. */
  append(name, items, next) {
    items.forEach((item) => this.table(name).set(item.key, stamp(item)));
    this.next.set(name, next);
    this._changed(name);
  }

  change(name, put = [], deleted = []) {
    const table = this.table(name);
    for (const key of deleted) {
      const item = table.get(key);
      if (item && table.delete(key) && REMEMBERED.has(name)) {
        this._remember(name, key, item);
      }
    }
    for (const item of put) {
      const key = item.key ?? name;
      table.set(key, stamp(item));
      this.gone.delete(`${name} ${key}`);
    }
    this._changed(name);
  }

  clear(name) {
    this.tables.delete(name);
    this._received.delete(name);
    this.next.delete(name);
    this._changed(name);
  }

  /** Items of a table that disappeared while the page was open: [{item, at}]. */
  goneFrom(name) {
    const since = now() - GONE_FOR_S;
    return [...this.gone.values()].filter((entry) => entry.name === name && entry.at > since);
  }

  _remember(name, key, item) {
    this.gone.set(`${name} ${key}`, { name, key, item, at: now() });
    if (this.gone.size > GONE_LIMIT) {
      this.gone.delete(this.gone.keys().next().value);
    }
  }

  _changed(name) {
    this._dirty.add(name);
    if (this._scheduled) {
      return;
    }
    this._scheduled = true;
    requestAnimationFrame(() => {
      this._scheduled = false;
      const dirty = this._dirty;
      this._dirty = new Set();
      this._listeners.forEach((listener) => listener(dirty));
    });
  }
}

/** The state of this router, as a value that there is a word for. */
export function stateOf(overview) {
  return overview.draining ? "draining" : overview.ready ? "ready" : "not-ready";
}

function stamp(item) {
  item[RECEIVED] = now();
  return item;
}

/** The moment on the page's clock at which something began that was `seconds` old when the item came. */
export function since(item, seconds) {
  return (item[RECEIVED] ?? now()) - seconds;
}
