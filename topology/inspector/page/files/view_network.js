// The first view: the network at a glance, and what needs attention.

import { age } from "./ages.js";
import { button, fill, h, icon, setText } from "./dom.js";
import { counted, number, rate, shortDuration, webAddress } from "./format.js";
import { attachmentLink, columnsOf, plain, routerLink, stateBadge } from "./columns.js";
import { WORDS } from "./schema.js";
import { rateTile, tile } from "./tiles.js";
import { fillMissing } from "./view_topics.js";
import { eventLine } from "./view_events.js";
import { NetworkMap } from "./map.js";
import { RECEIVED } from "./store.js";
import { Table, filterBox, panel } from "./table.js";

const EVENTS_SHOWN = 8;
const ROWS_SHOWN = 100;
/** Of each table: a network of 100 routers may have 9,900 links. */
const LINKS_WITH_HISTORY = 200;
const LEASE_WARNING_S = 5;

const TILES = [
  ["routers", "Routers", "Routers", "#/"],
  ["topics", "Topics", "Topics", "#/topics"],
  ["subscriptions", "Subscriptions", "Subscriptions", "#/clients/subscriptions"],
  ["publishers", "Publishers", "Publishers", "#/clients/publishers"],
  ["connections", "Connections", "Connections here", "#/clients"],
  ["waiting_publishers", "Publishing now", "Publishing here now", "#/waiting"],
  ["delayed_1s", "Wait over 1\u00a0s", "Wait here over 1\u00a0s", "#/waiting", "warn"],
  ["stuck_10s", "Wait over 10\u00a0s", "Wait here over 10\u00a0s", "#/waiting", "bad"],
  ["held_10s", "Give no credit over 10\u00a0s", "Give no credit here over 10\u00a0s", "#/clients/subscriptions", "bad"],
];
/** Name of the count, its label for the whole network and for this router alone, where it leads, how it warns. */
const RATES = [["published_rate", "Published"], ["delivered_rate", "Delivered"]];

export class NetworkView {
  static title = "Network";

  constructor(page, place) {
    this._page = page;
    this._picked = place.query.get("router");
    this._filter = "";
    this._tiles = new Map();
    const store = page.store;
    this._map = new NetworkMap((rid) => this._pick(store.table("routers").get(rid)?.id ?? null));
    const map = panel("Map", this._map.element, legend());
    map.head.append(h("span", { class: "quiet" }, "on links: cost, and bytes per second"));
    const notes = panel("Needs attention", (this._notes = h("ul", { class: "notes" })));
    notes.element.classList.add("order-1");
    this._detail = panel("Router");
    map.element.classList.add("order-2");
    this._detail.element.classList.add("order-3");
    this._detailBody = h("div");
    this._detail.element.append(this._detailBody);
    const routers = panel("Routers", (this._routers = this._routerTable()).element);
    routers.head.append(h("span", { class: "push" }), filterBox("Filter routers and links", "", (text) => {
      this._filter = text.toLowerCase();
      this.render();
    }));
    const links = panel("Links between routers", (this._links = this._linkTable()).element);
    const events = panel("Latest events", (this._events = h("ol", { class: "event-list short" })));
    events.head.append(h("a", { class: "push", href: "#/events" }, "All events"));
    this.element = h("div", { class: "stack" },
      h("h1", { class: "sr" }, "Network"),
      this._tileList(),
      (this._missing = h("div", { class: "slot" })),
      h("div", { class: "columns" },
        h("div", { class: "two-thirds stack" }, map.element, routers.element, links.element),
        h("div", { class: "third stack" }, notes.element, this._detail.element, events.element)));
  }

  watches() {
    return { tables: [], rates: this._rates(), everywhere: { overview: {} } };
  }

  /** Of the many links of a large network the map shows how much they carry now. */
  _rates() {
    const isLarge = this._page.store.table("links").size > LINKS_WITH_HISTORY;
    return { routers: {}, links: isLarge ? { points: 1 } : {} };
  }

  destroy() {
    this._map.destroy();
  }

  go(place) {
    this._picked = place.query.get("router") ?? this._picked;
    this.render();
  }

