// A weighted average of noisy points at any bandwidth: the curve, and what its error is made of.
Interactive.define("kernel-width", (figure) => {
  const {keys, values, queries, truth, at_keys, noise} = figure.data, {scale, told} = Interactive, ends = [0.01, 0.5];
  figure.slider("bandwidth", {label: "bandwidth h", min: ends[0], max: ends[1], step: Math.log(9) / 50, value: 0.09, log: true, format: (x) => told(x)});
  figure.toggle("lines", {label: "fit a line, not a constant"});
  const sum = (x) => x.reduce((a, b) => a + b, 0), mean = (x) => sum(x) / x.length, dot = (a, b) => a.reduce((s, x, i) => s + x * b[i], 0);
  // Plain loops: this runs 12,000 times before the page is at rest.
  const weigh = (q, h, lines) => {
    const w = new Float64Array(keys.length);
    let near = Infinity, total = 0, middle = 0, spread = 0;
    for (const k of keys) near = Math.min(near, (k - q) ** 2);
    for (let j = 0; j < w.length; j++) total += w[j] = Math.exp((near - (keys[j] - q) ** 2) / (2 * h * h));
    for (let j = 0; j < w.length; j++) middle += (w[j] /= total) * (keys[j] - q);
    if (!lines) return w;
    for (let j = 0; j < w.length; j++) spread += w[j] * (keys[j] - q - middle) ** 2;
    const slope = middle / (spread + 1e-6 * h * h);  // the page's attention with lines
    for (let j = 0; j < w.length; j++) w[j] *= 1 - (keys[j] - q - middle) * slope;
    return w;
  };
  const fit = (h, lines) => {
    const rows = queries.map((q) => weigh(q, h, lines));
    const bias = mean(rows.map((w, i) => (dot(w, at_keys) - truth[i]) ** 2)), variance = noise ** 2 * mean(rows.map((w) => dot(w, w)));
    return {curve: rows.map((w) => dot(w, values)), bias, variance, risk: bias + variance};
  };
  const left = 410, right = 632, top = 34, floor = 262, across = scale([-0.02, 1.02], [8, 340]), log = scale(ends, [left, right], true);
  const low = Math.min(...values) - 0.3, high = Math.max(...values) + 0.3, up = scale([low, high], [floor, top]);
  const error = scale([3e-4, 1], [floor, top], true), limit = (y) => Math.min(Math.max(error(y), top), floor);
  const widths = [...Array(61).keys()].map((k) => log.invert(left + (right - left) * k / 60)), known = {};
  const drawing = figure.drawing(640, 314, "Left: the points, the true curve and the fitted one. Right: squared bias, variance and their sum at every bandwidth");
  figure.draw(({bandwidth, lines}) => {
    const all = known[lines] ??= widths.map((h) => fit(h, lines)), now = fit(bandwidth, lines), color = lines ? "blue" : "red";
    const best = widths[all.reduce((b, one, k) => one.risk < all[b].risk ? k : b, 0)];
    const residuals = keys.map((k, i) => {
      const w = weigh(k, bandwidth, lines), inside = values[i] - dot(w, values);
      return [inside, inside / (1 - w[i])];
    });
    const [inside, left_out] = [0, 1].map((c) => Math.sqrt(mean(residuals.map((r) => r[c] ** 2))));
    drawing.clear();
    drawing.line([[8, top], [8, floor], [340, floor]], {class: "axis"});
    [0, 0.5, 1].forEach((x) => drawing.add("text", {x: across(x), y: floor + 20, "text-anchor": "middle"}, String(x)));
    drawing.add("text", {x: across(0.5), y: floor + 44, "text-anchor": "middle"}, "key, query");
    keys.forEach((k, i) => drawing.add("circle", {cx: across(k), cy: up(values[i]), r: 3, class: "filled ink", opacity: 0.6}));
    drawing.line(queries.map((q, i) => [across(q), up(truth[i])]), {class: "drawn ink", "stroke-dasharray": "6 5", "stroke-width": 1.5});
    drawing.line(queries.map((q, i) => [across(q), Math.min(Math.max(up(now.curve[i]), top), floor)]), {class: `curve drawn ${color} fitted`});
    drawing.line([[left, top], [left, floor], [right, floor]], {class: "axis"});
    [[0.001, "0.001"], [0.01, "0.01"], [0.1, "0.1"], [1, "1"]].forEach(([y, text]) => drawing.add("text", {x: left - 6, y: error(y) + 5, "text-anchor": "end"}, text));
    [0.01, 0.1, 0.5].forEach((h) => drawing.add("text", {x: log(h), y: floor + 20, "text-anchor": h === 0.5 ? "end" : "middle"}, String(h)));
    drawing.add("text", {x: (left + right) / 2, y: floor + 44, "text-anchor": "middle"}, "bandwidth");
    drawing.add("text", {x: left + 8, y: 18}, "mean squared error");
    for (const [name, ink, dash, text, x, anchor] of [["bias", "purple", "8 4", "bias²", right - 4, "end"], ["variance", "green", "3 4", "variance", right - 4, "end"], ["risk", color, "none", "", 0, ""]]) {
      drawing.line(widths.map((h, k) => [log(h), limit(all[k][name])]), {class: `curve drawn ${ink} ${name}`, "stroke-dasharray": dash});
      drawing.add("circle", {cx: log(bandwidth), cy: limit(now[name]), r: 5.5, class: `filled ${ink}`});
      if (text) drawing.add("text", {x, y: limit(all.at(-1)[name]) + (name === "bias" ? 26 : -36), "text-anchor": anchor, class: `coloured ${ink}`}, text);
    }
    for (const [name, value] of Object.entries({...now, inside, left_out, best, widths, risks: all.map((one) => one.risk)})) figure.show(name, value);
    figure.say(`At the bandwidth ${told(bandwidth)} the squared bias is ${told(now.bias, 4)} and the variance ${told(now.variance, 4)}, on average over all queries; together ${told(now.risk, 4)}. The sum is least near ${told(best, 2)}.`);
    figure.say(`The curve misses the points by ${told(inside)}. If each point is left out of its own ${lines ? "line" : "average"}, it is missed by ${told(left_out)}, with the noise of ${told(noise, 1)} included.`);
  });
});
