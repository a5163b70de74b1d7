"use strict";

// Numbers sort by data-value, words by their text; what was not measured always comes last.
function sortBy(table, column, direction) {
  const sign = direction === "ascending" ? 1 : -1;
  const key = (row) => {
    const cell = row.cells[column];
    if (!cell.classList.contains("number")) return cell.textContent.trim().toLowerCase();
    return cell.dataset.value === undefined ? null : Number(cell.dataset.value);
  };
  const compare = (one, other) => {
    const a = key(one);
    const b = key(other);
    if (a === null || b === null) return (a === null) - (b === null);
    return sign * (typeof a === "string" ? a.localeCompare(b) : a - b);
  };
  for (const body of table.tBodies) {
    if (!body.classList.contains("apart")) body.append(...[...body.rows].sort(compare));
  }
}

// Headings become buttons here, so that without a script no control is shown that does nothing.
for (const table of document.querySelectorAll("table.sortable")) {
  const headings = [...table.tHead.rows[0].cells];
  headings.forEach((heading, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...heading.childNodes);
    heading.append(button);
    button.addEventListener("click", () => {
      const first = heading.dataset.first;
      const opposite = first === "ascending" ? "descending" : "ascending";
      const direction = heading.getAttribute("aria-sort") === first ? opposite : first;
      headings.forEach((other) => other.removeAttribute("aria-sort"));
      heading.setAttribute("aria-sort", direction);
      sortBy(table, column, direction);
    });
  });
}

for (const box of document.querySelectorAll(".signature")) {
  const button = document.createElement("button");
  button.type = "button";
  button.textContent = "Copy";
  button.setAttribute("aria-label", "Copy the signature");
  box.append(button);
  button.addEventListener("click", () => {
    const code = box.querySelector("code");
    const done = () => { button.textContent = "Copied"; };
    const select = () => { getSelection().selectAllChildren(code); button.textContent = "Selected"; };
    // Browsers may refuse the clipboard to pages opened from disk; the text is then selected for the reader to copy.
    if (navigator.clipboard) navigator.clipboard.writeText(code.textContent).then(done, select);
    else select();
    setTimeout(() => { button.textContent = "Copy"; }, 2000);
  });
}

const form = document.querySelector("form.filter");
if (form) {
  const input = form.querySelector("input");
  const output = form.querySelector("output");
  const cards = [...document.querySelectorAll(".card")].map((card) => [card, card.textContent.toLowerCase()]);
  const apply = () => {
    const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
    let shown = 0;
    for (const [card, text] of cards) {
      card.hidden = !words.every((word) => text.includes(word));
      if (!card.hidden) shown += 1;
    }
    output.textContent = words.length ? `${shown} of ${cards.length}` : `${cards.length} images`;
    document.getElementById("nothing").hidden = shown > 0;
  };
  form.hidden = false;
  form.addEventListener("submit", (event) => event.preventDefault());
  input.addEventListener("input", apply);
  apply();
}
