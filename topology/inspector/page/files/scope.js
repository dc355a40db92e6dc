// One switch for all views: the whole network, or this router alone.

import { h, speak } from "./dom.js";
import { remember, remembered } from "./remembered.js";

const SCOPE_KEY = "oncewire-scope";

/** With so many routers all of them are asked half as often, with twice as many a third as often: each is a request. */
const ROUTERS_AT_FULL_PACE = 25;

/** How often something is asked for: while somebody looks, and less often in a large network. */
export class Pace {
  constructor(scope, store) {
    this._scope = scope;
    this._store = store;
  }

  every(ms, ask) {
    let turn = 0;
    setInterval(() => {
      turn += 1;
      const every = this._scope.isNetwork ? 1 + Math.floor(this._store.table("routers").size / ROUTERS_AT_FULL_PACE) : 1;
      if (!document.hidden && turn % every === 0) {
        ask();
      }
    }, ms);
  }
}

export class Scope {
  /** `onChange` is called when somebody has switched. */
  constructor(onChange) {
    this.isNetwork = remembered(SCOPE_KEY) !== "router";
    const box = h("input", {
      type: "checkbox", role: "switch", checked: this.isNetwork,
      on: {
        change: () => {
          this.isNetwork = box.checked;
          remember(SCOPE_KEY, box.checked ? "network" : "router");
          speak(box.checked ? "All views show the whole network." : "All views show this router alone.");
          onChange();
        },
      },
    });
    this.element = h("label", { class: "switch", title: "All views: the whole network, or this router alone (n)" }, box, h("span", {}, "whole network"));
    this.toggle = () => box.click();
  }

  /** For requests that can go to all routers. */
  get query() {
    return this.isNetwork ? { network: "true" } : {};
  }
}
