// Compares several runs side by side; draws the whole page.

// ---- comparison ---- --------------------------------------------------------------------------------------------------

// Marks the greatest (or least) of the values with a star, unless all are equal.
function markBest(cells, values, least) {
  const known = values.filter(isNumber), best = least ? Math.min(...known) : Math.max(...known);
  if (known.length > 1 && known.some(v => v !== best)) values.forEach((v, i) => { if (v === best) cells[i].classList.add("best"); });
  return cells;
}

// least: smaller is better; null: no star.
function valueRow(label, runs, value, show, least) {
  const values = runs.map(value);
  if (!values.some(isNumber)) return null;
  const cells = runs.map((r, i) => el("td", isNumber(values[i]) ? show(values[i], r) : "–"));
  return [label, ...(least === null ? cells : markBest(cells, values, least))];
}

function overviewRows(runs) {
  const rows = [["state", ...runs.map(r => el("td", badge(r)))], ["progress", ...runs.map(r => el("td.text", progressText(r)))]];
  const keys = new Map();
  for (const r of runs) for (const m of r.headline()) keys.set(m.key, m.label);
  for (const [key, label] of keys) {
    const of = r => r.metrics.find(m => m.key === key && m.points.length);
    rows.push(valueRow(`${label}, best`, runs, r => of(r)?.best.y, (v, r) => {
      const file = r.fileOfBest(of(r));
      return [`${formatScore(v)} at step ${of(r).best.x.toLocaleString("en")}`, file ? el("small.faint", el("br"), file) : ""];
    }));
    rows.push(valueRow(`${label}, last`, runs, r => of(r)?.last.y, formatScore));
  }
  const alike = ["model", "data"].every(key => runs.every(r => textOf(r.run[key]) === textOf(runs[0].run[key]))); // otherwise losses and speeds do not compare
  rows.push(valueRow("training loss", runs, r => r.loss() && (r.state.diverged ? r.loss().sound.y : r.loss().last), v => formatShort(v, 4), alike ? true : null));
  rows.push(valueRow("images per second", runs, r => r.points("img_s").slice(-1)[0]?.y, v => formatShort(v), alike ? false : null));
  for (const [label, key] of [["model", "model"], ["data", "data"], ["device", "device"], ["training images", "images"], ["batch size", "batch"]])
    if (runs.some(r => textOf(r.run[key]))) rows.push([label, ...runs.map(r => el("td.text", textOf(r.run[key]) || "–"))]);
  const warnings = runs.map(r => r.warnings.length + r.missing.length);
  if (warnings.some(n => n)) rows.push(["warnings", ...warnings.map(n => el("td", n ? String(n) : "none"))]);
  return rows.filter(r => r);
}

function warningList(runs) {
  const items = runs.flatMap(r => [...r.warnings.map(w => el("li", el("b", r.name), `: ${w.text}`, w.command ? [el("div", repairText(w.command)), copyBlock(w.command)] : null)),
                                   ...r.missing.map(text => el("li", el("b", r.name), `: ${text}`))]);
  const s = section("warnings", "Warnings", el("ul", items));
  s.classList.add("warn");
  return items.length ? s : null;
}

// Options whose values differ between runs: the value used, and where it came from.
function differingSettings(runs) {
  const names = new Map(), with_ = runs.map(r => new Map(r.settings().map(s => [s.name, s])));
  with_.forEach(m => m.forEach((_, name) => names.set(name, true)));
  const rows = [];
  for (const name of names.keys()) {
    const of = with_.map((m, i) => m.size ? m.get(name) : undefined), known = of.filter((s, i) => with_[i].size);
    if (name === "out" || known.length < 2 || known.every(s => s && known[0] && s.value === known[0].value)) continue;
    rows.push([`--${name}`, ...of.map(s => el("td.text", s ? [s.value, s.from ? el("small.faint", ` (${setBy(s.from)})`) : ""] : "–"))]);
  }
  return rows;
}

// A plot for each quantity, with a line for each run and one legend for all.
function comparisonPlots(runs, group) {
  const seen = new Map(), keep = (spec, label) => {
    for (const l of spec.lines) {
      const id = l.key + (spec.alone ? " by time" : "");
      if (!seen.has(id)) seen.set(id, {spec, label: label(l), alone: spec.alone, key: l.key});
    }
  };
  for (const r of runs) {
    keep(totalLoss(r), l => l.key === "loss" ? "Training loss" : "Validation loss");
    keep(metricsPlot(r), l => l.label);
  }
  const first = [...seen.keys()];
  for (const r of runs) keep(partsOfLoss(r), l => `Loss: ${l.label}`);
  for (const r of runs) for (const spec of otherPlots(r)) keep(spec, l => spec.alone ? "Loss over time" : spec.title);
  const draw = id => {
    const {spec, label, alone, key} = seen.get(id), lines = runs.map((r, i) => {
      const source = alone ? otherPlots(r).find(s => s.alone) : null, metric = r.metrics.find(m => m.key === key);
      const own = source ? source.lines[0] : r.line(key, r.name, {}, {});
      const like = spec.lines.find(l => l.key === key);
      return {...own, key, label: r.name, group: r.name, ...lineStyle(i), smooth: like.smooth, dots: like.dots,
              points: alone && !source ? [] : own.points, cut: metric ? Infinity : own.cut, best: metric && metric.points.length ? metric.bestAt : undefined};
    });
    if (!lines.some(l => l.points.length)) return null;
    limitBySound(lines, runs);
    const marks = alone || lines.every(l => l.dots) ? [] : runs.flatMap(r => marksOf(r).map(m => ({...m, text: `${r.name} diverges`})));
    return new Plot({...spec, title: label, lines, marks}, alone ? shareHidden(group) : group).figure;
  };
  return {main: first.map(draw).filter(p => p), folded: [...seen.keys()].slice(first.length).map(draw).filter(p => p)};
}

