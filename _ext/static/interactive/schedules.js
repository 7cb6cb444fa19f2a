// The learning rate over the steps of a training: two shapes on the same axes, with one warm-up, one end and one peak.
Interactive.define("schedules", (figure) => {
  const {warmup, total, peak, fall, kinds} = figure.data, {scale, told} = Interactive;
  const count = (n) => Math.round(n).toString().replace(/\B(?=(\d{3})+$)/g, " ");
  const small = (rate) => `${told(1e4 * rate, 2)}·10⁻⁴`;
  const rates = [  // one for each of kinds: the rate of step s
    (s, w, T, top) => top * Math.min(s / w, Math.sqrt(w / s)),
    (s, w, T, top) => s <= w ? top * s / w : top * (1 + Math.cos(Math.PI * (s - w) / (T - w))) / 2,
    (s, w, T, top) => top * Math.min(s / w, 1, (T - s) / Math.round(fall * T)),
    (s, w, T, top) => top * Math.min(s / w, 1),
  ];
  figure.choice("kind", {label: "shape", options: kinds});
  figure.choice("other", {label: "beside it", options: kinds, value: 1});
  figure.slider("warmup", {label: "warm-up w", min: 0, max: 8000, step: 250, value: warmup, format: (w) => w ? count(w) : "none"});
  figure.slider("total", {label: "all steps T", min: 10000, max: 100000, step: 1000, value: total, format: count});
  figure.slider("peak", {label: "peak", min: 2e-4, max: 1e-3, step: 1e-6, value: peak, format: small});
  const drawing = figure.drawing(640, 300, "Learning rate against the step, for two shapes");
  const across = scale([0, 100000], [48, 590]), up = scale([0, 1e-3], [258, 50]);
  figure.draw((knobs) => {
    const w = Math.max(Math.round(knobs.warmup), 1), T = Math.round(knobs.total), top = knobs.peak, grid = [];
    for (let i = 0; i <= 800; i++) grid.push(Math.round(1 + (T - 1) * i / 800));
    const run = (kind) => {
      const rate = (s) => rates[kind](s, w, T, top), name = kinds[kind].toLowerCase();
      let sum = 0, half = 0;
      for (let s = 1; s <= T; s++) {
        sum += rate(s);
        if (!half && s > w && rate(s) <= top / 2) half = s;
      }
      return {name, half, mean: sum / T / top, last: rate(T), line: grid.map(rate),
        corners: [...new Set([...grid, w, T - Math.round(fall * T)])].sort((a, b) => a - b).map((s) => [across(s), up(rate(s))])};
    };
    const one = run(knobs.kind), two = run(knobs.other);
    drawing.clear();
    for (const x of [0, 50000, 100000]) {
      drawing.line([[across(x), up(0)], [across(x), up(0) + 5]], {class: "axis"});
      drawing.add("text", {x: across(x), y: 282, "text-anchor": "middle"}, count(x));
    }
    drawing.add("text", {x: across(25000), y: 282, "text-anchor": "middle"}, "step");
    for (const y of [0, 5e-4, 1e-3]) {
      drawing.line([[across(0), up(y)], [across(1e5), up(y)]], {class: y ? "grid" : "axis"});
      drawing.add("text", {x: 42, y: up(y) + 5, "text-anchor": "end"}, y ? told(1e4 * y, 0) : "0");
    }
    drawing.add("text", {x: 8, y: 20}, "10⁻⁴");
    drawing.line([[across(T), up(0)], [across(T), up(1e-3)]], {class: "axis", "stroke-dasharray": "2 4"});
    drawing.add("text", {x: across(T) + 6, y: up(1e-3) + 18}, "T");
    drawing.line(two.corners, {class: "curve orange drawn", "stroke-dasharray": "7 5"});
    drawing.line(one.corners, {class: "curve blue drawn"});
    [[one, 80, "blue", "none"], [two, 350, "orange", "7 5"]].forEach(([{name}, x, colour, dashes]) => {
      drawing.line([[x, 15], [x + 40, 15]], {class: `curve ${colour} drawn`, "stroke-dasharray": dashes});
      drawing.add("text", {x: x + 48, y: 20}, name);
    });
    figure.show("steps", grid);
    [[one, "kind"], [two, "other"]].forEach(([{name, line, mean, last, half}, which]) => {
      figure.show(which, line);
      figure.show(`${which} mean`, mean);
      figure.show(`${which} last`, last);
      figure.show(`${which} half`, half);
      if (which === "other" && knobs.kind === knobs.other) return;
      figure.say(`${name[0].toUpperCase()}${name.slice(1)}: on average ${told(100 * mean, 1)} % of the peak;`);
      figure.say(half ? `half of the peak at step ${count(half)}; the last rate is ${small(last)}.` : `never below half of the peak after the warm-up; the last rate is ${small(last)}.`);
    });
  });
});
