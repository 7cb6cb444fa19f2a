// A beam search step by step on a table of next tokens: what is kept, what is dropped, and what was never looked at.
Interactive.define("beam-search", (figure) => {
  const {table, start, end} = figure.data, {scale, told} = Interactive, whole = (x) => told(x, 0);
  // The tree of all texts: its leaves get a row each, in the order of the table.
  const nodes = [];
  const grow = (word, p, before, depth) => {
    const node = {word, p, before, depth, text: [...(before?.text ?? []), word], after: []};
    nodes.push(node);
    if (word !== end) node.after = Object.entries(table[word] ?? {[end]: 1}).map(([next, chance]) => grow(next, p * chance, node, depth + 1));
    return node;
  };
  const root = grow(start, 1, null, 0), most = Math.max(...nodes.map((node) => node.depth));
  let leaves = 0;
  const place = (node) => {
    node.after.forEach(place);
    node.row = node.after.length ? (node.after[0].row + node.after[node.after.length - 1].row) / 2 : leaves++;
  };
  place(root);

  figure.slider("width", {label: "width w", min: 1, max: 5, step: 1, value: 1, format: whole});
  figure.slider("step", {label: "step", min: 0, max: most, step: 1, value: 0, format: whole});
  figure.slider("alpha", {label: "length penalty α", min: 0, max: 1.5, step: 0.02, value: 0});
  const drawing = figure.drawing(640, 400, "The tree of all texts from left to right: kept, dropped, or never looked at");
  const across = scale([0, most], [52, 606]), down = scale([0, leaves - 1], [40, 362]);
  const words = (node) => node.text.slice(1).join(" "), score = (node, alpha) => Math.log(node.p) / (node.text.length - 1) ** alpha;
  figure.draw(({width, step, alpha}) => {
    let beam = [root], dropped = [], lost = [];
    const path = new Set([root]);  // all that the beam has held so far
    for (let i = 0; i < step; i++) {
      const longer = [...beam.filter((node) => node.word === end), ...beam.filter((node) => node.word !== end).flatMap((node) => node.after)];
      longer.sort((a, b) => b.p - a.p);
      [beam, dropped] = [longer.slice(0, width), longer.slice(width)];
      beam.forEach((node) => path.add(node));
      lost.push(...dropped);
    }
    const held = (node) => beam.some((one) => one === node || one.text.slice(0, node.text.length).join(" ") === node.text.join(" "));
    drawing.clear();
    nodes.filter((node) => node.before).forEach((node) => {
      const {before: {depth, row, word}} = node, gap = (name) => 10 + 4.8 * name.length;
      const ends = [[across(depth) + Math.min(gap(word), 44), down(row)], [across(node.depth) - Math.min(gap(node.word), 38), down(node.row)]];
      const look = held(node) ? {class: "curve drawn blue"} : path.has(node) ? {class: "curve drawn blue", opacity: 0.35, "stroke-width": 1.5}
        : lost.includes(node) ? {class: "curve drawn orange", "stroke-dasharray": "3 5", "stroke-width": 1.5} : {class: "grid"};
      drawing.line(ends, look);
    });
    nodes.forEach((node) => {
      const x = across(node.depth), y = down(node.row), seen = path.has(node) || lost.includes(node), now = beam.includes(node);
      const color = now ? "coloured blue" : lost.includes(node) ? "coloured orange" : "";
      drawing.add("text", {x, y: y + 1, "text-anchor": "middle", class: `${color} word`, opacity: seen ? 1 : 0.45, "font-weight": now ? 700 : 400}, node.word === end ? "end" : node.word);
      if (seen && node.before) drawing.add("text", {x, y: y + 20, "text-anchor": "middle", class: `${color} chance`}, `${lost.includes(node) ? "✕ " : ""}${told(node.p)}`);
    });
    const ranked = beam.map((node) => step ? score(node, alpha) : 0), best = beam[ranked.indexOf(Math.max(...ranked))];
    const likeliest = nodes.filter((node) => node.word === end).reduce((a, b) => (b.p > a.p ? b : a));
    figure.show("kept", beam.map(words));
    figure.show("kept probabilities", beam.map((node) => node.p));
    figure.show("dropped", dropped.map(words));
    figure.show("dropped probabilities", dropped.map((node) => node.p));
    figure.show("scores", ranked);
    figure.show("best", words(best));
    if (!step) return figure.say(`Nothing has been written after “${start}” yet.`);
    const list = (some) => some.map((node) => `“${words(node)}” ${told(node.p)}`).join(", ");
    figure.say(`Step ${step} keeps ${list(beam)} and drops ${dropped.length ? list(dropped) : "nothing"}.`);
    figure.say(`With α = ${told(alpha, 2)} the best text of the beam is “${words(best)}”, with the score ${told(Math.max(...ranked))}.`);
    if (!held(likeliest)) figure.say(`The beam has lost the most probable text, “${words(likeliest)}”.`);
  });
});