// A group with its own axis, whose lines are hidden together with the other group's.
function shareHidden(group) {
  const own = newGroup();
  own.hidden = group.hidden;
  group.legends.push(() => { for (const p of own.plots) p.draw(); });
  return own;
}

// A diverged run must not stretch the axis of the other runs.
function limitBySound(lines, runs) {
  const tops = lines.filter((l, i) => l.points.length && !runs[i].state.diverged)
                   .map(l => Math.max(...l.points.map(p => p.y > l.cut ? -Infinity : p.y)));
  if (tops.length) lines.forEach((l, i) => { if (runs[i].state.diverged) l.cut = Math.min(l.cut, Math.max(...tops) * 1.2); });
}

function categoryComparison(runs) {
  const first = runs.map(r => listOf(objectOf(r.evaluation).columns)[1]).find(c => c);
  if (!first) return null;
  const values = runs.map(r => {
    const column = listOf(objectOf(r.evaluation).columns).indexOf(first);
    return new Map(column < 0 ? [] : listOf(r.evaluation.categories).filter(Array.isArray).map(c => [textOf(c[0]), c[column + 1]]));
  });
  const names = new Set(values.flatMap(v => [...v.keys()]));
  const rows = [...names].map(n => [n, ...markBest(values.map(v => el("td.n", isNumber(v.get(n)) ? v.get(n).toFixed(3) : "–")), values.map(v => v.get(n)))]);
  return rows.length ? details(`${textOf(first)} per category (last evaluation)`, longTable(textOf(first), ["category", ...runs.map(r => r.name)], rows)) : null;
}

// ---- pages ------------------------------------------------------------------------------------------------------------

function pageOfRuns(facts, runs) {
  const group = newGroup(), heading = runs.map(r => r.name), {main, folded} = comparisonPlots(runs, group), settings = differingSettings(runs);
  const shared = el("div.shared", legend(runs.map((r, i) => ({label: r.name, ...lineStyle(i)})), group));
  const each = runs.map((r, i) => {
    const fold = details(r.name === r.facts.folder ? r.name : `${r.name}: ${textOf(r.facts.folder)}`), open = () => { if (fold.open && fold.childElementCount === 1) fold.append(...header(r).filter(e => e), ...runSections(r, `run${i}-`)); };
    fold.addEventListener("toggle", open);
    return el("section", fold);
  });
  const sections = [
    section("overview", "Overview", table("Overview", ["", ...heading], overviewRows(runs)), el("p.faint", "★ best in row"), categoryComparison(runs)),
    warningList(runs),
    section("curves", "Curves", shared, el("div.charts", main), folded.length ? details("Loss components, learning rate, data loading, speed", el("div.charts", folded)) : null),
    section("settings", "Settings that differ", settings.length ? table("Settings that differ", ["option", ...heading], settings) : el("p.faint", "None, as far as they are recorded."),
            el("p.faint", "Value used, and what set it: command line, default, model or data."))].filter(s => s);
  if (runs.length > 5) for (const s of sections) s.classList.add("crowd"); // small on paper, so that no column is cut off
  return [el("h1", `${runs.length} runs`), navigation(sections), sections, each, footer(facts)];
}

function pageOfRun(facts, run) {
  const sections = runSections(run, "");
  return [header(run), navigation(sections), sections, footer(facts)];
}

// Repeated names are numbered, so that each name, and a click on it, identifies one run.
function tellApart(runs) {
  const names = new Set();
  for (const r of runs) {
    const name = r.name;
    for (let i = 2; names.has(r.name); i++) r.name = `${name} (${i})`;
    names.add(r.name);
  }
}

function main() {
  const facts = readFacts(), page = document.getElementById("page");
  const runs = facts.runs.map(r => new Run(r));
  tellApart(runs);
  page.replaceChildren();
  add(page, runs.length === 1 ? pageOfRun(facts, runs[0]) : pageOfRuns(facts, runs));
  fitAll(0);
  document.documentElement.dataset.ready = "1";
}

main();
