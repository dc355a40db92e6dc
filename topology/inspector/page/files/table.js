// A table whose rows stay the same elements while their contents change, so focus, selection and scroll stay put.

import { add, fill, h, setText } from "./dom.js";
import { counted, number } from "./format.js";

const ROW_LIMIT = 2000;
/** Rows in the page at most; with more the filter is the better way, and the table says so. */
const words = new Intl.Collator("en", { numeric: true });
let tables = 0;

/**
 * `isTall`: a long one scrolls in itself on a large screen. `limit`: rows shown at most. Columns: {name, label, value(item) -> text or number to sort by, cell(item) -> node or text (else the value is
 * shown), mark(item) -> text that changes when the cell must be made anew (else the value), numeric, isOptional: it is
 * left out while no row has a value}.
 */
export class Table {
  constructor({ caption, columns, empty, sort = columns[0].name, descending = false, rowClass = null, isTall = false, limit = ROW_LIMIT }) {
    this._columns = columns;
    this._empty = empty;
    this._sort = sort;
    this._descending = descending;
    this._rowClass = rowClass;
    this._limit = limit;
    this._rows = new Map();
    this._items = [];
    this._body = h("tbody", { role: "rowgroup" });
    this._heads = columns.map((column) => this._head(column));
    const captionId = `table-${++tables}`;
    const table = h(
      "table",
      { role: "table", "aria-labelledby": captionId },
      h("caption", { id: captionId, class: "sr" }, caption),
      h("thead", { role: "rowgroup" }, h("tr", { role: "row" }, this._heads)),
      this._body,
    );
    // Nothing is shown until the first items come: a table that has not come is not an empty one.
    this._note = h("p", { class: "empty", hidden: true });
    this._scroller = h("div", { class: isTall ? "scroller tall" : "scroller", role: "group", "aria-labelledby": captionId, tabindex: "0", hidden: true }, table);
    this.element = h("div", { class: "table" }, this._scroller, this._note);
  }

  /** Shows these items; each has a `key` that is unique in the table. */
  update(items) {
    this._items = items;
    const shown = this._sorted(items).slice(0, this._limit);
    const kept = new Set(shown.map((item) => item.key));
    for (const [key, row] of this._rows) {
      if (!kept.has(key)) {
        row.element.remove();
        this._rows.delete(key);
      }
    }
    const focused = this._body.contains(document.activeElement) ? document.activeElement : null;
    shown.forEach((item, index) => {
      const row = this._row(item);
      if (this._body.children[index] !== row) {
        this._body.insertBefore(row, this._body.children[index] ?? null);
      }
    });
    if (focused && focused !== document.activeElement && focused.isConnected) {
      focused.focus();
    }
    this._leaveOut(shown);
    this._scroller.hidden = !shown.length;
    const left = items.length - shown.length;
    setText(this._note, shown.length ? (left ? `${counted(left, "more row")}: use the filter.` : "") : this._empty);
    this._note.hidden = !this._note.textContent;
  }

  /** Columns that would be empty. */
  _leaveOut(items) {
    this._columns.forEach((column, index) => {
      if (column.isOptional) {
        const hidden = !items.some((item) => column.value(item));
        column.head.hidden = hidden;
        this._rows.forEach((row) => { row.cells[index].hidden = hidden; });
      }
    });
  }

  /** Shows the same items again: what may be done with them has changed. */
  refresh() {
    if (!this._scroller.hidden) {
      this.update(this._items);
    }
  }

  _head(column) {
    const press = () => {
      this._descending = this._sort === column.name ? !this._descending : Boolean(column.numeric);
      this._sort = column.name;
      this._showOrder();
      this.update(this._items);
    };
    const content = column.value
      ? h("button", { type: "button", class: "sort", on: { click: press } }, column.label)
      : h("span", { class: column.hideLabel ? "sr" : null }, column.label);
    const head = h("th", { scope: "col", role: "columnheader", class: column.numeric ? "number" : null }, content);
    column.head = head;
    if (column.name === this._sort) {
      head.setAttribute("aria-sort", this._descending ? "descending" : "ascending");
    }
    return head;
  }

  _showOrder() {
    for (const column of this._columns) {
      if (column.name === this._sort) {
        column.head.setAttribute("aria-sort", this._descending ? "descending" : "ascending");
      } else {
        column.head.removeAttribute("aria-sort");
      }
    }
  }

  _sorted(items) {
    const column = this._columns.find((each) => each.name === this._sort);
    const sign = this._descending ? -1 : 1;
    return [...items].sort((a, b) => sign * compare(column.value(a), column.value(b)) || compare(a.key, b.key));
  }

  _row(item) {
    let row = this._rows.get(item.key);
    if (!row) {
      const cells = this._columns.map((column, index) =>
        h(index ? "td" : "th", {
          role: index ? "cell" : "rowheader",
          scope: index ? null : "row",
          class: [column.numeric ? "number" : "", column.className ?? ""].join(" ").trim() || null,
          data: { label: column.hideLabel ? "" : column.label },
        }),
      );
      row = { element: h("tr", { role: "row" }, cells), cells, marks: new Array(cells.length) };
      this._rows.set(item.key, row);
    }
    if (this._rowClass) {
      row.element.className = this._rowClass(item) ?? "";
    }
    this._columns.forEach((column, index) => {
      const mark = column.mark ? column.mark(item) : column.value(item);
      if (row.marks[index] !== mark) {
        row.marks[index] = mark;
        const content = column.cell ? column.cell(item) : plain(column, item);
        fill(row.cells[index], content);
        row.cells[index].classList.toggle("blank", content === null || content === "");
      }
    });
    return row.element;
  }
}

function plain(column, item) {
  const value = column.value(item);
  return column.numeric ? number(value) : value ?? "–";
}

function compare(a, b) {
  if (a === b) {
    return 0;
  }
  if (a === null || a === undefined) {
    return -1;
  }
  if (b === null || b === undefined) {
    return 1;
  }
  return typeof a === "number" && typeof b === "number" ? a - b : words.compare(String(a), String(b));
}

/** A box with a filter: `onChange` gets the text after a short rest. */
export function filterBox(label, value, onChange) {
  let timer = null;
  const input = h("input", { type: "search", class: "filter", placeholder: label, "aria-label": label, spellcheck: "false", autocomplete: "off" });
  input.value = value;
  input.addEventListener("input", () => {
    clearTimeout(timer);
    timer = setTimeout(() => onChange(input.value.trim()), 200);
  });
  return input;
}

/** A titled panel. */
export function panel(title, ...content) {
  const head = h("header", {}, h("h2", {}, title));
  return { element: add(h("section", { class: "panel", "aria-label": title }, head), content), head };
}

/** A few buttons of which one is pressed. */
export function choice(label, options, chosen, onChoose) {
  const buttons = options.map(([text, value]) => h("button", {
    type: "button", "aria-pressed": String(value === chosen),
    on: {
      click: (event) => {
        buttons.forEach((each) => each.setAttribute("aria-pressed", String(each === event.currentTarget)));
        onChoose(value);
      },
    },
  }, text));
  return h("div", { class: "choice", role: "group", "aria-label": label }, buttons);
}
