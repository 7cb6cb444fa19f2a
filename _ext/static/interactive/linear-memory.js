// Pairs of keys and values written one by one into a matrix: what each key reads by two rules, against the formulas.
Interactive.define("linear-memory", (figure) => {
  const {keys, values} = figure.data, {scale, told} = Interactive, most = keys.length;
  const whole = (x) => String(Math.round(x)), sum = (x) => x.reduce((a, b) => a + b, 0);
  figure.slider("pairs", {label: "pairs written", min: 1, max: most, step: 1, value: 16, format: whole});
  figure.slider("width", {label: "width of a key", min: 2, max: keys[0].length, step: 1, value: keys[0].length, format: whole});
  figure.button("write one more", () => figure.knobs.pairs.set(Math.min(figure.value.pairs + 1, most)));
  const drawing = figure.drawing(640, 320, "One mark for each pair: its squared error by linear attention and by the delta rule");
  const rules = {"linear attention": "blue", "delta rule": "orange"};
  const distance = (a, b) => sum(a.map((x, i) => (x - b[i]) ** 2));
  // The mean error of a pair with random keys, by the number of writes after it ("What the delta rule forgets").
  const forgotten = (k, p) => [...Array(p).keys()].map((j) => {
    let x = 1, y = 1, s = k * (1 - (1 - 1 / k) ** (j + 1));
    for (let after = 0; after < p - j - 1; after++) {
      x = (1 - 2 / k) * x + 1 / k + (s + 2 * x) / (k * (k + 2));
      s = (1 - 1 / k) * s + 1;
      y *= 1 - 1 / k;
    }
    return x - 2 * y + 1;
  });
  figure.draw(({pairs, width}) => {
    const unit = keys.slice(0, pairs).map((key) => {
      const part = key.slice(0, width), long = Math.sqrt(sum(part.map((x) => x * x)));
      return part.map((x) => x / long);
    });
    const own = values.slice(0, pairs), results = {};
    for (const rule of Object.keys(rules)) {
      const S = unit[0].map(() => own[0].map(() => 0));
      const read = (k) => own[0].map((_, c) => sum(k.map((x, r) => x * S[r][c])));
      unit.forEach((k, t) => {
        const before = rule === "delta rule" ? read(k) : own[t].map(() => 0);
        k.forEach((x, r) => own[t].forEach((v, c) => { S[r][c] += x * (v - before[c]); }));
      });
      const answers = unit.map(read), errors = answers.map((answer, j) => distance(answer, own[j]));
      const found = answers.map((answer, j) => own.every((v, i) => i === j || distance(answer, v) > errors[j]));
      const formula = rule === "delta rule" ? forgotten(width, pairs) : unit.map(() => (pairs - 1) / width);
      results[rule] = {errors, found, formula};
      figure.show(`${rule} state`, S);
      for (const name of ["errors", "found", "formula"]) figure.show(`${rule} ${name}`, results[rule][name]);
    }
    const top = Math.max(2, 1.25 * (pairs - 1) / width), left = 46, right = 630;
    const across = scale([0.5, pairs + 0.5], [left, right]), up = scale([0, top], [268, 40]);
    drawing.clear();
    drawing.line([[left, 40], [left, 268], [right, 268]], {class: "axis"});
    drawing.line([[left, up(1)], [right, up(1)]], {class: "grid", "stroke-dasharray": "6 5", "stroke-width": 2});
    [0, 1, top].forEach((y) => (y !== 1 || top < 12) && drawing.add("text", {x: left - 6, y: up(y) + 5, "text-anchor": "end"}, (y === top ? "≥" : "") + told(y, y % 1 ? 1 : 0)));
    drawing.add("text", {x: left, y: 292}, "oldest");
    drawing.add("text", {x: right, y: 292, "text-anchor": "end"}, "newest pair");
    drawing.add("text", {x: (left + right) / 2, y: 314, "text-anchor": "middle"}, "filled: found; dashed: an answer of 0");
    Object.entries(rules).forEach(([rule, color], which) => {
      const {errors, found, formula} = results[rule];
      if (pairs > 1) drawing.line(formula.map((y, j) => [across(j + 1), up(y)]), {class: `curve drawn ${color}`});
      errors.forEach((error, j) => {
        const x = across(j + 1), y = up(Math.min(error, top)), look = {class: `drawn ${color}${found[j] ? " filled" : ""}`, "stroke-width": 1.5};
        if (!found[j]) look.fill = "none";
        if (which) drawing.add("rect", {x: x - 4, y: y - 4, width: 8, height: 8, ...look});
        else drawing.add("circle", {cx: x, cy: y, r: 4.5, ...look});
      });
      const count = found.filter(Boolean).length;
      drawing.add("text", {x: which ? right : left, y: 20, "text-anchor": which ? "end" : "start", class: `coloured ${color}`}, `${which ? "■" : "●"} ${rule}: ${count} of ${pairs}`);
      figure.say(`${rule[0].toUpperCase()}${rule.slice(1)} finds ${count} of ${pairs}, with a mean squared error of ${told(sum(errors) / pairs, 2)}; for random keys of width ${width} the formula expects ${told(sum(formula) / pairs, 2)}.`);
    });
  });
});
