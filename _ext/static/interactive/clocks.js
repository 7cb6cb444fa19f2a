// Clocks of different speed: each pair of components is a hand that its position turns, and the score is a sum over clocks.
Interactive.define("clocks", (figure) => {
  const {query: x, key: y, base} = figure.data, {scale, told} = Interactive, pairs = [...Array(x.length / 2).keys()];
  const speeds = pairs.map((i) => base ** (-2 * i / x.length)), most = 60, whole = (n) => told(n, 0);
  figure.choice("how", {label: "positions", options: ["rotary: query and key are turned", "sinusoids alone", "sinusoids, added to query and key"]});
  figure.slider("query", {label: "query at", min: 0, max: most, step: 1, value: 10, format: whole});
  figure.slider("key", {label: "key at", min: 0, max: most, step: 1, value: 7, format: whole});
  figure.slider("shift", {label: "move both by", min: 0, max: 1000, step: 1, value: 0, format: whole});
  // The hand of pair i at a position, as [right, up]: the turned pair (1, 0) and the sinusoid begin at twelve, clockwise.
  const hand = (how, z, i, at) => {
    const a = z[2 * i], b = z[2 * i + 1], cos = Math.cos(speeds[i] * at), sin = Math.sin(speeds[i] * at);
    return [[a * sin + b * cos, a * cos - b * sin], [sin, cos], [a + sin, b + cos]][how];
  };
  const sum = (parts) => parts.reduce((a, b) => a + b, 0);
  const parts = (how, p, q) => pairs.map((i) => {
    const one = hand(how, x, i, p), other = hand(how, y, i, q);
    return one[0] * other[0] + one[1] * other[1];
  });
  const length = (z, i) => Math.hypot(z[2 * i], z[2 * i + 1]), longest = (how, z, i) => [length(z, i), 1, length(z, i) + 1][how];
  const highest = (how) => Math.ceil(sum(pairs.map((i) => [length(x, i) * length(y, i), 1, x[2 * i] * y[2 * i] + x[2 * i + 1] * y[2 * i + 1] + length(x, i) + length(y, i) + 1][how])));

  const drawing = figure.drawing(640, 430, "One clock for each pair, with a hand for the query and one for the key; below, the score at every distance");
  const radius = 66, across = scale([-most, most], [40, 632]), distances = [...Array(2 * most + 1).keys()].map((n) => n - most);
  figure.draw(({how, query, key, shift}) => {
    const [p, q] = [query + shift, key + shift], now = parts(how, p, q), score = sum(now), before = sum(parts(how, query, key));
    const curve = distances.map((gap) => sum(parts(how, p, p - gap)));
    const size = Math.max(...pairs.flatMap((i) => [longest(how, x, i), longest(how, y, i)]));
    const top = highest(how), up = scale([-top, top], [376, 258]);
    const hands = {query: pairs.map((i) => hand(how, x, i, p)), key: pairs.map((i) => hand(how, y, i, q))};
    drawing.clear();
    pairs.forEach((i) => {
      const cx = 82 + 159 * i, cy = 100, tip = ([right, high]) => [cx + radius * right / size, cy - radius * high / size];
      drawing.add("text", {x: cx, y: 20, "text-anchor": "middle"}, `ω = ${speeds[i]}`);
      drawing.add("circle", {cx, cy, r: radius, class: "axis"});
      drawing.line([[cx, cy - radius], [cx, cy - radius + 7]], {class: "axis"});
      if (shift) {
        drawing.line([[cx, cy], tip(hand(how, x, i, query))], {class: "curve drawn blue", opacity: 0.3});
        drawing.line([[cx, cy], tip(hand(how, y, i, key))], {class: "curve drawn orange", opacity: 0.3, "stroke-dasharray": "7 4"});
      }
      [["query", "blue", "none"], ["key", "orange", "7 4"]].forEach(([name, color, dashes]) => {
        const [tx, ty] = tip(hands[name][i]);
        drawing.line([[cx, cy], [tx, ty]], {class: `curve drawn ${color}`, "stroke-dasharray": dashes});
        drawing.add("circle", {cx: tx, cy: ty, r: 4.5, class: `filled ${color}`});
      });
      drawing.add("text", {x: cx, y: 192, "text-anchor": "middle", class: "part"}, i ? `${now[i] < 0 ? "−" : "+"} ${told(Math.abs(now[i]))}` : told(now[i]));
    });
    drawing.line([[40, 222], [80, 222]], {class: "curve drawn blue"});
    drawing.add("text", {x: 88, y: 228, class: "coloured blue"}, "query");
    drawing.line([[170, 222], [210, 222]], {class: "curve drawn orange", "stroke-dasharray": "7 4"});
    drawing.add("text", {x: 218, y: 228, class: "coloured orange"}, "key");
    drawing.add("text", {x: 632, y: 228, "text-anchor": "end", class: "coloured green"}, `score ${told(score, 4)}`);
    drawing.line([[40, up(0)], [632, up(0)]], {class: "axis"});
    [-top, 0, top].forEach((tick) => drawing.add("text", {x: 34, y: up(tick) + 5, "text-anchor": "end"}, whole(tick)));
    [-60, -30, 0, 30, 60].forEach((tick) => {
      drawing.line([[across(tick), up(-top)], [across(tick), up(top)]], {class: "grid"});
      drawing.add("text", {x: across(tick), y: 398, "text-anchor": tick < 0 ? (tick > -60 ? "middle" : "start") : tick < 60 ? "middle" : "end"}, whole(tick));
    });
    drawing.add("text", {x: across(0), y: 422, "text-anchor": "middle"}, "distance of query and key");
    drawing.line(distances.map((gap, n) => [across(gap), up(curve[n])]), {class: "curve drawn green"});
    drawing.add("circle", {cx: across(query - key), cy: up(score), r: 7, class: "filled green"});
    for (const [name, value] of Object.entries({...hands, parts: now, score, before, distances, curve})) figure.show(name === "query" || name === "key" ? `${name} hands` : name, value);
    figure.say(`The query stands at position ${whole(p)} and the key at ${whole(q)}, so their distance is ${whole(query - key)}. The clocks add up to the score ${told(score, 4)}.`);
    if (!shift) return;
    const same = Math.abs(score - before) < 1e-9;
    figure.say(`Before both moved by ${whole(shift)} it was ${told(before, 4)}: the move has ${same ? "not changed it" : "changed it"}.`);
    if (how < 2) figure.say(`The clocks went on by ${pairs.map((i) => told(speeds[i] * shift, 2)).join(", ")} radians.`);
  });
});
