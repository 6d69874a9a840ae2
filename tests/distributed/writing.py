"""A program that trains and writes files as one of several ranks; every rank notes what it saw in a file of its own."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from neonlike.callbacks import Callbacks
from neonlike.callbacks.callbacks import SaveBestStateCallback
from neonlike.callbacks.store import open_store
from neonlike.distributed.first import by_first
from neonlike.errors import NeonlikeError
from neonlike.initializers import Constant, GlorotUniform
from neonlike.layers import Affine, GeneralizedCost
from neonlike.logger import logger
from neonlike.models import Model, saving
from neonlike.nervanaobject import NervanaObject
from neonlike.optimizers import GradientDescentMomentum
from neonlike.transforms import CrossEntropyMulti, Softmax, Tanh
from neonlike.util.argparser import NeonArgparser
from neonlike.visualizations.nvis import write_page
from tests.distributed.shares import Shares

NIN, NCLASS = 5, 4
EPOCHS = 4


def samples(count: int) -> Shares:
    rng = np.random.default_rng(count)
    return Shares(
        rng.normal(size=(count, NIN)).astype(np.float32), np.eye(NCLASS, dtype=np.float32)[rng.integers(4, size=count)]
    )


def network() -> Model:
    init = GlorotUniform()
    last = Affine(NCLASS, init, bias=Constant(0), activation=Softmax())
    return Model([Affine(6, init, bias=Constant(0), activation=Tanh()), last])


def train(model: Model, epochs: int, callbacks: Any) -> None:
    optimizer = GradientDescentMomentum(0.2, 0.9)
    model.fit(samples(48), GeneralizedCost(CrossEntropyMulti()), optimizer, epochs, callbacks)


def weights(model: Model) -> list[float]:
    return [float(value) for layer in model.layers_to_optimize for value in layer.W.get().ravel()]


def fault_of(work: Callable[[], Any]) -> str:
    """The class of the error that ``work`` raises."""
    try:
        work()
    except (OSError, ValueError, KeyboardInterrupt, NeonlikeError) as error:
        return type(error).__name__
    return ""


def trained(folder: Path) -> dict[str, Any]:
    """A training that keeps a history of files, the best state and its records; another goes on from a file."""
    model, valid, records = network(), samples(31), str(folder / "records.h5")
    callbacks = Callbacks(
        model, eval_set=valid, eval_freq=1, output_file=records, save_path=str(folder / "m.prm"), history=2
    )
    callbacks.add_callback(SaveBestStateCallback(str(folder / "best.prm")))
    kept = type(callbacks.callback_data).__name__
    train(model, 2, callbacks)
    model.save_params(str(folder / "two.prm"))
    after_two = weights(Model(str(folder / "m_1.prm")))
    train(model, EPOCHS, callbacks)
    exchanged = network()
    model.save_safetensors(folder / "m.safetensors")
    exchanged.load_safetensors(folder / "m.safetensors")
    store = open_store(records, "r")
    seen = {
        "kept": kept, "after two": after_two, "weights": weights(model), "losses": store["cost/loss"][...].tolist(),
        "read back": weights(Model(str(folder / "m.prm"))), "exchanged": weights(exchanged),
        "page": len(Path(write_page(records, str(folder))).read_text(encoding="utf-8")),
    }  # fmt: skip
    store.close()
    return seen


def resumed(file: str) -> dict[str, Any]:
    """A training that goes on from a file of two epochs."""
    model = network()
    callbacks = Callbacks(model, eval_set=samples(31), eval_freq=1, progress_bar=False, model_file=file)
    train(model, EPOCHS, callbacks)
    store = callbacks.callback_data
    return {"resumed": weights(model), "resumed losses": store["cost/loss"][...].tolist()}


def refused(folder: Path) -> dict[str, Any]:
    """Errors of rank 0, as every rank meets them."""
    model, saved = network(), Model(str(folder / "m.prm"))
    (folder / "file").touch()
    nowhere = str(folder / "file" / "m.prm")
    be = NervanaObject.be

    def odd() -> None:
        raise ValueError("an error that is not of this library")

    def interrupted() -> None:
        raise KeyboardInterrupt

    best = Callbacks(model, eval_set=samples(31), eval_freq=1, progress_bar=False)
    best.add_save_best_state_callback(nowhere)
    return {
        "save": fault_of(lambda: saved.save_params(nowhere)),
        "folder": fault_of(lambda: saved.save_params(str(folder))),
        "store": fault_of(lambda: Callbacks(model, output_file=nowhere)),
        "callback": fault_of(lambda: train(model, 1, Callbacks(model, save_path=nowhere, progress_bar=False))),
        "best": fault_of(lambda: train(model, 1, best)),
        "another": fault_of(lambda: by_first(odd)),
        "interrupt": fault_of(lambda: by_first(interrupted)),
        "work": by_first(lambda: be.rank + 1),
    }


def main() -> None:
    """Do all, and note it for the test."""
    folder, at = Path(sys.argv[1]), os.environ.get("PMI_RANK", "0")
    given = "-b", "cpu", "-z", "12", "-r", "1", "--mpi", "-l", str(folder / f"log{at}.txt"), "-v"
    NeonArgparser("Writes files.").parse_args(given)
    be = NervanaObject.be
    written: list[str] = []
    save_model = saving.save_model

    def noted(described: Any, path: Any) -> None:
        written.append(os.path.basename(path))
        save_model(described, path)

    saving.save_model = noted
    seen = {"rank": be.rank, **trained(folder), "written": list(written), **resumed(sys.argv[2]), **refused(folder)}
    logger.warning("a warning of %s", "all ranks")
    logger.display("shown by all ranks")
    logger.error("an error of %d%%", 100)
    (folder / f"{be.rank}.json").write_text(json.dumps(seen))


if __name__ == "__main__":
    main()
