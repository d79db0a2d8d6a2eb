// The doctor's page: the terminal's report, histograms, and the album.

// ---- results ----------------------------------------------------------------------------------------------------------

function hints(facts) {
  const n = facts.hurts.length;
  return n ? ` ${n} ${n === 1 ? "hint" : "hints"} below.` : "";
}

function state(facts) {
  if (facts.splits.some(s => s.stop)) return ["bad", "training stops", "Training cannot start with this data set; the reason is below."];
  if (facts.sound) return ["good", "no errors", `No errors found${facts.unseen ? `${facts.unseen}. Ready` : "; ready"} to train.${hints(facts)}`];
  const n = facts.wrong.length;
  return ["odd", n === 1 ? "1 type of error" : `${n} types of errors`, "Training can start; the errors are listed below, with what training does about each."];
}

function whatThereIs(facts) {
  const splits = facts.splits.filter(s => s.name !== null);
  return section("there", "Overview", el("div.splits", splits.map(s => el("div",
    el("h3", s.name),
    s.open ? el("dl", s.said.map(line => [el("dt", line.name), el("dd", line.text)])) : el("p.stop", "cannot be opened; the reason is below")))),
    facts.absent && el("p", facts.absent));
}

function whatIsWrong(facts) {
  const stops = facts.splits.filter(s => s.stop);
  const rows = facts.wrong.map(w => el("tr", el("td", w.split ?? "both"), el("td.n", w.count.toLocaleString("en")),
    el("td.text", w.what), el("td.text", w.treatment), el("td.text.faint", w.details.map(d => el("div", d)))));
  return section("wrong", "Errors",
    stops.map(s => el("p.stop", el("b", `${s.name}: training stops: `), s.stop)),
    rows.length > 0 && el("div.scroll.stack", el("table",
      el("thead", el("tr", el("th", "split"), el("th.n", "count"), el("th", "error"), el("th", "what training does"), el("th", "example"))),
      el("tbody", rows))),
    facts.sound && el("p", `none${facts.unseen ?? ""}`));
}

function whatWillHurt(facts) {
  return section("hurt", "Hints",
    facts.hurts.length ? el("ul", facts.hurts.map(text => el("li", text))) : el("p", "none"));
}

function suggested(facts) {
  return section("suggested", "Suggested command", copyBlock(facts.command),
    facts.reasons.length > 0 && el("ul", facts.reasons.map(text => el("li", text))));
}

// ---- histograms -------------------------------------------------------------------------------------------------------

const MOST_ROWS = 30;

// A row for each category with a bar for each split, whose length is the category's share of the split's objects.
function categoryBars(facts, open) {
  const what = facts.classes ? "images" : "objects", noun = facts.classes ? "class" : "category";
  const sums = open.map(s => total(facts.categories.map(c => Math.max(c.counts[s], 0))));
  const share = (c, i) => sums[i] ? Math.max(c.counts[open[i]], 0) / sums[i] : 0;
  const longest = Math.max(...facts.categories.flatMap(c => open.map((_, i) => share(c, i))), 1e-9);
  const names = open.map(s => facts.splits[s].name);
  const measured = !facts.classes && open[0] === 0; // sizes were measured on training images
  const orders = [...names.map((name, i) => [`most in ${name} first`, (a, b) => b.counts[open[i]] - a.counts[open[i]]]),
                  [`by ${facts.classes ? "number" : "id"}`, (a, b) => a.id - b.id], ["by name", (a, b) => a.name.localeCompare(b.name)]];
  const order = withAttributes(el("select", orders.map(([text], i) => new Option(text, i))), {"aria-label": "order"});
  const find = withAttributes(el("input"), {type: "search", placeholder: `find a ${noun}`, "aria-label": `find a ${noun}`});
  const body = el("tbody"), more = el("button.more"), note = el("p.faint");
  let all = false;

  function bar(c, i) {
    const e = el(share(c, i) ? `i.hue${i}` : `i.hue${i}.none`);
    e.style.width = `${100 * share(c, i) / longest}%`;
    return e;
  }

  function row(c) {
    const name = withAttributes(el("th", el("span.clamp", c.name)), {scope: "row", title: `${noun} ${c.id}: ${c.name}`});
    return el("tr", name, el("td.bars", open.map((_, i) => bar(c, i))),
      open.map(s => el("td.n", c.counts[s] < 0 ? "–" : c.counts[s].toLocaleString("en"))),
      measured && [el("td.n.wide", c.images.toLocaleString("en")), el("td.n.wide", c.size ? c.size.toFixed(0) : "–")]);
  }

  function fill() {
    const wanted = find.value.toLowerCase();
    const rows = facts.categories.filter(c => c.name.toLowerCase().includes(wanted)).sort(orders[order.value][1]);
    body.replaceChildren(...(all ? rows : rows.slice(0, MOST_ROWS)).map(row));
    more.hidden = all || rows.length <= MOST_ROWS;
    more.textContent = `all ${rows.length}`;
    note.textContent = more.hidden ? (rows.length ? "" : "none") : `${MOST_ROWS} of ${rows.length} are shown`;
  }

  order.onchange = fill;
  find.oninput = fill;
  more.onclick = () => {
    all = true;
    fill();
  };
  fill();
  const head = [noun, "share of the split", ...names.map(name => `${what} in ${name}`),
                ...(measured ? ["training images", "median size after resizing, px"] : [])];
  return el("div", facts.categories.length > 1 && el("div.choice", order, facts.categories.length > MOST_ROWS && find),
    el("div.scroll", el("table.categories", el("thead", el("tr", head.map((text, i) => el(i > 1 + open.length ? "th.n.wide" : i > 1 ? "th.n" : "th", text)))), body)), note, more);
}

