"use strict";

// A model is the same in every panel of a section: pointing at one of its marks, or reaching it by key, brings out all of
// them; its name in the legend is a button that sets it side by side with others.
for (const section of document.querySelectorAll("section:has(.plots)")) {
  const named = [...section.querySelectorAll(".mark, .legend li[data-model]")];
  const show = (model) => {
    for (const each of named) each.classList.toggle("pointed", model !== null && each.dataset.model === model);
  };
  const of = (event) => event.target.closest(".mark, .legend li[data-model]")?.dataset.model ?? null;
  for (const kind of ["pointerover", "focusin"]) section.addEventListener(kind, (event) => show(of(event)));
  for (const kind of ["pointerleave", "focusout"]) section.addEventListener(kind, () => show(null));
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
