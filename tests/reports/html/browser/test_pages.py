"""The report in a real browser: keys, colours, widths and the rules of axe-core, without an error or a request."""

import re
from collections.abc import Callable
from importlib import resources
from pathlib import Path

import pytest
from playwright.sync_api import Locator, Page, expect

from reports.html.report import write_report
from reports.html.single_file import single_file
from results.records import CodeRecord, DatasetRecord, EpochRecord, ImageRecord, Outcome, Quantity, RunSpec, SplitResult
from results.store.store import Store

PHONE = 390
BACKGROUND = "getComputedStyle(document.body).backgroundColor"

Open = Callable[..., Page]
PAGES = (
    "index.html",
    "nocaps.html",
    "facts.html",
    "costs.html",
    "trade-offs.html",
    "curves.html",
    "gallery.html",
    "gallery-2.html",
    "gallery-attention.html",
    "models.html",
    "models/expansionnet_v2.html",
    "models/aoanet.html",
    "method.html",
    "run.html?run=expansionnet_v2-s1-plain",
    "run.html?run=aoanet-s1-plain",
)
"""One of each template, in each of its states."""
CHOSEN = "?models=blind,expansionnet_v2&metrics=all"
EVERY = "{resultTypes: ['violations'], preload: false}"
# What depends on colours and on the width; the other rules find on a phone in the dark what they find on a desktop.
LOOKS = """{resultTypes: ['violations'], preload: false,
  runOnly: ['color-contrast', 'link-in-text-block', 'target-size', 'scrollable-region-focusable']}"""
MODES = [
    pytest.param(1280, False, "", EVERY, id="desktop-light"),
    pytest.param(390, True, CHOSEN, LOOKS, id="phone-dark"),
    pytest.param(1280, True, CHOSEN, EVERY, id="desktop-dark", marks=pytest.mark.campaign),
    pytest.param(390, False, "", EVERY, id="phone-light", marks=pytest.mark.campaign),
    pytest.param(390, True, CHOSEN, EVERY, id="phone-dark-every-rule", marks=pytest.mark.campaign),
]


def visit(page: Page, report: Path, name: str, query: str = "") -> None:
    """Open a page of the report, that of a run too, which a script puts together."""
    file, _, run = name.partition("?")
    asked = "&".join(filter(None, (run, query.removeprefix("?"))))
    page.goto((report / file).as_uri() + (f"?{asked}" if asked else ""))
    page.locator("nav[aria-label=Report]").wait_for()
    page.wait_for_load_state()


def heading(page: Page, name: str) -> Locator:
    """The main leaderboard's heading of this name."""
    return page.locator("#group-1-table thead th").filter(has_text=re.compile(f"^{name}$"))


def column(page: Page, name: str) -> list[str]:
    """What the ranked rows of the main leaderboard say under a heading."""
    place = heading(page, name).evaluate("(th) => th.cellIndex")
    return page.locator("#group-1-table").evaluate(
        "(table, place) => [...table.tBodies[0].rows].map((row) => row.cells[place].textContent)", place
    )


@pytest.mark.parametrize(("width", "dark", "query", "options"), MODES)
def test_axe_finds_nothing(open_page: Open, report: Path, width: int, dark: bool, query: str, options: str) -> None:
    pytest.importorskip(
        "axe_playwright_python", reason="axe-playwright-python, which brings axe-core, is not installed"
    )
    axe = resources.files("axe_playwright_python").joinpath("axe.min.js").read_text(encoding="utf-8")
    page = open_page(report / PAGES[0], query, width=width, dark=dark)
    found = {}
    for name in PAGES:
        visit(page, report, name, query)
        page.evaluate(axe)
        found[name] = page.evaluate(
            f"""axe.run({options}).then(({{violations}}) => violations.map((each) =>
              `${{each.id}}: ${{each.nodes[0].html.slice(0, 200)}} ${{each.nodes[0].failureSummary}}`))"""
        )
    assert found == {name: [] for name in PAGES}


def test_no_page_scrolls_sideways_on_a_phone_or_cuts_the_boxes_of_models(open_page: Open, report: Path) -> None:
    page = open_page(report / PAGES[0], width=PHONE)
    widths, cut = {}, {}
    for name in PAGES:
        visit(page, report, name)
        widths[name] = page.evaluate("[document.documentElement.scrollWidth, innerWidth]")
        begins = "(box) => box.getBoundingClientRect().x"
        cut[name] = page.locator("th > input.pick").evaluate_all(
            f"(all) => {{ const x = {begins}; return all.filter((box) => x(box) < x(box.parentElement)).length }}"
        )
    assert widths == {name: [PHONE, PHONE] for name in PAGES}
    assert cut == dict.fromkeys(PAGES, 0)


