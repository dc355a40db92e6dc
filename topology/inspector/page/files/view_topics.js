// Topics, and one topic with its publishers, subscriptions and who waits.

import { get, PAGE_SIZE } from "./api.js";
import { notAsked } from "./actions.js";
import { button, fill, h, setText } from "./dom.js";
import { counted, number, shortDuration } from "./format.js";
import { rateTile, tile } from "./tiles.js";
import { columnsOf, endColumn, plain, topicLink } from "./columns.js";
import { Table, filterBox, panel } from "./table.js";
import { showWaits } from "./view_waiting.js";

export class TopicsView {
  static title = "Topics";

  constructor(page, place) {
    this._page = page;
    this._filter = place.query.get("q") ?? "";
    this._table = new Table({
      caption: "Topics",
      empty: "Nobody publishes or subscribes.",
      sort: "name",
      columns: columnsOf("topics", {
        rates: page.rates,
        own: {
          waiting: ({ name, label }) => plain(name, label, { numeric: true }),
          name: ({ name, label }) => plain(name, label, {
            mark: (topic) => `${topic.name} ${topic.is_pattern}`,
            cell: (topic) => [topicLink({ topic: topic.name, vhost: topic.vhost }), topic.is_pattern ? h("span", { class: "quiet small" }, " pattern") : null],
            className: "wide",
          }),
        },
      }),
    });
    this._note = h("p", { class: "quiet" });
    this._more = new MoreRows(page, "topics", () => ({}));
    this._missing = h("div", { class: "slot" });
    this.element = h("div", { class: "stack" },
      h("div", { class: "head" }, h("h1", {}, "Topics"), this._note, h("span", { class: "push" }),
        (this._publish = publishButton(page, null)),
        filterBox("Filter topics", this._filter, (text) => {
          this._filter = text.toLowerCase();
          this.render();
        })),
      this._missing,
      h("section", { class: "panel", "aria-label": "Topics" }, this._table.element, this._more.element));
  }

  watches() {
    return { tables: ["topics"], rates: { topics: {} }, everywhere: { topics: {} } };
  }

  render() {
    fillMissing(this._missing, this._page);
    this._publish.hidden = !this._page.may("operator");
    const topics = this._page.rows("topics");
    const found = topics.filter((topic) => topic.key.toLowerCase().includes(this._filter));
    setText(this._note, !this._page.store.has("topics") ? "" : this._filter ? `${number(found.length)} of ${number(topics.length)}` : counted(topics.length, "topic"));
    if (this._page.store.has("topics")) {
      this._table.update(found);
    }
    this._more.render();
  }
}

function publishButton(page, topic) {
  return button("Publish a test message…", () => page.actions.publishTest(topic), { hidden: true });
}

/** Names the routers that did not reply; made anew only when they are others. */
export function fillMissing(slot, page) {
  const mark = JSON.stringify(page.everywhere.missing);
  if (slot.dataset.mark !== mark) {
    slot.dataset.mark = mark;
    fill(slot, notAsked(page.everywhere.missing));
  }
}

export class TopicView {
  static title = "Topic";

  constructor(page, place) {
    this._page = page;
    this._topic = place.rest.join("/");
    this._subscriptions = new Table({
      caption: `Subscriptions of the topic ${this._topic}`,
      empty: "No subscription: what is published here goes nowhere.",
      sort: "name",
      columns: columnsOf("subscriptions", { rates: page.rates, without: ["topic", ...FOR_ONE], extra: [endColumn(page)] }),
    });
    this._publishers = new Table({
      caption: `Publishers of the topic ${this._topic}`,
      empty: "No publisher.",
      sort: "name",
      columns: columnsOf("publishers", { rates: page.rates, without: ["topic", ...FOR_ONE] }),
    });
    const narrowed = () => ({ topic: this._topic });
    this._more = ["subscriptions", "publishers"].map((name) => new MoreRows(page, name, narrowed));
    this._facts = h("p", { class: "quiet" });
    this._missing = h("div", { class: "slot" });
    this._numbers = h("div", { class: "tiles few" });
    this._waits = panel(page.scope.isNetwork ? "Publishers that wait" : "Publishers that wait at this router", (this._waitList = h("div", { class: "waits" })));
    this.element = h("div", { class: "stack" },
      h("div", { class: "head" },
        h("h1", {}, h("a", { href: "#/topics" }, "Topics"), " / ", h("span", { class: "name" }, this._topic)), this._facts,
        h("span", { class: "push" }), (this._publish = publishButton(page, this._topic))),
      this._missing, this._numbers,
      panel("Subscriptions", this._subscriptions.element, this._more[0].element).element,
      panel("Publishers", this._publishers.element, this._more[1].element).element,
      this._waits.element);
  }

