// Charts over time, as SVG: stacked areas or lines, with a grid, units and the values under the
// pointer.

import { element, shape } from "./elements.js";
import { clock, shortened } from "./format.js";

const MARGIN = { left: 58, right: 8, top: 8, bottom: 22 };
// A gap between points that is longer than this interrupts the line.
const LONGEST_STEP_MS = 3500;

// The smallest of 1, 2 or 5 times a power of ten that is at least `value`.
function niceAbove(value) {
  if (!(value > 0)) return 1;
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 5, 10].find((factor) => factor * power >= value * 0.999) * power;
}

// The same for bytes, whose units are powers of 1024.
export function niceBytes(value) {
  let unit = 1;
  while (value / unit >= 1024) unit *= 1024;
  return niceAbove(value / unit) * unit;
}

export class Chart {
  // options: title, hint, unit(value) -> text, stacked, log, max(value) -> top of the axis, empty:
  // text for a chart without values.
  constructor(parent, options) {
    this.options = options;
    this.svg = shape("svg", { role: "img", "aria-label": `${options.title}: ${options.hint}` });
    this.tip = element("div", { className: "tip", hidden: true });
    parent.append(
      element("div", { className: "card-head" }, element("h2", { textContent: options.title }), element("p", { className: "hint", textContent: options.hint })),
      this.svg,
      this.tip,
    );
    this.parent = parent;
    this.at = null;
    this.svg.addEventListener("pointermove", (event) => this.point(event));
    this.svg.addEventListener("pointerdown", (event) => this.point(event));
    this.svg.addEventListener("pointerleave", () => this.point(null));
    new ResizeObserver(() => this.draw()).observe(this.svg);
  }

  // times: unix milliseconds, ascending. series: [{name, color, values, promise?}], with a value or
  // null for each time.
  show(times, series, from, to) {
    Object.assign(this, { times, series, from, to });
    this.draw();
  }

  draw() {
    if (this.times === undefined) return;
    const box = this.svg.getBoundingClientRect();
    if (box.width === 0) return;
    this.width = box.width;
    this.height = box.height;
    this.inner = { right: this.width - MARGIN.right, bottom: this.height - MARGIN.bottom };
    this.svg.setAttribute("viewBox", `0 0 ${this.width} ${this.height}`);
    this.svg.replaceChildren();
    this.x = (time) => MARGIN.left + ((time - this.from) / (this.to - this.from)) * (this.inner.right - MARGIN.left);
    const anything = this.series.some((one) => one.values.some((value) => value !== null && (value > 0 || !this.options.log)));
    this.scale();
    this.drawAxes();
    if (!anything) {
      this.svg.append(shape("text", { class: "nothing", x: (MARGIN.left + this.inner.right) / 2, y: this.height / 2 - 4 }, this.options.empty));
    } else if (this.options.stacked) {
      this.drawAreas();
    } else {
      this.drawLines();
    }
    this.drawPointed();
  }

  scale() {
    const { log, stacked } = this.options;
    let least = Infinity;
    let max = 0;
    for (let i = 0; i < this.times.length; ++i) {
      if (this.times[i] < this.from) continue;
      let sum = 0;
      for (const one of this.series) {
        const value = one.values[i];
        if (value === null) continue;
        sum = stacked ? sum + value : Math.max(sum, value);
        if (value > 0) least = Math.min(least, value);
      }
      max = Math.max(max, sum);
    }
    for (const one of this.series) if (one.promise) max = Math.max(max, one.promise);
    const span = this.inner.bottom - MARGIN.top;
    this.ticks = [];
    if (log) {
      const low = Math.floor(Math.log10(least === Infinity ? 0.1 : least));
      const high = Math.max(low + 1, Math.ceil(Math.log10(max > 0 ? max : 1)));
      this.y = (value) => this.inner.bottom - ((Math.log10(Math.max(value, 10 ** low)) - low) / (high - low)) * span;
      const step = Math.max(1, Math.ceil((high - low) / 5));
      for (let power = low; power <= high; power += step) this.ticks.push(10 ** power);
    } else {
      const top = (this.options.max ?? niceAbove)(max);
      this.y = (value) => this.inner.bottom - (Math.min(value, top) / top) * span;
      for (let i = 0; i <= 4; ++i) this.ticks.push((top / 4) * i);
    }
  }

