// Any head of a real model on a few sentences: arcs from each word to what it looks at, and one word's row in numbers.
Interactive.define("heads", (figure) => {
  const {sentences, weights} = figure.data, {told} = Interactive, heads = 12, whole = (x) => String(Math.round(x));
  const tokens = figure.data.tokens.map((line) => line.split(" ")), most = Math.max(...tokens.map((line) => line.length));
  figure.choice("sentence", {label: "sentence", options: sentences});
  figure.slider("layer", {label: "layer", min: 1, max: 6, step: 1, value: 4, format: whole});
  figure.slider("head", {label: "head", min: 1, max: heads, step: 1, value: 2, format: whole});
  figure.toggle("alone", {label: "this word only"});
  const now = () => tokens[figure.knobs.sentence.value];
  let word = tokens[0].indexOf("it");
  const choose = (i) => { word = Math.min(Math.max(i, 0), now().length - 1); figure.turned(); };
  figure.knobs.word = {get value() { return Math.min(word, now().length - 1); }, set: choose};
  const top = 34, bottom = 572, left = 128, right = 236, bar = 356, least = 0.02;
  const drawing = figure.drawing(440, bottom + 6, "The words of the sentence in a column, and an arc from each word to each word that it looks at");
  drawing.add("text", {x: left, y: 18, "text-anchor": "end"}, "looks back");
  drawing.add("text", {x: right, y: 18}, "looks ahead");
  drawing.add("text", {x: 438, y: 18, "text-anchor": "end"}, "its row");
  const arcs = drawing.add("g"), rows = [...Array(most).keys()].map((i) => {
    const row = drawing.add("g", {role: "button", style: "cursor: pointer"});
    const box = drawing.add("rect", {x: left, width: right - left, rx: 5, fill: "transparent"}, "", row);
    const text = drawing.add("text", {x: (left + right) / 2, "text-anchor": "middle"}, " ", row);
    row.addEventListener("click", () => choose(i));
    row.addEventListener("keydown", (event) => {
      const step = {ArrowUp: -1, ArrowLeft: -1, ArrowDown: 1, ArrowRight: 1}[event.key];
      if (!step) return;
      event.preventDefault();
      choose(figure.knobs.word.value + step);
      rows.forEach(({row: one}, j) => one.setAttribute("tabindex", j === word ? 0 : -1));
      rows[word].row.focus();
    });
    return {row, box, text};
  });
  figure.draw(({sentence, layer, head, alone, word: own}) => {
    const line = tokens[sentence], n = line.length, start = ((layer - 1) * heads + head - 1) * n * n;
    const thousandths = (k) => parseInt(weights[sentence].slice(2 * k, 2 * k + 2), 36);
    const P = line.map((_, i) => line.map((_, j) => thousandths(start + i * n + j) / 1000)), row = P[own];
    const pitch = Math.min((bottom - top) / n, 44), y = (i) => top + (i + 0.5) * pitch;
    arcs.replaceChildren();
    const order = [...line.keys()].filter((i) => i !== own);
    [...(alone ? [] : order), own].forEach((i) => P[i].forEach((p, j) => {
      if (p < least) return;
      const mine = i === own, x = j > i ? right : left, out = (j > i ? 1 : -1) * Math.min(24 + 11 * Math.abs(i - j), 150);
      const look = {class: `drawn ${mine ? "orange" : "blue"} arc`, fill: "none", "stroke-width": (0.6 + 5 * p).toFixed(2), opacity: (mine ? 0.4 + 0.6 * p : 0.06 + 0.5 * p).toFixed(3)};
      if (i !== j) drawing.add("path", {d: `M${x} ${y(i)}C${x + out} ${y(i)} ${x + out} ${y(j)} ${x} ${y(j)}`, ...look}, "", arcs);
      else drawing.add("circle", {cx: right - 9, cy: y(i), r: (1.5 + 5 * Math.sqrt(p)).toFixed(2), class: `filled ${mine ? "orange" : "blue"} self`, opacity: mine ? 1 : 0.5}, "", arcs);
    }));
    rows.forEach(({row: one, box, text}, i) => {
      one.setAttribute("display", i < n ? "inline" : "none");
      if (i >= n) return;
      for (const [name, value] of Object.entries({y: y(i) - pitch / 2 + 1, height: pitch - 2, class: `drawn ${i === own ? "orange" : ""}`})) box.setAttribute(name, value);
      text.setAttribute("y", y(i) + 5);
      text.textContent = line[i];
      one.setAttribute("tabindex", i === own ? 0 : -1);
      one.setAttribute("aria-pressed", i === own);
      one.setAttribute("aria-label", `${line[i]}, word ${i + 1} of ${n}, gets ${told(row[i])}`);
      drawing.add("rect", {x: bar, y: y(i) - 8, width: (36 * row[i]).toFixed(2), height: 16, class: "filled orange", opacity: 0.45}, "", arcs);
      drawing.add("text", {x: 438, y: y(i) + 5, "text-anchor": "end", class: "entry"}, told(row[i]), arcs);
    });
    const key = row.indexOf(Math.max(...row));
    const rest = line.map((_, i) => i).filter((i) => i > 0 && i < n - 1 && line[i] !== line[own] && line[i] !== line[key]);
    const others = rest.reduce((total, i) => total + P[i][key], 0) / rest.length;
    for (const [name, value] of Object.entries({P, row, key, others})) figure.show(name, value);
    figure.say(`In head ${layer}.${head} “${line[own]}” (word ${own + 1}) looks most at “${line[key]}” (word ${key + 1}) and gives it ${told(row[key])}.`);
    figure.say(`The other words of the sentence give “${line[key]}” ${told(others)} on average.`);
    figure.say(`[CLS] and [SEP] get ${told(row[0] + row[n - 1])} of this row. Weights are rounded to thousandths, and arcs below ${told(least, 2)} are left out.`);
  });
});
