// The items of a conversation as readable blocks: reasoning, text, calls and their results.

import { h, number } from "./dom.js";

// Fields of an item beside its text, in the order in which they are shown.
const FIELDS = ["arguments", "input", "action", "code", "queries", "output", "outputs", "results", "error"];
// Fields of items that are shown otherwise, or say nothing to a reader.
const KNOWN = new Set([...FIELDS, "id", "type", "status", "role", "name", "namespace", "server_label", "call_id", "content", "summary", "so_far", "encrypted_content", "phase"]);

// Characters of a field that is not shown at once.
const LONG = 2000;

export function itemBlocks(items) {
  return items.map(block);
}

// The items of a stream while they come, each shown in an element of its own. `items` are those of the response at its end.
export class LiveItems {
  constructor(element) {
    this.element = element;
    this.items = [];
    this.blocks = [];
    this.changed = new Set();
  }

  take(event) {
    const place = event.output_index;
    if (event.type === "response.output_item.added" || event.type === "response.output_item.done") this.items[place] = event.item;
    else if (event.type.endsWith(".delta") && !event.type.includes("summary") && this.items[place]) this.items[place].so_far = (this.items[place].so_far ?? "") + event.delta;
    else return;
    if (this.changed.size === 0) requestAnimationFrame(() => this.draw());
    this.changed.add(place);
  }

  draw() {
    for (const place of this.changed) {
      const made = block(this.items[place]);
      if (this.blocks[place]) this.blocks[place].replaceWith(made);
      else this.element.append(made);
      this.blocks[place] = made;
    }
    this.changed.clear();
  }
}

// What is there of an item; while it is open, that is what has come so far.
function block(item) {
  const name = [item.server_label ?? item.namespace, item.name].filter(Boolean).join(" · ");
  const open = item.status === "in_progress";
  const fields = FIELDS.filter((field) => !isEmpty(item[field])).map((field) => [field, readable(item[field])]);
  const rest = Object.fromEntries(Object.entries(item).filter(([field, value]) => !KNOWN.has(field) && !isEmpty(value)));
  const texts = [...(item.summary ?? []), ...(Array.isArray(item.content) ? item.content : [])].map(textOf);
  const text = item.so_far ?? (typeof item.content === "string" ? item.content : shownOnce(texts).join("\n\n"));
  return h("section", { class: `block ${item.type ?? "message"}${open ? " open" : ""}` },
    h("h4", {}, h("span", { class: "kind" }, kindOf(item)), name ? h("span", { class: "mono" }, name) : "", item.status && item.status !== "completed" ? h("span", { class: "totals" }, item.status) : ""),
    text ? h("div", { class: "prose" }, text) : "",
    fields.map(([field, value]) => fieldBlock(field, value)),
    Object.keys(rest).length ? fieldBlock("more", readable(rest)) : "");
}

function fieldBlock(name, value) {
  const long = value.length > LONG;
  return h("details", { class: "field", open: !long }, h("summary", { class: "totals" }, long ? `${name}, ${number(value.length)} characters` : name), h("pre", {}, value));
}

function kindOf(item) {
  const type = item.type ?? "message";
  return type === "message" && item.role && item.role !== "assistant" ? item.role : type.replaceAll("_", " ");
}

function textOf(part) {
  return part.text ?? part.refusal ?? part.transcript ?? JSON.stringify(part);
}

// Reasoning is often its own summary.
function shownOnce(texts) {
  return [...new Set(texts.filter(Boolean))];
}

function isEmpty(value) {
  return value === undefined || value === null || value === "" || (Array.isArray(value) && value.length === 0);
}

// JSON in a text is indented; all else stays as it is, numbers too, of which JavaScript knows no more than 17 digits. (Old browsers
// do not tell how a number is written.)
const asWritten = (_, value, context) => (typeof value === "number" && context?.source ? JSON.rawJSON(context.source) : value);

function readable(value) {
  if (typeof value !== "string") return JSON.stringify(value, null, 1);
  try {
    const parsed = JSON.parse(value, asWritten);
    return typeof parsed === "object" && parsed !== null ? JSON.stringify(parsed, null, 1) : value;
  } catch {
    return value;
  }
}