def test_a_condition_without_a_space_stays_on_a_phone(open_page: Open, report: Path) -> None:
    page = open_page(report / "index.html", width=PHONE)
    page.locator("#other-tables > summary").click()
    link = page.locator("#other-tables a").first
    link.evaluate("(link) => link.append('mobilenetv2_100_tf_in1k_fp16.pth#1ff019a1'.repeat(3))")
    assert link.evaluate("(link) => link.getBoundingClientRect().right") <= PHONE
    assert page.evaluate("document.documentElement.scrollWidth") == PHONE


def test_the_table_is_on_the_first_screen(open_page: Open, report: Path) -> None:
    page = open_page(report / "index.html")
    assert page.locator("#group-1-table tbody tr").first.bounding_box()["y"] < 300  # type: ignore[index]
    for name in report.glob("leaderboard-*.html"):
        page.goto(name.as_uri())
        assert page.locator("section.board tbody tr").first.bounding_box()["y"] < 300  # type: ignore[index]


def test_menus_lead_to_the_leaderboard_of_their_words_and_sort(open_page: Open, report: Path) -> None:
    page = open_page(report / "index.html")
    menu = page.locator("form.menus")
    menu.locator("[name=Data]").select_option("scenes, nocaps")
    expect(page.locator("h1")).to_have_text(re.compile("^scenes, nocaps"))
    menu.locator("[name='Other conditions']").select_option("beam: 1")
    expect(page.locator("h1")).to_have_text(re.compile("^scenes, nocaps"))
    expect(menu.locator("[name='Other conditions']")).to_have_value("beam: 1")
    menu.locator("[name=Data]").select_option("scenes, test")
    expect(page.locator("h1")).to_have_text(re.compile("^scenes, test"))
    expect(menu.locator("[name='Other conditions']")).to_have_value("beam: 1")
    page.go_back()
    expect(menu.locator("[name=Data]")).to_have_value("scenes, nocaps")
    page.goto((report / "index.html").as_uri())
    menu.locator("[name=metric]").select_option("ROUGE-L")
    expect(page.locator("#group-1-table [aria-sort=descending]")).to_have_text("ROUGE-L")


def test_a_leaderboard_is_printed_on_one_page(open_page: Open, tmp_path: Path) -> None:
    board = Path(__file__).parents[4] / "baselines" / "scenes.sqlite"
    with Store(board, read_only=True) as store:
        page = open_page(write_report(store, tmp_path / "report"))
    pages = re.findall(rb"/Type\s*/Page\b", page.pdf(prefer_css_page_size=True))
    assert len(pages) == 1, "24 models and three baselines"
    page.emulate_media(media="print")
    assert all(row.is_visible() for row in page.locator("#group-1-table tbody tr").all())
    expect(page.locator(".legend .key.top")).to_be_visible()


def test_a_note_that_is_pointed_at_unfolds(open_page: Open, report: Path) -> None:
    page = open_page(report / "index.html")
    note = page.locator("#group-1-notes li[id]").first
    expect(note).to_be_hidden()
    page.goto((report / "index.html").as_uri() + "#" + str(note.get_attribute("id")))
    expect(note).to_be_visible()


@pytest.mark.parametrize(
    ("width", "name", "said", "lines"), [(1280, "learning_rate." * 8, "0.002", 1), (PHONE, "commit", "bee8bad1" * 5, 2)]
)
def test_long_settings_neither_break_numbers_nor_overflow(
    open_page: Open, report: Path, width: int, name: str, said: str, lines: int
) -> None:
    page = open_page(report / "models" / "expansionnet_v2.html", width=width)
    found = page.locator(".facts div").first.evaluate(
        """(pair, [name, said]) => {
          const [setting, value] = pair.children;
          setting.textContent = name;
          value.textContent = said;
          const text = document.createRange();
          text.selectNodeContents(value);
          const right = (element) => element.getBoundingClientRect().right;
          return [text.getClientRects().length, right(text) <= right(pair) + 0.5];
        }""",
        [name, said],
    )
    assert found == [lines, True]


