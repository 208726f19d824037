// Plots of the last hour, from the gateway's own counts in intervals of ten seconds.

import { ask } from "./api.js";
import { byId, h, number, seconds, svg } from "./dom.js";

const REFRESH = 5000;
const INTERVAL = 10;
const HOUR = 3600;
const WIDTH = 640;
const HEIGHT = 170;
const LEFT = 46;
const BOTTOM = 20;
const TOP = 8;

export class Plots {
  constructor() {
    this.timer = null;
  }

  show() {
    if (this.timer === null) this.load();
  }

  hide() {
    clearTimeout(this.timer);
    this.timer = null;
  }

  async load() {
    this.timer = setTimeout(() => this.load(), REFRESH);
    try {
      draw(await ask("api/plots"), Math.floor(Date.now() / 1000));
    } catch (error) {
      byId("charts").replaceChildren(h("p", { role: "alert" }, error.message));
    }
  }
}

function draw(found, now) {
  const { intervals } = found;
  const per = (count) => count / INTERVAL;
  const outcomes = (interval, wanted) => Object.entries(interval.outcomes).reduce((sum, [name, count]) => sum + (wanted(name) ? count : 0), 0);
  const bad = (name) => name === "failed" || name === "rejected";
  const series = (name, value, format) => ({ name, format, points: intervals.map((interval) => [interval.began, value(interval)]) });
  const first = found.first_token_buckets;
  const gaps = found.gap_buckets;
  byId("charts").replaceChildren(
    chart("Requests per second", now, [series("successful", (one) => per(outcomes(one, (name) => !bad(name))), rate), series("failed or rejected", (one) => per(outcomes(one, bad)), rate)]),
    chart("Requests in flight", now, [series("maximum", (one) => one.in_flight, number)]),
    chart("Time to first token", now, [series("median", (one) => quantile(one.first_token, first, 0.5), seconds), series("95 %", (one) => quantile(one.first_token, first, 0.95), seconds)]),
    chart("Time between tokens", now, [series("median", (one) => quantile(one.gaps, gaps, 0.5), seconds), series("99 %", (one) => quantile(one.gaps, gaps, 0.99), seconds)]),
    chart("Output tokens per second", now, [series("output", (one) => per(one.output_tokens), rate)]),
    chart("Input tokens per second", now, [series("input", (one) => per(one.input_tokens), rate)]),
  );
}

const rate = (value) => (value >= 100 ? number(Math.round(value)) : value.toFixed(value >= 10 ? 1 : 2));

// The value below which a share of what was counted lies, linear within a bucket; null if nothing was counted.
export function quantile(counts, buckets, share) {
  const total = counts.reduce((sum, count) => sum + count, 0);
  if (total === 0) return null;
  let left = share * total;
  for (let at = 0; at < counts.length; at += 1) {
    if (left <= counts[at] && counts[at] > 0) {
      const low = at === 0 ? 0 : buckets[at - 1];
      const high = at < buckets.length ? buckets[at] : low;
      return low + (high - low) * (left / counts[at]);
    }
    left -= counts[at];
  }
  return buckets.at(-1);
}

function chart(title, now, all) {
  const values = all.flatMap(({ points }) => points.map(([, value]) => value ?? 0));
  const top = ceiling(Math.max(0, ...values));
  const x = (time) => LEFT + ((time - (now - HOUR)) / HOUR) * (WIDTH - LEFT - 6);
  const y = (value) => HEIGHT - BOTTOM - (value / top) * (HEIGHT - BOTTOM - TOP);
  const format = all[0].format;
  const grid = [0, top / 2, top].flatMap((value) => [svg("line", { class: "grid", x1: LEFT, x2: WIDTH - 6, y1: y(value), y2: y(value) }), svg("text", { x: LEFT - 6, y: y(value) + 4, "text-anchor": "end" }, format(value))]);
  const times = [60, 45, 30, 15, 0].map((minutes) => svg("text", { x: x(now - minutes * 60), y: HEIGHT - 5, "text-anchor": minutes === 60 ? "start" : minutes ? "middle" : "end" }, minutes ? `−${minutes} min` : "now"));
  const lines = all.map(({ points }, at) => svg("path", { class: `series c${at}`, d: path(points, x, y) }));
  const now_ = all.map(({ name, points, format: text }) => `${name} ${shown(points, text)}`);
  return h("section", { class: "card" }, h("h3", {}, title),
    svg("svg", { class: "chart", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": `${title}: ${now_.join(", ")}` }, grid, times, lines),
    h("div", { class: "legend" }, all.map(({ name, points, format: text }, at) => h("span", { class: `c${at}` }, `${name} `, h("b", {}, shown(points, text))))));
}

function shown(points, format) {
  const last = points.findLast(([, value]) => value !== null);
  return last ? format(last[1]) : "–";
}

// A line through the points; where an interval is missing, nothing happened in it.
function path(points, x, y) {
  let text = "";
  let before = null;
  for (const [time, value] of points) {
    if (value === null) {
      before = null;
      continue;
    }
    const joined = before !== null && time - before <= 2 * INTERVAL;
    text += `${joined ? "L" : "M"}${x(time).toFixed(1)} ${y(value).toFixed(1)}${joined ? "" : "h1"}`;
    before = time;
  }
  return text;
}

function ceiling(value) {
  if (value <= 0) return 1;
  const unit = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 5, 10].find((step) => step * unit >= value) * unit;
}
