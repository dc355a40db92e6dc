// What operators may change. Each action says beforehand what it does to deliveries, and afterwards what happened.

import { button, fill, h, speak } from "./dom.js";
import { counted, number } from "./format.js";

/** The words of an error: what, and what to do. */
export function problem(error) {
  return h("p", { class: "problem" }, h("b", {}, error.message), error.fix ?? "");
}

const NAMED = 5;

/** The routers that could not be asked, [{router, why}], those with the same reason together; nothing without any. */
export function notAsked(missing) {
  const reasons = new Map();
  missing.forEach(({ router, why }) => reasons.set(why, [...(reasons.get(why) ?? []), router]));
  const named = (routers) => routers.slice(0, NAMED).join(", ") + (routers.length > NAMED ? ` and ${number(routers.length - NAMED)} more` : "");
  return missing.length
    ? h("div", { class: "problem" }, h("b", {}, `${counted(missing.length, "router")} could not be asked: what only they know is missing here.`),
        [...reasons].map(([why, routers]) => h("p", {}, `${named(routers)}: ${why}`)))
    : null;
}

/**
 * A dialog that asks before it does. `fields`: form fields [{name, label, value, choices | type, ...attributes}];
 * `run(values)` does it and returns what to say afterwards (text or nodes; null closes the dialog), or throws an ApiError.
 */
export function confirm({ title, says, fields = [], verb, danger = false, run }) {
  const inputs = new Map(fields.map((field) => [field.name, inputOf(field)]));
  const result = h("div", { role: "status" });
  const cancel = button("Cancel", () => dialog.close());
  const go = h("button", { type: "submit", class: `button main${danger ? " danger" : ""}` }, verb);
  const form = h("form", {
    on: {
      submit: async (event) => {
        event.preventDefault();
        go.disabled = true;
        fill(result, h("p", { class: "quiet" }, "Asking the router …"));
        try {
          const said = await run(Object.fromEntries([...inputs].map(([name, input]) => [name, input.value])));
          if (said === null) {
            dialog.close();
            return;
          }
          fill(result, typeof said === "string" ? h("p", { class: "note good" }, said) : said);
          speak(typeof said === "string" ? said : "Done.");
          go.hidden = true;
          cancel.textContent = "Close";
          cancel.focus();
        } catch (error) {
          fill(result, problem(error));
          go.disabled = false;
        }
      },
    },
  },
    h("h2", {}, title),
    h("ul", { class: "plain" }, says.map((line) => h("li", {}, line))),
    fields.map((field) => h("label", { class: "field" }, h("span", {}, field.label), inputs.get(field.name))),
    result,
    h("div", { class: "end" }, cancel, go));
  const dialog = open(title, form);
  (inputs.values().next().value ?? cancel).focus();
}

/** A modal dialog that leaves the page when it is closed; focus goes back by itself. */
export function open(title, content) {
  const dialog = h("dialog", { "aria-label": title, on: { close: () => dialog.remove() } }, content);
  dialog.addEventListener("click", (event) => event.target === dialog && dialog.close());
  document.body.append(dialog);
  dialog.showModal();
  return dialog;
}

function inputOf({ name, value, choices, label: _label, ...attributes }) {
  if (choices) {
    const select = h("select", { name }, choices.map((each) => h("option", { value: each }, each)));
    select.value = value;
    return select;
  }
  const tag = attributes.type === "textarea" ? "textarea" : "input";
  const input = h(tag, { name, type: "text", required: true, autocomplete: "off", ...attributes });
  input.value = value ?? "";
  return input;
}
