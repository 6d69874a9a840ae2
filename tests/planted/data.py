"""Faults in data: batches and epochs, texts, images, tasks, downloads, reading ahead."""

# ruff: noqa: E501  (one fault, one line: the tables read across)

from __future__ import annotations

from tests.planted.table import Mutant


def data(family: str, name: str, module: str, old: str, new: str) -> Mutant:
    return Mutant(family, name, f"neonlike/data/{module}.py", old, new)


def batch(name: str, module: str, old: str, new: str) -> Mutant:
    return data("batches", name, module, old, new)


def text(name: str, module: str, old: str, new: str) -> Mutant:
    return data("texts", name, module, old, new)


def task(name: str, module: str, old: str, new: str) -> Mutant:
    return data("tasks", name, module, old, new)


def image(name: str, module: str, old: str, new: str) -> Mutant:
    return data("images", name, module, old, new)


def download(name: str, module: str, old: str, new: str) -> Mutant:
    return data("downloads", name, module, old, new)


def ranks(name: str, module: str, old: str, new: str) -> Mutant:
    return data("ranks", name, module, old, new)


MUTANTS = (
    batch("defect 32: an epoch that ends exactly does not start over", "protocol", ">= self.ndata:", "> self.ndata:"),
    batch("wrapped samples are the last ones", "protocol", "column, sample = column + count, 0", "column, sample = column + count, self.ndata - (bsz - column - count)"),
    batch("an abandoned epoch counts", "protocol", "self.start = after - self.ndata", "self.start = 1"),
    batch("a position beyond the data", "protocol", "0 <= start < self.ndata:", "0 <= start:"),
    batch("one-hot labels taken for labels", "dataiterator", "bool(nclass > 1) and", "False and"),
    batch("buffers of the batch size before", "protocol", "or self._made_for[1:] != (bsz, total)", ""),
    batch("mean added", "hdf5iterator", "self._centred - self.mean", "self._centred + self.mean"),
    batch("samples of another number of outputs", "hdf5iterator", "len(self.out) != self.ndata", "False"),
    batch("labels out of range", "protocol", " and labels.max() < nclass)", ")"),
    batch("fractions as labels", "protocol", "or not np.array_equal(labels, np.trunc(labels))", ""),
    batch("an error of the thread ends the epoch", "prefetch", "raise error", "return"),
    batch("the thread stays when a loop is left", "prefetch", "                reader.close()\n            finally:", "                pass\n            finally:"),
    batch("what the iterator opened stays open", "prefetch", "self._source.close()", "pass"),
    batch("the thread starts where an interrupt leaves it", "prefetch", "        try:\n            reader.start()", "        reader.start()\n        try:\n            pass"),
    batch("values not scaled to the target range", "dataloader_transformers", "target_range[0] - low * self._scale", "target_range[0]"),
    batch("a mean for the wrong channel", "dataloader_transformers", "np.reshape(self.pixel_mean, (-1, 1))", "np.reshape(self.pixel_mean[::-1], (-1, 1))"),
    text("targets are the tokens before", "sequences", "np.roll(used, -1)", "np.roll(used, 1)"),
    text("columns in another order of the text", "sequences", "inputs = used.reshape(shape)", "inputs = used.reshape(nbatches, bsz, -1).swapaxes(0, 1)"),
    text("samples reversed instead of steps", "sequences", "self.y[:, :, ::-1] if", "self.y[::-1] if"),
    text("the target of the step itself", "sequences", "targets[:-1]]))", "targets[1:]]))"),
    text("a vocabulary that lacks tokens", "sequences", "if lacking := found - set(vocab):", "if lacking := set():"),
    text("sentences in another order than translations", "translation", "(self._source, self._target)", "(self._source, self._target[::-1])"),
    text("padded on the right", "text_preprocessing", "row[length - len(tail) :]", "row[: len(tail)]"),
    text("the head of a long sentence", "text_preprocessing", "sentence[-length:]", "sentence[:length]"),
    text("the first unknown word is known", "text_preprocessing", "word if word < vocab_size else oov", "word if word <= vocab_size else oov"),
    text("sentences shuffled without their labels", "text_preprocessing", "dtype=np.int32)[order]", "dtype=np.int32)"),
    text("vectors of padding", "text_preprocessing", "W[:1] = 0", "pass"),
    task("outputs sorted the other way", "ticker", "np.argsort(-priorities", "np.argsort(priorities"),
    task("the mask of the batch before stays", "ticker", "mask[:] = 0", "pass"),
    task("defect 33: always the most repetitions", "ticker", "count = self._length(self.seq_len_max), self._length(self.repeat_count_max)", "count = self._length(self.seq_len_max), self.repeat_count_max"),
    task("numbers of the words are shifted", "questionanswer", "enumerate(self.vocab, 1)", "enumerate(self.vocab, 0)"),
    task("stories run on", "questionanswer", 'if number == "1":', "if False:"),
    task("defect 33: the subset is ignored", "questionanswer", "{self.FOLDER}/{self.subset}/", "{self.FOLDER}/en/"),
    task("an epoch is drawn anew when it is resumed", "drawing", "self.be.rng_set_state(resumed)", "pass"),
    image("defect 33: images shuffled without their labels", "image", "train = train[0][order], train[1][order]", "train = train[0][order], train[1]"),
    image("sym_range without an offset", "image", "X = X * 2 - 1", "X = X * 2"),
    image("padded at the left and top", "image", "((0, 0), (0, missing), (0, missing))", "((0, 0), (missing, 0), (missing, 0))"),
    image("contrast without the mean", "whitening", "centred = X - X.mean(axis=1, keepdims=True)", "centred = X"),
    image("whitened with the inverse, not its root", "whitening", "vectors / np.sqrt(values)", "vectors / values"),
    image("mirrored upside down", "images", "pixels[:, :, ::-1]", "pixels[:, ::-1]"),
    image("always the middle", "images", "(0.5, 0.5) if self.center else rng.uniform(size=2)", "(0.5, 0.5)"),
    image("contrast about black", "images", "towards = changed.mean(dtype=np.float32)", "towards = 0"),
    image("values wrap around", "images", "np.clip(np.rint(changed), 0, 255).astype(np.uint8)", "np.rint(changed).astype(np.int64).astype(np.uint8)"),
    image("a shuffled epoch skips the samples that completed the last", "imagefolder", "if not self.shuffle:", "if True:"),
    image("a sentence has no end", "imagecaption", "targets[len(numbers), column] = 0", "pass"),
    image("the end does not count", "imagecaption", "(targets >= 0)", "(targets > 0)"),
    download("a part of another version is continued", "fetch", 'request.add_header("If-Range", known)', "pass"),
    download("another part than was asked for", "fetch", "_first_byte(answer) != have", "False"),
    download("a whole file added to its part", "fetch", "file.truncate(0)", "pass"),
    download("a file that was cut off is taken", "fetch", "if total and _length(part) < total:", "if False:"),
    download("checksums are not compared", "fetch", "if summer.hexdigest() != expected.lower():", "if False:"),
    download("archives write anywhere", "datasets", "if os.path.commonpath([folder, target]) != folder:", "if False:"),
    ranks("samples of the first rank for all", "protocol", "(first + be.ranks.rank * bsz) % ndata", "first % ndata"),
    ranks("batches of one rank", "protocol", "if not (size := be.global_bsz):", "if not (size := be.bsz):"),
    ranks("numbers of images of the ranks before not drawn", "imagefolder", "            self.augmentation.skip(own.start, rng)\n", ""),
    ranks("numbers of images of the ranks behind not drawn", "imagefolder", "            self.augmentation.skip(self._batch_size() - own.stop, rng)\n", ""),
    ranks("numbers of the box not counted", "images", "(not self.center) * 2", "(not self.center)"),
    ranks("sequences of the first rank for all", "sequences", "part[own, batch]", "part[: self.be.bsz, batch]"),
    ranks("questions of the first rank for all", "questionanswer", "order[batch * size :][own]", "order[batch * size :][: self.be.bsz]"),
    ranks("captions of the first rank for all", "imagecaption", "order[batch * size :][own]", "order[batch * size :][: self.be.bsz]"),
    ranks("images to describe of the next rank, too", "imagecaption", "first + own.start : first + own.stop", "first + own.start : first + own.stop + 1"),
    ranks("sentences of this rank alone", "imagecaption", "by_rank = self.be.ranks.tell(batches, \"captions\")", "by_rank = [batches]"),
    ranks("each rank draws its bits alone", "ticker", "drawn[:, :, self.be.own_columns]", "drawn[:, :, : self.be.bsz]"),
    ranks("rows of the first rank for all", "dataloaderadapter", "array[self.be.own_columns]", "array[: self.be.bsz]"),
    ranks("rows of this rank are cut again", "dataloaderadapter", "self.be.num_ranks == 1 or shares_batches(self.dataloader)", "self.be.num_ranks == 1"),
    ranks("each rank saves an image", "dataloader_transformers", "return column if rank == ranks.rank else None", "return column"),
    ranks("a subclass with batches of its own inherits that they are shared", "sharing", "if not MAKERS.isdisjoint(vars(kind)):", "if False:"),
    ranks("a wrapper shares what its iterator does not", "prefetch", "return shares_batches(self.iterator)", "return True"),
    Mutant("ranks", "each rank counts the samples of the first", "neonlike/layers/core/cost.py", "weights[:, :, self.be.own_columns]", "weights[:, :, : self.be.bsz]"),
)
