// The contrastive loss of a few pairs at any scale: who pulls, who pushes, and how far the vectors move.
Interactive.define("contrastive", (figure) => {
  const unit = (x) => x.map((y) => y / Math.hypot(...x)), {scale, told} = Interactive;
  const pictures = figure.data.pictures.map(unit), captions = figure.data.captions.map(unit), n = pictures.length, ends = [0.1, 250];
  figure.slider("scale", {label: "scale", min: ends[0], max: 1.001 * ends[1], step: Math.log(50) / 100, value: 5, log: true, format: (x) => told(x, x < 10 ? 2 : 0)});
  const sum = (x) => x.reduce((a, b) => a + b, 0), dot = (a, b) => sum(a.map((x, i) => x * b[i]));
  const columns = (A) => A[0].map((_, j) => A.map((row) => row[j]));
  const logs = (S) => S.map((row) => {
    const top = Math.max(...row), lse = top + Math.log(sum(row.map((s) => Math.exp(s - top))));
    return row.map((s) => s - lse);
  });
  // What a step moves: the part of the gradient that turns a vector of length 1.
  const turning = (X, Y, dS, by) => X.map((x, i) => {
    const g = x.map((_, c) => by * sum(Y.map((y, j) => dS[i][j] * y[c]))), along = dot(g, x);
    return g.map((value, c) => value - along * x[c]);
  });
  const size = (rows) => Math.sqrt(sum(rows.flat().map((x) => x * x)));
  const at = (by) => {
    const S = pictures.map((u) => captions.map((v) => by * dot(u, v)));
    const P = logs(S), Q = columns(logs(columns(S)));
    const loss = -sum(S.map((_, i) => P[i][i] + Q[i][i])) / (2 * n);
    const dS = P.map((row, i) => row.map((p, j) => (Math.exp(p) + Math.exp(Q[i][j]) - (i === j ? 2 : 0)) / (2 * n)));
    const dU = turning(pictures, captions, dS, by), dV = turning(captions, pictures, columns(dS), by);
    return {loss, dS, dU, dV, dtau: sum(S.flat().map((s, k) => s * dS.flat()[k])), move: Math.sqrt(size(dU) ** 2 + size(dV) ** 2)};
  };
  const left = 380, right = 630, across = scale(ends, [left, right], true);
  const places = [...Array(151).keys()].map((k) => left + (right - left) * k / 150);
  const curve = places.map((x) => at(across.invert(x)));
  const best = across.invert(places[curve.reduce((b, one, k) => one.move > curve[b].move ? k : b, 0)]);
  const top = 1.15 * Math.max(...curve.flatMap((one) => [one.loss, one.move])), up = scale([0, top], [270, 40]);
  const drawing = figure.drawing(640, 322, "Left: the gradient by each score. Right: the loss and the size of the gradient at every scale");
  figure.draw(({scale: by}) => {
    const now = at(by), box = 74, x0 = 76, y0 = 46, most = Math.max(...now.dS.flat().map(Math.abs));
    drawing.clear();
    drawing.add("text", {x: x0 + 1.5 * box, y: 18, "text-anchor": "middle"}, "gradient by the scores");
    now.dS.forEach((row, i) => {
      drawing.add("text", {x: x0 - 6, y: y0 + box * (i + 0.5) + 5, "text-anchor": "end"}, `pic. ${i + 1}`);
      drawing.add("text", {x: x0 + box * (i + 0.5), y: y0 - 8, "text-anchor": "middle"}, `cap. ${i + 1}`);
      row.forEach((g, j) => {
        const x = x0 + box * j, y = y0 + box * i;
        drawing.add("rect", {x, y, width: box - 2, height: box - 2, class: `filled ${g < 0 ? "orange" : "blue"}`, opacity: (0.45 * Math.abs(g) / most).toFixed(4)});
        drawing.add("text", {x: x + box / 2 - 1, y: y + box / 2 + 6, "text-anchor": "middle", class: "entry"}, told(g));
      });
    });
    drawing.add("text", {x: x0, y: y0 + 3 * box + 22, class: "coloured orange"}, "− pulls");
    drawing.add("text", {x: x0 + 3 * box, y: y0 + 3 * box + 22, "text-anchor": "end", class: "coloured blue"}, "+ pushes");
    drawing.line([[left, 40], [left, 270], [right, 270]], {class: "axis"});
    [...Array(Math.ceil(top)).keys()].forEach((y) => drawing.add("text", {x: left - 6, y: up(y) + 5, "text-anchor": "end"}, String(y)));
    [0.1, 1, 10, 100].forEach((x) => drawing.add("text", {x: across(x), y: 291, "text-anchor": "middle"}, String(x)));
    drawing.add("text", {x: (left + right) / 2, y: 315, "text-anchor": "middle"}, "scale");
    drawing.line(places.map((x, k) => [x, up(curve[k].loss)]), {class: "curve drawn blue"});
    drawing.line(places.map((x, k) => [x, up(curve[k].move)]), {class: "curve drawn orange", "stroke-dasharray": "8 4"});
    drawing.add("text", {x: left + 8, y: up(curve[0].loss) - 10, class: "coloured blue"}, "loss");
    drawing.add("text", {x: across(best), y: up(top) + 8, "text-anchor": "middle", class: "coloured orange"}, "gradient");
    for (const [name, color] of [["loss", "blue"], ["move", "orange"]]) {
      drawing.add("circle", {cx: across(by), cy: up(now[name]), r: 6, class: `filled ${color}`});
    }
    for (const name of ["loss", "dS", "dU", "dV", "dtau", "move"]) figure.show(name, now[name]);
    figure.show("curve", curve.map((one) => [one.loss, one.move]));
    figure.show("places", places.map(across.invert));
    const pulls = now.dS.map((row, i) => -row[i]), hardest = pulls.indexOf(Math.max(...pulls));
    figure.say(`At the scale ${told(by, 2)} the loss is ${told(now.loss, 4)}, and the gradient by all vectors has the length ${told(now.move)}; it is longest near the scale ${told(best, 1)}.`);
    figure.say(`Pair ${hardest + 1} is pulled together hardest. Gradient descent makes the scale ${now.dtau < 0 ? "larger" : "smaller"}.`);
  });
});
