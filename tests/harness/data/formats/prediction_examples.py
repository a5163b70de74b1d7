"""One file in each form of predictions: a caption of each of three images, named by what a caller gives."""

import json
from collections.abc import Callable, Mapping

CAPTIONS = {391: "a dog runs", 77: "two girls fly a kite", 5012: "a red bus"}
Names = Mapping[int, object]


def results(names: Names) -> str:
    return json.dumps([{"image_id": names[image], "caption": text} for image, text in CAPTIONS.items()])


def by_image(names: Names) -> str:
    return json.dumps({str(names[image]): [text] for image, text in CAPTIONS.items()})


def table(names: Names) -> str:
    return "\n".join(["image_id,caption", *(f'"{names[image]}","{text}"' for image, text in CAPTIONS.items())])


def pipeline(names: Names) -> str:
    return json.dumps([[{"image": names[image], "generated_text": text}] for image, text in CAPTIONS.items()])


def llava_answers(names: Names) -> str:
    lines = [{"question_id": names[i], "prompt": "Describe.", "text": text} for i, text in CAPTIONS.items()]
    return "\n".join(map(json.dumps, lines))


def lmms_eval(names: Names) -> str:
    lines = [
        {
            "doc_id": number,
            "doc": {"image_id": names[image], "question": "Describe."},
            "target": "a reference",
            "resps": [[text]],
            "filtered_resps": [text],
        }
        for number, (image, text) in enumerate(CAPTIONS.items())
    ]
    return "\n".join(map(json.dumps, lines))


def vlmevalkit(names: Names) -> str:
    rows = [f"{n}\t{names[image]}\tDescribe.\t{text}" for n, (image, text) in enumerate(CAPTIONS.items())]
    return "\n".join(["index\timage_path\tquestion\tprediction", *rows])


def lines(names: Names) -> str:  # noqa: ARG001
    return "\n".join(CAPTIONS.values())


EXAMPLES: dict[str, tuple[str, Callable[[Names], str]]] = {
    "results": ("results.json", results),
    "by-image": ("captions.json", by_image),
    "table": ("captions.csv", table),
    "pipeline": ("pipeline.json", pipeline),
    "llava-answers": ("answers.jsonl", llava_answers),
    "lmms-eval": ("samples.jsonl", lmms_eval),
    "vlmevalkit": ("model_COCO_VAL.tsv", vlmevalkit),
    "lines": ("captions.txt", lines),
}
"""File name and text by the name of the format."""