  drawAxes() {
    for (const [i, tick] of this.ticks.entries()) {
      const y = this.y(tick);
      this.svg.append(
        shape("line", { class: i === 0 ? "base" : "grid", x1: MARGIN.left, x2: this.inner.right, y1: y, y2: y }),
        shape("text", { x: MARGIN.left - 8, y: y + 4, "text-anchor": "end" }, this.options.unit(tick)),
      );
    }
    const minutes = (this.to - this.from) / 60000;
    const steps = minutes <= 1 ? 4 : 5;
    const every = this.width < 420 ? 2 : 1;
    for (let i = 0; i <= steps; ++i) {
      if (i % every !== 0 && i !== steps) continue;
      const ago = (minutes / steps) * (steps - i);
      const text = ago === 0 ? "now" : minutes <= 1 ? `−${Math.round(ago * 60)} s` : `−${ago} min`;
      const anchor = i === 0 ? "start" : i === steps ? "end" : "middle";
      const x = this.x(this.to - ago * 60000);
      this.svg.append(shape("text", { x, y: this.height - 5, "text-anchor": anchor }, text));
    }
  }

  // Returns the runs of points without a gap between them, as [first, last] positions.
  runs(values) {
    const runs = [];
    let begin = -1;
    for (let i = 0; i < this.times.length; ++i) {
      const there = this.times[i] >= this.from && values[i] !== null;
      const hole = i > 0 && this.times[i] - this.times[i - 1] > LONGEST_STEP_MS;
      if (begin >= 0 && (!there || hole)) {
        runs.push([begin, i - 1]);
        begin = -1;
      }
      if (there && begin < 0) begin = i;
    }
    if (begin >= 0) runs.push([begin, this.times.length - 1]);
    return runs;
  }

  drawAreas() {
    const below = this.times.map(() => 0);
    for (const one of this.series) {
      const above = below.map((value, i) => value + (one.values[i] ?? 0));
      for (const [first, last] of this.runs(this.times.map(() => 0))) {
        const edge = (heights, i) => `${this.x(this.times[i]).toFixed(1)} ${this.y(heights[i]).toFixed(1)}`;
        const parts = [];
        for (let i = first; i <= last; ++i) parts.push(edge(above, i));
        for (let i = last; i >= first; --i) parts.push(edge(below, i));
        this.svg.append(shape("path", { class: "area", color: one.color, d: `M${parts.join("L")}Z` }));
      }
      above.forEach((value, i) => {
        below[i] = value;
      });
    }
  }

  drawLines() {
    for (const one of this.series) {
      if (one.promise) {
        const y = this.y(one.promise);
        this.svg.append(shape("line", { class: "promise", color: one.color, x1: MARGIN.left, x2: this.inner.right, y1: y, y2: y }));
      }
      for (const [first, last] of this.runs(one.values)) {
        const parts = [];
        for (let i = first; i <= last; ++i) parts.push(`${this.x(this.times[i]).toFixed(1)} ${this.y(one.values[i]).toFixed(1)}`);
        if (first === last) parts.push(parts[0]);
        this.svg.append(shape("path", { class: "line", color: one.color, d: `M${parts.join("L")}` }));
      }
    }
  }

  point(event) {
    this.at = event === null ? null : event.clientX - this.svg.getBoundingClientRect().left;
    this.draw();
  }

  drawPointed() {
    this.tip.hidden = true;
    if (this.at === null || this.times.length === 0) return;
    let nearest = -1;
    for (let i = 0; i < this.times.length; ++i) {
      if (this.times[i] < this.from) continue;
      if (nearest < 0 || Math.abs(this.x(this.times[i]) - this.at) < Math.abs(this.x(this.times[nearest]) - this.at)) nearest = i;
    }
    if (nearest < 0) return;
    const x = this.x(this.times[nearest]);
    this.svg.append(shape("line", { class: "cross", x1: x, x2: x, y1: MARGIN.top, y2: this.inner.bottom }));
    this.tip.replaceChildren(element("p", { textContent: clock(this.times[nearest]) }));
    for (const one of this.series) {
      const value = one.values[nearest];
      if (value === null) continue;
      const dot = element("span", { className: "dot", style: { background: one.color } });
      this.tip.append(
        element("div", {}, element("span", { className: "who" }, dot, shortened(one.name, 28)), element("span", { textContent: this.options.unit(value) })),
      );
    }
    this.tip.hidden = false;
    const left = Math.min(Math.max(x + 14, 0), this.parent.clientWidth - this.tip.offsetWidth - 6);
    this.tip.style.left = `${x + 14 + this.tip.offsetWidth > this.parent.clientWidth ? Math.max(6, x - this.tip.offsetWidth) : left}px`;
    this.tip.style.top = "46px";
  }
}
