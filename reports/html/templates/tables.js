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

// Places are of the metric that the table is sorted by; by any other column they stay what they are.
function placeBy(table, metric) {
  for (const cell of table.querySelectorAll("td[data-places]")) {
    const place = JSON.parse(cell.dataset.places)[metric];
    if (!place) continue;
    const [text, value, reason] = place;
    const shown = document.createElement("span");
    shown.textContent = text;
    if (reason) shown.title = `${metric}: ${reason}`;
    cell.classList.toggle("said", value === null && text.includes(" "));
    if (value === null) delete cell.dataset.value; else cell.dataset.value = value;
    cell.replaceChildren(shown);
  }
  const heading = [...table.tHead.rows[0].cells].find((cell) => cell.textContent.startsWith("Place"));
  const known = [...table.querySelectorAll("td[data-places]")].some((cell) => metric in JSON.parse(cell.dataset.places));
  if (heading && known) (heading.querySelector("button") || heading).textContent = `Place, ${metric}`;
}

// Headings become buttons here, so that without a script no control is shown that does nothing.
for (const table of document.querySelectorAll("table.sortable")) {
  const headings = [...table.tHead.rows[0].cells];
  headings.forEach((heading, column) => {
    if (!heading.dataset.first) return;
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
      placeBy(table, heading.textContent);
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

// Only rows that have all the chosen facets are shown; tables and titles without a row left go too.
const facets = document.querySelector("form.facets");
if (facets) {
  const boards = [...document.querySelectorAll("section.board")];
  const rows = boards.flatMap((board) => [...board.querySelectorAll("tr[data-family]")].map((row) => [row, board]));
  const counted = rows.filter(([row]) => !row.closest(".people"));
  const apply = () => {
    const chosen = new FormData(facets);
    const fits = (name, value) => !chosen.get(name) || chosen.get(name) === value;
    for (const [row, board] of rows) {
      row.hidden = !["family", "objective"].every((name) => fits(name, row.dataset[name])) || !fits("data", board.dataset.data);
    }
    const shown = counted.filter(([row]) => !row.hidden).length;
    for (const board of boards) {
      const bodies = [...board.querySelectorAll("tbody")];
      const empty = (body) => ![...body.rows].some((row) => !row.hidden);
      bodies.forEach((body, place) => {
        if (body.classList.contains("apart")) body.hidden = empty(bodies[place + 1]);
      });
      for (const part of board.querySelectorAll(".people")) part.hidden = !part.querySelector("tr[data-family]:not([hidden])");
      board.hidden = bodies.every((body) => body.classList.contains("apart") || empty(body));
    }
    facets.querySelector("output").textContent = shown === counted.length ? `${shown} rows` : `${shown} of ${counted.length} rows`;
    document.getElementById("nothing").hidden = shown > 0;
  };
  facets.hidden = false;
  facets.addEventListener("submit", (event) => event.preventDefault());
  facets.addEventListener("input", apply);
  apply();
}

// Pointing at a name in a legend brings its lines to the front.
for (const item of document.querySelectorAll(".legend li")) {
  const marks = [...item.closest("section").querySelectorAll(".mark")].filter((mark) => mark.dataset.model === item.dataset.model);
  const show = (on) => marks.forEach((mark) => mark.classList.toggle("pointed", on));
  item.addEventListener("pointerenter", () => show(true));
  item.addEventListener("pointerleave", () => show(false));
}
