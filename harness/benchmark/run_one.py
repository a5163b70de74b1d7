"""`run_one` executes one run from its configuration, such as `bench db show` prints, perhaps on another machine."""

from dataclasses import replace
from pathlib import Path

from harness.benchmark.baselines import REFERENCE_ROWS
from harness.benchmark.execute import Ended, execute_run
from harness.benchmark.plan_runs import describe, describe_members, make_spec, record_of, record_of_members
from harness.benchmark.reuse import reuse_finished_runs
from harness.benchmark.scoring import add_facts
from harness.benchmark.services import Services
from harness.config.archive import RunArchive
from harness.config.run import EnsembleRun, RunConfig
from harness.utils.errors import BenchError
from harness.utils.progress import Reporter
from harness.utils.workspace import Workspace
from results.metrics import is_more
from results.records import RunSpec
from results.runs.reading import one_run
from results.runs.scores import OVERALL
from results.store.store import Store


def run_one(
    config: RunConfig,
    file: Path,
    workspace: Workspace,
    reporter: Reporter,
    *,
    accept: bool = False,
    rerun: bool = False,
) -> dict[str, Ended]:
    """Execute the run of a configuration; gives how it ended, by its key.

    Args:
        file: the file of the configuration, for messages.
        accept: re-use a finished run that other code made.
        rerun: train it again even if it is finished.

    Raises:
        BenchError: the data are not those that the configuration names, or members of an ensemble are missing.
    """
    if config.kind == "reference" and config.model not in REFERENCE_ROWS:
        raise BenchError(f"{file}: there is no reference row {config.model}", f"choose {', '.join(REFERENCE_ROWS)}")
    workspace.create()
    with Services(workspace, reporter, config.execution.plugins) as services:
        store = services.store
        context = services.context(config)
        name = context.data.fields.data
        if name != config.data.name:
            raise BenchError(
                f"{file}: the run needs the data {config.data.name}, but files.data is {name}",
                "give the same data: --set files.data=FOLDER --set files.images=FOLDER",
            )
        with reporter.step("Planning the run"):
            store.record_dataset(context.data.record(name))
            if isinstance(config, EnsembleRun):
                members = _members(config, services)
                spec = make_spec(config, *describe_members(members), record_of_members(config.model, members))
            else:
                signature, code = describe(config, context, workspace)
                spec = make_spec(config, signature, code, record_of(config, context, workspace))
            [spec], notes = reuse_finished_runs([spec], store, accept=accept, rerun=rerun)
            if store.status(spec.key) is not None:  # as it was planned, with the card of its captions
                spec = replace(spec, record=store.spec(spec.key).record)
            store.plan([spec])
        for note in notes:
            reporter.note(note)
        reporter.log(f"{spec.model} seed {spec.seed}: {spec.key}")
        ended = execute_run(spec.key, workspace, rerun)
        if ended in {"finished", "reused"}:
            with reporter.step("Checking the facts that captions state"):
                add_facts([spec], context.data, store, reporter)
        return {spec.key: ended}


def compare_with_archive(store: Store, key: str, archive: RunArchive, name: str) -> str:
    """One or two sentences that say whether a run's scores equal those of the archive that it was executed from."""
    scores = one_run(store, key).scores.rows
    values = {(score.split, score.domain, score.metric): quantity.value for score, quantity in scores.items()}
    differing = [score for score, value in archive.scores.items() if values.get(score) != value]
    other_key = "" if key == archive.key else f" The key in {name} is {archive.key}: code, data or settings differ."
    if not differing:
        return f"All {len(archive.scores)} scores are those of {name}.{other_key}"
    differences = [
        f"{metric} of {split} {_shown(metric, values.get((split, domain, metric)))} here, "
        f"{_shown(metric, archive.scores[split, domain, metric])} there"
        for split, domain, metric in differing
        if domain == OVERALL
    ]
    counts = f"{len(differing)} of {len(archive.scores)} scores"
    return f"{counts} are not those of {name}: {'; '.join(differences)}.{other_key}"


def _shown(metric: str, value: float | None) -> str:
    """A score times 100, as tables show it; one of a further metric as it is stored."""
    if value is None:
        return "not measured"
    return f"{value:.4g}" if is_more(metric) else f"{100 * value:.2f}"


def _members(config: EnsembleRun, services: Services) -> list[RunSpec]:
    unknown = [key for key in config.members if services.store.status(key) is None]
    if unknown:
        raise BenchError(
            f"{config.model}: {len(unknown)} of its members are not in this workspace: {', '.join(unknown[:4])}",
            "execute them first, or bring them in: bench db merge, and the folders of their runs",
        )
    return [services.store.spec(key) for key in config.members]
