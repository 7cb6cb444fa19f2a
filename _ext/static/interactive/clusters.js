// Words on a circle that pull each other by self-attention, by Euler's method: where they stand at a time, and at how many places.
Interactive.define("clusters", (figure) => {
  const {angles, step, last, cosine} = figure.data, {scale, told} = Interactive, n = angles.length, steps = Math.round(last / step);
  const stepsTo = (k) => Math.min(Math.round((k - 1) / step), steps);  // the slider runs over 1 + t: its logarithm begins at 0
  figure.slider("beta", {label: "β", min: 1, max: 64.01, step: Math.log(2) / 8, value: 8, log: true, format: (b) => told(b, b < 10 ? 1 : 0)});
  figure.slider("time", {label: "time", min: 1, max: 1.001 * (1 + last), step: Math.log(1 + last) / 200, value: 21, log: true, format: (k) => told(stepsTo(k) * step, 1)});
  // One step: every word is pulled along the circle to the mean of what it attends to, and put back on the circle.
  const moved = (X, beta) => X.map(([x, y]) => {
    let total = 0, ox = 0, oy = 0;
    for (const [a, b] of X) {
      const weight = Math.exp(beta * (x * a + y * b - 1));
      total += weight; ox += weight * a; oy += weight * b;
    }
    const along = (x * ox + y * oy) / total;
    const one = [x + step * (ox / total - along * x), y + step * (oy / total - along * y)], long = Math.hypot(...one);
    return [one[0] / long, one[1] / long];
  });
  // On a circle, groups of neighbours are parted by gaps: with two gaps or more each gap ends a group.
  const places = (X) => {
    const turn = X.map(([x, y]) => Math.atan2(y, x)).sort((a, b) => a - b);
    const wide = turn.filter((a, i) => Math.cos((i ? turn[i - 1] : turn[n - 1]) - a) < cosine).length;
    return Math.max(wide, 1);
  };
  let known = null;  // the path at the last β: turning the time computes nothing
  const path = (beta) => {
    if (known?.beta === beta) return known;
    let X = angles.map((a) => [Math.cos(a), Math.sin(a)]);
    known = {beta, X: [X], counts: [places(X)]};
    for (let k = 0; k < steps; k++) known.X.push(X = moved(X, beta)), known.counts.push(places(X));
    return known;
  };
  const words = ["no", "one place", "two places", "three places", "four places", "five places", "six places", "seven places", "eight places", "nine places", "ten places", "eleven places", "twelve places"];
  const said = (count) => words[count] ?? `${count} places`, colors = ["blue", "orange", "green", "red", "purple", "sky"];
  const drawing = figure.drawing(640, 300, "Left: the words on the circle. Right: the number of places against time");
  const right = scale([1, 1 + last], [330, 628], true), up = scale([1, 32], [250, 40], true);
  figure.draw(({beta, time}) => {
    const {X, counts} = path(beta), k = stepsTo(time), now = counts[k];
    drawing.clear();
    drawing.add("circle", {cx: 140, cy: 148, r: 112, class: "grid"});
    X[k].forEach(([x, y], i) => {
      const color = colors[Math.floor(6 * i / n)], [sx, sy] = X[0][i];
      drawing.line([[140 + 128 * sx, 148 - 128 * sy], [140 + 136 * sx, 148 - 136 * sy]], {class: `curve drawn ${color}`});
      drawing.line([[140 + 124 * sx, 148 - 124 * sy], [140 + 112 * x, 148 - 112 * y]], {class: `drawn ${color}`, opacity: 0.35});
      drawing.add("circle", {cx: 140 + 112 * x, cy: 148 - 112 * y, r: 7, class: `filled ${color} token`, opacity: 0.75});
    });
    [1, 2, 4, 8, 16, 32].forEach((y) => {
      drawing.line([[330, up(y)], [628, up(y)]], {class: "grid"});
      drawing.add("text", {x: 322, y: up(y) + 5, "text-anchor": "end"}, String(y));
    });
    drawing.line([[330, 40], [330, 250], [628, 250]], {class: "axis"});
    [0, 1, 10, 100, 1000].filter((t) => t <= last).forEach((t) => drawing.add("text", {x: right(1 + t), y: 271, "text-anchor": t === last ? "end" : "middle"}, String(t)));
    drawing.add("text", {x: 480, y: 294, "text-anchor": "middle"}, "time");
    drawing.add("text", {x: 330, y: 24}, "places");
    const corners = [[right(1), up(counts[0])]];
    for (let i = 1; i <= steps; i++) if (counts[i] !== counts[i - 1]) corners.push([right(1 + i * step), up(counts[i - 1])], [right(1 + i * step), up(counts[i])]);
    drawing.line([...corners, [right(1 + last), up(counts[steps])]], {class: "curve drawn ink"});
    drawing.add("circle", {cx: right(1 + k * step), cy: up(now), r: 7, class: "filled orange"});
    let since = k, until = k;
    while (since > 0 && counts[since - 1] === now) since--;
    while (until < steps && counts[until + 1] === now) until++;
    figure.show("points", X[k]);
    figure.show("places", now);
    figure.show("counts", counts);
    figure.show("since", since * step);
    figure.show("until", until * step);
    figure.say(`At time ${told(k * step, 1)} the ${n} words stand at ${said(now)}.`);
    figure.say(until === steps ? `They have done so since time ${told(since * step, 1)} and still do at time ${last}.`
      : since < until ? `They do so from time ${told(since * step, 1)} to time ${told(until * step, 1)}.` : "This number lasts for one step only.");
  });
});
