// This router: how it is, its channels and neighbours, and what operators may change.

import { get } from "./api.js";
import { age, now } from "./ages.js";
import { button, fill, h } from "./dom.js";
import { counted, duration, number } from "./format.js";
import { columnsOf, stateBadge } from "./columns.js";
import { notAsked, problem } from "./actions.js";
import { RECEIVED, since, stateOf } from "./store.js";
import { Table, panel } from "./table.js";

const REFRESH_MS = 3000;

export class RouterView {
  static title = "Router";

  constructor(page) {
    this._page = page;
    const { isNetwork } = page.scope;
    this._problem = h("div", { class: "slot" });
    this._facts = h("dl", { class: "facts" });
    this._acts = h("div", { class: "stack" });
    this._neighbours = new Table({
      caption: isNetwork ? "Neighbours of all routers" : "Neighbours this router has a connection to", empty: "No neighbour.",
      sort: isNetwork ? "at" : "router", columns: columnsOf("neighbours", { without: isNetwork ? [] : ["at"] }),
    });
    this._channels = new Table({
      caption: isNetwork ? "Channels of all routers" : "Channels of this router to others", empty: "No channel.",
      sort: isNetwork ? "at" : "router", columns: columnsOf("channels", {
        without: isNetwork ? [] : ["at"], own: { state: ({ name, label }) => ({ name, label, value: (item) => item.state }) } }),
    });
    this.element = h("div", { class: "stack" },
      h("div", { class: "head" }, h("h1", {}, "This router")),
      this._problem,
      h("div", { class: "columns" },
        h("div", { class: "half" }, panel("State", this._facts).element),
        h("div", { class: "half" }, panel("Change", this._acts).element)),
      h("div", { class: "columns" },
        h("div", { class: "half" }, panel("Neighbours", this._neighbours.element).element),
        h("div", { class: "half" }, panel("Channels", this._channels.element).element)));
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

  render() {
    const { overview } = this._page.store;
    if (!overview) {
      return;
    }
    const facts = JSON.stringify([overview.router, overview.rid, overview.version, overview.waiting_for, overview.draining === null, overview.applied, overview.counts]);
    if (facts !== this._factsMark) {
      this._factsMark = facts;
      fill(this._facts, factsOf(overview).map(([term, value]) => [h("dt", {}, term), h("dd", {}, value)]));
    }
    // News come often: a button in use stays the same button.
    const can = JSON.stringify(overview.can);
    if (can !== this._canMark) {
      this._canMark = can;
      fill(this._acts, this._changes(overview));
    }
  }

  _changes(overview) {
    const { actions } = this._page;
    if (!overview.can.manage) {
      return [
        h("p", {}, "You may look, not change anything."),
        h("p", {}, h("a", { href: "/login#/router" }, "Log in"), " as a user whose role is operator or admin."),
      ];
    }
    const act = (text, explanation, run, danger) =>
      [button(text, run, { class: `button${danger ? " danger" : ""}` }), h("p", { class: "small quiet" }, explanation)];
    return h("div", { class: "acts" },
      act("Log level…", "How much this router writes to its log, from now on.", () => actions.logLevel()),
      act("Trace deliveries…", "Notes the rules applied to deliveries, to be seen under Delivery. It costs time for each message.", () => actions.trace()),
      this._page.may("admin") && act("Reload settings…", "Reads the settings again, and reports what changes at once and what needs a restart.", () => actions.reload()),
      act("Drain and stop…", "Lets the clients move to other routers, then ends the process.", () => actions.drain(overview), true));
  }

  async _load() {
    try {
      const [neighbours, channels] = await Promise.all(["neighbours", "channels"].map((table) => get([table], { limit: 500, ...this._page.scope.query })));
      if (this._timer !== null) {
        this._neighbours.update(neighbours.items);
        this._channels.update(channels.items);
        fill(this._problem, notAsked(neighbours.missing ?? []));
      }
    } catch (error) {
      if (this._timer !== null) {
        fill(this._problem, problem(error));
      }
    }
  }
}

function factsOf(overview) {
  const { counts } = overview;
  const state = stateBadge(stateOf(overview), overview.ready ? "" : `: waits for ${overview.waiting_for.join(", ")}`);
  return [
    ["Router", overview.router],
    ["State", [state, overview.draining ? [" ends in ", age(since(overview, -overview.draining.left_s), { counts: "down" })] : null]],
    ["Incarnation", h("code", {}, overview.rid || "–")],
    ["Version", overview.version],
    ["Runs for", age((overview[RECEIVED] ?? now()) - overview.uptime_s)],
    ["Lease", overview.standalone ? "none: it runs alone, without etcd" : `${duration(overview.lease_left_s)} left at the last update`],
    ["Applied revision", number(overview.applied)],
    ["Clients", `${counted(counts.connections, "connection")}, ${counted(counts.windows, "publisher")}`],
  ];
}
