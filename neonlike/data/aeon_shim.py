"""Loader of the optional package aeon."""

from __future__ import annotations

from typing import Any

from neonlike.data.dataloaderadapter import DataLoaderAdapter
from neonlike.errors import MissingExtra

__all__ = ["AeonDataLoader"]


def AeonDataLoader(config: dict[str, Any], adapter: bool = True) -> Any:  # noqa: N802  neon's name
    """Create a loader of aeon.

    Parameters
    ----------
    config : dict
        aeon's configuration. Several ranks need the ``batch_size`` of all, ``be.global_bsz``, and if it shuffles, the
        same ``random_seed``: each takes its rows of a batch.
    adapter : bool
        Copy its batches to the backend (:class:`DataLoaderAdapter`); otherwise the loader itself is returned.

    Raises
    ------
    MissingExtra
        If aeon is not installed; an ``ImportError``.
    """
    try:
        from aeon import DataLoader
    except ImportError as error:
        raise MissingExtra(
            "AeonDataLoader needs Nervana's package aeon, which is built from source; for images in folders use "
            "neonlike.data.ImageFolder, which augments alike"
        ) from error
    loader = DataLoader(config)
    return DataLoaderAdapter(loader) if adapter else loader
