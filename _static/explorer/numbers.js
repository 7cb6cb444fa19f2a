// What the page shows, computed from what the worker answered. Nothing here touches the page, so that a test can ask for it.
(() => {
  const Explorer = (window.Explorer ??= {});
  const HEADS = 12;
  const times = (a, b) => a.reduce((sum, x, i) => sum + x * b[i], 0);
  const cosine = (a, b) => times(a, b) / Math.sqrt(times(a, a) * times(b, b));
  const row = (X, i, width) => Array.from(X.subarray(i * width, (i + 1) * width));

  // The weights of one head, (n, n); layers and heads are counted from 0 here and from 1 on the page.
  const map = ({ layers, tokens: { length: n } }, layer, head) => layers[layer].P.subarray(head * n * n, (head + 1) * n * n);

  // One query of one head: its rows, the scores, and the weighted sum.
  function steps(result, layer, head, query) {
    const { Q, K, V, P, O } = result.layers[layer], n = result.tokens.length, width = Q.length / n, d = width / HEADS;
    const part = (X, i) => row(X, i, width).slice(head * d, (head + 1) * d);
    const q = part(Q, query), keys = [], values = [];
    for (let j = 0; j < n; j++) { keys.push(part(K, j)); values.push(part(V, j)); }
    const scores = keys.map((k) => times(q, k)), scaled = scores.map((score) => score / Math.sqrt(d));
    const top = Math.max(...scaled), raised = scaled.map((score) => Math.exp(score - top));
    const total = raised.reduce((a, b) => a + b, 0);
    const weights = row(P, head * n + query, n), output = part(O, query);
    return { d, q, keys, values, scores, scaled, top, raised, total, weights, output };
  }

  // A map in which the pieces `start` to `end` are one word: what they receive is added, what they give is averaged.
  function merged(P, n, start, end) {
    const m = n - (end - start) + 1, place = (i) => (i < start ? i : i < end ? start : i - (end - start) + 1);
    const M = new Float32Array(m * m);
    for (let i = 0; i < n; i++) {
      const share = i >= start && i < end ? 1 / (end - start) : 1;
      for (let j = 0; j < n; j++) M[place(i) * m + place(j)] += share * P[i * n + j];
    }
    return M;
  }

  // Two sentences that differ in one word: how each head, each token and the sentence moved.
  function moved(before, after, { start, end }) {
    const more = after.tokens.length - before.tokens.length, last = end + more;
    const n = before.tokens.length, m = n - (end - start) + 1;
    const word = (tokens, stop) => tokens.slice(start, stop).map((piece) => piece.replace(/^##/, "")).join("");
    const name = `${word(before.tokens, end)} → ${word(after.tokens, last)}`;
    const tokens = [...before.tokens.slice(0, start), name, ...before.tokens.slice(end)];
    const heads = [];
    for (let layer = 0; layer < before.layers.length; layer++) {
      for (let head = 0; head < HEADS; head++) {
        const difference = merged(map(after, layer, head), after.tokens.length, start, last);
        merged(map(before, layer, head), n, start, end).forEach((p, i) => { difference[i] -= p; });
        heads.push({ layer, head, difference, share: difference.reduce((sum, x) => sum + Math.abs(x), 0) / 2 / m });
      }
    }
    const width = before.hidden.length / n;
    const mean = (X, from, to) => {
      const sum = new Array(width).fill(0);
      for (let i = from; i < to; i++) row(X, i, width).forEach((x, c) => { sum[c] += x / (to - from); });
      return sum;
    };
    const alike = tokens.map((_, i) => {
      if (i === start) return cosine(mean(before.hidden, start, end), mean(after.hidden, start, last));
      const old = i < start ? i : i + end - start - 1;
      return cosine(row(before.hidden, old, width), row(after.hidden, i < start ? i : old + more, width));
    });
    return { tokens, heads, alike, cosine: cosine(Array.from(before.vector), Array.from(after.vector)) };
  }
  Object.assign(Explorer, { map, steps, merged, moved, cosine });
})();