  render(dirty = null) {
    const isNew = (...names) => dirty === null || names.some((name) => dirty.has(name));
    const { store } = this._page;
    if (isNew("links")) {
      this._page.rates.want(this._rates());
    }
    if (isNew("overview", "everywhere", "rates", "routers")) {
      this._showTiles(this._page.everywhere.overview ?? store.overview);
      fillMissing(this._missing, this._page);
    }
    // The overview's news come each second, and a large network has thousands of links to sort.
    const may = JSON.stringify([store.overview?.router, store.overview?.can]);
    if (isNew("routers", "links", "rates", "waits") || store.gone.size || may !== this._may) {
      this._may = may;
      this._showNetwork(store);
    } else if (isNew("overview")) {
      this._showNotes(store.overview, this._known.routers, this._known.links);
    }
    if (isNew("events")) {
      const newest = store.items("events").slice(-EVENTS_SHOWN).reverse();
      fill(this._events, newest.map((event) => eventLine(event, { short: true })));
    }
  }

  _showNetwork(store) {
    const routers = routersOf(store);
    const links = linksOf(store, routers);
    this._known = { routers, links };
    this._showMap(routers, links);
    this._showNotes(store.overview, routers, links);
    this._showDetail(routers);
    const matches = (...texts) => texts.some((text) => (text ?? "").toLowerCase().includes(this._filter));
    if (store.has("routers")) {
      this._routers.update(routers.filter((each) => matches(each.id, each.amqp, each.key)));
    }
    if (store.has("links")) {
      this._links.update(links.filter((each) => matches(each.from, each.to)));
    }
  }

  _tileList() {
    const { isNetwork } = this._page.scope;
    const items = TILES.map(([name, everywhere, here, href, alarm]) => {
      const value = h("span", { class: "value" }, "–");
      const shown = h("a", { class: "tile", href }, value, h("span", { class: "label" }, isNetwork ? everywhere : here));
      this._tiles.set(name, { shown, value, alarm });
      return shown;
    });
    this._rateTiles = h("div", { class: "tiles few" });
    return h("div", { class: "stack" }, h("nav", { class: "tiles", "aria-label": "Numbers of the network" }, items), this._rateTiles);
  }

  _showTiles(overview) {
    for (const [name, { shown, value, alarm }] of this._tiles) {
      const found = overview?.counts[name];
      setText(value, number(found));
      shown.className = alarm && found ? `tile ${alarm}` : "tile";
    }
    this._showRates();
  }

  /** Of all routers, or of this one. */
  _showRates() {
    const { rates, scope, store } = this._page;
    // The rates may come before the routers they are of.
    const shown = `${rates.version} ${store.overview?.rid} ${store.items("routers").map((each) => each.key)}`;
    if (this._ratesShown === shown) {
      return;
    }
    this._ratesShown = shown;
    const points = RATES.map(([name]) => rates.sum("routers", name));
    const own = { key: store.overview?.rid ?? "" };
    const times = rates.acceptanceOf("routers", (scope.isNetwork ? store.items("routers") : [own]).map(({ key }) => ({ key })));
    const where = scope.isNetwork ? ", slowest router" : "";
    fill(this._rateTiles,
      RATES.map(([, label], index) => rateTile(scope.isNetwork ? label : `${label} here`, points[index]?.at(-1) ?? null, points[index])),
      tile(`Accepted p50${where}${times.when}`, shortDuration(times.p50)),
      tile(`Accepted p99${where}${times.when}`, shortDuration(times.p99)));
  }

  _showMap(routers, links) {
    const isCompact = NetworkMap.isCompact(routers.length);
    const stuck = new Map();
    this._page.waits.stuckHolders.forEach((each) => stuck.set(each.rid, [...(stuck.get(each.rid) ?? []), each]));
    const nodes = routers.map((each) => ({
      key: each.key, name: each.id, label: nodeLabel(each, isCompact, stuck.get(each.key)?.length ?? 0), distance: each.distance,
      kinds: [...nodeKinds(each, this._picked), ...(stuck.has(each.key) ? ["stuck"] : [])],
    }));
    const known = new Set(nodes.map((each) => each.key));
    const edges = pairs(links, (link) => this._page.rates.now("links", link, "bytes_rate")).filter((each) => known.has(each.a) && known.has(each.b));
    this._map.update(nodes, edges,
      [`Map of ${counted(routers.length, "router")} and ${counted(edges.length, "link")}`,
        ...routers.filter((each) => stuck.has(each.key)).map((each) => `${counted(stuck.get(each.key).length, "stuck subscription")} at ${each.id}`),
        "the tables below hold the same."].join("; "));
  }

