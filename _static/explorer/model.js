// The model in a worker of its own: loads the book's files when it is asked to, and then answers sentences.
// The data are classic scripts that call Explorer.receive, because pages that are opened from a disk may not fetch.
(() => {
  const Explorer = (window.Explorer ??= {});
  const folder = new URL(".", document.currentScript.src).href;
  const MOST = 64; // tokens: the maps of a longer text cannot be read

  // What the worker runs; its text is sent there together with the tokenizer's and the twin's.
  Explorer.work = function (Explorer, MOST, answer) {
    let bytes, layout, tokenizer, twin;
    const asked = {
      begin(message) {
        ({ layout } = message);
        bytes = new Uint8Array(layout.bytes);
        tokenizer = Explorer.tokenizer(message.vocabulary);
        answer({});
      },
      part({ start, text }) {
        const binary = atob(text);
        for (let i = 0; i < binary.length; i++) bytes[start + i] = binary.charCodeAt(i);
        answer({});
      },
      end() {
        const floats = new Float32Array(bytes.buffer, 0, layout.floats);
        twin = Explorer.twin(layout.tensors, floats, new Int16Array(bytes.buffer, floats.byteLength));
        bytes = null;
        answer({});
      },
      run({ text }) {
        const encoded = tokenizer.encode(text, MOST), began = performance.now();
        answer({ ...encoded, ...twin.forward(encoded.ids), seconds: (performance.now() - began) / 1000 });
      },
    };
    return (message) => asked[message.kind](message);
  };

  function started() {
    const source = `const Explorer = { tokenizer: ${Explorer.tokenizer}, twin: ${Explorer.twin} };
      const work = (${Explorer.work})(Explorer, ${MOST}, (found) => postMessage(found));
      onmessage = ({ data }) => { try { work(data); } catch (error) { postMessage({ error: String(error) }); } };`;
    const address = URL.createObjectURL(new Blob([source], { type: "text/javascript" }));
    const worker = new Worker(address), waiting = []; // it answers in the order in which it was asked
    worker.onmessage = ({ data }) => {
      const { resolve, reject } = waiting.shift();
      if (data.error) reject(new Error(data.error)); else resolve(data);
    };
    worker.onerror = (event) => waiting.splice(0).forEach(({ reject }) => reject(new Error(event.message)));
    const ask = (message) => new Promise((resolve, reject) => {
      waiting.push({ resolve, reject });
      worker.postMessage(message);
    });
    return { ask, stop: () => { worker.terminate(); URL.revokeObjectURL(address); } };
  }

  const script = (name) => new Promise((resolve, reject) => {
    const element = document.createElement("script");
    let data;
    Explorer.receive = (found) => { data = found; };
    element.onload = () => { element.remove(); resolve(data); };
    element.onerror = () => { element.remove(); reject(new Error(`the file ${name} could not be loaded`)); };
    element.src = folder + name;
    document.head.append(element);
  });

  // Resolves to { run(text) }; `progress` is told the share of the files that has arrived.
  Explorer.load = async (progress) => {
    const layout = await script("layout.data.js");
    const worker = started();
    try {
      await worker.ask({ kind: "begin", layout, vocabulary: await script("vocabulary.data.js") });
      for (const { name, start, length } of layout.parts) {
        await worker.ask({ kind: "part", start, text: await script(name) });
        progress((start + length) / layout.bytes);
      }
      await worker.ask({ kind: "end" });
    } catch (error) {
      worker.stop();
      throw error;
    }
    return { run: (text) => worker.ask({ kind: "run", text }) };
  };
})();
