// Line plots in SVG.
//
// A plot is {title, x, y, lines, marks?, log?, range?}: x and y are labels with their units. A line is {key, label,
// colour, dash, points, smooth?, dots?, best?, cut?, faint?}; a point is {x, y, lo?, hi?}, with lo and hi if it stands
// for several values. smooth: draws a running mean over the faint values; the last value is drawn as it is. dots: draws
// a dot for each point. best: index of the point to circle. cut: values above it do not scale the axis; the line leaves
// the plot at the top, with a mark. A mark is {x, text}, a vertical line.
//
// Plots of one group share the range of x, the cursor, and which lines are hidden.

const DASHES = ["", "7 4", "2 3", "10 3 2 3", "4 2", "12 4", "1 4", "6 2 1 2 1 2"];

function lineStyle(i) { return {colour: `var(--c${i % 8})`, dash: DASHES[i % DASHES.length]}; }

function newGroup() { return {plots: [], hidden: new Set(), zoom: null, legends: []}; }

const allPlots = [];

function redraw(group) {
  for (const plot of group.plots) plot.draw();
  for (const legend of group.legends) legend();
}

// ---- scales -----------------------------------------------------------------------------------------------------------

// About n round numbers from a to b.
function ticks(a, b, n) {
  const raw = (b - a) / Math.max(n, 1), power = 10 ** Math.floor(Math.log10(raw)), f = raw / power;
  const step = power * (f <= 1 ? 1 : f <= 2 ? 2 : f <= 5 ? 5 : 10), list = [];
  for (let i = Math.ceil(a / step - 1e-9); i * step <= b + step * 1e-9; i++) list.push(Number((i * step).toPrecision(12)));
  return list;
}

function logTicks(a, b, n) {
  const from = Math.floor(Math.log10(a)), to = Math.ceil(Math.log10(b)), list = [];
  const every = Math.max(1, Math.ceil((to - from) / n)), factors = to - from <= 2 ? [1, 2, 5] : [1];
  for (let e = from; e <= to; e++)
    if ((e - from) % every === 0)
      for (const f of factors) if (f * 10 ** e >= a * (1 - 1e-9) && f * 10 ** e <= b * (1 + 1e-9)) list.push(f * 10 ** e);
  return list.length > 1 ? list : [a, b];
}

function linear(a, b, from, to) { return v => from + (v - a) / (b - a) * (to - from); }

// The moving average over about a 40th of the points, without those that are cut.
function smoothed(points, cut) {
  const half = Math.floor(points.length / 80);
  if (half < 1) return null;
  const list = [];
  for (let i = 0; i < points.length; i++) {
    if (points[i].y > cut) continue;
    let sum = 0, n = 0;
    for (let k = Math.max(0, i - half); k <= Math.min(points.length - 1, i + half); k++)
      if (points[k].y <= cut) {
        sum += points[k].y;
        n++;
      }
    list.push({x: points[i].x, y: sum / n});
  }
  return list;
}

// ---- a plot -----------------------------------------------------------------------------------------------------------

class Plot {
  constructor(spec, group = newGroup()) {
    this.spec = spec;
    this.group = group;
    this.note = el("small"); // next to the title, so that nothing below moves when it changes
    this.figure = el("figure", el("figcaption", el("b", spec.title), this.note));
    this.svg = svg("svg", {class: "plot", role: "img", "aria-label": spec.title, "data-title": spec.title});
    this.readout = el("div.readout");
    this.readout.hidden = true;
    this.figure.append(this.svg, this.readout);
    this.width = 0;
    group.plots.push(this);
    allPlots.push(this);
    this.listen();
    this.draw();
    if (typeof ResizeObserver === "function")
      new ResizeObserver(() => requestAnimationFrame(() => this.fit())).observe(this.figure);
  }

  // Redraws when the page changes its width.
  fit() {
    const width = paperWidth || Math.round(this.figure.clientWidth);
    if (!width || width === this.width) return;
    this.width = width;
    this.draw();
  }

  visible() { return this.spec.lines.filter(l => l.points.length && !this.group.hidden.has(l.group || l.label)); }

  xRange() {
    if (this.group.zoom) return this.group.zoom;
    if (this.spec.xRange) return this.spec.xRange;
    let a = Infinity, b = -Infinity; // of the whole group, so that plots below each other have the same axis
    for (const plot of this.group.plots)
      for (const l of plot.spec.lines)
        if (l.points.length) {
          a = Math.min(a, l.points[0].x);
          b = Math.max(b, l.points[l.points.length - 1].x);
        }
    if (!isFinite(a)) return [0, 1];
    for (const plot of this.group.plots) for (const mark of plot.spec.marks || []) b = Math.max(b, mark.x);
    if (this.spec.fromZero !== false && a > 0 && a <= b / 4) a = 0;
    return a === b ? [a - 1, b + 1] : [a, b];
  }