  _showNotes(overview, routers, links) {
    const notes = attention(overview, routers, links, this._page);
    if (this._page.isLost) {
      notes.unshift({ kind: "bad", text: "The router of this page does not answer. What is shown here is from before." });
    }
    const shown = notes.length ? notes : [{ kind: overview ? "good" : "info", text: overview ? "Nothing needs attention." : "Waiting for the router." }];
    const mark = JSON.stringify(shown.map(({ kind, text, more }) => [kind, text, textOf(more)]));
    if (mark !== this._notesMark) {
      this._notesMark = mark;
      fill(this._notes, shown.map((note) => h("li", { class: `note ${note.kind}` }, icon(note.kind), h("span", {}, note.text, note.more))));
    }
  }

  _routerTable() {
    return new Table({
      isTall: true,
      limit: ROWS_SHOWN,
      caption: "Routers",
      empty: "No router is known.",
      sort: "id",
      rowClass: (each) => [each.goneAt ? "gone" : "", each.id === this._picked ? "picked" : ""].join(" ").trim(),
      columns: columnsOf("routers", {
        rates: this._page.rates,
        without: ["version", "group", "http", "amqp"],  // these stand in the card of the router that is picked
        own: {
          id: ({ name, label }) => plain(name, label, {
            mark: (each) => `${each.id} ${each.is_self}`,
            cell: (each) => [
              h("button", { type: "button", class: "link", on: { click: () => this._pick(each.id) } }, each.id),
              each.is_self ? h("span", { class: "quiet small" }, " this router") : null,
            ],
          }),
          state: ({ name, label }) => plain(name, label, { mark: (each) => `${each.state} ${each.goneAt ?? ""}`, cell: routerState }),
        },
      }),
    });
  }

  _linkTable() {
    const { actions } = this._page;
    return new Table({
      isTall: true,
      limit: ROWS_SHOWN,
      caption: "Links between routers, one row for each direction",
      empty: "No links. A router that is alone has none.",
      sort: "name",
      rowClass: (each) => (each.goneAt ? "gone" : ""),
      columns: columnsOf("links", {
        rates: this._page.rates,
        without: ["to"],
        own: {
          from: () => ({ name: "name", label: "From → to", value: (each) => `${each.from} → ${each.to}` }),
          state: ({ name, label }) => plain(name, label, {
            mark: (each) => `${each.state} ${each.goneAt ?? ""}`,
            cell: (each) => [stateBadge(each.state), each.goneAt ? [" ", age(each.goneAt)] : null],
          }),
        },
        extra: [{
          name: "acts", label: "Actions", hideLabel: true,
          mark: (each) => `${this._page.may("operator")} ${each.state}`,
          cell: (each) =>
            this._page.may("operator") && !each.goneAt && each.from === this._page.store.overview?.router
              ? button("Cost…", () => actions.linkCost(each), { class: "button slim", "aria-label": `Change the cost of the link from ${each.from} to ${each.to}` })
              : "",
        }],
      }),
    });
  }

  _pick(id) {
    this._picked = id;
    history.replaceState(null, "", id ? `#/?router=${encodeURIComponent(id)}` : "#/");
    this.render();
  }

  _showDetail(routers) {
    const here = this._page.store.overview?.router;
    const router = routers.find((each) => each.id === this._picked) ?? routers.find((each) => each.id === here);
    const mark = router ? JSON.stringify([router.key, router.state, router.amqp, router.http, router.next_hop, router.distance, router.subscriptions, router.publishers, this._page.rates.version]) : "";
    if (mark === this._detailMark) {
      return;
    }
    this._detailMark = mark;
    setText(this._detail.head.querySelector("h2"), router ? `Router ${router.id}` : "Router");
    fill(this._detailBody, router ? [routerRates(router, this._page.rates), routerFacts(router)] : h("p", { class: "empty" }, "Choose a router on the map or in the table."));
  }
}

/** Routers with what follows from the rest: unreachable ones, and those that disappeared while the page was open. */
export function routersOf(store) {
  const here = store.items("routers").map((each) =>
    each.state === "serving" && !each.is_self && each.next_hop === null ? { ...each, state: "unreachable", [RECEIVED]: each[RECEIVED] } : each);
  // A router that started again is another incarnation: the old one is no news any more.
  const names = new Set(here.map((each) => each.id));
  const gone = store.goneFrom("routers").filter(({ item }) => !names.has(item.id));
  return [...here, ...gone.map(({ item, at }) => ({ ...item, state: "stopped", next_hop: null, distance: null, goneAt: at }))];
}

