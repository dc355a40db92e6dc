// The management operations the page offers, and what each does to deliveries.

import { change } from "./api.js";
import { confirm } from "./actions.js";
import { h } from "./dom.js";

const LEVELS = ["debug", "info", "warning", "error"];

export class Operations {
  constructor(page) {
    this._page = page;
  }

  deleteSubscription(item) {
    confirm({
      title: `Delete the subscription ${item.name}?`,
      says: [
        "Its unsettled deliveries are given up: it will not get them, even if its client is still working on one.",
        "Publishers that wait for it go on; for them it counts as done.",
        "If its client comes back, it is told that the subscription expired, and begins anew after what it missed.",
      ],
      verb: "Delete it",
      danger: true,
      run: async () => {
        await change("DELETE", ["management", "subscription", item.name]);
        return `The subscription ${item.name} is deleted.`;
      },
    });
  }

  closeConnection(item) {
    confirm({
      title: `Close the connection of ${item.container_id}?`,
      says: [
        "No delivery is lost or doubled: links are suspended, subscriptions and sessions are kept until they expire.",
        "A client that reconnects by itself will, here or at another router, and goes on where it was.",
        "Until then its publishers' deliveries stay unsettled, and others wait for its subscriptions.",
      ],
      verb: "Close it",
      danger: true,
      run: async () => {
        await change("POST", ["management", "connection", item.key, "close"]);
        return "The connection is closed.";
      },
    });
  }

  linkCost(link) {
    confirm({
      title: `Cost of the link from ${link.from} to ${link.to}`,
      says: [
        "All routers compute their best paths again; messages may take another way from the next one on.",
        "No delivery is lost, doubled or reordered by a change of paths.",
        "It holds until this router restarts; the settings are not written.",
      ],
      fields: [{ name: "cost", label: "Cost, 1 to 65535", type: "number", min: 1, max: 65535, step: 1, value: link.cost }],
      verb: "Change it",
      run: async ({ cost }) => {
        await change("PUT", ["management", "link", link.to], { cost: Number(cost) });
        return `The link from ${link.from} to ${link.to} costs ${cost} now.`;
      },
    });
  }

  logLevel() {
    confirm({
      title: "Log level of this router",
      says: ["Deliveries are not touched. Level debug writes several lines for each link, and slows a busy router down."],
      fields: [{ name: "level", label: "Level", value: "info", choices: LEVELS }],
      verb: "Set it",
      run: async ({ level }) => {
        await change("PUT", ["management", "log", "router"], { level });
        return `The log level is ${level} now.`;
      },
    });
  }

  trace() {
    confirm({
      title: "Trace deliveries",
      says: ["Deliveries are not touched. While it is on, each message costs some more time and memory at this router."],
      fields: [{ name: "trace", label: "Tracing", value: "on", choices: ["on", "off"] }],
      verb: "Set it",
      run: async ({ trace }) => {
        await change("POST", ["management", "router", this._here(), "trace"], { on: trace === "on" });
        return `Tracing is ${trace} now.`;
      },
    });
  }

  reload() {
    confirm({
      title: "Reload the settings?",
      says: [
        "Settings that can change while the router runs hold at once; the others are named, and need a restart.",
        "If the file has a mistake nothing changes at all.",
      ],
      verb: "Reload",
      run: async () => reloaded(await change("POST", ["management", "router", this._here(), "reload"])),
    });
  }

  drain(overview) {
    confirm({
      title: `Drain and stop router ${overview.router}?`,
      says: [
        "It takes no more clients, waits for what is unsettled, and sends its clients to other routers.",
        "Clients that keep maps lose and double nothing. One without may get what was unsettled again, marked as such.",
        "Then its process ends. This page ends with it: go on at another router.",
      ],
      verb: "Drain and stop",
      danger: true,
      run: async () => {
        await change("POST", ["management", "router", overview.router, "drain"]);
        return `Router ${overview.router} drains.`;
      },
    });
  }

  _here() {
    return this._page.store.overview?.router ?? "";
  }
}

function reloaded({ changed = [], needs_restart: later = [] }) {
  const list = (title, settings) => (settings.length ? [h("h3", {}, title), h("ul", { class: "plain" }, settings.map((each) => h("li", {}, each)))] : null);
  return h("div", { class: "stack" },
    changed.length || later.length ? null : "Nothing has changed.", list("Holds now", changed), list("Needs a restart", later));
}
