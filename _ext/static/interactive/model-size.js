// Parameters, bytes and operations of a decoder-only Transformer of any size: four bars, each as long as its whole.
Interactive.define("model-size", (figure) => {
  const {names, models} = figure.data, {told} = Interactive;
  const whole = (x) => Math.round(x).toLocaleString("en");
  const [layers, width, heads, keys, ratio, context, vocabulary, gated] = models[0];
  figure.choice("model", {label: "start from", options: names});
  figure.slider("layers", {label: "layers", min: 1, max: 128, step: 1, value: layers, format: whole});
  figure.slider("width", {label: "width d", min: 64, max: 16384, step: 64, value: width, format: whole});
  figure.slider("heads", {label: "heads", min: 1, max: 128, step: 1, value: heads, format: whole});
  figure.slider("keys", {label: "key/value heads", min: 1, max: 128, step: 1, value: keys, format: whole});
  figure.slider("ratio", {label: "feed-forward width f / d", min: 1, max: 8, step: 1 / 16, value: ratio});
  figure.slider("context", {label: "context, tokens", min: 128, max: 131072, step: Math.log(2) / 4, value: context, log: true, format: whole});
  figure.slider("vocabulary", {label: "vocabulary", min: 1000, max: 256000, step: 1, value: vocabulary, format: whole});
  figure.toggle("gated", {label: "gated, two tables (Llama)", value: Boolean(gated)});
  figure.toggle("maps", {label: "attention maps are kept", value: true});
  figure.panel.querySelector("[name=model]").addEventListener("input", () => {
    ["layers", "width", "heads", "keys", "ratio", "context", "vocabulary", "gated"].forEach((name, i) => {
      const value = models[figure.value.model][i];
      figure.knobs[name].set(name === "gated" ? Boolean(value) : value);
    });
  });
  const divisor = (of, most) => { let h = Math.min(of, most); while (of % h) h--; return h; };
  const big = (x) => {
    const [unit, name] = [[1e12, " trillion"], [1e9, " billion"], [1e6, " million"], [1, ""]].find(([u]) => x >= u || u === 1);
    return (x / unit).toLocaleString("en", {maximumSignificantDigits: 3}) + name;
  };
  const bytes = (x) => (x >= 1e12 ? [x / 1e12, " TB"] : x >= 1e9 ? [x / 1e9, " GB"] : [x / 1e6, " MB"])
    .map((y) => typeof y === "number" ? y.toLocaleString("en", {maximumSignificantDigits: 3}) : y).join("");
  const told_as = (name, x) => { figure.panel.querySelector(`output[for="model-size-${name}"]`).textContent = x; };
  const drawing = figure.drawing(640, 350, "Four bars: parameters, bytes to train, bytes to run, operations");
  figure.draw((knobs) => {
    const L = knobs.layers, d = knobs.width, n = Math.round(knobs.context), t = knobs.vocabulary;
    const h = divisor(d, knobs.heads), g = divisor(h, knobs.keys), e = d / h * g, f = Math.round(knobs.ratio * d);
    told_as("heads", whole(h));
    told_as("keys", whole(g));
    const attention = L * (2 * d * d + 2 * d * e), network = L * (knobs.gated ? 3 : 2) * d * f, logits = t * d;
    const parameters = attention + network + logits * (knobs.gated ? 2 : 1);
    const rows = L * n * (8 * d + (knobs.gated ? 4 : 2) * f) + n * d, maps = knobs.maps ? L * h * n * n : 0;
    const bars = {
      parameters: ["parameters", big, {"attention": attention, "feed-forward": network, "tables": parameters - attention - network}],
      train: ["bytes to train on one text", bytes, {"weights, gradients": 4 * parameters, "optimiser": 12 * parameters, "activations": 2 * (rows + maps)}],
      run: ["bytes to run one text", bytes, {"weights": 2 * parameters, "keys and values": 2 * L * 2 * n * e}],
      flops: ["operations to train on one text", big, {"projections": 6 * n * attention, "feed-forward": 6 * n * network, "logits": 6 * n * logits, "n² pairs": 12 * n * n * d * L}],
    };
    const totals = {};
    drawing.clear();
    Object.entries(bars).forEach(([name, [title, tell, parts]], row) => {
      const values = Object.values(parts), total = values.reduce((a, b) => a + b), y = 20 + 86 * row;
      totals[name] = tell(total);
      drawing.add("text", {x: 0, y}, `${title}: ${tell(total)}`);
      let x = 0, free = 0;
      Object.entries(parts).forEach(([part, value], i) => {
        const long = 640 * value / total, color = ["blue", "orange", "green", "purple"][i];
        drawing.add("rect", {x, y: y + 8, width: Math.max(long - 1, 0), height: 24, class: `filled ${color}`});
        const label = `${part} ${told(100 * value / total, 0)} %`, wide = 10.5 * label.length;
        const at = Math.max(x, free), end = at + wide > 640;
        if (value / total > 0.03 && (!end || 640 - wide >= free)) {
          drawing.add("text", {x: end ? 640 : at, y: y + 51, "text-anchor": end ? "end" : "start", class: `coloured ${color}`}, label);
          free = end ? 640 : at + wide + 8;
        }
        x += long;
      });
      figure.show(name, values);
    });
    figure.show("sizes", [L, d, f, h, g, n, t]);
    figure.show("total", parameters);
    const train = 16 * parameters + 2 * (rows + maps), cache = 2 * L * 2 * n * e;
    figure.say(`${L} layers of width ${whole(d)} with ${h} heads and ${g} key/value heads: ${totals.parameters} parameters.`);
    figure.say(`To train on one text of ${whole(n)} tokens takes ${totals.train}, ${train > 80e9 ? "more than a device of 80 GB has" : "which a device of 80 GB has"}; to run it takes ${totals.run}, of which keys and values are ${bytes(cache)}.`);
  });
});
