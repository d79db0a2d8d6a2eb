// One run's curves over steps.

function marksOf(run) {
  const loss = run.loss();
  return loss && loss.diverges ? [{x: loss.diverges, text: `diverges from step ${loss.diverges.toLocaleString("en")}`}] : [];
}

// Labels of the losses, by the part of their keys after "loss".
function lossLabels(run) {
  const labels = new Map();
  for (const p of run.panels) for (const c of p.curves) if (/^loss/.test(c.key)) labels.set(c.key, textOf(c.label));
  return labels;
}

function totalLoss(run) {
  return {title: "Loss", x: "step", y: "loss", log: true, marks: marksOf(run),
          lines: [run.line("loss", "training", lineStyle(0), {smooth: true}), run.line("val_loss", "validation", lineStyle(1), {dots: true})]};
}

// The parts of the loss: validation's have the colours of training's, and dots.
function partsOfLoss(run) {
  const lines = [];
  let i = 0;
  for (const [key, label] of lossLabels(run)) {
    if (key === "loss") continue;
    const style = lineStyle(i++);
    lines.push(run.line(key, label, style, {smooth: true}));
    const validation = run.line(`val_${key}`, `${label}, validation`, style, {dots: true});
    if (validation.points.length) lines.push(validation);
  }
  return {title: "Loss components", x: "step", y: "loss", log: true, marks: marksOf(run), lines};
}

function metricsPlot(run) {
  const metrics = run.metrics, {title, unit} = metrics[0] || {title: "Scores", unit: ""};
  return {title, x: "step", y: unit || "score", zero: true, marks: marksOf(run),
          lines: metrics.map((m, i) => run.line(m.key, m.label, lineStyle(i), {dots: true, best: m.points.length ? m.bestAt : undefined, cut: Infinity}))};
}

// Values in the log beside losses and metrics.
function otherPlots(run) {
  const list = [];
  for (const p of run.panels) {
    const lines = p.curves.filter(c => !p.metrics && !/^(val_)?loss/.test(c.key)).map((c, i) => run.line(c.key, textOf(c.label), lineStyle(i), {smooth: !!p.noisy}));
    if (lines.some(l => l.points.length)) list.push({title: textOf(p.title), x: "step", y: textOf(p.unit), log: !!p.log, lines});
  }
  const loss = run.points("loss"), clock = run.points("elapsed");
  if (loss.length && loss.length === clock.length) {
    const points = loss.map((p, i) => ({...p, x: clock[i].y}));
    list.push({title: "Loss over time", x: "seconds of training", y: "loss", log: true, alone: true, wholeX: false,
               lines: [{...run.line("loss", "training", lineStyle(0), {smooth: true}), points}]});
  }
  return list;
}

function hasPoints(spec) { return spec.lines.some(l => l.points.length); }

function curvesSection(run, prefix) {
  const group = newGroup(), loss = totalLoss(run), metrics = metricsPlot(run), parts = partsOfLoss(run);
  const shown = [loss, metrics].filter(hasPoints).map(spec => plotWithLegend(spec, group));
  if (!shown.length) return section(`${prefix}curves`, "Curves", el("p.faint", "No steps were logged, so there are no curves."));
  const more = parts.lines.filter(l => l.points.length && l.key !== "loss_class").length > 1 ? plotWithLegend(parts, group) : null;
  return section(`${prefix}curves`, "Curves", more ? el("div.charts", el("div", shown), el("div", more)) : el("div.alone", shown),
                 el("p.faint", "Faint line: raw values. Solid line: moving average. Circle: best value. Drag to zoom; click a legend entry to hide its line."));
}
