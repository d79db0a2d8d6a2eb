// Histograms: columns over bins, with the splits next to each other. With two splits, columns are shares of a split, so
// that splits of different sizes compare; the numbers of the bin under the pointer are shown below the plot.

const PAPER_WIDTH = 700; // pixels; the width for which printed plots are drawn
let hinted = false;      // whether a histogram on the page has explained how to read its numbers

// A step of 1, 2 or 5 times a power of ten that divides `span` into about `n` parts.
function niceStep(span, n) {
  const raw = Math.max(span, 1e-9) / n, power = 10 ** Math.floor(Math.log10(raw));
  return power * [1, 2, 5, 10].find(k => k * power >= raw * 0.999);
}

// Bins for pairs [value, count] of integers in several lists: at most about 60 of equal width. {limits, counts}
function binned(lists) {
  const values = lists.flat().map(p => p[0]), least = Math.min(...values), most = Math.max(...values);
  const width = Math.max(1, Math.ceil(niceStep(most - least + 1, 60))), first = Math.floor(least / width) * width;
  const n = Math.floor((most - first) / width) + 1;
  const counts = lists.map(pairs => {
    const count = Array(n).fill(0);
    for (const [value, times] of pairs) count[Math.floor((value - first) / width)] += times;
    return count;
  });
  return {limits: Array.from({length: n + 1}, (_, i) => first + i * width), counts, width};
}

function total(counts) { return counts.reduce((a, b) => a + b, 0); }

function percent(part, whole) { return whole ? `${(100 * part / whole).toFixed(1)} %` : "–"; }

