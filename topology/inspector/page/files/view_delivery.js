// One delivery by its tag: what has become of it, its record at each router that knows it, and the rules applied.

import { get } from "./api.js";
import { age, now } from "./ages.js";
import { fill, h, icon } from "./dom.js";
import { bytes, counted, number, shortDuration } from "./format.js";
import { WORDS } from "./schema.js";
import { attachmentLink, columnsOf, meaningOf, routerLink, stateBadge, topicLink } from "./columns.js";
import { notAsked, problem } from "./actions.js";
import { RECEIVED, since } from "./store.js";

const REFRESH_MS = 1000;
/** States that can still change: the answer is kept up to date. */
const OPEN = new Set(["in-doubt", "accepted", "rejected"]);

export class DeliveryView {
  static title = "Delivery";

  constructor(page, place) {
    this._page = page;
    this._tag = this._input({ name: "tag", placeholder: "for example 0a1b2c3d…", required: true });
    this._publisher = this._input({ name: "publisher", placeholder: "container-id/link-name" });
    this._result = h("div", { class: "stack" });
    const form = h("form", {
      class: "panel ask", role: "search",
      on: {
        submit: (event) => {
          event.preventDefault();
          const query = this._publisher.value.trim() ? `?publisher=${encodeURIComponent(this._publisher.value.trim())}` : "";
          history.replaceState(null, "", `#/delivery/${encodeURIComponent(this._tag.value.trim())}${query}`);
          this._findAnew();
        },
      },
    },
      h("label", { class: "field grow" }, h("span", {}, "Tag in hex: a network tag, or a publisher's own tag"), this._tag),
      h("label", { class: "field grow" }, h("span", {}, "Publisher (needed for its own tags only)"), this._publisher),
      h("button", { type: "submit", class: "button main" }, "Look up"));
    this.element = h("div", { class: "stack" },
      h("div", { class: "head" }, h("h1", {}, "A delivery")), form, this._result);
    this._timer = setInterval(() => this._isOpen && !document.hidden && this._find(), REFRESH_MS);
    this._fillFrom(place);
  }

  destroy() {
    clearInterval(this._timer);
    this._timer = null;
  }

  watches() {
    return { tables: [] };
  }

  go(place) {
    this._fillFrom(place);
  }

  render() {
    // It is asked for once a second while it can change; the feed knows nothing of deliveries.
  }

  focusFilter() {
    this._tag.focus();
  }

  _input(attributes) {
    return h("input", { type: "text", spellcheck: "false", autocomplete: "off", ...attributes });
  }

  _fillFrom(place) {
    this._tag.value = place.rest.join("/");
    this._publisher.value = place.query.get("publisher") ?? "";
    if (this._tag.value) {
      this._findAnew();
    } else {
      this._isOpen = false;
      fill(this._result, h("p", { class: "quiet" },
        "Subscribers see the network tag as delivery tag; logs and the view ", h("a", { href: "#/waiting" }, "Waiting"), " name it, too."));
    }
  }

  _findAnew() {
    this._mark = null;
    fill(this._result, h("p", { class: "quiet", role: "status" }, "Asking …"));
    this._find();
  }

  async _find() {
    const asked = `${this._tag.value.trim()} ${this._publisher.value.trim()}`;
    this._isOpen = false;
    this._asked = asked;
    try {
      const answer = await get(["deliveries", this._tag.value.trim()], { publisher: this._publisher.value.trim(), ...this._page.scope.query });
      if (this._timer === null || this._asked !== asked) {
        return;
      }
      this._isOpen = OPEN.has(answer.answer.state);
      this._show(answer);
    } catch (error) {
      if (this._timer !== null && this._asked === asked) {
        this._mark = null;
        fill(this._result, problem(error));
      }
    }
  }

