"""Captions of languages without spaces as words: which ones, and the same again once they are joined by spaces."""

import subprocess
import sys

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from harness.data import word_tokenizers
from harness.data.vocabulary import PREPARATIONS, Vocabulary, choose_preparation
from harness.data.word_tokenizers import WORD_TOKENIZERS, tokenize_words, tokenizer_label
from harness.metrics.ptb import python_tokenizer
from harness.utils.errors import BenchError

CHINESE = (
    "一个戴着红色帽子的小男孩坐在草地上吃冰淇淋。",
    "两只斑马在草原上低头吃草，远处有一群大象",
    "她手里拿着一部 iPhone 手机，在公园里自拍！",
    "一名穿着蓝色Ｔ恤的男子正在海滩上打排球",
    "厨房里有１张木桌和4把椅子",
    "一辆公共汽车停在雨中的街角",
)
JAPANESE = (
    "白い帽子をかぶった男の子が芝生に座ってアイスクリームを食べている。",
    "テーブルの上に、ノートパソコンとコーヒーが置かれています",
    "キリンが2頭、木の葉っぱを食べようとしている",
    "傘をさした女性が濡れた道路を歩いている",
    "ﾊﾞｽが雨の角で待っている",
)
VIETNAMESE = (
    "Một người đàn ông đang đi xe đạp trên bãi biển.",
    "hai con dê, đứng trên cánh đồng",
    "Một cậu bé đội mũ đỏ ngồi ăn kem!",
)
THAI = ("แพะสีเทายืนอยู่บนกำแพง", "เด็กผู้หญิง 2 คนเล่นว่าว")
WRITTEN = (*CHINESE, *JAPANESE, *VIETNAMESE, *THAI, "a man's t-shirt, 3.5 m", "", " 。 ")


@pytest.mark.parametrize(
    ("tokenizer", "caption", "words"),
    [
        ("zh", "一辆红色的公共汽车停在街角。", "一辆 红色 的 公共汽车 停 在 街角"),
        ("zh", "她拿着 iPhone 手机！", "她 拿 着 iphone 手机"),
        ("zh", "４把椅子，ＡＢＣ", "4 把 椅子 abc"),
        ("ja", "灰色のヤギが石の壁に立っている。", "灰色 の ヤギ が 石 の 壁 に 立っ て いる"),
        ("ja", "キリンが2頭、ﾊﾞｽに", "キリン が 2 頭 バス に"),
        ("vi", "Một người đàn ông đi xe đạp.", "một người đàn_ông đi xe_đạp"),
        ("characters", "我有2只 Cats!", "我 有 2 只 cats"),
        ("characters", "ヤギが、いる", "ヤ ギ が い る"),
        ("characters", "ยืนอยู่", "ยื น อ ยู่"),
        ("characters", "한국 사람 café", "한국 사람 café"),
    ],
)
def test_words(tokenizer: str, caption: str, words: str) -> None:
    assert WORD_TOKENIZERS[tokenizer].tokenize(caption) == words.split()  # type: ignore[index]
    assert PREPARATIONS[tokenizer].tokenize(caption) == words.split()
    assert python_tokenizer(tokenizer)([caption, ""]) == [words, ""]  # type: ignore[arg-type]


def test_words_are_those_of_the_package_itself() -> None:
    import fugashi
    import jieba
    import unidic_lite

    tagger = fugashi.GenericTagger(f'-r /dev/null -d "{unidic_lite.DICDIR}"')
    for caption in CHINESE[:2]:
        assert WORD_TOKENIZERS["zh"].tokenize(caption) == [word for word in jieba.cut(caption) if word not in "，。"]
    for caption in JAPANESE[:2]:
        words = [node.surface for node in tagger(caption) if node.surface not in "、。"]
        assert WORD_TOKENIZERS["ja"].tokenize(caption) == words


@pytest.mark.parametrize("tokenizer", WORD_TOKENIZERS)
def test_words_joined_by_spaces_are_the_same_words(tokenizer: str) -> None:
    tokenize = WORD_TOKENIZERS[tokenizer].tokenize  # type: ignore[index]
    for caption in WRITTEN:
        words = tokenize(caption)
        assert tokenize(" ".join(words)) == words, caption
        assert " ".join(words).split() == words, caption


PARTS = st.sampled_from("一只山羊站在石墙上的が立っているヤギー゙ T恤 2،。,_·ạđ người ́")