// h: {label, what: "objects", x: "size, pixels", names, counts: of each name, limits, log, whole: bins hold
// whole numbers, marks: [x, …], markText: of the one mark, instead of its x,
// parts: [what lies before the first mark, …]}
function histogram(h) {
  const sums = h.counts.map(total), shares = h.names.length > 1;
  const height = (s, i) => shares ? (sums[s] ? 100 * h.counts[s][i] / sums[s] : 0) : h.counts[s][i];
  const bins = h.limits.length - 1, x = v => h.log ? Math.log2(v) : v;
  const left = x(h.limits[0]), span = x(h.limits[bins]) - left;
  const most = Math.max(...h.counts.map((c, s) => Math.max(...c.map((_, i) => height(s, i)))), 1e-9);
  const step = shares ? niceStep(most, 4) : Math.max(niceStep(most, 4), 1), top = Math.ceil(most / step) * step;
  const single = h.whole && h.limits[1] - h.limits[0] === 1; // one integer per bin
  const binText = i => single ? `${h.limits[i]}` :
    h.whole ? `${h.limits[i]} to ${h.limits[i + 1] - 1}` : `${formatShort(h.limits[i])} to ${formatShort(h.limits[i + 1])}`;
  const textOf = i => h.names.map((name, s) =>
    `${name} ${h.counts[s][i].toLocaleString("en")} (${percent(h.counts[s][i], sums[s])})`).join(", ");
  const hint = hinted ? "\u00a0" : "Hover over a bar for values", read = el("output", hint), box = el("div.histogram");
  hinted = true;

  // Redrawn at its actual width, so that the text keeps its size.
  function draw(width) {
    const t = h.parts ? 30 : h.marks ? 17 : 8; // room above the columns for parts and marks
    const H = 230, l = 58, r = 16, b = 42, w = Math.max(width - l - r, 60), u = H - t - b;
    const px = v => l + (x(v) - left) / span * w, py = v => t + u - v / top * u;
    const root = svg("svg", {viewBox: `0 0 ${width} ${H}`, width, height: H, role: "img", "aria-label": h.label});
    for (let v = 0; v <= top * 1.001; v += step)
      root.append(svg("line", {x1: l, x2: l + w, y1: py(v), y2: py(v), class: "grid"}),
                  svg("text", {x: l - 6, y: py(v) + 4, "text-anchor": "end"}, shares ? `${formatShort(v)} %` : formatShort(v)));
    for (const v of ticks(w)) {
      const at = px(single ? v + 0.5 : v);
      root.append(svg("line", {x1: at, x2: at, y1: t + u, y2: t + u + 4, class: "axis"}),
                  svg("text", {x: at, y: t + u + 17, "text-anchor": "middle"}, formatShort(v, 4)));
    }
    for (let i = 0; i < bins; i++) {
      const from = px(h.limits[i]), wide = px(h.limits[i + 1]) - from, gap = Math.min(1.5, wide * 0.1);
      const each = (wide - 2 * gap) / h.names.length;
      const hit = svg("rect", {x: from, y: t, width: wide, height: u, class: "hit"});
      hit.append(svg("title", {}, `${binText(i)}: ${textOf(i)}`));
      h.names.forEach((_, s) => {
        const y = py(height(s, i));
        if (h.counts[s][i]) // a bin that is not empty is always visible
          root.append(svg("rect", {x: from + gap + s * each, width: Math.max(each, 0.5), y: Math.min(y, t + u - 1),
                                   height: Math.max(t + u - y, 1), class: `hue${s}`}));
      });
      hit.addEventListener("pointerenter", () => { read.textContent = `${binText(i)} ${h.unit}: ${textOf(i)}`; });
      root.append(hit);
    }
    const marks = (h.marks ?? []).filter(v => v > h.limits[0] && v < h.limits[bins]);
    for (const v of marks)
      root.append(svg("line", {x1: px(v), x2: px(v), y1: t, y2: t + u, class: "mark"}),
                  svg("text", {x: px(v), y: t - 5, "text-anchor": !h.markText ? "middle" : px(v) < width / 2 ? "start" : "end"}, h.markText ?? v));
    if (marks.length === h.parts?.length - 1) {
      const edges = [l, ...marks.map(px), l + w];
      h.parts.forEach((text, i) => {
        if (edges[i + 1] - edges[i] > 7 * text.length + 8)
          root.append(svg("text", {x: (edges[i] + edges[i + 1]) / 2, y: 12, "text-anchor": "middle"}, text));
      });
    }
    root.append(svg("line", {x1: l, x2: l + w, y1: t + u, y2: t + u, class: "axis"}),
                svg("text", {x: l + w / 2, y: H - 6, "text-anchor": "middle", class: "title"}, h.x),
                svg("text", {x: 12, y: t + u / 2, "text-anchor": "middle", class: "title",
                             transform: `rotate(-90 12 ${t + u / 2})`}, shares ? `share of ${h.what}` : h.what));
    box.replaceChildren(root);
  }

  function ticks(w) {
    const n = Math.max(Math.floor(w / 45), 2), out = [];
    if (h.log) {
      const every = Math.max(1, Math.ceil(span / n));
      for (let p = Math.ceil(left); p <= left + span; p++) if (p % every === 0) out.push(2 ** p);
      return out;
    }
    const by = h.whole ? Math.max(1, niceStep(span, n)) : niceStep(span, n);
    for (let v = Math.ceil(h.limits[0] / by) * by; v < h.limits[bins] + (single ? 0 : 1); v += by) out.push(v);
    return out;
  }

  box.addEventListener("pointerleave", () => { read.textContent = hint; });
  new ResizeObserver(([entry]) => {
    if (entry.contentRect.width) draw(Math.floor(entry.contentRect.width));
  }).observe(box);
  addEventListener("beforeprint", () => draw(PAPER_WIDTH));
  addEventListener("afterprint", () => draw(Math.floor(box.clientWidth)));
  return el("div.drawn", box, el("p.faint.read", read));
}

// The splits' names with their colours, as in the columns.
function splitLegend(names) {
  return el("p.hues", names.map((name, s) => el("span", el(`i.hue${s}`), name)));
}
