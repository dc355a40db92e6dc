// Numbers at the top of a view.

import { h } from "./dom.js";
import { rate } from "./format.js";
import { spark } from "./rates.js";

/** One number with its name. */
export function tile(label, value, more = null) {
  return h("div", { class: "tile" }, h("span", { class: "value" }, value), more, h("span", { class: "label" }, label));
}

/** Points of a minute. */
const MINUTE = 12;

/** What moves in a second, with its last five minutes; where nothing moves now, also what did in the last minute. */
export function rateTile(label, value, points, unit = "1/s") {
  const minute = points?.slice(-MINUTE) ?? [];
  const mean = minute.reduce((sum, each) => sum + each, 0) / (minute.length || 1);
  const rest = value === 0 && mean > 0 ? `, ${rate(mean, unit)} in the last minute` : "";
  return tile(label + rest, rate(value, unit), points && Math.max(...points) ? spark(points, "large") : null);
}
