// What operators may change from the page. What an operation means, and does to deliveries, is said by the router's own
// management schema, which its reference page and command line are made from, too.

import { change, get } from "./api.js";
import { confirm, open, problem } from "./actions.js";
import { button, h } from "./dom.js";
import { duration, number } from "./format.js";

const AWAY = new Set(["detached", "orphaned"]);
const NOT_TOUCHED = "Deliveries are not touched.";

export class Operations {
  constructor(page) {
    this._page = page;
    this._schema = null;
  }

  /** The role that ending this subscription takes: letting one go that is away is less than taking it from its client. */
  endingNeeds(item) {
    return AWAY.has(item.state) ? "operator" : "admin";
  }

  /** Ends a subscription: `item` has name and state, and perhaps the epoch it was shown with. */
  endSubscription(item) {
    const isAway = AWAY.has(item.state);
    return this._prepare(async (schema) => {
      const { subscription } = schema.types;
      const operation = isAway ? subscription.operations.find((each) => each.name === "expire") : subscription.delete;
      const epoch = item.epoch ?? (await get(["management", "subscription", item.key])).epoch;
      confirm({
        title: `End the subscription ${item.name}?`,
        says: [
          isAway ? "Its client is disconnected: it ends now instead of at its time-out." : "It ends although its client may be attached and working.",
          plainly(operation.deliveries),
          "Publishers that wait for it go on.",
        ],
        verb: "End it",
        danger: true,
        run: async () => {
          await (isAway
            ? change("POST", ["management", "subscription", item.key, "expire"], { epoch })
            : change("DELETE", ["management", "subscription", item.key], { epoch }));
          return `The subscription ${item.name} has ended.`;
        },
      });
    });
  }

  closeConnection(item) {
    return this._prepare((schema) => {
      const operation = operationOf(schema, "connection", "close");
      confirm({
        title: `Close the connection of ${item.container_id}?`,
        says: [plainly(operation.meaning), plainly(operation.deliveries)],
        verb: "Close it",
        danger: true,
        run: async () => {
          await change("POST", ["management", "connection", item.peer, "close"]);
          return "The connection is closed.";
        },
      });
    });
  }

  linkCost(link) {
    return this._prepare((schema) => {
      const { low, high, meaning } = attributeOf(schema, "link", "cost");
      confirm({
        title: `Cost of the link from ${link.from} to ${link.to}`,
        says: [plainly(meaning).replace("null =", "empty ="), "The next messages may take another path. None is lost, duplicated or reordered."],
        fields: [{ name: "cost", label: `Cost, ${low} to ${high}; empty = as the settings say`, type: "number", min: low, max: high, step: 1, required: false, value: link.cost }],
        verb: "Change it",
        run: async ({ cost }) => {
          const changed = await change("PUT", ["management", "link", link.key], { cost: cost === "" ? null : Number(cost) });
          return `From ${link.from} to ${link.to} it costs ${number(changed.cost)} now.`;
        },
      });
    });
  }

  /** Publishes a test message and shows what becomes of it; without a topic the dialog asks for one. */
  publishTest(topic = null) {
    return this._prepare((schema) => {
      const operation = operationOf(schema, "topic", "publish");
      confirm({
        title: topic === null ? "Publish a test message" : `Publish a test message to ${topic}`,
        says: [firstSentences(operation.meaning, 2), plainly(operation.deliveries)],
        fields: [
          ...(topic === null ? [{ name: "topic", label: "Topic" }] : []),
          { name: "body", label: "Text", type: "textarea", rows: 3, maxlength: 4096, value: "A test message of the inspector" },
        ],
        verb: "Publish it",
        run: async (given) => {
          const answer = await change("POST", ["management", "topic", topic ?? given.topic, "publish"], { body: given.body });
          this._page.trial = answer;
          location.hash = `#/delivery/${answer.tag}`;
          return null;
        },
      });
    });
  }

