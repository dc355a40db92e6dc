// The map of routers and links, drawn by cytoscape. It repeats what the tables say, for the eye.

import { button, h, icon } from "./dom.js";

const LIBRARY = "./vendor/cytoscape.esm.min.mjs";
const RING_LIMIT = 10;
/** With more routers this one stands in the middle, and the others around it, the nearest first. */
const COMPACT_FROM = 25;
/** With as many routers there is room for their names only, and the map is higher. */
const RING_GAP = 62;
const NODE_ROOM = 64;
const NARROWEST = 0.8;
const WIDEST = 1.9;
const FONT_PX = 13;
const LINE_HEIGHT = 1.25;
const WIDEST_LINK = 9;
const COSTS_SHOWN_UP_TO = 40;
/** Links on the map at most: beyond it a picture says nothing, and drawing takes too long. */
const LINK_LIMIT = 2500;

/** Draws into `element` once the library is there; `onPick(rid)` when a router is chosen. */
export class NetworkMap {
  constructor(onPick) {
    this._onPick = onPick;
    this._canvas = h("div", { class: "map-canvas", role: "img", "aria-label": "Map of the network" });
    this._tools = h(
      "div",
      { class: "map-tools" },
      this._tool("Zoom in", "plus", () => this._zoom(1.3)),
      this._tool("Zoom out", "minus", () => this._zoom(1 / 1.3)),
      this._tool("Show all", "fit", () => this._fit()),
    );
    this.element = h("div", { class: "map" }, this._canvas, this._tools);
    this._graph = null;
    this._shape = "";
    this._pending = null;
    this._resized = new ResizeObserver(() => this._graph && this._resize());
    this._themed = () => this._graph?.style(styles());
    document.addEventListener("themechange", this._themed);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", this._themed);
    this._load();
  }

  /** Whether there is room for names only. */
  static isCompact(count) {
    return count >= COMPACT_FROM;
  }

  /** Shows routers [{key, name, label, distance, kinds: [...]}] and links [{key, a, b, label, flow, kinds: [...]}]. */
  update(routers, links, description) {
    this._canvas.setAttribute("aria-label", description);
    this.element.classList.toggle("map-large", routers.length >= COMPACT_FROM);
    this._pending = { routers, links: links.slice(0, LINK_LIMIT) };
    if (this._graph) {
      this._draw();
    }
  }

  destroy() {
    document.removeEventListener("themechange", this._themed);
    matchMedia("(prefers-color-scheme: dark)").removeEventListener("change", this._themed);
    this._resized.disconnect();
    this._graph?.destroy();
    this._graph = null;
  }

  _tool(label, name, action) {
    const tool = button("", action, { class: "icon-button", "aria-label": label, title: label });
    tool.append(icon(name));
    return tool;
  }

  async _load() {
    let cytoscape;
    try {
      cytoscape = (await import(LIBRARY)).default;
    } catch {
      this._canvas.remove();
      this._tools.remove();
      this.element.classList.add("map-missing");
      this.element.append(
        h("p", {}, "There is no map, because this installation was built without the library that draws it. ",
          "The tables below hold the same."),
        h("p", {}, "In the source tree, ", h("code", {}, "make inspector-map"), " fetches it (from the npm registry) and installs again; then restart the router."),
      );
      return;
    }
    if (!this._canvas.isConnected) {
      return;
    }
    const hasMouse = matchMedia("(hover: hover)").matches;
    this._graph = cytoscape({
      container: this._canvas,
      style: styles(),
      userZoomingEnabled: false,
      userPanningEnabled: hasMouse,
      autoungrabify: !hasMouse,
      boxSelectionEnabled: false,
      selectionType: "single",
      minZoom: 0.15,
      maxZoom: 2.2,
    });
    this._graph.on("tap", "node", (event) => this._onPick(event.target.id()));
    this._resized.observe(this._canvas);
    this._canvas.querySelectorAll("canvas").forEach((canvas) => canvas.setAttribute("aria-hidden", "true"));
    if (this._pending) {
      this._draw();
    }
  }

  _draw() {
    const { routers, links } = this._pending;
    const graph = this._graph;
    // News come up to four times a second, and most say nothing about the map.
    const mark = JSON.stringify(this._pending);
    if (mark === this._drawn) {
      return;
    }
    this._drawn = mark;
    const shape = routers.map((each) => each.key).sort().join(" ");
    const wanted = new Map();
    const group = (each, kind) => wanted.set(each.key, { group: kind, classes: each.kinds.join(" "), data: dataOf(each) });
    routers.forEach((each) => group(each, "nodes"));
    links.forEach((each) => group(each, "edges"));
    const showCosts = links.length <= COSTS_SHOWN_UP_TO;
    if (!showCosts) {
      wanted.forEach((each) => { each.classes += each.group === "edges" ? " many" : ""; });
    }
    graph.batch(() => {
      graph.elements().filter((element) => !wanted.has(element.id())).remove();
      for (const [key, element] of wanted) {
        const drawn = graph.getElementById(key);
        if (drawn.empty()) {
          graph.add(element);
        } else {
          drawn.data(element.data).classes(element.classes);
        }
      }
      graph.edges().forEach((edge) => void edge.data("label", showCosts ? edge.data("cost") : ""));
    });
    if (shape !== this._shape) {
      this._shape = shape;
      this._place(routers);
    }
  }

  _resize() {
    this._graph.resize();
    if (this._pending) {
      this._place(this._pending.routers);
    }
  }

  _place(routers) {
    const shape = this._graph.width() / Math.max(1, this._graph.height());
    const places = placesOf(routers, Math.min(WIDEST, Math.max(NARROWEST, shape)));
    this._graph.layout({ name: "preset", positions: (node) => places.get(node.id()), animate: false, fit: false }).run();
    this._fit();
  }

