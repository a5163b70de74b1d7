"use strict";

// The models that the reader set side by side: checked in any table, named in a bar at the foot of the window, and kept
// in the address, which links carry to the other pages.
const choice = {
  models: () => address.list("models"),
  only: () => address.get("only") === "1" && address.list("models").length > 0,
  toggle(model) {
    const chosen = choice.models();
    const left = chosen.filter((other) => other !== model);
    const models = left.length < chosen.length ? left : [...chosen, model];
    address.set({ models, only: models.length && choice.only() ? "1" : "" });
  },
};

// What a page shows later is in scripts beside it: opened from disk, a page may load these, but may not fetch. Each
// calls a function of `captionbench`, here `arrived`, with its name and its data.
const waiting = new Map();
const loading = new Map();
const arrived = (name, data) => waiting.get(name)(data);

function load(name, file) {
  if (!loading.has(name)) {
    loading.set(name, new Promise((done) => {
      waiting.set(name, done);
      document.head.append(site.script(file));
    }));
  }
  return loading.get(name);
}

const rows = [...document.querySelectorAll("table tr[data-model]")];

// A box before each model's name. They are made here, so that without a script no control is shown that does nothing.
for (const row of rows) {
  const { model } = row.dataset;
  const box = make("input", { type: "checkbox", class: "pick", "aria-label": `Set ${model} side by side` });
  box.addEventListener("change", () => choice.toggle(model));
  row.querySelector("th").prepend(box);
}

// The bar is there while something is chosen.
const onlyBox = make("input", { type: "checkbox", id: "only" });
const chosenList = make("ul", {});
const clear = make("button", { type: "button" }, "Clear");
const bar = make("div", { class: "choice", role: "group", "aria-label": "Models side by side", hidden: "" }, chosenList);
if (rows.length) bar.append(make("label", { class: "switch" }, onlyBox, " Only these rows"));
bar.append(clear);
document.getElementById("main").append(bar);
onlyBox.addEventListener("change", () => address.set({ only: onlyBox.checked ? "1" : "" }));
clear.addEventListener("click", () => {
  address.set({ models: [], only: "" });
  document.getElementById("main").focus();
});

address.follow(() => {
  const chosen = choice.models();
  bar.hidden = chosen.length === 0;
  onlyBox.checked = choice.only();
  chosenList.replaceChildren(...chosen.map((model) => {
    const button = make("button", { type: "button", "aria-label": `Leave ${model} out` }, `${model} ×`);
    button.addEventListener("click", () => {
      choice.toggle(model);
      (bar.hidden ? document.getElementById("main") : clear).focus();
    });
    return make("li", {}, button);
  }));
  for (const row of rows) {
    const picked = chosen.includes(row.dataset.model);
    row.classList.toggle("chosen", picked);
    row.querySelector(".pick").checked = picked;
  }
});

// Rows are shown that have all the chosen facets and, if the reader wants only these, are chosen; references always are,
// in tables that show a row beside them. Tables and titles without a row left go too.
const facets = document.querySelector("form.facets");
const tables = [...new Set(rows.map((row) => row.closest("table")))];
const FACETS = ["family", "objective"];

// What the address asks of a facet, where the form has it.
function known(name) {
  const value = address.get(name);
  return [...facets?.elements[name]?.options ?? []].some((option) => option.value === value) ? value : "";
}

function fits(row, wanted) {
  if (choice.only() && !choice.models().includes(row.dataset.model)) return false;
  return FACETS.every((name) => !wanted[name] || wanted[name] === row.dataset[name]);
}

function filterRows() {
  const wanted = Object.fromEntries(FACETS.map((name) => [name, known(name)]));
  const isReference = (row) => row.closest("tbody").classList.contains("reference");
  const compared = rows.filter((row) => !isReference(row));
  for (const row of compared) row.hidden = !fits(row, wanted);
  for (const table of tables) {
    const some = compared.some((row) => !row.hidden && row.closest("table") === table);
    for (const row of table.querySelectorAll(".reference tr")) row.hidden = !some;
    const bodies = [...table.tBodies];
    const empty = (body) => [...body.rows].every((row) => row.hidden);
    bodies.forEach((body, place) => {
      if (body.classList.contains("apart")) body.hidden = empty(bodies[place + 1]);
    });
    table.closest(".people")?.toggleAttribute("hidden", bodies.every(empty));
  }
  if (!facets) return;
  const counted = compared.filter((row) => !row.closest(".people"));
  const shown = counted.filter((row) => !row.hidden);
  facets.querySelector("output").textContent = shown.length === counted.length ? "" : `${shown.length} of ${counted.length} rows`;
  document.getElementById("nothing").hidden = shown.length > 0 || counted.length === 0;
}

address.follow(filterRows);

if (facets) {
  facets.hidden = false;
  facets.addEventListener("submit", (event) => event.preventDefault());
  facets.addEventListener("input", (event) => address.set({ [event.target.name]: event.target.value }));
  address.follow(() => {
    for (const select of facets.querySelectorAll("select")) select.value = known(select.name);
  });
}

const metrics = document.getElementById("all-metrics");
if (metrics) {
  metrics.addEventListener("change", () => address.set({ metrics: metrics.checked ? "all" : "" }));
  address.follow(() => { metrics.checked = address.get("metrics") === "all"; });
}

// A menu leads to the leaderboard that has its word and shares most of the others; that of metrics sorts this one.
const menus = document.querySelector("form.menus");
if (menus) {
  const board = document.querySelector("section.board > .scroll > table");
  const others = [...document.querySelectorAll("#other-tables li")];
  const words = (link) => JSON.parse(link.dataset.words);
  const shared = (link) => [...menus.elements].filter((select) => words(link)[select.name] === select.value).length;
  menus.hidden = false;
  menus.addEventListener("submit", (event) => event.preventDefault());
  menus.addEventListener("input", ({ target }) => {
    if (target.name === "metric") {
      const heading = [...board.tHead.rows[0].cells].find((cell) => cell.dataset.name === target.value);
      address.set({ order: `${board.id}:${target.value}:${heading.dataset.first}` });
      return;
    }
    const found = others.filter((link) => words(link)[target.name] === target.value);
    found.sort((one, other) => shared(other) - shared(one));
    found[0]?.querySelector("a").click();
  });
  // A page that is shown again has the entries that were left; they are those of this page.
  addEventListener("pageshow", () => {
    for (const select of menus.elements) {
      if (select.name !== "metric") select.value = [...select.options].find((option) => option.defaultSelected)?.value ?? select.value;
    }
  });
  address.follow(() => {
    const [table, name] = address.get("order").split(":");
    const known = [...menus.elements.metric.options].some((option) => option.value === name);
    if (board && table === board.id && known) menus.elements.metric.value = name;
  });
}

// Notes are folded: one that is pointed to opens what it is in.
function unfold() {
  const target = site.hash.length > 1 && document.getElementById(decodeURIComponent(site.hash.slice(1)));
  for (let folded = target && target.closest("details"); folded; folded = folded.parentElement.closest("details")) folded.open = true;
  if (target) target.scrollIntoView({ block: "nearest" });
}
addEventListener("hashchange", unfold);
unfold();