  yRange([from, to]) {
    if (this.spec.yRange) return {a: this.spec.yRange[0], b: this.spec.yRange[1], log: false};
    let a = Infinity, b = -Infinity;
    for (const l of this.visible())
      for (const p of l.points) {
        if (p.x < from || p.x > to) continue;
        const top = l.smooth && p.hi !== undefined ? p.y : p.hi ?? p.y, cut = l.cut ?? Infinity;
        if (p.y <= cut) b = Math.max(b, Math.min(top, cut));
        if (p.y <= cut) a = Math.min(a, p.y);
      }
    if (!isFinite(a)) return {a: 0, b: 1, log: false};
    if (this.spec.log && a > 0 && b / a > 20) return {a: a / 1.15, b: b * 1.15, log: true};
    if (this.spec.zero || (a >= 0 && a < b / 3)) a = 0;
    if (a === b) return {a: a - (Math.abs(a) || 1) / 2, b: b + (Math.abs(b) || 1) / 2, log: false};
    const room = (b - a) * 0.06;
    return {a: a === 0 ? 0 : a - room, b: b + room, log: false};
  }

  draw() {
    const width = this.width || 480, height = Math.round(Math.max(190, Math.min(280, width * 0.52)));
    const left = 70, right = 12, top = 12, bottom = 40;
    const range = this.xRange(), y = this.yRange(range);
    this.x = linear(range[0], range[1], left, width - right);
    this.y = y.log ? (f => v => f(Math.log10(v)))(linear(Math.log10(y.a), Math.log10(y.b), height - bottom, top))
                   : linear(y.a, y.b, height - bottom, top);
    this.box = {left, right: width - right, top, bottom: height - bottom, range, width, height, y};
    this.svg.replaceChildren();
    this.svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
    this.drawAxes();
    this.inside = svg("g", {});
    this.svg.append(this.inside);
    this.above = 0;
    for (const mark of this.spec.marks || []) this.drawMark(mark);
    for (const l of this.visible()) this.drawLine(l);
    this.cursor = svg("line", {class: "cursor", y1: top, y2: height - bottom, visibility: "hidden"});
    this.selection = svg("rect", {class: "selection", y: top, height: height - bottom - top, visibility: "hidden"});
    this.svg.append(this.cursor, this.selection);
    this.note.replaceChildren();
    if (this.above) this.note.append(`${this.above === 1 ? "One value is" : `${this.above} values are`} off the scale (▲). `);
    if (this.group.zoom) {
      const button = el("button", "whole range");
      button.onclick = () => {
        this.group.zoom = null;
        redraw(this.group);
      };
      this.note.append(button);
    }
  }

  drawAxes() {
    const {left, right, top, bottom, range, width, height, y} = this.box;
    const add = (...e) => this.svg.append(...e);
    const text = (x, at, cls, t) => svg("text", {x, y: at, class: cls}, t);
    for (const v of (y.log ? logTicks(y.a, y.b, 5) : ticks(y.a, y.b, height > 230 ? 5 : 4))) {
      const at = this.y(v);
      add(svg("line", {class: "grid", x1: left, x2: right, y1: at, y2: at}), text(left - 6, at + 4, "tick end", formatShort(v)));
    }
    for (const v of ticks(range[0], range[1], Math.max(3, Math.floor(width / 90)))) {
      if (this.spec.wholeX !== false && !Number.isInteger(v) && range[1] > 3) continue;
      add(svg("line", {class: "grid", x1: this.x(v), x2: this.x(v), y1: top, y2: bottom}),
          text(this.x(v), bottom + 15, "tick middle", formatShort(v, 6)));
    }
    add(svg("path", {class: "axis", d: `M${left} ${top}V${bottom}H${right}`}), text((left + right) / 2, height - 6, "middle", this.spec.x),
        svg("text", {class: "middle", transform: `translate(13 ${(top + bottom) / 2}) rotate(-90)`}, this.spec.y));
  }

  drawMark({x, text}) {
    const {range, top, bottom, left, right} = this.box;
    if (x < range[0] || x > range[1]) return;
    const at = this.x(x), end = at > (left + right) / 2;
    this.inside.append(svg("line", {class: "mark", x1: at, x2: at, y1: top, y2: bottom}),
                       svg("text", {class: `marked${end ? " end" : ""}`, x: at + (end ? -5 : 5), y: top + 12}, text));
  }