  _fit() {
    const graph = this._graph;
    if (graph) {
      graph.fit(undefined, 26);
      if (graph.zoom() > 1.15) {
        graph.zoom(1.15);
        graph.center();
      }
    }
  }

  _zoom(factor) {
    const graph = this._graph;
    graph?.zoom({ level: graph.zoom() * factor, renderedPosition: { x: graph.width() / 2, y: graph.height() / 2 } });
  }
}

/** A place for each router; the same network gives the same picture. */
function placesOf(routers, aspect) {
  const byName = (a, b) => a.name.localeCompare(b.name, "en", { numeric: true });
  if (routers.length <= RING_LIMIT) {
    const size = routers.length === 1 ? 0 : Math.max(1, routers.length / 4) * 110;
    return onRing([...routers].sort(byName), size * aspect, size);
  }
  const far = (each) => each.distance ?? Infinity;
  const waiting = [...routers].sort((a, b) => (far(a) === far(b) ? byName(a, b) : far(a) - far(b)));
  const places = onRing(waiting.splice(0, 1), 0, 0);
  for (let ring = 1; waiting.length; ring += 1) {
    const [width, height] = [ring * RING_GAP * aspect, ring * RING_GAP];
    const room = Math.floor((2 * Math.PI * Math.sqrt((width ** 2 + height ** 2) / 2)) / NODE_ROOM);
    onRing(waiting.splice(0, room), width, height).forEach((place, key) => places.set(key, place));
  }
  return places;
}

/** Evenly around an ellipse, clockwise from the top; two lie beside each other. */
function onRing(routers, width, height) {
  const start = routers.length === 2 ? Math.PI : -Math.PI / 2;
  return new Map(routers.map((each, index) => {
    const angle = start + (2 * Math.PI * index) / routers.length;
    return [each.key, { x: width * Math.cos(angle), y: height * Math.sin(angle) }];
  }));
}

function dataOf(each) {
  return each.a === undefined
    ? { id: each.key, name: each.name, label: each.label, ...sizeOf(each.label) }
    : { id: each.key, source: each.a, target: each.b, cost: each.label, width: widthOf(each.flow) };
}

/** Ten times the bytes make a link as much wider each time: from 1 kB to 10 MB a second all can be distinguished. */
function widthOf(flow) {
  return Math.min(WIDEST_LINK, 1.5 + 1.7 * Math.log10(1 + flow / 1000));
}

const measure = document.createElement("canvas").getContext("2d");

/** The box around a label: the library no longer measures it. */
function sizeOf(label) {
  const lines = label.split("\n");
  measure.font = `${FONT_PX}px ${getComputedStyle(document.body).fontFamily}`;
  const width = Math.max(40, ...lines.map((line) => measure.measureText(line).width));
  return { width: Math.ceil(width) + 26, height: Math.ceil(lines.length * FONT_PX * LINE_HEIGHT) + 20 };
}

function styles() {
  const css = getComputedStyle(document.documentElement);
  const colour = (name) => css.getPropertyValue(`--${name}`).trim();
  const font = getComputedStyle(document.body).fontFamily;
  return [
    {
      selector: "node",
      style: {
        shape: "round-rectangle", width: "data(width)", height: "data(height)",
        label: "data(label)", "text-wrap": "wrap", "text-valign": "center", "text-halign": "center",
        "font-size": FONT_PX, "font-family": font, color: colour("text"), "line-height": LINE_HEIGHT,
        "background-color": colour("panel"), "border-width": 1.5, "border-color": colour("line-strong"),
        "overlay-opacity": 0,
      },
    },
    { selector: "node.self", style: { "border-width": 3, "border-color": colour("accent"), "background-color": colour("accent-soft") } },
    { selector: "node.draining", style: { "border-style": "dashed", "border-width": 2.5, "border-color": colour("warn"), "background-color": colour("warn-soft") } },
    { selector: "node.stuck", style: { "border-width": 3, "border-color": colour("bad"), "background-color": colour("bad-soft") } },
    { selector: "node.unreachable", style: { "border-style": "double", "border-width": 5, "border-color": colour("bad"), "background-color": colour("bad-soft") } },
    { selector: "node.gone", style: { "border-style": "dotted", "border-width": 2.5, "border-color": colour("bad"), "background-color": colour("page"), color: colour("quiet") } },
    { selector: "node.picked", style: { "underlay-color": colour("accent"), "underlay-opacity": 0.25, "underlay-padding": 6 } },
    {
      selector: "edge",
      style: {
        width: "data(width)", "line-color": colour("line-strong"), "curve-style": "straight",
        label: "data(label)", "font-size": 11.5, "font-family": font, color: colour("quiet"),
        "text-background-color": colour("panel"), "text-background-opacity": 1, "text-background-padding": "3px",
        "text-background-shape": "round-rectangle", "overlay-opacity": 0, "text-wrap": "wrap",
      },
    },
    { selector: "edge.many", style: { opacity: 0.35 } },
    { selector: "edge.best", style: { opacity: 1, "z-index": 2, "line-color": colour("accent"), color: colour("text") } },
    { selector: "edge.one-way", style: { opacity: 1, "z-index": 3, "line-style": "dashed", "line-dash-pattern": [8, 5], width: 2.5, "line-color": colour("warn"), color: colour("warn") } },
    { selector: "edge.gone", style: { opacity: 1, "z-index": 3, "line-style": "dotted", width: 2, "line-color": colour("bad"), color: colour("bad") } },
  ];
}
