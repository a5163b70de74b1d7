"use strict";

// A model is the same in every panel of a section: pointing at one of its marks, or reaching it by key, brings out all of
// them and shows what they say above each panel, until the pointer leaves; after a click, until the next one. Marks may
// lie on top of each other: all that are under the pointer are shown. A name in the legend is a button that sets its
// model side by side with others.
const NEAR = 4; // pixels by which a pointer may miss a line

function underPointer({ clientX, clientY }) {
  const steps = [[0, 0], [-NEAR, 0], [NEAR, 0], [0, -NEAR], [0, NEAR]];
  const hits = steps.flatMap(([x, y]) => document.elementsFromPoint(clientX + x, clientY + y));
  return hits.map((hit) => hit.closest(".mark, .legend li[data-model]")).filter(Boolean);
}

for (const section of document.querySelectorAll("section:has(.plots)")) {
  const named = [...section.querySelectorAll(".mark, .legend li[data-model]")];
  const panels = [...section.querySelectorAll(".plot")].map((plot) => {
    const tip = make("p", { class: "tip", "aria-hidden": "true", hidden: "" }); // each mark's label says the same
    plot.querySelector("figcaption").append(tip);
    return { tip, marks: [...plot.querySelectorAll(".mark")] };
  });
  let kept = [];

  function show(models) {
    for (const each of named) each.classList.toggle("pointed", models.includes(each.dataset.model));
    for (const { tip, marks } of panels) {
      const shown = models.flatMap((model) => marks.filter((mark) => mark.dataset.model === model));
      tip.replaceChildren(...shown.map((mark) => make("b", {}, mark.getAttribute("aria-label"))));
      tip.hidden = shown.length === 0;
    }
  }
  const modelsOf = (elements) => [...new Set(elements.map((element) => element.dataset.model))];
  const focused = () => modelsOf([document.activeElement?.closest(".mark, .legend li[data-model]")].filter(Boolean));

  section.addEventListener("pointermove", (event) => {
    const models = modelsOf(underPointer(event));
    show(models.length ? models : kept);
  });
  section.addEventListener("pointerleave", () => show(kept));
  section.addEventListener("focusin", () => show(focused()));
  section.addEventListener("focusout", () => show(kept));
  section.addEventListener("click", (event) => {
    kept = event.target.closest(".plot") ? modelsOf(underPointer(event)) : [];
    show(kept);
  });
  section.addEventListener("keydown", (event) => {
    if (event.key === "Escape") show(kept = []);
  });
  for (const item of section.querySelectorAll(".legend li[data-model]")) {
    const button = make("button", { type: "button" }, ...item.childNodes);
    item.append(button);
    button.addEventListener("click", () => choice.toggle(item.dataset.model));
  }
  address.follow(() => {
    const chosen = choice.models();
    for (const each of named) {
      const picked = chosen.includes(each.dataset.model);
      each.classList.toggle("chosen", picked);
      each.querySelector(":scope > button")?.setAttribute("aria-pressed", picked);
    }
  });
}
