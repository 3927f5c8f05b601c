"use strict";
// Draws the data of the page. What engines said goes in as text only (textContent), never as markup.
const data = JSON.parse(document.getElementById("data").textContent);
const MARKS = {
  same: "the commonest answer", differs: "another answer", wrong: "an answer that must not stand", error: "no answer",
};
const KINDS = {
  near: ["near tie", "good", "both margins are within rounding"],
  wide: ["wide margin", "bad", "at least one side was sure: no rounding does that"],
  outside: ["not in the other's list", "bad", "a token that the other run did not even consider"],
  unknown: ["no margins", "odd", "no log probabilities at the seam, so it is not called a near tie"],
};
const by = (id) => document.getElementById(id);

function node(space, name, attributes, children) {
  const made = space ? document.createElementNS(space, name) : document.createElement(name);
  for (const [key, value] of Object.entries(attributes || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
    else made.setAttribute(key, value === true ? "" : value);
  }
  return put(made, ...children);
}
function put(parent, ...children) {
  for (const child of children.flat(9)) if (child !== null && child !== undefined && child !== false) parent.append(child);
  return parent;
}
const h = (name, attributes, ...children) => node(null, name, attributes, children);
const s = (name, attributes, ...children) => node("http://www.w3.org/2000/svg", name, attributes, children);
const text = (number) => (number < 0 ? "(not in this page; the JSON report has it)" : data.texts[number]);
const plural = (count, what) => `${count} ${what}${count === 1 ? "" : "s"}`;
const short = (id) => (/^[0-9a-f]{32}$/.test(id) ? id.slice(0, 12) : id);
const pvalue = (p) => (p < 0.001 ? p.toExponential(1) : p.toFixed(3));

// --- the head --------------------------------------------------------------------------------------------------------

function drawHead() {
  if (data.home) { by("home").href = data.home; by("home").hidden = false; }
  const counts = data.counts, ruling = data.triage && data.triage.ruling;
  const clean = counts.same === data.squares.length && data.squares.length > 0;
  let title, told;
  if (data.scorecard) {
    title = `${data.scorecard.title}: ${data.scorecard.passed ? "passed" : "not passed"}`;
    const failed = data.scorecard.rows.filter((row) => row.state === "fail").map((row) => row.name.replaceAll("_", " "));
    told = failed.length ? `Failed: ${failed.join(", ")}` : "";
  } else if (ruling) {
    title = ruling.means[0].toUpperCase() + ruling.means.slice(1);
    const why = ruling.for.slice(0, 2).map(([statement]) => statement).join("; ");
    told = `${ruling.cause}${ruling.mechanism ? ` (${ruling.mechanism})` : ""}, ${ruling.confidence} evidence${why ? `: ${why}` : ""}`;
  } else {
    title = clean ? "Every answer is sound and the same" : "Some answers differ or must not stand";
    told = "";
  }
  const when = new Date(data.created_at * 1000).toISOString().replace("T", " ").slice(0, 16);
  put(by("verdict"), h("h1", {}, title), told ? h("p", {}, `${told}.`) : "",
    h("p", {}, `Run ${data.run}, ${when} UTC.`));
  const tiles = [["answers", counts.answers], ["requests", counts.requests], ["cells", counts.cells]];
  const sum = (place) => data.squares.reduce((total, square) => total + square[place], 0);
  for (const [name, place] of [["other answers", 4], ["wrong answers", 5], ["no answer", 6]]) if (sum(place)) tiles.push([name, sum(place)]);
  if (counts.volleys_left) tiles.push(["volleys not run", counts.volleys_left]);
  put(by("tiles"), ...tiles.map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value.toLocaleString("en")))));
}

// --- the matrix ------------------------------------------------------------------------------------------------------

const ROW = 24;
const squares = new Map((data.squares || []).map(([row, column, mark, runs, differs, wrong, errors, distinct]) =>
  [`${row}.${column}`, { row, column, mark, runs, differs, wrong, errors, distinct }]));
