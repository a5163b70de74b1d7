"use strict";

// A whole report in one file: its pages are shown in a frame, each made of the texts and pictures that the file holds.
(async () => {
  const frame = document.querySelector("iframe");
  const bytes = (text) => Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
  const textOf = async (id) => {
    const stream = new Blob([bytes(document.getElementById(id).textContent)]).stream();
    return new Response(stream.pipeThrough(new DecompressionStream("gzip"))).text();
  };
  const files = JSON.parse(await textOf("files"));
  const pictures = JSON.parse(document.getElementById("pictures").textContent);
  const addresses = new Map();

  // What stands behind the file's own "#": a page of the report with its query and its anchor.
  function current() {
    const [, page, search, hash] = location.hash.slice(1).match(/^([^?#]*)(\?[^#]*)?(#.*)?$/);
    return { page: page || "index.html", search: search ?? "", hash: hash ?? "" };
  }

  function pictureAddress(path) {
    if (!addresses.has(path)) {
      const { type, data } = pictures[path];
      addresses.set(path, URL.createObjectURL(new Blob([bytes(data)], { type })));
    }
    return addresses.get(path);
  }

  const resolved = (path) => path.replace(/^(\.\.\/)+/, "");
  const withPictures = (text) => text.replace(/"([^"<>\\]+\.(?:png|jpe?g|webp|gif))"/g, (whole, path) => (
    Object.hasOwn(pictures, resolved(path)) ? `"${pictureAddress(resolved(path))}"` : whole));
  const inline = (text) => `<script>${text.replaceAll("</script", "<\\/script")}</script>`;

  async function runPage(search) {
    const key = new URLSearchParams(search).get("run");
    const shell = new DOMParser().parseFromString(files["run.html"], "text/html").querySelector("script");
    const known = JSON.parse(shell.dataset.files);
    const file = Object.keys(known).find((name) => known[name].includes(key));
    if (!file) return files["models.html"];
    const packed = new Blob([bytes(files[file].match(/"([^"]*)"/)[1])]).stream();
    const text = await new Response(packed.pipeThrough(new DecompressionStream("gzip"))).text();
    const { names, sections } = JSON.parse(text);
    return sections.map((of) => of[names.indexOf(key)]).join("");
  }

  // Scripts and style of a page become part of it. Scripts that wait for the page stand at its end.
  function assembled(text, page) {
    const scripts = [];
    const head = text
      .replace(/<link rel="stylesheet" href="([^"]*)">/g, (_, path) => `<style>${files[resolved(path)]}</style>`)
      .replace(/<script src="([^"]*)" defer><\/script>/g, (_, path) => {
        scripts.push(inline(withPictures(files[resolved(path)])));
        return "";
      });
    const base = `<head><base href="https://report.invalid/${page}"><script>window.bundle = parent.bundle;</script>`;
    return withPictures(head).replace("<head>", () => base).replace("</body>", () => `${scripts.join("")}</body>`);
  }

  let shown = "";
  async function show() {
    const { page, search, hash } = current();
    const key = page === "run.html" ? page + search.replace(/.*[?&](run=[^&]*).*/, "$1") : page;
    if (key === shown) {
      frame.contentWindow.dispatchEvent(new PopStateEvent("popstate", { state: history.state }));
      frame.contentWindow.dispatchEvent(new HashChangeEvent("hashchange"));
      return;
    }
    shown = key;
    const text = page === "run.html" ? await runPage(search) : files[page] ?? files["index.html"];
    frame.srcdoc = assembled(text, page);
    frame.onload = () => {
      document.title = frame.contentDocument.title;
      frame.contentDocument.addEventListener("click", follow);
      if (hash) frame.contentDocument.getElementById(decodeURIComponent(hash.slice(1)))?.scrollIntoView();
      frame.contentWindow.focus();
    };
  }

  // Links to pages of the report change what stands behind the file's "#"; all others are the browser's.
  function follow(event) {
    const link = event.target.closest?.("a[href]");
    if (!link || event.defaultPrevented || link.hasAttribute("download")) return;
    const asked = link.getAttribute("href");
    if (asked.startsWith("#")) {
      event.preventDefault();
      location.hash = current().page + current().search + asked;
      frame.contentDocument.getElementById(decodeURIComponent(asked.slice(1)))?.scrollIntoView();
    } else if (link.host === "report.invalid") {
      event.preventDefault();
      location.hash = link.pathname.slice(1) + link.search + link.hash;
    }
  }

  window.bundle = {
    get search() { return current().search; },
    get hash() { return current().hash; },
    get state() { return history.state; },
    replace(search, hash) { history.replaceState(history.state, "", `#${current().page}${search}${hash}`); },
    push(state, search, hash) { history.pushState(state, "", `#${current().page}${search}${hash}`); },
    back() { history.back(); },
    script(file) {
      const script = frame.contentDocument.createElement("script");
      script.textContent = withPictures(files[file]);
      return script;
    },
  };
  addEventListener("hashchange", show);
  addEventListener("popstate", () => { if (current().page === shown) show(); });
  show();
})();
