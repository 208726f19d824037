// Plots of the last minutes, at most of an hour, from the gateway's own counts in intervals of ten seconds.

import { ask } from "./api.js";
import { byId, clock, h, number, seconds, setText, svg } from "./dom.js";
import { Polling } from "./polling.js";

const REFRESH = 5000;
const INTERVAL = 10;
// Minutes that a plot may show, and those between two marks; the gateway remembers no more than the last ones.
const RANGES = [[5, 1], [15, 5], [30, 10], [60, 15]];
const WIDTH = 640;
const HEIGHT = 170;
const LEFT = 84; // seven digits of the type for phones
const RIGHT = 6;
const BOTTOM = 32;
const TOP = 14;

// Per second; null for an interval that has not ended, of which it would be too low. The clock is the gateway's.
const per = (one, found, count) => (one.began + INTERVAL <= found.now ? count / INTERVAL : null);
const bad = (name) => name === "failed" || name === "rejected";
const counted = (interval, wanted) => Object.entries(interval.outcomes).reduce((sum, [name, count]) => sum + (wanted(name) ? count : 0), 0);
const rate = (value) => (value === 0 ? "0" : value >= 100 ? number(Math.round(value)) : value.toFixed(value >= 10 ? 1 : 2));

// Titles, and the series of each: name, value of an interval, format.
const CHARTS = [
  ["Requests per second", ["successful", (one, found) => per(one, found, counted(one, (name) => !bad(name))), rate], ["failed or rejected", (one, found) => per(one, found, counted(one, bad)), rate]],
  ["Requests in flight", ["maximum", (one) => one.in_flight, number]],
  ["Time to first token", ["median", (one, found) => quantile(one.first_token, found.first_token_buckets, 0.5), seconds], ["95 %", (one, found) => quantile(one.first_token, found.first_token_buckets, 0.95), seconds]],
  ["Time between tokens", ["median", (one, found) => quantile(one.gaps, found.gap_buckets, 0.5), seconds], ["99 %", (one, found) => quantile(one.gaps, found.gap_buckets, 0.99), seconds]],
  ["Output tokens per second", ["output", (one, found) => per(one, found, one.output_tokens), rate]],
  ["Input tokens per second", ["input", (one, found) => per(one, found, one.input_tokens), rate]],
];

export class Plots extends Polling {
  constructor() {
    super(REFRESH);
    this.found = null;
    this.moment = null; // the beginning of the interval whose values are shown; null for the last one
    this.charts = CHARTS.map(([title, ...series]) => new Chart(title, series, this));
    byId("range").addEventListener("change", () => this.draw());
  }

  async refresh() {
    try {
      this.found = await ask("api/plots");
      this.draw();
    } catch (error) {
      byId("charts").replaceChildren(h("p", { role: "alert" }, error.message));
    }
  }

  draw() {
    if (this.found === null) return;
    const now = Math.floor(this.found.now);
    const since = now - (this.found.intervals[0]?.began ?? now);
    this.minutes = Number(byId("range").value) || (RANGES.find(([minutes]) => minutes * 60 >= since) ?? RANGES.at(-1))[0];
    this.from = now - this.minutes * 60;
    this.until = now;
    this.intervals = this.found.intervals.filter((interval) => interval.began >= this.from);
    if (!this.intervals.some((interval) => interval.began === this.moment)) this.moment = null;
    if (byId("charts").childElementCount !== this.charts.length) byId("charts").replaceChildren(...this.charts.map((chart) => chart.card));
    for (const chart of this.charts) chart.draw();
    setText(byId("moment"), this.moment === null ? "" : `Values of ${clock(this.moment)}`);
  }

  // Shows the values of another interval: `by` further, or the one at a time.
  choose(by, time) {
    const { intervals } = this;
    if (intervals.length === 0) return;
    const at = this.moment === null ? intervals.length - 1 : intervals.findIndex((interval) => interval.began === this.moment);
    const wanted = time === undefined ? at + by : intervals.findLastIndex((interval) => interval.began <= time);
    const chosen = Math.max(0, Math.min(intervals.length - 1, wanted));
    this.moment = chosen === intervals.length - 1 && time === undefined ? null : intervals[chosen].began;
    this.draw();
  }
}

