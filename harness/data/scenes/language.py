"""Generate the reference captions of the embedded data set, varied as by different annotators."""

from harness.data.scenes.drawing import BACKGROUND_COLOURS, OBJECT_COLOURS
from harness.data.scenes.layout import SEEN, UNSEEN, Chance, Item, Scene
from harness.data.vocabulary import tokenize

SHORTEST, LONGEST = 6, 16  # words of a caption

_NOUNS: dict[str, dict[str, float]] = {
    "square": {"square": 0.7, "box": 0.3},
    "circle": {"circle": 0.75, "disc": 0.25},
    "cross": {"cross": 0.75, "plus": 0.25},
    "ring": {"ring": 0.75, "hoop": 0.25},
    "house": {"house": 0.8, "home": 0.2},
    "boat": {"boat": 0.7, "ship": 0.3},
    "table": {"table": 0.8, "desk": 0.2},
    "moon": {"moon": 0.7, "crescent": 0.3},
    "cup": {"cup": 0.65, "mug": 0.35},
}
PLURALS = {"box": "boxes", "cross": "crosses", "plus": "pluses", "fish": "fish"}
_COLOURS = {"purple": {"purple": 0.8, "violet": 0.2}, "grey": {"grey": 0.7, "gray": 0.3}}
_SIZES = {True: {"large": 0.6, "big": 0.4}, False: {"small": 0.65, "little": 0.2, "tiny": 0.15}}
_NUMBERS = {2: "two", 3: "three"}

_PLACES: dict[str, dict[str, float]] = {
    "left": {"on the left": 0.5, "on the left side": 0.3, "at the left edge": 0.2},
    "right": {"on the right": 0.5, "on the right side": 0.3, "at the right edge": 0.2},
    "top": {"at the top": 0.6, "near the top": 0.2, "at the upper edge": 0.2},
    "bottom": {"at the bottom": 0.6, "near the bottom": 0.2, "at the lower edge": 0.2},
    "middle": {"in the middle": 0.6, "in the centre": 0.4},
}
_LINES: dict[str, dict[str, float]] = {
    "row": {"side by side": 0.4, "next to each other": 0.3, "in a row": 0.3},
    "column": {"above each other": 0.4, "in a column": 0.3, "one below the other": 0.3},
}
_PAIRS: dict[str, dict[str, float]] = {
    "left": {
        "{a} to the left of {b}": 0.26,
        "{b} to the right of {a}": 0.22,
        "{a} left of {b}": 0.1,
        "{b} right of {a}": 0.06,
        "{a} next to {b}": 0.16,
        "{b} beside {a}": 0.08,
        "{a} on the left and {b} on the right": 0.12,
    },
    "above": {
        "{a} above {b}": 0.4,
        "{b} below {a}": 0.2,
        "{a} over {b}": 0.12,
        "{b} under {a}": 0.12,
        "{b} beneath {a}": 0.04,
        "{a} at the top and {b} at the bottom": 0.12,
    },
    "inside": {
        "{a} inside {b}": 0.45,
        "{a} in {b}": 0.15,
        "{a} within {b}": 0.06,
        "{b} with {a} inside": 0.14,
        "{b} around {a}": 0.1,
        "{a} in the middle of {b}": 0.1,
    },
    "on": {
        "{a} on top of {b}": 0.36,
        "{a} on {b}": 0.2,
        "{a} standing on {b}": 0.16,
        "{a} sitting on {b}": 0.1,
        "{b} with {a} on top": 0.1,
        "{b} under {a}": 0.08,
    },
}
_TRIOS: dict[str, dict[str, float]] = {
    "below": {"{pair} with {c} below": 0.5, "{c} below {pair}": 0.25, "{pair} and {c} under them": 0.25},
    "above": {"{pair} with {c} above": 0.4, "{c} above {pair}": 0.45, "{pair} and {c} over them": 0.15},
    "left": {"{pair} with {c} on the left": 0.4, "{c} to the left of {pair}": 0.4, "{c} next to {pair}": 0.2},
    "right": {"{pair} with {c} on the right": 0.4, "{pair} next to {c}": 0.2, "{c} to the right of {pair}": 0.4},
}
_OPENINGS = {"": 0.55, "there is": 0.2, "a picture of": 0.1, "the image shows": 0.08, "we can see": 0.07}
_MENTIONS_SIZE = {"single": 0.65, "pair": 0.4, "trio": 0.15, "group": 0.5}
_MENTIONS_BACKGROUND = {"single": 0.6, "pair": 0.3, "trio": 0.08, "group": 0.4}
_MENTIONS_PLACE = 0.5
_MENTIONS_TEXTURE = 0.75
_FORGETS_THIRD = 0.12
_FORGETS_COLOUR = 0.05
_LISTS_ALL = 0.12


