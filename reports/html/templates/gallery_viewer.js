"use strict";

// One image alone. Opening it is a step in the window's history, so that Back closes it and the address names it.
// `draw` makes its card, `order` gives the places in the order shown, and `ids` those of the images.
function galleryViewer({ draw, order, ids }) {
  const viewer = document.getElementById("viewer");
  const buttons = [...viewer.querySelectorAll("[data-step]")];
  let opened = null;
  let kept = null;

  const beside = (step) => {
    const at = order().indexOf(opened);
    return at < 0 ? undefined : order()[at + step];
  };

  async function open(place) {
    opened = place;
    const card = await draw(place);
    if (opened !== place) return;
    viewer.querySelector(".inside").replaceChildren(card);
    for (const button of buttons) button.disabled = beside(Number(button.dataset.step)) === undefined;
    if (!viewer.open) viewer.showModal();
  }

  function named() {
    const id = Number(site.hash.match(/^#image-(-?\d+)$/)?.[1] ?? NaN);
    const place = ids.indexOf(id);
    if (place >= 0) open(place);
    else if (viewer.open) {
      opened = null;
      viewer.close();
    }
  }

  function step(by) {
    const place = beside(by);
    if (place === undefined) return;
    site.replace(site.search, `#image-${ids[place]}`);
    open(place);
  }

  viewer.addEventListener("click", (event) => {
    const button = event.target.closest("button");
    if (event.target === viewer || button?.hasAttribute("data-close")) viewer.close();
    else if (button?.dataset.step) step(Number(button.dataset.step));
  });
  document.addEventListener("keydown", (event) => {
    const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!viewer.open || !by || event.altKey || event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault();
    step(by);
  });
  // Closed by a button or Escape, the step into the picture is taken back; what else the address says stays.
  viewer.addEventListener("close", () => {
    if (opened === null) return;
    opened = null;
    if (site.state?.picture) {
      kept = site.search;
      site.back();
    } else site.replace(site.search, "");
  });
  window.addEventListener("popstate", () => {
    if (kept !== null && kept !== site.search) site.replace(kept, site.hash);
    kept = null;
    named();
  }, true);
  named();

  return {
    open(place) {
      site.push({ picture: true }, site.search, `#image-${ids[place]}`);
      open(place);
    },
  };
}
