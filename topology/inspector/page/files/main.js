// Starts the page: views and their addresses, the feed, keys, theme.

import { age, startClock } from "./ages.js";
import { open } from "./actions.js";
import { Operations } from "./operations.js";
import { badge, button, fill, h, icon, setText, speak } from "./dom.js";
import { Everywhere } from "./everywhere.js";
import { Feed } from "./feed.js";
import { number } from "./format.js";
import { Rates } from "./rates.js";
import { remember, remembered } from "./remembered.js";
import { WORDS } from "./schema.js";
import { Pace, Scope } from "./scope.js";
import { Store, stateOf } from "./store.js";
import { AttachmentView } from "./view_attachment.js";
import { ClientsView } from "./view_clients.js";
import { DeliveryView } from "./view_delivery.js";
import { EventsView } from "./view_events.js";
import { EntryView, QueueView, QueuesView } from "./view_queues.js";
import { JournalView, JournalsView } from "./view_journals.js";
import { NetworkView } from "./view_network.js";
import { RouterView } from "./view_router.js";
import { TopicView, TopicsView } from "./view_topics.js";
import { WaitingView } from "./view_waiting.js";
import { Waits } from "./waits.js";

const ALWAYS = ["overview", "routers", "links", "events"];
/** Tables every view needs: the bar, the banner and the picture of who has gone come from them. */
const VIEWS = [
  ["", "Network", "network", () => NetworkView],
  ["topics", "Topics", "topics", (place) => (place.rest.length ? TopicView : TopicsView)],
  ["waiting", "Waiting", "waiting", () => WaitingView],
  ["clients", "Clients", "clients", (place) => (place.rest.length > 1 ? AttachmentView : ClientsView)],
  ["delivery", "Delivery", "delivery", () => DeliveryView],
  ["events", "Events", "events", () => EventsView],
  ["router", "Router", "router", () => RouterView],
  ["queues", "Queues", "queues", (place) => [QueuesView, QueueView][place.rest.length] ?? EntryView],
  ["journals", "Journals", "journals", (place) => (place.rest.length ? JournalView : JournalsView)],
];
/** The last views are there where the router has a store of queues and journals. */
const OF_STORE = ["queues", "journals"];
const THEMES = ["system", "light", "dark"];
const KEYS_KEY = "oncewire-keys";
const THEME_KEY = "oncewire-theme";

class Page {
  constructor() {
    this.store = new Store();
    this.actions = new Operations(this);
    this._feed = new Feed(this.store, (feed) => this._showFeed(feed), (error) => this._notice(`${error.error} ${error.fix ?? ""}`));
    this._content = document.getElementById("content");
    this._nav = new Map();
    this.scope = new Scope(() => this._onScope());
    const pace = new Pace(this.scope, this.store);
    this.rates = new Rates(this.scope, pace, () => this._view.render(new Set(["rates"])));
    this.everywhere = new Everywhere(this.scope, pace, () => this._view.render(new Set(["everywhere"])));
    this.waits = new Waits(this.scope, () => this._showWaits());
    this._view = null;
    this._shown = null;
    this.isLost = false;
    this.trial = null;
    this.store.subscribe((dirty) => this._render(dirty));
  }

  start() {
    this._makeNav();
    this._makeTools();
    startClock();
    addEventListener("hashchange", () => this._go());
    document.addEventListener("keydown", (event) => this._key(event));
    document.getElementById("skip").addEventListener("click", (event) => {
      event.preventDefault();
      this._content.focus();
    });
    this._go();
    this._feed.connect();
    this.waits.start();
  }

  /** Whether who looks may change things; the router decides again when it is asked. */
  may(role) {
    const can = this.store.overview?.can;
    return Boolean(role === "admin" ? can?.bodies : can?.manage);
  }

  /** Rows of a table: with what other routers know of them, where the whole network is shown. */
  rows(table) {
    return this.everywhere.items(table, this.store.items(table));
  }

  _onScope() {
    this._shown = null;
    this.waits.load();
    this._go(true);
  }