/** Links; those that disappeared are kept while both ends are shown and no new link joins them. */
export function linksOf(store, routers) {
  // Of a router that is gone the network keeps the rid only; its name is still known here.
  const names = new Map(routers.map((each) => [each.key, each.id]));
  const named = (link) => ({ ...link, from: names.get(link.from_rid) ?? link.from, to: names.get(link.to_rid) ?? link.to });
  const here = store.items("links").map(named);
  const joined = new Set(here.map((each) => `${each.from} ${each.to}`));
  const gone = store.goneFrom("links").filter(({ item }) =>
    names.has(item.from_rid) && names.has(item.to_rid) && !joined.has(`${item.from} ${item.to}`));
  return [...here, ...gone.map(({ item, at }) => ({ ...named(item), state: "down", on_best_path: false, goneAt: at }))];
}

/** Both directions of a link as one line on the map. */
function pairs(links, flowOf) {
  const found = new Map();
  for (const link of links) {
    const [a, b] = [link.from_rid, link.to_rid].sort();
    const key = `${a} ${b}`;
    const pair = found.get(key) ?? { key, a, b, costs: new Map(), states: new Set(), best: false, flow: null };
    pair.costs.set(link.from, link.cost);
    pair.states.add(link.state);
    pair.best ||= link.on_best_path;
    const flow = flowOf(link);
    pair.flow = flow === null ? pair.flow : (pair.flow ?? 0) + flow;
    found.set(key, pair);
  }
  return [...found.values()].map((pair) => {
    const costs = new Set(pair.costs.values());
    const cost = costs.size === 1 ? String([...costs][0]) : [...pair.costs].map(([from, each]) => `${from}: ${each}`).join("  ");
    const kind = pair.states.has("one-way") ? "one-way" : pair.states.has("up") ? "" : "gone";
    const word = { "one-way": `${WORDS["one-way"].word}\n`, gone: `${WORDS.down.word}\n` }[kind] ?? "";
    const flow = pair.flow === null || kind === "gone" ? "" : ` · ${rate(pair.flow, "bytes/s")}`;
    return { key: pair.key, a: pair.a, b: pair.b, label: word + cost + flow, flow: pair.flow ?? 0, kinds: [pair.best ? "best" : "", kind].filter(Boolean) };
  });
}

function nodeKinds(router, picked) {
  const kind = { draining: "draining", leaving: "draining", unreachable: "unreachable", stopped: "gone" }[router.state];
  return [router.is_self ? "self" : "", kind ?? "", router.id === picked ? "picked" : ""].filter(Boolean);
}

/** What a note says beside its text, without ages, which grow by themselves. */
function textOf(more) {
  return [more].flat(Infinity).map((each) => (each instanceof Node ? (each.querySelector(".age") ? "" : each.textContent) : each ?? "")).join("");
}

function nodeLabel(router, isCompact, stuck) {
  const state = router.state === "serving" ? null : `⚠ ${WORDS[router.state].word}`;
  const holds = stuck ? `⚠ ${isCompact ? number(stuck) : counted(stuck, "stuck subscription")}` : null;
  const clients = isCompact || router.goneAt ? null : `${counted(router.subscriptions, "sub")} · ${counted(router.publishers, "pub")}`;
  return [router.is_self ? `${router.id} (here)` : router.id, state, holds, clients].filter(Boolean).join("\n");
}

function routerState(router) {
  return [stateBadge(router.state), router.goneAt ? [" ", age(router.goneAt)] : null];
}

const HOLDERS_NAMED = 3;