let at = { row: 0, column: 0 };
let step = 16;

const squareSize = () => Math.min(step - (step > 9 ? 3 : 1), 20);

function glyph(mark, x, y, size) {
  const a = size * 0.3, cx = x + size / 2, cy = y + size / 2;
  if (size < 11) return null;
  if (mark === "wrong") return s("path", { class: "glyph", d: `M${cx - a} ${cy - a}L${cx + a} ${cy + a}M${cx + a} ${cy - a}L${cx - a} ${cy + a}` });
  if (mark === "differs") return s("path", { class: "glyph", d: `M${cx} ${cy - a}L${cx + a} ${cy}L${cx} ${cy + a}L${cx - a} ${cy}Z` });
  if (mark === "error") return s("path", { class: "glyph", d: `M${cx} ${cy - a}V${cy + a * 0.2}M${cx} ${cy + a}V${cy + a}` });
  return null;
}

function drawSquare(square, x, size) {
  const y = (ROW - size) / 2, parts = [];
  if (!square) return [s("rect", { class: "f-none", x, y, width: size, height: size, rx: 3 })];
  // from below: what is worst, each as high as its share of the runs
  let from = y + size;
  const same = square.runs - square.differs - square.wrong - square.errors;
  for (const [mark, count] of [["wrong", square.wrong], ["error", square.errors], ["differs", square.differs], ["same", same]]) {
    if (!count) continue;
    const height = (size * count) / square.runs;
    from -= height;
    const rx = height === size ? 3 : 1;
    parts.push(s("rect", { class: `f-${mark}`, x, y: from, width: size, height, rx }));
  }
  parts.push(glyph(square.mark, x, y, size));
  return parts;
}

function drawMap() {
  put(by("legend"), ...Object.entries(MARKS).map(([mark, means]) =>
    h("li", {}, s("svg", { width: 15, height: ROW, "aria-hidden": true },
      ...drawSquare({ mark, runs: 1, differs: +(mark === "differs"), wrong: +(mark === "wrong"), errors: +(mark === "error") }, 0, 15)), means)));
  const columns = data.requests.length;
  const places = data.cells.map(() => h("td"));
  const heading = h("td");
  const rows = data.cells.map((cell, row) => {
    const mine = [...squares.values()].filter((square) => square.row === row);
    const sum = (name) => mine.reduce((total, square) => total + square[name], 0);
    const told = ["wrong", "errors", "differs"].filter((name) => sum(name))
      .map((name) => `${sum(name)} ${{ differs: "differ", wrong: "wrong", errors: "none" }[name]}`).join(", ");
    return h("tr", { role: "row" }, h("th", { scope: "row", id: `row${row}` }, cell.label),
      h("td", { class: "total" }, `${sum("runs")}${told ? `: ${told}` : ""}`), places[row]);
  });
  const table = h("table", { role: "presentation" },
    h("thead", {}, h("tr", {}, h("th", { class: "head-label" }, "cell"), h("td", { class: "total head-label" }, "answers"), heading)),
    h("tbody", {}, rows));
  put(by("map"), table);
  // as wide as there is room for beside the labels
  step = Math.max(7, Math.min(26, Math.floor((by("map").clientWidth - 36 - table.offsetWidth) / Math.max(1, columns))));
  const size = squareSize(), width = columns * step, every = step >= 20 ? 1 : step >= 12 ? 5 : 10;
  put(heading, s("svg", { width, height: 18, "aria-hidden": true }, data.requests.map((_, c) =>
    c === 0 || (c + 1) % every === 0 ? s("text", { class: "col", x: c * step + size / 2, y: 12 }, String(c + 1)) : null)));
  places.forEach((place, row) => put(place, s("svg", { width, height: ROW, class: "hit", onclick: (event) => {
    const column = Math.floor((event.clientX - event.currentTarget.getBoundingClientRect().left) / step);
    choose(row, Math.max(0, Math.min(columns - 1, column)));
  } }, data.requests.map((request, column) => s("g", { id: `q${row}-${column}`, role: "gridcell", "aria-label": label(row, column) },
    drawSquare(squares.get(`${row}.${column}`), column * step, size), s("title", {}, label(row, column)))))));
  by("map").addEventListener("keydown", (event) => {
    const moves = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1], Home: [0, -columns], End: [0, columns] };
    const move = moves[event.key];
    if (move) {
      event.preventDefault();
      choose(Math.max(0, Math.min(data.cells.length - 1, at.row + move[0])), Math.max(0, Math.min(columns - 1, at.column + move[1])));
    } else if (event.key === "Enter" || event.key === " ") {
      event.preventDefault();
      toSeam(at.row, at.column, true);
    }
  });
  const worst = ["wrong", "error", "differs", "same"].map((mark) => [...squares.values()].find((square) => square.mark === mark)).find(Boolean);
  choose(worst ? worst.row : 0, worst ? worst.column : 0);
}

