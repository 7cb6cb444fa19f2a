// Sets formulas with MathJax when the book is built. Each line that comes in is a formula, {"tex": …, "display": …}, and
// is answered by one line: {"html": …}, or {"error": …} where TeX finds a fault. The first line that goes out is the
// style sheet of all characters. Run by mathematics.py as: node mathematics.js <folder of MathJax> <folder of its fonts>
const [folder, fontURL] = process.argv.slice(2);

const config = {
  loader: { load: ["input/tex", "output/chtml", "a11y/assistive-mml", "adaptors/liteDOM"] },
  // Without the package `noundefined`, which writes an unknown command in red: here it is to be an error.
  tex: { packages: { "[-]": ["noundefined"] } },
  chtml: { fontURL, adaptiveCSS: false },
  startup: { typeset: false },
};

const answer = (reply) => process.stdout.write(JSON.stringify(reply) + "\n");

const start = async () => {
  const warn = console.warn;
  console.warn = () => {}; // the adaptor carries no version number, and MathJax says so each time
  const MathJax = await require(folder + "/node-main.js").init(config);
  console.warn = warn;
  const { adaptor } = MathJax.startup;
  answer({ css: adaptor.textContent(MathJax.chtmlStylesheet()) });
  const set = async ({ tex, display }) => {
    try {
      MathJax.texReset();
      const html = adaptor.outerHTML(await MathJax.tex2chtmlPromise(tex, { display }));
      const fault = html.match(/<mjx-merror[^>]*data-mjx-error="([^"]*)"/);
      return fault ? { error: fault[1] } : { html };
    } catch (error) {
      return { error: error.message };
    }
  };
  for await (const line of require("readline").createInterface({ input: process.stdin })) answer(await set(JSON.parse(line)));
};

start().catch((error) => { console.error(error); process.exit(1); });
