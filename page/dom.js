// Helpers that build DOM elements. Text is never parsed as HTML, so that names may hold any characters.

// el("td.n", "3") is <td class="n">3</td>. Children are texts, numbers, elements, or lists of them; null is skipped.
function el(what, ...children) {
  const [tag, ...classes] = what.split(".");
  const e = document.createElement(tag);
  if (classes.length) e.className = classes.join(" ");
  add(e, children);
  return e;
}

// A value of any type as text.
function textOf(v) {
  if (v === null || v === undefined) return "";
  return typeof v === "boolean" ? (v ? "yes" : "no") : Array.isArray(v) ? v.map(textOf).join(", ") : typeof v === "object" ? JSON.stringify(v) : String(v);
}

function add(e, children) {
  for (const child of children)
    if (Array.isArray(child)) add(e, child);
    else if (child !== null && child !== undefined && child !== false) e.append(child instanceof Node ? child : textOf(child));
  return e;
}

// The page's facts. Names may hold characters that change the direction of the text after them: these are replaced by
// U+FFFD.
function readFacts() {
  const plain = (_, value) => typeof value === "string" ? value.replace(/[\u202a-\u202e\u2066-\u2069]/g, "\ufffd") : value;
  return JSON.parse(document.getElementById("facts").textContent, plain);
}

// An SVG element with these attributes.
function svg(tag, attributes, ...children) {
  const e = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const name in attributes) e.setAttribute(name, attributes[name]);
  return add(e, children);
}

function withAttributes(e, attributes) {
  for (const name in attributes) e.setAttribute(name, attributes[name]);
  return e;
}

// A section with a heading and an id for links.
function section(id, heading, ...children) {
  return withAttributes(el("section", el("h2", heading), children), {id});
}

// Draws expensive content only when it is opened.
function detailsLater(summary, draw) {
  const fold = details(summary);
  fold.addEventListener("toggle", () => { if (fold.open && fold.childElementCount === 1) add(fold, [draw()]); });
  return fold;
}

function details(summary, ...children) { return el("details", el("summary", summary), children); }

// A table in a box that scrolls if it is wider than the page. Rows are lists of cells; a cell is a text, a number
// (right-aligned) or a <td> element. `digits`: decimals of numbers that are not integers.
function table(label, heading, rows, digits = 3) {
  const isNumeric = v => typeof v === "number" || (v instanceof HTMLTableCellElement && v.classList.contains("n"));
  const number = heading.map((_, i) => i > 0 && rows.some(r => isNumeric(r[i])));
  const cell = (value, i) => {
    if (value instanceof HTMLTableCellElement) return value;
    const text = typeof value === "number" ? formatFixed(value, digits) : value === null || value === undefined ? "–" : value;
    return i === 0 ? withAttributes(el("th", text), {scope: "row"}) : el(number[i] ? "td.n" : "td", text);
  };
  const t = el("table", el("thead", el("tr", heading.map((h, i) => withAttributes(el(number[i] ? "th.n" : "th", h), {scope: "col"})))),
               el("tbody", rows.map(r => el("tr", r.map(cell)))));
  return withAttributes(el("div.scroll", t), {tabindex: 0, role: "region", "aria-label": label});
}

// A table that shows its first rows and a button for the rest; cellsOf(row) lists a row's cells. Printed, it shows all,
// or the first thousand: the others take seconds, and are made when they are asked for.
function longTable(label, heading, rows, cellsOf = r => r) {
  const most = 25, made = 1000;
  const box = table(label, heading, rows.slice(0, made).map(cellsOf));
  if (rows.length <= most + 5) return box;
  const body = box.querySelector("tbody"), hidden = [...body.children].slice(most);
  for (const row of hidden) row.classList.add("more");
  const button = el("button.more", `all ${rows.length}`);
  button.onclick = () => {
    for (const row of hidden) row.classList.remove("more");
    if (rows.length > made) body.append(...table(label, heading, rows.slice(made).map(cellsOf)).querySelector("tbody").children);
    button.remove();
  };
  return el("div", box, button);
}

// A command with a button that copies it. Lines break between words, not after the hyphens of options.
function copyBlock(text) {
  const words = text.split(/(\s+)/).map(w => w.trim() ? el("span.word", w) : w), pre = el("pre", words), button = el("button.copy", "copy");
  button.onclick = async () => {
    try {
      await navigator.clipboard.writeText(text);
      button.textContent = "copied";
    } catch { // a page opened from a file may have no clipboard: select the text instead
      const range = document.createRange();
      range.selectNodeContents(pre);
      getSelection().removeAllRanges();
      getSelection().addRange(range);
      button.textContent = "selected: press Ctrl-C";
    }
  };
  return el("div.copy", pre, button);
}

// ---- numbers and times ------------------------------------------------------------------------------------------------

function isNumber(v) { return typeof v === "number" && isFinite(v); }

function formatFixed(v, digits) {
  if (!isNumber(v)) return "–";
  if (Number.isInteger(v) && Math.abs(v) < 1e15) return v.toLocaleString("en");
  return Math.abs(v) >= 1e7 ? v.toExponential(2) : v.toFixed(digits);
}

function capital(text) { return text[0].toUpperCase() + text.slice(1); }

// A score between 0 and 1: three decimals, or more if it would show as 0.
function formatScore(v) { return v > 0 && v < 0.0005 ? formatShort(v, 1) : v.toFixed(3); }

// About `digits` significant digits, as short as possible: 0.000125, 3.2k, 4e+20.
function formatShort(v, digits = 3) {
  if (!isNumber(v)) return "–";
  const a = Math.abs(v);
  if (a !== 0 && (a < 1e-4 || a >= 1e7)) return String(Number(v.toPrecision(digits))).replace(/^([-\d.]+)$/, (_, x) => Number(x).toExponential());
  return a >= 1e4 ? Math.round(v).toLocaleString("en") : String(Number(v.toPrecision(digits)));
}

function formatTime(seconds) {
  const s = Math.round(seconds), two = n => String(n).padStart(2, "0");
  return `${Math.floor(s / 3600)}:${two(Math.floor(s / 60) % 60)}:${two(s % 60)}`;
}