// The bins that any split fills, and those around the limits between small, medium and large objects.
function trimmed(limits, small, counts) {
  const filled = limits.slice(1).map((_, i) => counts.some(c => c[i]));
  const first = Math.min(filled.indexOf(true), small - 6), end = Math.max(filled.lastIndexOf(true) + 1, small + 7);
  return {limits: limits.slice(first, end + 1), counts: counts.map(c => c.slice(first, end))};
}

function objectSizes(facts, splits) {
  const names = splits.map(s => s.name), stored = splits.map(s => s.sizes), resized = splits.map(s => s.resized);
  if (!stored.some(total)) return null;
  const of = (counts, from, to) => total(counts.slice(from, to)), large = facts.small + 4; // four bins are a factor of three
  const parts = [["small, below 32 × 32 pixels", 0, facts.small], ["medium", facts.small, large], ["large, from 96 × 96 pixels", large, undefined]];
  const plain = {log: true, unit: "pixels", what: "objects", names};
  return section("sizes", "Object sizes",
    splitLegend(names),
    el("h3", "At original size"),
    histogram({...plain, ...trimmed(facts.size_limits, facts.small, stored), label: "object sizes at original size",
               x: "√area in the image, pixels (log)", marks: [32, 96], parts: ["small", "medium", "large"]}),
    table("objects by COCO's sizes", ["COCO size class", ...names.map(n => `in ${n}`)],
          parts.map(([text, from, to]) => [text, ...stored.map(c => el("td.n", `${of(c, from, to).toLocaleString("en")} (${percent(of(c, from, to), total(c))})`))])),
    el("h3", "At network input size"),
    histogram({...plain, ...trimmed(facts.size_limits, facts.small, resized), label: "object sizes at the input size",
               x: "√(area of the box) at the input size, pixels (log)", marks: [8], markText: "8 px: smaller objects are hard to learn"}));
}

function perImage(splits) {
  const lists = splits.map(s => s.per_image), names = splits.map(s => s.name);
  return section("per-image", "Objects per image", splitLegend(names),
    histogram({...binned(lists), whole: true, label: "objects per image", what: "images", unit: "objects", names, x: "objects in an image"}));
}

function imageSizes(splits) {
  const lists = splits.map(s => s.image_sizes), names = splits.map(s => s.name), first = lists[0][0][0];
  if (lists.every(l => l.length === 1 && l[0][0] === first)) return null; // the overview says it
  return section("image-sizes", "Image sizes", splitLegend(names),
    histogram({...binned(lists), whole: true, label: "image sizes", what: "images", unit: "pixels", names, x: "√(width · height), pixels as stored"}));
}

// ---- augmentation -----------------------------------------------------------------------------------------------------

function beforeAndAfter(facts) {
  const picture = (src, text) => el("figure", src ? withAttributes(el("img"), {src, alt: text, loading: "lazy"}) : el("p", "cannot be shown"), el("figcaption", text));
  return section("augmented", `Training images with --augment ${facts.preset}`,
    el("p.faint", `As the first steps of a run with --size ${facts.size} would get them; grey is padding. ` +
                  "The suggested command may name another size and preset."),
    facts.augmented.map(a => el("div.pair", picture(a.before, a.file), picture(a.after, "as trained on"))));
}

// ---- the page ---------------------------------------------------------------------------------------------------------

function doctorPage(facts) {
  const [mood, badge, sentence] = state(facts), splits = facts.splits.filter(s => s.open);
  const open = [0, 1].filter(s => facts.splits[s].open), counted = facts.categories.some(c => c.counts.some(n => n > 0));
  const parts = [
    whatThereIs(facts), whatIsWrong(facts), facts.splits[0].open && whatWillHurt(facts), facts.command !== null && suggested(facts),
    counted && section("categories", facts.classes ? "Images of each class" : "Objects of each category",
      splitLegend(splits.map(s => s.name)), categoryBars(facts, open)),
    !facts.classes && splits.length > 0 && objectSizes(facts, splits),
    !facts.classes && splits.length > 0 && perImage(splits),
    splits.length > 0 && imageSizes(splits),
    facts.augmented.length > 0 && beforeAndAfter(facts),
    facts.images.length > 0 && section("images", facts.classes ? "Images" : "Images with their masks", album(facts)),
  ].filter(Boolean);
  return [
    el("div.title", el("h1", facts.data), el(`span.badge.${mood}`, badge)),
    el("p.verdict", sentence), el("p.facts", capital(facts.read_as)),
    el("nav", parts.map(p => withAttributes(el("a", p.firstChild.textContent), {href: `#${p.id}`}))),
    parts,
  ];
}

const page = document.getElementById("page");
page.replaceChildren();
add(page, doctorPage(readFacts()));
document.documentElement.dataset.ready = "1";
