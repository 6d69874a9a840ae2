"""The ranks of this process: found in the environment that an MPI launcher sets, and joined by mpi4py."""

from __future__ import annotations

import sys
from functools import lru_cache

from neonlike import settings
from neonlike.distributed import faults
from neonlike.distributed.agreement import agree
from neonlike.distributed.mpi import MpiRanks
from neonlike.distributed.ranks import ALONE, Ranks
from neonlike.errors import MissingExtra
from neonlike.logger import log_errors_of, logger
from neonlike.version import __version__


def ranks_of(distributed: bool | None) -> Ranks:
    """The ranks of this process.

    Parameters
    ----------
    distributed : bool or None
        None: those that an MPI launcher has started, if it has started several; True: in any case by MPI; False: this
        process alone.

    Raises
    ------
    MissingExtra
        If mpi4py is needed and not installed.
    """
    started = settings.launched()
    if distributed is None and settings.child_of_rank():
        _warn_of_child()
    if distributed is False or (distributed is None and started < 2):
        faults.stay_alone()
        return ALONE
    return _joined(started)


@lru_cache(maxsize=1)
def _warn_of_child() -> None:
    logger.warning("gen_backend: a rank of an MPI program has started this process, which is none and computes alone")


@lru_cache(maxsize=1)
def _joined(started: int) -> Ranks:
    """The ranks by MPI, which is started once in a process."""
    ours = "mpi4py.MPI" not in sys.modules
    try:
        import mpi4py

        if ours:
            mpi4py.rc.finalize = False  # which a process that is forked from a rank would do at its end, too
        from mpi4py import MPI
    except (ImportError, RuntimeError) as error:
        began = f"an MPI launcher started {started} processes, but" if started > 1 else "distributed=True, but"
        raise MissingExtra(
            f"gen_backend: {began} mpi4py cannot be imported ({error}); install it with: pip install 'neonlike[mpi]', "
            "which brings an mpiexec, too, or give distributed=False for a process alone"
        ) from error
    settings.note_rank()
    ranks = MpiRanks(MPI)
    if ranks.size < 2:
        _warn_if_apart(started)
    faults.watch(ranks, MPI, ends=ours)
    agree(ranks, "gen_backend", {"version of neonlike": __version__})
    ranks.checked = any(ranks.tell(settings.MPI_CHECK.get(), "settings"))
    return ranks


def _warn_if_apart(started: int) -> None:
    """Say so if mpi4py belongs to another MPI than the launcher: each process would train alone."""
    if started > 1:
        raise MissingExtra(
            f"gen_backend: a launcher started {started} processes, but for mpi4py this one is alone: it belongs to "
            "another MPI than the launcher; start with the mpiexec of mpi4py's MPI (pip install 'neonlike[mpi]' puts "
            "one beside python), or build mpi4py with the launcher's: pip install --no-binary mpi4py mpi4py"
        )


if settings.launched() > 1:
    faults.end_before_joining()


def silence(ranks: Ranks) -> None:
    """Let rank 0 alone print and log, unless ``NEONLIKE_MPI_OUTPUT`` says that all may; all log their errors."""
    others_too = settings.MPI_OUTPUT.get() == "all"
    log_errors_of(0 if others_too else ranks.rank)
    if ranks.rank and not others_too:
        faults.mute()
