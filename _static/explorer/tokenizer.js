// BERT's WordPiece tokenizer, as the library's: lower case, accents stripped, Chinese characters apart, punctuation apart.
// Self-contained, because its text is also sent to the worker.
(window.Explorer ??= {}).tokenizer = function (vocabulary) {
  const ids = new Map(vocabulary.map((piece, id) => [piece, id]));
  const SPECIAL = /(\[(?:PAD|UNK|CLS|SEP|MASK)\])/;
  const REMOVED = /[\0\uFFFD]|(?![\t\n\r])[\p{Cc}\p{Cf}\p{Co}\p{Cs}]/gu;
  const CHINESE =
    /[\u4E00-\u9FFF\u3400-\u4DBF\u{20000}-\u{2A6DF}\u{2A700}-\u{2B73F}\u{2B740}-\u{2B81F}\u{2B920}-\u{2CEAF}\uF900-\uFAFF\u{2F800}-\u{2FA1F}]/gu;
  const PUNCTUATION = /([!-\/:-@\[-`{-~\p{P}])/u;
  const LONGEST = 100; // characters; WordPiece gives up on a longer word

  // Small letters are made one character at a time: JavaScript's rule for a final sigma looks at its neighbours.
  const plain = (text) =>
    [...text.normalize("NFD").replace(/\p{Mn}/gu, "")].map((letter) => letter.toLowerCase()).join("");

  // The longest piece first, then the longest of what is left.
  function pieces(word) {
    const letters = [...word];
    if (letters.length > LONGEST) return ["[UNK]"];
    const found = [];
    for (let start = 0; start < letters.length; ) {
      let end = letters.length, piece;
      for (; end > start; end--) {
        piece = (start ? "##" : "") + letters.slice(start, end).join("");
        if (ids.has(piece)) break;
      }
      if (end === start) return ["[UNK]"];
      found.push(piece);
      start = end;
    }
    return found;
  }

  // The words of a text, each with its pieces: what stands between blanks, marks of punctuation and special tokens.
  function words(text) {
    const found = [];
    text.split(SPECIAL).forEach((part, i) => {
      if (i % 2) return found.push({ word: part, pieces: [part] });
      for (const word of part.replace(REMOVED, "").replace(CHINESE, " $& ").split(/\p{White_Space}+/u)) {
        for (const part of plain(word).split(PUNCTUATION)) if (part) found.push({ word: part, pieces: pieces(part) });
      }
    });
    return found;
  }

  // At most `most` tokens, special ones included; of a longer text the beginning is kept. `spans` says where each word lies.
  function encode(text, most) {
    const tokens = ["[CLS]"], spans = [];
    for (const { word, pieces } of words(text)) {
      spans.push({ word, start: tokens.length, end: tokens.length + pieces.length });
      tokens.push(...pieces);
    }
    const cut = tokens.length > most - 1;
    if (cut) tokens.length = most - 1;
    tokens.push("[SEP]");
    return {
      tokens, cut, ids: tokens.map((token) => ids.get(token)),
      spans: spans.filter(({ start, end }) => end < tokens.length && start < end),
    };
  }
  return { encode };
};