  // Clamped to the plot: values above it are drawn at the top.
  at(p) {
    const {top, bottom} = this.box;
    const y = this.box.y.log && p.y <= 0 ? bottom : this.y(p.y);
    return [this.x(p.x), Math.max(top, Math.min(bottom, y))];
  }

  // Nothing is drawn along the top, between two neighbours above the plot.
  path(points) {
    let d = "", above = true;
    for (const p of points) {
      const [x, y] = this.at(p), now = p.y > this.box.y.b;
      d += `${d && !(above && now) ? "L" : "M"}${x.toFixed(1)} ${y.toFixed(1)}`;
      above = now;
    }
    return d;
  }

  stroke(e, l) {
    e.style.stroke = l.colour;
    if (l.dash) e.setAttribute("stroke-dasharray", l.dash);
    return e;
  }

  drawLine(l) {
    const [from, to] = this.box.range, cut = l.cut ?? Infinity;
    const inView = l.points.filter((p, i) => (l.points[i + 1] ?? p).x >= from && (l.points[i - 1] ?? p).x <= to)
                     .map(p => p.x < from ? {...p, x: from} : p.x > to ? {...p, x: to} : p);
    if (!inView.length) return;
    const mean = l.smooth ? smoothed(l.points, cut) : null;
    const main = (mean || l.points).filter((p, i, a) => p.x >= from && p.x <= to);
    const g = svg("g", {class: "series", "data-key": l.key, "data-label": l.label, "data-points": l.points.length});
    if (mean) this.drawRaw(g, l, inView);
    if (main.length > 1) {
      const path = this.stroke(svg("path", {class: "line", d: this.path(main)}), l);
      g.append(path);
    }
    const dots = l.dots || l.points.length === 1 ? l.points.filter(p => p.x >= from && p.x <= to) : [];
    for (const p of dots) g.append(this.dot(l, p, 3));
    const last = l.points[l.points.length - 1];
    if (l.smooth && last.x <= to && last.y <= this.box.y.b) g.append(this.dot(l, last, 2.5));
    for (const p of inView)
      if ((p.hi ?? p.y) > this.box.y.b * (1 + 1e-9)) {
        this.above++;
        const x = this.x(p.x), t = this.box.top;
        const mark = svg("path", {class: "up", d: `M${x - 4} ${t}L${x} ${t - 7}L${x + 4} ${t}Z`});
        mark.style.fill = l.colour;
        g.append(mark);
      }
    if (l.best !== undefined && l.points[l.best].x >= from && l.points[l.best].x <= to) {
      const ring = this.dot(l, l.points[l.best], 7);
      ring.setAttribute("class", "ring");
      ring.style.fill = "none";
      ring.style.stroke = l.colour;
      g.append(ring);
    }
    this.inside.append(g);
  }

  drawRaw(g, l, points) {
    const banded = points.filter(p => p.hi !== undefined);
    if (banded.length > 1) {
      const up = banded.map(p => ({x: p.x, y: p.hi})), down = banded.map(p => ({x: p.x, y: p.lo})).reverse();
      const outline = [...up, ...down].map(p => this.at(p).map(v => v.toFixed(1)).join(" "));
      const band = svg("path", {class: "band", d: `M${outline.join("L")}Z`});
      band.style.fill = l.colour;
      g.append(band);
    }
    const raw = svg("path", {class: "raw", d: this.path(points)});
    raw.style.stroke = l.colour;
    g.append(raw);
  }

  dot(l, p, r) {
    const [cx, cy] = this.at(p), e = svg("circle", {cx: cx.toFixed(1), cy: cy.toFixed(1), r, class: "dot"});
    e.style.fill = l.colour;
    return e;
  }

  // ---- pointer ----

