"""What the pages of trade-offs, domains, models, method and the leaderboard's groups say."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from reports.content.facts import NOT_STATED, objective
from reports.content.leaderboard_page import FEW_ROWS, boards, ranked_table
from reports.content.people import People, beside_people
from reports.content.printed import printed_table, published_cell
from reports.content.table_values import NOISY, Notes
from reports.content.tables import cost_tables, leaderboard
from reports.html.costs import cost_list, cost_sections
from reports.html.curves import curve_sections
from reports.html.domains import domain_sections
from reports.html.models import flat, model_pages
from reports.html.pages import model_page, run_page
from reports.html.plots import MAX_LABELS, Series, trade_off_plot
from reports.html.trade_offs import bounded_cost, trade_off_sections
from results.db.store import Store
from results.published.names import RECIPES
from results.queries import fetch
from results.queries.views import FloorTest, Group, Row, RunDetail, Spread, Standing
from results.records import EpochRecord, Quantity


def run(**config: object) -> RunDetail:
    """A run of which only the configuration counts."""
    return RunDetail(
        "k", "m2", "model", 1, "controlled", "d", "d#1", "finished", None, None, None, 1, "", None, None, None,
        dict(config), {"data": "coco#1", "beam": "5", "feat": "resnet"}, {}, {}, None, (), {}, {},
    )  # fmt: skip


def staged(*objectives: str) -> RunDetail:
    return run(preset={"schedule": {"stages": [{"objective": name} for name in objectives]}})


@pytest.mark.parametrize(
    ("detail", "said"),
    [
        (staged("cross_entropy"), "XE"),
        (staged("cross_entropy", "cross_entropy", "self_critical"), "XE + SCST"),
        (staged("cross_entropy", "reinforce"), "XE + REINFORCE"),
        (run(pretrained="somewhere"), "pretrained"),
        (run(stored={}), "stored"),
        (run(), NOT_STATED),
        (run(preset={"schedule": None}), NOT_STATED),
        (replace(run(), role="reference"), "untrained"),
    ],
)
def test_the_objective_is_told_from_the_stages(detail: RunDetail, said: str) -> None:
    assert objective(detail) == said


@pytest.mark.parametrize("name", ["../../up", "a/b/c", "A", "", "x" * 300, "con.txt", "show_tell/../up"])
def test_no_name_becomes_a_path(name: str) -> None:
    for page in (model_page(name), run_page(name)):
        assert page.count("/") == 1
        assert ".." not in page
        assert len(page) < 150


def test_names_of_the_zoo_stay_readable() -> None:
    assert model_page("show_tell/fc") == "models/show_tell.fc.html"
    assert model_page("show_tell.fc") != "models/show_tell.fc.html"


def test_settings_of_stages_are_numbered() -> None:
    assert flat({"stages": [{"lr": 1, "name": None}, {"lr": 2}], "betas": [0.9, 0.99]}) == [
        ("stages.1.lr", "1"),
        ("stages.1.name", "—"),
        ("stages.2.lr", "2"),
        ("betas", "[0.9, 0.99]"),
    ]


def row(model: str, *, cider: float = 1.0) -> Row:
    return Row(
        model, "model", (1,), ("k",), {"CIDEr-D": Spread(cider, None, 1, None, cider - 0.1, cider + 0.1)}, {}, {}
    )


def group(*rows: Row, beam: str = "5", separating: tuple[str, ...] = ()) -> Group:
    signature = {"data": "coco#1", "beam": beam}
    return Group("coco", "coco#1", "test", "controlled", signature, rows, (), separating)


def test_a_printed_number_stands_beside_with_its_conditions() -> None:
    notes = Notes()
    updown = replace(staged("self_critical"), model="updown")
    cell = published_cell(row("updown"), group(row("updown")), {"k": updown}, notes)
    assert cell.text == "120.1"
    [note] = notes.marks
    assert cell.mark == notes.marks[note]
    for words in ("objective: RL", "Cannot be compared: images, recipe.", "COCO Karpathy test", "not stated"):
        assert words in note


def test_a_changed_recipe_says_where_on_every_page() -> None:
    preset = {"name": "image-transformer-paper", "schedule": {"stages": [{"objective": "self_critical"}]}}
    changed = {"digest": RECIPES["image-transformer-paper"].digest, "deviations": ["size.d_model: 512 → 16"]}
    detail = replace(
        run(preset=preset, shipped_preset=changed),
        model="image_transformer/official-graph",
        dataset="coco",
        scores={"test": {}, "train": {}},
    )
    shown, notes = row(detail.model), Notes()
    assert published_cell(shown, group(shown), {"k": detail}, notes).text == "130.8"
    [page] = model_pages([detail])
    assert [note.partition(", ")[0] for note in page.beside] == ["coco test: CIDEr-D 130.8"]
    for note in (*notes.marks, *page.beside):
        assert "recipe (size.d_model: 512 → 16)" in note
        assert "graph of the released code" in note
    unchanged = replace(detail, config=detail.config | {"shipped_preset": changed | {"deviations": []}})
    published_cell(shown, group(shown), {"k": unchanged}, same := Notes())
    assert "recipe" not in next(iter(same.marks))


def test_only_tables_of_printed_splits_have_the_column() -> None:
    def headings(group: Group) -> list[str]:
        return [heading.name for heading in ranked_table(group, {"k": staged("self_critical")}).headings]

    coco = group(row("updown"))
    assert "Published" in headings(coco)
    for other in (replace(coco, dataset="scenes"), replace(coco, split="train"), replace(coco, rows=())):
        assert "Published" not in headings(other)
    assert "Published" in headings(replace(coco, split="nocaps"))


def test_printed_domains_name_the_images_that_they_are_of() -> None:
    domains = {name: {"CIDEr-D": Spread(1.0, None, 1)} for name in ("in-domain", "near-domain", "out-domain")}
    nocaps = replace(group(replace(row("expansionnet_v2"), domains=domains)), split="nocaps")
    local = dict(zip(domains, (417, 2670, 1413), strict=True))
    server = dict(zip(domains, (648, 2938, 914), strict=True))

    def shown(group: Group, images: dict[str, int]) -> tuple[list[str], str, list[str]]:
        place = (group.fingerprint, group.split)
        detail = replace(staged("self_critical"), model="expansionnet_v2")
        [section] = domain_sections([group], [], {"k": detail}, {place: images})
        table = section.tables["CIDEr-D"]
        return [each.name for each in table.headings], table.lines[0].cells[-1].text, list(table.notes.marks)

    headings, text, [note] = shown(nocaps, local)
    assert (headings[-1], text) == ("Published", "83.8 / 79.2 / 54.0 / 72.9")
    assert "417 in-domain, 2,670 near-domain, 1,413 out-domain" in note
    assert "648 in-domain" not in shown(nocaps, server)[2][0]
    assert shown(replace(nocaps, dataset="scenes"), local)[0][-1] == "overall, 4,500"


def test_a_model_that_no_paper_prints_says_so() -> None:
    notes = Notes()
    cell = published_cell(row("mine"), group(row("mine")), {"k": run()}, notes)
    assert (cell.text, cell.value) == ("—", None)
    assert list(notes.marks) == ["No printed score is recorded here."]


def test_printed_rows_name_papers_and_what_is_not_stated() -> None:
    metrics, papers = printed_table("expansionnet_v2")
    assert "CIDEr-D" in metrics
    rows = [each for rows in papers.values() for each in rows]
    assert any("not stated" in dict(each.conditions).values() for each in rows)
    assert any("140.4" in each.scores for each in rows)
    assert printed_table("mine") == ((), {})


def test_the_largest_group_is_first_and_small_ones_share() -> None:
    small = [group(row("a"), beam=str(beam), separating=("beam",)) for beam in (1, 2)]
    main = group(*(row(name) for name in ("a", "b", "c")), separating=("beam",))
    assert len(small[0].rows) <= FEW_ROWS < len(main.rows)
    first, together = boards([*small, main], [], {"k": run()})
    assert len(first.table.lines) == 3
    assert [(each.own, each.others) for each in first.separations] == [("5", ("1", "2"))]
    assert (first.apart, together.apart) == ("beam: 5", "")
    assert [body.title for body in together.table.apart] == ["beam: 1", "beam: 2"]
    assert together.groups == 2
    assert not together.signature


def test_groups_that_share_a_table_have_tiers_of_their_own() -> None:
    tiers = Standing(1, None, None), Standing(2, 0.01, 0.01)
    pair = [replace(row(name), standing=standing) for name, standing in zip("ab", tiers, strict=True)]
    alone = replace(row("a"), standing=tiers[0])
    small = [group(*pair, beam="1", separating=("beam",)), group(alone, beam="2", separating=("beam",))]
    _, together = boards([*small, group(*(row(name) for name in "abc"), separating=("beam",))], [], {"k": run()})
    tier = [heading.name for heading in together.table.headings].index("Tier")
    shown = [[line.cells[tier].text for line in body.lines] for body in together.table.apart]
    assert shown == [["1", "2"], [""]], "a row alone is told from none"


def test_a_row_alone_in_its_group_may_be_below_a_floor() -> None:
    tests = (
        FloorTest("majority", 0.1, 0.4, False),
        FloorTest("retrieval", -0.1, 0.0012, True),
        FloorTest("x", 1, 0, True),
    )
    [board] = boards([group(replace(row("a"), standing=Standing(None, floors=tests)))], [], {"k": run()})
    tier = [heading.name for heading in board.table.headings].index("Tier")
    cell = board.table.lines[0].cells[tier]
    assert (cell.text, cell.value) == ("not above the floor", None)
    assert cell.reason == (
        "not above the floor: not significantly better than majority (p = 0.4), "
        "significantly worse than retrieval (p = 0.0012)"
    )
    assert board.table.notes.marks[cell.reason] == cell.mark
    [board] = boards([group(replace(row("blind"), standing=Standing(None, is_floor=True)))], [], {"k": run()})
    assert "Tier" not in [heading.name for heading in board.table.headings], "a floor alone needs no column"


def test_people_are_compared_where_they_were_scored_alike() -> None:
    scored = replace(row("a"), held_out={"CIDEr-D": Spread(0.4, None, 1)})
    differs = {"nrefs": "test=4,nocaps=9", "heldout": "each", "beam": "none", "v": "0.4.0"}
    human = replace(row("human"), role="reference", held_out={"CIDEr-D": Spread(2.0, None, 1)}, differs=differs)

    def beside(human: Row, *rows: Row, split: str = "test") -> People | None:
        return beside_people(replace(group(*rows), split=split, references=(human,)))

    better = replace(scored, model="b", held_out={"CIDEr-D": Spread(0.5, None, 1)})
    found = beside(human, scored, better, row("without"))
    assert found is not None
    assert [(line.model, line.differs, line.cells[0].text) for line in found.table.lines] == [
        ("human", "", "200.0"), ("b", "", "50.0"), ("a", "", "40.0"),
    ]  # fmt: skip
    assert found.note.startswith("Against 4 references")
    nocaps = beside(human, scored, split="nocaps")
    assert nocaps is not None
    assert nocaps.note.startswith("Against 9 references")
    assert beside(human, row("without")) is None
    assert beside(replace(human, held_out={}), scored) is None
    for field in ("tok", "rev"):
        assert beside(replace(human, differs=differs | {field: "other"}), scored) is None


def test_splits_of_the_same_runs_share_their_costs() -> None:
    one, other = (
        replace(row(name), keys=(name,), costs={"parameters": Quantity(amount)})
        for name, amount in (("a", 1.0), ("b", 2.0))
    )
    runs = {"a": run(), "b": run()}
    test, nocaps = group(one, other), replace(group(other, one), split="nocaps")
    assert len(cost_sections([test, nocaps], runs)) == 1
    assert len(cost_sections([test, group(one)], runs)) == 2


def test_curves_of_other_conditions_never_share_a_plot() -> None:
    epoch = EpochRecord(0, "s", "xe", 1, 50, 3e-4, 0.5, 0.9, 10.4, 78.2)
    common = replace(run(), epochs=(epoch,), status="failed")
    runs = {
        key: replace(common, key=key, seed=seed, signature={"beam": "3", "schedule": schedule})
        for key, seed, schedule in (("a", 1, "xe#1"), ("b", 1, "scst#2"), ("c", 2, "xe#1"))
    }
    first, second = curve_sections([], runs, {"m2": 0})
    assert (first.apart, second.apart) == ("schedule: xe#1", "schedule: scst#2")
    assert [line.key for line in first.lines] == ["a", "c"]
    assert [line.key for line in second.lines] == ["b"]


def test_a_cost_is_bounded_by_its_margin_or_else_by_the_seeds() -> None:
    runs = {key: replace(run(), costs={"t": Quantity(value, unit="s")}) for key, value in (("a", 1.0), ("b", 3.0))}
    both = replace(row("m"), keys=("a", "b"), seeds=(1, 2), costs={"t": Quantity(2.0, unit="s")})
    assert bounded_cost(both, "t", runs) == Quantity(2.0, None, "s", 1.0, 3.0)
    quartiles = Quantity(2.0, None, "s", 1.9, 2.1)
    assert bounded_cost(replace(both, costs={"t": quartiles}), "t", runs) == quartiles
    timed = {"latency_median": quartiles, "latency_margin": Quantity(0.5, unit="s")}
    found = bounded_cost(replace(both, costs=timed), "latency_median", runs)
    assert (found.value, found.low, found.high) == (2.0, 1.5, 2.5), "quartiles are over images"
    assert bounded_cost(both, "other", runs).reason == "not measured for this run"


def test_bounds_are_drawn_and_stay_inside() -> None:
    points = [Series("a", 0, ((1.0, 50.0),), "", (0.5, 1.5), (45.0, 55.0)), Series("b", 1, ((30.0, 90.0),))]
    plot = trade_off_plot("t", "x", "y", points)
    assert plot is not None
    assert plot.drawn[0].uncertainty.count("M") == 2
    assert plot.drawn[1].uncertainty == ""
    assert float(plot.y_ticks[0].text) <= 45


def test_of_many_points_only_the_best_are_named() -> None:
    points = [Series(f"m{n}", n, ((float(n), 10.0 - (n > 0) * n / 2),)) for n in range(MAX_LABELS + 1)]
    plot = trade_off_plot("t", "x", "y", points)
    assert plot is not None
    assert plot.best == {0}
    assert [drawn.label is not None for drawn in plot.drawn] == [True] + [False] * MAX_LABELS


def test_a_noisy_latency_is_marked_instead_of_a_column() -> None:
    timed = {"latency_median": Quantity(0.25, unit="s"), "latency_noisy": Quantity(0.0)}
    steady, noisy = replace(row("m2"), costs=timed), replace(row("aoanet"), costs=timed | {NOISY: Quantity(0.5)})
    table = cost_tables(group(steady, noisy))["Latency"]
    assert [heading.name for heading in table.headings] == ["Latency"]
    assert [(line.cells[0].text, line.cells[0].mark) for line in table.lines] == [
        ("250\u202fms", ""),
        ("~250\u202fms", "a"),
    ]
    assert [cell.text for label, _, cell in cost_list(noisy.costs) if label == "Latency noisy"] == ["yes"]


ESTIMATE = "train_a100_hours_estimate"


def test_an_estimate_is_a_range_whose_assumption_is_a_note() -> None:
    hours = {ESTIMATE: Quantity(9.0, None, "h", 3.0, 9.0), "train_seconds": Quantity(60.0, unit="s")}
    old = {ESTIMATE: Quantity(4.0, None, "h"), "train_seconds": Quantity(60.0, unit="s")}
    table = cost_tables(group(replace(row("m2"), costs=hours), replace(row("aoanet"), costs=old)))["Time"]
    place = next(number for number, heading in enumerate(table.headings) if "A100" in heading.name)
    assert table.headings[place].name == "A100 hours, estimate"
    first, second = (line.cells[place] for line in table.lines)
    assert (first.text, first.value, first.interval) == ("3.00\u202fh–9.00\u202fh", 9.0, "")
    assert second.text == "4.00\u202fh", "a run that is older than the bounds"
    [note] = table.notes.marks
    assert note.startswith("an estimate, not a measurement")
    assert first.mark == second.mark == table.notes.marks[note]
    [(label, _, cell)] = [listed for listed in cost_list(hours) if "A100" in listed[0]]
    assert ("estimate" in label, cell.text, cell.mark) == (True, first.text, "")
    assert (cell.reason or "").startswith("an estimate")


def test_the_generated_length_counts_in_leaderboard_and_plots() -> None:
    full = {"gmac_beam": Quantity(0.08, unit="GMAC")}
    said = full | {"gmac_beam_mean_length": Quantity(0.05, unit="GMAC")}
    for costs, name, text in ((said, "Beam, mean length, GMAC", "0.0500"), (full, "Beam, full length, GMAC", "0.0800")):
        rows = [
            replace(row(model, cider=cider), keys=(model,), costs=costs) for model, cider in (("a", 1.0), ("b", 2.0))
        ]
        table = leaderboard(group(*rows))
        assert [heading.name for heading in table.headings] == ["CIDEr-D", name]
        assert [line.cells[1].text for line in table.lines] == [text] * 2
        runs = {model: replace(run(), costs=costs) for model in ("a", "b")}
        (section,) = trade_off_sections([group(*rows)], [], runs, {"a": 0, "b": 1})
        assert [plot.title for plot in section.plots] == ["Computation"]
        assert [line.cells[1].text for line in section.table.lines] == [text] * 2
        length = "mean" if costs is said else "full"
        assert f"GMAC per caption of {length} length" in section.plots[0].drawn[0].series.title


def test_trade_offs_name_units_and_mark_latencies_that_are_noise() -> None:
    timed = {"latency_median": Quantity(0.25, unit="s"), "gmac_beam": Quantity(0.05, unit="GMAC")}
    steady, noisy = (
        replace(row(name, cider=cider), keys=(name,), costs=timed | {NOISY: Quantity(value)})
        for name, cider, value in (("m2", 1.0, 0.0), ("aoanet", 0.9, 1.0))
    )
    runs = {"m2": replace(run(), costs=steady.costs), "aoanet": replace(run(), costs=noisy.costs)}
    (section,) = trade_off_sections([group(steady, noisy)], [], runs, {"m2": 0, "aoanet": 1})
    assert [heading.name for heading in section.table.headings][1:3] == ["Computation, GMAC", "Latency"]
    assert [line.cells[2].text for line in section.table.lines] == ["250\u202fms", "~250\u202fms"]
    latency = next(plot for plot in section.plots if plot.title == "Latency")
    assert [mark.series.title.endswith("(noisy)") for mark in latency.drawn] == [False, True]


def test_quartiles_of_latency_reach_the_leaderboard(tmp_path: Path) -> None:
    from results.records import DatasetRecord, Outcome, RunSpec, SplitResult

    with Store(tmp_path / "bench.sqlite") as store:
        store.record_dataset(DatasetRecord("d", "d#1", str(tmp_path), {}, ()))
        for seed, at in ((1, 0.2), (2, 0.4)):
            store.plan([RunSpec(f"k{seed}", "m", "model", seed, "controlled", "d#1", {}, {})])
            costs = {"latency_median": Quantity(at, None, "s", at - 0.1, at + 0.1)}
            result = SplitResult("test", {}, {"overall": {"CIDEr-D": Quantity(1.0)}}, {})
            store.finish(f"k{seed}", Outcome((result,), costs, {}))
        [found] = fetch.leaderboard(store)
    cost = found.rows[0].costs["latency_median"]
    assert (cost.value, cost.low, cost.high) == pytest.approx((0.3, 0.2, 0.4))
