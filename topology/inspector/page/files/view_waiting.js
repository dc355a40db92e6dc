// Who holds what: each publisher that waits, the subscriptions it waits for, and since when.

import { get } from "./api.js";
import { age, now } from "./ages.js";
import { badge, fill, h, setText } from "./dom.js";
import { bytes, counted } from "./format.js";
import {
  attachmentLink, clientOf, deliveryLink, endColumn, meaningOf, routerLink, stateBadge, topicLink, windowMeter,
} from "./columns.js";
import { REASONS } from "./schema.js";
import { holdersOf } from "./waits.js";
import { RECEIVED, since } from "./store.js";
import { Table, choice, panel } from "./table.js";
import { notAsked, problem } from "./actions.js";

const REFRESH_MS = 2000;
const LATE_S = 1;
const STUCK_S = 10;

export class WaitingView {
  static title = "Waiting";

  constructor(page, place) {
    this._page = page;
    this._late = place.query.get("all") === null;
    this._waits = null;
    this._holders = new Table({
      caption: "Subscriptions that publishers wait for",
      empty: "No subscription holds anybody up.",
      sort: "longest",
      descending: true,
      columns: [
        { name: "name", label: "Subscription", value: (each) => each.name, cell: (each) => attachmentLink("subscriptions", each.name, each.key), className: "wide" },
        { name: "topic", label: "Topic", value: (each) => each.topic, cell: topicLink, className: "topic" },
        { name: "state", label: "Why", value: (each) => each.state, cell: (each) => [stateBadge(each.state), " ", h("span", { class: "small quiet" }, meaningOf(each.state))] },
        { name: "router", label: "Router", value: (each) => each.router, cell: (each) => routerLink(each.router) },
        { name: "publishers", label: "Publishers it holds", value: (each) => each.publishers, numeric: true },
        {
          name: "longest", label: "Longest", numeric: true, value: (each) => now() - each.began,
          mark: (each) => String(Math.round(each.began * 2)), cell: (each) => age(each.began),
        },
        endColumn(page),
      ],
    });
    this._note = h("p", { class: "quiet" });
    this._problem = h("div", { class: "slot" });
    this._list = h("div", { class: "waits" });
    this._empty = h("p", { class: "panel note good", hidden: true });
    this._holdersPanel = panel("Who is waited for", this._holders.element);
    this._holdersPanel.element.hidden = true;
    this.element = h("div", { class: "stack" },
      h("div", { class: "head" }, h("h1", {}, "Who holds what"), this._note, h("span", { class: "push" }),
        choice("Which waits", [["over 1 s", true], ["all", false]], this._late, (late) => {
          this._late = late;
          this._load();
        })),
      h("p", { class: "quiet" }, "A publisher gets ",
        h("i", {}, "accepted"), " only when every subscription has processed the message. These subscriptions have not."),
      this._problem, this._empty, this._holdersPanel.element, this._list);
    this._timer = setInterval(() => document.hidden || this._load(), REFRESH_MS);
    this._load();
  }

  watches() {
    return { tables: [] };
  }

  destroy() {
    clearInterval(this._timer);
    this._timer = null;
  }

  render(dirty) {
    // What is shown here is asked for every two seconds and does not come by the feed; but that states what one may do.
    if (dirty?.has("overview")) {
      this._holders.refresh();
    }
  }

  async _load() {
    const asked = this._late;
    this._asked = asked;
    try {
      const answer = await get(["waits"], { limit: 200, min_s: this._late ? LATE_S : null, ...this._page.scope.query });
      if (this._timer !== null && this._asked === asked) {
        answer.items.forEach((item) => { item[RECEIVED] = now(); });
        this._show(answer);
        if (this._late) {
          this._page.waits.take(answer.items);
        }
      }
    } catch (error) {
      if (this._timer !== null) {
        fill(this._problem, problem(error));
      }
    }
  }

  _show({ items, missing = [] }) {
    fill(this._problem, notAsked(missing));
    const holders = holdersOf(items);
    setText(this._note, items.length
      ? `${counted(items.length, "publisher")} ${items.length === 1 ? "waits" : "wait"}, for ${counted(holders.length, "subscription")}`
      : "");
    this._empty.hidden = items.length > 0;
    setText(this._empty, this._late ? "No publisher has waited for over a second." : "No publisher has anything unsettled.");
    this._holdersPanel.element.hidden = !holders.length;
    this._holders.update(holders);
    showWaits(this._page, this._list, items);
  }
}

/** Shows publishers that wait as cards in `list`; made anew only where what they say has changed: a link in use stays. */
export function showWaits(page, list, waits) {
  const old = new Map([...list.children].map((card) => [card.dataset.key, card]));
  const cards = waits.map((wait) => {
    const card = old.get(wait.key);
    return card?.dataset.mark === markOf(page, wait) ? card : waitCard(page, wait);
  });
  cards.forEach((card, index) => {
    if (list.children[index] !== card) {
      list.insertBefore(card, list.children[index] ?? null);
    }
  });
  while (list.children.length > cards.length) {
    list.lastChild.remove();
  }
}

function markOf(page, wait) {
  const parts = [wait.oldest_is_older, wait.phase, wait.unsettled, wait.bytes, wait.granted, wait.peer, wait.user, wait.oldest_tag, wait.reason, lateness(wait), page.may("operator"),
    wait.waiting_for_count, wait.waiting_for.map((each) => [each.subscription, each.router, each.state])];
  return JSON.stringify(parts);
}

function lateness(wait) {
  return wait.oldest_s >= STUCK_S ? "stuck" : wait.oldest_s >= LATE_S ? "late" : "";
}

/** One publisher that waits, with the subscriptions it waits for. */
function waitCard(page, wait) {
  const left = wait.waiting_for_count - wait.waiting_for.length;
  const words = { stuck: ["bad", "stuck"], late: ["warn", "late"] }[lateness(wait)];
  return h("article", { class: `panel wait ${lateness(wait)}`, data: { key: wait.key, mark: markOf(page, wait) }, "aria-label": `Publisher ${wait.publisher}` },
    h("header", {}, h("h3", {}, attachmentLink("publishers", wait.publisher, wait.key.split(".").at(-1))), h("span", { class: "for" }, words ? [badge(...words), " "] : null, wait.oldest_is_older ? "over " : null, age(since(wait, wait.oldest_s)))),
    h("p", { class: "quiet" }, "to ", topicLink(wait), " at ", routerLink(wait.router), ", client ", clientOf(wait), wait.phase === "active" ? null : [" ", stateBadge(wait.phase)]),
    h("div", { class: "used" }, h("span", { class: "small quiet" }, "Window"), windowMeter(wait),
      h("span", { class: "small quiet" }, `${bytes(wait.bytes)}`)),
    wait.oldest_tag ? h("p", { class: "small quiet" }, "Oldest delivery: ", deliveryLink(wait.oldest_tag, wait.publisher)) : null,
    h("div", {},
      h("p", { class: "small" }, REASONS[wait.reason] ?? wait.reason),
      h("ul", { class: "holders" },
        wait.waiting_for.map((each) => h("li", {}, attachmentLink("subscriptions", each.subscription, each.key), stateBadge(each.state),
          h("span", { class: "small quiet" }, "at ", routerLink(each.router)),
          each.since_s == null ? null : age(since(wait, each.since_s)))),
        left > 0 ? h("li", { class: "quiet" }, `and ${counted(left, "more subscription")}`) : null)));
}
