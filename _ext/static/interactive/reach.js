// Which tokens a token has heard of after some layers of a sparse pattern, and how many pairs the pattern computes.
Interactive.define("reach", (figure) => {
  const {words} = figure.data, {told} = Interactive, n = words.length, all = [...words.keys()];
  const whole = (x) => String(Math.round(x));
  figure.slider("layers", {label: "layers", min: 0, max: n, step: 1, value: 2, format: whole});
  figure.slider("token", {label: "token", min: 0, max: n - 1, step: 1, value: n - 1, format: (i) => `${i + 1}, ${words[i]}`});
  figure.slider("width", {label: "keys on each side", min: 0, max: 8, step: 1, value: 2, format: whole});
  figure.slider("stride", {label: "one key in", min: 1, max: 6, step: 1, value: 1, format: whole});
  figure.slider("global", {label: "global tokens", min: 0, max: 4, step: 1, value: 0, format: whole});
  figure.toggle("causal", {label: "look back only"});
  const drawing = figure.drawing(640, 336, "Left: the pairs of the pattern and those that are connected. Right: the words, heard or not");
  const step = (mask, R) => mask.map((row, i) => all.map((j) => R[i][j] || row.some((seen, k) => seen && R[k][j])));
  const number = (R) => R.flat().filter(Boolean).length;
  figure.draw(({token, layers, width, stride, global, causal}) => {
    const allowed = (i, j) => !causal || j <= i;
    const mask = all.map((i) => all.map((j) => allowed(i, j)
      && ((Math.abs(i - j) <= width * stride && (i - j) % stride === 0) || i < global || j < global)));
    const full = causal ? n * (n + 1) / 2 : n * n;
    let R = all.map((i) => all.map((j) => i === j)), reached = R, needed = n > 1 ? null : 0;
    for (let l = 1; l <= n; l++) {  // n layers connect all that can be connected
      R = step(mask, R);
      if (l === layers) reached = R;
      if (needed === null && number(R) === full) needed = l;
    }
    const pairs = number(mask), heard = reached[token], size = 12, left = 2, top = 28;
    drawing.clear();
    drawing.add("text", {x: left, y: 18}, `${pairs} of ${full} pairs`);
    all.forEach((i) => all.forEach((j) => {
      if (!mask[i][j] && !reached[i][j]) return;
      const at = {x: left + size * j, y: top + size * i, width: size - 1, height: size - 1};
      drawing.add("rect", mask[i][j] ? {...at, class: "filled blue pair"} : {...at, class: "filled sky path", opacity: 0.4});
    }));
    drawing.add("rect", {x: left, y: top, width: size * n, height: size * n, class: "axis"});
    drawing.add("rect", {x: left - 1, y: top + size * token - 1, width: size * n + 1, height: size + 1, class: "drawn orange", fill: "none", "stroke-width": 2});
    const down = Math.ceil(n / 3);
    drawing.add("text", {x: 310, y: 18}, "● heard   ○ not heard");
    words.forEach((word, j) => {
      const x = 310 + 112 * Math.floor(j / down), y = 56 + 36 * (j % down), own = j === token;
      drawing.add("text", {x, y, class: own ? "coloured orange" : heard[j] ? "coloured blue" : "", opacity: own || heard[j] ? 1 : 0.6},
        `${own ? "▶" : heard[j] ? "●" : "○"} ${word}`);
    });
    figure.show("mask", mask);
    figure.show("reached", reached);
    figure.show("heard", heard);
    figure.show("pairs", pairs);
    figure.show("full", full);
    figure.show("needed", needed ?? -1);
    const count = heard.filter(Boolean).length, s = (x, word) => `${x} ${word}${x === 1 ? "" : "s"}`;
    figure.say(`After ${s(layers, "layer")} the token “${words[token]}” can depend on ${count} of ${n} tokens, itself included.`);
    figure.say(`A layer computes ${pairs} pairs, ${told(100 * pairs / full, 1)} % of the ${full} of ${causal ? "full causal" : "full"} attention.`);
    figure.say(needed === null ? "Some pairs are never connected, however many layers there are."
      : `All pairs are connected after ${s(needed, "layer")}, which compute ${needed * pairs} pairs together.`);
  });
});