function label(row, column) {
  const square = squares.get(`${row}.${column}`), where = `${data.cells[row].label}, request ${column + 1} (${short(data.requests[column].id)})`;
  if (!square) return `${where}: not run`;
  const parts = [[square.wrong, "wrong"], [square.errors, "without an answer"], [square.differs, "other than the commonest"]];
  const told = parts.filter(([count]) => count).map(([count, what]) => `${count} ${what}`).join(", ");
  return `${where}: ${plural(square.runs, "run")}, ${told || "all the commonest answer"}`;
}

function choose(row, column) {
  at = { row, column };
  if (!data.cells.length || !data.requests.length) return;
  document.querySelectorAll(".chosen").forEach((old) => old.remove());
  document.querySelectorAll(".map th.on").forEach((old) => old.classList.remove("on"));
  by(`row${row}`).classList.add("on");
  const size = squareSize();
  by(`q${row}-${column}`).append(s("rect", { class: "chosen", x: column * step - 1 + 0.5, y: (ROW - size) / 2 - 1.5, width: size + 2, height: size + 2, rx: 4 }));
  by("map").setAttribute("aria-activedescendant", `q${row}-${column}`);
  const request = data.requests[column], square = squares.get(`${row}.${column}`);
  const answers = data.answers[`${row}.${column}`] || [];
  by("detail").replaceChildren();
  put(by("detail"),
    h("h3", {}, `Request ${column + 1}: `, h("span", { class: "mono" }, short(request.id))),
    h("p", { class: "quiet" }, data.cells[row].label),
    request.asked >= 0 ? h("div", { class: "asked", tabindex: 0, "aria-label": "The request" }, text(request.asked)) : "",
    request.expected ? h("p", {}, "The right answer: ", h("code", {}, request.expected)) : "",
    square ? h("p", { class: "quiet" }, `${plural(square.runs, "run")}, ${plural(square.distinct, "distinct answer")}`) : h("p", { class: "quiet" }, "Not run."),
    answers.map(([count, number, wrong, finish, findings], index) => h("details", { class: "answer", open: index === 0 },
      h("summary", {}, h("span", { class: "count" }, `${count}×`), wrong ? h("span", { class: "badge bad" }, wrong.slice(0, 60)) : "",
        h("span", { class: "quiet" }, finish), findings && findings !== wrong ? h("span", { class: "quiet" }, findings) : ""),
      h("pre", { tabindex: 0 }, text(number) || "(nothing)"))),
    seamOf(row, column) >= 0 ? h("p", {}, h("button", { onclick: () => toSeam(row, column, true) }, "Show where it parts")) : "");
}

// --- the seams -------------------------------------------------------------------------------------------------------

function seamOf(row, column) {
  const exact = data.seams.findIndex((seam) => seam.request === column && seam.right.cell === row);
  if (exact >= 0) return exact;
  const square = squares.get(`${row}.${column}`);
  return square && square.mark !== "same" ? data.seams.findIndex((seam) => seam.request === column) : -1;
}

