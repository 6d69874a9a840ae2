"""BLEU: how close sentences are to those that people wrote (Papineni, Roukos, Ward, Zhu 2002)."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

Words = Sequence[str]


def ngrams(words: Words, n: int) -> Counter[tuple[str, ...]]:
    """How often each sequence of ``n`` words occurs."""
    return Counter(tuple(words[i : i + n]) for i in range(len(words) - n + 1))


def bleu_scores(sentences: Sequence[Words], references: Sequence[Sequence[Words]], longest: int = 4) -> list[float]:
    """BLEU-1 … BLEU-``longest`` of a whole corpus, from 0 to 100.

    Parameters
    ----------
    sentences : list of lists of words
    references : list, for each sentence, of lists of words
        Several sentences that it is compared with.
    """
    length = sum(map(len, sentences))
    closest = sum(
        min((abs(len(one) - len(words)), len(one)) for one in several)[1]
        for words, several in zip(sentences, references, strict=True)
    )
    if not length:
        return [0.0] * longest
    brevity = min(0.0, 1.0 - closest / length)
    scores, logarithms = [], 0.0
    for n in range(1, longest + 1):
        matches = total = 0
        for words, several in zip(sentences, references, strict=True):
            found = ngrams(words, n)
            most: Counter[tuple[str, ...]] = Counter()
            for one in several:
                most |= ngrams(one, n)
            matches += (found & most).total()
            total += found.total()
        logarithms += math.log(matches / total) if matches else -math.inf
        scores.append(100 * math.exp(brevity + logarithms / n))
    return scores
