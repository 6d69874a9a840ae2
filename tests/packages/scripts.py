"""Programs that tests start as processes of their own, in places and on systems of all kinds."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests import ROOT

USE = """
import pathlib, sys
import numpy as np
from neonlike.backends import gen_backend
from neonlike.callbacks.callbacks import Callbacks
from neonlike.data import ArrayIterator
from neonlike.initializers import Constant, GlorotUniform
from neonlike.layers import Affine, GeneralizedCost
from neonlike.models import Model
from neonlike.optimizers import GradientDescentMomentum
from neonlike.transforms import CrossEntropyMulti, Rectlin, Softmax

be = gen_backend("cpu", batch_size=8, rng_seed=0)
a = be.array(np.linspace(-1, 1, 12).reshape(3, 4))
out = be.empty((3, 4))
out[:] = be.sig(a * 2 + 1)
np.testing.assert_allclose(out.get(), 1 / (1 + np.exp(-(a.get() * 2 + 1))), rtol=1e-5)
rng = np.random.default_rng(0)
x, y = rng.random((32, 6), np.float32), np.arange(32) % 3
init = GlorotUniform()
def network():
    return Model([Affine(5, init, bias=Constant(0), activation=Rectlin()), Affine(3, init, activation=Softmax())])
model, train = network(), ArrayIterator(x, y, nclass=3)
cost = GeneralizedCost(costfunc=CrossEntropyMulti())
callbacks = Callbacks(model, serialize=1, history=2, save_path=sys.argv[1])
model.fit(train, optimizer=GradientDescentMomentum(0.1, 0.9), num_epochs=3, cost=cost, callbacks=callbacks)
again = network()
again.load_params(sys.argv[1])
np.testing.assert_array_equal(again.get_outputs(train), model.get_outputs(train))
saved = sorted(path.name for path in pathlib.Path(sys.argv[1]).parent.glob("*.prm"))
print("engine", be.engine.name, "files", *saved)
"""
"""Computes an expression; trains, saves and loads a network; prints the engine and the files that it left."""


def run_script(text: str, *arguments: object, **environment: str | None) -> subprocess.CompletedProcess[str]:
    """Run a program with the checkout on its path; a variable that is None is not set."""
    wanted = {"PYTHONPATH": str(ROOT), **environment}
    kept = {name: value for name, value in os.environ.items() if name not in wanted}
    return subprocess.run(
        [sys.executable, "-c", text, *map(str, arguments)],
        env=kept | {name: value for name, value in wanted.items() if value is not None},
        cwd=Path(str(arguments[0])).parent if arguments else None, capture_output=True, text=True, encoding="utf-8",
        timeout=300,
    )  # fmt: skip
