"use strict";

// The hardest images are in the page. All of them are in scripts beside it, which this file adds when they are needed:
// pages opened from disk may load scripts, but may not fetch. Texts become text nodes, never markup.
const AT_ONCE = 24;
const MOST_SAID = 8;
const LONG_CAPTION = 240;

const gallery = { index: null, order: [], shown: AT_ONCE };

window.captionbench = { index: (index) => { gallery.index = index; }, images: arrived };

function decode(text) {
  return text.split(" ").map((word) => (word.startsWith("=") ? word.slice(1) : gallery.index.words[parseInt(word, 36)])).join(" ");
}

// What the scripts have of the image at a place of the hardest-first order.
async function stored(place) {
  const { index } = gallery;
  const number = Math.floor(place / index.size);
  const images = await load(number, `${index.prefix}${number}.js`);
  return images[place % index.size];
}

// The CIDEr-D that an image's captions have, with who wrote them.
async function scored(place) {
  const scores = (await stored(place))[7];
  return gallery.index.speakers.map(({ name }, n) => ({ name, score: scores[n] })).filter(({ score }) => score !== null);
}

// The image at a place of the hardest-first order, with its texts.
async function image(place) {
  const { index } = gallery;
  const [file, domain, picture, reason, references, captions, which, scores, wrong] = await stored(place);
  const texts = captions.map(decode);
  const said = index.speakers.map((speaker, n) => ({ ...speaker, text: texts[which[n]], score: scores[n], wrong: wrong[n] ?? 0 }));
  return {
    id: index.images[place][0], file, domain, picture, reason, attention: attention(index.images[place][0]),
    references: references.map(decode), said: said.filter(({ text }) => text !== undefined),
  };
}

// The page that shows where the words of an image's captions looked, if it is one of those.
function attention(id) {
  const [page, images] = gallery.index.attention;
  return images.includes(id) ? `${page}#image-${id}` : "";
}

function caption(text, known, wrong) {
  const made = make("bdi", { class: "caption" });
  if (!text) made.append(make("span", { class: "blank" }, "no words"));
  const marked = galleryChoice.searches("captions");
  const foundLater = marked && galleryWords.finds(text) && galleryWords.hits(text).some(([, to]) => to > LONG_CAPTION);
  const cut = foundLater ? text.length : LONG_CAPTION;
  made.append(...galleryWords.nodes(text.slice(0, cut), { known, marked }));
  const rest = text.slice(cut);
  if (rest) made.append(make("details", {}, make("summary", {}, `${rest.length.toLocaleString("en")} more characters`), rest));
  if (wrong.length) made.append(" ", make("small", { class: "tag" }, `wrong: ${wrong.join(", ")}`));
  return made;
}

function card(shown, most) {
  const known = galleryWords.known(shown.references);
  const kind = galleryChoice.kind();
  const line = (said) => make("li", said.reference ? { class: "reference" } : {},
    make("span", { class: "who" }, make("a", { href: said.page }, said.name), ...(said.label ? [" ", make("small", {}, said.label)] : [])),
    caption(said.text, known, kind < 0 ? [] : gallery.index.kinds.filter((_, bit) => said.wrong >> bit & 1)),
    make("span", { class: "score" }, said.score === null ? "—" : (said.score / 10).toFixed(1)));
  // A caption for which an image is shown is never folded away.
  const captions = galleryChoice.of(shown.said);
  const found = (said) => galleryChoice.searches("captions") && galleryWords.finds(said.text);
  const errs = (said) => kind >= 0 && galleryChoice.errs([said], kind);
  const unfolded = captions.filter((said, n) => n < most || found(said) || errs(said));
  const folded = captions.filter((said) => !unfolded.includes(said));
  const said = make("div", { class: "said" }, make("h2", { class: "hidden" }, `Captions of image ${shown.id}`),
    make("ul", { class: "captions" }, ...unfolded.map(line)));
  if (folded.length) {
    said.append(make("details", { class: "more" }, make("summary", {}, `${folded.length} more ${folded.length === 1 ? "caption" : "captions"}`),
      make("ul", { class: "captions" }, ...folded.map(line))));
  }
  said.append(make("h3", {}, "References"), make("ul", { class: "references" },
    ...shown.references.map((text) => make("li", {}, make("bdi", {}, ...galleryWords.nodes(text, { marked: galleryChoice.searches("references") }))))));
  const where = make("p", { class: "where" }, make("a", { href: `#image-${shown.id}` }, `#${shown.id}`), " ", make("bdi", {}, shown.file));
  if (shown.domain) where.append(" ", make("span", { class: "tag" }, shown.domain));
  if (shown.reason) where.append(" ", make("span", { class: "unseen" }, shown.reason));
  const side = make("div", { class: "side" }, where);
  if (shown.picture) {
    const image = make("img", { src: shown.picture, alt: `Image ${shown.id}`, loading: "lazy" });
    side.prepend(make("a", { class: "picture", href: shown.picture }, image));
  }
  if (shown.attention) side.append(make("p", { class: "files" }, make("a", { href: shown.attention }, "Where each word looked")));
  side.append(galleryChoice.box(shown.id));
  return make("article", { class: shown.picture ? "card" : "card text", "data-image": shown.id }, side, said);
}

