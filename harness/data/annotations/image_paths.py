"""Resolve the image paths of annotation files, which are untrusted, to files within the data set."""

from __future__ import annotations

import os
from pathlib import Path, PurePosixPath, PureWindowsPath


class RefusedPath(Exception):  # noqa: N818 - it names the path, not the failure
    """A file name in an annotation that is refused; the message names it and the reason."""


class PicturePaths:
    """Assigns each image its file below `root` (a resolved folder), and no file to two images."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._owners: dict[str, int] = {}
        self._inside: dict[str, bool] = {}

    def claim(self, name: object, folder: object, image_id: int) -> str:
        """The relative path of the image file: `folder`/`name` if that exists, else `name`.

        The file is not opened: a missing one keeps its path.

        Raises:
            RefusedPath: no name, a name that is absolute or has "..", a link that leads out of `root`, or the file of
                an earlier image.
        """
        if not isinstance(name, str) or not name:
            raise RefusedPath("its entry names no image file")
        candidates = [plain_path(name)]
        if isinstance(folder, str) and folder:
            candidates.insert(0, plain_path(f"{folder}/{name}"))
        file = next((path for path in candidates if os.path.lexists(f"{self.root}/{path}")), candidates[-1])
        self.check_inside(file)
        owner = self._owners.setdefault(file, image_id)
        if owner != image_id:
            raise RefusedPath(f"{file!r} is already the file of image {owner}")
        return file

    def check_inside(self, file: str) -> None:
        """RefusedPath where the file, with all links followed, lies outside the root; each folder is resolved once."""
        path = f"{self.root}/{file}"
        folder = path.rpartition("/")[0]
        if folder not in self._inside:
            self._inside[folder] = self._leads_inside(folder)
        if not self._inside[folder] or (os.path.islink(path) and not self._leads_inside(path)):  # noqa: PTH114
            raise RefusedPath(f"{file!r} is a link that leads out of the data set's folder")

    def _leads_inside(self, path: str) -> bool:
        return Path(os.path.realpath(path)).is_relative_to(self.root)  # `resolve` would raise on links in a circle


def plain_path(text: str) -> str:
    """The path in its plain form ("./a" is "a"), if it can only refer to a file below a root, on any system.

    Raises:
        RefusedPath: it is absolute, has ".." or unprintable characters.
    """
    posix, windows = PurePosixPath(text), PureWindowsPath(text)
    if not text.isprintable():
        raise RefusedPath(f"{text!a} has unprintable characters")
    if posix.is_absolute() or windows.drive or windows.root or ".." in posix.parts or ".." in windows.parts:
        raise RefusedPath(f"{text!r} leads out of the data set's folder")
    return str(posix)
