// A run's facts (page/run_facts.h) in the form that the page shows. Any part may be missing.

// What is drawn if run.json does not say, as for a log alone.
const USUAL_PANELS = [
  {title: "Losses", unit: "loss", noisy: true, log: true, curves: []},
  {title: "Average precision", unit: "AP", metrics: true,
   curves: [{key: "bbox_AP", label: "box AP"}, {key: "bbox_AP50", label: "box AP50"}, {key: "segm_AP", label: "mask AP"},
            {key: "segm_AP50", label: "mask AP50"}]},
  {title: "Accuracy", unit: "share of images", metrics: true,
   curves: [{key: "val_top1", label: "top-1"}, {key: "val_top5", label: "top-5"}]},
  {title: "Gradient norm", unit: "L2 norm", noisy: true, log: true, curves: [{key: "grad_norm", label: "gradient norm"}]},
  {title: "Learning rate", unit: "learning rate", curves: [{key: "lr", label: "learning rate"}]},
  {title: "Speed", unit: "images per second", curves: [{key: "img_s", label: "images per second"}]},
  {title: "Data-loading wait", unit: "seconds per step", noisy: true, curves: [{key: "wait", label: "wait for data"}]},
];

const STATES = {
  complete: {badge: "complete", look: "good"},
  running: {badge: "running", look: "busy"},
  stopped: {badge: "stopped early", look: "odd"},
  diverged: {badge: "diverged", look: "bad"},
};

function objectOf(v) { return v && typeof v === "object" && !Array.isArray(v) ? v : {}; }
function listOf(v) { return Array.isArray(v) ? v : []; }

// A metric of an evaluation: a value below 0 means that no ground truth defines it. Older versions wrote texts.
function metricOf(v) {
  const n = typeof v === "string" && v !== "" ? Number(v) : v;
  return isNumber(n) && n >= 0 ? n : null;
}

class Run {
  constructor(facts) {
    this.facts = objectOf(facts);
    this.name = textOf(this.facts.name) || "run";
    this.run = objectOf(this.facts.run);
    this.log = objectOf(this.facts.log);
    this.evaluation = this.facts.evaluation ? objectOf(this.facts.evaluation) : null;
    this.scores = this.facts.run === undefined; // weights that were scored without a run
    if (this.scores && this.evaluation) this.name = textOf(this.evaluation.name) || this.name;
    this.evaluations = listOf(this.log.evaluations).filter(e => isNumber(objectOf(e).step));
    this.addLatest();
    this.panels = this.readPanels();
    this.state = this.readState();
    this.metrics = this.readMetrics();
    this.main = this.metrics.find(m => m.points.length) || null;
    this.warnings = this.readWarnings();
    this.missing = this.readMissing();
  }

  // evaluation.json may have an evaluation's scores before its record is in the log.
  addLatest() {
    const e = this.evaluation, known = this.evaluations;
    if (!e || !isNumber(e.step) || e.step < 0 || known.some(r => r.step >= e.step)) return;
    known.push({step: e.step, scored_set: e.scored_set, ...objectOf(e.metrics)});
  }

  // ---- curves ----

  // The values of a key in the records of steps, or else of evaluations.
  points(key) {
    const curve = objectOf(objectOf(this.log.curves)[key]), x = listOf(this.log.x), y = listOf(curve.y), lo = listOf(curve.lo), hi = listOf(curve.hi);
    const list = [];
    for (let i = 0; i < y.length; i++)
      if (isNumber(y[i]) && isNumber(x[i]))
        list.push(isNumber(lo[i]) && isNumber(hi[i]) ? {x: x[i], y: y[i], lo: lo[i], hi: hi[i]} : {x: x[i], y: y[i]});
    if (list.length) return list;
    for (const e of this.evaluations) {
      const v = key.startsWith("val_loss") ? Number(e[key]) : metricOf(e[key]);
      if (v !== null && isFinite(v) && e[key] !== null) list.push({x: e.step, y: v});
    }
    return list;
  }

  // A divergence must not flatten the plot: values above this are cut off.
  cut(points) {
    if (!points.length) return Infinity;
    const sorted = points.map(p => p.y).sort((a, b) => a - b), usual = Math.max(sorted[Math.floor(sorted.length / 2)], points[0].y);
    return (this.state.diverged ? 2 : 10) * usual;
  }

  line(key, label, style, more) {
    const points = this.points(key);
    return {key, label, ...style, points, cut: this.cut(points), ...more};
  }

