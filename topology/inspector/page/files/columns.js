// Columns of the tables: schema.js names them, here is how each reads and sorts.

import { age } from "./ages.js";
import { badge, button, h } from "./dom.js";
import { bytes, duration, number, shortDuration } from "./format.js";
import { rateWithSpark } from "./rates.js";
import { TABLES, WORDS } from "./schema.js";
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

/** A subscription or a publisher; without its key those of that name are looked for. */
export function attachmentLink(kind, name, key) {
  return nameCell(name, key ? `#/clients/${kind}/${encodeURIComponent(key)}` : `#/clients/${kind}?q=${encodeURIComponent(name)}`);
}

/** A client, by its address or its container-id. */
export function clientLink(text, content = h("code", {}, text)) {
  return text ? h("a", { href: `#/clients/connections?q=${encodeURIComponent(text)}` }, content) : "–";
}

/** Whose link it is: address and user. */
export function clientOf({ peer, user }) {
  return [clientLink(peer), user ? [", user ", h("b", {}, user)] : null];
}

/** A window: used of granted, as a bar and in numbers. */
export function windowMeter({ unsettled, granted }) {
  if (unsettled === null || unsettled === undefined) {
    return known(null);
  }
  const bar = h("span");
  bar.style.width = `${granted ? Math.min(100, (100 * unsettled) / granted) : 0}%`;
  return h("span", { class: "window" }, h("span", {}, `${number(unsettled)} of ${number(granted)}`), h("span", { class: "meter", "aria-hidden": "true" }, bar));
}

export function routerLink(id) {
  return id ? h("a", { href: `#/?router=${encodeURIComponent(id)}` }, id) : "–";
}

export function deliveryLink(tag, publisher) {
  const query = publisher ? `?publisher=${encodeURIComponent(publisher)}` : "";
  return h("a", { href: `#/delivery/${encodeURIComponent(tag)}${query}` }, h("code", { class: "tag" }, tag));
}

/** What a state means, in a few words; empty where the state says it all. */
export function meaningOf(state) {
  return WORDS[state]?.meaning ?? "";
}

/** A state in the one word that all views and the command line have for it. */
export function stateBadge(state, more = "") {
  const { kind, word } = WORDS[state] ?? { kind: "plain", word: String(state ?? "–") };
  return badge(kind, word + more, meaningOf(state) || null);
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
  container_id: { cell: (item) => withVhost(nameCell(item.container_id), item.vhost), className: "wide" },
  topic: { cell: topicLink, className: "topic" },
  router: { cell: (item) => routerLink(item.router) },
  at: { cell: (item) => routerLink(item.at) },
  next_hop: { cell: (item) => (item.is_self ? "–" : routerLink(item.next_hop)) },
  peer: { cell: (item) => clientLink(item.peer) },
  mode: { className: "whole" },
};
const CODES = new Set(["incarnation"]);
/** Shown together with others, by table: a window is used of granted, p99 stands beside p50. */
const JOINED = { publishers: ["granted", "credit"], topics: ["accepted_p99_s"], routers: ["accepted_p99_s"] };

/**
 * The columns of a table, in the order of the schema. `rates`: of the page; `without`: attributes that are left out;
 * `own`: columns that this view shows in its own way, by attribute; `extra`: columns that come last.
 */
export function columnsOf(table, { rates = null, without = [], own = {}, extra = [] } = {}) {
  const shown = TABLES[table].filter((each) => !without.includes(each.name) && !JOINED[table]?.includes(each.name));
  return [...shown.map((each) => own[each.name]?.(each) ?? special(table, each, rates) ?? column(each)), ...extra];
}

function special(table, { name, label, unit }, rates) {
  if (name === "name" && (table === "subscriptions" || table === "publishers")) {
    return plain(name, label, { mark: (item) => item.name, cell: (item) => attachmentLink(table, item.name, item.key), className: "wide" });
  }
  if (name === "name") {
    return plain(name, label, { cell: (item) => nameCell(item.name), className: "wide" });
  }
  if (name === "unsettled" && table === "publishers") {
    return plain(name, "Window", { numeric: true, mark: (item) => `${item.unsettled} ${item.granted}`, cell: windowMeter });
  }
  if (rates && (unit === "1/s" || unit === "bytes/s")) {
    return rateColumn(table, name, label, unit, rates);
  }
  return rates && name === "accepted_p50_s" ? acceptanceColumn(table, rates) : null;
}

function rateColumn(table, name, label, unit, rates) {
  return plain(name, label, {
    numeric: true,
    value: (item) => rates.now(table, item, name),
    mark: (item) => `${rates.now(table, item, name)} ${rates.points(table, item.key, name) ? rates.version : ""}`,
    cell: (item) => rateWithSpark(rates.now(table, item, name), rates.points(table, item.key, name), unit),
  });
}

function acceptanceColumn(table, rates) {
  const text = (found) => (found ? `${shortDuration(found.p50)} · ${shortDuration(found.p99)}` : "–");
  return plain("accepted_p99_s", "Accepted p50 · p99", {
    numeric: true,
    value: (item) => rates.acceptance(table, item)?.p99 ?? null,
    mark: (item) => text(rates.acceptance(table, item)),
    cell: (item) => text(rates.acceptance(table, item)),
  });
}

function column({ name, label, type, unit, optional }) {
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
  return type === "integer" || type === "number" ? count(name, label) : plain(name, label, { isOptional: optional, ...OWN[name] });
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
