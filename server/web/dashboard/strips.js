// Shows to which SMs each tenant's work went, over time: one strip for each tenant on each device
// that it used. Time runs from left to right and SMs from bottom to top. The colour is the
// stronger, the more work the tenant did.

import { element, shape } from "./elements.js";
import { shortened } from "./format.js";

const ROW = 44;
const GAP = 8;
const LEFT = 122, WIDE_LEFT = 190; // for the names; WIDE_LEFT on wide pages
const WIDE = 600;
const SCALE = 52; // the part of it that the dot and the scale take
const LETTER = 7;
const RIGHT = 8;
const LEAST = 0.22;

export class Strips {
  constructor(parent) {
    this.parent = parent;
    this.svg = shape("svg", { role: "img", "aria-label": "Partitions over time, by tenant" });
    this.empty = element("p", { className: "empty", textContent: "No session had work in this time." });
    parent.append(this.svg, this.empty);
    new ResizeObserver(() => this.draw()).observe(parent);
  }

  // points: as in the history. names: the tenants to show. sms: the number of SMs of each device.
  show(points, names, colorOf, sms, from, to) {
    Object.assign(this, { points: points.filter((point) => point.unix_ms >= from), names, colorOf, sms, from, to });
    this.draw();
  }

  draw() {
    if (this.points === undefined) return;
    const width = this.parent.clientWidth;
    const left = width < WIDE ? LEFT : WIDE_LEFT;
    const isOn = (name, device) => this.points.some((point) => point.tenants[name]?.ranges.some((range) => range[0] === device));
    const rows = this.names.flatMap((name) => this.sms.map((_, device) => ({ name, device })).filter((row) => isOn(row.name, row.device)));
    this.empty.hidden = rows.length > 0;
    this.svg.style.display = rows.length > 0 ? "block" : "none";
    const height = rows.length * (ROW + GAP) + 18;
    this.svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
    this.svg.style.height = `${height}px`;
    this.svg.replaceChildren();
    if (width === 0 || rows.length === 0) return;
    const x = (time) => left + ((time - this.from) / (this.to - this.from)) * (width - left - RIGHT);
    rows.forEach(({ name, device }, row) => this.drawRow(name, device, row * (ROW + GAP), x, left, width));
    const minutes = (this.to - this.from) / 60000;
    this.svg.append(
      shape("text", { x: left, y: height - 3 }, minutes <= 1 ? `−${Math.round(minutes * 60)} s` : `−${minutes} min`),
      shape("text", { x: width - RIGHT, y: height - 3, "text-anchor": "end" }, "now"),
    );
  }

  drawRow(name, device, top, x, left, width) {
    const sms = this.sms[device];
    const all = this.sms.reduce((sum, one) => sum + one, 0);
    const title = shape("text", { class: "name", x: 16, y: top + 11.5 }, shortened(name, Math.floor((left - SCALE) / LETTER)));
    title.append(shape("title", {}, name));
    if (this.sms.length > 1) this.svg.append(shape("text", { x: 16, y: top + 25 }, `GPU ${device}`));
    this.svg.append(
      shape("rect", { class: "track", x: left, y: top, width: width - left - RIGHT, height: ROW, rx: 4 }),
      shape("rect", { class: "area", color: this.colorOf(name), x: 0, y: top + 2, width: 10, height: 10, rx: 3 }),
      title,
      shape("text", { x: left - 6, y: top + 10, "text-anchor": "end" }, String(sms - 1)),
      shape("text", { x: left - 6, y: top + ROW, "text-anchor": "end" }, "0"),
    );
    const y = (sm) => top + ROW - (sm / sms) * ROW;
    // One rectangle stands for a run of points with the same ranges and about the same work.
    let run = null;
    const close = () => {
      for (const [, first, count] of run?.ranges ?? []) {
        this.svg.append(shape("rect", {
          class: "area", color: this.colorOf(name), x: x(run.from).toFixed(1), width: Math.max(0.8, x(run.to) - x(run.from) + 0.3).toFixed(1),
          y: y(first + count).toFixed(1), height: (y(first) - y(first + count)).toFixed(1), "fill-opacity": (LEAST + (1 - LEAST) * run.level).toFixed(2),
        }));
      }
      run = null;
    };
    for (const point of this.points) {
      const one = point.tenants[name];
      const begin = Math.max(this.from, point.unix_ms - point.seconds * 1000);
      const ranges = (one?.ranges ?? []).filter((range) => range[0] === device);
      // The amount of work is known only for all devices together.
      const has = (one?.ranges ?? []).reduce((sum, [, , count]) => sum + count, 0) / all;
      const level = has === 0 ? 0 : Math.round(Math.min(1, one.sms / has) * 8) / 8;
      const key = JSON.stringify([ranges, level]);
      if (run !== null && (run.key !== key || begin - run.to > 1500)) close();
      if (ranges.length === 0) continue;
      run ??= { key, ranges, level, from: begin };
      run.to = point.unix_ms;
    }
    close();
  }
}
