// Columns of the tables: schema.js names them, here is how each reads and sorts.

import { age } from "./ages.js";
import { badge, button, h } from "./dom.js";
import { bytes, duration, number } from "./format.js";
import { TABLES } from "./schema.js";
import { since } from "./store.js";

/** A column that shows a field as it is. */
export function plain(name, label, options = {}) {
  return { name, label, value: (item) => item[name], ...options };
}

function count(name, label) {
  return plain(name, label, { numeric: true, cell: (item) => known(item[name]) });
}

function known(value) {
  return value === null || value === undefined
    ? h("span", { class: "quiet", title: "known only at the router it is attached to" }, "–")
    : number(value);
}

function code(name, label, options = {}) {
  return plain(name, label, { cell: (item) => (item[name] ? h("code", {}, item[name]) : "–"), ...options });
}

/** A name of a client's: long ones break anywhere. */
export function nameCell(text, href) {
  return href ? h("a", { href, class: "name" }, text) : h("span", { class: "name" }, text);
}

/** The topic of a row, with its virtual host. */
export function topicLink({ topic, vhost }) {
  const key = vhost ? `$${vhost}/${topic}` : topic;
  return withVhost(nameCell(topic, `#/topics/${encodeURIComponent(key)}`), vhost);
}

function withVhost(cell, vhost) {
  return vhost ? [cell, h("span", { class: "quiet small" }, ` in ${vhost}`)] : cell;
}

export function routerLink(id) {
  return id ? h("a", { href: `#/?router=${encodeURIComponent(id)}` }, id) : "–";
}

export function deliveryLink(tag, publisher) {
  const query = publisher ? `?publisher=${encodeURIComponent(publisher)}` : "";
  return h("a", { href: `#/delivery/${encodeURIComponent(tag)}${query}` }, h("code", { class: "tag" }, tag));
}

const STATES = {
  // routers
  serving: ["good", "serving"],
  draining: ["warn", "draining"],
  leaving: ["warn", "leaving"],
  unreachable: ["bad", "unreachable"],
  gone: ["bad", "gone"],
  // links
  up: ["good", "up"],
  "one-way": ["warn", "one-way"],
  // subscriptions and publishers
  attached: ["good", "attached"],
  active: ["good", "active"],
  elsewhere: ["plain", "at its router"],
  provisional: ["warn", "provisional"],
  detached: ["warn", "detached"],
  orphaned: ["bad", "orphaned"],
  suspended: ["warn", "suspended"],
  proving: ["warn", "proving"],
  waiting: ["warn", "waiting"],
  starting: ["warn", "starting"],
  closing: ["warn", "closing"],
  // deliveries
  "in-doubt": ["warn", "in doubt"],
  held: ["warn", "held"],
  again: ["warn", "wanted again"],
  underway: ["warn", "underway"],
  accepted: ["good", "accepted"],
  settled: ["good", "settled"],
  rejected: ["bad", "rejected"],
};

const MEANINGS = {
  unreachable: "no path leads to its router",
  gone: "it disappeared while this page was open",
  "one-way": "only one end announces it, so it is not used",
  elsewhere: "attached at the named router; only that router knows whether its link is up",
  provisional: "attached, but its client has not proved yet that it is alive",
  detached: "its link has ended; it is kept until it expires",
  orphaned: "its router has stopped; it is kept until it expires",
  suspended: "its link has ended; its session is kept until it expires",
  proving: "its link is up again, its client has not proved yet that it is alive",
  waiting: "its link is up; its earlier session is not over yet",
  starting: "its session begins",
  closing: "it ends once everything is settled",
  "in-doubt": "its client has it and has not answered",
  held: "its client accepts no more now: no credit",
  again: "its client wants it again, after a pause",
  underway: "it has not arrived at its router yet",
};

/** What a state means, in a few words; empty where the state says it all. */
export function meaningOf(state) {
  return MEANINGS[state] ?? "";
}

export function stateBadge(state) {
  const [kind, text] = STATES[state] ?? ["plain", String(state ?? "–")];
  return badge(kind, text, meaningOf(state) || null);
}

function stateColumn(label) {
  return plain("state", label, {
    mark: (item) => `${item.state} ${item.expires_in_s == null ? "" : Math.round(since(item, -item.expires_in_s))}`,
    cell: (item) => [
      stateBadge(item.state),
      item.expires_in_s == null
        ? null
        : h("span", { class: "small quiet" }, " ends in ", age(since(item, -item.expires_in_s), { counts: "down" })),
    ],
  });
}

function bytesColumn(name, label) {
  return plain(name, label, { numeric: true, cell: (item) => bytes(item[name]) });
}

function seconds(name, label) {
  return plain(name, label, { numeric: true, cell: (item) => duration(item[name]) });
}

/** Attributes that are shown as more than a value, in whatever table they stand. */
const OWN = {
  name: { cell: (item) => nameCell(item.name), className: "wide" },
  container_id: { cell: (item) => withVhost(nameCell(item.container_id), item.vhost), className: "wide" },
  topic: { cell: topicLink, className: "topic" },
  router: { cell: (item) => routerLink(item.router) },
  next_hop: { cell: (item) => (item.is_self ? "–" : routerLink(item.next_hop)) },
  mode: { className: "whole" },
};
const CODES = new Set(["peer", "incarnation"]);

/**
 * The columns of a table, in the order of the schema. `without`: attributes that are left out; `own`: columns that this
 * view shows in its own way, by attribute; `extra`: columns that come last.
 */
export function columnsOf(table, { without = [], own = {}, extra = [] } = {}) {
  const shown = TABLES[table].filter((each) => !without.includes(each.name));
  return [...shown.map((each) => own[each.name]?.(each) ?? column(each)), ...extra];
}

function column({ name, label, type, unit }) {
  if (name === "state") {
    return stateColumn(label);
  }
  if (CODES.has(name)) {
    return code(name, label);
  }
  if (unit === "bytes") {
    return bytesColumn(name, label);
  }
  if (unit === "s") {
    return seconds(name, label);
  }
  if (type === "boolean") {
    return plain(name, label, { value: (item) => (item[name] ? "yes" : "") });
  }
  return type === "integer" || type === "number" ? count(name, label) : plain(name, label, OWN[name]);
}

/** The button that ends a subscription, for those who may. */
export function endColumn(page) {
  const needs = (item) => page.actions.endingNeeds(item);
  return {
    name: "acts", label: "Actions", hideLabel: true,
    mark: (item) => `${page.may(needs(item))} ${item.state} ${item.epoch}`,
    cell: (item) => (page.may(needs(item))
      ? button("End…", () => page.actions.endSubscription(item), { class: "button slim danger", "aria-label": `End the subscription ${item.name}` })
      : ""),
  };
}
