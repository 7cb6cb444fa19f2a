// One query against random keys, as the width grows: scores, softmax weights, and what softmax passes of a gradient.
// The scores come from the page, [query][power of two][key]: the same draws at every width, with more of their entries.
Interactive.define("scale", (figure) => {
  const {scores} = figure.data, {scale, told} = Interactive;
  figure.slider("power", {label: "width d_k", min: 0, max: scores[0].length - 1, step: 1, value: 9, format: (x) => `${2 ** x}`});
  figure.toggle("divide", {label: "divide by √d_k"});
  figure.slider("query", {label: "query", min: 1, max: scores.length, step: 1, value: 7, format: (x) => told(x, 0)});

  const softmax = (s) => {
    const top = Math.max(...s), e = s.map((x) => Math.exp(x - top)), sum = e.reduce((a, b) => a + b);
    return e.map((x) => x / sum);
  };
  // The norm of diag(p) − pᵀp, to the last digit however small: 1 − pᵢ is summed, not subtracted.
  const passed = (p) => {
    const J = p.map((a, i) => p.map((b, j) => (i === j ? a * p.reduce((sum, c, l) => sum + (l === i ? 0 : c), 0) : -a * b)));
    let power = J;
    for (let k = 0; k < 40; k++) {
      const square = power.map((row) => p.map((_, j) => row.reduce((sum, x, l) => sum + x * power[l][j], 0)));
      const most = Math.max(...square.flat().map(Math.abs));
      power = square.map((row) => row.map((x) => x / most));
    }
    const v = power.reduce((best, row) => (Math.hypot(...row) > Math.hypot(...best) ? row : best));
    return Math.hypot(...J.map((row) => row.reduce((sum, x, j) => sum + x * v[j], 0))) / Math.hypot(...v);
  };
  const few = (x) => (x >= 0.001 ? told(x) : x.toExponential(0).replace("-", "−"));

  const drawing = figure.drawing(640, 470, "For each key its score and below it its weight; last, the norm of the Jacobian of softmax");
  const left = 70, height = scale([Math.asinh(-250), Math.asinh(250)], [205, 22]), up = scale([0, 1], [365, 245]);
  const along = scale([0, 0.5], [left, 630]);
  figure.draw(({power, divide, query}) => {
    const d = 2 ** power, divisor = divide ? Math.sqrt(d) : 1;
    const at = (q) => scores[q][power].map((s) => s / divisor);
    const S = at(query - 1), P = softmax(S), largest = Math.max(...P), norm = passed(P);
    const all = scores.flatMap((_, q) => at(q)), mean = all.reduce((a, b) => a + b) / all.length;
    const spread = Math.sqrt(all.reduce((sum, s) => sum + (s - mean) ** 2, 0) / all.length);
    const tops = scores.map((_, q) => Math.max(...softmax(at(q)))).sort((a, b) => a - b), median = tops[(tops.length - 1) / 2];
    drawing.clear();
    const across = (630 - left) / S.length;
    drawing.add("text", {x: 0, y: 15, class: "orange coloured"}, "scores (each line ten times the one before)");
    for (const tick of [-100, -10, 0, 10, 100]) {
      drawing.line([[left, height(Math.asinh(tick))], [630, height(Math.asinh(tick))]], {class: tick ? "grid" : "axis"});
      drawing.add("text", {x: left - 8, y: height(Math.asinh(tick)) + 5, "text-anchor": "end"}, told(tick, 0));
    }
    drawing.add("text", {x: 0, y: 232, class: "blue coloured"}, `weights: the largest is ${few(largest)}`);
    for (const tick of [0, 1]) {
      drawing.line([[left, up(tick)], [630, up(tick)]], {class: tick ? "grid" : "axis"});
      drawing.add("text", {x: left - 8, y: up(tick) + 5, "text-anchor": "end"}, told(tick, 0));
    }
    S.forEach((s, i) => {
      const x = left + (i + 0.15) * across, width = 0.7 * across, y = height(Math.asinh(s));
      drawing.add("rect", {x, y: Math.min(y, height(0)), width, height: Math.abs(y - height(0)), class: "filled orange"});
      drawing.add("rect", {x, y: up(P[i]), width, height: up(0) - up(P[i]), class: "filled blue"});
    });
    drawing.add("text", {x: 0, y: 400, class: "green coloured"}, `‖J‖, what is passed of a gradient: ${few(norm)}`);
    drawing.line([[left, 412], [along(0.5), 412], [along(0.5), 438], [left, 438], [left, 412]], {class: "axis"});
    drawing.add("rect", {x: left, y: 412, width: along(norm) - left, height: 26, class: "filled green"});
    drawing.add("text", {x: left, y: 463, "text-anchor": "middle"}, "0");
    drawing.add("text", {x: along(0.5), y: 463, "text-anchor": "end"}, "½, the most");
    for (const [name, value] of Object.entries({scores: S, weights: P, largest, norm, spread, median})) figure.show(name, value);
    figure.say(`At d_k = ${d} ${divide ? "with" : "without"} the division the scores of all queries have the spread ${told(spread, 2)}.`);
    figure.say(`The largest of the ${S.length} weights of this query is ${few(largest)}, and the median over the ${tops.length} queries is ${few(median)}.`);
    figure.say(`The norm of the Jacobian is ${few(norm)}.`);
  });
});