function toSeam(row, column, focus) {
  const index = seamOf(row, column);
  if (index < 0) return;
  showSeam(index);
  by("seams").scrollIntoView();
  if (focus) by(`seam${index}`).focus({ preventScroll: true });
}

function drawSeams() {
  if (!data.seams.length) {
    by("viewer").replaceWith(h("p", { class: "empty" }, "No two sound answers to one request differ."));
    return;
  }
  const list = h("ul", { class: "seam-list", "aria-label": "Seams" }, data.seams.map((seam, index) => {
    const [name, style] = KINDS[seam.kind];
    return h("li", {}, h("button", { id: `seam${index}`, onclick: () => showSeam(index) },
      `Request ${seam.request + 1} `, seam.wrong ? h("span", { class: "badge bad" }, seam.wrong) : h("span", { class: `badge ${style}` }, name),
      h("small", {}, `${data.cells[seam.left.cell].label} | ${data.cells[seam.right.cell].label}`)));
  }));
  list.addEventListener("keydown", (event) => {
    const move = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (!move) return;
    event.preventDefault();
    const now = [...list.querySelectorAll("button")].indexOf(document.activeElement);
    const next = Math.max(0, Math.min(data.seams.length - 1, now + move));
    by(`seam${next}`).focus();
    showSeam(next);
  });
  put(by("viewer"), list, h("div", { id: "pair", "aria-live": "polite" }));
  showSeam(0);
}

function half(side, title, other) {
  const quoted = (piece) => JSON.stringify(piece).slice(1, -1) || "(end)";
  const tops = side.top.map(([piece, logprob, mine]) => h("div", { class: `top${mine ? " mine" : ""}` },
    h("span", { class: "mono", title: quoted(piece) }, quoted(piece)),
    h("span", { class: "bar" }, h("i", { style: `width:${(100 * Math.exp(logprob)).toFixed(1)}%` })),
    h("span", {}, `${(100 * Math.exp(logprob)).toFixed(1)} %`)));
  const margin = side.margin !== null ? `margin ${side.margin.toFixed(3)}` : side.floor !== null ? `margin above ${side.floor.toFixed(3)}` : "margin not known";
  return h("article", { class: "half" },
    h("header", {}, h("b", {}, data.cells[side.cell].label), h("span", { class: "quiet" }, `${title}, ${margin}${side.finish ? `, ended with ${side.finish}` : ""}`)),
    h("pre", { tabindex: 0 }, h("span", { class: "before" }, (side.cut ? "… " : "") + side.before),
      h("mark", { class: "seam" }, side.at || "(ends here)"), side.after, side.more ? " …" : ""),
    tops.length ? h("div", { class: "tops", role: "img", "aria-label": `What could stand here: ${side.top.map(([piece, p]) => `${quoted(piece)} ${(100 * Math.exp(p)).toFixed(0)} %`).join(", ")}` }, tops) : "");
}

function showSeam(index) {
  const seam = data.seams[index], [name, style, means] = KINDS[seam.kind];
  document.querySelectorAll(".seam-list button").forEach((button, i) => button.setAttribute("aria-current", String(i === index)));
  const place = seam.token >= 0 ? `at token ${seam.token + 1}` : `at byte ${seam.byte}`;
  by("pair").replaceChildren();
  put(by("pair"),
    h("p", { class: "facts" }, h("b", {}, `Request ${seam.request + 1}`), h("span", {}, place), h("span", { class: `badge ${style}` }, name),
      h("span", { class: "quiet" }, means), seam.edit !== null ? h("span", { class: "quiet" }, `${plural(seam.edit, seam.unit.replace(/s$/, ""))} apart`) : ""),
    h("div", { class: "pair" }, half(seam.left, "the commonest answer", seam.right), half(seam.right, seam.wrong || "the other answer", seam.left)));
}