  listen() {
    const place = event => {
      const r = this.svg.getBoundingClientRect();
      const x = (event.clientX - r.left) / r.width * this.box.width, {left, right, range} = this.box;
      return range[0] + (Math.max(left, Math.min(right, x)) - left) / (right - left) * (range[1] - range[0]);
    };
    let begun = null;
    this.svg.addEventListener("pointerdown", e => {
      if (e.button) return;
      begun = place(e);
      if (e.pointerType !== "touch") this.svg.setPointerCapture(e.pointerId);
    });
    this.svg.addEventListener("pointermove", e => {
      const x = place(e);
      for (const plot of this.group.plots) plot.show(x);
      if (begun === null || this.spec.zoom === false) return;
      const a = this.x(Math.min(begun, x)), b = this.x(Math.max(begun, x));
      for (const [k, v] of Object.entries({x: a, width: b - a, visibility: "visible"})) this.selection.setAttribute(k, v);
    });
    this.svg.addEventListener("pointerup", e => {
      const x = place(e), a = Math.min(begun ?? x, x), b = Math.max(begun ?? x, x);
      begun = null;
      this.selection.setAttribute("visibility", "hidden");
      if (this.spec.zoom !== false && this.x(b) - this.x(a) > 8) {
        this.group.zoom = [a, b];
        redraw(this.group);
      }
    });
    const leave = () => {
      begun = null;
      for (const plot of this.group.plots) plot.hide();
    };
    this.svg.addEventListener("pointerleave", leave);
    this.svg.addEventListener("pointercancel", leave);
    this.svg.addEventListener("dblclick", () => {
      this.group.zoom = null;
      redraw(this.group);
    });
  }

  // Shows the nearest point of each line next to the cursor.
  show(x) {
    const rows = [];
    let nearest = null;
    for (const l of this.visible()) {
      let best = l.points[0];
      for (const p of l.points) if (Math.abs(p.x - x) < Math.abs(best.x - x)) best = p;
      if (nearest === null || Math.abs(best.x - x) < Math.abs(nearest - x)) nearest = best.x;
      rows.push([l, best]);
    }
    if (nearest === null || !this.figure.clientWidth) return this.hide();
    const at = this.x(nearest), {left, right, width, top} = this.box;
    if (at < left - 1 || at > right + 1) return this.hide();
    this.cursor.setAttribute("x1", at);
    this.cursor.setAttribute("x2", at);
    this.cursor.setAttribute("visibility", "visible");
    this.readout.replaceChildren(el("b", `${this.spec.x} ${formatShort(nearest, 7)}`), ...rows.map(([l, p]) => {
      const many = p.hi !== undefined && p.hi !== p.lo ? ` (${formatShort(p.lo)} to ${formatShort(p.hi)})` : "";
      const key = el("i", "● ");
      key.style.color = l.colour;
      const elsewhere = p.x !== nearest ? ` at ${formatShort(p.x, 7)}` : "";
      return el("div", key, `${l.label}: ${formatShort(p.y, 4)}${many}${elsewhere}`);
    }));
    this.readout.hidden = false;
    const scale = this.figure.clientWidth / width, onLeft = at > width / 2;
    this.readout.style.top = `${this.svg.offsetTop + top * scale}px`;
    this.readout.style.left = onLeft ? "" : `${(at + 10) * scale}px`;
    this.readout.style.right = onLeft ? `${(width - at + 10) * scale}px` : "";
  }

  hide() {
    this.cursor.setAttribute("visibility", "hidden");
    this.readout.hidden = true;
  }
}

// On paper, plots that share a row are drawn for that width, so that their text is as large as the page's.
let paperWidth = 0; // pixels; 0: not printing

function fitAll(width) {
  paperWidth = width;
  for (const plot of allPlots) plot.fit();
}

addEventListener("beforeprint", () => fitAll(350));
addEventListener("afterprint", () => fitAll(0));

// ---- legends ----------------------------------------------------------------------------------------------------------

// A button for each line that hides it in all plots of the group. Lines are {label, colour, dash, dots?}.
function legend(lines, group) {
  const list = el("ul.legend");
  for (const l of lines) {
    const stroke = svg("line", {x1: 0, x2: 26, y1: 5, y2: 5, "stroke-width": 2.5});
    stroke.style.stroke = l.colour;
    if (l.dash) stroke.setAttribute("stroke-dasharray", l.dash);
    const dot = l.dots ? svg("circle", {cx: 13, cy: 5, r: 3.5}) : null;
    if (dot) dot.style.fill = l.colour;
    const button = el("button", svg("svg", {viewBox: "0 0 26 10", "aria-hidden": "true"}, stroke, dot), l.label), name = l.group || l.label;
    const update = () => button.setAttribute("aria-pressed", group.hidden.has(name) ? "false" : "true");
    button.onclick = () => {
      group.hidden.has(name) ? group.hidden.delete(name) : group.hidden.add(name);
      redraw(group);
    };
    group.legends.push(update);
    update();
    list.append(el("li", button));
  }
  return list;
}

// A plot, with a legend below it if it has several lines.
function plotWithLegend(spec, group) {
  const plot = new Plot(spec, group), lines = spec.lines.filter(l => l.points.length);
  if (lines.length > 1) plot.figure.append(legend(lines, plot.group));
  return plot.figure;
}
