// Looks for words in window.BOOK, which searching.py has written, and shows what it finds on the search page. An entry is
// [page, kind, number, name, anchor, label], its text the one at the same place of window.BOOK_TEXT, which is large and
// comes after the first query; a page is [file, number, title].
(() => {
  const SHOWN = 40, TEXT = new URL("searchtext.js", document.currentScript.src).href;
  // The same word in American and British spelling, and in the plural, is one word.
  const stem = (word) => word.replace(/iz(e|ed|es|er|ers|ing|ation|ations)$/, "is$1").replace(/([^s])s$/, "$1");
  const words = (text) => (text.toLowerCase().match(/\d+(?:\.\d+)+|[\p{L}\p{N}]+/gu) || []).map(stem);
  const LABEL = /^(eq|pf|def|thm|prop|cor|lem|ex|rem|alg|exr|sol|sec|fig|tab|errata)[:-](?=\S)/i;
  const SMALL = new Set(words("a an and are as do does for from how in is it of on or the to what when which why with"));
  // Names that readers bring along, and what this book calls the thing; it is looked for under both.
  const ALSO = Object.entries({
    rope: "rotary", alibi: "linear bias", mha: "multi head", gqa: "grouped query", mqa: "grouped query", ffn: "feed forward",
    mlp: "feed forward", layernorm: "layer normalisation", "layer norm": "layer normalisation", rmsnorm: "root mean square", moe: "experts",
    ssm: "state space", bpe: "byte pair", mlm: "masked language", seq2seq: "encoder decoder", "flash attention": "tiled", flashattention: "tiled",
    "kv cache": "key value caches", kvcache: "key value caches", "pre norm": "norm placement", vit: "vision transformer",
    "low rank adaptation": "lora", "gradient checkpointing": "recompute", "activation checkpointing": "recompute", warmup: "warm up",
    "speculative decoding": "speculative", "loss scaling": "mixed precision",
  }).map(([theirs, ours]) => [` ${words(theirs).join(" ")} `, ` ${words(ours).join(" ")} `]);
  const KINDS = new Set("section equation theorem lemma corollary proposition definition remark example algorithm exercise chapter".split(" "));
  // The course comes before its problems and appendices, and these before the library's own pages.
  const HOMES = [[/^chapters\/0\d_/, 1], [/^chapters\/appendix\/(api|grader_api|concordance|errata|status)|^chapters\/instructors/, 0.3]];
  const home = (file) => HOMES.find(([pattern]) => pattern.test(file))?.[1] || 0.6;
  const WEIGHT = { exercise: 0.6, equation: 0.9 }; // an exercise practises what another place explains

  const prepared = () => {
    const { pages, entries } = window.BOOK;
    const holding = new Map(); // word: in how many entries it is
    const whole = pages.map(() => new Map()); // word: how often it is on a page, for which its first entry answers
    const known = entries.map(([page, kind, number, name, anchor, label], at) => {
      const top = kind === "section" && pages[page][2] === name, text = window.BOOK_TEXT?.[at] || "";
      const entry = { page: pages[page], kind: top ? "page" : kind, number: top ? pages[page][1] : number, name, anchor, text, label, top };
      const file = pages[page][0].split("/").pop(); // what a page is about stands in the name of its file too
      entry.title = words(name.replace(/^attnmath\.(numpy|torch)\./, "")).filter((word) => !SMALL.has(word));
      entry.called = new Set([...entry.title, ...words(top ? file : label.replace(LABEL, ""))]);
      entry.around = new Set(words(pages[page][2] + " " + file));
      entry.home = home(pages[page][0]) * (WEIGHT[kind] || 1);
      entry.count = new Map();
      if (top) entry.whole = whole[page];
      for (const word of words(text)) entry.count.set(word, (entry.count.get(word) || 0) + 1);
      for (const word of new Set([...entry.called, ...entry.count.keys()])) {
        holding.set(word, (holding.get(word) || 0) + 1);
        whole[page].set(word, (whole[page].get(word) || 0) + (entry.count.get(word) || 1));
      }
      return entry;
    });
    return { known, holding };
  };

  // How well an entry answers: rare words count more, words of a name more than words of the text; 0 if a word is missing.
  const worth = (entry, sought, rare) => {
    if (!sought.words.length && !sought.number) return 0;
    let sum = 0;
    for (const word of sought.words) {
      const inTitle = entry.called.has(word), times = entry.count.get(word) || 0, elsewhere = entry.whole?.get(word) || 0;
      if (!inTitle && !times && !elsewhere && !entry.around.has(word)) return 0;
      sum += rare(word) * ((inTitle ? 6 : 0) + (entry.around.has(word) ? 1.5 : 0) + Math.max((2 * times) / (times + 1), (1.8 * elsewhere) / (elsewhere + 1)));
    }
    if (sought.number) {
      if (entry.number !== sought.number) return 0;
      sum += 50;
    }
    if (sought.kinds.length) sum += sought.kinds.includes(entry.kind) ? 60 : 0;
    const meant = sought.words.filter((word) => entry.called.has(word)).length;
    const share = entry.title.length ? meant / Math.max(entry.title.length, meant) : 0;
    return sum * (1 + share) * (entry.top && share ? 2 : 1) * entry.home;
  };

  // A label, or the name of a function, written out: it comes before all that only holds its words.
  const isCalled = ({ label, name, kind }, query) => label === query || (/[._]/.test(query) && kind !== "section" && (name === query || name.endsWith("." + query)));

  // What is looked for: the words of the query, and once more with each name that the book has for them.
  const asked = (query, holding) => {
    const all = words(query.replace(LABEL, ""));
    const number = all.find((word) => /^\d+\.\d/.test(word));
    let rest = all.filter((word) => word !== number);
    // "theorem 2.3" names a kind; "the gradient theorem" does not
    const kinds = number ? rest.filter((word) => KINDS.has(word)) : [];
    rest = rest.filter((word) => !kinds.includes(word));
    const telling = rest.filter((word) => !SMALL.has(word));
    if (telling.length) rest = telling;
    const line = ` ${rest.join(" ")} `;
    const lines = [line, ...ALSO.filter(([theirs]) => line.includes(theirs)).map(([theirs, ours]) => line.replace(theirs, ours))];
    return lines.map((each) => each.split(" ").filter(Boolean)).map((each) => ({
      words: each.filter((word) => holding.has(word)), missing: each.filter((word) => !holding.has(word)), number, kinds,
    }));
  };

  // A word that is nowhere may be the beginning of others.
  const completed = (word, holding) => (word.length < 3 ? [] : [...holding.keys()].filter((each) => each.startsWith(word)).slice(0, 8));

  const look = (query, { known, holding }) => {
    const rare = (word) => Math.log(1 + known.length / (1 + (holding.get(word) || 0)));
    const tries = asked(query, holding).flatMap((sought) => {
      if (!sought.missing.length) return [sought];
      if (sought.missing.length > 1) return [];
      return completed(sought.missing[0], holding).map((each) => ({ ...sought, words: [...sought.words, each] }));
    });
    const best = new Map();
    for (const each of tries) for (const entry of known) {
      const value = worth(entry, each, rare);
      if (value > (best.get(entry)?.value || 0)) best.set(entry, { entry, value, words: each.words });
    }
    for (const entry of known) if (isCalled(entry, query)) best.set(entry, { entry, value: 1e4 * entry.home, words: words(query) });
    return [...best.values()].sort((a, b) => b.value - a.value);
  };

  const element = (tag, text, name) => Object.assign(document.createElement(tag), { textContent: text }, name ? { className: name } : {});

  // Some words of the text around the first that was sought, which are marked.
  const excerpt = (text, sought) => {
    const pieces = text.split(/([\p{L}\p{N}]+)/u), hit = (piece) => sought.includes(stem(piece.toLowerCase()));
    const first = Math.max(0, pieces.findIndex(hit) - 24);
    const line = element("p", first ? "… " : "", "context");
    for (const piece of pieces.slice(first, first + 80)) line.append(hit(piece) ? element("mark", piece) : piece);
    if (first + 80 < pieces.length) line.append(" …");
    return line;
  };

  const title = ({ page, kind, number, name, top }) => {
    const of = [page[1], page[2]].filter(Boolean).join(". ");
    if (top) return of;
    if (kind === "section") return `${of} › ${name}`;
    const called = kind[0].toUpperCase() + kind.slice(1) + (number && ` ${number}`);
    return `${called}${name && ` (${name})`} › ${of}`;
  };

  const show = (query) => {
    const place = document.getElementById("search-results"), found = look(query, prepared()), whole = Boolean(window.BOOK_TEXT);
    const list = element("ul", "", "search");
    for (const { entry, words: sought } of found.slice(0, SHOWN)) {
      const item = element("li", ""), link = element("a", title(entry));
      link.href = entry.page[0] + ".html" + (entry.top ? "" : "#" + entry.anchor);
      item.append(link);
      if (entry.text) item.append(excerpt(entry.text, sought));
      list.append(item);
    }
    const more = found.length > SHOWN ? `The first ${SHOWN} of ${found.length} places` : `${found.length} ${found.length === 1 ? "place" : "places"}`;
    const count = found.length ? `${more} for “${query}”.` : `Nothing was found for “${query}”.`;
    const said = element("p", whole ? count : `Looking through the text for “${query}”; by name:`, "search-summary" + (whole ? "" : " waiting"));
    if (whole) said.setAttribute("role", "status");
    place.replaceChildren(element("h2", "Search Results"), said, list);
  };

  const start = () => {
    const query = (new URLSearchParams(location.search).get("q") || "").trim();
    document.querySelectorAll('input[name="q"]').forEach((field) => { field.value = query; });
    if (!query) return;
    show(query);
    const rest = Object.assign(document.createElement("script"), { src: TEXT });
    rest.onload = () => show(query);
    rest.onerror = () => { window.BOOK_TEXT = []; show(query); };
    document.head.append(rest);
  };
  if (document.readyState === "loading") addEventListener("DOMContentLoaded", start);
  else start();
})();