  _show(reply) {
    // Ages grow by themselves: without another change everything stays, with the focus and what is selected.
    const mark = JSON.stringify(reply, (name, value) => (name.endsWith("_s") ? undefined : value));
    if (mark === this._mark) {
      return;
    }
    this._mark = mark;
    const { tag, answer, found, missing = [] } = reply;
    found.forEach((record) => { record[RECEIVED] = now(); });
    // The publisher's router first: it decides the delivery, and its record has the message.
    const records = [...found].sort((a, b) => isIngress(b) - isIngress(a));
    fill(this._result,
      trialNote(this._page.trial, tag),
      answerPanel(answer, tag),
      notAsked(missing),
      records.filter((record) => record.role !== "past").map((record) => recordPanel(record)),
      found.length ? lifePanel(records) : null,
      records.filter((record) => record.role === "past").map((record) => recordPanel(record)),
      untraced(records));
  }
}

/** What the page has published itself, and how that went. */
function trialNote(trial, tag) {
  if (trial?.tag !== tag) {
    return null;
  }
  const [kind, text] = trial.outcome === null
    ? ["warn", "The test message is published. It was not accepted within a second; this view shows how it goes on."]
    : [trial.outcome === "accepted" ? "good" : "bad", `The test message is published: ${WORDS[trial.outcome]?.word ?? trial.outcome} after ${shortDuration(trial.seconds)}.`];
  return h("p", { class: `panel note ${kind}`, role: "status" }, icon(kind), h("span", {}, text));
}

/** What has become of it, in one sentence, and who has not accepted it yet. */
function answerPanel(answer, tag) {
  const began = now();
  return h("section", { class: "panel answer", role: "status", "aria-label": "Answer" },
    h("p", {}, answer.state === "unknown" ? null : [stateBadge(answer.state), " "], h("b", {}, answer.text)),
    answer.waiting_for.length
      ? h("ul", { class: "holders" }, answer.waiting_for.map((each) => h("li", {},
          attachmentLink("subscriptions", each.subscription), stateBadge(each.state), h("span", { class: "small quiet" }, meaningOf(each.state)),
          h("span", { class: "small quiet" }, "at ", routerLink(each.router)), each.since_s == null ? null : age(began - each.since_s))))
      : null,
    answer.state === "unknown" ? h("p", { class: "quiet" }, "Tag asked for: ", h("code", { class: "tag" }, tag)) : null);
}

function recordPanel(record) {
  const field = (title, ...content) => h("div", {}, h("h3", {}, title), content);
  const isPast = record.role === "past";
  const role = [isIngress(record) ? "the publisher's router" : "a router of its subscriptions", isPast ? "settled, and forgotten but for its rules" : null].filter(Boolean).join("; ");
  return h("section", { class: "panel stack", "aria-label": `Record at router ${record.router}` },
    h("header", {}, h("h2", {}, "At router ", routerLink(record.router)), h("span", { class: "quiet" }, role),
      h("span", { class: "push" }, record.state ? stateBadge(record.state) : null)),
    h("div", { class: "six" },
      isPast ? null : field("Message", h("p", {}, record.size == null ? "body not held here" : bytes(record.size), record.topic ? [", to ", topicLink(record)] : null),
        record.digest ? h("p", { class: "long small" }, "SHA-256 ", h("code", {}, record.digest.match(/.{1,32}/g).join(" "))) : null),
      field("Publisher", h("p", {}, record.publisher ? attachmentLink("publishers", record.publisher) : "–"),
        h("p", { class: "small quiet" }, [record.session == null ? null : `session ${number(record.session)}`, record.number == null ? null : `number ${number(record.number)}`].filter(Boolean).join(", "))),
      field("Its tag", h("p", { class: "long" }, h("code", {}, record.publisher_tag ?? "–"))),
      field("Network tag", h("p", { class: "long" }, h("code", {}, record.network_tag ?? "–")),
        record.arrived_s == null ? null : h("p", { class: "small quiet" }, "arrived ", age(since(record, record.arrived_s)), " ago")),
      isPast ? null : field("Subscriptions at this router", states(record, record.local_subscriptions, (each) => [attachmentLink("subscriptions", each.name)], "none")),
      isPast ? null : field("Other routers", states(record, record.other_routers, (each) =>
        [routerLink(each.router), each.subscriptions == null ? null : h("span", { class: "quiet small" }, `${number(each.subscriptions - each.owing)} of ${counted(each.subscriptions, "subscription")} done`)], "none")),
      columnsOf("deliveries").map((each) => field(each.label, h("p", {}, each.cell ? each.cell(record) : each.value(record))))),
    firstBytes(record.first_bytes));
}