def describe(chance: Chance, scene: Scene, count: int) -> tuple[str, ...]:
    """Give `count` different captions of 6 to 16 words, as sentences."""
    captions: list[str] = []
    while len(captions) < count:
        words = " ".join(_sentence(chance, scene).split())
        caption = words[0].upper() + words[1:] + "."
        if SHORTEST <= len(tokenize(caption)) <= LONGEST and caption not in captions:
            captions.append(caption)
    return tuple(captions)


def nouns() -> dict[str, tuple[str, ...]]:
    """All nouns that captions use for each shape; `PLURALS` are the plurals that an s alone does not form."""
    return {shape: tuple(_NOUNS.get(shape, {shape: 1.0})) for shape in (*SEEN, *UNSEEN)}


def colour_words() -> dict[str, str]:
    """The colour of every word that captions use for one."""
    colours = (*OBJECT_COLOURS, *BACKGROUND_COLOURS)
    return {word: colour for colour in colours for word in _COLOURS.get(colour, {colour: 1.0})}


def size_words() -> dict[str, bool]:
    """Whether each word of captions for a size means a large one."""
    return {word: large for large, words in _SIZES.items() for word in words}


def _sentence(chance: Chance, scene: Scene) -> str:
    if scene.arrangement == "single":
        content = _thing(chance, scene, scene.items[0])
        if chance.happens(_MENTIONS_PLACE):
            content += " " + chance.weigh(_PLACES[scene.relation])
    elif scene.arrangement == "group":
        content = _several(chance, scene)
    else:
        content = _related(chance, scene)
    opening = chance.weigh(_OPENINGS)
    if opening == "there is" and scene.arrangement == "group":
        opening = "there are"
    return f"{opening} {content} {_backdrop(chance, scene)}"


def _related(chance: Chance, scene: Scene) -> str:
    phrases = {name: _thing(chance, scene, item) for name, item in zip("abc", scene.items, strict=False)}
    if scene.third and chance.happens(_LISTS_ALL):
        return "{a}, {b} and {c}".format(**phrases)
    pair = chance.weigh(_PAIRS[scene.relation]).format(**phrases)
    if scene.third is None or chance.happens(_FORGETS_THIRD):
        return pair
    return chance.weigh(_TRIOS[scene.third]).format(pair=pair, c=phrases["c"])


def _several(chance: Chance, scene: Scene) -> str:
    noun = _noun(chance, scene.items[0].shape)
    words = [_NUMBERS[len(scene.items)], *_attributes(chance, scene, scene.items[0]), PLURALS.get(noun, noun + "s")]
    if chance.happens(_MENTIONS_PLACE):
        words.append(chance.weigh(_LINES[scene.relation]))
    return " ".join(words)


def _thing(chance: Chance, scene: Scene, item: Item) -> str:
    return _with_article([*_attributes(chance, scene, item), _noun(chance, item.shape)])


def _attributes(chance: Chance, scene: Scene, item: Item) -> list[str]:
    words = []
    if chance.happens(_MENTIONS_SIZE[scene.arrangement]):
        words.append(chance.weigh(_SIZES[item.large]))
    if not chance.happens(_FORGETS_COLOUR):
        words.append(_colour(chance, item.colour))
    return words


def _backdrop(chance: Chance, scene: Scene) -> str:
    if not chance.happens(_MENTIONS_BACKGROUND[scene.arrangement]):
        return ""
    words = [_colour(chance, scene.background), "background"]
    if scene.texture != "plain" and chance.happens(_MENTIONS_TEXTURE):
        words.insert(0, scene.texture)
    return f"{chance.weigh({'on': 0.75, 'against': 0.25})} {_with_article(words)}"


def _with_article(words: list[str]) -> str:
    return " ".join(["an" if words[0][0] in "aeiou" else "a", *words])


def _noun(chance: Chance, shape: str) -> str:
    return chance.weigh(_NOUNS.get(shape, {shape: 1.0}))


def _colour(chance: Chance, colour: str) -> str:
    return chance.weigh(_COLOURS.get(colour, {colour: 1.0}))
