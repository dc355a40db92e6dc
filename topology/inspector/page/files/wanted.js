// What a view wants to know of other routers: asked for when it changes, and again while it is shown.

export class Wanted {
  /** `pace` says how often it is asked for; `onNews` is called after each answer. */
  constructor(scope, pace, refreshMs, onNews) {
    this._scope = scope;
    this._onNews = onNews;
    this._wanted = [];
    /** Rows of each table by their keys. */
    this._tables = new Map();
    pace.every(refreshMs, () => this._load());
  }

  /** What the view shows: {table: query, ...}. */
  want(tables) {
    const mark = JSON.stringify([tables, this._scope.isNetwork]);
    if (mark !== this._mark) {
      this._mark = mark;
      this._wanted = Object.entries(tables);
      this._forget();
      this._load();
    }
  }

  _forget() {
    this._tables.clear();
  }

  /** `answer.items` are the rows of a table, unless something else is wanted by now. */
  _keep(mark, table, answer) {
    if (mark === this._mark) {
      this._tables.set(table, new Map(answer.items.map((item) => [item.key, item])));
    }
  }
}
