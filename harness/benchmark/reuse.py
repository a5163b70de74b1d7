"""Re-use of finished runs: those of the same code, or of other code where that is accepted."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from harness.config.run import config_of
from harness.key import identity
from harness.utils.errors import BenchError
from harness.utils.hashing import canonical_json
from results.records import RunSpec
from results.runs.leaderboard import rows_of
from results.runs.reading import finished, one_run
from results.runs.spreads import versions
from results.store.store import Store

_FILES_NAMED = 3
_RUNS_NAMED = 4


def reuse_finished_runs(
    specs: Sequence[RunSpec], store: Store, *, accept: bool, rerun: bool
) -> tuple[list[RunSpec], list[str]]:
    """The runs to execute, and notes on finished runs that other code made, which are re-used if `accept`."""
    stored: dict[object, list[RunSpec]] = {}
    for finished_run in store.finished_specs():
        stored.setdefault(_what_is_run(finished_run), []).append(finished_run)
    planned: list[RunSpec] = []
    notes: dict[str, list[str]] = {}
    for spec in specs:
        candidates = [run for run in stored.get(_what_is_run(spec), ()) if run.config is not None]
        same_key = next((candidate for candidate in candidates if candidate.key == spec.key), None)
        twin = same_key
        if twin is None and candidates:
            spec_identity = _identity(spec)
            candidates = [candidate for candidate in candidates if _identity(candidate) == spec_identity]
            # The last run of the same sources of the model, or else the last.
            of_sources = [
                candidate
                for candidate in candidates
                if candidate.code and spec.code and candidate.code.model == spec.code.model
            ]
            twin = next(reversed(of_sources or candidates), None)
        reason = None if twin is None or rerun else _difference(twin, spec)
        if reason is None and twin is not None and same_key is None and not rerun:  # of another way to make keys
            reason = f"the finished run is of captionbench {twin.code_version}"
        if twin is not None and reason is not None:
            if same_key is not None:
                text = f"re-used although {reason}; --reuse none makes it anew"
            elif accept:
                text = f"re-used, made by other code: {reason}"
                record = spec.record if spec.kind == "captions" else twin.record
                spec = replace(spec, key=twin.key, record=record, signature=twin.signature)
                spec = replace(spec, code=twin.code, code_version=twin.code_version)
            else:
                text = f"new, because {reason}; the older run stays, --reuse any re-uses it"
            notes.setdefault(text, []).append(spec.model + (f" seed {spec.seed}" if spec.seed else ""))
        planned.append(spec)
    return planned, [f"{_listed(names, _RUNS_NAMED)}: {text}" for text, names in notes.items()]


def _what_is_run(spec: RunSpec) -> object:
    return spec.model, spec.role, spec.seed, spec.dataset


def _identity(spec: RunSpec) -> str | None:
    """All that a run's scores depend on but its code; None of a row whose configuration this release cannot read."""
    try:
        config = config_of(spec)
    except BenchError:
        return None
    return canonical_json(identity(config, spec.signature))


def check_versions(key: str, store: Store, environment: Mapping[str, Any]) -> None:
    """BenchError if a seed's row has finished seeds that other versions of packages made, which bits depend on."""
    run = one_run(store, key)
    current = versions(environment)
    rows = rows_of([run, *finished(store, run.fingerprint, model=run.model)])
    recorded = [versions(run_of_row.environment) for runs in rows if run in runs for run_of_row in runs]
    differing = dict.fromkeys(
        f"{name} {version}"
        for run_of_row in recorded
        for name, version in run_of_row.items()
        if current.get(name, version) != version
    )
    if differing:
        names = dict.fromkeys(package.partition(" ")[0] for package in differing)
        raise BenchError(
            f"other seeds of its row were made by {', '.join(differing)}; here is "
            + ", ".join(f"{name} {current[name]}" for name in names),
            "add --set accept_mixed=true, and the row is marked unless all are mixed alike; or add --reuse none",
        )


def _difference(run: RunSpec, spec: RunSpec) -> str | None:
    """In what the code of a finished run differs from that which would make it now; None if it does not."""
    assert spec.code is not None
    if run.code is None:
        return "the finished run did not record its code"
    if files := run.code.changed_files(spec.code):
        file_names = _listed(files, _FILES_NAMED)
        loaded_then_alone = spec.code.files.keys().isdisjoint(files)
        return f"the finished run also loaded {file_names}" if loaded_then_alone else f"{file_names} changed since"
    if run.code.revision != spec.code.revision:
        return f"the finished run is of results revision {run.code.revision}, not {spec.code.revision}"
    return None


def _listed(names: Sequence[str], most: int) -> str:
    """At most so many names, and how many more there are."""
    remaining = len(names) - most
    return ", ".join(names[:most]) + (f" and {remaining} more" if remaining > 0 else "")
