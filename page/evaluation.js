// An evaluation's results: categories, precision over recall, the confusion matrix, images.

// ---- confusion --------------------------------------------------------------------------------------------------------

// evaluation.json's confusion, with `names`, `nothing` (index of the background; -1: there is none), `scores` (null: it
// is for one score) and countsAt(index of a score), which lists [truth, found, count]. null: there is none.
function readConfusion(evaluation) {
  const c = evaluation && objectOf(evaluation.confusion), names = listOf(c && c.names).map(textOf);
  if (!names.length) return null;
  const isPlace = v => Number.isInteger(v) && v >= 0 && v < names.length, isCount = v => isNumber(v) && v >= 0;
  const cells = listOf(c.cells).filter(x => Array.isArray(x) && isPlace(x[0]) && isPlace(x[1]) && (isCount(x[2]) || Array.isArray(x[2])));
  const unread = listOf(c.cells).length - cells.length, scores = listOf(c.scores).filter(isNumber);
  const nothing = c.background ? names.length - 1 : -1;
  if (!scores.length) return {names, nothing, unread, scores: null, opensAt: 0, countsAt: () => cells.filter(x => isCount(x[2]))};
  const countsAt = i => {
    const list = cells.map(([t, f, n]) => [t, f, !Array.isArray(n) ? n : isCount(n[i]) ? n[i] : 0]);
    if (list.some(x => x[1] === nothing) || !Array.isArray(c.objects)) return list;
    const missed = c.objects.map(n => isCount(n) ? n : 0);
    for (const [t, , n] of list) if (t !== nothing) missed[t] -= n;
    for (let t = 0; t < nothing; t++) list.push([t, nothing, Math.max(missed[t] || 0, 0)]);
    return list;
  };
  const opens = scores.findIndex(s => s === c.opens_at);
  return {names, nothing, unread, scores, opensAt: Math.max(opens, 0), reached: isNumber(c.opens_at), highest: c.highest_score, countsAt};
}

// Precision, recall and F1 over all classes.
function figuresOf(c, counts) {
  let right = 0, predicted = 0, objects = 0;
  for (const [t, f, n] of counts) {
    if (t !== c.nothing) objects += n;
    if (f !== c.nothing) predicted += n;
    if (t === f) right += n;
  }
  return {right, predicted, objects, precision: predicted ? right / predicted : null, recall: objects ? right / objects : null,
          f1: predicted + objects ? 2 * right / (predicted + objects) : null};
}

// The most frequent confusions first, including missed objects and detections on background.
function mistakesOf(c, counts, most) {
  return counts.filter(([t, f, n]) => t !== f && n > 0).sort((a, b) => b[2] - a[2] || a[0] - b[0] || a[1] - b[1]).slice(0, most);
}

function sumsOf(c, counts) {
  const truth = new Map();
  for (const [t, , n] of counts) truth.set(t, (truth.get(t) || 0) + n);
  return truth;
}

// One sentence for the first screen; "": no confusion.
function confusionSentence(evaluation) {
  const c = readConfusion(evaluation);
  if (!c) return "";
  const counts = c.countsAt(c.opensAt), sums = sumsOf(c, counts), f = figuresOf(c, counts), mistakes = mistakesOf(c, counts, Infinity), parts = [];
  const when = isNumber(evaluation.step) && evaluation.step >= 0 ? `At step ${evaluation.step.toLocaleString("en")}` : "";
  const intro = [when, c.scores && c.reached ? `with score ≥ ${formatShort(c.scores[c.opensAt])}` : ""].filter(t => t).join(", ");
  const say = text => intro ? `${intro}: ${text}` : capital(text);
  if (c.nothing >= 0 && !f.predicted) return say(c.scores ? "nothing is detected." : "nothing is detected at the minimum score of the confusion matrix.");
  const falsePositives = counts.filter(([t]) => t === c.nothing && c.nothing >= 0).reduce((n, x) => n + x[2], 0);
  if (falsePositives > f.predicted / 2) parts.push(`${falsePositives.toLocaleString("en")} of ${f.predicted.toLocaleString("en")} detections match no object`);
  const mixed = mistakes.find(([t, p]) => t !== c.nothing && p !== c.nothing), missed = mistakes.find(([, p]) => p === c.nothing && c.nothing >= 0);
  if (mixed) parts.push(`the most common confusion is true “${c.names[mixed[0]]}” predicted as “${c.names[mixed[1]]}” (${mixed[2]} of ${sums.get(mixed[0])}${c.nothing < 0 ? " images" : ""})`);
  else if (c.names.length - (c.nothing >= 0) > 1) parts.push("no class is confused with another");
  if (missed) parts.push(`the most missed category is “${c.names[missed[0]]}” (${missed[2]} of ${sums.get(missed[0])})`);
  return parts.length ? `${say(parts.join("; "))}.` : "";
}

