"use strict";

function make(tag, attributes, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

// Numbers sort by data-value, those of a heat map by what they show, words by their text; what was not measured always comes last.
function sortBy(table, column, direction) {
  const sign = direction === "ascending" ? 1 : -1;
  const key = (row) => {
    const cell = row.cells[column];
    const heat = column > 0 && table.classList.contains("heat");
    if (!heat && !cell.classList.contains("number")) return cell.textContent.trim().toLowerCase();
    const value = Number(heat ? cell.textContent : cell.dataset.value);
    return Number.isNaN(value) ? null : value;
  };
  const compare = (one, other) => {
    const a = key(one);
    const b = key(other);
    if (a === null || b === null) return (a === null) - (b === null);
    return sign * (typeof a === "string" ? a.localeCompare(b, "en", { numeric: true }) : a - b);
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
    const [text, value, reason, ranks] = place;
    const isReason = value === null && text.includes(" ");
    const shown = make("span", reason ? { title: `${metric}: ${reason}` } : {}, isReason ? "—" : text);
    if (value === null) delete cell.dataset.value; else cell.dataset.value = value;
    cell.removeAttribute("style");
    if (ranks) {
      cell.style.setProperty("--from", `${100 * (ranks[0] - 1) / table.dataset.ranks}%`);
      cell.style.setProperty("--to", `${100 * ranks[1] / table.dataset.ranks}%`);
    }
    cell.replaceChildren(shown);
  }
  const heading = [...table.tHead.rows[0].cells].find((cell) => cell.textContent.startsWith("Rank"));
  const known = [...table.querySelectorAll("td[data-places]")].some((cell) => metric in JSON.parse(cell.dataset.places));
  if (heading && known) (heading.querySelector("button") || heading).textContent = `Rank, ${metric}`;
}

function order(table, heading, direction) {
  const headings = [...table.tHead.rows[0].cells];
  headings.forEach((other) => other.removeAttribute("aria-sort"));
  heading.setAttribute("aria-sort", direction);
  placeBy(table, heading.textContent);
  sortBy(table, headings.indexOf(heading), direction);
}

// Headings become buttons here, so that without a script no control is shown that does nothing.
for (const table of document.querySelectorAll("table.sortable")) {
  for (const heading of table.tHead.rows[0].cells) {
    if (!heading.dataset.first) continue;
    heading.dataset.name = heading.textContent;
    const button = make("button", { type: "button" }, ...heading.childNodes);
    heading.append(button);
    button.addEventListener("click", () => {
      const first = heading.dataset.first;
      const opposite = first === "ascending" ? "descending" : "ascending";
      const direction = heading.getAttribute("aria-sort") === first ? opposite : first;
      order(table, heading, direction);
      if (table.id) address.set({ order: `${table.id}:${heading.dataset.name}:${direction}` });
    });
  }
}

// The order that the address names, as table:heading:direction.
address.follow(() => {
  const found = address.get("order").match(/^([\w-]+):(.*):(ascending|descending)$/s);
  const table = found && document.getElementById(found[1]);
  if (!table?.tHead) return;
  const heading = [...table.tHead.rows[0].cells].find((cell) => cell.dataset.name === found[2]);
  if (heading && heading.getAttribute("aria-sort") !== found[3]) order(table, heading, found[3]);
});

for (const box of document.querySelectorAll(".signature")) {
  const button = make("button", { type: "button", "aria-label": "Copy the signature" }, "Copy");
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
