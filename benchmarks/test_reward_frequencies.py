"""Document frequencies for rewards at COCO's size: seconds and memory of a process that does nothing else.

    pytest benchmarks/test_reward_frequencies.py -n 0 -s

113,287 images with five captions of words drawn as in English (Zipf), as text, which `CaptionRewards` tokenises,
numbers and counts, as at the beginning of a self-critical stage. Peak memory is of the whole process, captions and
imports too.
"""

import json
import subprocess
import sys

CODE = """
import json, resource, time
import numpy as np
from harness.data.dataset import Sample
from harness.data.vocabulary import Vocabulary
from harness.training.self_critical import CaptionRewards

images, captions, words = 113_287, 5, 9_000
generator = np.random.default_rng(0)
chances = 1 / np.arange(2, words + 2) ** 1.05
drawn = generator.choice(words, size=(images * captions, 11), p=chances / chances.sum())
names = [f"w{number}" for number in range(words)]
texts = [" ".join(names[word] for word in row) for row in drawn.tolist()]
samples = [
    Sample(image, f"{image}.jpg", "train", tuple(texts[image * captions : (image + 1) * captions]))
    for image in range(images)
]
vocabulary = Vocabulary.build((text for sample in samples for text in sample.captions), 5)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
started = time.process_time()
rewards = CaptionRewards(samples, vocabulary)
seconds = time.process_time() - started
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print(json.dumps({"seconds": seconds, "before_gb": before / 2**20, "peak_gb": peak / 2**20}))
"""
MOST_SECONDS, MOST_GB = 60.0, 1.5


def test_frequencies() -> None:
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=True)
    found = json.loads(done.stdout)
    print(f"\n{found['seconds']:.1f} s, peak {found['peak_gb']:.2f} GB ({found['before_gb']:.2f} GB before)")
    assert found["seconds"] < MOST_SECONDS
    assert found["peak_gb"] < MOST_GB
