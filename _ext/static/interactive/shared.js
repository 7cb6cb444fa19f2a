// What every interactive figure is made of: knobs, a drawing, and numbers that are said in words as well.
//
// A kind of figure is one file beside this one. It calls Interactive.define(kind, build), and build(figure) makes the
// knobs and the drawing once and then tells figure.draw what to do whenever a knob was turned. The numbers come from the
// page's own cell (attnmath.interactive.share). Without JavaScript nothing of this is seen: the picture above it stays.
"use strict";
var Interactive = (() => {
  const SVG = "http://www.w3.org/2000/svg";
  const figures = {};

  const element = (tag, attributes = {}, ...children) => {
    const one = document.createElement(tag);
    for (const [key, value] of Object.entries(attributes)) one.setAttribute(key, value);
    one.append(...children);
    return one;
  };

  // A number as a reader writes it: a true minus sign, no more digits than are asked for.
  const told = (x, digits = 3) => Number.isFinite(x) ? x.toFixed(digits).replace("-", "−") : x > 0 ? "∞" : x < 0 ? "−∞" : "—";

  // From numbers to places: scale([0, 5], [40, 600]) is a function; with log the domain is positive.
  const scale = ([a, b], [from, to], log = false) => {
    const f = log ? Math.log : (x) => x, g = log ? Math.exp : (x) => x;
    const place = (x) => from + (to - from) * (f(x) - f(a)) / (f(b) - f(a));
    place.invert = (at) => g(f(a) + (f(b) - f(a)) * (at - from) / (to - from));
    return place;
  };

  class Drawing {
    constructor(width, height, label) {
      this.svg = document.createElementNS(SVG, "svg");
      this.svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
      this.svg.setAttribute("role", "group");
      this.svg.setAttribute("aria-label", label);
      this.width = width;
      this.height = height;
    }
    // draw.add("circle", {cx: 3, cy: 4, r: 2, class: "blue"}); a text goes in as the last argument.
    add(tag, attributes = {}, text = "", parent = this.svg) {
      const one = document.createElementNS(SVG, tag);
      for (const [key, value] of Object.entries(attributes)) one.setAttribute(key, value);
      if (text) one.textContent = text;
      return parent.appendChild(one);
    }
    line(points, attributes) {
      const d = points.map(([x, y], i) => `${i ? "L" : "M"}${x.toFixed(2)} ${y.toFixed(2)}`).join("");
      return this.add("path", {d, fill: "none", ...attributes});
    }
    clear() { this.svg.replaceChildren(); }
    // The place of a pointer in the drawing's own units.
    at(event) {
      const box = this.svg.getBoundingClientRect();
      return [(event.clientX - box.left) / box.width * this.width, (event.clientY - box.top) / box.height * this.height];
    }
  }

  class Figure {
    constructor(root, data) {
      this.root = root;
      this.data = data;
      this.kind = root.dataset.kind;
      this.knobs = {};   // name -> {value, set}
      this.shown = {};   // name -> what is shown, in full precision: the tests compare it with NumPy
      this.panel = root.querySelector(".knobs");
      this.stage = root.querySelector(".stage");
      this.words = root.querySelector(".said");
      this.waiting = false;
    }
    get value() { return Object.fromEntries(Object.entries(this.knobs).map(([name, knob]) => [name, knob.value])); }

    // Draws at the next frame, once, however many knobs were turned.
    turned() {
      if (this.waiting) return;
      this.waiting = true;
      requestAnimationFrame(() => { this.waiting = false; this.redraw(); });
    }
    redraw() {
      this.sentences = [];
      this.paint(this.value);
      this.words.textContent = this.sentences.join(" ");
      this.root.dataset.drawn = Number(this.root.dataset.drawn || 0) + 1;
    }
    // What is said in words below the drawing, for everybody and for screen readers.
    say(sentence) { this.sentences.push(sentence); }
    show(name, value) { this.shown[name] = value; }

    knob(name, label, control, read, write) {
      const id = `${this.kind}-${name}`, output = element("output", {for: id});
      control.id = id;
      control.setAttribute("name", name);
      const knob = {
        get value() { return read(); },
        set: (value) => { write(value); control.dispatchEvent(new Event("input", {bubbles: true})); },
      };
      this.knobs[name] = knob;
      control.addEventListener("input", () => this.turned());
      this.panel.append(element("div", {class: "knob"}, element("label", {for: id}, label), control, output));
      return output;
    }
    // A slider. With log the slider runs over the logarithm; format says the value.
    slider(name, {label, min, max, step = null, value, log = false, format = (x) => told(x, 2)}) {
      const f = log ? Math.log : (x) => x, g = log ? Math.exp : (x) => x;
      const by = step ?? (f(max) - f(min)) / 200;
      const control = element("input", {type: "range", min: f(min), max: f(max), step: by, value: f(value)});
      const read = () => g(Number(control.value));
      const output = this.knob(name, label, control, read, (x) => { control.value = f(x); });
      const tell = () => { output.textContent = format(read()); control.setAttribute("aria-valuetext", format(read())); };
      control.addEventListener("input", tell);
      tell();
    }
    // A list to choose from: options are strings, and the value is the place in the list.
    choice(name, {label, options, value = 0}) {
      const control = element("select");
      options.forEach((text, i) => control.append(element("option", {value: i}, text)));
      control.value = value;
      this.knob(name, label, control, () => Number(control.value), (i) => { control.value = i; });
    }
    toggle(name, {label, value = false}) {
      const control = element("input", {type: "checkbox"});
      control.checked = value;
      this.knob(name, label, control, () => control.checked, (on) => { control.checked = on; });
    }
    text(name, {label, value = ""}) {
      const control = element("input", {type: "text", value, autocomplete: "off", spellcheck: "false"});
      this.knob(name, label, control, () => control.value, (words) => { control.value = words; });
    }
    button(label, press) {
      const one = element("button", {type: "button"}, label);
      one.addEventListener("click", () => { press(); this.turned(); });
      this.panel.append(one);
      return one;
    }
    drawing(width, height, label) {
      const drawing = new Drawing(width, height, label);
      this.stage.append(drawing.svg);
      return drawing;
    }
    // A point that is moved by pointer, by touch and by the arrow keys. where is [x, y] in units of the drawing; moved
    // gets the new place and returns the one that is allowed. Draw the rest in draw(): the point itself stays.
    handle(drawing, name, {label, where, step = 8, moved = (x, y) => [x, y]}) {
      const point = drawing.add("circle", {r: 11, class: "handle", tabindex: 0, role: "slider", "aria-label": label});
      let place = where;
      const put = ([x, y]) => {
        place = moved(Math.min(Math.max(x, 0), drawing.width), Math.min(Math.max(y, 0), drawing.height));
        point.setAttribute("cx", place[0]);
        point.setAttribute("cy", place[1]);
        point.setAttribute("aria-valuenow", Math.round(place[0]));
        point.setAttribute("aria-valuetext", `${Math.round(place[0])}, ${Math.round(place[1])}`);
        this.turned();
      };
      this.knobs[name] = {get value() { return place; }, set: put};
      point.addEventListener("pointerdown", (event) => { point.setPointerCapture(event.pointerId); event.preventDefault(); point.focus(); });
      point.addEventListener("pointermove", (event) => { if (point.hasPointerCapture(event.pointerId)) put(drawing.at(event)); });
      const keys = {ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1]};
      point.addEventListener("keydown", (event) => {
        if (!keys[event.key]) return;
        event.preventDefault();
        event.stopPropagation();  // the theme turns pages with the arrow keys
        put([place[0] + step * keys[event.key][0], place[1] + step * keys[event.key][1]]);
      });
      put(where);
      return point;
    }
    draw(paint) { this.paint = paint; this.redraw(); }
  }

  // The scripts are deferred, so the page is parsed when a kind is defined, and its data stand there.
  const define = (kind, build) => document.querySelectorAll(`.interactive[data-kind="${kind}"]`).forEach((root) => {
    const data = document.querySelector(`script.figure-data[data-kind="${kind}"]`);
    root.hidden = false;
    root.addEventListener("keydown", (event) => { if (event.key.startsWith("Arrow")) event.stopPropagation(); });
    figures[kind] = new Figure(root, data ? JSON.parse(data.textContent) : {});
    build(figures[kind]);
  });

  return {define, figures, scale, told, element};
})();
