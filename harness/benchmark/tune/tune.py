"""`bench tune`: the same trials for every model, shared by all processes that run the same command."""

from __future__ import annotations

from contextlib import ExitStack, closing
from dataclasses import dataclass, replace

import torch
import yaml

from harness.benchmark.engines import spread_over
from harness.benchmark.engines.estimate import BASE_BYTES
from harness.benchmark.engines.here import limit_threads
from harness.benchmark.identity.signature import tuned_field
from harness.benchmark.plan import Request, opening_of
from harness.benchmark.rows import RequestedModel, resolve_models
from harness.benchmark.run_config import RunConfig
from harness.benchmark.tune.chosen import TunedFile
from harness.benchmark.tune.study import TunedModel
from harness.benchmark.tune.trials import Search, do_trials
from harness.benchmark.work import Services
from harness.config.preset import Preset
from harness.config.tuning import Budget, SearchSpace, scaled, with_stages
from harness.utils.errors import BenchError
from harness.utils.files import shortened
from harness.utils.progress import Reporter


@dataclass(frozen=True, slots=True)
class Tuning:
    """How a tuning ended: by model, what its trials came to, and why it could not go on.

    `signature` is that of untuned runs under the same conditions; `done` are the models that have tuned values.
    """

    search: Search
    signature: dict[str, str]
    models: dict[str, TunedModel]
    done: list[str]
    errors: dict[str, str]


def tune(
    request: Request,
    reporter: Reporter,
    *,
    trials: int,
    finalists: int,
    seeds: int,
    space: SearchSpace,
) -> Tuning:
    """Do all trials of all models that are not done yet; one model's failure never stops the others.

    Args:
        trials: of each model; `space` is what they search. The best `finalists` of them are trained again, as the
            preset is, on so many further `seeds`.

    Raises:
        BenchError: nothing to tune, a preset that cannot be tuned, or what `open_context` refuses.
    """
    models, workspace = _trained(request, reporter), request.workspace
    _check(request.preset, space)
    if space.stage:
        stages = request.preset.schedule.stages
        last = [stage.name for stage in stages].index(space.stage)
        request = replace(request, preset=with_stages(request.preset, stages[: last + 1]))
    with ExitStack() as stack:
        engine = stack.enter_context(closing(request.engine))
        engine.check(workspace)
        workspace.create()
        services = stack.enter_context(Services(workspace, reporter, request.execution.plugins))
        opening = opening_of(request, models)
        device = torch.device(opening.device)
        context = services.context(RunConfig(opening=opening), spread_over(engine, device, BASE_BYTES))
        for warning in context.preset.schedule.idle_stages(*context.counts()):
            reporter.note(warning, style="yellow")
        # A third of the trials only explores, as does Optuna's own default of 10 in 30.
        startup = max(trials // 3, 2)
        updates = sum(context.updates()[-1 if space.stage else 0 :])
        seeds = seeds if finalists else 0
        budget = Budget(trials=trials, updates=updates, startup_trials=startup, finalists=finalists, seeds=seeds)
        label = tuned_field(space, budget, context.preset)
        jobs = engine.slots(len(models), device, 1, lambda: BASE_BYTES)
        config = RunConfig(opening=opening, execution=replace(request.execution, jobs=jobs))
        search = Search(workspace, config, space, budget, label)
        said = f"{trials} trials and at most {budget.further} on further seeds" if finalists else f"{trials} trials"
        reporter.note(f"tuning {len(models)} models, {said}, of {updates} updates each: {label}")
        with limit_threads(jobs):
            errors = do_trials(models, search, engine, services)
        studies = {model.name: search.read(search.file(model, context)) for model in models}
        found = {name: study.chosen() for name, study in studies.items()}
        done = [name for name, study in studies.items() if study.done and found[name].best is not None]
        return Tuning(search, context.signature, found, done, errors)


def _trained(request: Request, reporter: Reporter) -> list[RequestedModel]:
    """The models of a request that are trained; the reporter is told of the others."""
    requested = resolve_models(request.models, request.workspace)
    models = [model for model in requested if model.kind == "trained"]
    others = ", ".join(model.name for model in requested if model.kind != "trained")
    if not models:
        raise BenchError(f"--models names nothing that is trained: {others}", "see `bench models` for the names")
    if others:
        reporter.note(f"not trained, so not tuned: {others}")
    return models


def _check(preset: Preset, space: SearchSpace) -> None:
    if preset.recipe is not None:
        raise BenchError(
            f"the preset {preset.name!r} is a paper's recipe, which is trained as it was printed",
            "tune a preset of the controlled track, as --preset quick",
        )
    if space.width:
        scaled(preset, 1.0)
    if space.stage is None:
        return
    names = [stage.name for stage in preset.schedule.stages]
    if names.count(space.stage) != 1:
        raise BenchError(
            f"--stage {shortened(space.stage)!r} is no stage of the preset {preset.name!r}",
            f"choose one of: {', '.join(names)}",
        )
    if graphs := [stage.name for stage in preset.schedule.stages if not stage.gives_ciders]:
        raise BenchError(
            f"--stage {space.stage}: not every model trains {', '.join(graphs)} of the preset {preset.name!r}",
            f"keep others alone: --set 'stages=[{','.join(name for name in names if name not in graphs)}]'",
        )
    if space.width:
        raise BenchError("--stage and --tune-width contradict each other: a width is of all stages", "leave one out")


def exported(tuning: Tuning, command: str) -> str:
    """The YAML of the values of all finished models, which `command` found."""
    search = tuning.search
    content = TunedFile(
        command=command,
        preset=search.config.opening.preset.name,
        data=tuning.signature["data"],
        features=tuning.signature["feat"],
        tuned=search.label,
        budget=search.budget,
        space=search.space,
        models={name: tuning.models[name] for name in tuning.done},
    )
    # A trial is a line.
    dumped = content.model_dump(mode="json", exclude_none=True)
    return yaml.safe_dump(dumped, sort_keys=False, width=200, default_flow_style=None)
