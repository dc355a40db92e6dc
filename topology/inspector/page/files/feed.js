// The WebSocket to the router: asks for tables, applies changes, comes back by itself, and knows how old its news are.

import { BASE, get } from "./api.js";
import { now } from "./ages.js";

const FIRST_WAIT_S = 0.5;
const LONGEST_WAIT_S = 15;
/** A router that is stopped keeps its connections: after this much silence it is asked something. */
const SILENCE_S = 6;
const CHECK_MS = 1000;
const WHOLE = new Set(["routers", "links"]);
const PAGE_LIMIT = 500;
/** A full mesh of 70 routers; beyond it the tables have filters and the map says nothing. */
const ROW_LIMIT = 5000;

export class Feed {
  /** `onState(feed)` is called on each change of `state`: connecting, live or lost; `onError({error, fix})` when the
   * router refuses what it was asked. */
  constructor(store, onState, onError) {
    this.state = "connecting";
    this.lastNewsAt = null;
    this.retryAt = null;
    this._store = store;
    this._onState = onState;
    this._onError = onError;
    this._wanted = { tables: [], topic: null, router: null };
    this._socket = null;
    this._wait = FIRST_WAIT_S;
    this._timer = null;
    this._asking = false;
    this._asked = 0;
    setInterval(() => this._check(), CHECK_MS);
  }

  /** Asks for other tables from now on; the router answers with snapshots. */
  watch(wanted) {
    if (JSON.stringify(wanted) === JSON.stringify(this._wanted)) {
      return;
    }
    this._wanted = wanted;
    if (this._socket?.readyState === WebSocket.OPEN) {
      this._ask(this._socket);
    }
  }

  /** Answers to an older question than the last are left unread: each carries the id of its own. */
  _ask(socket) {
    this._asked += 1;
    socket.send(JSON.stringify({ id: String(this._asked), ...this._wanted }));
  }

  connect() {
    clearTimeout(this._timer);
    this._socket?.close();
    this.retryAt = null;
    const scheme = location.protocol === "https:" ? "wss" : "ws";
    const socket = new WebSocket(`${scheme}://${location.host}${BASE}/watch`);
    this._socket = socket;
    socket.addEventListener("open", () => this._ask(socket));
    socket.addEventListener("message", (message) => socket === this._socket && this._take(JSON.parse(message.data)));
    socket.addEventListener("close", () => socket === this._socket && this._lost());
    this._notify(this.state === "lost" ? "lost" : "connecting");
  }

  _take(message) {
    this.lastNewsAt = now();
    this._wait = FIRST_WAIT_S;
    if (message.id !== String(this._asked)) {
      return;
    }
    if (message.type === "error") {
      this._onError(message);
    } else if (message.type === "snapshot") {
      this._store.snapshot(message.table, message.items, message.next ?? null);
      if (message.next && WHOLE.has(message.table)) {
        void this._fetchRest(message.table, message.next);
      }
    } else if (message.type === "changes") {
      for (const [name, changed] of Object.entries(message.tables)) {
        this._store.change(name, changed.put, changed.delete);
      }
    }
    this._notify("live");
  }

  /** The picture of the network needs all routers and links, not the first page only. */
  async _fetchRest(name, first) {
    const asked = this._asked;
    try {
      for (let cursor = first; cursor && asked === this._asked && this._store.table(name).size < ROW_LIMIT;) {
        const page = await get([name], { limit: PAGE_LIMIT, cursor });
        this._store.append(name, page.items, page.next);
        cursor = page.next;
      }
    } catch {
      // What came is shown; the connection that just failed brings a new snapshot when it is back.
    }
  }

  _lost() {
    this._socket = null;
    // A part of the time is chance, so that all open pages do not come back in one moment.
    const wait = this._wait * (0.75 + Math.random() / 2);
    this._wait = Math.min(this._wait * 2, LONGEST_WAIT_S);
    this.retryAt = now() + wait;
    this._timer = setTimeout(() => this.connect(), wait * 1000);
    this._notify("lost");
  }

  async _check() {
    if (this.state !== "live" || this._asking || now() - this.lastNewsAt < SILENCE_S) {
      return;
    }
    this._asking = true;
    try {
      await get(["overview"]);
      this.lastNewsAt = now();
    } catch {
      const socket = this._socket;
      this._socket = null;
      socket?.close();
      this._lost();
    } finally {
      this._asking = false;
    }
  }

  _notify(state) {
    const changed = state !== this.state;
    this.state = state;
    if (changed || state === "lost") {
      this._onState(this);
    }
  }
}
