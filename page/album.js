// The album of a data set: pictures with their masks, filtered by split, category and defect; arrow keys leaf through.

// facts.images: [{split, id, file, w, h, objects: [[category, count]], wrong: [defect type], note, src}], where split,
// category and defect type are indices into facts.splits, categories and defect_types.
function album(facts) {
  let shown = [], at = 0;
  const choice = {
    split: filter("split", "all splits", facts.splits.map(s => s.name), im => [im.split]),
    category: filter(facts.classes ? "class" : "category", facts.classes ? "all classes" : "all categories",
                     facts.categories.map(c => c.name), im => im.objects.map(o => o[0])),
    wrong: filter("error", "all images", facts.defect_types, im => im.wrong),
  };
  const place = el("output"), frame = el("div.frame"), strip = el("div.strip");
  const file = el("b"), where = el("span.faint"), objects = el("div.faint.clamp"), wrong = el("ul.flaws");
  const back = withAttributes(el("button", "←"), {"aria-label": "previous"});
  const on = withAttributes(el("button", "→"), {"aria-label": "next"});
  const figure = el("figure", frame, el("figcaption", back, el("div", file, " ", where, objects, wrong), on));

  // Filters offer only values that some image has.
  function filter(label, all, names, list) {
    const used = names.map(() => 0), select = withAttributes(el("select"), {"aria-label": label});
    for (const im of facts.images) for (const i of list(im)) used[i]++;
    select.append(new Option(all, ""));
    names.forEach((name, i) => { if (used[i]) select.append(new Option(`${name} (${used[i]})`, i)); });
    select.addEventListener("change", choose);
    return select;
  }

  function picture(im) {
    if (!im.src) return el("p", "no picture");
    return withAttributes(el("img"), {src: im.src, alt: im.file, loading: "lazy", decoding: "async"});
  }

  function show(i) {
    place.textContent = shown.length ? `${i + 1} of ${shown.length}` : "none";
    strip.children[at]?.classList.remove("now");
    frame.replaceChildren();
    wrong.replaceChildren();
    for (const e of [file, where, objects]) e.textContent = "";
    if (!shown.length) return;
    at = i;
    const im = shown[i];
    strip.children[i].classList.add("now");
    frame.append(withAttributes(picture(im), {loading: "eager"}));
    file.textContent = im.file;
    where.textContent = `${facts.splits[im.split].name}, image ${im.id}, ${im.w} × ${im.h}`;
    const names = im.objects.map(([c, n]) => facts.classes ? `class ${facts.categories[c].name}` : `${facts.categories[c].name}: ${n}`);
    objects.textContent = objects.title = names.join(", ") || "no object";
    add(wrong, [im.wrong.map(k => el("li", `${facts.defect_types[k]}: ${facts.treatments[k]}`)), im.note && el("li", im.note)]);
  }

  function step(by) { if (shown.length) show((at + by + shown.length) % shown.length); }

  function choose() {
    const [s, c, k] = [choice.split, choice.category, choice.wrong].map(select => select.value);
    shown = facts.images.filter(im => (s === "" || im.split === +s) && (k === "" || im.wrong.includes(+k)) &&
      (c === "" || im.objects.some(o => o[0] === +c)));
    strip.replaceChildren(...shown.map((im, i) => {
      const card = el(im.wrong.length ? "button.flawed" : "button", im.src ? picture(im) : "no picture");
      card.title = im.file;
      card.onclick = () => {
        show(i);
        figure.scrollIntoView({block: "nearest", behavior: "smooth"});
      };
      return card;
    }));
    at = 0;
    show(0);
  }

  back.onclick = () => step(-1);
  on.onclick = () => step(1);
  addEventListener("keydown", e => {
    if (/SELECT|INPUT/.test(e.target.tagName) || e.altKey || e.ctrlKey || e.metaKey) return;
    if (e.key === "ArrowLeft") step(-1);
    if (e.key === "ArrowRight") step(1);
  });
  choose();
  return el("div.album", el("div.choice", choice.split, choice.category, choice.wrong, place), figure, strip);
}
