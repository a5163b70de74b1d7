"""A run's key: a digest of its configuration, of what it reads, and of the code that makes it.

Digests of sources change with what these do, and not with a comment, a docstring or their layout.
"""

from __future__ import annotations

import ast
import hashlib
import importlib
import inspect
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

import harness
import zoo
from harness.config.run import RunConfig, TrainedRun
from harness.utils.errors import BenchError
from harness.utils.hashing import digest
from harness.utils.plugins import Plugin, loaded_plugins
from results.records import CodeRecord, without_code, without_names
from zoo import ModelCard, list_models, model_card

RESULTS_REVISION: Final = 7
"""Raised by hand with every change of the harness after which the same settings may give other captions or scores.

Finished runs of the same revision are re-used. `bench regress` shows most changes that raise it.
"""

LIMIT_MARK: Final = ",limit:"
"""Begins what a signature's data say, at their end, of a limit of the images that are scored."""

_ROOT = Path(harness.__file__).resolve().parent.parent
_HARNESS = Path(harness.__file__).resolve().parent
_ZOO = Path(zoo.__file__).resolve().parent
_NOT_MODELS = {"zoo", "zoo.registry", "zoo.card", "zoo.kinds", "zoo.errors", "zoo.converter"}
"""Describe models and report faults: they belong to the harness's sources, not to each model's."""
_LENGTH = 8

Files = dict[str, str]


def run_key(config: RunConfig, signature: Mapping[str, str], code: CodeRecord) -> str:
    """The key of a run, which is a folder's name too."""
    # A file's number is its place in the command: the same file is the same run.
    seed = 0 if config.kind == "captions" else config.seed
    content = {**identity(config, signature), "code": {"model": code.model, "revision": code.revision}}
    return f"{key_name(config.model)}-s{seed}-{digest(content, 10)}"


def identity(config: RunConfig, signature: Mapping[str, str]) -> dict[str, Any]:
    """All that a run's scores depend on but its code, and all that separates tables.

    They are its settings, and the digests of the signature: of data, features, vocabulary, graphs, published weights.
    """
    settings = config.in_key()
    if config.kind == "trained" and config.weights is None:
        settings["arguments"] = built_with(config.model, config.arguments)
    conditions = without_names(without_code(signature))
    seed = 0 if config.kind == "captions" else config.seed
    return {"kind": config.kind, "model": config.model, "seed": seed, "settings": settings, "conditions": conditions}


_NOT_OF_A_STAGE: Final = frozenset(
    {"schedule", "reward", "tuned", "size", "beam", "lenpen", "nrefs", "tok", "df", "meteor", "v", "rev"}
)
"""Fields of the signature that say nothing of a single stage, or that its settings and its code say."""


def training_reads(
    config: TrainedRun, signature: Mapping[str, str], code: CodeRecord, trained_as: Mapping[str, Any]
) -> dict[str, Any]:
    """All that training reads besides the stages of its schedule; `trained_as` says on how many devices, and how."""
    arguments = config.arguments if config.weights else built_with(config.model, config.arguments)
    preset = config.preset
    conditions = {name: value for name, value in signature.items() if name not in _NOT_OF_A_STAGE}
    conditions["data"] = conditions["data"].partition(LIMIT_MARK)[0]  # of images that are scored, and not trained on
    return {
        "model": config.model,
        "seed": config.seed,
        "arguments": arguments,
        "weights": config.weights,
        "max_len": preset.size.get("max_len"),
        "features": config.features.in_key(),
        "vocabulary": preset.vocabulary.model_dump(mode="json"),
        "recipe": preset.in_key().get("recipe"),
        "conditions": conditions,
        "trained_as": {**trained_as, "torch": version("torch")},
        "code": {"model": code.model, "revision": code.revision},
    }


