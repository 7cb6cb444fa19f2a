// Where the norm stands: the size of the sum and of the gradients along a stack, by the lemma (lines) and in random layers (dots).
Interactive.define("norm-placement", (figure) => {
  const {depths, scales, sizes, gradients} = figure.data, {scale, told} = Interactive;
  const fraction = (x) => (x < 1 ? `1/${Math.round(1 / x)}` : told(x, 0));
  figure.choice("what", {label: "shown", options: ["size of the sum", "gradient of each matrix"]});
  figure.slider("depth", {label: "sub-layers L", min: 0, max: depths.length - 1, step: 1, value: 0, format: (i) => told(depths[i], 0)});
  figure.slider("scale", {label: "scale s of a sub-layer", min: 0, max: scales.length - 1, step: 1, value: scales.indexOf(1), format: (i) => fraction(scales[i])});
  // Roots of the lemma's means: for the sum x_l, and for the gradient of the matrix of sub-layer l of L.
  const lemma = {
    "no norm": [(l, s) => (1 + s * s) ** (l / 2), (l, s, L) => (1 + s * s) ** ((L - 1) / 2)],
    "post-norm": [() => 1, (l, s) => (1 + s * s) ** -0.5],
    "pre-norm": [(l, s) => (1 + l * s * s) ** 0.5, (l, s) => (1 + l * s * s) ** -0.5],
  };
  const look = {"no norm": ["red", "2 5"], "post-norm": ["orange", "9 5"], "pre-norm": ["blue", "none"]};
  const drawing = figure.drawing(640, 380, "Root mean square against the number of the sub-layer, for three places of the norm");
  const most = Math.max(...depths), across = scale([0, most], [56, 610]);
  figure.draw(({what, depth, scale: which}) => {
    const L = depths[depth], s = scales[which], first = what ? 1 : 0, layers = [...Array(L + 1 - first).keys()].map((l) => l + first);
    const ends = what ? [0.05, 20] : [0.5, 50], up = scale(ends, [316, 48], true);
    drawing.clear();
    (what ? [0.1, 1, 10] : [1, 10]).forEach((y) => {
      drawing.line([[56, up(y)], [610, up(y)]], {class: "grid"});
      drawing.add("text", {x: 48, y: up(y) + 5, "text-anchor": "end"}, String(y));
    });
    drawing.line([[56, 48], [56, 316], [610, 316]], {class: "axis"});
    [0, 12, 24, 36, 48].forEach((l) => drawing.add("text", {x: across(l), y: 338, "text-anchor": "middle"}, String(l)));
    drawing.add("text", {x: 333, y: 366, "text-anchor": "middle"}, "sub-layer l");
    Object.entries(look).forEach(([name, [color, dashes]], i) => {
      const values = layers.map((l) => lemma[name][what](l, s, L)), x = 60 + 195 * i;
      drawing.line([[x, 15], [x + 36, 15]], {class: `curve drawn ${color}`, "stroke-dasharray": dashes});
      drawing.add("text", {x: x + 44, y: 20, class: `coloured ${color}`}, name);
      const inside = layers.map((l, n) => [across(l), values[n]]).filter(([, y]) => y <= ends[1]);
      if (inside.length > 1) drawing.line(inside.map(([at, y]) => [at, up(y)]), {class: `curve drawn ${color}`, "stroke-dasharray": dashes});
      if (inside.length < layers.length) {  // it leaves the drawing here
        drawing.add("text", {x: inside.length ? inside[inside.length - 1][0] + 4 : 64, y: 44, class: `coloured ${color}`}, "↑");
      }
      figure.show(name, values);
      if (name === "no norm") return;
      const drawn = what ? gradients[name][L][which] : sizes[name][which].slice(0, L + 1);
      drawn.forEach((y, n) => drawing.add("circle", {cx: across(layers[n]), cy: up(y), r: 3.5, class: `filled ${color} dot`}));
      figure.show(`${name} drawn`, drawn);
    });
    const last = (name) => figure.shown[name][figure.shown[name].length - 1], few = (x) => (x < 1000 ? told(x, 2) : "more than a thousand");
    const by = (name) => `${few(last(name))} by the lemma and ${told(last(`${name} drawn`), 2)} in the random layers`;
    const thing = what ? "the gradient of the last matrix has the size" : "the sum behind the last sub-layer has the size";
    figure.say(`With ${L} sub-layers of scale ${fraction(s)}, ${thing} ${by("pre-norm")} with pre-norm, and ${by("post-norm")} with post-norm.`);
    figure.say(`Without a norm the lemma's matrices would make it ${few(last("no norm"))}.`);
  });
});
