// The latest events: of this router as they come, or of all routers.

import { get } from "./api.js";
import { notAsked } from "./actions.js";
import { attachmentLink, clientLink, routerLink, topicLink } from "./columns.js";
import { fill, h, setText } from "./dom.js";
import { counted, number, timeOfDay } from "./format.js";
import { choice, filterBox } from "./table.js";

const SHOWN = 300;
const REFRESH_MS = 3000;
const OF_EACH = 100;
/** Of each router, when all are asked. */
const KEPT = 1000;
/** As many as the router keeps. */
const RANK = { debug: 0, info: 1, warning: 2, error: 3, critical: 4 };

export class EventsView {
  static title = "Events";

  constructor(page, place) {
    this._page = page;
    this._filter = (place.query.get("q") ?? "").toLowerCase();
    this._least = "info";
    this._held = null;
    this._note = h("p", { class: "quiet" });
    this._all = null;
    this._missing = h("div", { class: "slot" });
    this._list = h("ol", { class: "event-list", "aria-label": "Events, newest first" });
    const hold = h("button", { type: "button", class: "button", "aria-pressed": "false", on: { click: () => {
      this._held = this._held ? null : this._items();
      hold.setAttribute("aria-pressed", String(Boolean(this._held)));
      hold.textContent = this._held ? "Go on" : "Hold";
      this.render();
    } } }, "Hold");
    this.element = h("div", { class: "stack" },
      h("div", { class: "head" }, h("h1", {}, page.scope.isNetwork ? "Events of all routers" : "Events of this router"), this._note, h("span", { class: "push" }),
        choice("Least level", [["all", "info"], ["warnings", "warning"], ["errors", "error"]], this._least, (level) => {
          this._least = level;
          this.render();
        }),
        hold,
        filterBox("Filter events", this._filter, (text) => {
          this._filter = text.toLowerCase();
          this.render();
        })),
      this._missing,
      h("section", { class: "panel", "aria-label": "Events" }, this._list, (this._empty = h("p", { class: "empty" }, "No such event."))));
    this._timer = null;
    if (page.scope.isNetwork) {
      this._timer = setInterval(() => document.hidden || this._load(), REFRESH_MS);
      this._load();
    }
  }

  watches() {
    return { tables: [] };
  }

  destroy() {
    clearInterval(this._timer);
    this._timer = null;
  }

  /** Those of all routers as they were last asked for, or this router's as they come. */
  _items() {
    return this._page.scope.isNetwork ? this._all ?? [] : this._page.store.items("events");
  }

  async _load() {
    try {
      const { items, missing } = await get(["events"], { limit: OF_EACH, network: "true" });
      if (this._timer !== null) {
        this._all = items;
        fill(this._missing, notAsked(missing));
        this.render();
      }
    } catch {
      // The feed says when the router does not answer.
    }
  }

  render() {
    const { store } = this._page;
    trim(store);
    const events = this._held ?? this._items();
    const found = events.filter((event) => RANK[event.level] >= RANK[this._least] && matches(event, this._filter));
    const newer = this._held ? this._items().filter((event) => event.time > (this._held.at(-1)?.time ?? "")).length : 0;
    setText(this._note, `${number(found.length)} of ${counted(events.length, "event")}${newer ? `, ${number(newer)} newer` : ""}`);
    this._empty.hidden = found.length > 0 || !(this._page.scope.isNetwork ? this._all : store.has("events"));
    // Rows stay as they are: only new ones are put in front.
    const old = new Map([...this._list.children].map((row) => [row.dataset.key, row]));
    const rows = found.slice(-SHOWN).reverse().map((event) => old.get(event.key) ?? eventLine(event));
    rows.forEach((row, index) => {
      if (this._list.children[index] !== row) {
        this._list.insertBefore(row, this._list.children[index] ?? null);
      }
    });
    while (this._list.children.length > rows.length) {
      this._list.lastChild.remove();
    }
  }
}

/** One event as a line; `short`: without its level's column. */
export function eventLine(event, { short = false } = {}) {
  const known = Object.entries(event.fields ?? {}).filter(([, value]) => value !== "");
  const fields = known.map(([name, value]) => [`${name}=`, fieldValue(name, value, event.fields), "  "]);
  const level = h("span", { class: `level ${event.level}` }, event.level);
  const time = h("time", { class: "quiet mono", datetime: event.time, title: event.time }, short ? timeOfDay(event.time).slice(0, 8) : timeOfDay(event.time));
  const what = h("span", { class: "what" }, event.router ? [routerLink(event.router), " "] : null, event.event.replaceAll("_", " "));
  const rest = h("span", { class: "fields mono" }, fields);
  return h("li", { data: { key: event.key } }, short
    ? [time, h("span", {}, what, event.level === "info" ? null : [" ", level], " ", rest)]
    : [time, level, what, rest]);
}

/** A value; names lead to their views. */
function fieldValue(name, value, fields) {
  if (typeof value !== "string") {
    return JSON.stringify(value);
  }
  return LINKS[name]?.(value, fields) ?? value;
}

const LINKS = {
  subscription: (value) => attachmentLink("subscriptions", value),
  publisher: (value) => attachmentLink("publishers", value),
  topic: (value, { vhost = "" }) => topicLink({ topic: value, vhost }),
  router: routerLink,
  neighbour: routerLink,
  other: routerLink,
  peer: (value) => clientLink(value, value),
};

function matches(event, filter) {
  return !filter || event.event.replaceAll("_", " ").includes(filter) || JSON.stringify(event).toLowerCase().includes(filter);
}

function trim(store) {
  const table = store.table("events");
  for (const key of table.keys()) {
    if (table.size <= KEPT) {
      break;
    }
    table.delete(key);
  }
}