  /** Shows the view of the address; `again`: the same one from the beginning, for another scope. */
  _go(again = false) {
    const place = placeOf(location.hash);
    const entry = VIEWS.find(([name]) => name === place.view) ?? VIEWS[0];
    const kind = entry[3](place);
    const shown = `${kind.name} ${kind === NetworkView || kind === DeliveryView ? "" : location.hash}`;
    if (shown === this._shown) {
      this._view.go?.(place);
      return;
    }
    this._view?.destroy?.();
    this._view = new kind(this, place);
    const first = this._shown === null || again;
    this._shown = shown;
    fill(this._content, this._view.element);
    for (const [name, link] of this._nav) {
      if (name === entry[0]) {
        link.setAttribute("aria-current", "page");
      } else {
        link.removeAttribute("aria-current");
      }
    }
    const { tables, topic = null, router = null, rates = {}, everywhere = {} } = this._view.watches();
    this.rates.want(rates);
    this.everywhere.want(everywhere);
    if (topic !== this._topic) {
      this._topic = topic;
      ["subscriptions", "publishers", "waits"].forEach((name) => this.store.clear(name));
    }
    this._feed.watch({ tables: [...new Set([...ALWAYS, ...tables])], topic, router });
    this._view.render();
    this._title(kind.title);
    if (!first && !again) {
      scrollTo(0, 0);
      this._content.focus({ preventScroll: true });
      speak(`${kind.title} view`);
    }
  }

  _title(view) {
    const router = this.store.overview?.router;
    document.title = `${view}${router ? ` · ${router}` : ""} · Oncewire`;
    this._viewTitle = view;
  }

  _render(dirty) {
    const { overview } = this.store;
    if (overview && dirty.has("overview")) {
      this._showBar(overview);
    }
    this._view.render(dirty);
  }

  _showBar(overview) {
    setText(document.getElementById("router-name"), overview.router);
    for (const name of OF_STORE) {
      this._nav.get(name).hidden = !overview.can?.queues;
    }
    if (!this.isLost) {
      const { kind, word } = WORDS[stateOf(overview)];
      this._showState([kind, word]);
    }
    this._title(this._viewTitle);
    if (overview.standalone && !this._saidAlone) {
      this._saidAlone = true;
      this._notice("This router runs alone, without etcd: its state ends with it.");
    }
  }

  _showWaits() {
    const { late } = this.waits;
    const count = this._nav.get("waiting").querySelector(".count");
    count.hidden = !late;
    setText(count, number(late));
    count.setAttribute("title", `Publishers ${this.scope.isNetwork ? "of all routers" : "of this router"} that have waited for over a second: ${late}`);
    if (this.store.overview) {
      this._view.render(new Set(["overview", "waits"]));
    }
  }

  _showState([kind, text]) {
    const place = document.getElementById("router-state");
    if (place.textContent !== text) {
      fill(place, badge(kind, text));
      speak(`Router ${this.store.overview.router}: ${text}`);
    }
  }

  _showFeed(feed) {
    const text = { live: "live", connecting: "connecting", lost: "connection lost" }[feed.state];
    const shown = document.getElementById("feed");
    shown.dataset.state = feed.state;
    setText(shown, text);
    const lost = document.getElementById("lost");
    if (feed.state === "lost") {
      fill(lost,
        h("span", {}, icon("bad"), " ", h("b", {}, "Connection lost."), " ",
          feed.lastNewsAt === null ? "There are no data yet." : ["The last data are ", age(feed.lastNewsAt), " old."]),
        feed.retryAt === null ? h("span", {}, "Trying …") : h("span", {}, "Next try in ", age(feed.retryAt, { counts: "down" }), "."),
        button("Try now", () => feed.connect(), { class: "button slim" }));
    }
    lost.hidden = feed.state !== "lost";
    document.documentElement.dataset.feed = feed.state;
    this.isLost = feed.state === "lost";
    if (this.isLost && this.store.overview) {
      this._showState(["bad", "no answer"]);
      this._view.render(new Set(["overview"]));
    }
    if (feed.state === "live") {
      speak("Connected");
    }
  }

  _notice(text) {
    const notice = document.getElementById("notice");
    fill(notice, h("span", {}, text), button("Close", () => { notice.hidden = true; }, { class: "button slim" }));
    notice.hidden = false;
  }

  // --- the bar ---

