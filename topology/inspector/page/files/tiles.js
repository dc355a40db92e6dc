// Numbers at the top of a view.

import { h } from "./dom.js";
import { rate } from "./format.js";
import { spark } from "./rates.js";

/** One number with its name. */
export function tile(label, value, more = null) {
  return h("div", { class: "tile" }, h("span", { class: "value" }, value), more, h("span", { class: "label" }, label));
}

/** What moves in a second, with its last five minutes. */
export function rateTile(label, value, points, unit = "1/s") {
  return tile(label, rate(value, unit), points && Math.max(...points) ? spark(points, "large") : null);
}