def built_with(model: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """All arguments that a model is built with; for a model that is a part of it, those of its card too."""
    complete = {**model_card(model).arguments, **arguments}
    return {**complete, **{f"{name} built with": dict(card.arguments) for name, card in _parts(complete).items()}}


def key_name(model: str) -> str:
    """How the keys of a model's runs begin; the name of a folder."""
    return re.sub(r"[^\w.@+-]", ".", model)


def code_of(model: Files) -> CodeRecord:
    """The code of a model's files, of every loaded plug-in, which may change any score, and of the harness."""
    sources = dict(model)
    shared = _harness()
    for plugin, files in plugin_files().items():
        # A plug-in's file may have the name of another file.
        sources |= {
            name if sources.get(name, file_digest) == file_digest else f"{plugin}: {name}": file_digest
            for name, file_digest in files.items()
        }
    model_digest = files_digest(sources) if sources else None
    return CodeRecord(model_digest, shared.harness, shared.revision, shared.files | sources)


@cache
def _harness() -> CodeRecord:
    files = harness_files()
    return CodeRecord(None, files_digest(files), str(RESULTS_REVISION), files)


def code_of_hub() -> CodeRecord:
    """The code of a checkpoint of transformers' own interface: the release of that library, and the harness."""
    return code_of({"transformers": version("transformers")})


def code_of_model(model: str, arguments: Mapping[str, Any]) -> CodeRecord:
    """The code of a model built with these arguments, and of the harness."""
    return code_of(_files(model, arguments))


def model_sources(model: str, arguments: Mapping[str, Any]) -> str:
    """A digest of the same sources as they are, refactored or not: for what need not outlive an edit."""
    return files_digest(code_of(_files(model, arguments)).files)


def _files(model: str, arguments: Mapping[str, Any]) -> Files:
    card = model_card(model)
    return model_files([card, *_parts({**card.arguments, **arguments}).values()])


def _parts(arguments: Mapping[str, Any]) -> dict[str, ModelCard]:
    """Registered models that arguments name, by the argument: parts that a model creates."""
    models = set(list_models())
    return {name: model_card(value) for name, value in arguments.items() if isinstance(value, str) and value in models}


def model_files(cards: Iterable[ModelCard]) -> Files:
    """The sources that a model is made of: its module and all that this imports of `zoo` or of its own plug-in.

    `cards` are the model's, and those of models that are a part of it; BenchError where a class is in no file.
    """
    modules = {path for card in cards for path in _closure(*_module_of(card))}
    of_plugins = {path: file for plugin in loaded_plugins() for path, file in _digest_plugin(plugin).items()}
    shared = {_shown(path): _digest_file(path) for path in sorted(modules - of_plugins.keys())}
    return shared | dict(of_plugins[path] for path in sorted(modules & of_plugins.keys()))


def plugin_files() -> dict[str, Files]:
    """Each plug-in's own modules, and the files that it named to `register_model`, as they were when it was loaded."""
    return {plugin.name: dict(_digest_plugin(plugin).values()) for plugin in loaded_plugins()}


@cache
def _digest_plugin(plugin: Plugin) -> dict[Path, tuple[str, str]]:
    """Name and digest of each file of a plug-in.

    They are read once a process: an edit after that is not in the code that runs.
    """
    source = getattr(sys.modules[plugin.module], "__file__", None)
    if source is None:  # a folder without a module registers nothing
        return {}
    file = Path(source).resolve()
    folder = _import_folder(plugin.module, file)
    modules = {path for path in _closure(plugin.module, file) if not path.is_relative_to(_ZOO)}
    digests = {}
    for path in sorted({*modules, *plugin.files}):
        name = path.relative_to(folder).as_posix() if path.is_relative_to(folder) else path.name
        digests[path] = name, _digest_file(path)
    return digests


def files_of_plugin(plugin: Path, code: CodeRecord | None) -> tuple[dict[str, Path], list[str]]:
    """The files of a plug-in that a run was made with, by name, and those that are gone or others now.

    Its code is not run: the names and digests are the record's. Files that lay elsewhere are gone.
    """
    recorded = {} if code is None else code.files
    files = {plugin.name: plugin}
    changed = []
    for recorded_name, recorded_digest in recorded.items():
        before, _, name = recorded_name.rpartition(": ")
        path = plugin.parent / name
        if before not in {"", plugin.name} or name.partition("/")[0] in {"harness", "zoo"} or not path.is_file():
            continue
        files[name] = path
        if _digest_file(path) != recorded_digest:
            changed.append(name)
    return files, changed


def plugin_digests() -> dict[str, str]:
    """One digest over the files of each loaded plug-in, by its name."""
    return {name: files_digest(files) for name, files in plugin_files().items()}


def check_plugins(planned: Mapping[str, str]) -> None:
    """BenchError where a run was planned with other plug-ins than this process has loaded."""
    loaded = plugin_digests()
    if differing := sorted(name for name in {**loaded, **planned} if loaded.get(name) != planned.get(name)):
        raise BenchError(
            f"--plugin {', '.join(differing)}: this process has not loaded what the run was planned with",
            "type the `bench run` again; `bench work KEY` executes one run in a process of its own",
        )


def harness_files() -> Files:
    """The sources that train, decode and score: `harness` less its command line, and the top level of `zoo`."""
    modules = (path for path in _HARNESS.rglob("*.py") if _HARNESS / "cli" not in path.parents)
    paths = (*modules, *_HARNESS.rglob("*.txt"), *_ZOO.glob("*.py"))
    return {_shown(path): _digest_file(path) for path in sorted(paths)}


def files_digest(files: Files) -> str:
    """One digest over several files."""
    return digest(files, _LENGTH)


def tree_digest(source: str) -> str:
    """A digest of the syntax tree, without positions, comments, docstrings and other strings that stand alone.

    Fields that are empty are left out, so that Python versions which add a field to their grammar agree.
    """
    parts: list[str] = []
    _collect(_parsed(source), parts)
    return hashlib.sha256("\0".join((*parts, "")).encode("utf-8", "surrogatepass")).hexdigest()[:_LENGTH]


def _parsed(source: str | bytes) -> ast.Module:
    try:
        return ast.parse(source)
    except SystemError:  # CPython 3.11's threads share one count of the tree's depth, and rarely disturb each other
        return ast.parse(source)


def _collect(node: Any, parts: list[str]) -> None:
    """Append the parts of a node in their order; every process digests some 300 files, so this is no generator."""
    if isinstance(node, ast.AST):
        parts.append(type(node).__name__)
        for name in node._fields:
            value = getattr(node, name, None)
            if name in {"type_comment", "kind"} or (value in (None, []) and not isinstance(node, ast.Constant)):
                continue
            parts.append(f".{name}")
            _collect(value, parts)
        parts.append(")")
    elif isinstance(node, list):
        parts.append("[")
        for child in node:
            value = child.value if isinstance(child, ast.Expr) else None
            if not (isinstance(value, ast.Constant) and isinstance(value.value, str)):  # it stands alone
                _collect(child, parts)
        parts.append("]")
    else:
        parts.append(repr(node))


def _digest_file(path: Path) -> str:
    state = path.stat()
    return _digest_version(path, state.st_mtime_ns, state.st_size)


@cache
def _digest_version(path: Path, _modified: int, _size: int) -> str:
    if path.suffix == ".py":
        return tree_digest(path.read_bytes().decode())
    with path.open("rb") as file:  # a plug-in's weights, perhaps
        return hashlib.file_digest(file, "sha256").hexdigest()[:_LENGTH]


def _shown(path: Path) -> str:
    """Relative to the packages' folder; a plug-in's file by its name alone, wherever it lies."""
    return path.relative_to(_ROOT).as_posix() if path.is_relative_to(_ROOT) else path.name


def _module_of(card: ModelCard) -> tuple[str, Path]:
    if isinstance(card.entry, str):
        name = card.entry.partition(":")[0]
        file = _under(_ROOT, name) if name.partition(".")[0] == "zoo" else None
        if file is None:
            importlib.import_module(name)
    else:
        name = card.entry.__module__
        file = None
    if file is None:
        try:
            file = Path(inspect.getfile(sys.modules[name])).resolve()
        except (KeyError, TypeError) as error:
            raise BenchError(
                f"the source of the model {card.name!r} cannot be found: its class is defined in no file",
                "put it into a .py file and name that: --plugin FILE",
            ) from error
    return name, file


_Import = tuple[str, str | None]


def _import_folder(module: str, file: Path) -> Path:
    """The folder that a module's name counts from."""
    return file.parents[module.count(".") + (file.name == "__init__.py")]


def _closure(module: str, file: Path) -> set[Path]:
    """Files reachable by imports within `zoo`, and within the package or folder of a plug-in."""
    find = _finder(module, file)
    files: set[Path] = set()
    waiting = [(module, file)]
    while waiting:
        name, path = waiting.pop()
        if path in files:
            continue
        files.add(path)
        package = name.rpartition(".")[0]
        initial = find(package) if package not in {"", "zoo"} else None
        if initial is not None:  # importing a submodule runs its package too
            waiting.append((package, initial))
        for imported in _imports(name, path):
            for target in _resolve(imported, find):
                source = find(target)
                if source is not None and target not in _NOT_MODELS:
                    waiting.append((target, source))
    return files


def _finder(module: str, file: Path) -> Callable[[str], Path | None]:
    """Where a module lies; None for one that belongs neither to `zoo` nor to the plug-in."""
    package = module.partition(".")[0]
    folder = _import_folder(module, file)
    is_single_file = "." not in module and file.name != "__init__.py"
    installed = folder.name in {"site-packages", "dist-packages"}

    def find(name: str) -> Path | None:
        top = name.partition(".")[0]
        if top == "zoo":
            return _under(_ROOT, name)
        if top in {"captionbench", "harness", "results", "reports"}:
            return None
        if top == package or (is_single_file and not installed):
            return _under(folder, name)
        return None

    return find


def _under(folder: Path, name: str) -> Path | None:
    path = folder.joinpath(*name.split("."))
    for candidate in (path.with_name(path.name + ".py"), path / "__init__.py"):
        if candidate.is_file():
            return candidate.resolve()
    return None


def _resolve(imported: _Import, find: Callable[[str], Path | None]) -> list[str]:
    """The modules that an import runs code of: the submodule, or where a package's name comes from."""
    module, name = imported
    if name is None:
        return [module]
    if find(f"{module}.{name}") is not None:
        return [f"{module}.{name}"]
    path = find(module)
    if path is not None and path.name == "__init__.py":
        for inner in _imports(module, path, typing_too=True):
            if inner[1] == name and inner[0] != module:
                return _resolve(inner, find)
    return [module]


def _imports(module: str, path: Path, *, typing_too: bool = False) -> tuple[_Import, ...]:
    """What a file imports anywhere, less what only type checkers see."""
    package = module if path.name == "__init__.py" else module.rpartition(".")[0]
    return _imports_in(path.read_bytes(), package, typing_too)


@cache
def _imports_in(source: bytes, package: str, typing_too: bool) -> tuple[_Import, ...]:
    """The same of a source; models share most of theirs, and every run asks for them."""
    tree = _parsed(source)
    unseen: set[ast.AST] = set()
    if not typing_too:
        guards = (
            node for node in ast.walk(tree) if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)
        )
        unseen = {inner for guard in guards for statement in guard.body for inner in ast.walk(statement)}
    imports: list[_Import] = []
    for node in ast.walk(tree):
        if node in unseen:
            continue
        if isinstance(node, ast.Import):
            imports += [(alias.name, None) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            parents = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            within = [*parents, *([node.module] if node.module else [])]
            imports += [(".".join(within), alias.name) for alias in node.names]
    return tuple(imports)
