"use strict";

// Whose captions the gallery shows, in what order of two models, and which images are chosen to be printed: all of it in
// the address.
const galleryChoice = {
  index: null,
  form: null,

  // The chosen models that have captions here.
  models() {
    const known = new Set(this.index.speakers.map(({ name }) => name));
    return choice.models().filter((name) => known.has(name));
  },
  images: () => address.list("images").map(Number),

  // The captions to show of all that were said of an image.
  of(said) {
    const models = this.models();
    return models.length ? said.filter(({ name }) => models.includes(name)) : said;
  },

  // Whether a search looks at the captions that are shown, at the references, or at "all", file names included.
  searches(what) {
    const where = address.get("in") || "captions";
    return where === "all" || where === what;
  },

  // The mean of some scores; null of none.
  mean(scores) {
    return scores.length ? scores.reduce((sum, score) => sum + score, 0) / scores.length : null;
  },

  // How far some scores are apart: their standard deviation; null of fewer than two.
  disagreement(scores) {
    if (scores.length < 2) return null;
    const mean = galleryChoice.mean(scores);
    return Math.sqrt(galleryChoice.mean(scores.map((score) => (score - mean) ** 2)));
  },

  // By how much one model's captions of an image score above another's, on average; null where either has none.
  margin(scored, one, other) {
    const mean = (model) => this.mean(scored.filter(({ name }) => name === model).map(({ score }) => score));
    const [a, b] = [mean(one), mean(other)];
    return a === null || b === null ? null : a - b;
  },

  // Which kind of facts is to be wrong; -1: whichever. And whether one of the models to show errs so.
  kind() { return this.index.kinds.indexOf(address.get("wrong")); },
  errs(said, kind) { return this.of(said).some(({ reference, wrong }) => !reference && wrong >> kind & 1); },

  // Boxes for the models, made where a script can heed them.
  start(index, form) {
    Object.assign(this, { index, form });
    const names = [...new Set(index.speakers.map(({ name }) => name))];
    this.summary = make("summary", {});
    const boxes = names.map((name) => {
      const box = make("input", { type: "checkbox", value: name });
      box.addEventListener("change", () => choice.toggle(name));
      return make("label", { class: "switch" }, box, ` ${name}`);
    });
    this.boxes = make("fieldset", {}, make("legend", { class: "hidden" }, "Captions of"), ...boxes);
    form.insertBefore(make("details", { class: "speakers" }, this.summary, this.boxes), form.querySelector("output"));
    this.onlyBox = make("input", { type: "checkbox" });
    this.onlyLabel = make("label", { class: "switch" }, this.onlyBox, " Only chosen images");
    this.onlyBox.addEventListener("change", () => address.set({ chosen: this.onlyBox.checked ? "1" : "" }));
    form.insertBefore(this.onlyLabel, form.querySelector("output"));
  },

  // Sets the controls from the address, the orders that compare two of the chosen models among them.
  show() {
    const { form } = this;
    const models = this.models();
    this.summary.textContent = models.length ? `Captions of ${models.join(", ")}` : "Captions of all models";
    for (const box of this.boxes.querySelectorAll("input")) box.checked = models.includes(box.value);
    const images = this.images();
    this.onlyLabel.hidden = images.length === 0;
    this.onlyBox.checked = images.length > 0 && address.get("chosen") === "1";
    const order = form.elements.order;
    const [disputed] = [...order.options].filter(({ value }) => value === "disputed");
    const rows = this.index.speakers.filter(({ name }) => models.includes(name)).length;
    disputed.textContent = rows > 1 ? "chosen models disagree most" : "largest disagreement first";
    disputed.disabled = rows === 1;
    for (const option of order.querySelectorAll("[data-pair]")) option.remove();
    for (const one of models) {
      for (const other of models) {
        if (one === other) continue;
        const value = ["beats", one, other].map(encodeURIComponent).join(",");
        order.append(make("option", { value, "data-pair": "" }, `${one} beats ${other} most`));
      }
    }
    const wanted = address.list("order").map(encodeURIComponent).join(",");
    order.value = [...order.options].some((option) => option.value === wanted && !option.disabled) ? wanted : "worst";
    form.elements.in.value = ["references", "all"].includes(address.get("in")) ? address.get("in") : "";
    form.elements.wrong.value = this.kind() < 0 ? "" : address.get("wrong");
    form.elements.wrong.parentElement.hidden = this.index.kinds.length === 0;
    if (form.elements.words.value !== address.get("q")) form.elements.words.value = address.get("q");
    for (const box of document.querySelectorAll(".choose input")) box.checked = images.includes(Number(box.value));
  },

  // A box that chooses an image to be printed.
  box(id) {
    const box = make("input", { type: "checkbox", value: id });
    box.checked = this.images().includes(id);
    box.addEventListener("change", () => {
      const others = this.images().filter((other) => other !== id);
      address.set({ images: box.checked ? [...others, id] : others });
    });
    return make("label", { class: "switch choose" }, box, ` Choose image ${id}`);
  },
};
