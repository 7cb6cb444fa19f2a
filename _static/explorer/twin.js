// The library's BERT encoder in JavaScript. A line that is an equation of the book ends with its label, as in the library.
// Self-contained, because its text is also sent to the worker. Rows lie one after the other in Float32Arrays; sums are
// taken in double precision.
(window.Explorer ??= {}).twin = function (tensors, floats, shorts) {
  const HEADS = 12, EPS = 1e-12;
  const size = ({ shape }) => shape.reduce((a, b) => a * b, 1);

  // A row of a matrix is stored as integers and one factor, see _ext/explorer.py; a vector as it is.
  function decoded(tensor) {
    if (tensor.shape.length === 1) return floats.slice(tensor.floats, tensor.floats + size(tensor));
    const [rows, columns] = tensor.shape, values = new Float32Array(rows * columns);
    for (let row = 0, at = 0; row < rows; row++) {
      const factor = floats[tensor.floats + row];
      for (let c = 0; c < columns; c++, at++) values[at] = factor * shorts[tensor.shorts + at];
    }
    return values;
  }

  // The word table is half of the model, and a sentence needs a few of its rows: it stays as it is stored.
  const words = tensors["embeddings.word"], width = words.shape[1];
  const params = {};
  for (const [name, tensor] of Object.entries(tensors)) if (tensor !== words) params[name] = decoded(tensor);
  const wordFactors = floats.slice(words.floats, words.floats + words.shape[0]);
  const wordNumbers = shorts.slice(words.shorts, words.shorts + size(words));
  floats = shorts = null;
  const LAYERS = Object.keys(tensors).filter((name) => name.endsWith("attention.query.weight")).length;

  // W has one row for each output, so that both factors of a product are read in order; four rows of X share a pass over W.
  function linear(X, name) {
    const W = params[name + ".weight"], b = params[name + ".bias"], outs = b.length, ins = W.length / outs, n = X.length / ins;
    const Y = new Float32Array(n * outs);
    for (let o = 0; o < outs; o++) {
      const w = W.subarray(o * ins, (o + 1) * ins);
      let i = 0;
      for (; i + 4 <= n; i += 4) {
        let s0 = 0, s1 = 0, s2 = 0, s3 = 0;
        for (let k = 0, at = i * ins; k < ins; k++, at++) {
          const x = w[k];
          s0 += x * X[at];
          s1 += x * X[at + ins];
          s2 += x * X[at + 2 * ins];
          s3 += x * X[at + 3 * ins];
        }
        Y[i * outs + o] = s0 + b[o]; // eq:linear
        Y[(i + 1) * outs + o] = s1 + b[o];
        Y[(i + 2) * outs + o] = s2 + b[o];
        Y[(i + 3) * outs + o] = s3 + b[o];
      }
      for (; i < n; i++) {
        let s = 0;
        for (let k = 0, at = i * ins; k < ins; k++, at++) s += w[k] * X[at];
        Y[i * outs + o] = s + b[o];
      }
    }
    return Y;
  }

  function layerNorm(X, name) {
    const gain = params[name + ".gain"], bias = params[name + ".bias"];
    for (let at = 0; at < X.length; at += width) {
      let mean = 0, variance = 0;
      for (let c = 0; c < width; c++) mean += X[at + c] / width;
      for (let c = 0; c < width; c++) variance += (X[at + c] - mean) ** 2 / width;
      const scale = 1 / Math.sqrt(variance + EPS);
      for (let c = 0; c < width; c++) X[at + c] = gain[c] * (X[at + c] - mean) * scale + bias[c]; // eq:layer-norm
    }
    return X;
  }

  // The terms of this series are all positive, so that nothing cancels; beyond 6 the result is 1 in double precision.
  function erf(x) {
    const a = Math.abs(x);
    if (a > 6) return Math.sign(x);
    let term = a, sum = a;
    for (let k = 1; term > 1e-17 * sum; k++) sum += term *= (2 * a * a) / (2 * k + 1);
    return (Math.sign(x) * 2 * sum * Math.exp(-a * a)) / Math.sqrt(Math.PI);
  }
  function gelu(X) {
    for (let i = 0; i < X.length; i++) X[i] *= (1 + erf(X[i] / Math.SQRT2)) / 2; // eq:gelu
    return X;
  }

  function add(X, F) {
    for (let i = 0; i < X.length; i++) F[i] += X[i];
    return F;
  }

  function embedding(ids) {
    const X = new Float32Array(ids.length * width);
    const position = params["embeddings.position"], segment = params["embeddings.segment"];
    ids.forEach((id, i) => {
      for (let c = 0; c < width; c++) {
        X[i * width + c] = wordFactors[id] * wordNumbers[id * width + c] + position[i * width + c] + segment[c];
      }
    });
    return layerNorm(X, "embeddings.norm"); // eq:bert-embedding
  }

  // The weights of all heads, (HEADS, n, n), and the heads' outputs side by side, (n, width).
  function attention({ Q, K, V }) {
    const n = Q.length / width, d = width / HEADS, scale = 1 / Math.sqrt(d);
    const P = new Float32Array(HEADS * n * n), O = new Float32Array(n * width), row = new Float64Array(n);
    for (let head = 0; head < HEADS; head++) {
      for (let i = 0; i < n; i++) {
        const q = i * width + head * d;
        let top = -Infinity, total = 0;
        for (let j = 0; j < n; j++) {
          const k = j * width + head * d;
          let score = 0;
          for (let c = 0; c < d; c++) score += Q[q + c] * K[k + c];
          row[j] = score * scale; // eq:scaled-dot-score
          top = Math.max(top, row[j]);
        }
        for (let j = 0; j < n; j++) total += row[j] = Math.exp(row[j] - top);
        for (let j = 0; j < n; j++) {
          const p = (P[(head * n + i) * n + j] = row[j] / total); // eq:softmax
          const v = j * width + head * d;
          for (let c = 0; c < d; c++) O[q + c] += p * V[v + c]; // eq:attention
        }
      }
    }
    return { P, O };
  }

  function forward(ids) {
    let X = embedding(ids);
    const layers = [];
    for (let l = 0; l < LAYERS; l++) {
      const name = `layers.${l}.`, of = name + "attention.";
      const layer = { Q: linear(X, of + "query"), K: linear(X, of + "key"), V: linear(X, of + "value") }; // eq:head
      Object.assign(layer, attention(layer));
      const Y = layerNorm(add(X, linear(layer.O, of + "output")), name + "attention_norm"); // eq:sublayer-post-norm
      const F = linear(gelu(linear(Y, name + "feed_forward.up")), name + "feed_forward.down"); // eq:feed-forward
      X = layerNorm(add(Y, F), name + "feed_forward_norm");
      layers.push(layer);
    }
    const vector = new Float64Array(width);
    for (let i = 0; i < X.length; i++) vector[i % width] += X[i] / ids.length; // eq:mean-pool
    const length = Math.hypot(...vector);
    return { layers, hidden: X, vector: Float32Array.from(vector, (x) => x / length) }; // eq:unit-norm
  }
  return { forward };
};
