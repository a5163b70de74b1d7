"use strict";

// Panels are built when a caption is opened: those of an image are in a script of their own, which is added then, since
// pages opened from disk may load scripts, but may not fetch. Words become text nodes, never markup.
const SVG = "http://www.w3.org/2000/svg";

window.captionbench = { attention: arrived };

function drawn(tag, attributes, ...children) {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

function overlays(heat, regions) {
  const shown = heat ? [make("img", { src: heat, alt: "" })] : [];
  if (heat && !regions.length) return shown;
  return [...shown, drawn("svg", { viewBox: "0 0 100 100", preserveAspectRatio: "none", "aria-hidden": "true" },
    ...regions.map(([x, y, width, height, opacity, most]) => drawn("rect",
      { x, y, width, height, "fill-opacity": opacity, ...(most ? { class: "most" } : {}) })))];
}

function panel(picture, [word, where, heat, regions]) {
  const below = picture ? make("img", { src: picture, alt: "" }) : drawn("svg", { viewBox: "0 0 4 3", "aria-hidden": "true" });
  return make("li", {}, make("figure", {},
    make("span", { class: "look", role: "img", "aria-label": where }, below, ...overlays(heat, regions)),
    make("figcaption", {}, make("bdi", {}, word || "(encoder)"))));
}

async function build(details) {
  const list = details.querySelector(".panels");
  if (list.dataset.built) return;
  list.dataset.built = "yes";
  const { file, picture } = details.closest(".card").dataset;
  const captions = await load(file, file);
  list.replaceChildren(...captions[Number(details.dataset.caption)].map((each) => panel(picture, each)));
}

// The first caption of the image that the address names is opened, or of the first image.
function openNamed() {
  const named = /^#image--?\d+$/.test(site.hash) ? document.getElementById(site.hash.slice(1)) : null;
  (named ?? document.querySelector(".looks .card"))?.querySelector("details")?.setAttribute("open", "");
}

document.querySelector(".looks").addEventListener("toggle", ({ target }) => { if (target.open) build(target); }, true);
window.addEventListener("hashchange", openNamed);
openNamed();
