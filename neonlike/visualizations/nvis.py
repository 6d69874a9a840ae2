"""The command ``nvis``: an HTML page of the costs, histograms and pictures in a callback file."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from neonlike import console
from neonlike.distributed.first import by_first
from neonlike.errors import NeonlikeError
from neonlike.util.persist import expand
from neonlike.visualizations.data import h5_cost_data, h5_deconv_data, h5_hist_data
from neonlike.visualizations.page import curves, histogram, page, responses

__all__ = ["main", "program", "write_page"]


def write_page(metrics: str, folder: str, axis: str = "epoch") -> str:
    """Write ``index.html`` for a file of metrics into a folder, created if missing, and return its path.

    Parameters
    ----------
    metrics : path
        HDF5 file of ``Callbacks(output_file=...)``.
    folder : path
        Folder for the page.
    axis : str
        ``"epoch"`` or ``"minibatch"``: unit of the x axis.

    Returns
    -------
    str
        Path of the page.

    Examples
    --------
    >>> import os
    >>> import tempfile
    >>> import numpy as np
    >>> from neonlike.backends import gen_backend
    >>> from neonlike.callbacks import Callbacks
    >>> from neonlike.data import ArrayIterator
    >>> from neonlike.initializers import Constant
    >>> from neonlike.layers import GeneralizedCost, Linear
    >>> from neonlike.models import Model
    >>> from neonlike.optimizers import GradientDescentMomentum
    >>> from neonlike.transforms import SumSquared
    >>> from neonlike.visualizations.nvis import write_page
    >>> be = gen_backend("cpu", batch_size=2)
    >>> model = Model([Linear(1, Constant(0.0))])
    >>> data = ArrayIterator(np.ones((4, 3)), np.ones((4, 1)), make_onehot=False)
    >>> callbacks = Callbacks(model, progress_bar=False)
    >>> folder = tempfile.TemporaryDirectory()
    >>> callbacks = Callbacks(model, output_file=os.path.join(folder.name, "run.h5"), progress_bar=False)
    >>> cost, descent = GeneralizedCost(SumSquared()), GradientDescentMomentum(0.25, momentum_coef=0.0)
    >>> model.fit(data, cost, descent, num_epochs=2, callbacks=callbacks)
    >>> page = write_page(os.path.join(folder.name, "run.h5"), os.path.join(folder.name, "page"))
    >>> os.path.basename(page)
    'index.html'
    >>> folder.cleanup()
    """
    path = os.path.join(folder, "index.html")
    by_first(lambda: _write(path, metrics, axis))
    return path


def _write(path: str, metrics: str, axis: str) -> None:
    by_epoch = axis == "epoch"
    sections = [curves(h5_cost_data(metrics, by_epoch), axis)]
    if histograms := h5_hist_data(metrics, by_epoch):
        sections += ["<h2>Histograms</h2>", *map(histogram, histograms)]
    if layers := h5_deconv_data(metrics):
        sections += ["<h2>What feature maps respond to</h2>", *(responses(*layer) for layer in layers)]
    os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
    with open(path, "w", encoding="utf-8") as file:
        file.write(page(os.path.basename(metrics), sections))


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit status."""
    parser = argparse.ArgumentParser(prog="nvis", description="Shows what callbacks recorded, as a page.")
    parser.add_argument("-i", "--input", required=True, help="HDF5 file of Callbacks(output_file=...)")
    parser.add_argument("-o", "--output", default="./nvis/", help="folder to write index.html to")
    parser.add_argument("--axis", choices=("epoch", "minibatch"), default="epoch", help="what costs are drawn over")
    args = parser.parse_args(argv)
    try:
        print(write_page(expand(args.input), expand(args.output), args.axis))
    except (NeonlikeError, OSError) as error:
        print(f"nvis: {error}", file=sys.stderr)
        return 1
    return 0


def program() -> int:
    """The command ``nvis``."""
    return console.run(main)


if __name__ == "__main__":
    sys.exit(program())
