// What each stage of a pipeline does when, for two orders of the passes, and which part of the time it waits.
Interactive.define("pipeline-bubbles", (figure) => {
  const {stages, micro, forward, backward} = figure.data, {scale, told} = Interactive;
  const whole = (x) => told(x, 0);
  figure.slider("stages", {label: "stages S", min: 1, max: 6, step: 1, value: stages, format: whole});
  figure.slider("micro", {label: "micro-batches M", min: 1, max: 16, step: 1, value: micro, format: whole});
  figure.choice("order", {label: "order", options: ["all forward, then all backward", "one forward, one backward"]});
  const drawing = figure.drawing(640, 310, "One row for each stage: when it computes, and when it waits");
  const orders = (S, M, taken) => Array.from({length: S}, (_, s) => {
    const ahead = taken ? Math.min(M, S - s) : M, row = [];
    for (let m = 0; m < ahead; m++) row.push([0, m]);
    for (let m = 0; m < M; m++) {
      row.push([1, m]);
      if (ahead + m < M) row.push([0, ahead + m]);
    }
    return row;
  });
  // A forward pass waits for the stage before, a backward pass for the stage after; each stage keeps its order.
  const clock = (rows) => {
    const last = rows.length - 1, ends = {}, next = rows.map(() => 0), free = rows.map(() => 0), passes = rows.map(() => []);
    for (let moved = true; moved;) {
      moved = false;
      rows.forEach((row, s) => {
        for (; next[s] < row.length; next[s]++) {
          const [back, m] = row[next[s]];
          const needs = !back ? (s ? ends[[0, m, s - 1]] : 0) : ends[s < last ? [1, m, s + 1] : [0, m, s]];
          if (needs === undefined) break;
          const begin = Math.max(needs, free[s]), end = begin + (back ? backward : forward);
          ends[[back, m, s]] = free[s] = end;
          passes[s].push([s, back, m, begin, end]);
          moved = true;
        }
      });
    }
    return passes;
  };
  figure.draw((knobs) => {
    const S = Math.round(knobs.stages), M = Math.round(knobs.micro), rows = orders(S, M, knobs.order), passes = clock(rows);
    const total = Math.max(...passes.map((row) => row[row.length - 1][4]));
    const idle = passes.map((row) => 1 - row.reduce((sum, [, , , begin, end]) => sum + end - begin, 0) / total);
    const held = rows.map((row) => {
      let now = 0;
      return Math.max(...row.map(([back]) => now += back ? -1 : 1));
    });
    const formula = (S - 1) / (M + S - 1), across = scale([0, total], [82, 574]), tall = 230 / 6;
    drawing.clear();
    drawing.add("rect", {x: 82, y: 6, width: 20, height: 16, class: "filled blue", "fill-opacity": 0.4});
    drawing.add("text", {x: 108, y: 20}, "forward");
    drawing.add("rect", {x: 215, y: 6, width: 40, height: 16, class: "drawn orange", fill: "none", "stroke-width": 2});
    drawing.add("text", {x: 261, y: 20}, "backward");
    drawing.add("text", {x: 632, y: 20, "text-anchor": "end"}, "keeps");
    passes.forEach((row, s) => {
      const y = 36 + s * tall;
      drawing.add("text", {x: 2, y: y + 22}, `stage ${s}`);
      drawing.line([[across(0), y + 30], [across(total), y + 30]], {class: "grid"});
      row.forEach(([, back, m, begin, end]) => {
        const wide = across(end) - across(begin), place = {x: across(begin) + 1, y, width: wide - 2, height: 30};
        drawing.add("rect", back ? {...place, class: "drawn orange", fill: "none", "stroke-width": 2} : {...place, class: "filled blue", "fill-opacity": 0.4});
        if (wide > 3 + 10 * String(m).length) drawing.add("text", {x: across((begin + end) / 2), y: y + 21, "text-anchor": "middle"}, String(m));
      });
      drawing.add("text", {x: 620, y: y + 22, "text-anchor": "end"}, String(held[s]));
    });
    drawing.line([[across(0), 36 + S * tall], [across(total), 36 + S * tall]], {class: "axis"});
    drawing.add("text", {x: across(0), y: 60 + S * tall, "text-anchor": "middle"}, "0");
    drawing.add("text", {x: across(total / 2), y: 60 + S * tall, "text-anchor": "middle"}, "time");
    drawing.add("text", {x: across(total), y: 60 + S * tall, "text-anchor": "middle"}, whole(total));
    figure.show("passes", passes.flat());
    figure.show("idle", idle);
    figure.show("held", held);
    figure.show("total", total);
    figure.show("formula", formula);
    figure.say(`The last pass ends at time ${whole(total)}. Each stage waits for ${told(100 * Math.max(...idle), 1)} % of it;`);
    figure.say(`the formula says (S − 1)/(M + S − 1) = ${S - 1}/${M + S - 1} = ${told(100 * formula, 1)} %.`);
    figure.say(`The stages keep at most ${held.join(", ")} micro-batches.`);
  });
});