// --- what it depends on ------------------------------------------------------------------------------------------------

function axisChart(test) {
  const width = 330, left = 118, right = 62, line = 25, height = test.rates.length * line + 18, span = width - left - right;
  const x = (rate) => left + span * rate;
  return h("figure", { class: `axis${test.p > 0.05 ? " dull" : ""}` },
    h("figcaption", {}, test.axis.replace("_", " "), h("span", { title: test.method }, `p = ${pvalue(test.p)}`)),
    s("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": `${test.axis}: ` + test.rates.map(([value, failures, runs]) => `${value} ${failures} of ${runs}`).join(", ") },
      [0, 0.5, 1].map((rate) => [s("line", { class: "grid", x1: x(rate), x2: x(rate), y1: 2, y2: height - 16 }),
        s("text", { class: "soft", x: x(rate), y: height - 3, "text-anchor": "middle" }, `${rate * 100} %`)]),
      test.rates.map(([value, failures, runs, low, high], row) => {
        const y = row * line + 15, name = value.length > 16 ? `${value.slice(0, 15)}…` : value;
        return [s("text", { x: 0, y: y + 4 }, name, s("title", {}, value)),
          s("line", { class: "whisker", x1: x(low), x2: x(high), y1: y, y2: y, "stroke-opacity": 0.45 }),
          s("circle", { class: "dot", cx: x(runs ? failures / runs : 0), cy: y, r: 5 }),
          s("text", { class: "soft", x: width, y: y + 4, "text-anchor": "end" }, `${failures}/${runs}`)];
      })));
}

function drawAttribution() {
  const found = (data.triage && data.triage.attributions || []).filter((one) => one.failures);
  if (!found.length) {
    put(by("attribution"), h("p", { class: "empty" }, "No answer is wrong or differs, so there is nothing to attribute."));
    return;
  }
  for (const one of found) {
    put(by("attribution"), h("h3", {}, `${one.of[0].toUpperCase()}${one.of.slice(1)}: ${one.failures} of ${one.runs} ${one.unit}`),
      one.clauses.map((clause) => h("div", { class: "clause" }, h("b", {}, clause.text), h("p", {}, clause.method),
        clause.same_runs.length ? h("p", {}, `No run tells it from: ${clause.same_runs.join("; ")}`) : "",
        clause.rivals.length ? h("p", {}, `Explains about as much: ${clause.rivals.join("; ")}`) : "")),
      one.failures && !one.clauses.length ? h("p", { class: "quiet" }, "No axis explains them.") : "",
      one.confounded.length ? h("p", {}, h("span", { class: "badge odd" }, "confounded"), " ", one.confounded.map((axes) => axes.join(" and ")).join("; "), ": never vary apart here") : "",
      h("div", { class: "axis-grid" }, one.axes.map(axisChart)));
  }
}

// --- rulings and what to do next ---------------------------------------------------------------------------------------

function evidence(pairs) {
  return pairs.length ? h("ul", {}, pairs.map(([statement, weight]) => h("li", {}, statement, weight === "decisive" ? h("b", {}, " (decisive)") : ""))) : "-";
}

function drawRulings() {
  if (!data.triage) {
    put(by("ruling-list"), h("p", { class: "empty" }, "This run has no ruling."));
    return;
  }
  const all = [data.triage.ruling, ...data.triage.contrasts, ...data.triage.requests];
  const rows = all.slice(0, 100).map((one) => h("tr", {},
    h("td", { class: "scope" }, short(one.scope)),
    h("td", {}, h("span", { class: `badge ${one.claim ? "bad" : one.cause === "undetermined" ? "odd" : "good"}` }, one.cause),
      h("div", { class: "quiet" }, [one.mechanism, one.leaning && `leaning to ${one.leaning}`, one.confidence].filter(Boolean).join(", "))),
    h("td", {}, evidence(one.for)), h("td", {}, evidence(one.against)),
    h("td", {}, one.next.length ? h("ul", {}, one.next.map(([action, reason]) => h("li", { title: reason }, action))) : "-")));
  put(by("ruling-list"), h("table", { class: "list" },
    h("thead", {}, h("tr", {}, ["of", "ruling", "for it", "against it", "next"].map((name) => h("th", { scope: "col" }, name)))),
    h("tbody", {}, rows)), all.length > 100 ? h("p", { class: "quiet" }, `and ${all.length - 100} more in the JSON report`) : "");
}

