// Softmax of scores at a temperature: the bars are the weights, and the entropy says how many keys share them.
Interactive.define("temperature", (figure) => {
  const {scores, words} = figure.data, {scale, told} = Interactive;
  figure.slider("temperature", {label: "temperature τ", min: 0.05, max: 20, value: 1, log: true});
  const drawing = figure.drawing(640, 250, "One bar for each key: its weight");
  const up = scale([0, 1], [200, 20]), across = 640 / scores.length;
  figure.draw(({temperature}) => {
    const top = Math.max(...scores), e = scores.map((s) => Math.exp((s - top) / temperature));
    const sum = e.reduce((a, b) => a + b), weights = e.map((x) => x / sum);
    const entropy = -weights.reduce((h, p) => h + (p > 0 ? p * Math.log(p) : 0), 0);
    drawing.clear();
    drawing.line([[0, up(0)], [640, up(0)]], {class: "axis"});
    weights.forEach((p, i) => {
      const x = (i + 0.5) * across;
      drawing.add("rect", {x: x - 0.4 * across, y: up(p), width: 0.8 * across, height: up(0) - up(p), class: "filled blue"});
      drawing.add("text", {x, y: up(p) - 6, "text-anchor": "middle"}, told(p));
      drawing.add("text", {x, y: 220, "text-anchor": "middle"}, words[i]);
      drawing.add("text", {x, y: 242, "text-anchor": "middle"}, told(scores[i], 1));
    });
    figure.show("weights", weights);
    figure.show("entropy", entropy);
    figure.say(`At the temperature ${told(temperature, 2)} the largest weight is ${told(Math.max(...weights))}.`);
    figure.say(`The weights are spread as evenly as over ${told(Math.exp(entropy), 1)} keys.`);
  });
});
