// Maps of weights: small on a canvas, large as a matrix or as lines. A shade grows with the square root of the weight, so that
// small weights can be seen; in a difference, one colour is more and the other less.
(() => {
  const Explorer = (window.Explorer ??= {});
  const shade = (weight) => Math.sqrt(Math.min(1, Math.abs(weight)));

  function element(tag, attributes = {}, ...children) {
    const svg = ["svg", "g", "rect", "line", "text"].includes(tag);
    const made = svg ? document.createElementNS("http://www.w3.org/2000/svg", tag) : document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) {
      if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
      else if (value === true) made.setAttribute(name, "");
      else if (value !== false && value != null) made.setAttribute(name, value);
    }
    made.append(...children.flat().filter((child) => child != null));
    return made;
  }

  // A canvas knows no variables of the theme: the two colours are read from an element that has them.
  function colour(name, near) {
    const probe = element("span", { style: `color: var(${name})`, hidden: true });
    near.append(probe);
    const numbers = getComputedStyle(probe).color.match(/[\d.]+/g).slice(0, 3).map(Number);
    probe.remove();
    return numbers;
  }
  const colours = (near) => [colour("--explorer-more", near), colour("--explorer-less", near)];

  function small(canvas, map, n, [more, less]) {
    canvas.width = canvas.height = n;
    const image = new ImageData(n, n);
    map.forEach((weight, i) => image.data.set([...(weight < 0 ? less : more), 255 * shade(weight)], 4 * i));
    canvas.getContext("2d").putImageData(image, 0, 0);
  }

  const letters = (tokens) => Math.max(...tokens.map((token) => [...token].length));

  // Rows are queries and columns are keys; `choose` is told the cell that was pointed at, `look` the one under the pointer.
  function matrix(map, tokens, { query, key, choose, look }) {
    const n = tokens.length, cell = n > 30 ? 14 : 20, left = 7.4 * letters(tokens) + 10, top = 6.4 * letters(tokens) + 14;
    const width = left + n * cell + 5.2 * letters(tokens), height = top + n * cell + 2;
    const picture = element("svg", { viewBox: `0 0 ${width} ${height}`, width, height, class: "explorer-matrix", role: "img",
      "aria-label": "The weights as a matrix: a row for each query, a column for each key. The table of scores below has the numbers." });
    picture.append(element("rect", { x: left, y: top, width: n * cell, height: n * cell, class: "explorer-ground" }));
    tokens.forEach((token, i) => {
      const y = top + (i + 0.5) * cell, x = left + (i + 0.5) * cell;
      picture.append(
        element("text", { x: left - 6, y, "text-anchor": "end", "dominant-baseline": "central", class: i === query ? "explorer-chosen" : "" }, token),
        element("text", { transform: `translate(${x} ${top - 6}) rotate(-55)`, "dominant-baseline": "central", class: i === key ? "explorer-chosen" : "" }, token),
      );
    });
    map.forEach((weight, at) => {
      if (Math.abs(weight) < 0.002) return;
      picture.append(element("rect", { x: left + (at % n) * cell, y: top + Math.floor(at / n) * cell, width: cell, height: cell,
        class: weight < 0 ? "explorer-less" : "explorer-more", "fill-opacity": shade(weight).toFixed(3) }));
    });
    if (query != null) picture.append(element("rect", { x: left, y: top + query * cell, width: n * cell, height: cell, class: "explorer-row" }));
    const under = (event) => {
      const box = picture.getBoundingClientRect(), scale = width / box.width;
      const j = Math.floor(((event.clientX - box.left) * scale - left) / cell), i = Math.floor(((event.clientY - box.top) * scale - top) / cell);
      return i >= 0 && i < n && j < n ? [i, Math.max(j, -1)] : null;
    };
    picture.addEventListener("pointermove", (event) => { const at = under(event); if (at && at[1] >= 0) look(...at); });
    picture.addEventListener("click", (event) => { const at = under(event); if (at) choose(...at); });
    return picture;
  }

  // Queries on the left, keys on the right; the chosen query's lines are strong.
  function lines(map, tokens, { query, key, choose }) {
    const n = tokens.length, step = 22, side = 7.4 * letters(tokens) + 10, between = 130, width = 2 * side + between, height = n * step + 4;
    const picture = element("svg", { viewBox: `0 0 ${width} ${height}`, width, height, class: "explorer-lines", role: "img",
      "aria-label": "The weights as lines from each query on the left to the keys on the right. The table of scores below has the numbers." });
    const y = (i) => (i + 0.5) * step + 2;
    map.forEach((weight, at) => {
      const i = Math.floor(at / n), mine = i === query;
      if (weight < (mine ? 0.002 : 0.05)) return;
      picture.append(element("line", { x1: side, y1: y(i), x2: side + between, y2: y(at % n), class: mine ? "explorer-mine" : "explorer-others",
        "stroke-width": (mine ? 1 + 5 * weight : 1).toFixed(2), "stroke-opacity": ((mine ? 1 : 0.25) * shade(weight)).toFixed(3) }));
    });
    tokens.forEach((token, i) => {
      picture.append(
        element("text", { x: side - 6, y: y(i), "text-anchor": "end", "dominant-baseline": "central", class: i === query ? "explorer-chosen" : "", onclick: () => choose(i, -1) }, token),
        element("text", { x: side + between + 6, y: y(i), "dominant-baseline": "central", class: i === key ? "explorer-chosen" : "", onclick: () => choose(query, i) }, token),
      );
    });
    return picture;
  }

  // All heads as radio buttons: one of them is in the order of the Tab key, the arrows go to the others.
  function heads(label, layers, count, choose) {
    const buttons = [];
    const group = element("div", { role: "radiogroup", "aria-label": label, class: "explorer-heads" });
    for (let layer = 0; layer < layers; layer++) {
      const line = element("div", { class: "explorer-layer" });
      for (let head = 0; head < count; head++) {
        const button = element("button", { type: "button", role: "radio", onclick: () => choose(layer, head) }, element("canvas", { "aria-hidden": "true" }));
        buttons.push(button);
        line.append(button);
      }
      group.append(element("div", { class: "explorer-layer-name", "aria-hidden": "true" }, `Layer ${layer + 1}`), line);
    }
    const steps = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -count, ArrowDown: count };
    group.addEventListener("keydown", (event) => {
      const to = buttons.indexOf(document.activeElement) + steps[event.key];
      if (!buttons[to]) return;
      event.preventDefault();
      event.stopPropagation(); // elsewhere the arrows turn the pages of the book
      buttons[to].focus();
      choose(Math.floor(to / count), to % count);
    });
    // `mapOf(layer, head)` is drawn, `more(layer, head)` is added to the name that is read aloud.
    const update = (n, mapOf, chosen, more = () => "") => {
      const inks = colours(group);
      buttons.forEach((button, i) => {
        const layer = Math.floor(i / count), head = i % count, mine = layer === chosen[0] && head === chosen[1];
        small(button.firstChild, mapOf(layer, head), n, inks);
        button.setAttribute("aria-checked", mine);
        button.setAttribute("aria-label", `head ${layer + 1}.${head + 1}${more(layer, head)}`);
        button.title = button.getAttribute("aria-label");
        button.tabIndex = mine ? 0 : -1;
      });
    };
    return { group, update };
  }
  Object.assign(Explorer, { element, matrix, lines, heads, colours });
})();