  _makeNav() {
    const nav = document.getElementById("views");
    for (const [name, label, picture] of VIEWS) {
      const link = h("a", { href: `#/${name}` }, icon(picture), h("span", {}, label),
        name === "waiting" ? h("span", { class: "count", hidden: true }) : null);
      link.hidden = OF_STORE.includes(name);
      this._nav.set(name, link);
      nav.append(link);
    }
  }

  _makeTools() {
    document.getElementById("scope").append(this.scope.element);
    const theme = document.getElementById("theme");
    theme.addEventListener("click", () => this._nextTheme());
    this._showTheme();
    const help = document.getElementById("help");
    help.append(icon("help"));
    help.addEventListener("click", () => this._help());
  }

  _nextTheme() {
    const chosen = THEMES[(THEMES.indexOf(remembered(THEME_KEY) ?? "system") + 1) % THEMES.length];
    remember(THEME_KEY, chosen);
    if (chosen === "system") {
      delete document.documentElement.dataset.theme;
    } else {
      document.documentElement.dataset.theme = chosen;
    }
    this._showTheme();
    document.dispatchEvent(new Event("themechange"));
    speak(`Theme: ${chosen}`);
  }

  _showTheme() {
    const chosen = remembered(THEME_KEY) ?? "system";
    const theme = document.getElementById("theme");
    fill(theme, icon({ light: "sun", dark: "moon" }[chosen] ?? "system"));
    theme.setAttribute("aria-label", `Theme: ${chosen}. Change it`);
    theme.setAttribute("title", `Theme: ${chosen} (t)`);
  }

  // --- keys ---

  _key(event) {
    const typing = event.target.closest("input:not([type=checkbox]), textarea, select, dialog");
    if (event.ctrlKey || event.altKey || event.metaKey || remembered(KEYS_KEY) === "off") {
      return;
    }
    if (typing) {
      if (event.key === "Escape" && typing.matches("input")) {
        typing.blur();
      }
      return;
    }
    const view = VIEWS[Number(event.key) - 1];
    if (view && !this._nav.get(view[0]).hidden) {
      location.hash = `#/${view[0]}`;
    } else if (event.key === "/") {
      event.preventDefault();
      if (this._view.focusFilter) {
        this._view.focusFilter();
      } else {
        this._content.querySelector(".filter")?.focus();
      }
    } else if (event.key === "n") {
      this.scope.toggle();
    } else if (event.key === "t") {
      this._nextTheme();
    } else if (event.key === "?") {
      this._help();
    }
  }

  _help() {
    const on = h("input", { type: "checkbox", checked: remembered(KEYS_KEY) !== "off", on: { change: () => remember(KEYS_KEY, on.checked ? "on" : "off") } });
    const keys = [...VIEWS.filter(([name]) => !this._nav.get(name).hidden).map(([, label], index) => [String(index + 1), label]), ["/", "to the filter"], ["Esc", "out of it, or close a dialog"], ["n", "whole network, or this router alone"], ["t", "theme: system, light, dark"], ["?", "this help"]];
    const dialog = open("Keys and help", h("form", { on: { submit: (event) => { event.preventDefault(); dialog.close(); } } },
      h("h2", {}, "Keys"),
      h("dl", { class: "keys" }, keys.map(([key, what]) => [h("dt", {}, h("kbd", {}, key)), h("dd", {}, what)])),
      h("label", { class: "tick" }, on, "Single keys do this"),
      h("p", { class: "quiet small" }, "A dash (–) means that only another router knows it, and that one was not asked or did not reply. The same data come from ", h("code", {}, "oncewire inspect"), " and the JSON under ", h("code", {}, "/api/v1"), "."),
      h("div", { class: "end" }, h("button", { type: "submit", class: "button main" }, "Close"))));
  }
}

/** "#/topics/a%20b?q=1" -> {view, rest, query}; what cannot be read is left out. */
function placeOf(hash) {
  const [path, query = ""] = hash.replace(/^#\/?/, "").split("?");
  const parts = path.split("/").map((part) => {
    try {
      return decodeURIComponent(part);
    } catch {
      return part;
    }
  });
  return { view: parts[0], rest: parts.slice(1).filter(Boolean), query: new URLSearchParams(query) };
}

new Page().start();