// The classes shown: all if there are few, else those with most mistakes, in the order of their names.
const MOST_CLASSES = 26;
function shownClasses(c, counts) {
  const n = c.nothing >= 0 ? c.nothing : c.names.length, wrong = new Array(n).fill(0);
  for (const [t, f, k] of counts)
    if (t !== f) {
      if (t < n) wrong[t] += k;
      if (f < n) wrong[f] += k;
    }
  let list = [...wrong.keys()];
  if (n > MOST_CLASSES) list = list.sort((a, b) => wrong[b] - wrong[a]).slice(0, MOST_CLASSES).sort((a, b) => a - b);
  return list;
}

function shade(td, colour, share) {
  const depth = 0.12 + 0.83 * Math.sqrt(share);
  td.style.background = `rgb(var(--${colour}) / ${depth.toFixed(2)})`;
  const dark = matchMedia("(prefers-color-scheme: dark)").matches;
  if (depth > 0.62) td.style.color = dark ? "#000" : colour === "wrong" ? "#000" : "#fff";
  return td;
}

function confusionMatrix(c, counts) {
  const list = shownClasses(c, counts), others = list.length < (c.nothing >= 0 ? c.nothing : c.names.length), sums = sumsOf(c, counts);
  const name = i => i === c.nothing ? "missed" : c.names[i], columns = c.nothing >= 0 ? [...list, c.nothing] : list;
  const isShown = new Set(columns), at = new Map(), outside = new Map(), n = (t, f) => at.get(`${t} ${f}`) || 0;
  for (const [t, f, k] of counts)
    if (isShown.has(t) && isShown.has(f)) at.set(`${t} ${f}`, k);
    else if (isShown.has(t)) outside.set(t, (outside.get(t) || 0) + k);
  const column = text => withAttributes(el("th", withAttributes(el("span", text), {title: text})), {scope: "col"});
  const most = Math.max(1, ...columns.map(f => n(c.nothing, f))); // false detections: a colour scale of their own
  const cells = (t, all) => columns.map(f => {
    const k = n(t, f), td = el("td", k ? k.toLocaleString("en") : "");
    if (k) {
      shade(td, t === c.nothing ? "false" : t === f ? "right" : "wrong", k / all);
      td.title = t === c.nothing ? `${k} false positives of ${name(f)}`
                                 : `${name(t)}: ${k} of ${all} ${f === c.nothing ? "missed" : t === f ? "correct" : `predicted as ${name(f)}`}`;
    }
    return td;
  });
  const rest = (t, all) => {
    if (!others) return [];
    const k = outside.get(t);
    return [k ? shade(el("td", k.toLocaleString("en")), t === c.nothing ? "false" : "wrong", k / all) : el("td")];
  };
  const row = (t, label, cls) => {
    const all = t === c.nothing ? most : sums.get(t) || 1;
    return el(cls ? `tr.${cls}` : "tr", withAttributes(el("th", label), {scope: "row", title: label}), cells(t, all), rest(t, all));
  };
  const short = columns.every(i => name(i).length <= 2);
  const box = el("div.scroll", el(`table.confusion${short ? ".short" : ""}${columns.length > 15 ? ".many" : ""}`,
    el("thead", el("tr", el("th", "true ↓ predicted →"), columns.map(i => column(name(i))), others ? column("other classes") : null)),
    el("tbody", list.map(t => row(t, name(t))), c.nothing >= 0 ? row(c.nothing, "false positives", "false") : null)));
  return withAttributes(box, {tabindex: 0, role: "region", "aria-label": "Confusion matrix"});
}

