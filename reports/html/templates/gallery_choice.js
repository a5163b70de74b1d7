"use strict";

// Whose captions the gallery shows, and in what order of two models: all of it in the address.
const galleryChoice = {
  index: null,
  form: null,

  // The chosen models that have captions here.
  models() {
    const known = new Set(this.index.speakers.map(({ name }) => name));
    return choice.models().filter((name) => known.has(name));
  },

  // The captions to show of all that were said of an image.
  of(said) {
    const models = this.models();
    return models.length ? said.filter(({ name }) => models.includes(name)) : said;
  },

  // By how much one model's caption of an image scores above another's; null where either has none.
  margin(said, one, other) {
    const mean = (model) => {
      const scores = said.filter(({ name, score }) => name === model && score !== null).map(({ score }) => score);
      return scores.length ? scores.reduce((sum, score) => sum + score, 0) / scores.length : null;
    };
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
  },

  // Sets the controls from the address, the orders that compare two of the chosen models among them.
  show() {
    const { form } = this;
    const models = this.models();
    this.summary.textContent = models.length ? `Captions of ${models.join(", ")}` : "Captions of all models";
    for (const box of this.boxes.querySelectorAll("input")) box.checked = models.includes(box.value);
    const order = form.elements.order;
    for (const option of order.querySelectorAll("[data-pair]")) option.remove();
    for (const one of models) {
      for (const other of models) {
        if (one === other) continue;
        const value = ["beats", one, other].map(encodeURIComponent).join(",");
        order.append(make("option", { value, "data-pair": "" }, `${one} beats ${other} most`));
      }
    }
    const wanted = address.list("order").map(encodeURIComponent).join(",");
    order.value = [...order.options].some((option) => option.value === wanted) ? wanted : "worst";
    form.elements.wrong.value = this.kind() < 0 ? "" : address.get("wrong");
    form.elements.wrong.parentElement.hidden = this.index.kinds.length === 0;
    if (form.elements.words.value !== address.get("q")) form.elements.words.value = address.get("q");
  },
};
