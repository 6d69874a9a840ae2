"""Captions of images: batches to train with, sentences written word by word, BLEU."""

from __future__ import annotations

import gzip
import json
import pickle
import zipfile

import numpy as np
import pytest
from scipy.io import savemat

from neonlike.data import Coco, Flickr8k, Flickr30k, ImageCaption, ImageCaptionTest

pytestmark = pytest.mark.engines("numpy", "c", batch_size=2)

SENTENCES = [
    ["a dog runs", "dog on grass in sun"],
    ["a cat"],
    ["a cat on grass", "the unknown cat"],
    ["dog in sun"],
    ["a a dog"],
]
SPLITS = ["train", "train", "test", "restval", "test"]
FEATURES = np.arange(5 * 4096, dtype=np.float32).reshape(5, 4096) / 1e4
WORDS = [".", "a", "cat", "dog", "grass", "in", "on", "runs", "sun"]


@pytest.fixture
def captions(tmp_path):
    folder = tmp_path / "flickr8k"
    folder.mkdir()
    images = [
        {"imgid": i, "split": split, "sentences": [{"tokens": s.split()} for s in sentences]}
        for i, (split, sentences) in enumerate(zip(SPLITS, SENTENCES))
    ]
    (folder / "dataset.json").write_text(json.dumps({"images": images}))
    savemat(folder / "vgg_feats.mat", {"feats": FEATURES.T})
    return folder


def numbers(onehot, steps):
    """Words ``(T, N)`` of one-hot columns, −1 where there is no one."""
    values = onehot.get()
    assert set(np.unique(values)) <= {0, 1} and (values.sum(axis=0) <= 1).all()
    return np.where(values.any(axis=0), values.argmax(axis=0), -1).reshape(steps, -1)


def test_batches_to_train_with(be, captions):
    data = ImageCaption(captions)
    assert data.vocab == WORDS and data.vocab_size == 9
    assert data.shape == [(4096, 1), (9, 5)] and (data.ndata, data.nbatches) == (4, 2)
    seen = {}
    for (image, sentence), (targets, mask) in data:
        words, following, used = numbers(sentence, 5), numbers(targets, 6), mask.get()
        assert used.shape == (9, 12)
        for n in range(2):
            row = int(np.flatnonzero((abs(FEATURES - image.get()[:, n]) < 1e-5).all(axis=1))[0])
            text = [WORDS[i] for i in words[:, n] if i >= 0]
            seen[" ".join(text)] = row
            assert [WORDS[i] for i in following[:, n] if i >= 0] == [*text, "."]
            np.testing.assert_array_equal(used[:, n::2], np.tile(np.arange(6) <= len(text), (9, 1)))
    assert seen == {"a dog runs": 0, "dog on grass in sun": 0, "a cat": 1, "dog in sun": 3}


def test_frequencies_start_the_bias(be, captions):
    bias = ImageCaption(captions).bias_init
    counts = np.array([4, 2, 1, 3, 1, 2, 1, 1, 2])
    assert bias.shape == (9, 1)
    np.testing.assert_allclose(bias[:, 0], np.log(counts / 4), rtol=1e-5, atol=1e-6)


def test_fewer_images(be, captions):
    assert ImageCaption(captions, max_images=1).ndata == 2
    assert ImageCaptionTest(captions, max_images=1).ndata == 1


class Script:
    """A network that says the same sentence for any input, one word after another, and records its inputs."""

    def __init__(self, be, words, steps):
        self.be, self.words, self.steps, self.given = be, words, steps, []

    def fprop(self, inputs, inference=False):
        assert inference
        self.given.append(numbers(inputs[1], self.steps))
        prob = np.full((9, (self.steps + 1) * 2), 0.1, np.float32)
        for step, word in enumerate(self.words):
            prob[WORDS.index(word), 2 * step : 2 * step + 2] = 0.9
        return self.be.array(prob)


def test_sentences_are_written_word_by_word(be, captions, caplog):
    data = ImageCaptionTest(captions)
    assert (data.ndata, data.nbatches, data.vocab) == (2, 1, WORDS)
    model = Script(be, ["a", "cat", ".", "dog", "sun"], 5)
    sents, targets = data.predict(model)
    assert sents == ["a cat", "a cat"] and targets == [["a cat on grass", "the unknown cat"], ["a a dog"]]
    assert (model.given[0] == -1).all()
    assert model.given[2][:, 0].tolist() == [1, 2, -1, -1, -1]
    # Of "a cat", twice, three words of four are in the references, which have six: those closest in length.
    scores = data.bleu_score(sents, targets)
    assert len(scores) == 4 and scores[0] == pytest.approx(100 * 3 / 4 * np.exp(1 - 6 / 4))
    assert f"BLEU-1 to BLEU-4: {scores[0]:.2f}, " in caplog.text
    assert data.prob_to_word(model.fprop((None, data.dev_sentence), True).get()) == ["a cat", "a cat"]


