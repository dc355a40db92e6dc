// Work queues of the router's store: in numbers, what ended, one item; operators may replay.

import { change, get } from "./api.js";
import { confirm, problem } from "./actions.js";
import { nameCell, plain } from "./columns.js";
import { button, fill, h, setText } from "./dom.js";
import { bytes, counted, duration, number } from "./format.js";
import { Table, choice } from "./table.js";

const REFRESH_MS = 4000;
const SHOWN = 100;

/** Asks again and again while it is shown; `_load()` asks once, and `_problem` shows what is refused. */
export class Asking {
  constructor(page) {
    this._page = page;
    this._problem = h("div", { class: "slot" });
    this._note = h("p", { class: "quiet", role: "status" });
    this._isShown = true;
  }

  _start(interval) {
    this._timer = interval ? setInterval(() => document.hidden || this._ask(), interval) : null;
    if (this._page.store.overview) {
      this._ask();
    }
  }

  async _ask() {
    const { overview } = this._page.store;
    if (!overview.can?.queues) {
      setText(this._note, "This router shows no queues and journals: it has no setting queue_store.");
      return;
    }
    this._hasAsked = true;
    try {
      const show = await this._load();
      if (this._isShown) {
        fill(this._problem);
        show();
      }
    } catch (error) {
      if (error.status === undefined) {
        throw error;
      }
      fill(this._problem, problem(error));
    }
  }

  watches() {
    return { tables: [] };
  }

  render(dirty) {
    if (dirty?.has("overview") && !this._hasAsked) {
      this._ask();
    }
  }

  destroy() {
    this._isShown = false;
    clearInterval(this._timer);
  }

  /** A button that replays an entry, for those who may. */
  _replay(entry) {
    return this._page.may("operator")
      ? button("Replay…", () => confirm({
          title: `Replay entry ${entry.entry} of ${entry.queue}?`,
          says: [
            `Its payload is pushed to ${entry.queue} as a new item, with retries from zero. A worker will process it again.`,
            entry.ending === "dead" ? "It is a dead letter no more." : "The entry stays in the history, and can be replayed again.",
            "Deliveries of topics are not touched.",
          ],
          verb: "Replay it",
          run: async () => {
            const { item } = await change("POST", ["queues", entry.queue, "entries", String(entry.entry), "replay"]);
            this._ask();
            return `Item ${item} is in the queue ${entry.queue}.`;
          },
        }), { class: "button slim", "aria-label": `Replay entry ${entry.entry}` })
      : "";
  }
}

export class QueuesView extends Asking {
  static title = "Queues";

  constructor(page) {
    super(page);
    const count = (name, label) => plain(name, label, { numeric: true, cell: (item) => counts(item, name) });
    this._table = new Table({
      caption: "Work queues", empty: "The store has no queue.", sort: "queue",
      columns: [
        plain("queue", "Queue", { cell: (item) => nameCell(item.queue, queuePath(item.queue)) }),
        count("depth", "Depth"), count("ready", "Ready"), count("waiting", "Waiting"), count("reserved", "Reserved"),
        plain("oldest_s", "Oldest ready", { numeric: true, cell: (item) => duration(item.oldest_s) }),
        plain("ended_last_minute", "Ended in the last minute", { numeric: true, cell: (item) => counts(item, "ended_last_minute") }),
        count("dead", "Dead"),
      ],
    });
    this.element = h("div", { class: "stack" },
      h("div", { class: "head" }, h("h1", {}, "Work queues"), this._note), this._problem,
      h("section", { class: "panel", "aria-label": "Work queues" }, this._table.element));
    this._start(REFRESH_MS);
  }

  async _load() {
    const { items } = await get(["queues"]);
    return () => {
      setText(this._note, counted(items.length, "queue"));
      this._table.update(items);
    };
  }
}

export class QueueView extends Asking {
  static title = "Queue";

