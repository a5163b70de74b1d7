"use strict";

// Two chosen models beside each other: what the table and the square of pairs say of them, and where to look further.
(() => {
  const table = document.querySelector("section.board > .scroll > table");
  if (!table) return;
  const button = make("button", { type: "button" }, "Compare these two");
  const dialog = make("dialog", { id: "two", "aria-labelledby": "two-title" });
  bar.querySelector("ul").after(button);
  document.getElementById("main").append(dialog);

  const rowOf = (model) => [...table.rows].find((row) => row.dataset.model === model);
  const chosen = () => choice.models().filter(rowOf);

  // What the square of pairs says of the first model against the second; null where they were not compared.
  function verdict([first, second]) {
    const square = document.querySelector("table.pairs");
    const names = [...square?.tHead.rows[0].querySelectorAll("abbr") ?? []].map((name) => name.title);
    const cell = square?.tBodies[0].rows[names.indexOf(first)]?.cells[names.indexOf(second) + 1];
    const words = { better: "is significantly better than", worse: "is significantly worse than", same: "is the same, within the margin, as" };
    if (!names.includes(first) || !names.includes(second)) return null;
    const known = words[cell.className];
    return [known ? `${first} ${known} ${second}.` : `${first} and ${second} are too close to call.`, cell.title];
  }

  // Scores differ by points, costs by a factor.
  function difference(heading, [a, b]) {
    if (a === undefined || b === undefined) return "";
    if (heading.dataset.kind === "score") return `${a < b ? "−" : "+"}${Math.abs(100 * (a - b)).toFixed(1)}`;
    return b === 0 || heading.classList.contains("place") ? "" : `× ${Number((a / b).toPrecision(3))}`;
  }

  function draw(models) {
    const rows = models.map(rowOf);
    const lines = [...table.tHead.rows[0].cells].flatMap((heading, column) => {
      const cells = rows.map((row) => row.cells[column]);
      const texts = cells.map((cell) => cell.textContent.trim());
      if (!heading.classList.contains("number") || texts.every((text) => !text)) return [];
      const values = cells.map((cell) => (cell.dataset.value === undefined ? undefined : Number(cell.dataset.value)));
      return [make("tr", {}, make("th", { scope: "row" }, heading.dataset.name ?? heading.textContent),
        ...texts.map((text) => make("td", { class: "number" }, text)),
        make("td", { class: "number" }, difference(heading, values)))];
    });
    const heads = ["", ...models, "Difference"].map((text) => make("th", { scope: "col", class: "number" }, text));
    const said = verdict(models);
    const sentence = make("p", { class: "headline" }, make("strong", {}, said ? said[0] : "These two were not tested against each other."));
    if (said) sentence.append(" ", make("span", { class: "cost" }, `${said[1]}.`));
    const pages = models.map((model) => make("a", { href: rowOf(model).querySelector("th a").getAttribute("href") }, model));
    const links = make("p", { class: "note" }, "More of ", pages[0], " and ", pages[1]);
    if (document.querySelector("nav [href='gallery.html']")) {
      links.append("; ", make("a", { href: `gallery.html?order=beats,${models.map(encodeURIComponent).join(",")}` }, "their captions"));
    }
    const close = make("button", { type: "button", "data-close": "" }, "Close");
    close.addEventListener("click", () => dialog.close());
    dialog.replaceChildren(
      make("div", { class: "bar-top" }, make("h2", { id: "two-title" }, `${models[0]} and ${models[1]}`), close),
      make("p", { class: "note" }, document.querySelector("h1").textContent), sentence,
      make("div", { class: "scroll", role: "region", "aria-labelledby": "two-title", tabindex: "0" },
        make("table", { class: "numbers" }, make("thead", {}, make("tr", {}, ...heads)), make("tbody", {}, ...lines))),
      links);
  }

  button.addEventListener("click", () => address.set({ compare: "1" }));
  dialog.addEventListener("close", () => address.set({ compare: "" }));
  address.follow(() => {
    const models = chosen();
    button.hidden = models.length !== 2;
    const wanted = models.length === 2 && address.get("compare") === "1";
    if (wanted) draw(models);
    if (wanted && !dialog.open) dialog.showModal();
    if (!wanted && dialog.open) dialog.close();
  });
})();