function drawPlan() {
  const command = data.command || `outguard replay --resume ${data.run}`;
  const shown = h("pre", {}, command);
  const copy = h("button", { onclick: async () => {
    try {
      await navigator.clipboard.writeText(command);
      copy.textContent = "Copied";
    } catch { // a page from a file may not: select it instead
      getSelection().selectAllChildren(shown);
    }
  } }, "Copy");
  const steps = data.triage ? [data.triage.ruling, ...data.triage.contrasts].flatMap((one) => one.next).concat(data.triage.attributions.flatMap((one) => one.next)) : [];
  const distinct = [...new Map(steps.map((one) => [one[0], one])).values()];
  put(by("reproduce"), h("div", { class: "command" }, shown, copy),
    data.counts.volleys_left ? h("p", {}, "It was cut short. Go on with ", h("code", {}, `outguard replay --resume ${data.run}`)) : "",
    distinct.length ? [h("h3", {}, "What to run next"), h("ol", { class: "next" }, distinct.map(([action, reason, repeats]) =>
      h("li", {}, action, repeats ? ` (${repeats} repeats an arm)` : "", reason ? h("span", {}, `: ${reason}`) : "")))] : "",
    data.notes.length ? [h("h3", {}, "Notes"), h("ul", {}, data.notes.map((note) => h("li", {}, note)))] : "",
    h("h3", {}, "Cells"),
    h("table", { class: "list" }, h("tbody", {}, data.cells.map((cell) => h("tr", {}, h("td", { class: "scope" }, cell.label),
      h("td", {}, Object.entries(cell.axes).map(([axis, value]) => `${axis} ${value}`).join(", ")))))));
}

function drawScorecard() {
  const card = data.scorecard;
  if (!card) return;
  by("card").hidden = false;
  const styles = { pass: "good", fail: "bad", "not measured": "odd" };
  put(by("scorecard"), h("table", { class: "list" },
      h("thead", {}, h("tr", {}, ["check", "", "measured", "needed", "detail"].map((name) => h("th", { scope: "col" }, name)))),
      h("tbody", {}, card.rows.map((row) => h("tr", {}, h("td", { class: "scope" }, row.name.replaceAll("_", " ")),
        h("td", {}, h("span", { class: `badge ${styles[row.state]}` }, row.state)), h("td", {}, row.measured), h("td", {}, row.bound), h("td", { class: "quiet" }, row.detail))))));
}

function drawRuns() {
  if (!data.runs.length) {
    put(by("runs"), h("p", { class: "empty" }, "No run is stored here yet. ", h("code", {}, "outguard replay"), " makes one."));
    return;
  }
  put(by("runs"), h("table", { class: "list" },
    h("thead", {}, h("tr", {}, ["run", "kind", "when (UTC)", "requests", "cells", "answers"].map((name) => h("th", { scope: "col" }, name)))),
    h("tbody", {}, data.runs.map((run) => h("tr", {}, h("td", {}, h("a", { href: run.href }, run.run)), h("td", {}, run.kind),
      h("td", {}, new Date(run.created_at * 1000).toISOString().replace("T", " ").slice(0, 16)), h("td", {}, run.requests), h("td", {}, run.cells),
      h("td", {}, `${run.answers} of ${run.planned}`))))));
}

if (data.runs) drawRuns();
else {
  drawHead();
  drawScorecard();
  drawMap();
  drawSeams();
  drawAttribution();
  drawRulings();
  drawPlan();
}