  constructor(page, place) {
    super(page);
    [this._queue] = place.rest;
    this._ending = null;
    this._table = new Table({
      caption: `What ended in ${this._queue}`, empty: "No such entry.", sort: "entry", descending: true,
      columns: [
        plain("entry", "Entry", { numeric: true, cell: (item) => h("a", { href: `${queuePath(item.queue)}/${item.entry}` }, String(item.entry)) }),
        plain("ending", "Ending"), plain("ended", "Ended", { cell: (item) => time(item.ended) }),
        plain("retries", "Retries", { numeric: true }), plain("size", "Size", { numeric: true, cell: (item) => bytes(item.size) }),
        plain("reason", "Reason", { cell: (item) => nameCell(item.reason || "–") }),
        { name: "acts", label: "Actions", hideLabel: true, mark: () => String(page.may("operator")), cell: (item) => this._replay(item) },
      ],
    });
    this.element = h("div", { class: "stack" },
      h("div", { class: "head" }, h("h1", {}, "Queue ", nameCell(this._queue)), h("a", { href: "#/queues" }, "all queues"), this._note, h("span", { class: "push" }),
        choice("Endings", [["all", null], ["dead letters", "dead"], ["done", "done"]], null, (ending) => {
          this._ending = ending;
          this._ask();
        })),
      this._problem,
      h("section", { class: "panel", "aria-label": "What ended" }, this._table.element));
    this._start(REFRESH_MS);
  }

  render(dirty) {
    super.render(dirty);
    if (dirty?.has("overview")) {
      this._table.refresh();
    }
  }

  async _load() {
    const ending = this._ending;
    const { items, next } = await get(["queues", this._queue, "entries"], { ending, limit: SHOWN });
    return () => {
      if (ending === this._ending) {
        setText(this._note, next ? `the newest ${number(items.length)}` : counted(items.length, "entry", "entries"));
        this._table.update(items);
      }
    };
  }
}

export class EntryView extends Asking {
  static title = "Item";

  constructor(page, place) {
    super(page);
    [this._queue, this._number] = place.rest;
    this._shown = h("div", { class: "stack" });
    this.element = h("div", { class: "stack" },
      h("div", { class: "head" }, h("h1", {}, `Entry ${this._number} of `, nameCell(this._queue)), h("a", { href: queuePath(this._queue) }, "the queue"), this._note),
      this._problem, this._shown);
    this._start(null);
  }

  async _load() {
    const entry = await get(["queues", this._queue, "entries", this._number]);
    return () => fill(this._shown, entryPanel(entry, this._replay(entry)));
  }
}

function entryPanel(entry, replay) {
  const field = (title, ...content) => h("div", {}, h("h3", {}, title), content);
  const text = (value) => (typeof value === "string" ? value : JSON.stringify(value, null, 2));
  const block = (title, value) => field(title, h("pre", { class: "dump", tabindex: "0", role: "group", "aria-label": title }, text(value)));
  return h("section", { class: "panel stack", "aria-label": "Item" },
    h("header", {}, h("h2", {}, `Item ${entry.item}`), h("span", { class: "push" }, replay)),
    h("div", { class: "six" },
      field("Ending", h("p", {}, entry.ending, entry.targets.length ? ` to ${entry.targets.join(", ")}` : "")),
      field("Ended", h("p", {}, time(entry.ended)), h("p", { class: "small quiet" }, "pushed ", time(entry.created))),
      field("Retries", h("p", {}, number(entry.retries)), h("p", { class: "small quiet" }, `priority ${entry.priority}`)),
      field("Reason", h("p", { class: "long" }, entry.reason || "–")),
      field("Payload", h("p", {}, bytes(entry.size), entry.encoding ? `, ${entry.encoding}` : "", entry.is_cut ? ", its beginning" : ""))),
    entry.payload === null && entry.encoding === null
      ? h("p", { class: "quiet" }, "The payload is shown to admins.")
      : block("Payload", entry.payload),
    entry.result === null ? null : block("Result", entry.result));
}

/** A count that ended at the store's limit is "or more". */
function counts(item, name) {
  return `${number(item[name])}${item[name] >= item.count_limit ? "+" : ""}`;
}

function time(text) {
  const when = new Date(text);
  const shown = Number.isNaN(when.getTime()) ? text : `${when.toLocaleDateString("en-GB")} ${when.toLocaleTimeString("en-GB")}`;
  return h("time", { datetime: text, title: text }, shown);
}

function queuePath(queue) {
  return `#/queues/${encodeURIComponent(queue)}`;
}
