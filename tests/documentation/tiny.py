"""How commands of the documentation become tiny, and which are only parsed, with the reason."""

import re
from collections.abc import Sequence

from tests.documentation.pages import PAGES, SHELL, Block, blocks_of, commands_of, lines_of
from tests.harness.conftest import TINY, set_options

ONLY_PARSED = {
    r"^echo |^cat |--references references\.json": "files of an example that test_first_examples.py runs",
    r"transfomer_base": "an error on purpose, which test_first_examples.py runs",
    r"^pip install|^uv sync": "installs from the network",
    r"\bpytest( |$)(?!test_mine)": "the suite itself, or minutes of benchmarks",
    r"\bray |--executor (ray|slurm)|sbatch|srun|torchrun|^export MASTER": "a cluster",
    r"postgresql://": "a database server",
    r"git/pretrained|\bhf:": "weights from the network",
    r"--clip |--instances ": "weights and data from the network",
    r"import-weights|\bKEY\b": "authors' checkpoints, which the repository does not hold",
    r"bench judgements|polos": "people's judgements and metrics from the network",
    r"bench db show|\brun\.yaml|-0123456789": "the key of a run of the reader's own, which tests/harness/cli executes",
    r"export submission": "the servers' own lists of their images",
    r"bench db upgrade": "a workspace of 1.0, which test_first_examples.py gives it",
    r"bench tune|--tuned workspace$": "a search of minutes",
    r"--preset matched-parameters": "models of 40 million parameters, hours of a GPU",
    r"--preset cgru-paper": "a paper's schedule, hours of a GPU",
    r"--preset updown-paper": "the words of Karpathy's file, which scenes do not have",
    r"--preset sgae-paper": "a paper's schedule, hours of a GPU",
    r"--preset quick-sentences": "three stages, minutes",
    r" coco/dataset_coco": "public data from the network",
    r"flickr8k_run|flickr8k.yaml": "Flickr8k, minutes of a GPU",
    r"baselines/": "a database of the repository, which other tests read",
    r"scenes_run|scenes_report": "all models under four budgets, hours of two cores",
    r"coco_released|coco_run": "captions and references from the network",
    r"bench data download": "public data from the network",
    r"gcn_lstm/(no-graph|semantic)": "trainings of half an hour",
    r"bench regress": "minutes; tests/harness/benchmark/test_gate.py does it at a tiny size",
}
"""Reason by a pattern of the command's line."""

EDITS = (
    (r"--models all\b", "--models updown,human"),
    (r"my_model\b", "updown"),  # of the reader's own
    (r"--backbone resnet50", "--backbone filterbank"),  # published weights are on the network
    (r"--image-size 224", "--image-size 64"),
    (r"--seeds \d+", "--seeds 1"),
    (r"--models \w+,ensemble:\S+", "--models updown,m2,ensemble:updown+m2"),
    (r"--models (\w+)(?:,\w+)+,(\w+)\b(?!:)", r"--models \1,\2"),
    (r",(image_transformer|expansionnet_v2) ", ",transformer_base "),  # of each other model costs are counted
    (r"(bench flops .*)$", r"\1 --caption-length 2"),
    (r"--budgets 1,2,4", "--budgets 1,2"),
    (r" --open", ""),  # a browser
    (r"caption-data scenes ", "caption-data scenes_tiny "),
    (r"workspace/cache/scenes-[^/]+/", "scenes_tiny/"),
    (r"^(bench evaluate (?!.*--report).*)$", r"\1 --no-meteor"),  # Java's start
)
"""Pattern and what it becomes, one after another."""

ONCE = "pytest"
"""A program that leaves nothing behind, on files that other pages make the same way: run where a page first has it."""

_SMALLEST = TINY | {"decoding.max_len": 4}
DEFAULTS = {
    "bench run": [
        *("--models", "updown,human", "--data", "scenes_tiny", "--seeds", "1"),
        *("--backbone", "filterbank", "--backbone-option", "grid=2"),
        *set_options(_SMALLEST),
    ]
}
"""Options that a command is given where it names none of its own."""


def reason_of(line: str) -> str | None:
    """Why a line is only parsed; None where it is run."""
    return next((reason for pattern, reason in ONLY_PARSED.items() if re.search(pattern, line)), None)


def tiny_words(words: Sequence[str]) -> list[str]:
    """The words of a command, with what makes it one of seconds."""
    text = " ".join(words)
    for pattern, becomes in EDITS:
        text = re.sub(pattern, becomes, text)
    made = text.split()
    given = DEFAULTS.get(" ".join(made[:2]), [])
    for option, value in zip(given[::2], given[1::2], strict=True):
        named = (
            option in made if option != "--set" else any(word.startswith(f"{value.split('=')[0]}=") for word in made)
        )
        made += [] if named else [option, value]
    return made


def run_commands() -> dict[str, list[tuple[Block, list[str]]]]:
    """By page, the commands to run, each with its block.

    Blocks of pages of docs are run whole, since one needs what another made; of the others, what no page of docs runs.
    """
    seen: set[str] = set()
    found: dict[str, list[tuple[Block, list[str]]]] = {}
    for page in PAGES:
        for block in blocks_of(page, SHELL):
            commands = tiny_commands(block)
            made = {" ".join(words) for words in commands}
            if made - seen or (made and page.startswith("docs/")):
                here = (words for words in commands if words[0] != ONCE or " ".join(words) not in seen)
                found.setdefault(page, []).extend((block, words) for words in here)
            seen |= made
    return found


def tiny_commands(block: Block) -> list[list[str]]:
    """The commands of a block that are run, as they are run."""
    lines = (line for line in lines_of(block.code) if reason_of(line) is None)
    return [tiny_words(words) for line in lines for words in commands_of(line)]
