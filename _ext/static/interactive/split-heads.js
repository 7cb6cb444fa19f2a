// The columns of a width dealt to heads and put together again: where each entry goes, with both transposes or without.
Interactive.define("split-heads", (figure) => {
  const {Y} = figure.data, {told} = Interactive, n = Y.length, d = Y[0].length, range = (k) => [...Array(k).keys()];
  const divisors = range(d + 1).filter((h) => h && d % h === 0), colors = ["blue", "orange", "green", "purple", "sky", "red"];
  figure.choice("heads", {label: "heads", options: divisors.map((h) => `${h} of width ${d / h}`), value: divisors.indexOf(3)});
  figure.choice("transpose", {label: "transpose", options: ["in both places", "not in split", "in neither"]});
  const size = 30, wide = 30, left = 24, tops = [50, 262, 450]; // a finger finds a square on a phone: 24 pixels
  const drawing = figure.drawing(404, 606, "Three tables: the words and their columns, the heads, and the heads side by side again");
  let entry = [1, 9];
  const clamp = (x, most) => Math.min(Math.max(x, 0), most - 1);
  const choose = (i, c) => { entry = [clamp(i, n), clamp(c, d)]; figure.turned(); };
  figure.knobs.entry = {get value() { return entry; }, set: ([i, c]) => choose(i, c)};
  const rest = drawing.add("g"), cells = range(n).map((i) => range(d).map((c) => {
    const one = drawing.add("rect", {x: left + wide * c + 0.5, y: tops[0] + size * i + 0.5, width: wide - 1, height: size - 1, role: "button", cursor: "pointer"});
    one.addEventListener("click", () => choose(i, c));
    one.addEventListener("keydown", (event) => {
      const step = {ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0]}[event.key];
      if (!step) return;
      event.preventDefault();
      choose(entry[0] + step[0], entry[1] + step[1]);
      cells.flat().forEach((other) => other.setAttribute("tabindex", -1));
      cells[entry[0]][entry[1]].setAttribute("tabindex", 0);
      cells[entry[0]][entry[1]].focus();
    });
    return one;
  }));
  const labels = drawing.add("g", {"pointer-events": "none"});
  // Indices of a place in memory for a shape, and the place of indices: what view and reshape do.
  const indices = (k, shape) => shape.map((_, a) => Math.floor(k / shape.slice(a + 1).reduce((x, y) => x * y, 1)) % shape[a]);
  const place = (index, shape) => index.reduce((k, i, a) => k * shape[a] + i, 0), swap = ([a, b, c]) => [b, a, c];
  figure.draw(({heads, transpose, entry: [row, column]}) => {
    const h = divisors[heads], w = d / h, split = transpose === 0, merge = transpose < 2;
    // The path of an entry: its indices after each step of split and of merge.
    const path = (i, c) => {
      const flat = place([i, c], [n, d]), viewed = indices(flat, split ? [n, h, w] : [h, n, w]);
      const inHead = split ? swap(viewed) : viewed, back = merge ? swap(inHead) : inHead;
      return [[i, c], viewed, inHead, back, indices(place(back, merge ? [n, h, w] : [h, n, w]), [n, d])];
    };
    const all = range(n).map((i) => range(d).map((c) => path(i, c))), mine = all[row][column];
    const H = range(h).map(() => range(n).map(() => range(w))), from = range(h).map(() => range(n).map(() => range(w))), merged = range(n).map(() => range(d));
    all.flat().forEach(([[i, c], , [k, r, x], , [to, at]]) => { H[k][r][x] = Y[i][c]; from[k][r][x] = i + 1; merged[to][at] = Y[i][c]; });
    rest.replaceChildren();
    labels.replaceChildren();
    const look = (k, chosen) => ({class: `filled ${colors[k % colors.length]}`, style: `fill-opacity: 0.35; stroke: var(--ink); stroke-width: ${chosen ? 4 : 0}`});
    const cell = (x, y, head, word, chosen, name) => {
      const one = look(head, chosen);
      drawing.add("rect", {x: x + 0.5, y: y + 0.5, width: wide - 1, height: size - 1, ...one, class: `${one.class} ${name}`}, "", rest);
      drawing.add("text", {x: x + wide / 2, y: y + size / 2 + 5, "text-anchor": "middle"}, String(word), rest);
    };
    const say = (x, y, text, anchor = "start") => drawing.add("text", {x, y, "text-anchor": anchor}, text, labels);
    const gap = (k) => left + wide * w * k + (h > 1 ? Math.min(10, 20 / (h - 1)) : 0) * k;
    all.forEach((line, i) => line.forEach(([, , [k, r, x], , [to, at]], c) => {
      const chosen = i === row && c === column, one = look(k, chosen), square = cells[i][c];
      for (const name of ["class", "style"]) square.setAttribute(name, one[name]);
      square.setAttribute("tabindex", chosen ? 0 : -1);
      square.setAttribute("aria-pressed", chosen);
      square.setAttribute("aria-label", `word ${i + 1}, column ${c + 1}: head ${k + 1}`);
      say(left + wide * (c + 0.5), tops[0] + size * (i + 0.5) + 5, String(i + 1), "middle");
      cell(gap(k) + wide * x, tops[1] + size * r, k, i + 1, chosen, "in-head");
      cell(left + wide * at, tops[2] + size * to, k, i + 1, chosen, "merged");
    }));
    const shape = (...sizes) => `(${sizes.join(", ")})`;
    say(left, 18, `Y ${shape(n, d)}: a row for each word`);
    say(left, 230, `heads ${shape(h, n, w)}: the rows of each`);
    say(left, 442, `merged ${shape(n, d)}: a row for each word`);
    range(d).forEach((c) => say(left + wide * (c + 0.5), 42, String(c + 1), "middle"));
    range(h).forEach((k) => say(gap(k) + wide * w / 2, 254, h > 4 ? String(k + 1) : `head ${k + 1}`, "middle"));
    range(n).forEach((i) => tops.forEach((top) => say(left - 8, top + size * (i + 0.5) + 5, String(i + 1), "end")));
    const strays = all.flat().filter(([[i, c], , , , [to, at]]) => i !== to || c !== at).length;
    const mixed = from[0].map((line) => line[0]), right = mixed.every((i, r) => i === r + 1);
    for (const [name, value] of Object.entries({path: mine, H, from, merged, strays})) figure.show(name, value);
    const [, viewed, [k, r, x], back, [to, at]] = mine, index = (numbers) => `[${numbers.join(", ")}]`;
    figure.say(`Column ${column + 1} of word ${row + 1}, ${told(Y[row][column])}, becomes column ${x + 1} of row ${r + 1} of head ${k + 1}, and after the merge column ${at + 1} of word ${to + 1}.`);
    figure.say(`In code, from 0: Y${index([row, column])}, view ${shape(...(split ? [n, h, w] : [h, n, w]))}${index(viewed)}${split ? `, transpose ${shape(h, n, w)}${index([k, r, x])}` : ""}${merge ? `, transpose back ${shape(n, h, w)}${index(back)}` : ""}, reshape ${shape(n, d)}${index([to, at])}.`);
    figure.say(right ? `Row i of each head comes from word i.` : `The rows of head 1 come from the words ${mixed.join(", ")}, so this head never sees the other words.`);
    figure.say(strays ? `After the merge ${strays} of ${n * d} entries stand in a wrong place.` : "After the merge each entry is back in its place.");
  });
});
