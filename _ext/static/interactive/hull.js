// A query is moved over keys in the plane: the weights at the keys, and the output among the values.
Interactive.define("hull", (figure) => {
  const {keys, values} = figure.data, {scale, told} = Interactive, sum = (x) => x.reduce((a, b) => a + b, 0);
  figure.slider("scale", {label: "scale s", min: 0.1, max: 10.01, step: Math.log(10) / 100, value: 1, log: true});
  const drawing = figure.drawing(640, 336, "Left: the keys and the query. Right: the values, their hull and the output");
  const side = 300, top = 32, reach = 2.4;
  const panel = (left) => ({left, x: scale([-reach, reach], [left, left + side]), y: scale([-reach, reach], [top + side, top])});
  const one = panel(0), two = panel(339), behind = drawing.add("g");
  const inside = (x, y) => [Math.min(Math.max(x, one.left), one.left + side), Math.min(Math.max(y, top), top + side)];
  figure.handle(drawing, "query", {label: "query", where: [one.x(1.2), one.y(1.2)], step: 6, moved: inside});
  const point = drawing.svg.querySelector(".handle");
  figure.draw(({scale: by, query: [x, y]}) => {
    const q = [one.x.invert(x), one.y.invert(y)];
    const scores = keys.map((k) => by * (q[0] * k[0] + q[1] * k[1])), most = Math.max(...scores);
    const e = scores.map((s) => Math.exp(s - most)), weights = e.map((w) => w / sum(e));
    const output = [0, 1].map((c) => sum(weights.map((w, j) => w * values[j][c])));
    point.setAttribute("aria-valuetext", q.map((c) => told(c, 2)).join(", "));
    behind.replaceChildren();
    const add = (tag, attributes, text) => drawing.add(tag, attributes, text, behind);
    for (const [{left}, name] of [[one, "query and keys"], [two, "values and output"]]) {
      add("text", {x: left + side / 2, y: 20, "text-anchor": "middle"}, name);
      add("rect", {x: left + 0.5, y: top + 0.5, width: side - 1, height: side - 1, class: "grid"});
    }
    add("line", {x1: one.x(0), y1: one.y(0), x2: x, y2: y, class: "drawn orange", "stroke-width": 2});
    add("circle", {cx: one.x(0), cy: one.y(0), r: 2.5, class: "filled ink"});
    add("polygon", {points: values.map((v) => `${two.x(v[0])},${two.y(v[1])}`).join(" "), class: "drawn blue hull", fill: "none", "stroke-width": 1.5});
    weights.forEach((w, j) => {
      const [kx, ky] = [one.x(keys[j][0]), one.y(keys[j][1])], [vx, vy] = [two.x(values[j][0]), two.y(values[j][1])];
      add("circle", {cx: kx, cy: ky, r: (24 * Math.sqrt(w)).toFixed(2), class: "filled blue", opacity: 0.35});
      add("circle", {cx: kx, cy: ky, r: 3, class: "filled blue"});
      add("text", {x: kx, y: ky + (keys[j][1] > 0.3 ? -9 : 20), "text-anchor": "middle", class: "entry"}, `${j + 1}: ${told(w, 2)}`);
      add("line", {x1: two.x(output[0]), y1: two.y(output[1]), x2: vx, y2: vy, class: "drawn blue", "stroke-width": (0.5 + 5 * w).toFixed(2), opacity: (0.15 + 0.6 * w).toFixed(3)});
      add("circle", {cx: vx, cy: vy, r: 4, class: "filled blue"});
      add("text", {x: vx + (values[j][0] > 0 ? 9 : -9), y: vy + (values[j][1] > 0 ? -4 : 14), "text-anchor": values[j][0] > 0 ? "start" : "end"}, String(j + 1));
    });
    add("circle", {cx: two.x(output[0]), cy: two.y(output[1]), r: 7, class: "filled green output"});
    for (const [name, value] of Object.entries({query: q, weights, output})) figure.show(name, value);
    const best = weights.indexOf(Math.max(...weights));
    figure.say(`The query is (${q.map((c) => told(c, 2)).join(", ")}), and key ${best + 1} gets the most, ${told(weights[best])}; key ${keys.length}, in the middle, gets ${told(weights[keys.length - 1])}.`);
    figure.say(`The output (green) is (${output.map((c) => told(c, 2)).join(", ")}), inside the outline of the values.`);
  });
});
