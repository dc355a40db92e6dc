// Journals of the router's store: in numbers, and the readers of one.

import { get } from "./api.js";
import { nameCell, plain } from "./columns.js";
import { badge, h, setText } from "./dom.js";
import { bytes, counted, duration, number, rate } from "./format.js";
import { Table } from "./table.js";
import { Asking } from "./view_queues.js";

const REFRESH_MS = 4000;

export class JournalsView extends Asking {
  static title = "Journals";

  constructor(page) {
    super(page);
    const count = (name, label) => plain(name, label, { numeric: true, cell: (item) => number(item[name]) });
    this._table = new Table({
      caption: "Journals", empty: "The store has no journal.", sort: "journal",
      columns: [
        plain("journal", "Journal", { cell: (item) => nameCell(item.journal, path(item.journal)) }),
        count("messages", "Depth"),
        plain("oldest_s", "Oldest", { numeric: true, cell: (item) => duration(item.oldest_s) }),
        plain("rate", "Rate", { numeric: true, cell: (item) => rate(item.rate) }),
        plain("bytes", "Size", { numeric: true, cell: (item) => `${bytes(item.bytes)} of ${bytes(item.max_bytes)}` }),
        plain("owner", "Owner", { cell: (item) => (item.owner ? nameCell(item.owner) : "–") }),
        count("reader_count", "Readers"),
        plain("reader_lag", "Lag", { numeric: true, cell: (item) => [number(item.reader_lag), item.late_readers ? [" ", badge("bad", `${item.late_readers} late`)] : null] }),
      ],
    });
    this.element = h("div", { class: "stack" },
      h("div", { class: "head" }, h("h1", {}, "Journals"), this._note), this._problem,
      h("section", { class: "panel", "aria-label": "Journals" }, this._table.element));
    this._start(REFRESH_MS);
  }

  async _load() {
    const { items } = await get(["journals"]);
    return () => {
      setText(this._note, counted(items.length, "journal"));
      this._table.update(items);
    };
  }
}

export class JournalView extends Asking {
  static title = "Journal";

  constructor(page, place) {
    super(page);
    [this._journal] = place.rest;
    this._table = new Table({
      caption: `Readers of ${this._journal}`, empty: "No reader keeps its place here.", sort: "unread", descending: true,
      columns: [
        plain("reader", "Reader", { cell: (item) => nameCell(item.reader) }),
        plain("next", "Next", { numeric: true, cell: (item) => number(item.next) }),
        plain("unread", "Unread", { numeric: true, cell: (item) => number(item.unread) }),
        plain("is_late", "State", { cell: (item) => (item.is_late ? badge("bad", "late: its next message was trimmed") : badge("good", "reads on")) }),
      ],
    });
    this.element = h("div", { class: "stack" },
      h("div", { class: "head" }, h("h1", {}, "Journal ", nameCell(this._journal)), h("a", { href: "#/journals" }, "all journals"), this._note),
      this._problem,
      h("section", { class: "panel", "aria-label": "Readers" }, this._table.element));
    this._start(REFRESH_MS);
  }

  async _load() {
    const { readers, first, last, messages } = await get(["journals", this._journal]);
    return () => {
      setText(this._note, messages ? `${counted(messages, "message")}, positions ${number(first)} to ${number(last)}` : "it keeps no message");
      this._table.update(readers);
    };
  }
}

function path(journal) {
  return `#/journals/${encodeURIComponent(journal)}`;
}
