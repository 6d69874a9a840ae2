"""Faults in users of descriptors: movers of samples, windows, mapped tensors, batch normalisation as an object."""

# ruff: noqa: E501  (one fault, one line: the tables read across)

from __future__ import annotations

from tests.planted.table import Mutant

BACKENDS = "neonlike/backends/"
OBJECTS = BACKENDS + "objects/"
DESC, WINDOW, MOVERS, MAPPED = BACKENDS + "descriptors.py", BACKENDS + "batch_window.py", OBJECTS + "movers.py", OBJECTS + "mapped.py"
OP, RECORD, TREES = OBJECTS + "batchnorm.py", OBJECTS + "batchnorm_record.py", OBJECTS + "batchnorm_trees.py"
PROTECTED, FILES = OBJECTS + "protected.py", OBJECTS + "filemap.py"
WORK, BLAS = OBJECTS + "workspace.py", OBJECTS + "blas.py"

MUTANTS = (
    Mutant("described", "the batch is always the first axis", DESC, "return None if found < 0 else found", "return None if found < 0 else 0"),
    Mutant("described", "axes left out may have any size", DESC, "if letter not in layout and size != 1:", "if False:"),
    Mutant("described", "the layout of a tensor's descriptor does not count", DESC, "tensor.desc.layout != self.layout and tensor.ndim == self.ndim", "False"),
    Mutant("described", "offset: a window leaves at the end", WINDOW, "+ by < larger.shape[place]", "+ by <= larger.shape[place]"),
    Mutant("described", "offset: a window leaves at the beginning", WINDOW, "min(taken[0], taken[-1]) + by >= 0", "min(taken[0], taken[-1]) + by >= -1"),
    Mutant("described", "offset: steps ignored", WINDOW, "_slice(taken[0] + by, taken[-1] + by, taken.step)", "_slice(taken[0] + by, taken[0] + by + len(taken) - 1, 1)"),
    Mutant("described", "offset: what was reversed counts as forward", WINDOW, "start if steps[axis] > 0 else larger.shape[axis] - 1 - start", "start"),
    Mutant("described", "offset: only the nearest tensor counts", WINDOW, "part, whole = whole, whole.base", "return"),
    Mutant("described", "offset: transposes count as slices", WINDOW, "return found if cut.layout == tensor.layout and cut.ptr == tensor.ptr else None", "return found"),
    Mutant("described", "offset: the descriptor is lost", WINDOW, "                view.desc = tensor.desc\n", "                pass\n"),
    Mutant("described", "transformer: samples not counted", MOVERS, "if self.src_desc.with_layout(self.dst_desc.layout).shape != self.dst_desc.shape:", "if False:"),
    Mutant("described", "batcher: the last minibatch is left out", MOVERS, "range(0, self.src_desc.batch_size, self.mb_size)", "range(0, self.src_desc.batch_size - self.mb_size + 1, self.mb_size)"),
    Mutant("described", "batcher: as many samples as dst has", MOVERS, "count = min(self.mb_size, size - start)", "count = min(room, size - start)"),
    Mutant("described", "batcher: written beyond dst", MOVERS, "if not 0 <= place <= room - count:", "if not 0 <= place <= room:"),
    Mutant("described", "batcher: windows without a descriptor", MOVERS, "            view.desc = self.dst_desc.with_batch(count)\n", "            pass\n"),
    Mutant("described", "shuffler: too many indices are cut", MOVERS, "if chosen.size > room:", "if False:"),
    Mutant("described", "mapped: views may be written", PROTECTED, '        put(view, "writeable", self.writeable)\n', ""),
    Mutant("described", "mapped: lists of positions may be written", BACKENDS + "cpu/tensor.py", '        self.check_writeable("assignment")\n', ""),
    Mutant("described", "mapped: a file is in memory twice where once would do", FILES, "whole: Any = next(fitting, None)", "whole: Any = None"),
    Mutant("described", "mapped: positions in files not compared", FILES, "return 2 if low < other_high and other_low < high else 0", "return 0"),
    Mutant("described", "mapped: views of a second mapping go the short way", MAPPED, "return not self.writeable or self.place.again", "return not self.writeable"),
    Mutant("described", "elements that overlap are not seen", PROTECTED, "        if step < reach:\n", "        if False:\n"),
    Mutant("described", "steps that interlock count as overlapping", PROTECTED, "return step == 0 or _coincide(axes)", "return True"),
    Mutant("described", "mapped: a closed tensor keeps its memory", MAPPED, "                object.__delattr__(self, name)", "                pass"),
    Mutant("described", "mapped: too short a file", MAPPED, "os.path.getsize(name) < end:", "os.path.getsize(name) < desc.nbytes:"),
    Mutant("described", "assignments write what is mapped to be read", BACKENDS + "executor.py", "            if not target.writeable:\n", "            if False:\n"),
    Mutant("described", "products write what is mapped to be read", "neonlike/backends/primitives/linalg.py", "        if not C.writeable:\n", "        if False:\n"),
    Mutant("described", "workspace: offsets beyond the end", WORK, "if start + needed > self.nbytes:", "if needed > self.nbytes:"),
    Mutant("described", "workspace: side by side without gaps", WORK, "end += round_up(TensorDesc.of(desc).nbytes, GRANULE)", "end += TensorDesc.of(desc).nbytes"),
    Mutant("described", "blas: norms overflow", BLAS, "return largest * math.sqrt(float(be.sum(be.square(x / largest))))", "return math.sqrt(float(be.sum(be.square(x))))"),
    Mutant("described", "blas: a rank-1 update replaces", BLAS, "compound_dot(column, row.T, A, alpha=alpha, beta=1.0)", "compound_dot(column, row.T, A, alpha=alpha, beta=0.0)"),
    Mutant("batchnorm_op", "factor and rho exchanged", OP, "rows[\"y\"], epsilon, 1 - factor, True, beta,", "rows[\"y\"], epsilon, factor, True, beta,"),
    Mutant("batchnorm_op", "each activation is its channel", OP, 'if self.mode == "per_activation" else CHANNELS', 'if self.mode == "" else CHANNELS'),
    Mutant("batchnorm_op", "another epsilon backwards", OP, "if epsilon != trained:", "if False:"),
    Mutant("batchnorm_op", "a running variance of 0 at first", OP, "        self._variance.fill(1)\n", ""),
    Mutant("batchnorm_op", "staging again keeps the epsilon", OP, "        self.epsilon = self.averaging_factor = None\n        column", "        column"),
    Mutant("batchnorm_op", "overlap not seen", OP, "if tensor.alias_of(given) == 2:", "if False:"),
    Mutant("batchnorm_op", "record: no statistics restored", RECORD, "        tensor.set(values[name])\n", "        pass\n"),
    Mutant("batchnorm_op", "record: epsilon forgotten", RECORD, "    op.epsilon, op.averaging_factor = numbers\n", ""),
    Mutant("batchnorm_op", "record: strides not looked at", RECORD, 'if list(record["strides"]) != list(desc.strides):', "if False:"),
    Mutant("batchnorm_op", "trees: nan of dy counts", TREES, "error = rows.present(be.where(be.isnan(error), 0, error))", "error = rows.present(error)"),
    Mutant("batchnorm_op", "trees: all elements counted", TREES, "be.maximum(self.count - missing, 1).astensor()", "self.count"),
    Mutant("batchnorm_op", "trees: rows without a number move the running statistics", TREES, "moved if missing is None else", "moved if True else"),
    Mutant("batchnorm_op", "trees: the mean in one part", TREES, "variance = be.maximum(squares / count - be.square(rest), 0).astensor()\n    xhat = rows.normal(centred - rows.column(rest), variance, epsilon)", "variance = be.maximum(squares / count - be.square(rest), 0).astensor()\n    xhat = rows.normal(centred, variance, epsilon)"),
    Mutant("batchnorm_op", "trees: old values of the gradients do not count", TREES, "_blended(alpha_param, dscale, beta_param,", "_blended(alpha_param, dscale, 0,"),
    Mutant("batchnorm_op", "trees: the gradient where x is nan", TREES, "dx = rows.present(rows.column(columns[\"scale\"])", "dx = (rows.column(columns[\"scale\"])"),
)