function attention(overview, routers, links, { waits }) {
  const notes = [];
  const say = (kind, text, more) => notes.push({ kind, text, more });
  const holders = waits.stuckHolders.sort((a, b) => a.began - b.began);
  for (const each of holders.slice(0, HOLDERS_NAMED)) {
    say("bad", "Subscription ", [attachmentLink("subscriptions", each.name, each.key), " at ", routerLink(each.router),
      ` is stuck (${WORDS[each.state]?.word ?? each.state}): ${counted(each.publishers, "publisher")} ${each.publishers === 1 ? "has" : "have"} waited for it over 10 s.`]);
  }
  if (waits.stuck) {
    say("bad", `${counted(waits.stuck, "publisher")} waited over 10 s. `, h("a", { href: "#/waiting" }, "Who holds what"));
  } else if (waits.late) {
    say("warn", `${counted(waits.late, "publisher")} waited over 1 s. `, h("a", { href: "#/waiting" }, "Who holds what"));
  }
  if (overview?.counts.held_10s) {
    say("bad", `For ${counted(overview.counts.held_10s, "subscription")} of this router deliveries have waited over 10 s for credit of the client. `,
      h("a", { href: `#/clients/subscriptions?router=${encodeURIComponent(overview.router)}` }, "Its subscriptions"));
  }
  if (overview?.waiting_for.length) {
    say("bad", `This router accepts no clients: it waits for ${overview.waiting_for.join(", ")}.`);
  }
  if (overview && !overview.standalone && overview.lease_left_s < LEASE_WARNING_S) {
    say("bad", "This router's lease runs out: etcd is slow or unreachable.");
  }
  for (const each of routers) {
    if (each.state === "stopped") {
      say("bad", `Router ${each.id} stopped, or lost its way to etcd. `, h("span", { class: "quiet" }, age(each.goneAt), " ago"));
    } else if (each.state === "unreachable") {
      say("bad", `Router ${each.id} cannot be reached from here: no path leads there.`);
    } else if (each.state !== "serving") {
      say("warn", `Router ${each.id} is ${each.state}: its clients move to others.`);
    }
  }
  // Of the two directions one is enough, and of a router that is gone its links are no news.
  const said = new Set(routers.filter((each) => each.state === "stopped").map((each) => each.key));
  for (const each of [...links].sort((a, b) => (a.state === "down") - (b.state === "down"))) {
    const pair = [each.from, each.to].sort().join(" ");
    if (each.state === "up" || said.has(pair) || said.has(each.from_rid) || said.has(each.to_rid)) {
      continue;
    }
    said.add(pair);
    if (each.state === "one-way") {
      say("warn", `The link between ${each.from} and ${each.to} is announced by one end only, so it is not used.`);
    } else if (each.state === "down") {
      say("warn", `The link between ${each.from} and ${each.to} is down. `, h("span", { class: "quiet" }, age(each.goneAt), " ago"));
    }
  }
  return notes;
}

export function routerFacts(router) {
  const address = webAddress(router.http);
  const facts = [
    ["State", routerState(router)],
    ["Incarnation", h("code", {}, router.key)],
    ["Clients connect to", h("code", {}, router.amqp || "–")],
    ["Version", router.version],
    ["Path from here", router.is_self ? "this router" : router.next_hop === null ? "none" : `over ${router.next_hop}, cost ${number(router.distance)}`],
    ["Attached there", `${counted(router.subscriptions, "subscription")}, ${counted(router.publishers, "publisher")}`],
    ["Inspector", router.is_self ? "this page" : address ? h("a", { href: address }, address) : "–"],
  ];
  return [
    h("dl", { class: "facts" }, facts.map(([term, value]) => [h("dt", {}, term), h("dd", {}, value)])),
    h("p", { class: "more" },
      h("a", { href: `#/clients/subscriptions?router=${encodeURIComponent(router.id)}` }, "Its subscriptions"),
      h("a", { href: `#/clients/publishers?router=${encodeURIComponent(router.id)}` }, "Its publishers")),
  ];
}

function routerRates(router, rates) {
  const found = rates.acceptanceOf("routers", [{ key: router.key }]);
  const whole = (seconds) => shortDuration(seconds).replace(" ", "\u00a0");  // the tile is narrow: it breaks between the two
  return h("div", { class: "tiles few flat" },
    RATES.map(([name, label]) => rateTile(label, rates.now("routers", router, name), rates.points("routers", router.key, name))),
    tile(`Accepted p50 · p99${found.when}`, found.p99 === null ? "–" : `${whole(found.p50)} · ${whole(found.p99)}`));
}

function legend() {
  const entry = (kind, text) => h("span", {}, h("i", { class: kind, "aria-hidden": "true" }), text);
  return h("p", { class: "legend" },
    entry("box", "this router"), entry("box stuck", "has a stuck subscription"), entry("box draining", "draining"), entry("box down", "unreachable or stopped"),
    entry("best", "best path from here"), entry("", "other link"), entry("flow", "the wider, the more bytes"), entry("one-way", "one-way"), entry("cut", "down"));
}