  readPanels() {
    const own = listOf(this.run.panels).map(objectOf).filter(p => Array.isArray(p.curves));
    if (own.length) return own.map(p => ({...p, curves: p.curves.map(objectOf).filter(c => typeof c.key === "string")}));
    const losses = Object.keys(objectOf(this.log.curves)).filter(k => /^loss/.test(k));
    const label = k => k === "loss" ? "total" : k.slice(5).replace(/_/g, " ");
    return USUAL_PANELS.map((p, i) => i ? p : {...p, curves: losses.map(key => ({key, label: label(key)}))});
  }

  // ---- standing ----

  readState() {
    const said = textOf(this.run.state), known = STATES[said];
    if (this.scores) return {badge: textOf(objectOf(this.evaluation).state) || "no scores", look: "odd"};
    if (!said)
      return {badge: this.facts.log || this.evaluation ? "state unknown" : "no data", look: "odd"};
    if (said === "running" && this.facts.locked === false)
      return {badge: "interrupted", look: "bad", resume: this.resumeCommand(), why: "The process was killed, or the machine failed. Continue from the newest checkpoint with --resume:"};
    if (said === "complete" && this.run.step < this.run.steps) return {...known, badge: "complete, ended early"};
    return {...(known || {badge: said, look: "odd"}), diverged: said === "diverged", running: said === "running"};
  }

  // Names the folder where the run is now, if it was moved.
  resumeCommand() {
    const command = textOf(this.run.command), out = textOf(objectOf(objectOf(this.run.settings).out).value), {folder, path} = this.facts;
    const moved = out && path && out !== folder && out !== path;
    return command ? commandWithout(`${command} --resume${moved ? ` --out ${shellWord(textOf(path))}` : ""}`) : "";
  }

  lastStep() {
    const x = listOf(this.log.x), e = this.evaluations;
    const logged = Math.max(0, x.length ? x[x.length - 1] : 0, e.length ? e[e.length - 1].step : 0);
    return logged || (isNumber(this.run.step) ? this.run.step : 0);
  }

  seconds() {
    const p = this.points("elapsed");
    return p.length ? p[p.length - 1].y : 0;
  }

  // The last finite value of the training loss and, if the run diverged, the step after it.
  loss() {
    const points = this.points("loss");
    if (!points.length) return null;
    const cut = this.state.diverged ? this.cut(points) : Infinity;
    let i = points.length - 1;
    while (i > 0 && points[i].y > cut) i--;
    const mean = (from, to) => {
      const part = points.slice(Math.max(0, from), to);
      return part.reduce((s, p) => s + p.y, 0) / part.length;
    };
    const reach = Math.min(50, Math.max(1, Math.floor((i + 1) / 4)));
    return {first: mean(0, reach), last: mean(i + 1 - reach, i + 1), sound: points[i], reach,
            diverges: this.state.diverged ? (points[i + 1] ? points[i + 1].x : points[i].x + 1) : null};
  }

  // The mean training loss of the steps that end with this one: a quarter of them, 50 at most.
  meanLoss(step) {
    const points = this.points("loss").filter(p => p.x <= step), part = points.slice(-Math.min(50, Math.max(1, Math.floor(points.length / 4))));
    return part.reduce((s, p) => s + p.y, 0) / part.length;
  }

  readMetrics() {
    const list = [], sets = new Map(this.evaluations.map(e => [e.step, e.scored_set])), first = [...sets.values()].find(s => s);
    for (const panel of this.panels)
      if (panel.metrics && (this.run.panels || panel.curves.some(c => this.points(c.key).length)))
        for (const c of panel.curves) {
          const points = this.points(c.key);
          let best = 0; // of the evaluations on what the first one was scored on
          points.forEach((p, i) => { if (p.y > points[best].y && (!sets.get(p.x) || sets.get(p.x) === first)) best = i; });
          list.push({key: c.key, label: textOf(c.label) || c.key, points, bestAt: best, best: points[best], last: points[points.length - 1],
                     unit: textOf(panel.unit), title: textOf(panel.title)});
        }
    return list;
  }

  // The main metrics: AP and top-1. (AP50 and top-5 are easier.)
  headline() {
    const list = this.metrics.filter(m => m.points.length && !/50$|75$|top5$/.test(m.key));
    return list.length ? list : this.metrics.filter(m => m.points.length);
  }

