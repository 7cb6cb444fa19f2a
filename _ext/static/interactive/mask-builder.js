// A mask of three conditions: padding, causal, window. The square shows who sees whom, and one pair is explained.
Interactive.define("mask-builder", (figure) => {
  const {n, length} = figure.data, {told} = Interactive;
  figure.slider("length", {label: "words", min: 1, max: n, step: 1, value: length, format: (x) => `${x} of ${n}`});
  figure.toggle("front", {label: "padding in front"});
  figure.toggle("causal", {label: "causal", value: true});
  figure.slider("window", {label: "window w", min: 0, max: n - 1, step: 1, value: n - 1, format: (w) => (w < n - 1 ? told(w, 0) : "all")});
  const drawing = figure.drawing(560, 440, "One row for each query, one column for each key; a filled square is a pair that is allowed");
  const size = 60, left = 90, top = 64, squares = [], numbers = [], counts = [];
  let pair = [0, 0];
  const choose = (i, j) => {
    pair = [Math.min(Math.max(i, 0), n - 1), Math.min(Math.max(j, 0), n - 1)];
    figure.turned();
  };
  figure.knobs.pair = {get value() { return pair.map((x) => x + 1); }, set: ([i, j]) => choose(i - 1, j - 1)};
  drawing.add("text", {x: left + (n * size) / 2, y: 20, "text-anchor": "middle"}, "key");
  drawing.add("text", {x: 4, y: top - 12}, "query");
  drawing.add("text", {x: left + n * size + 14, y: top - 12}, "sees");
  for (let i = 0; i < n; i++) {
    numbers.push(drawing.add("text", {x: left + (i + 0.5) * size, y: top - 12, "text-anchor": "middle"}, " "));
    drawing.add("text", {x: left - 14, y: top + (i + 0.5) * size + 6, "text-anchor": "end"}, `${i + 1}`);
    counts.push(drawing.add("text", {x: left + n * size + 14, y: top + (i + 0.5) * size + 6}, " "));
    squares.push([...Array(n).keys()].map((j) => {
      const one = drawing.add("rect", {x: left + j * size + 3, y: top + i * size + 3, width: size - 6, height: size - 6, role: "button"});
      one.addEventListener("click", () => choose(i, j));
      one.addEventListener("keydown", (event) => {
        const step = {ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0]}[event.key];
        if (!step) return;
        event.preventDefault();
        choose(i + step[0], j + step[1]);
        squares[pair[0]][pair[1]].setAttribute("tabindex", 0);
        squares[pair[0]][pair[1]].focus();
      });
      return one;
    }));
  }
  figure.draw(({length, front, causal, window}) => {
    const word = (j) => (front ? j >= n - length : j < length);
    const reasons = (i, j) => [
      ...(word(j) ? [] : [`key ${j + 1} is padding`]),
      ...(causal && j > i ? [`key ${j + 1} comes after query ${i + 1}`] : []),
      ...(Math.abs(i - j) > window ? [`they stand ${Math.abs(i - j)} apart and the window is ${told(window, 0)}`] : []),
    ];
    const mask = squares.map((row, i) => row.map((_, j) => !reasons(i, j).length));
    const sees = mask.map((row) => row.filter(Boolean).length), empty = sees.flatMap((k, i) => (k ? [] : [i + 1]));
    squares.forEach((row, i) => row.forEach((one, j) => {
      const chosen = i === pair[0] && j === pair[1];
      one.setAttribute("class", mask[i][j] ? "filled blue" : "");
      one.setAttribute("style", `${mask[i][j] ? "" : "fill: transparent;"} stroke: var(--${chosen ? "orange" : "ink"}); stroke-width: ${chosen ? 7 : 1}; cursor: pointer`);
      one.setAttribute("tabindex", chosen ? 0 : -1);
      one.setAttribute("aria-pressed", chosen);
      one.setAttribute("aria-label", `query ${i + 1}, key ${j + 1}: ${mask[i][j] ? "allowed" : "forbidden"}`);
    }));
    numbers.forEach((text, j) => { text.textContent = word(j) ? `${j + 1}` : "pad"; });
    counts.forEach((text, i) => {
      text.textContent = sees[i] ? `${sees[i]}` : "0 keys!";
      text.setAttribute("class", sees[i] ? "" : "red coloured");
    });
    const code = [
      ...(length < n ? [`padding_mask(np.array([${length}]), ${n})[0]${front ? "[:, ::-1]" : ""}`] : []),
      ...(causal ? [`causal_mask(${n})`] : []), ...(window < n - 1 ? [`window_mask(${n}, ${window})`] : []),
    ].join(" & ") || `np.ones((${n}, ${n}), bool)`;
    const why = reasons(...pair), total = sees.reduce((a, b) => a + b);
    for (const [name, value] of Object.entries({mask, sees, empty, total, code, why: why.length})) figure.show(name, value);
    figure.say(`Query ${pair[0] + 1} ${why.length ? `may not look at key ${pair[1] + 1}: ${why.join(", and ")}` : `may look at key ${pair[1] + 1}`}.`);
    figure.say(`${total} of ${n * n} pairs are allowed.`);
    figure.say(empty.length ? `No key is left for ${empty.length > 1 ? "queries" : "query"} ${empty.join(", ")}: the softmax would be 0/0.` : "Every query has a key.");
    figure.say(`In the library: ${code}.`);
  });
});