def test_printed_numbers_are_readable_on_a_phone(open_page: Open, report: Path) -> None:
    page = open_page(report / "models" / "expansionnet_v2.html", width=PHONE)
    numbers = page.locator(".printed td.number:not(.none)")
    assert numbers.count() > 0
    assert max(numbers.evaluate_all("(cells) => cells.map((cell) => cell.getBoundingClientRect().right)")) <= PHONE
    assert "CIDEr-D" in numbers.evaluate_all("(cells) => cells.map((cell) => cell.dataset.label)")
    expect(page.locator(".printed td.none").first).to_be_hidden()


def test_settings_are_folded_and_links_lead_out_without_a_referrer(open_page: Open, report: Path) -> None:
    page = open_page(report / "run.html", "?run=expansionnet_v2-s1-plain")
    folded = page.locator("details").filter(has=page.get_by_text("Environment", exact=True))
    expect(folded.locator("dl")).to_be_hidden()
    folded.locator("summary").press("Enter")
    expect(folded.locator("dl")).to_be_visible()
    leave = "(links) => links.filter(({rel, protocol}) => rel !== 'noreferrer' || !/^https?:$/.test(protocol)).length"
    page.goto((report / "models" / "expansionnet_v2.html").as_uri())
    assert page.locator("a.out").evaluate_all(leave) == 0


def test_the_page_is_dark_where_the_reader_wants_it(open_page: Open, report: Path) -> None:
    light, dark = (open_page(report / "index.html", dark=dark).evaluate(BACKGROUND) for dark in (False, True))
    brightness = [sum(map(int, colour.removeprefix("rgb(").rstrip(")").split(","))) for colour in (light, dark)]
    assert brightness[0] > 700
    assert brightness[1] < 100


@pytest.mark.parametrize("dark", [False, True])
def test_the_more_is_wrong_the_stronger_is_the_colour_in_both_schemes(
    open_page: Open, report: Path, dark: bool
) -> None:
    key = open_page(report / "facts.html", dark=dark).locator(".heat-key i")
    colours = key.evaluate_all(
        """(all) => all.map((each) => {
          const pen = document.createElement("canvas").getContext("2d");
          pen.fillStyle = getComputedStyle(each).backgroundColor;
          pen.fillRect(0, 0, 1, 1);
          return [...pen.getImageData(0, 0, 1, 1).data].slice(0, 3);
        })"""
    )
    redness = [red - blue for red, _, blue in colours]
    assert len(redness) == 11
    assert redness == sorted(redness)
    assert redness[-1] - redness[0] > 60


def test_places_are_of_the_metric_that_the_table_is_sorted_by(open_page: Open, report: Path) -> None:
    page = open_page(report / "index.html")
    assert [place[:14] for place in column(page, "Rank")] == ["1", "2", "—", "baseline"]
    heading(page, "ROUGE-L").get_by_role("button").click()
    expect(heading(page, "Rank, ROUGE-L").get_by_role("button")).to_be_visible()
    first = page.locator("#group-1-table td[data-places] span").first
    expect(first).to_have_attribute("title", "ROUGE-L: the best row")
    heading(page, "Parameters").get_by_role("button").click()
    expect(heading(page, "Rank, ROUGE-L")).to_be_visible()
    heading(page, "CIDEr-D").get_by_role("button").click()
    expect(heading(page, "Rank, CIDEr-D")).to_be_visible()


def test_headings_sort_by_mouse_and_by_key(open_page: Open, report: Path) -> None:
    page = open_page(report / "index.html")
    size = heading(page, "Parameters")
    best = page.locator("#group-1-table tbody td.leading").first
    expect(best).to_have_text(re.compile("^104.9"))
    size.get_by_role("button").click()
    smallest_first = ["830\u202fk", "1.02\u202fM", "1.61\u202fM", "2.30\u202fM"]
    assert column(page, "Parameters") == smallest_first
    expect(size).to_have_attribute("aria-sort", "ascending")
    size.get_by_role("button").press("Enter")
    assert column(page, "Parameters") == smallest_first[::-1]
    expect(size).to_have_attribute("aria-sort", "descending")
    expect(page.locator("#group-1-table [aria-sort]")).to_have_count(1)
    heading(page, "METEOR").get_by_role("button").click()
    assert column(page, "METEOR")[-1].startswith("—"), "not measured comes last"
    names = page.locator("#group-1-table .reference th").all_text_contents()
    assert sorted(name.strip()[:5] for name in names) == ["human", "retri"], "references never mix with ranked rows"


