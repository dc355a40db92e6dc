// One subscription or one publisher: what is known of it, its rates, and who waits for whom.

import { get } from "./api.js";
import { now } from "./ages.js";
import { fill, h, setText } from "./dom.js";
import { columnsOf, endColumn, stateBadge, windowMeter } from "./columns.js";
import { notAsked, problem } from "./actions.js";
import { RECEIVED } from "./store.js";
import { panel } from "./table.js";
import { rateTile, tile } from "./tiles.js";
import { number } from "./format.js";
import { showWaits } from "./view_waiting.js";

const REFRESH_MS = 2000;
const LIMIT = 500;
const KINDS = { subscriptions: ["Subscription", "Subscriptions"], publishers: ["Publisher", "Publishers"] };
/** Shown above the facts. */
const ABOVE = ["name", "state", "delivered_rate", "published_rate", "lag", "held", "credit", "unsettled"];

export class AttachmentView {
  static title = "Client";

  constructor(page, place) {
    this._page = page;
    this._kind = KINDS[place.rest[0]] ? place.rest[0] : "subscriptions";
    this._key = place.rest[1];
    this._item = null;
    const [one, many] = KINDS[this._kind];
    this._name = h("span", { class: "name" }, "…");
    this._state = h("span");
    this._act = h("span", { class: "push" });
    this._problem = h("div", { class: "slot" });
    this._tiles = h("div", { class: "tiles few" });
    this._facts = h("dl", { class: "facts" });
    this._factsPanel = panel(one, this._facts);
    this._waits = panel(this._kind === "subscriptions" ? "Publishers that wait for it" : "What it waits for", (this._waitList = h("div", { class: "waits" })));
    this.element = h("div", { class: "stack" },
      h("div", { class: "head" }, h("h1", {}, h("a", { href: `#/clients/${this._kind}` }, many), " / ", this._name), this._state, this._act),
      this._problem, this._tiles, this._waits.element, this._factsPanel.element);
    this._columns = columnsOf(this._kind, { without: ABOVE });
    this._timer = setInterval(() => document.hidden || this._load(), REFRESH_MS);
    this._load();
  }

  watches() {
    return { tables: [], rates: { [this._kind]: {} } };
  }

  destroy() {
    clearInterval(this._timer);
    this._timer = null;
  }

  render(dirty = null) {
    if (this._item && (dirty === null || ["rates", "waits", "overview"].some((name) => dirty.has(name)))) {
      this._show();
    }
  }

  async _load() {
    try {
      // Its name is not known before the first answer; the management entity is found by its key.
      const name = this._item?.name ?? (await get(["management", this._kind.slice(0, -1), this._key])).name;
      const answer = await get([this._kind], { q: name, limit: LIMIT, ...this._page.scope.query });
      if (this._timer === null) {
        return;
      }
      const found = answer.items.find((each) => each.key === this._key);
      fill(this._problem, notAsked(answer.missing ?? []), found ? null : h("p", { class: "panel" }, "It has ended."));
      if (found) {
        found[RECEIVED] = now();
        this._item = found;
        this._show();
      }
    } catch (error) {
      if (this._timer !== null) {
        fill(this._problem, problem(error));
      }
    }
  }

  _show() {
    const item = this._item;
    setText(this._name, item.name);
    fill(this._state, stateBadge(item.state));
    const { rates, waits } = this._page;
    const isSubscription = this._kind === "subscriptions";
    const name = isSubscription ? "delivered_rate" : "published_rate";
    fill(this._tiles,
      rateTile(isSubscription ? "Delivered" : "Published", rates.now(this._kind, item, name), rates.points(this._kind, item.key, name)),
      isSubscription
        ? [tile("Not settled", number(item.lag)), tile("Held back", number(item.held)), tile("Credit", number(item.credit))]
        : tile("Window used", windowMeter(item)));
    const values = this._columns.map((each) => [each.label, each.cell ? each.cell(item) : each.value(item)]);
    const facts = JSON.stringify([item, rates.version]);
    if (facts !== this._mark) {
      this._mark = facts;
      fill(this._facts, values.filter(([, value]) => value !== "" && value !== null && value !== undefined && value.length !== 0)
        .map(([label, value]) => [h("dt", {}, label), h("dd", {}, value)]));
    }
    const end = isSubscription ? endColumn(this._page) : null;
    const mark = end?.mark(item) ?? "";
    if (mark !== this._actMark) {
      this._actMark = mark;
      fill(this._act, end ? end.cell(item) : null);
    }
    const found = waits.items.filter((wait) => (isSubscription ? wait.waiting_for.some((each) => each.key === item.key) : wait.key.endsWith(`.${item.key}`)));
    this._waits.element.hidden = !found.length;
    showWaits(this._page, this._waitList, found);
  }
}