@pytest.mark.parametrize("tokenizer", ["characters", "zh", "ja", "vi"])
def test_words_joined_by_spaces_are_the_same_words_whatever_the_text(tokenizer: str) -> None:
    tokenize = WORD_TOKENIZERS[tokenizer].tokenize  # type: ignore[index]

    @settings(max_examples=60 if tokenizer == "vi" else 300, deadline=None, derandomize=True, database=None)
    @given(st.text(st.one_of(st.characters(), PARTS), max_size=25))
    @example("İ_a")
    def law(text: str) -> None:
        words = tokenize(text)
        assert tokenize(" ".join(words)) == words
        assert " ".join(words).split() == words

    law()


@pytest.mark.parametrize(("tokenizer", "captions"), [("zh", CHINESE), ("ja", JAPANESE), ("characters", THAI)])
def test_any_words_of_a_vocabulary_are_scored_as_these_words(tokenizer: str, captions: tuple[str, ...]) -> None:
    vocabulary = Vocabulary.build(captions, 1, tokenizer)
    tokenize = WORD_TOKENIZERS[tokenizer].tokenize  # type: ignore[index]
    numbers = range(4, len(vocabulary))
    for step in (1, 3, 7):  # orders in which nobody would write them
        said = [numbers[place * step % len(numbers)] for place in range(len(numbers))]
        assert tokenize(vocabulary.decode(said)) == vocabulary.words_of(said)


def test_a_space_parts_words_wherever_it_stands() -> None:
    tokenize = WORD_TOKENIZERS["zh"].tokenize
    assert tokenize("一辆红色的 公共汽车 停在街角") == tokenize("一辆红色的公共汽车停在街角")
    assert tokenize("公共 汽车") == ["公共", "汽车"]
    assert tokenize("她拿着iPhone手机") == tokenize("她拿着 iPhone 手机")
    assert WORD_TOKENIZERS["vi"].tokenize("đàn_ông đi xe đạp") == ["đàn_ông", "đi", "xe", "đạp"], "already segmented"


def test_labels_have_the_versions() -> None:
    from importlib.metadata import version

    assert tokenizer_label("characters") == "characters"
    assert tokenizer_label("zh") == f"zh-jieba-{version('jieba')}"
    assert tokenizer_label("ja") == f"ja-fugashi-{version('fugashi')}-unidic-lite-{version('unidic-lite')}"
    assert tokenizer_label("vi") == f"vi-pyvi-{version('pyvi')}"


@pytest.mark.parametrize(("tokenizer", "package"), [("zh", "jieba"), ("ja", "fugashi"), ("vi", "pyvi")])
def test_a_missing_package_is_named_with_what_to_type(
    tokenizer: str, package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def absent(name: str) -> str:
        raise word_tokenizers.PackageNotFoundError(name)

    monkeypatch.setattr(word_tokenizers, "version", absent)
    monkeypatch.setattr(word_tokenizers, "find_spec", lambda _: None)
    for opener in ("_jieba", "_mecab", "_pyvi"):
        getattr(word_tokenizers, opener).cache_clear()
    for ask in (tokenizer_label, lambda name: tokenize_words(["从未出现过的词语绝不缓存 まだ見ぬ言葉 chưa"], name)):
        with pytest.raises(BenchError, match=f"needs the package {package}") as caught:
            ask(tokenizer)  # type: ignore[arg-type]
        assert "pip install 'captionbench[languages]'" in str(caught.value.hint)


def test_papers_words_and_a_tokenizer_exclude_each_other() -> None:
    assert choose_preparation("words", "python") == "words"
    assert choose_preparation("expansionnet", "java") == "expansionnet"
    assert choose_preparation("words", "zh") == "zh"
    for recipe in ("expansionnet", "karpathy-tokens"):
        with pytest.raises(BenchError, match=f"recipe.captions is {recipe}.*--tokenizer ja") as caught:
            choose_preparation(recipe, "ja")
        assert "--set recipe.captions=words" in str(caught.value.hint)


def test_no_package_is_imported_before_it_is_asked_for() -> None:
    code = (
        "import sys, harness.cli.evaluate, harness.cli.run, harness.data.vocabulary, harness.metrics.caption_scores\n"
        "print(*({'jieba', 'fugashi', 'pyvi', 'unidic_lite', 'torch'} & sys.modules.keys()))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []
