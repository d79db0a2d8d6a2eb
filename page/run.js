// The page of one run, from what is needed most to what is looked up rarely.

// ---- the first screen -------------------------------------------------------------------------------------------------

// One sentence on whether the run learned.
function verdict(run) {
  const loss = run.loss(), m = run.main, parts = [], score = formatScore, step = x => `step ${x.toLocaleString("en")}`;
  if (loss && run.state.diverged)
    parts.push(`Training diverged at ${step(loss.diverges)}; the last normal loss was ${formatShort(loss.sound.y, 4)}, at ${step(loss.sound.x)}.`);
  if (m) {
    const classes = isNumber(run.run.classes) ? run.run.classes : listOf(objectOf(objectOf(run.evaluation).confusion).names).length;
    const chance = m.key === "val_top1" && classes > 1 ? 1 / classes : 0, floor = chance ? 1.5 * chance : 0.01;
    const first = m.points[0], falls = m.last.x > m.best.x && m.last.y < 0.95 * m.best.y;
    if (run.state.diverged)
      parts.push(`Best ${m.label} before that: ${score(m.best.y)}, at ${step(m.best.x)}${falls ? ` (${score(m.last.y)} at ${step(m.last.x)})` : ""}.`);
    else if (m.best.y < floor)
      parts.push(`The model has barely learned: best ${m.label} ${score(m.best.y)}, at ${step(m.best.x)}${chance ? ` (chance level: ${score(chance)})` : ""}.`);
    else if (m.points.length === 1)
      parts.push(`One evaluation so far: ${m.label} ${score(first.y)}, at ${step(first.x)}.`);
    else if (falls && m.bestAt === 0)
      parts.push(`It got worse: ${m.label} was best at the first evaluation, ${score(first.y)} at ${step(first.x)}, and has fallen to ${score(m.last.y)}.`);
    else {
      const before = Math.max(...m.points.slice(0, -1).map(p => p.y)); // a rise by more than 1 % above the previous maximum
      const moved = m.best.y - first.y;
      if (m.points.length > 1 && moved < 0.05 * m.best.y && !falls)
        parts.push(`${capital(m.label)} stayed about the same: ${score(first.y)} at ${step(first.x)}, best ${score(m.best.y)} at ${step(m.best.x)}.`);
      else parts.push(first.y < m.best.y ? `The model learned: ${m.label} rose from ${score(first.y)} (${step(first.x)}) to its best, ${score(m.best.y)}, at ${step(m.best.x)}.`
                                    : `The model learned: best ${m.label} ${score(m.best.y)}, at ${step(m.best.x)}.`);
      const overfits = overfitting(run), rises = m.points.length > 2 && m.last.y > 1.01 * before;
      if (falls && !overfits.includes(`${m.label} has fallen`)) parts.push(`Since then ${m.label} has fallen to ${score(m.last.y)}.`);
      else if (rises) parts.push(`${capital(m.label)} ${run.state.running ? "is" : "was"} still rising${run.state.running ? "" : " at the end"}.`);
      if (overfits) parts.push(`The model overfits: ${overfits}; ${rises ? "" : "stop earlier, "}augment more, or add images.`);
    }
  } else if (loss && !run.state.diverged) {
    const fell = loss.last < 0.9 * loss.first;
    parts.push(`The training loss ${fell ? "fell" : "went"} from ${formatShort(loss.first, 3)} to ${formatShort(loss.last, 3)}; ${worthOf(run)}.`);
  }
  return parts.join(" ");
}

// A loss on validation, or without one the main score, that is more than 5 % worse at the end than at its best, while
// the loss of training has gone on falling.
function overfitting(run) {
  const validation = run.points("val_loss"), hasLoss = validation.length > 2, m = run.main;
  const points = hasLoss ? validation : m ? m.points : [], last = points[points.length - 1];
  if (points.length < 3) return "";
  const best = hasLoss ? validation.reduce((a, b) => (b.y <= a.y ? b : a)) : m.best, format = hasLoss ? y => formatShort(y, 3) : formatScore;
  const before = run.meanLoss(best.x), after = run.meanLoss(last.x);
  if (!((hasLoss ? last.y > 1.05 * best.y : last.y < 0.95 * best.y) && after < before)) return "";
  return `since step ${best.x.toLocaleString("en")} ${hasLoss ? "the loss on validation has risen" : `${m.label} has fallen`} from ${format(best.y)} to ${format(last.y)}, while the loss of training fell from ${formatShort(before, 3)} to ${formatShort(after, 3)}`;
}

// Results of an evaluation other than scores.
function worthOf(run) {
  const validation = run.points("val_loss"), n = run.evaluations.length, undefinedOnes = run.evaluations.some(e => run.metrics.some(m => m.key in e));
  const went = validation.length > 1 ? `on validation it went from ${formatShort(validation[0].y)} to ${formatShort(validation[validation.length - 1].y)}` : "";
  if (went && !undefinedOnes) return went;
  if (n) return `${went}${went ? "; " : ""}${n === 1 ? "the one evaluation has" : `${n} evaluations have`} no score, as when the ground truth is empty`;
  return run.state.running ? "no evaluation yet shows how good the model is" : "no evaluation shows how good the model is";
}

function progressText(run) {
  const r = run.run, step = run.lastStep(), parts = [];
  if (isNumber(r.steps) && r.steps > 0) parts.push(`step ${step.toLocaleString("en")} of ${r.steps.toLocaleString("en")}`);
  else if (step) parts.push(`step ${step.toLocaleString("en")}`);
  if (isNumber(r.per_epoch) && r.per_epoch > 0) parts.push(`${(step / r.per_epoch).toFixed(1)} epochs`);
  const seconds = run.seconds();
  if (seconds > 0) parts.push(formatTime(seconds));
  return parts.join(" · ");
}

function metricTile(run, m) {
  const at = (p, file) => [`step ${p.x.toLocaleString("en")}`, file ? [el("br"), file] : ""], tile = el("div.tile", el("div.name", m.label));
  const best = el("div.best", el("b", formatScore(m.best.y)), el("small", "best, ", at(m.best, run.fileOfBest(m))));
  const last = el("div.last", el("b", formatScore(m.last.y)), el("small", m.last.x === m.best.x ? "last (= best)" : ["last, ", at(m.last, run.fileOfLast(m.last.x))]));
  best.firstChild.dataset.best = m.key;
  last.firstChild.dataset.last = m.key;
  return add(tile, [el("div.pair", best, last)]);
}

function tiles(run) {
  const list = run.headline().map(m => metricTile(run, m)), loss = run.loss();
  if (loss) {
    const value = run.state.diverged ? loss.sound.y : loss.last;
    const says = run.state.diverged ? `last normal value, step ${loss.sound.x.toLocaleString("en")}` : `mean of the last ${loss.reach} logged steps, up to step ${loss.sound.x.toLocaleString("en")}`;
    list.push(el("div.tile", el("div.name", "training loss"), el("b", formatShort(value, 4)), el("small", says)));
  }
  return list.length ? el("div.tiles", list) : null;
}

function factsLine(run) {
  const r = run.run, parts = [], fact = (name, value) => { if (textOf(value)) parts.push([el("b", textOf(value)), name ? ` ${name}` : ""]); };
  fact("", r.model);
  fact("", r.data);
  if (isNumber(r.images)) fact("training images", r.images.toLocaleString("en"));
  if (isNumber(r.val_images) && r.val_images) fact("validation images", r.val_images.toLocaleString("en"));
  if (isNumber(r.batch)) parts.push(["batch size ", el("b", String(r.batch * (r.world || 1))), r.world > 1 ? ` over ${r.world} GPUs or ranks` : ""]);
  const speed = run.points("img_s");
  if (speed.length) fact("images per second", formatShort(speed[speed.length - 1].y));
  fact("", r.device);
  for (const [k, v] of Object.entries(objectOf(objectOf(run.evaluation).facts))) if (k !== "scores") fact(`(${k})`, v); // scores are shown as tiles
  return parts.length ? el("p.facts", parts.map((p, i) => i ? [" · ", p] : p)) : null;
}

function badge(run) { return el(`span.badge.${run.state.look}`, run.state.running ? "running when this was written" : run.state.badge); }

// For weights that were scored without a run.
function scoreTiles(run) {
  const list = [["bbox_AP", "box AP"], ["segm_AP", "mask AP"], ["val_top1", "top-1"], ["val_top5", "top-5"]].map(([key, label]) => {
    const v = metricOf(objectOf(run.evaluation.metrics)[key]);
    if (!isNumber(v)) return null;
    const b = el("b", formatScore(v));
    b.dataset.best = key;
    return el("div.tile", el("div.name", label), b);
  });
  return el("div.tiles", list);
}

function header(run) {
  return [el("div.title", el("h1", run.name), badge(run), el("span.faint", progressText(run))),
          run.state.why ? el("p", run.state.why) : null, run.state.resume ? copyBlock(run.state.resume) : null, el("p.verdict", verdict(run)), run.scores ? scoreTiles(run) : tiles(run),
          el("p.verdict", run.evaluation ? confusionSentence(run.evaluation) : ""), factsLine(run), timeLine(run)];
}

// ---- sections ---------------------------------------------------------------------------------------------------------

function warningSection(run, prefix) {
  const list = [...run.warnings, ...run.amendments().map(text => ({text}))];
  if (!list.length) return null;
  const item = w => el("li", w.text, w.command ? [el("div", repairText(w.command)), copyBlock(w.command)] : null);
  const s = section(`${prefix}warnings`, list.length === 1 ? "Warning" : "Warnings", el("ul", list.map(item)));
  s.classList.add("warn");
  if (run.state.look === "bad") s.classList.add("bad");
  return s;
}

// Explains what a command that continues after a divergence does.
function repairText(command) {
  return /--resume=previous\b/.test(command) ? "To resume from checkpoint-previous.safetensors with half the learning rate:"
    : /--resume\b/.test(command) ? "To resume from the newest checkpoint with half the learning rate:" : "To start again with half the learning rate:";
}

function missingNote(run) { return run.missing.length ? el("div.card", run.missing.map(text => el("p.faint", text))) : null; }

// Of the session: the whole, and what was not training.
function timeLine(run) {
  const parts = listOf(run.run.time).map(objectOf), seconds = p => Number(p.seconds) || 0, all = parts.reduce((s, p) => s + seconds(p), 0);
  if (run.state.running || !(all > 0)) return null;
  const short = s => s < 100 ? `${s.toFixed(1)} s` : formatTime(s), rest = parts.slice(1);
  const share = 100 * rest.reduce((s, p) => s + seconds(p), 0) / all;
  return el("p.facts", "wall time of the session ", el("b", short(all)), `: ${textOf(parts[0].name)} ${(100 - share).toFixed(0)} %, `,
            rest.map(p => `${textOf(p.name)} ${short(seconds(p))}`).join(", "));
}

function timeTable(run) {
  const parts = listOf(run.run.parts).map(objectOf), of = p => [Number(p.forward) || 0, isNumber(p.backward) ? p.backward : null];
  const all = parts.reduce((s, p) => s + of(p)[0] + (of(p)[1] || 0), 0);
  if (!(all > 0)) return el("p.faint", "The time of a step was not measured: the session was too short, or timed as a whole.");
  const rows = parts.map(p => {
    const [forward, backward] = of(p), sum = forward + (backward || 0), bar = el("i"), ms = v => v === null ? null : el("td.n", (1e3 * v).toFixed(2));
    bar.style.width = `${(100 * sum / all).toFixed(1)}%`;
    return [textOf(p.name), ms(forward), ms(backward), ms(sum), el("td.n", (100 * sum / all).toFixed(1)), el("td.bar", bar)];
  });
  return [el("p.faint", `${(1e3 * all).toFixed(2)} ms per step: mean of ${textOf(run.run.timed_steps)} profiled steps (profiling slows them slightly).`),
          table("Time of a step", ["part", "forward, ms", "backward, ms", "total, ms", "share, %", ""], rows)];
}

function memoryTable(run) {
  const rows = listOf(run.run.memory).map(objectOf).map(m => [textOf(m.name), textOf(m.place), el("td.n", isNumber(m.bytes) ? (m.bytes / 1e6).toFixed(1) : "–")]);
  return rows.length ? [el("h3", "Memory"), table("Memory", ["what", "where", "MB"], rows)] : null;
}

function speedSection(run, prefix) {
  const plots = otherPlots(run);
  if (!plots.length && !listOf(run.run.parts).length && !listOf(run.run.memory).length) return null;
  const group = newGroup();
  return section(`${prefix}speed`, "Speed and learning rate", details("Learning rate, data loading, time of a step, memory",
    el("div.charts", plots.map(spec => plotWithLegend(spec, spec.alone ? newGroup() : group))),
    listOf(run.run.parts).length ? [el("h3", "Time of a step"), timeTable(run)] : null, memoryTable(run)));
}

function setBy(from) { return from === "given" ? "command line" : from; }

function pairsTable(label, pairs) { return table(label, ["", "value"], pairs.map(([k, v]) => [k, el("td.text", textOf(v))])); }

function settingsSection(run, prefix) {
  const settings = run.settings(), given = settings.filter(s => s.from && s.from !== "default"), machine = Object.entries(objectOf(run.run.machine)).filter(([, v]) => v !== null);
  for (const k of ["date", "commit", "clean"]) if (run.run[k] !== undefined) machine.unshift([k, run.run[k]]);
  const rows = list => table("Settings", ["option", "value", "set by"], list.map(s => [`--${s.name}`, el("td.text", s.value), setBy(s.from)]));
  const of = objectOf(objectOf(run.evaluation).settings);
  const parts = [run.run.command ? copyBlock(textOf(run.run.command)) : null, given.length ? [el("h3", "Non-default settings"), rows(given)] : null,
                 settings.length ? details(`All ${settings.length} settings`, rows(settings)) : null, Object.keys(of).length ? pairsTable("Settings", Object.entries(of)) : null,
                 run.run.data_text ? details("Data", el("pre", textOf(run.run.data_text))) : null, machine.length ? details("Machine", pairsTable("Machine", machine)) : null];
  return parts.some(p => p) ? section(`${prefix}settings`, "Settings and environment", parts) : null;
}

// ---- all --------------------------------------------------------------------------------------------------------------

// prefix: for the sections' ids, so that those of several runs differ.
function runSections(run, prefix) {
  return [missingNote(run), warningSection(run, prefix), run.scores ? null : curvesSection(run, prefix),
          run.evaluation ? [confusionSection(run.evaluation, prefix), evaluationSection(run, prefix), imageSection(run, prefix)]
                         : section(`${prefix}evaluation`, "Evaluation", el("p.faint", run.evaluations.length ?
                             "The curves show the scores of the log; evaluation.json, with categories, confusion matrix and images, is missing." : "None is recorded so far.")),
          speedSection(run, prefix), settingsSection(run, prefix)].flat().filter(s => s);
}

function navigation(sections) {
  const links = sections.filter(s => s.id && s.firstChild).map(s => withAttributes(el("a", s.firstChild.textContent), {href: `#${s.id}`}));
  return withAttributes(el("nav", links), {"aria-label": "sections"});
}

function footer(facts) { return el("footer", `Written by maskrcnn.c, ${textOf(facts.written)}. This page is self-contained.`); }