  // The file with the weights that are best by a metric; "": unknown.
  fileOfBest(metric) {
    for (const [name, of] of Object.entries(objectOf(this.facts.best)))
      if (objectOf(of).step === metric.best.x && metric.key in objectOf(of) && listOf(this.facts.weights).includes(`${name}.safetensors`))
        return `${name}.safetensors`;
    return this.fileOfLast(metric.best.x);
  }

  fileOfLast(step) {
    return this.run.state === "complete" && step === this.run.step && listOf(this.facts.weights).includes("model.safetensors") ? "model.safetensors" : "";
  }

  // ---- texts ----

  readWarnings() {
    const list = listOf(this.run.warnings).map(w => typeof w === "string" ? {text: w} : {text: textOf(objectOf(w).text), command: objectOf(w).command})
                     .filter(w => w.text);
    const skipped = this.points("skipped"), n = skipped.length ? skipped[skipped.length - 1].y : 0;
    if (n > 0) list.push({text: `${formatShort(n)} steps were skipped because their gradients overflowed, while fp16's loss scale was adjusted.`});
    const one = onePrediction(this.evaluation);
    if (one) list.unshift({text: one});
    const {images, scored_on_training_images: known} = objectOf(this.evaluation);
    if (known > 0) list.unshift({text: `${known.toLocaleString("en")} of the ${textOf(images)} scored images were used for training: these are not held-out scores.`});
    return list;
  }

  amendments() {
    return listOf(this.log.amendments).map(objectOf).map(a => `changed at step ${textOf(a.step)}: ` +
        Object.entries(objectOf(a.changes)).map(([k, v]) => `${k} ${listOf(v).map(textOf).join(" → ") || textOf(v)}`).join(", "));
  }

  readMissing() {
    const list = listOf(this.facts.faults).map(f => `Cannot be read and is left out: ${textOf(f)}.`), has = this.facts;
    if (this.scores) return list;
    const none = [];
    if (!has.run) none.push("run.json (state, settings, machine)");
    if (!has.log) none.push("log.jsonl (losses and scores over steps)");
    if (!has.evaluation) none.push("evaluation.json (categories, confusion, images)");
    if (none.length && !(has.run && has.log))
      list.push(`This folder has no ${none.join(" and no ")}${none.length === 3 ? ": is it the folder of a run?" : ", so those sections are missing."}`);
    if (this.log.cut) list.push("The log's last line is incomplete: the run was killed or is still writing.");
    if (this.log.unread) list.push(`${this.log.unread} lines of the log cannot be read and are left out.`);
    return list;
  }

  settings() {
    return Object.entries(objectOf(this.run.settings)).map(([name, v]) =>
      v && typeof v === "object" ? {name, value: textOf(v.value), from: textOf(v.from)} : {name, value: textOf(v), from: ""});
  }
}

function shellWord(text) {
  return /^[\w\/.,:=@%+-]+$/.test(text) ? text : `'${text.replace(/'/g, "'\\''")}'`;
}

// Drops all but the last occurrence of an option in a command, since the last is in force. Options begin with "--"; the
// words up to the next are their values.
function commandWithout(command) {
  const words = command.match(/'(?:[^']|'\\'')*'|"[^"]*"|\S+/g) || [], parts = [];
  for (const word of words) {
    const last = parts[parts.length - 1];
    if (word.startsWith("--") || !last || (!last[0].startsWith("--"))) parts.push([word]);
    else last.push(word);
  }
  const nameOf = part => part[0].startsWith("--") ? part[0].split("=")[0] : null;
  return parts.filter((p, i) => !nameOf(p) || !parts.slice(i + 1).some(q => nameOf(q) === nameOf(p))).map(p => p.join(" ")).join(" ");
}

// A sentence where one class is predicted for nearly everything, although the truth has several; else "".
function onePrediction(evaluation) {
  const c = readConfusion(evaluation);
  if (!c) return "";
  const at = c.countsAt(c.opensAt), found = new Map(), truth = new Set();
  let all = 0;
  for (const [t, f, n] of at) {
    if (!n) continue;
    if (t !== c.nothing) truth.add(t);
    if (f === c.nothing) continue;
    found.set(f, (found.get(f) || 0) + n);
    all += n;
  }
  if (truth.size < 2 || all < 10) return "";
  const [most, n] = [...found].reduce((a, b) => b[1] > a[1] ? b : a);
  return n >= 0.98 * all ? `One class is predicted for ${n === all ? "everything" : "nearly everything"}: ${c.names[most]}, ${n} of ${all} predictions, ` +
    `although the ground truth has ${truth.size} classes.` : "";
}