function mistakeTable(c, counts) {
  const sums = sumsOf(c, counts), rows = mistakesOf(c, counts, 15).map(([t, f, n]) =>
    t === c.nothing ? ["background", c.names[f], n, null] : [c.names[t], f === c.nothing ? "missed" : c.names[f], n, 100 * n / sums.get(t)]);
  if (!rows.length) return el("p.faint", "No errors.");
  return table("Most common errors", ["true", "predicted as", "count", "% of the true class"], rows.map(r => r.map((v, i) => i === 3 ? el("td.n", v === null ? "–" : v.toFixed(1)) : v)));
}

function keyed(colour, text) { return el("span.keyed", el(`i.key.${colour}`), text); }

function confusionSection(evaluation, prefix) {
  const c = readConfusion(evaluation);
  if (!c) return null;
  const body = el("div"), says = el("p"), draw = i => {
    const counts = c.countsAt(i), f = figuresOf(c, counts), things = c.nothing >= 0 ? "detections" : "images";
    const percent = v => v === null ? "–" : `${(100 * v).toFixed(1)} %`;
    says.textContent = c.nothing < 0 ? `${f.right} of ${f.objects} images correct (${percent(f.recall)}).`
      : f.predicted ? `${f.predicted} ${things}, ${f.right} correct: precision ${percent(f.precision)}, recall ${percent(f.recall)}, F1 ${f.f1.toFixed(3)}.`
      : `No detection reaches this threshold${isNumber(c.highest) ? `: the highest is ${formatShort(c.highest)}` : ""}.`;
    if (!f.predicted) return body.replaceChildren();
    const shown = shownClasses(c, counts).length, n = c.nothing >= 0 ? c.nothing : c.names.length;
    body.replaceChildren(shown < n ? el("p.faint", `The ${shown} of ${n} classes with most mistakes.`) : "", 
                         el("div.columns", confusionMatrix(c, counts), el("div", el("h3", "Most common errors"), mistakeTable(c, counts))));
  };
  const key = el("p.faint", keyed("r", "correct"), keyed("w", c.nothing >= 0 ? "wrong class or missed" : "wrong class"), c.nothing >= 0 ? keyed("f", "false positives") : null,
                 "Darker: larger share of the row.");
  const parts = [], rule = textOf(evaluation.rule) ? details("How this is counted", el("p.faint", textOf(evaluation.rule))) : null;
  if (c.unread) parts.push(el("p.faint", `${c.unread} of its counts cannot be read and are left out.`));
  if (c.scores) {
    const input = withAttributes(el("input"), {type: "range", min: 0, max: c.scores.length - 1, step: 1, value: c.opensAt, "aria-label": "score threshold"});
    const out = el("output"), update = () => {
      out.textContent = `score threshold ≥ ${formatShort(c.scores[input.value])}`;
      draw(Number(input.value));
    };
    input.oninput = update;
    const opens = c.reached ? `Default: the threshold with the best F1 (${formatShort(c.scores[c.opensAt])}).`
      : `No detection reaches a score of ${formatShort(c.scores[0])}${isNumber(c.highest) ? `; the highest is ${formatShort(c.highest)}` : ": there is none"}.`;
    parts.push(el("label.slider", out, input), el("p.faint", opens));
    update();
  } else draw(0);
  return section(`${prefix}confusion`, isNumber(evaluation.step) && evaluation.step >= 0 ? `Confusion matrix at step ${evaluation.step.toLocaleString("en")}` : "Confusion matrix", parts, says, key, body, rule);
}

// ---- figures ----------------------------------------------------------------------------------------------------------

// The axes of precision over recall are always 0 to 1, so that plots compare.
function recallPlots(panels, small) {
  const box = el(small ? "div.charts.small" : "div.charts");
  for (const p of listOf(panels).map(objectOf)) {
    const lines = listOf(p.curves).filter(c => Array.isArray(c) && c.length >= 3).map(([label, x, y], i) => ({
      key: textOf(label), label: textOf(label), ...lineStyle(i),
      points: listOf(x).map((v, k) => ({x: v, y: listOf(y)[k]})).filter(q => isNumber(q.x) && isNumber(q.y)),
    }));
    if (!lines.some(l => l.points.length)) continue;
    box.append(plotWithLegend({title: textOf(p.title), x: textOf(p.x) || "recall", y: textOf(p.unit) || "precision", lines, xRange: [0, 1], yRange: [0, 1.02],
                               wholeX: false}));
  }
  return box.childElementCount ? box : null;
}

