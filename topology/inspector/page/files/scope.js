// One switch for all views: the whole network, or this router alone.

import { h, speak } from "./dom.js";
import { remember, remembered } from "./remembered.js";

const SCOPE_KEY = "oncewire-scope";

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
