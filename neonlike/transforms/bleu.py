"""The BLEU score of generated sentences, computed on the host."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import Any

from neonlike.checks import brief
from neonlike.errors import ArgumentError, ArgumentTypeError
from neonlike.transforms.transform import Metric

__public_module__ = "neonlike.transforms.cost"

END = "."
"""The token that ends a sentence; it and later tokens are ignored."""
FLOOR = 1e-7
"""Added to each precision, so that one without a match does not cancel all others."""

Ngrams = Counter[tuple[str, ...]]


class BLEUScore(Metric):
    """Percentage of n-grams of generated sentences that occur in reference sentences (BLEU).

    Parameters
    ----------
    unk : str
        The token for unknown words; n-grams with it never match.

    Attributes
    ----------
    bleu_n : list of float
        Scores of the last call with n-grams up to 1, 2, ... N.

    References
    ----------
    Papineni et al., "BLEU: a method for automatic evaluation of machine translation" (2002).

    Examples
    --------
    >>> from neonlike.transforms import BLEUScore
    >>> score = BLEUScore()
    >>> round(score(["the cat sat on the mat ."], [["the cat is on the mat", "there is a cat on the mat"]], N=2), 2)
    70.71
    """

    def __init__(self, unk: str = "<unk>") -> None:
        super().__init__()
        self.unk = unk
        self.metric_names = ["BLEU"]
        self.bleu_n: list[float] = []

    def __call__(  # type: ignore[override]
        self, y: Any, t: Any, N: int = 4, brevity_penalty: bool = False, lower_case: bool = True
    ) -> float:
        """Score sentences ``y`` against references ``t``, with all n-grams pooled.

        Parameters
        ----------
        y : list of str
            Generated sentences, with words separated by blanks; or one sentence.
        t : list of list of str
            References for each sentence; or the references of one sentence.
        N : int
            Longest n-gram.
        brevity_penalty : bool
            Lower the score of sentences shorter than their references.
        lower_case : bool
            Ignore the difference between upper and lower case.
        """
        if N < 1:
            raise ArgumentError(f"BLEUScore: N={N}; expected the length of the longest n-grams, 1 or more")
        sentences, references = ([y], [t]) if isinstance(y, str) else (y, t)
        if len(sentences) != len(references):
            raise ArgumentError(f"BLEUScore: {len(sentences)} sentences, but references for {len(references)}")
        matches, totals = [0] * N, [0] * N
        length = wanted = 0
        for sentence, of_sentence in zip(sentences, references, strict=True):
            words = self._words(sentence, lower_case)
            known = [self._words(one, lower_case) for one in self._listed(of_sentence)]
            length += len(words)
            wanted += min((abs(len(one) - len(words)), len(one)) for one in known)[1]
            for n in range(N):
                found = _ngrams(words, n + 1)
                matches[n] += self._matches(found, [_ngrams(one, n + 1) for one in known])
                totals[n] += found.total()
        penalty = math.exp(min(0.0, 1 - wanted / length)) if brevity_penalty and length else 1.0
        logs = [math.log(m / max(total, 1) + FLOOR) for m, total in zip(matches, totals, strict=True)]
        self.bleu_n = [100 * penalty * math.exp(sum(logs[: n + 1]) / (n + 1)) for n in range(N)]
        return self.bleu_n[-1]

    @staticmethod
    def _listed(references: Any) -> Sequence[str]:
        listed = [references] if isinstance(references, str) else references
        if not listed:
            raise ArgumentError(f"BLEUScore: references={brief(references)}; every sentence needs at least one")
        return listed  # type: ignore[no-any-return]

    @staticmethod
    def _words(sentence: str, lower_case: bool) -> list[str]:
        if not isinstance(sentence, str):
            raise ArgumentTypeError(
                f"BLEUScore: sentences and references must be strings, words separated by blanks; got {brief(sentence)}"
            )
        words = (sentence.lower() if lower_case else sentence).split()
        return words[: words.index(END)] if END in words else words

    def _matches(self, found: Ngrams, references: Sequence[Ngrams]) -> int:
        """Count the n-grams of ``found`` in the references, each at most as often as in any one reference."""
        most: Ngrams = Counter()
        for one in references:
            most |= one
        return sum(min(count, most[ngram]) for ngram, count in found.items() if self.unk not in ngram)


def _ngrams(words: Sequence[str], n: int) -> Ngrams:
    return Counter(tuple(words[i : i + n]) for i in range(len(words) - n + 1))
