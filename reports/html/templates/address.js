"use strict";

// The page's address: the browser's, or, where one file holds the whole report, what that file's window keeps of it.
const site = window.bundle ?? {
  get search() { return location.search; },
  get hash() { return location.hash; },
  get state() { return history.state; },
  replace(search, hash) { history.replaceState(history.state, "", location.pathname + search + hash); },
  push(state, search, hash) { history.pushState(state, "", location.pathname + search + hash); },
  back() { history.back(); },
  script(file) { return make("script", { src: file }); },
};

// What the reader chose is in the address, as ?models=a,b&only=1&order=…&q=…: it can be sent to somebody, outlives a
// reload, and is what controls are set from when a page is shown again, whatever the browser had kept of them.
const address = (() => {
  const carried = ["models", "only", "metrics", "compare"];
  const plain = (text) => { try { return decodeURIComponent(text.replaceAll("+", " ")); } catch { return text; } };
  const coded = (text) => encodeURIComponent(text).replaceAll("%2F", "/").replaceAll("%3A", ":").replaceAll("%20", "+");
  const parse = (text = site.search) => new Map(text.slice(1).split("&").filter(Boolean).map((pair) => {
    const at = pair.indexOf("=");
    return at < 0 ? [pair, ""] : [pair.slice(0, at), pair.slice(at + 1)];
  }));
  const search = (values) => {
    const text = [...values].filter(([, value]) => value !== "").map(([name, value]) => `${name}=${value}`).join("&");
    return text && `?${text}`;
  };

  const get = (name) => plain(parse().get(name) ?? "");
  // Names are coded one by one, so that a comma in one is none between two.
  const list = (name) => (parse().get(name) ?? "").split(",").filter(Boolean).map(plain);

  // Arrays become lists, anything else text; what is empty leaves the address.
  function set(changes) {
    const values = parse();
    for (const [name, value] of Object.entries(changes)) {
      values.set(name, Array.isArray(value) ? value.map(coded).join(",") : coded(String(value)));
    }
    site.replace(search(values), site.hash);
    for (const listener of listeners) listener();
  }

  const listeners = [];
  // Calls the function now and whenever the address may have changed, going back to the page included.
  function follow(listener) {
    listeners.push(listener);
    listener();
  }
  const changed = () => { for (const listener of listeners) listener(); };
  addEventListener("pageshow", changed);
  addEventListener("popstate", changed);

  // Links to other pages of the report carry the chosen models, but for what they ask themselves. They are set when they
  // are about to be followed.
  function carry(event) {
    const link = event.target.closest?.("a[href]");
    if (!link || /^(#|data:)/.test(link.getAttribute("href")) || !link.pathname.endsWith(".html")) return;
    link.dataset.asks ??= link.search;
    const values = parse();
    const kept = carried.filter((name) => values.has(name)).map((name) => [name, values.get(name)]);
    link.search = search(new Map([...kept, ...parse(link.dataset.asks)]));
  }
  for (const kind of ["pointerdown", "focusin", "click"]) addEventListener(kind, carry, true);

  return { get, list, set, follow };
})();
