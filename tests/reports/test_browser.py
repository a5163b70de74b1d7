"""The report in a real browser: no error, no sideways scrolling on a phone, sorting and filtering that work."""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine")

PHONE = 390
PAGES = (
    "index.html",
    "costs.html",
    "curves.html",
    "gallery.html",
    "runs/expansionnet_v2-s1-plain.html",
    "runs/aoanet-s1-plain.html",
)
# Opens each page in a frame as wide as a phone, looks at it, and leaves what it found as JSON in the body.
CHECK = """<!doctype html><body><script>
const found = {};
const open = (page) => new Promise((done) => {
  const frame = document.createElement("iframe");
  frame.style.cssText = "width: %(width)dpx; height: 800px; border: 0";
  frame.onload = () => done(frame.contentDocument);
  frame.src = page;
  document.body.append(frame);
});
const column = (table, n) => [...table.tBodies[0].rows].map((row) => row.cells[n].textContent);
(async () => {
  for (const page of %(pages)s) {
    const seen = await open(page);
    found[page] = {title: seen.title, width: seen.documentElement.scrollWidth};
    if (page === "index.html") {
      const table = seen.querySelector("table.sortable");
      const headings = [...table.tHead.rows[0].cells];
      const click = (n) => {
        headings[n].querySelector("button").click();
        return [headings[n].getAttribute("aria-sort"), column(table, n)];
      };
      found.sorting = {
        before: column(table, 1), size: click(8), again: click(8), meteor: click(6), name: click(0),
        sorted: headings.filter((heading) => heading.hasAttribute("aria-sort")).length,
        references: [...table.tBodies[2].rows].map((row) => row.cells[0].textContent.slice(0, 5)),
      };
    }
    if (page === "gallery.html") {
      const input = seen.querySelector("#filter");
      input.value = "GREEN cone";
      input.dispatchEvent(new Event("input"));
      found.filter = {
        shown: [...seen.querySelectorAll(".card")].filter((card) => !card.hidden).map((card) => card.id),
        output: seen.querySelector("output").textContent,
      };
    }
  }
  document.body.textContent = JSON.stringify(found);
  document.body.id = "done";
})();
</script></body>"""


@pytest.fixture(scope="module")
def seen(report: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], str]:
    """What the check page found, and what the browser logged."""
    folder = tmp_path_factory.mktemp("browser")
    shutil.copytree(report, folder / "report")
    check = folder / "report" / "check.html"
    check.write_text(CHECK % {"width": PHONE, "pages": json.dumps(PAGES)}, encoding="utf-8")
    command = [
        str(CHROMIUM), "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
        "--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage",
        "--allow-file-access-from-files", "--hide-scrollbars", "--enable-logging=stderr",
        f"--user-data-dir={folder / 'profile'}", "--virtual-time-budget=30000", "--dump-dom", check.as_uri(),
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    body = re.search(r'<body id="done">(.*)</body>', done.stdout, re.DOTALL)
    assert body, done.stdout[-2000:] + done.stderr[-2000:]
    return json.loads(html.unescape(body[1])), done.stderr


def test_the_console_stays_empty(seen: tuple[dict[str, Any], str]) -> None:
    assert [line for line in seen[1].splitlines() if "CONSOLE" in line] == []


def test_no_page_scrolls_sideways_on_a_phone(seen: tuple[dict[str, Any], str]) -> None:
    assert {page: seen[0][page]["width"] for page in PAGES} == dict.fromkeys(PAGES, PHONE)


def test_hostile_captions_did_nothing(seen: tuple[dict[str, Any], str]) -> None:
    assert seen[0]["gallery.html"]["title"] == "Gallery, scenes test · captionbench"


def test_headings_sort_and_say_so(seen: tuple[dict[str, Any], str]) -> None:
    sorting = seen[0]["sorting"]
    assert sorting["before"][0].startswith("104.9")
    assert sorting["size"] == ["ascending", ["830\u202fk", "1.02\u202fM", "1.61\u202fM", "2.30\u202fM"]]
    assert sorting["again"] == ["descending", sorting["size"][1][::-1]]
    assert sorting["meteor"][0] == "descending"
    assert sorting["meteor"][1][-1].startswith("—"), "what was not measured comes last"
    assert sorting["name"][0] == "ascending"
    assert [name[:5] for name in sorting["name"][1]] == ["blind", "expan", "show_", "trans"]
    assert sorting["sorted"] == 1
    assert sorted(sorting["references"]) == ["human", "retri"], "references never mix with ranked rows"


def test_the_filter_shows_what_matches(seen: tuple[dict[str, Any], str]) -> None:
    assert seen[0]["filter"] == {"shown": ["image-4"], "output": "1 of 6"}
