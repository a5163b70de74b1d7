"""Scene graphs of images as a source has them, unchecked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from harness.data.graphs.contract import SceneGraph


@dataclass(frozen=True, slots=True)
class GraphSource:
    """Scene graphs by image id.

    Attributes:
        name: as shown in the signature.
        fingerprint: hex; changes with any graph.
        graphs: of the images that have a sound one.
        bad: reasons by image id, of the images whose graph contradicts itself.
    """

    name: str
    fingerprint: str
    graphs: Mapping[int, SceneGraph]
    bad: Mapping[int, str] = field(default_factory=dict)


class BadGraph(Exception):  # noqa: N818 - it tells of the image, not of the failure
    """An image whose graph cannot be used; the message is the reason in a few words."""


def check_places(graph: SceneGraph) -> SceneGraph:
    """The graph itself; BadGraph where a relation or an attribute is of an object that is not there."""
    count = len(graph.objects)
    for subject, obj, word in graph.relations:
        if not (0 <= subject < count and 0 <= obj < count):
            raise BadGraph(f"has a relation {word!r} of objects {subject} and {obj}, but {count} objects")
    for place, word in graph.attributes:
        if not 0 <= place < count:
            raise BadGraph(f"has an attribute {word!r} of object {place}, but {count} objects")
    return graph
