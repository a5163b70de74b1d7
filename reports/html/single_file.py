"""A written report as one file: an HTML page that holds all others, or a zip archive."""

import base64
import json
import zipfile
from pathlib import Path
from typing import Final

from markupsafe import Markup

from reports.html.rendering import asset, compressed, template_environment

_PICTURES: Final = {
    ".png": "image/png",
    ".jpg": "image/jpeg",
    ".jpeg": "image/jpeg",
    ".webp": "image/webp",
    ".gif": "image/gif",
}
_TEXTS: Final = (".html", ".js", ".css")


def single_file(folder: Path) -> str:
    """One HTML page that shows every page of the report in a folder, with its scripts and pictures.

    Pages and scripts are compressed; pictures are as they are.
    """
    texts = {}
    pictures = {}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if path.suffix in _TEXTS:
            texts[name] = path.read_text(encoding="utf-8")
        elif path.suffix.lower() in _PICTURES:
            data = base64.b64encode(path.read_bytes()).decode()
            pictures[name] = {"type": _PICTURES[path.suffix.lower()], "data": data}
    template = template_environment(()).get_template("single_file.html.j2")
    return template.render(
        files=compressed(texts),
        pictures=Markup(json.dumps(pictures).replace("<", "\\u003c")),
        script=Markup(asset("single_file.js").replace("</script", "<\\/script")),
    )


def write_zip(folder: Path, file: Path, name: str) -> None:
    """Put the report in a folder into an archive, as a folder of this name."""
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in sorted(folder.rglob("*")):
            if path.is_file():
                archive.write(path, Path(name) / path.relative_to(folder))
