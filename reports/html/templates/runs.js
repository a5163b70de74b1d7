"use strict";

// The pages of runs are in a script for each model, compressed: those of hundreds of runs would fill tens of megabytes.
(() => {
  const key = new URLSearchParams(location.search).get("run");
  const files = JSON.parse(document.currentScript.dataset.files);
  const file = Object.keys(files).find((name) => files[name].includes(key));
  if (!file) {
    document.getElementById("loading").textContent = "This report has no such run.";
    return;
  }
  window.captionbench = {
    async runs(packed) {
      const bytes = Uint8Array.from(atob(packed), (letter) => letter.charCodeAt(0));
      const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
      const { names, sections } = JSON.parse(await new Response(stream).text());
      const index = names.indexOf(key);
      document.open();
      document.write(sections.map((of) => of[index]).join(""));
      document.close();
    },
  };
  const script = document.createElement("script");
  script.src = file;
  document.head.append(script);
})();