  logLevel() {
    return this._prepare(async (schema) => {
      const { choices, meaning } = attributeOf(schema, "log", "level");
      const { level: current } = await get(["management", "log", "router"]);
      confirm({
        title: "Log level of this router",
        says: [plainly(meaning), NOT_TOUCHED],
        fields: [{ name: "level", label: "Level", value: current, choices }],
        verb: "Set it",
        run: async ({ level }) => {
          const changed = await change("PUT", ["management", "log", "router"], { level });
          return `The log level is ${changed.level} now.`;
        },
      });
    });
  }

  trace() {
    return this._prepare((schema) => {
      const operation = operationOf(schema, "router", "trace");
      confirm({
        title: "Trace deliveries",
        says: [plainly(operation.meaning), plainly(operation.deliveries), "The rules are shown with a delivery's record, under Delivery."],
        fields: [
          { name: "trace", label: "Tracing at this router", value: "on", choices: ["on", "off"] },
          { name: "topic", label: "Only this topic (empty = all)", required: false },
        ],
        verb: "Set it",
        run: async ({ trace, topic }) => {
          const asked = trace === "on" ? { on: true, ...(topic ? { topics: [topic] } : {}) } : { on: false };
          const answer = await this._atRouter("trace", asked);
          return answer.on ? `Deliveries are traced for ${duration(answer.left_s)}.` : "Nothing is traced any more.";
        },
      });
    });
  }

  reload() {
    return this._prepare((schema) => {
      const operation = operationOf(schema, "router", "reload");
      confirm({
        title: "Load the settings again?",
        says: [plainly(operation.meaning), `Deliveries: ${plainly(operation.deliveries)}`],
        verb: "Load them",
        run: async () => reloaded(await this._atRouter("reload")),
      });
    });
  }

  drain(overview) {
    return this._prepare((schema) => {
      const operation = operationOf(schema, "router", "drain");
      confirm({
        title: `Drain and stop router ${overview.router}?`,
        says: [plainly(operation.meaning), plainly(operation.deliveries), "This page ends with the router: open it at another one."],
        verb: "Drain and stop",
        danger: true,
        run: async () => {
          const { draining } = await this._atRouter("drain");
          return `Router ${overview.router} drains, for ${duration(draining.left_s)} at most.`;
        },
      });
    });
  }

  _atRouter(operation, given) {
    return change("POST", ["management", "router", this._page.store.overview?.router ?? "", operation], given);
  }

  /** Asks for the schema once, then goes on; what is refused is shown. */
  async _prepare(next) {
    try {
      this._schema ??= await get(["management", "schema"]);
      await next(this._schema);
    } catch (error) {
      if (error.status === undefined) {
        throw error;
      }
      const dialog = open("It cannot be done", h("form", { on: { submit: (event) => event.preventDefault() } },
        h("h2", {}, "It cannot be done"), problem(error), h("div", { class: "end" }, button("Close", () => dialog.close()))));
    }
  }
}

/** The schema's words without what only programs and readers of the protocol need: fields of answers, names of rules. */
function plainly(text) {
  return text.split(/(?<=\.) /).filter((sentence) => !sentence.startsWith("The answer")).join(" ").replace(/ \([A-Z]+-\d+[a-z]?\)/g, "");
}

function firstSentences(text, count) {
  return text.split(/(?<=\.) /).slice(0, count).join(" ");
}

function operationOf(schema, type, name) {
  return schema.types[type].operations.find((each) => each.name === name);
}

function attributeOf(schema, type, name) {
  return schema.types[type].attributes.find((each) => each.name === name);
}

function reloaded({ changed, needs_restart: later }) {
  const list = (title, settings) => (settings.length ? [h("h3", {}, title), h("ul", { class: "plain" }, settings.map((each) => h("li", {}, each)))] : null);
  return h("div", { class: "stack" },
    changed.length || later.length ? null : h("p", { class: "note good" }, "Nothing has changed."),
    list("Holds now", changed), list("Needs a restart", later));
}
