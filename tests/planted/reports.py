"""Faults in reports of runs, TensorBoard's events, traces and explanations."""

# ruff: noqa: E501  (one fault, one line: the tables read across)

from __future__ import annotations

from tests.planted.table import KERNELS, MODELS, Mutant

CALLBACKS, REPORT = "neonlike/callbacks/", "neonlike/report/"


def report(name: str, file: str, old: str, new: str) -> Mutant:
    return Mutant("reports", name, file, old, new)


MUTANTS = (
    report("the least sure of wrong samples are kept", CALLBACKS + "results.py", "sure <= self._wrong[0][0]", "sure >= self._wrong[0][0]"),
    report("answers of the first rank only", CALLBACKS + "results.py", "(sum(counts) if counts", "(counts[0] if counts"),
    report("layers stay measured", CALLBACKS + "sampling.py", "            del layer.fprop, layer.bprop\n", "            pass\n"),
    report("no report on Ctrl-C", CALLBACKS + "callbacks.py", "(os.fspath(self.save_path))\n        self._finish()\n", "(os.fspath(self.save_path))\n"),
    report("the record stays open after a fault of the report", CALLBACKS + "callbacks.py", "        finally:\n            if self._is_open():", "        except ZeroDivisionError:\n            if self._is_open():"),
    report("layers stay measured after an error", CALLBACKS + "callbacks.py", "            one.release()\n", "            pass\n"),
    report("results of callbacks added later are lost", CALLBACKS + "callbacks.py", "sorted(self.callbacks, key=_reads_others)", "self.callbacks"),
    report("the report's histograms stay beside the user's", CALLBACKS + "callbacks.py", "            self.callbacks.remove(own)\n", "            return\n"),
    report("histograms of epochs are read as those of minibatches", CALLBACKS + "recording.py", "            for tag in records(group):\n", "            for tag in ():\n"),
    report("rates of a training before are lost", CALLBACKS + "callbacks.py", '"time", "deconv", "run")', '"time", "deconv", "run", "rate")'),
    report("pages of other machines may ask", REPORT + "watch.py", 'partition(":")[0] not in NAMES', 'partition(":")[0] in ()'),
    report("a half-written file empties the page", REPORT + "watch.py", "runs = [self._known[file] for file in self.files if file in self._known]", "runs = [self._known.pop(file) for file in self.files if file in self._known]"),
    report("attributes of a graph are kept", REPORT + "safe_svg.py", "if key in ATTRIBUTES and", "if"),
    report("links of a graph are kept", REPORT + "safe_svg.py", 'if name == "a":', "if False:"),
    report("a record begins in the first epoch", "neonlike/visualizations/data.py", "int(marked[-1]) + 1 if", "len(marked) if"),
    report("the least sure of a batch are kept", CALLBACKS + "results.py", "np.argsort(-sure[columns]", "np.argsort(sure[columns]"),
    report("no reason why many classes have no matrix", CALLBACKS + "results.py", "why or crowded", "why"),
    report("inputs have the words of the targets", CALLBACKS + "results.py", '_words(dataset, "s_index_to_token") or self._words', "self._words"),
    report("a call counts as a minibatch", CALLBACKS + "sampling.py", "sums.get(self._minibatch, 0.0) + be", "be"),
    report("layers of one name are merged", CALLBACKS + "sampling.py", "told_apart([layer.name for layer in layers])", "[layer.name for layer in layers]"),
    Mutant("event_files", "a resumed training repeats steps", CALLBACKS + "tensorboard.py", "done + 1 if done else None", "None"),
    Mutant("event_files", "values that are missing are written", CALLBACKS + "tensorboard.py", "if math.isfinite(value)]", "]"),
    Mutant("traces", "calls of a device overlap", KERNELS + "bench/trace.py", "start = max(start, end)", "start = max(start, 0.0)"),
    Mutant("plots", "branches begin at the input", MODELS + "graph.py", "before = self._junctions.setdefault(id(layer), before)", "self._junctions.setdefault(id(layer), before)"),
)  # fmt: skip
