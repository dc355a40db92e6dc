// Rates of the last five minutes: asked for while a view shows them, and drawn as small pictures.

import { get } from "./api.js";
import { h, svg } from "./dom.js";
import { rate } from "./format.js";
import { Wanted } from "./wanted.js";

const REFRESH_MS = 5000;
/** As often as routers take a point. */
const WIDTH = 59;
const HEIGHT = 20;

export class Rates extends Wanted {
  /** As `Wanted`. */
  constructor(scope, pace, onNews) {
    super(scope, pace, REFRESH_MS, onNews);
    this.version = 0;
  }

  /** The points of a row by attribute, the newest last; null while nothing moved, or it is not known. */
  points(table, key, name) {
    return this._tables.get(table)?.get(key)?.[name] ?? null;
  }

  /** What moves now; null where that is not known. */
  now(table, item, name) {
    const points = this.points(table, item.key, name);
    if (points) {
      return points.at(-1);
    }
    return item[name] ?? (this._scope.isNetwork && this._tables.has(table) ? 0 : null);
  }

  /** The points of all rows of a table, added up. */
  sum(table, name) {
    const rows = [...(this._tables.get(table)?.values() ?? [])].map((row) => row[name]).filter(Boolean);
    return rows.length ? rows[0].map((_, index) => rows.reduce((sum, row) => sum + (row[index] ?? 0), 0)) : null;
  }

  /** A row's times of acceptance in five minutes, or in the last one: {p50, p99}, or null. */
  acceptance(table, item, name = "accepted") {
    const row = this._tables.get(table)?.get(item.key) ?? item;
    return row[`${name}_p99_s`] == null ? null : { p50: row[`${name}_p50_s`], p99: row[`${name}_p99_s`] };
  }

  /** The longest times of acceptance of these rows, as `longest`; where nothing is published now, those of the last minute. */
  acceptanceOf(table, items) {
    const times = (name) => items.map((each) => this.acceptance(table, each, name)).filter(Boolean);
    return longest(items.some((each) => this.now(table, each, "published_rate")), times("accepted"), times("accepted_minute"));
  }

  async _load() {
    const mark = this._mark;
    await Promise.all(this._wanted.map(async ([table, query]) => {
      try {
        this._keep(mark, table, await get(["rates", table], { ...query, ...this._scope.query }));
      } catch {
        // The feed says when the router does not answer; until then the last points stand.
      }
    }));
    if (mark === this._mark && this._wanted.length) {
      this.version += 1;
      this._onNews();
    }
  }
}

/** {p50, p99, when}; `when` says of which time they are where that is not the usual. At rest the last minute comes first. */
export function longest(isBusy, times, ofMinute) {
  const isOfMinute = !isBusy && ofMinute.length > 0;
  const found = isOfMinute ? ofMinute : times;
  const most = (name) => (found.length ? Math.max(...found.map((each) => each[name])) : null);
  const when = isBusy || !found.length ? "" : `, in ${isOfMinute ? "the last minute" : "five minutes"}`;
  return { p50: most("p50"), p99: most("p99"), when };
}

/** A small picture of these points. The number beside it says the newest; this is for the eye. */
export function spark(points, className = "") {
  const most = Math.max(...points);
  const at = (value) => (HEIGHT - 1.5 - (most ? value / most : 0) * (HEIGHT - 3)).toFixed(1);
  const line = points.map((value, index) => `${index ? "L" : "M"}${((index * WIDTH) / (points.length - 1)).toFixed(1)} ${at(value)}`).join("");
  return svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", class: `spark ${className}`.trim(), "aria-hidden": "true" },
    svg("path", { d: `${line}L${WIDTH} ${HEIGHT}L0 ${HEIGHT}Z`, class: "area" }),
    svg("path", { d: line, class: "line" }));
}

/** A rate with its last five minutes. */
export function rateWithSpark(value, points, unit) {
  const most = points?.length > 1 ? Math.max(...points) : 0;
  return h("span", { class: "rate", title: most ? `at most ${rate(most, unit)} in five minutes` : null }, h("span", {}, rate(value, unit)), most ? spark(points) : null);
}
