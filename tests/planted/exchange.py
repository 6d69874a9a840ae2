"""Faults in weights and models of other programs' formats."""

# ruff: noqa: E501  (one fault, one line: the tables read across)

from __future__ import annotations

from tests.planted.table import Mutant

EXCHANGE = "neonlike/exchange/"
TORCH, ONNX = EXCHANGE + "torch_layers.py", EXCHANGE + "onnx/"

MUTANTS = tuple(
    Mutant(family, name, file, old, new)
    for family, name, file, old, new in (
        ("weights", "shapes are not compared", EXCHANGE + "differences.py", "given[name] != shape", "len(given[name]) != len(shape)"),
        ("weights", "running statistics are left out", EXCHANGE + "places.py", "        found.update({f\"{path}.{name}\": value.get() for name, value in values.items() if value is not None})", "        found.update({f\"{path}.{name}\": value.get() for name, value in values.items() if name not in (\"gmean\", \"gvar\")})"),
        ("weights", "a layer is set before the next is checked", EXCHANGE + "weights.py", "    if strict:\n        _require_none(found, path, done)\n", "    load(model.layers, {name: array for name, array in arrays.items() if name == \"0.W\"})\n    if strict:\n        _require_none(found, path, done)\n"),
        ("torch", "square filters are transposed", TORCH, "np.moveaxis(arrays[\"weight\"], 0, -1)", "np.swapaxes(arrays[\"weight\"], 0, -1)"),
        ("torch", "gates are in our order", TORCH, "LSTM_GATES = (0, 1, 3, 2)", "LSTM_GATES = (0, 1, 2, 3)"),
        ("torch", "the second bias is dropped", TORCH, "arrays[f\"bias_ih_l0{theirs}\"] + arrays[f\"bias_hh_l0{theirs}\"]", "arrays[f\"bias_ih_l0{theirs}\"]"),
        ("torch", "both directions read forward weights", TORCH, "arrays[f\"weight_hh_l0{theirs}\"], order)", "arrays[\"weight_hh_l0\"], order)"),
        ("torch", "the bias behind the reset gate is added before it", TORCH, "b = np.concatenate([of_gates, inputs[2 * units :]])", "b = np.concatenate([of_gates, inputs[2 * units :] + states[2 * units :]])"),
        ("torch", "a GRU is reset before the product", "neonlike/layers/recurrent/reset_after.py", "passed = of_state[2 * units :] + b_recur", "passed = ops.matmul(W_recur, ops.sigmoid(r) * h)[2 * units :] + b_recur"),
        ("torch", "eps stays that of the layers", EXCHANGE + "torch_weights.py", "found.append((unit.layer, \"eps\", _number(own, \"eps\")))", "pass"),
        ("onnx", "square weights of steps are not transposed", ONNX + "write_dense.py", "layer.W.get().T)", "layer.W.get())"),
        ("onnx", "square weights are read transposed", ONNX + "read_dense.py", "(weight if own.transB else weight.T)", "weight"),
        ("onnx", "padding of the end is left out", ONNX + "write_images.py", "\"pads\": [*padding, *padding]", "\"pads\": [*padding, *(0 * pad for pad in padding)]"),
        ("onnx", "padding of one end is put at the other", ONNX + "windows.py", "Pad(tuple(before), tuple(after), value)]", "Pad(tuple(after), tuple(before), value)]"),
        ("onnx", "padding of maxima is 0", ONNX + "read_images.py", "LOWEST if op", "0.0 if op"),
        ("onnx", "automatic padding begins with the larger part", ONNX + "windows.py", "own.auto_pad == \"SAME_UPPER\" else", "own.auto_pad != \"SAME_UPPER\" else"),
        ("onnx", "output_padding is cut off", ONNX + "read_images.py", "[wider - size for size, wider in zip(after, more)]", "[-wider - size for size, wider in zip(after, more)]"),
        ("onnx", "folded padding replaces that of the convolution", ONNX + "patterns.py", "[int(a + b) for a, b", "[int(0 * a + b) for a, b"),
        ("onnx", "padding is folded for one of two readers", ONNX + "patterns.py", "        read = _reader(graph, node, \"Conv\")\n", "        read = next((one for one in graph.consumers(node.outputs[0]) if one.operator == \"Conv\"), None)\n"),
        ("onnx", "three axes are steps and features before convolutions", ONNX + "importing.py", "        one.operator in OF_MAPS or", "        one.operator in () or"),
        ("onnx", "dilation of sequences is dropped", ONNX + "windows.py", "[1, *self.strides], [1, *self.dilations]", "[1, *self.strides], [1, *(1 for _ in self.dilations)]"),
        ("onnx", "the last state of the second direction is that of the last step", ONNX + "read_dense.py", "return [Lambda(backward), RecurrentLast(), Lambda(second", "return [RecurrentLast(), Lambda(second"),
        ("onnx", "states are picked from the first level", ONNX + "patterns.py", "of, direction, directions = states[place]", "of, direction, directions = states[place % 2]"),
        ("onnx", "both directions of a GRU read the first weights", ONNX + "read_recurrent.py", "row = int(way == \"_b\")", "row = 0"),
        ("onnx", "the second direction of a GRU is not turned back", ONNX + "read_recurrent.py", "second, *_turned(True)]", "second]"),
        ("onnx", "summands of steps are not turned", ONNX + "functions.py", "turned = {\"steps\": (2, 1, 0), ", "turned = {"),
        ("onnx", "flattened images have the maps first", ONNX + "functions.py", "ops.transpose(ops.transpose(x, 0, 1), 1, 2)", "x"),
        ("onnx", "every nearest pixel is a repeated one", ONNX + "functions.py", "not in REPEATING:", "is None:"),
        ("layers", "cutting off leaves old errors", "neonlike/layers/images/pad.py", "if min(*self.before, *self.after) < 0 or beta:", "if beta:"),
        ("onnx", "gates of an LSTM are in our order, both ways", ONNX + "write_recurrent.py", "LSTM_GATES = (0, 2, 1, 3)", "LSTM_GATES = (0, 1, 2, 3)"),
        ("onnx", "the update gate keeps its sign", ONNX + "write_recurrent.py", "part[:, : layer.nout] *= -1", "part[:, : layer.nout] *= 1"),
        ("onnx", "dropout is the identity", ONNX + "write_dense.py", "if layer.caffe_mode or layer.keep == 1", "if layer.keep"),
        ("onnx", "padding counts in means", ONNX + "read_images.py", "bool(getattr(own, \"count_include_pad\", 0)) or", "getattr(own, \"count_include_pad\", 0) > 1 or"),
        ("onnx", "twice a GELU is one", ONNX + "patterns.py", "abs((_factor(found[0]) or 0.0) - 0.5) < 1e-6", "_factor(found[0])"),
        ("onnx", "an earlier softmax is a later one", ONNX + "read_dense.py", "flattens = reader.graph.opset < 13", "flattens = reader.graph.opset < 1"),
        ("onnx", "constants among steps are dropped", ONNX + "read_dense.py", "    if len(node.data) != len(node.inputs):\n        node.refuse(\"a constant among", "    if result.form != \"steps\" and len(node.data) != len(node.inputs):\n        node.refuse(\"a constant among"),
        ("onnx", "Caffe's windows are read", ONNX + "read_images.py", "compat_mode == \"caffe\" and", "compat_mode == \"neon\" and"),
        ("torch", "a level is guessed from a module's name", EXCHANGE + "torch_weights.py", "modules[name].full_name(key) if modules else", "modules[name].full_name(key) if modules is None else"),
        ("weights", "names are compared when the model is set up", EXCHANGE + "weights.py", "        if strict:\n            _require", "        if not strict:\n            _require"),
        ("onnx", "branches that cross are read twice", ONNX + "reader.py", "            if id(node) in self._read:", "            if node is None:"),
    )
)  # fmt: skip
