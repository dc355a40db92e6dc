// Who is attached: connections of this router, subscriptions and publishers of the network, a page at a time.

import { get, PAGE_SIZE } from "./api.js";
import { button, fill, h, setText } from "./dom.js";
import { counted, number, webAddress } from "./format.js";
import { columnsOf, endColumn } from "./columns.js";
import { notAsked, problem } from "./actions.js";
import { Store } from "./store.js";
import { Table, filterBox } from "./table.js";

const REFRESH_MS = 4000;

/** Shown in the view of a single one. */
const FOR_ONE = ["incarnation", "timeout_s", "session", "epoch"];

const KINDS = [
  ["connections", "Connections"],
  ["subscriptions", "Subscriptions"],
  ["publishers", "Publishers"],
];

/** A number of a client's links that leads to them. */
function countLink(kind) {
  return ({ name, label }) => ({
    name, label, numeric: true, value: (item) => item[name],
    cell: (item) => (item[name] ? h("a", { href: `#/clients/${kind}?q=${encodeURIComponent(`${item.container_id}/`)}` }, number(item[name])) : "0"),
  });
}

export class ClientsView {
  static title = "Clients";

  constructor(page, place) {
    this._page = page;
    this._kind = KINDS.some(([name]) => name === place.rest[0]) ? place.rest[0] : "connections";
    this._router = place.query.get("router");
    this._filter = place.query.get("q") ?? "";
    this._rows = new Store();
    this._total = 0;
    this._rows.subscribe(() => this._show());
    this._table = new Table(this._tableOf(this._kind));
    this._note = h("p", { class: "quiet", role: "status" });
    this._problem = h("div", { class: "slot" });
    this._more = button("Show more", () => this._load("more"));
    this._moreLine = h("p", { class: "more", hidden: true }, this._more);
    const tabs = KINDS.map(([name, label]) => h("a", { class: "button", href: `#/clients/${name}`, "aria-current": name === this._kind ? "page" : null }, label));
    this.element = h("div", { class: "stack" },
      h("div", { class: "head" }, h("h1", {}, "Clients"), h("nav", { class: "tabs", "aria-label": "Kinds of clients" }, tabs), this._note,
        h("span", { class: "push" }), this._narrowing(),
        filterBox(`Filter ${this._kind}`, this._filter, (text) => {
          this._filter = text;
          this._load("again");
        })),
      this._problem,
      h("section", { class: "panel", "aria-label": KINDS.find(([name]) => name === this._kind)[1] }, this._table.element, this._moreLine));
    this._timer = setInterval(() => this._refresh(), REFRESH_MS);
    this._load("again");
  }

  watches() {
    return { tables: [], rates: this._kind === "connections" ? {} : { [this._kind]: {} } };
  }

  destroy() {
    clearInterval(this._timer);
    this._timer = null;
  }

  render(dirty) {
    if (dirty?.has("overview") && !this._asked) {
      this._load("again");  // what is at this router could not be asked for before its name was known
    } else if (dirty?.has("overview") || dirty?.has("rates")) {
      this._table.refresh();
    }
  }

  _narrowing() {
    return this._router
      ? h("span", { class: "badge plain" }, `at router ${this._router} `, h("a", { href: `#/clients/${this._kind}` }, "show all"))
      : null;
  }

  _tableOf(kind) {
    const { rates, scope, store } = this._page;
    const tables = {
      connections: {
        caption: scope.isNetwork ? "Connections of clients" : "Connections of clients to this router",
        empty: scope.isNetwork ? "No client is connected." : "No client is connected to this router.", sort: "container_id",
        columns: columnsOf("connections", {
          own: { publishers: countLink("publishers"), subscriptions: countLink("subscriptions") },
          extra: [{
            name: "acts", label: "Actions", hideLabel: true, mark: () => `${this._page.may("operator")} ${store.overview?.router} ${store.items("routers").length}`,
            cell: (item) => this._closing(item),
          }],
        }),
      },
      subscriptions: {
        caption: scope.isNetwork ? "Subscriptions of the network" : "Subscriptions of this router", empty: "No such subscription.", sort: "name",
        columns: columnsOf("subscriptions", { rates, without: FOR_ONE, extra: [endColumn(this._page)] }),
      },
      publishers: { caption: scope.isNetwork ? "Publishers of the network" : "Publishers of this router", empty: "No such publisher.", sort: "name", columns: columnsOf("publishers", { rates, without: FOR_ONE }) },
    };
    return tables[kind];
  }

  /** The button that closes a connection; of another router's, where that can be done: each closes its own. */
  _closing(item) {
    const { actions, store } = this._page;
    if (!this._page.may("operator")) {
      return "";
    }
    if (item.router === store.overview?.router) {
      return button("Close…", () => actions.closeConnection(item), { class: "button slim danger", "aria-label": `Close the connection of ${item.container_id}` });
    }
    const address = webAddress(store.items("routers").find((each) => each.id === item.router)?.http);
    const text = `Close at ${item.router}`;
    const why = "A router closes its own connections only";
    return address
      ? h("a", { class: "small", href: `${address}#/clients/connections?q=${encodeURIComponent(item.container_id)}`, title: why }, text)
      : h("span", { class: "small quiet", title: why }, text);
  }

  /** Asks for as many rows again as are shown; not while nobody looks. */
  _refresh() {
    if (!document.hidden && !this._loading && this._rows.table(this._kind).size <= PAGE_SIZE) {
      this._load("again");
    }
  }

  /** Which rows are asked for; null: this router's name is not known yet. */
  _query() {
    const { scope, store } = this._page;
    if (scope.isNetwork || this._kind === "connections") {
      return { ...scope.query, router: this._kind === "connections" ? null : this._router };
    }
    return store.overview ? { router: this._router ?? store.overview.router } : null;
  }

  /** The rows and what is said of them, in one frame: a count never stands above other rows. */
  _show() {
    const items = this._rows.items(this._kind);
    this._table.update(items);
    setText(this._note, items.length < this._total ? `${number(items.length)} of ${number(this._total)}` : counted(this._total, this._kind.slice(0, -1)));
    this._moreLine.hidden = !this._rows.next.get(this._kind);
  }

  async _load(how) {
    const query = this._query();
    if (!query) {
      return;
    }
    const asked = (this._asked = (this._asked ?? 0) + 1);
    const cursor = how === "more" ? this._rows.next.get(this._kind) : null;
    this._loading = true;
    this._more.disabled = true;
    try {
      const answer = await get([this._kind], { limit: PAGE_SIZE, cursor, q: this._filter, ...query });
      if (this._timer === null || asked !== this._asked) {
        return;
      }
      this._total = answer.total;
      if (how === "more") {
        this._rows.append(this._kind, answer.items, answer.next);
      } else {
        this._rows.snapshot(this._kind, answer.items, answer.next);
      }
      fill(this._problem, notAsked(answer.missing ?? []));
    } catch (error) {
      fill(this._problem, problem(error));
    } finally {
      this._loading = false;
      this._more.disabled = false;
    }
  }
}
