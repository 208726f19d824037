// Elements, made of plain values. Texts become text nodes only, without characters that deceive: texts of models and clients are
// untrusted.

export function h(name, attributes = {}, ...children) {
  return fill(document.createElement(name), attributes, children);
}

export function svg(name, attributes = {}, ...children) {
  return fill(document.createElementNS("http://www.w3.org/2000/svg", name), attributes, children);
}

// Characters that reorder, hide or break what stands around them.
const DECEIVING = /[\u0000-\u0008\u000b\u000c\u000e-\u001f\u007f-\u009f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u2069\ufeff]/g;

const codeOf = (character) => character.charCodeAt(0).toString(16).toUpperCase().padStart(4, "0");

// Shows such characters by their numbers.
export function legible(text) {
  return text.replace(DECEIVING, (character) => `⟨U+${codeOf(character)}⟩`);
}

// The same within JSON, of which it does not change the meaning.
export function escaped(json) {
  return json.replace(DECEIVING, (character) => `\\u${codeOf(character)}`);
}

export const byId = (id) => document.getElementById(id);

export function setText(element, text) {
  const shown = legible(String(text));
  if (element.textContent !== shown) element.textContent = shown;
}

export function seconds(value) {
  if (value === undefined || value === null) return "";
  if (value < 1) return `${Math.round(value * 1000)} ms`;
  if (value < 100) return `${value.toFixed(value < 10 ? 2 : 1)} s`;
  const whole = Math.round(value);
  return `${Math.floor(whole / 60)} min ${whole % 60} s`;
}

export function number(value) {
  return value === undefined || value === null ? "" : value.toLocaleString("en");
}

// The time of day, with the day if it is not today.
export function clock(time) {
  const date = new Date(time * 1000);
  const day = date.toDateString() === new Date().toDateString() ? "" : `${date.toLocaleDateString("en-GB", { day: "numeric", month: "short" })} `;
  return day + date.toLocaleTimeString("en-GB");
}

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value !== undefined && value !== null && value !== false) element.setAttribute(name, value === true ? "" : legible(String(value)));
  }
  const shown = children.flat().filter((child) => child !== undefined && child !== null && child !== "");
  element.append(...shown.map((child) => (child instanceof Node ? child : legible(String(child)))));
  return element;
}