// A chart keeps its elements, and so the focus.
class Chart {
  constructor(title, series, plots) {
    this.title = title;
    this.series = series;
    this.plots = plots;
    this.picture = svg("svg", { class: "chart", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, "aria-hidden": "true" });
    this.values = series.map(() => h("b"));
    this.peaks = series.map(() => h("span"));
    this.slider = h("div", { class: "slider", role: "slider", tabindex: "0", "aria-label": title, "aria-valuemin": "0", onkeydown: (event) => this.press(event), onpointermove: (event) => this.point(event), onpointerleave: () => this.plots.choose(Infinity) }, this.picture);
    this.card = h("section", { class: "card", "aria-label": title }, h("h3", {}, title), this.slider,
      h("div", { class: "legend" }, series.map(([name], at) => h("span", { class: `c${at}` }, `${name} `, this.values[at], this.peaks[at]))));
  }

  press(event) {
    const by = { ArrowLeft: -1, ArrowRight: 1, PageUp: -6, PageDown: 6, Home: -Infinity, End: Infinity }[event.key];
    if (by === undefined) return;
    event.preventDefault();
    this.plots.choose(by);
  }

  point(event) {
    const box = this.picture.getBoundingClientRect();
    const { from, until } = this.plots;
    const share = ((event.clientX - box.x) * (WIDTH / box.width) - LEFT) / (WIDTH - LEFT - RIGHT);
    this.plots.choose(0, from + share * (until - from));
  }

  draw() {
    const { from, until, minutes, intervals, found, moment } = this.plots;
    const series = this.series.map(([name, value, format]) => ({ name, format, points: intervals.map((interval) => [interval.began, value(interval, found)]) }));
    const top = ceiling(Math.max(0, ...series.flatMap(({ points }) => points.map(([, value]) => value ?? 0))));
    const x = (time) => LEFT + ((time - from) / (until - from)) * (WIDTH - LEFT - RIGHT);
    const y = (value) => HEIGHT - BOTTOM - (value / top) * (HEIGHT - BOTTOM - TOP);
    const { format } = series[0];
    const grid = [0, top / 2, top].flatMap((value) => [svg("line", { class: "grid", x1: LEFT, x2: WIDTH - RIGHT, y1: y(value), y2: y(value) }), svg("text", { x: LEFT - 6, y: y(value) + 4, "text-anchor": "end" }, format(value))]);
    const [, step] = RANGES.find(([known]) => known === minutes);
    const marks = Array.from({ length: minutes / step + 1 }, (_, at) => at * step);
    const times = marks.map((ago) => svg("text", { x: x(until - ago * 60), y: HEIGHT - 5, "text-anchor": ago ? "middle" : "end" }, ago ? `−${ago} min` : "now"));
    const lines = series.map(({ points }, at) => svg("path", { class: `series c${at}`, d: path(points, x, y) }));
    const cursor = moment === null ? [] : [svg("line", { class: "cursor", x1: x(moment), x2: x(moment), y1: TOP, y2: HEIGHT - BOTTOM })];
    this.picture.replaceChildren(...grid, ...times, ...lines, ...cursor);
    const said = series.map(({ name, points, format: text }, at) => {
      setText(this.values[at], valueAt(points, moment, text));
      const peak = Math.max(...points.map(([, value]) => value ?? -Infinity));
      setText(this.peaks[at], peak > 0 ? `, peak ${text(peak)}` : "");
      return `${name} ${this.values[at].textContent}`;
    });
    const at = moment === null ? intervals.length - 1 : intervals.findIndex((interval) => interval.began === moment);
    this.slider.setAttribute("aria-valuemax", Math.max(0, intervals.length - 1));
    this.slider.setAttribute("aria-valuenow", Math.max(0, at));
    this.slider.setAttribute("aria-valuetext", `${moment === null ? "now" : clock(moment)}: ${said.join(", ")}`);
  }
}

// The value of a moment or, without one, the last one.
function valueAt(points, moment, format) {
  const found = moment === null ? points.findLast(([, value]) => value !== null) : points.find(([time]) => time === moment);
  return found && found[1] !== null ? format(found[1]) : "–";
}

// The value below which a share of what was counted lies, linear within a bucket; null if nothing was counted.
function quantile(counts, buckets, share) {
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
    text += `${joined ? "L" : "M"}${x(time).toFixed(1)} ${y(value).toFixed(1)}${joined ? "" : "h2"}`;
    before = time;
  }
  return text;
}

function ceiling(value) {
  if (value <= 0) return 1;
  const unit = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 5, 10].find((step) => step * unit >= value) * unit;
}
