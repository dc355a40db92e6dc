// Building elements. Names come from clients of the network, so nothing here ever parses text as HTML.

const SVG = "http://www.w3.org/2000/svg";

const ICONS = {
  network: "M12 5v5M7 17l4-5M17 17l-4-5M12 2.5a2 2 0 1 0 0 4 2 2 0 0 0 0-4ZM6 16.5a2.2 2.2 0 1 0 0 4.4 2.2 2.2 0 0 0 0-4.4ZM18 16.5a2.2 2.2 0 1 0 0 4.4 2.2 2.2 0 0 0 0-4.4Z",
  topics: "M4 7h16M4 12h16M4 17h10",
  waiting: "M7 3h10M7 21h10M8 3c0 5 8 6 8 9s-8 4-8 9M16 3c0 5-8 6-8 9s8 4 8 9",
  clients: "M4 5h16v10H4zM9 20h6M12 15v5",
  delivery: "M10.5 4a6.5 6.5 0 1 0 0 13 6.5 6.5 0 0 0 0-13ZM15.5 15.5 21 21",
  events: "M5 5h2M5 12h2M5 19h2M10.5 5H20M10.5 12H20M10.5 19H20",
  router: "M4 13h16v6H4zM8 16h.01M12 16h.01M12 13V9M8.5 7a5 5 0 0 1 7 0M6 4.5a8.5 8.5 0 0 1 12 0",
  queues: "M4 5h10v4H4zM4 11h10v4H4zM4 17h10v3H4zM17 6v13M14.5 16.5 17 19l2.5-2.5",
  journals: "M6 3.5h12v17H6zM6 7.5h12M9 11.5h6M9 14.5h6M9 17.5h4",
  good: "M5 12.5l4.5 4.5L19 7.5",
  warn: "M12 4 2.8 20h18.4ZM12 10v4.5M12 17.2v.1",
  bad: "M12 3.2 20.8 12 12 20.8 3.2 12ZM12 8v5M12 15.6v.1",
  info: "M12 3.5a8.5 8.5 0 1 0 0 17 8.5 8.5 0 0 0 0-17ZM12 11v5M12 8v.1",
  sun: "M12 8a4 4 0 1 0 0 8 4 4 0 0 0 0-8ZM12 2.5v2M12 19.5v2M2.5 12h2M19.5 12h2M5.3 5.3l1.4 1.4M17.3 17.3l1.4 1.4M18.7 5.3l-1.4 1.4M6.7 17.3l-1.4 1.4",
  moon: "M20 14.5A8.5 8.5 0 0 1 9.5 4a8.5 8.5 0 1 0 10.5 10.5Z",
  system: "M12 3.5a8.5 8.5 0 1 0 0 17 8.5 8.5 0 0 0 0-17ZM12 3.5v17M12 7h6.5M12 11h8M12 15h7.5",
  help: "M9 9a3 3 0 1 1 4.5 2.6c-1 .6-1.5 1.2-1.5 2.4M12 17.2v.1M12 3a9 9 0 1 0 0 18 9 9 0 0 0 0-18Z",
  plus: "M12 5v14M5 12h14",
  minus: "M5 12h14",
  fit: "M4 9V4h5M20 9V4h-5M4 15v5h5M20 15v5h-5",
  close: "M6 6l12 12M18 6 6 18",
};

// Controls, and characters that turn the direction of text or take no place: a name with them would look like another one.
const UNSEEN = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u061c\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff\ufff9-\ufffb]/g;

// Attributes that people see or hear.
const READ = new Set(["title", "aria-label", "placeholder"]);

/** A text in which what cannot be seen stands as its number: names come from clients. */
export function seen(text) {
  return String(text).replace(UNSEEN, (each) => `\\u${each.charCodeAt(0).toString(16).padStart(4, "0")}`);
}

/** An element. `properties`: attributes, `on` (listeners), `data` (data-*), `class`; children: nodes, text or nothing. */
export function h(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (value === undefined || value === null || value === false) {
      continue;
    }
    if (name === "on") {
      for (const [event, listener] of Object.entries(value)) {
        element.addEventListener(event, listener);
      }
    } else if (name === "data") {
      Object.assign(element.dataset, value);
    } else {
      element.setAttribute(name, value === true ? "" : READ.has(name) ? seen(value) : String(value));
    }
  }
  add(element, children);
  return element;
}

/** Appends nodes and texts; leaves out what is null, undefined or false. */
export function add(element, children) {
  for (const child of children.flat(Infinity)) {
    if (child !== null && child !== undefined && child !== false) {
      element.append(child instanceof Node ? child : seen(child));
    }
  }
  return element;
}

/** Gives an element exactly these children. */
export function fill(element, ...children) {
  element.replaceChildren();
  return add(element, children);
}

/** Sets a text where it differs, so that selections and screen readers are left alone. */
export function setText(element, text) {
  const shown = seen(text);
  if (element.textContent !== shown) {
    element.textContent = shown;
  }
}

/** An SVG element with these attributes. */
export function svg(tag, attributes, ...children) {
  const element = document.createElementNS(SVG, tag);
  Object.entries(attributes).forEach(([name, value]) => element.setAttribute(name, String(value)));
  element.append(...children);
  return element;
}

/** A line icon, for the eye only: a text always stands beside it. */
export function icon(name, className = "") {
  return svg("svg", { viewBox: "0 0 24 24", class: `icon ${className}`.trim(), "aria-hidden": "true" }, svg("path", { d: ICONS[name] }));
}

/** A state: shape, colour and word, so that it does not depend on colour alone. */
export function badge(kind, text, title) {
  const marks = { good: "good", warn: "warn", bad: "bad" };
  return h("span", { class: `badge ${kind}`, title }, marks[kind] ? icon(marks[kind]) : null, text);
}

export function button(text, onClick, properties = {}) {
  return h("button", { type: "button", class: "button", ...properties, on: { click: onClick } }, text);
}

/** Says something to screen readers, once and politely. */
export function speak(text) {
  setText(document.getElementById("spoken"), text);
}