  watches() {
    const topic = { topic: this._topic };
    return {
      tables: ["topics"], ...topic, rates: { topics: topic, subscriptions: topic, publishers: topic },
      everywhere: { topics: topic, subscriptions: topic, publishers: topic },
    };
  }

  render() {
    const { store, scope } = this._page;
    fillMissing(this._missing, this._page);
    const topic = this._page.rows("topics").find((each) => each.key === this._topic);
    this._publish.hidden = !this._page.may("operator") || topic?.is_pattern;
    this._showNumbers(topic);
    setText(this._facts, !store.has("topics") ? "" : topic
      ? `${counted(topic.subscriptions, "subscription")}, ${counted(topic.publishers, "publisher")}${topic.waiting ? `, ${number(topic.waiting)} waiting over 1 s` : ""}`
      : "Nobody publishes to this topic or subscribes to it now.");
    for (const [name, table] of [["subscriptions", this._subscriptions], ["publishers", this._publishers]]) {
      if (store.has(name)) {
        const here = store.overview?.router;
        table.update(this._page.rows(name).filter((each) => scope.isNetwork || each.router === here));
      }
    }
    this._more.forEach((each) => each.render());
    const waits = scope.isNetwork ? this._page.waits.items.filter((each) => nameOf(each) === this._topic) : store.items("waits");
    this._waits.element.hidden = !waits.length;
    showWaits(this._page, this._waitList, waits);
  }

  _showNumbers(topic) {
    this._numbers.hidden = !topic;
    if (topic) {
      const { rates } = this._page;
      const found = rates.acceptanceOf("topics", [topic]);
      fill(this._numbers,
        rateTile("Published", rates.now("topics", topic, "published_rate"), rates.points("topics", topic.key, "published_rate")),
        rateTile("Delivered", rates.now("topics", topic, "delivered_rate"), rates.points("topics", topic.key, "delivered_rate")),
        tile(`Accepted p50${found.when}`, shortDuration(found.p50)),
        tile(`Accepted p99${found.when}`, shortDuration(found.p99)));
    }
  }
}

/** The name of a topic as its view has it, with its virtual host. */
function nameOf({ topic, vhost }) {
  return vhost ? `$${vhost}/${topic}` : topic;
}

/** Of a subscription or publisher, what is shown in its own view only. */
const FOR_ONE = ["incarnation", "timeout_s", "session", "epoch"];

/** "Show more", for tables with more rows than one page. */
export class MoreRows {
  constructor(page, table, query) {
    this._page = page;
    this._name = table;
    this._query = query;
    this._total = 0;
    this._note = h("span", {});
    this._button = button("Show more", () => this._load());
    this.element = h("p", { class: "more" }, this._button, this._note);
  }

  /** Called with the table it belongs to, so that its count is of the rows that are shown. */
  render() {
    const { store } = this._page;
    this.element.hidden = !store.next.get(this._name);
    if (this._total) {
      setText(this._note, `${number(store.table(this._name).size)} of ${number(this._total)}`);
    }
  }

  async _load() {
    const { store } = this._page;
    this._button.disabled = true;
    try {
      const page = await get([this._name], { ...this._query(), limit: PAGE_SIZE, cursor: store.next.get(this._name) });
      this._total = page.total;
      store.append(this._name, page.items, page.next);
    } catch (error) {
      this._total = 0;  // so that this is said until the next answer
      setText(this._note, `${error.message} ${error.fix ?? ""}`);
    } finally {
      this._button.disabled = false;
    }
  }
}