def test_a_network_of_layers_learns_from_the_batches(be, captions):
    from neonlike.initializers import Constant, Uniform
    from neonlike.layers import Affine, GeneralizedCostMask, MergeMultistream, Sequential
    from neonlike.models import Model
    from neonlike.optimizers import RMSProp
    from neonlike.transforms import CrossEntropyMulti, Softmax

    be.rng_reset()
    data = ImageCaption(captions)
    init = Uniform(-0.08, 0.08)
    model = Model(
        [
            MergeMultistream([Sequential([Affine(8, init)]), Sequential([Affine(8, init)])], merge="recurrent"),
            Affine(data.vocab_size, init, bias=Constant(data.bias_init), activation=Softmax()),
        ]
    )
    cost = GeneralizedCostMask(CrossEntropyMulti())
    model.fit(data, cost=cost, optimizer=RMSProp(learning_rate=0.02), num_epochs=1)
    first = float(model.total_cost[0, 0])
    model.fit(data, cost=cost, optimizer=RMSProp(learning_rate=0.02), num_epochs=15)
    assert float(model.total_cost[0, 0]) < 0.6 * first
    sents, _ = ImageCaptionTest(captions).predict(model)
    assert len(sents) == 2 and all(word in WORDS for sentence in sents for word in sentence.split())


@pytest.mark.parametrize("cls", [Flickr8k, Flickr30k, Coco])
def test_data_sets_from_folder_and_archive(be, captions, tmp_path, cls):
    here = tmp_path / "here"
    here.mkdir()
    with zipfile.ZipFile(here / f"{cls.NAME}.zip", "w") as archive:
        for file in captions.iterdir():
            archive.write(file, f"{cls.NAME}/{file.name}")
    data = cls(path=str(here))
    assert (data.train_iter.ndata, data.test_iter.ndata) == (4, 2)
    (here / f"{cls.NAME}.zip").unlink()
    assert cls(path=str(here), max_images=1).train_iter.ndata == 2


@pytest.fixture
def pickled(tmp_path):
    """The same images as one of neon's files, where words count that are used five times."""
    folder = tmp_path / "flickr8k"
    folder.mkdir()
    sents = {}
    for i, (split, sentences) in enumerate(zip(SPLITS, SENTENCES)):
        image = {"imgid": i, "sentences": [{"tokens": s.split()} for s in sentences]}
        sents.setdefault("test" if split == "test" else "train", []).append(image)
    sents["train"][0]["sentences"] += [{"tokens": ["a", "dog"]}] * 4
    with gzip.open(folder / "features.pkl.gz", "wb") as file:
        pickle.dump({"sents": sents, "feats": FEATURES.T}, file, protocol=2)
    return folder


def test_neons_own_files(be, pickled, tmp_path):
    with zipfile.ZipFile(tmp_path / "coco.zip", "w") as archive:
        archive.write(pickled / "features.pkl.gz", "coco/features.pkl.gz")
    data, zipped = Flickr8k(path=str(tmp_path)), Coco(path=str(tmp_path))
    for train, test in ((data.train_iter, data.test_iter), (zipped.train_iter, zipped.test_iter)):
        assert train.vocab == test.vocab == [".", "a", "dog"] and train.end_token == "."
        assert train.shape == [4096, (3, 5)] and (train.ndata, test.ndata, train.nbatches()) == (8, 2, 4)
        (image, _), (targets, _) = next(iter(train))
        assert image.shape == (4096, 2) and targets.shape == (3, 12)
    pairs = list(data.test_iter.iterImageSentencePair())
    assert [pair["sentence"]["tokens"] for pair in pairs] == [*(s.split() for s in SENTENCES[2]), ["a", "a", "dog"]]
    assert np.array_equal(pairs[-1]["image"], FEATURES[4])
    groups = list(data.test_iter.iterImageSentenceGroup())
    assert [len(group["sentences"]) for group in groups] == [2, 1]
    assert [words["tokens"] for words in data.test_iter.iterSentences()][2] == ["a", "a", "dog"]


def test_neons_files_that_do_not_do(be, pickled):
    path = pickled / "features.pkl.gz"
    whole = path.read_bytes()
    with gzip.open(path, "wb") as file:
        pickle.dump({"sents": {}}, file)
    with pytest.raises(OSError, match="has no sents by split and feats"):
        ImageCaption(pickled)
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(OSError, match="is not a whole file"):
        ImageCaption(pickled)


def test_folders_that_do_not_do(be, captions):
    with pytest.raises(FileNotFoundError, match=r"no file .*dataset\.json"):
        ImageCaption(captions / "none")
    mat = (captions / "vgg_feats.mat").read_bytes()
    (captions / "vgg_feats.mat").write_bytes(mat[: len(mat) // 2])
    with pytest.raises(OSError, match=r"vgg_feats\.mat is no MATLAB file with 'feats', or not a whole one"):
        ImageCaption(captions)
    savemat(captions / "vgg_feats.mat", {"feats": FEATURES[:3].T})
    with pytest.raises(OSError, match="of 3, lack"):
        ImageCaption(captions)
    for content in ('{"images": [', '{"images": [{}]}', "[]"):
        (captions / "dataset.json").write_text(content)
        with pytest.raises(OSError, match=r"dataset\.json is no list of images"):
            ImageCaption(captions)
