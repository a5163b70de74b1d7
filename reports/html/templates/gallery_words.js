"use strict";

// How words of captions compare with those of references, and what a search asks for: words, and phrases in quotes.
const galleryWords = {
  WORD: /[\p{L}\p{N}]+(?:'[\p{L}\p{N}]+)*/gu,
  functionWords: new Set(),
  stems: new Map(),
  needles: [],

  start({ functionWords, forms }) {
    this.functionWords = new Set(functionWords);
    for (const words of forms) for (const word of words) this.stems.set(word, words[0]);
  },

  // Forms of one word have the same stem; the index lists those that occur, so that no stemmer is needed here.
  stem(word) {
    const lower = word.toLowerCase();
    return this.stems.get(lower) ?? lower;
  },

  // The stems of all words of some texts.
  known(texts) {
    return new Set(texts.flatMap((text) => [...text.matchAll(this.WORD)].map(([word]) => this.stem(word))));
  },

  // `"a red ball" cone` asks for a phrase and a word; a quote that is not closed yet goes to the end.
  asked(query) {
    const found = [...query.toLowerCase().matchAll(/["“”]([^"“”]*)["“”]?|([^\s"“”]+)/g)];
    this.needles = found.map(([, phrase, word]) => word ?? phrase.trim().replace(/\s+/g, " ")).filter(Boolean);
    return this.needles;
  },

  // Whether a text has every word and phrase that is asked for; none has an empty search.
  finds(text) {
    const lower = text.toLowerCase();
    return this.needles.length > 0 && this.needles.every((needle) => lower.includes(needle));
  },

  // The stretches of a text that a search found, as [from, to] in order, none within another. Case is folded one sign
  // at a time, since some signs are two in lower case, and places would move.
  hits(text) {
    const lower = Array.from({ length: text.length }, (_, at) => {
      const sign = text[at].toLowerCase();
      return sign.length === 1 ? sign : text[at];
    }).join("");
    const found = [];
    for (const needle of this.needles) {
      for (let at = lower.indexOf(needle); at >= 0; at = lower.indexOf(needle, at + needle.length)) found.push([at, at + needle.length]);
    }
    found.sort((one, other) => one[0] - other[0] || other[1] - one[1]);
    const apart = [];
    for (const [from, to] of found) {
      const last = apart.at(-1);
      if (last && from <= last[1]) last[1] = Math.max(last[1], to);
      else apart.push([from, to]);
    }
    return apart;
  },

  // Words that no reference has a form of, function words aside.
  odd(text, known) {
    const words = [...text.matchAll(this.WORD)];
    return words
      .filter(([word]) => !this.functionWords.has(word.toLowerCase()) && !known.has(this.stem(word)))
      .map((word) => [word.index, word.index + word[0].length]);
  },

  // The text as nodes, with what the search found, where it looked here, and the words that no reference has marked.
  nodes(text, { known = null, marked = true } = {}) {
    const hits = marked && this.finds(text) ? this.hits(text) : [];
    const odd = known ? this.odd(text, known) : [];
    const edges = [...new Set([0, text.length, ...hits.flat(), ...odd.flat()])].sort((a, b) => a - b);
    const within = (stretches, from) => stretches.some(([start, end]) => start <= from && from < end);
    const made = [];
    edges.slice(0, -1).forEach((from, place) => {
      const piece = text.slice(from, edges[place + 1]);
      const node = within(odd, from) ? make("span", { class: "odd" }, piece) : piece;
      if (within(hits, from)) {
        if (hits.some(([start]) => start === from)) made.push(make("mark", {}));
        made.at(-1).append(node);
      } else made.push(node);
    });
    return made;
  },
};
