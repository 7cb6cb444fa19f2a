// Gradients on the line of float16's numbers: a scale that is a power of two moves all of them, and each is 0, subnormal, normal or infinite.
Interactive.define("loss-scale", (figure) => {
  const {arrays, errors} = figure.data, {scale, told} = Interactive, names = Object.keys(arrays);
  const power = (k) => `2${String(k).replace(/./g, (c) => "⁰¹²³⁴⁵⁶⁷⁸⁹⁻"["0123456789-".indexOf(c)])}`;
  figure.slider("power", {label: "scale s", min: 0, max: errors.length - 1, step: 1, value: 0, format: power});
  // A number as float16 keeps it: a whole multiple of the spacing at its size, a tie to the even one; 0 if there is none.
  const half = (x) => {
    const spacing = 2 ** (Math.max(Math.floor(Math.log2(x)), -14) - 10), steps = x / spacing, down = Math.floor(steps), rest = steps - down;
    const kept = spacing * (rest > 0.5 || (rest === 0.5 && down % 2) ? down + 1 : down);
    return kept > 65504 ? Infinity : kept;
  };
  const kinds = {lost: "red", subnormal: "orange", normal: "blue", infinite: "purple"};
  const kind = (kept) => kept === 0 ? "lost" : kept === Infinity ? "infinite" : kept < 2 ** -14 ? "subnormal" : "normal";

  const drawing = figure.drawing(640, 440, "For each array the sizes of its gradients, one bar for each factor of two, on the line of float16's numbers");
  const ends = [-50, 24], across = scale(ends, [6, 634]), inside = (k) => Math.min(Math.max(k, ends[0]), ends[1] - 1);
  figure.draw(({power: k}) => {
    const s = 2 ** k, counts = {};
    drawing.clear();
    [["lost", ends[0], -25], ["subnormal", -25, -14], ["normal", -14, 16], ["infinite", 16, ends[1]]].forEach(([name, from, to]) => {
      drawing.add("rect", {x: across(from), y: 30, width: across(to) - across(from), height: 366, class: `filled ${kinds[name]}`, opacity: 0.09});
      drawing.add("text", {x: across((from + to) / 2), y: 20, "text-anchor": "middle", class: `coloured ${kinds[name]}`}, {lost: "0", subnormal: "subnormal", normal: "normal", infinite: "∞"}[name]);
      if (to < ends[1]) drawing.line([[across(to), 30], [across(to), 396]], {class: "axis", "stroke-dasharray": "3 3"});
    });
    names.forEach((name, row) => {
      const kept = arrays[name].map((g) => half(s * g)), floor = 140 + 122 * row, bars = {};
      counts[name] = Object.fromEntries(Object.keys(kinds).map((one) => [one, kept.filter((x) => kind(x) === one).length]));
      arrays[name].forEach((g, i) => {
        const at = inside(Math.floor(Math.log2(g)) + k), mine = bars[at] ??= Object.fromEntries(Object.keys(kinds).map((one) => [one, 0]));
        mine[kind(kept[i])] += 1;
      });
      const most = Math.max(...Object.values(bars).map((bar) => Object.values(bar).reduce((a, b) => a + b)));
      for (const [at, bar] of Object.entries(bars)) {
        let y = floor;
        for (const [one, count] of Object.entries(bar)) {
          const tall = Math.max(72 * count / most, 3);  // so that a single entry is seen
          if (count) drawing.add("rect", {x: across(Number(at)) + 0.5, y: y -= tall, width: across(1) - across(0) - 1, height: tall, class: `filled ${kinds[one]}`});
        }
      }
      drawing.line([[across(ends[0]), floor], [across(ends[1]), floor]], {class: "axis"});
      drawing.add("text", {x: 12, y: floor - 88}, `gradients of ${name}`);
      figure.show(`${name} kept`, kept.map((x) => x === Infinity ? -1 : x));
      figure.show(`${name} counts`, Object.values(counts[name]));
      const {lost, subnormal, infinite} = counts[name];
      const parts = [[lost, "0"], [subnormal, "subnormal"], [infinite, "infinite"]].filter(([count]) => count)
        .map(([count, what]) => `${count === kept.length ? "all" : count} ${count === 1 ? "is" : "are"} ${what}`);
      figure.say(`Of the ${kept.length} gradients of ${name}, ${parts.length ? parts.join(" and ") : "all are normal"}.`);
    });
    [-45, -25, -14, 0, 16].forEach((tick) => drawing.add("text", {x: across(tick), y: 417, "text-anchor": "middle"}, power(tick)));
    drawing.add("text", {x: 320, y: 437, "text-anchor": "middle"}, "gradient times s");
    figure.show("error", errors[k] ?? -1);
    figure.say(errors[k] === null ? "With this scale the float16 gradient of the page has infinite entries, and the step would be left out."
      : `The float16 gradient of the page has the relative error ${errors[k] < 0.001 ? told(1e4 * errors[k], 1) + " · 10⁻⁴" : told(errors[k])}.`);
  });
});
