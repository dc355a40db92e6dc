// The router's latest events.

import { h, setText } from "./dom.js";
import { counted, number, timeOfDay } from "./format.js";
import { choice, filterBox } from "./table.js";

const SHOWN = 300;
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
    this._list = h("ol", { class: "event-list", "aria-label": "Events, newest first" });
    const hold = h("button", { type: "button", class: "button", "aria-pressed": "false", on: { click: () => {
      this._held = this._held ? null : page.store.items("events");
      hold.setAttribute("aria-pressed", String(Boolean(this._held)));
      hold.textContent = this._held ? "Go on" : "Hold";
      this.render();
    } } }, "Hold");
    this.element = h("div", { class: "stack" },
      h("div", { class: "head" }, h("h1", {}, "Events of this router"), this._note, h("span", { class: "push" }),
        choice("Least level", [["all", "info"], ["warnings", "warning"], ["errors", "error"]], this._least, (level) => {
          this._least = level;
          this.render();
        }),
        hold,
        filterBox("Filter events", this._filter, (text) => {
          this._filter = text.toLowerCase();
          this.render();
        })),
      h("section", { class: "panel", "aria-label": "Events" }, this._list, (this._empty = h("p", { class: "empty" }, "No such event."))));
  }

  watches() {
    return { tables: [] };
  }

  render() {
    const { store } = this._page;
    trim(store);
    const events = this._held ?? store.items("events");
    const found = events.filter((event) => RANK[event.level] >= RANK[this._least] && matches(event, this._filter));
    const newer = this._held ? store.items("events").filter((event) => event.seq > (this._held.at(-1)?.seq ?? 0)).length : 0;
    setText(this._note, `${number(found.length)} of ${counted(events.length, "event")}${newer ? `, ${number(newer)} newer` : ""}`);
    this._empty.hidden = found.length > 0 || !store.has("events");
    // Rows stay as they are: only new ones are put in front.
    const old = new Map([...this._list.children].map((row) => [row.dataset.seq, row]));
    const rows = found.slice(-SHOWN).reverse().map((event) => old.get(String(event.seq)) ?? eventLine(event));
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
  const fields = Object.entries(event.fields ?? {}).map(([name, value]) => `${name}=${typeof value === "string" ? value : JSON.stringify(value)}`).join("  ");
  const level = h("span", { class: `level ${event.level}` }, event.level);
  const time = h("time", { class: "quiet mono", datetime: event.time, title: event.time }, short ? timeOfDay(event.time).slice(0, 8) : timeOfDay(event.time));
  const what = h("span", { class: "what" }, event.event.replaceAll("_", " "));
  const rest = h("span", { class: "fields mono" }, fields);
  return h("li", { data: { seq: String(event.seq) } }, short
    ? [time, h("span", {}, what, event.level === "info" ? null : [" ", level], " ", rest)]
    : [time, level, what, rest]);
}

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