/** Whether a record is that of the publisher's router; for one that is forgotten its rules show it. */
function isIngress(record) {
  return record.role === "ingress" || (record.role === "past" && record.rules.some((each) => each.rule.startsWith("I-")));
}

/** What is held or retried is not in doubt: the same words as under Waiting. */
function atSubscription({ state, detail }) {
  return state === "in-doubt" && (detail === "held" || detail === "again") ? detail : state;
}

function states(record, items, what, none) {
  return items?.length
    ? h("ul", { class: "states" }, items.map((each) => h("li", {}, what(each), stateBadge(atSubscription(each)),
        each.since_s == null ? null : h("span", { class: "small quiet" }, "for ", age(since(record, each.since_s))))))
    : h("p", { class: "quiet" }, none);
}

/** The rules that the delivery met at all routers, in the order of time; nothing where none was traced. */
function lifePanel(records) {
  const steps = records.flatMap((record) => alignedSteps(record, oldest(records[0])));
  if (!steps.length) {
    return null;
  }
  steps.sort((a, b) => b.at_s - a.at_s);
  const first = steps[0]?.at_s ?? 0;
  return h("section", { class: "panel", "aria-label": "Rules applied" },
    h("header", {}, h("h2", {}, "Rules applied"),
      h("span", { class: "quiet" }, "since ", age(now() - first), "; times of different routers agree to some milliseconds")),
    h("ol", { class: "rules" }, steps.map((each) => h("li", {},
      h("span", { class: "mono" }, `+${((first - each.at_s) * 1000).toFixed(0)} ms`), h("span", {}, each.router), h("b", {}, each.rule), h("span", { class: "name" }, each.text)))));
}

/** Where no rules are traced: last, for it is no part of the answer. */
function untraced(records) {
  const routers = records.filter((each) => each.rules_off).map((each) => each.router);
  return routers.length
    ? h("p", { class: "quiet small" }, `Rules are not traced at ${routers.join(", ")}, for that costs time with each message. An operator can switch it on for a while, under `,
        h("a", { href: "#/router" }, "Router"), ".")
    : null;
}

function oldest(record) {
  return record.rules?.length ? Math.max(...record.rules.map((each) => each.at_s)) : Infinity;
}

/** Each router counts back from its own answer. Nothing can happen to a delivery before its publisher's router has it. */
function alignedSteps(record, arrival) {
  const early = Math.max(0, oldest(record) - arrival);
  return (record.rules ?? []).map((each) => ({ ...each, at_s: each.at_s - early, router: record.router }));
}

function firstBytes(encoded) {
  if (encoded === null || encoded === undefined) {
    return null;
  }
  const raw = Uint8Array.from(atob(encoded), (char) => char.charCodeAt(0));
  const width = matchMedia("(max-width: 700px)").matches ? 8 : 16;
  const lines = [];
  for (let at = 0; at < raw.length; at += width) {
    const part = [...raw.slice(at, at + width)];
    const hex = part.map((byte) => byte.toString(16).padStart(2, "0")).join(" ");
    const text = part.map((byte) => (byte > 31 && byte < 127 ? String.fromCharCode(byte) : "·")).join("");
    lines.push(`${hex.padEnd(3 * width)} ${text}`);
  }
  return h("div", {}, h("h3", {}, "First bytes"),
    h("pre", { class: "dump", tabindex: "0", role: "group", "aria-label": "First bytes of the message" }, lines.join("\n")));
}