def test_rows_are_never_ordered_by_what_papers_print(open_page: Open, tmp_path: Path) -> None:
    with Store(tmp_path / "bench.sqlite") as store:
        store.record_dataset(DatasetRecord("coco", "f", str(tmp_path), {}, ()))
        store.plan([RunSpec("k", "updown", "model", 1, "controlled", "f", {}, {"data": "coco#f"})])
        store.finish("k", Outcome((SplitResult("test", {}, {"overall": {"CIDEr-D": Quantity(1.0)}}, {}),), {}, {}))
        page = open_page(write_report(store, tmp_path / "report"))
    expect(heading(page, "CIDEr-D").get_by_role("button")).to_have_count(1)
    expect(heading(page, "Published")).to_have_count(1)
    expect(heading(page, "Published").get_by_role("button")).to_have_count(0)


@pytest.mark.parametrize(
    ("name", "width"), [("trade-offs.html", 1280), ("trade-offs.html", PHONE), ("curves.html", 1280)]
)
def test_every_mark_says_its_numbers_by_key_by_pointer_and_by_click(
    open_page: Open, report: Path, name: str, width: int
) -> None:
    page = open_page(report / name, width=width)
    for plot in page.locator(".plot").all():
        tip = plot.locator(".tip")
        for mark in plot.locator(".mark").all():
            label = mark.get_attribute("aria-label")
            assert label
            expect(tip).to_be_hidden()
            mark.evaluate("(mark) => mark.focus({focusVisible: true})")
            expect(tip).to_have_text(label)
            mark.evaluate("(mark) => mark.blur()")
            expect(tip).to_be_hidden()
            spot = mark.locator("circle, .dot").last
            spot.hover(force=True)
            expect(tip).to_contain_text(label)
            assert tip.evaluate("(tip) => tip.getBoundingClientRect().right") <= width
            page.mouse.move(0, 0)
            expect(tip).to_be_hidden()
            spot.click(force=True)
            page.mouse.move(0, 0)
            expect(tip).to_contain_text(label)
            plot.locator("figcaption strong").click()
            page.mouse.move(0, 0)


def test_marks_that_cover_each_other_are_all_told(open_page: Open, report: Path) -> None:
    page = open_page(report / "trade-offs.html")
    plot = page.locator(".plot").first
    lower, upper = plot.locator(".mark").all()[:2]
    upper.locator("circle, .dot").evaluate(
        "(mark, shape) => mark.replaceWith(shape.cloneNode())", lower.locator("circle, .dot").element_handle()
    )
    upper.locator("circle, .dot").hover()
    labels = [mark.get_attribute("aria-label") for mark in (lower, upper)]
    assert sorted(plot.locator(".tip b").all_inner_texts()) == sorted(filter(None, labels))


def test_the_signature_can_be_copied(open_page: Open, report: Path) -> None:
    button = open_page(report / "method.html").get_by_role("button", name="Copy the signature").first
    button.click()
    expect(button).to_have_text(re.compile("^(Copied|Selected)$"))


HACK = "window.hacked=1;document.title='hacked'"
SCRIPT = f"</script><script>{HACK}</script>"
IMAGE = f'"\'><img src=x onerror="{HACK}">'
TEMPLATE = "{{7*7}}${7*7}<!--<script>"
MODELS = (SCRIPT, IMAGE, TEMPLATE, "__proto__")
DATA = f"scenes{SCRIPT}{IMAGE}"


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The report's folder, of models and a data set whose names are markup, scripts and templates."""
    folder = tmp_path_factory.mktemp("hostile")
    images = tuple(ImageRecord(n, f"{n}{IMAGE}.jpg", "test", (SCRIPT, "a cat"), IMAGE) for n in range(1, 5))
    with Store(folder / "bench.sqlite") as store:
        store.record_dataset(DatasetRecord(DATA, "d#1", str(folder), {"test": 4}, images, {IMAGE: SCRIPT}))
        for number, model in enumerate((*MODELS, "fails")):
            code = CodeRecord(SCRIPT, IMAGE, "1", {SCRIPT: IMAGE})
            config = {SCRIPT: IMAGE, "card": {"summary": SCRIPT, "paper": IMAGE, "url": f"javascript:{HACK}"}}
            store.plan([RunSpec(f"k{number}", model, "model", 1, SCRIPT, "d#1", config, {"data": IMAGE}, code=code)])
            if model == "fails":
                store.fail(f"k{number}", SCRIPT, IMAGE, SCRIPT)
                continue
            store.record_epoch(f"k{number}", EpochRecord(0, SCRIPT, IMAGE, 1, 1, 0.1, 1.0, 0.5, 1.0, 1.0))
            score = {"CIDEr-D": Quantity(0.5), IMAGE: Quantity(None, SCRIPT)}
            captions = dict.fromkeys(range(1, 5), f"{SCRIPT} {IMAGE} {number}")
            split = SplitResult(
                "test", captions, {"overall": score, IMAGE: score}, {"CIDEr-D": dict.fromkeys(captions, 0.5)}
            )
            store.finish(f"k{number}", Outcome((split,), {IMAGE: Quantity(1.0, unit=IMAGE)}, {IMAGE: SCRIPT}))
        return write_report(store, folder / "report").parent


def test_names_are_text_on_every_page(open_page: Callable[..., Page], hostile: Path) -> None:
    files = sorted(hostile.rglob("*.html"))
    assert len(files) >= 13
    page = open_page(files[0])
    for file in files:
        page.goto(file.as_uri())
        page.wait_for_load_state()
        assert page.evaluate("window.hacked ?? document.querySelectorAll('img[onerror]').length") == 0, file
        assert not page.title().startswith("hacked"), file
        assert "javascript:" not in page.eval_on_selector_all("a", "(all) => all.map((a) => a.protocol)"), file
    page.goto((hostile / "index.html").as_uri())
    shown = page.locator("tbody th").all_inner_texts()
    assert all(any(model in text for text in shown) for model in MODELS)
    for number in range(len(MODELS) + 1):
        visit(page, hostile, f"run.html?run=k{number}")
        expect(page.locator("h2").last).to_have_text("Conditions")
        assert page.evaluate("window.hacked ?? document.querySelectorAll('img[onerror]').length") == 0


def test_one_file_holds_every_page_and_picture(open_page: Open, report: Path, tmp_path: Path) -> None:
    file = tmp_path / "report.html"
    file.write_text(single_file(report), encoding="utf-8")
    page = open_page(file)
    frame = page.frame_locator("iframe")
    expect(frame.locator("#group-1-table tbody tr").first).to_be_visible()
    frame.locator("form.menus [name=Data]").select_option("scenes, nocaps")
    expect(frame.locator("h1")).to_have_text(re.compile("^scenes, nocaps"))
    assert page.url.endswith("#leaderboard-2.html")
    frame.get_by_role("link", name="Gallery").click()
    picture = frame.locator("#gallery .card img").first
    expect(picture).to_be_visible()
    assert picture.evaluate("(image) => image.decode().then(() => image.naturalWidth)") > 0
    frame.locator("#gallery-filter [name=order]").select_option("best")
    expect(frame.locator("#gallery .card")).to_have_count(12)
    assert page.url.endswith("#gallery.html?order=best")
    frame.get_by_role("link", name="Models").click()
    frame.locator("#models").get_by_role("link", name="expansionnet_v2").click()
    frame.locator("a[href*='run.html']").first.click()
    expect(frame.locator("h2").last).to_have_text("Conditions")
    page.go_back()
    expect(frame.locator("#results")).to_be_visible()
    expect(page).to_have_title("expansionnet_v2 · captionbench")


def test_one_file_of_hostile_names_obeys_none(open_page: Open, hostile: Path, tmp_path: Path) -> None:
    file = tmp_path / "report.html"
    file.write_text(single_file(hostile), encoding="utf-8")
    page = open_page(file)
    for address in ("index.html", "gallery.html", "run.html?run=k0", "method.html", "costs.html"):
        page.goto(f"{file.as_uri()}#{address}")
        shown = page.frame_locator("iframe")
        expect(shown.locator(f"nav [href='{address.replace('run.html?run=k0', 'models.html')}']")).to_be_visible()
        assert page.frames[1].evaluate("window.hacked ?? document.querySelectorAll('img[onerror]').length") == 0
    assert not page.title().startswith("hacked")


def test_names_are_text_in_what_scripts_draw(open_page: Callable[..., Page], hostile: Path) -> None:
    page = open_page(hostile / "gallery.html")
    page.locator("#gallery").evaluate("(list) => list.replaceChildren()")
    page.locator("#gallery-filter [name=order]").select_option("number")
    expect(page.locator("#gallery .card")).to_have_count(4)
    drawn = page.locator("#gallery").inner_text()
    assert all(model in drawn for model in MODELS)
    page.locator("#gallery .card .where a").first.click()
    expect(page.locator("#viewer .card")).to_have_count(1)
    assert page.evaluate("window.hacked ?? document.querySelectorAll('img[onerror]').length") == 0
    scripts = "".join(file.read_text() for file in (hostile / "gallery").glob("*.js"))
    assert "<" not in scripts, "nothing in the data can end a script"
    assert "\\u003c/script>" in scripts