function start() {
  const { index } = gallery;
  galleryWords.start(index);
  const list = document.getElementById("gallery");
  const form = document.getElementById("gallery-filter");
  const further = document.getElementById("further");
  const places = index.images.map((_, place) => place);
  gallery.order = places;
  // Images without a value come last.
  const byValue = (value, sign) => [...places].sort((a, b) => {
    const [one, other] = [value(a), value(b)];
    if (one === null || other === null) return (one === null) - (other === null);
    return sign * (one - other);
  });
  const column = (number, sign) => byValue((place) => index.images[place][number], sign);
  const byScores = async (valueOf, sign) => {
    const values = [];
    for (const place of places) values.push(valueOf(await scored(place)));
    return byValue((place) => values[place], sign);
  };
  // The index has the values over all models; those over chosen models are computed here.
  const byModels = (number, valueOf, sign) => {
    if (!galleryChoice.models().length) return column(number, sign);
    return byScores((captions) => valueOf(galleryChoice.of(captions).map(({ score }) => score)), sign);
  };
  const orders = {
    worst: () => byModels(1, galleryChoice.mean, 1),
    disputed: () => byModels(2, galleryChoice.disagreement, -1),
    best: () => byModels(1, galleryChoice.mean, -1),
    number: () => column(0, 1),
    // Where the first of two models is most above the second.
    beats: (one, other) => byScores((captions) => galleryChoice.margin(captions, one, other), -1),
  };
  // The texts that a search looks at, by place; they depend on the chosen models and on where it looks.
  let texts = new Map();
  let textsOf = "";
  const textsAt = async (place, known) => {
    if (!known.has(place)) {
      const { id, file, domain, references, said } = await image(place);
      const parts = [`#${id}`];
      if (galleryChoice.searches("captions")) parts.push(...galleryChoice.of(said).map((caption) => caption.text));
      if (galleryChoice.searches("references")) parts.push(...references);
      if (galleryChoice.searches("all")) parts.push(file, domain);
      known.set(place, parts.map((part) => part.toLowerCase()));
    }
    return known.get(place);
  };
  let asked = 0;
  let drawn = "";

  async function show(from, to, turn) {
    const cards = [];
    for (const place of gallery.order.slice(from, to)) cards.push(card(await image(place), MOST_SAID));
    if (turn !== asked) return;
    if (from === 0) list.replaceChildren(...cards);
    else list.append(...cards);
    gallery.shown = to;
    further.hidden = to >= gallery.order.length;
    document.getElementById("nothing").hidden = gallery.order.length > 0;
  }

  async function apply() {
    const turn = asked += 1;
    const chosen = new FormData(form);
    const words = galleryWords.asked(chosen.get("words"));
    const [kind, one, other] = chosen.get("order").split(",").map(decodeURIComponent);
    const searched = JSON.stringify([galleryChoice.models(), address.get("in")]);
    if (textsOf !== searched) [texts, textsOf] = [new Map(), searched];
    const known = texts;
    const ordered = await orders[kind](one, other);
    if (turn !== asked) return;
    const picked = galleryChoice.onlyBox.checked ? galleryChoice.images() : null;
    const fact = galleryChoice.kind();
    const found = [];
    for (const place of ordered) {
      if (picked && !picked.includes(index.images[place][0])) continue;
      if (fact >= 0 && !galleryChoice.errs((await image(place)).said, fact)) continue;
      const rows = words.length ? await textsAt(place, known) : [];
      if (turn !== asked) return;
      if (!words.length || rows.some((row) => words.every((word) => row.includes(word)))) found.push(place);
    }
    if (turn !== asked) return;
    gallery.order = found;
    await show(0, AT_ONCE, turn);
    if (turn !== asked) return;
    form.querySelector("output").textContent = words.length || picked || fact >= 0 ? `${found.length} of ${places.length}` : `${places.length} images`;
  }

  const viewer = galleryViewer({
    draw: async (place) => card(await image(place), Infinity),
    order: () => gallery.order,
    ids: index.images.map(([id]) => id),
  });

  list.addEventListener("click", (event) => {
    const link = event.target.closest("a.picture, .where a");
    if (!link || event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault();
    const id = Number(link.closest(".card").dataset.image);
    const place = index.images.findIndex(([known]) => known === id);
    viewer.open(place);
  });
  further.addEventListener("click", () => show(gallery.shown, gallery.shown + AT_ONCE, asked));
  form.addEventListener("submit", (event) => event.preventDefault());
  form.addEventListener("input", (event) => {
    const { name, value } = event.target;
    drawn = "";
    if (name === "words") address.set({ q: value });
    if (name === "in") address.set({ in: value });
    if (name === "wrong") address.set({ wrong: value });
    if (name === "order") address.set({ order: value.split(",").map(decodeURIComponent) });
  });
  form.hidden = false;
  further.hidden = places.length <= AT_ONCE;
  form.querySelector("output").textContent = `${places.length} images`;
  galleryChoice.start(index, form);
  for (const written of list.querySelectorAll(".card")) {
    written.querySelector(".side").append(galleryChoice.box(Number(written.dataset.image)));
  }
  // What is written out in the page is what it shows where nothing is chosen, and is not drawn again.
  const asks = () => {
    const { words, order } = form.elements;
    const picked = galleryChoice.onlyBox.checked && galleryChoice.images();
    const where = words.value && address.get("in");
    return JSON.stringify([galleryChoice.models(), words.value, where, order.value, picked, galleryChoice.kind()]);
  };
  drawn = JSON.stringify([[], "", "", "worst", false, -1]);
  address.follow(() => {
    galleryChoice.show();
    const wanted = asks();
    if (wanted === drawn) return;
    drawn = wanted;
    apply();
  });
}

document.addEventListener("DOMContentLoaded", start);