function metricTable(evaluation) {
  const rows = Object.entries(objectOf(evaluation.metrics)).map(([name, v]) => {
    const n = /loss/.test(name) ? Number(v) : metricOf(v);
    const cell = el("td.n", isNumber(n) ? n.toFixed(4) : "–");
    cell.dataset.metric = name;
    return [name, cell];
  });
  return rows.length ? details("All metrics", table("All metrics", ["metric", "value"], rows, 4)) : null;
}

function categoryTable(evaluation) {
  const columns = listOf(evaluation.columns).map(textOf), rows = listOf(evaluation.categories).filter(Array.isArray);
  if (!rows.length) return null;
  const rank = r => isNumber(r[2]) ? r[2] : 2;
  rows.sort((a, b) => rank(a) - rank(b)); // those without a value last
  const cellsOf = r => r.map((v, i) => i === 0 ? textOf(v) : i === 1 ? v : el("td.n", isNumber(v) ? v.toFixed(3) : "–"));
  return el("div", el("h3", `Per-category results, worst ${columns[1] || ""} first`), longTable("Categories", ["category", ...columns], rows, cellsOf));
}

function evaluationSection(run, prefix) {
  const e = run.evaluation, at = isNumber(e.step) && e.step >= 0 ? `Last evaluation: step ${e.step.toLocaleString("en")},` : "On";
  const left = e.left_out ? `; ${e.left_out} are left out, because they cannot be read` : "";
  const first = recallPlots(e.panels);
  return section(`${prefix}evaluation`, "Evaluation", el("p.faint", `${at} ${textOf(e.images)} images${left}.`), metricTable(e), categoryTable(e),
                 first ? [el("h3", "Precision–recall curves"), first] : null, listOf(e.category_panels).length ? detailsLater("Precision–recall curves per category", () => recallPlots(e.category_panels, true)) : null);
}

// ---- images -----------------------------------------------------------------------------------------------------------

// The address of a picture: a file in the folder's pictures/, or a data URI. Nothing else is loaded.
function addressOf(run, name) {
  if (typeof name !== "string" || /\p{Surrogate}/u.test(name)) return "";
  if (/^data:image\/(jpeg|png);base64,[A-Za-z0-9+/=]*$/.test(name)) return name;
  if (!/^pictures\/[^/\\]+\.(jpg|png)$/.test(name)) return "";
  const embedded = objectOf(run.facts.embedded)[name];
  if (embedded !== undefined) return addressOf({facts: {}}, embedded);
  return (textOf(run.facts.pictures) + name).split("/").map(encodeURIComponent).join("/");
}

function pictureFigure(run, [, file, caption, truth, found]) {
  const image = (name, what) => {
    const img = withAttributes(el("img"), {src: addressOf(run, name), alt: `${what}: ${textOf(file)}`, loading: "lazy"});
    img.onerror = () => img.replaceWith(el("small.faint", `${textOf(name).slice(0, 80)} is missing`));
    return img;
  };
  return el("figure", found ? el("div.sides", el("span", "ground truth"), el("span", "detections"), image(truth, "ground truth"), image(found, "detections")) : image(truth, "image"),
            el("figcaption", el("b", textOf(file)), " ", textOf(caption)));
}

function imageSection(run, prefix) {
  const list = listOf(run.evaluation.pictures).filter(p => Array.isArray(p) && addressOf(run, p[3])), groups = new Map();
  for (const p of list) groups.set(textOf(p[0]), [...(groups.get(textOf(p[0])) || []), p]);
  if (!list.length) return null;
  return section(`${prefix}images`, "Images", [...groups].map(([group, of]) =>
    [el("h3", group), el(of[0][4] ? "div.pictures" : "div.pictures.single", of.map(p => pictureFigure(run, p)))]));
}
