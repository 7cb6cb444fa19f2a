// The explorer's page: what the reader chose, and what is shown of it. The page's text has a place for each part, an element
// with the attribute data-explorer; without this script the places stay empty and the text says so.
addEventListener("DOMContentLoaded", () => {
  const { element, map, steps, moved, matrix, lines, heads } = window.Explorer;
  const place = (name) => document.querySelector(`[data-explorer="${name}"]`);
  if (!place("ask")) return;
  const LAYERS = 6, HEADS = 12;
  const SAMPLES = [ // a sentence, the word to change, and what to change it to
    ["The animal didn't cross the street because it was too tired.", "tired", "wide"],
    ["The fisherman sat on the bank and counted his money.", "fisherman", "cashier"],
    ["The keys to the cabinet are on the table.", "keys", "key"],
    ["I forgot my password and cannot sign in.", "password", "umbrella"],
    ["Attention is all you need.", "need", "want"],
  ];
  const chosen = { layer: 3, head: 1, query: 0, key: 0, view: "matrix", moved: [3, 1] };
  let model, result, change;

  const number = (x, digits = 3) => x.toFixed(digits).replace(/^-(?=[0.]*$)/, "").replace("-", "−");
  const at = (tokens, i) => `${i + 1} ${tokens[i]}`;

  // The built page knows the number and the address of an equation: a link is copied from there.
  function equation(label) {
    const found = document.querySelector(`article a[href$="#equation-${label.replace(":", "-")}"]`);
    if (!found) return "";
    return element("a", { href: found.getAttribute("href"), class: "reference internal" }, found.textContent.trim());
  }
  const scrolling = (label, ...children) => element("div", { class: "explorer-scroll", tabindex: 0, role: "region", "aria-label": label }, children);
  const options = (names, now) => names.map((name, i) => element("option", { value: i, selected: i === now }, name));

  // ----- asking ---------------------------------------------------------------------------------------------------------
  const status = element("p", { role: "status", class: "explorer-status" });
  const bar = element("progress", { max: 1, value: 0, hidden: true, "aria-label": "Loading the model" });
  const start = element("button", { type: "button", class: "explorer-button", onclick: load }, "Load the model (61 MB)");
  const sentence = element("input", { type: "text", id: "explorer-sentence", value: SAMPLES[0][0], autocomplete: "off", spellcheck: "false", maxlength: 400 });
  const samples = element("select", { id: "explorer-samples", onchange: () => { sentence.value = SAMPLES[samples.value][0]; run(); } },
    options(SAMPLES.map(([text]) => text), 0));
  const form = element("form", { hidden: true, class: "explorer-form", onsubmit: (event) => { event.preventDefault(); run(); } },
    element("label", { for: "explorer-samples" }, "A sample"), samples,
    element("label", { for: "explorer-sentence" }, "Your sentence"),
    element("div", { class: "explorer-row-of" }, sentence, element("button", { type: "submit", class: "explorer-button" }, "Run")));
  place("ask").append(start, bar, form, status);

  async function load() {
    start.disabled = true;
    bar.hidden = false;
    try {
      model = await window.Explorer.load((share) => {
        bar.value = share;
        status.textContent = `Loading: ${Math.round(100 * share)} %`;
      });
    } catch (error) {
      status.textContent = `The model could not be loaded: ${error.message}. The button tries it again.`;
      start.disabled = false;
      bar.hidden = true;
      return;
    }
    const hadFocus = document.activeElement === start || document.activeElement === document.body;
    start.remove();
    bar.remove();
    form.hidden = false;
    if (hadFocus) sentence.focus({ preventScroll: true });
    await run();
  }

  async function run() {
    status.textContent = "Computing …";
    result = await model.run(sentence.value);
    change = null;
    const { tokens, seconds, cut } = result, it = tokens.indexOf("it");
    chosen.query = it > 0 ? it : Math.min(1, tokens.length - 1);
    chosen.key = strongest();
    status.textContent = `${tokens.length} tokens, 72 heads, ${seconds.toFixed(2)} s.` +
      (cut ? " The sentence was too long: only its beginning is shown." : "");
    build();
  }
  const strongest = () => {
    const n = result.tokens.length, row = map(result, chosen.layer, chosen.head).subarray(chosen.query * n, (chosen.query + 1) * n);
    return row.indexOf(Math.max(...row));
  };

  // ----- all heads, and one of them -------------------------------------------------------------------------------------
  const grid = heads("All heads; the arrow keys go from one to the next", LAYERS, HEADS, (layer, head) => choose({ layer, head, key: null }));
  const reading = element("p", { class: "explorer-reading", "aria-live": "polite" });
  const large = scrolling("The chosen head");
  const title = element("p", { class: "explorer-title" });
  const views = ["matrix", "lines"].map((view) =>
    element("button", { type: "button", class: "explorer-toggle", "data-view": view, onclick: () => choose({ view }) }, view === "matrix" ? "Matrix" : "Lines"));
  const tokenBar = element("div", { class: "explorer-tokens", role: "radiogroup", "aria-label": "The query; the arrow keys go from token to token" });
  tokenBar.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: -1, ArrowUp: -1, ArrowRight: 1, ArrowDown: 1 }[event.key], to = chosen.query + step;
    if (!step || !tokenBar.children[to]) return;
    event.preventDefault();
    event.stopPropagation();
    choose({ query: to, key: null });
    tokenBar.children[to].focus();
  });

  function choose(what) {
    Object.assign(chosen, what);
    if (chosen.key === null || chosen.key < 0) chosen.key = strongest();
    show();
  }

  function look(query, key) {
    const { tokens } = result, weight = map(result, chosen.layer, chosen.head)[query * tokens.length + key];
    reading.textContent = `From ${at(tokens, query)} to ${at(tokens, key)}: ${number(weight)}`;
  }

  function build() {
    const { tokens } = result;
    document.querySelector(".explorer-still").hidden = true; // the maps are drawn now
    tokenBar.replaceChildren(...tokens.map((token, i) =>
      element("button", { type: "button", role: "radio", onclick: () => choose({ query: i, key: null }) }, token)));
    place("tokens").replaceChildren(tokenBar);
    place("heads").replaceChildren(grid.group);
    place("head").replaceChildren(title, element("div", { class: "explorer-toggles" }, views), large, reading);
    buildChange();
    show();
  }

  function show() {
    const { tokens } = result, { layer, head, query, key, view } = chosen;
    [...tokenBar.children].forEach((button, i) => {
      button.setAttribute("aria-checked", i === query);
      button.tabIndex = i === query ? 0 : -1;
    });
    grid.update(tokens.length, (l, h) => map(result, l, h), [layer, head]);
    title.textContent = `Head ${layer + 1}.${head + 1}, query ${at(tokens, query)}`;
    views.forEach((button) => button.setAttribute("aria-pressed", button.dataset.view === view));
    const picture = { matrix, lines }[view];
    large.replaceChildren(picture(map(result, layer, head), tokens, { query, key, look, choose: (i, j) => choose({ query: i, key: j }) }));
    look(query, key);
    showSteps();
    if (change) showChange();
  }

  // ----- every number of one head -----------------------------------------------------------------------------------------
  function table(label, head, rows, foot) {
    const cell = (content, i) => element(i ? "td" : "th", i ? {} : { scope: "row" }, content);
    const tinted = (row) => element("tr", { class: row.kind ?? false }, row.cells.map((content, i) => {
      if (typeof content !== "number") return cell(content, i);
      const made = cell(number(content), i);
      if (row.tint) made.style.setProperty("--explorer-tint", `${Math.min(40, Math.abs(content) * row.tint).toFixed(0)}%`);
      if (row.tint) made.className = content < 0 ? "explorer-tint-less" : "explorer-tint-more";
      return made;
    }));
    const name = element("p", { class: "explorer-caption" }, label); // not a caption, which would scroll away with the table
    return element("div", {}, name, scrolling(label, element("table", { class: "explorer-table", "aria-label": label },
      element("thead", {}, element("tr", {}, head.map((content) => element("th", { scope: "col" }, content)))),
      element("tbody", {}, rows.map(tinted)),
      foot ? element("tfoot", {}, tinted(foot)) : null)));
  }

  function showSteps() {
    const { tokens } = result, { layer, head, query, key } = chosen;
    const s = steps(result, layer, head, query), components = s.q.map((_, c) => String(c + 1));
    const select = (label, names, now, put) => {
      const id = `explorer-choose-${label.toLowerCase()}`;
      return element("span", {}, element("label", { for: id }, label), " ",
        element("select", { id, onchange: (event) => { choose(put(Number(event.target.value))); document.getElementById(id).focus(); } }, options(names, now)));
    };
    const counted = (n) => Array.from({ length: n }, (_, i) => String(i + 1));
    place("choice").replaceChildren(element("div", { class: "explorer-choice" },
      select("Layer", counted(LAYERS), layer, (value) => ({ layer: value, key: null })),
      select("Head", counted(HEADS), head, (value) => ({ head: value, key: null })),
      select("Query", tokens.map((_, i) => at(tokens, i)), query, (value) => ({ query: value, key: null })),
      select("Key", tokens.map((_, i) => at(tokens, i)), key, (value) => ({ key: value }))));

    place("projections").replaceChildren(
      table(`The query of ${at(tokens, query)}, and the keys of all tokens; 32 numbers each`, ["vector", ...components],
        [{ cells: [`q of ${at(tokens, query)}`, ...s.q], tint: 15, kind: "explorer-first" }, ...s.keys.map((k, j) => ({ cells: [`k of ${at(tokens, j)}`, ...k], tint: 15 }))]));

    const products = s.q.map((x, c) => x * s.keys[key][c]);
    place("score").replaceChildren(
      table(`The score of ${at(tokens, query)} and ${at(tokens, key)}: 32 products and their sum`, ["vector", "sum", ...components],
        [{ cells: ["q", "", ...s.q], tint: 15 }, { cells: ["k", "", ...s.keys[key]], tint: 15 }, { cells: ["q · k", s.scores[key], ...products], tint: 15, kind: "explorer-first" }]));

    place("weights").replaceChildren(
      table(`From scores to weights, for the query ${at(tokens, query)}; the divisor is √${s.d} = ${number(Math.sqrt(s.d))}`,
        ["key", ["score ", equation("eq:dot-score")], ["scaled ", equation("eq:scaled-dot-score")], ["exp(scaled − largest)"], ["weight ", equation("eq:softmax")]],
        tokens.map((_, j) => ({
          cells: [element("button", { type: "button", class: "explorer-key", "aria-pressed": j === key, onclick: () => choose({ key: j }) }, at(tokens, j)),
            s.scores[j], s.scaled[j], number(s.raised[j], 4), element("span", { class: "explorer-weight", style: `--explorer-share: ${s.weights[j].toFixed(4)}` }, number(s.weights[j], 4))],
        })), { cells: ["sum", "", "", number(s.total, 4), number(s.weights.reduce((a, b) => a + b, 0), 4)] }));

    place("output").replaceChildren(
      table(`The values of all tokens, and their weighted sum`, ["vector", "weight", ...components],
        s.values.map((v, j) => ({ cells: [`v of ${at(tokens, j)}`, number(s.weights[j]), ...v], tint: 25 })),
        { cells: [element("span", {}, "output ", equation("eq:attention")), "", ...s.output], tint: 25, kind: "explorer-first" }));

    place("sentence").replaceChildren(element("p", {}, "The sentence vector begins with ",
      Array.from(result.vector.subarray(0, 6), (x) => number(x)).join(", "), " and has 384 numbers."));
  }

  // ----- a word is changed ------------------------------------------------------------------------------------------------
  const difference = heads("How each head moved; the arrow keys go from one to the next", LAYERS, HEADS, (layer, head) => {
    chosen.moved = [layer, head];
    showChange();
  });
  const found = element("div", { class: "explorer-found" });
  const told = element("p", { role: "status", class: "explorer-status" });

  function buildChange() {
    const sample = SAMPLES.find(([text]) => text === sentence.value), { spans } = result;
    const first = sample ? spans.findIndex(({ word }) => word === sample[1]) : 0;
    const word = element("select", { id: "explorer-word", onchange: () => { other.value = spans[word.value].word; } }, options(spans.map((span) => at(result.tokens, span.start).split(" ")[0] + " " + span.word), first));
    const other = element("input", { type: "text", id: "explorer-other", value: sample ? sample[2] : spans[first]?.word ?? "", autocomplete: "off", maxlength: 60 });
    place("change").replaceChildren(
      element("form", { class: "explorer-form", onsubmit: (event) => { event.preventDefault(); compare(Number(word.value), other.value); } },
        element("label", { for: "explorer-word" }, "The word"), word,
        element("label", { for: "explorer-other" }, "becomes"),
        element("div", { class: "explorer-row-of" }, other, element("button", { type: "submit", class: "explorer-button" }, "Compare"))), told, found);
    told.textContent = "";
    found.replaceChildren();
  }

  async function compare(index, word) {
    const { spans } = result, before = result;
    if (!spans[index]) return (told.textContent = "There is no word to change.");
    const after = await model.run(spans.map((span, i) => (i === index ? word : span.word)).join(" "));
    if (before !== result) return; // the reader ran another sentence meanwhile
    const grown = after.tokens.length - before.tokens.length, { start, end } = spans[index];
    if (after.cut || end + grown <= start) return (told.textContent = after.cut ? "The changed sentence is too long." : "Type a word that is put in the place of the other.");
    change = moved(before, after, spans[index]);
    const most = change.heads.reduce((a, b) => (b.share > a.share ? b : a));
    chosen.moved = [most.layer, most.head];
    showChange();
  }

  function showChange() {
    const { tokens, heads: all, alike } = change, [layer, head] = chosen.moved, of = (l, h) => all[l * HEADS + h];
    const percent = (share) => `${(100 * share).toFixed(1)} %`;
    told.textContent = `The cosine of the two sentence vectors is ${number(change.cosine)}; before the change, of the sentence with itself, it is 1. On average a head moved ${percent(all.reduce((sum, { share }) => sum + share / all.length, 0))} of its weight.`;
    const note = element("p", { class: "explorer-reading", "aria-live": "polite" },
      `Head ${layer + 1}.${head + 1} moved ${percent(of(layer, head).share)} of its weight.`);
    const look = (i, j) => { note.textContent = `Head ${layer + 1}.${head + 1}, from ${at(tokens, i)} to ${at(tokens, j)}: ${number(of(layer, head).difference[i * tokens.length + j])}`; };
    const most = [...all].sort((a, b) => b.share - a.share).slice(0, 5);
    const focused = difference.group.contains(document.activeElement) && document.activeElement;
    found.replaceChildren(difference.group,
      element("p", {}, "The five heads that moved most: ", most.map((one, i) => [i ? ", " : "", `${one.layer + 1}.${one.head + 1} (${percent(one.share)})`]).flat(), "."),
      scrolling("How the chosen head moved", matrix(of(layer, head).difference, tokens, { look, choose: look })), note,
      table("The last hidden vector of each token: cosine of before and after", ["token", "cosine"], tokens.map((_, i) => ({ cells: [at(tokens, i), number(alike[i])] }))));
    difference.update(tokens.length, (l, h) => of(l, h).difference, chosen.moved, (l, h) => `, moved ${percent(of(l, h).share)}`);
    if (focused) focused.focus();
  }

  // The canvases have the theme's colours painted in: another theme paints them anew.
  new MutationObserver(() => { if (result) show(); }).observe(document.documentElement, { attributeFilter: ["data-theme"] });
});
