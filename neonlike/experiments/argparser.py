"""Command line of neon scripts: options for run, backend and files, from arguments and config files.

Precedence: command line, then config file (``-c FILE`` or ``~/nervana/neon.cfg``), then defaults.
"""

from __future__ import annotations

import logging
import os
from argparse import ArgumentTypeError, Namespace
from collections.abc import Callable, Sequence
from functools import partial
from logging.handlers import RotatingFileHandler
from typing import IO, Any

import configargparse
import numpy as np

from neonlike.backends import gen_backend
from neonlike.backends.backend import Backend
from neonlike.backends.util.check_gpu import get_compute_capability
from neonlike.callbacks.callbacks import Callbacks
from neonlike.distributed.first import by_first
from neonlike.distributed.launch import ranks_of, silence
from neonlike.distributed.ranks import Ranks
from neonlike.errors import ArgumentError, NeonlikeError
from neonlike.logger import log_to, logger
from neonlike.models.timing import Profile, instead_of_training
from neonlike.nervanaobject import get_args
from neonlike.optree.dtypes import BFLOAT16
from neonlike.settings import PRECISIONS
from neonlike.util.persist import TEXT, ensure_dirs_exist, require_writable
from neonlike.version import __version__

__all__ = ["NeonArgparser", "extract_valid_args"]

WORK_DIR = os.path.join("~", "nervana")
DEFAULT_MODEL_FILE = "neon_model.pkl"
DATATYPES: dict[str, Any] = {"f16": np.float16, "bf16": BFLOAT16, "f32": np.float32, "f64": np.float64}
LOG_FILE_BYTES = 10 * 2**20
LOG_FILES_KEPT = 5
PATH_OPTIONS = ("data_dir", "save_path", "model_file", "output_file", "logfile")


LEAST_CAPABILITY = 5.0
"""Minimum compute capability for automatic GPU use: current CUDA compilers generate no code below it."""


class RoundingUnavailable(NeonlikeError, NotImplementedError):
    """Stochastic rounding was requested from a backend without it."""


def extract_valid_args(args: Namespace, func: Callable[..., Any], startidx: int = 0) -> dict[str, Any]:
    """Select the parsed options that are parameters of ``func``.

    Parameters
    ----------
    args : Namespace
        Parsed options.
    func : callable
        Function whose parameters are looked for.
    startidx : int
        Number of parameters to skip, e.g. 1 for the ``self`` of a method.

    Examples
    --------
    >>> from argparse import Namespace
    >>> from neonlike.experiments.argparser import extract_valid_args
    >>> extract_valid_args(Namespace(x=1, z=2), lambda x, y=0: None)
    {'x': 1}
    """
    names = list(get_args(func))[startidx:]
    return {name: getattr(args, name) for name in names if hasattr(args, name)}


def default_backend() -> str:
    """Default backend of a script: the GPU if there is a usable one, else the CPU."""
    return "gpu" if get_compute_capability() >= LEAST_CAPABILITY else "cpu"


class NeonArgparser(configargparse.ArgumentParser):  # type: ignore[misc]
    """Argument parser with the options shared by all scripts; parsing also sets up the log and the backend.

    Parameters
    ----------
    *args, **kwargs
        As for ``configargparse.ArgumentParser``, but the first positional one is the description.
    default_overrides : dict, optional
        Other defaults for the shared options, e.g. ``{"epochs": 20}``.
    default_config_files : list of str, optional
        Files with options; by default ``~/nervana/neon.cfg``.

    Examples
    --------
    >>> from neonlike.experiments.argparser import NeonArgparser
    >>> parser = NeonArgparser("trains a network", default_overrides={"epochs": 20})
    >>> options = parser.parse_args(["--backend", "cpu", "--batch_size", "64"], gen_be=False)
    >>> options.epochs, options.batch_size, options.backend
    (20, 64, 'cpu')
    """

    def __init__(self, *args: Any, default_overrides: dict[str, Any] | None = None, **kwargs: Any) -> None:
        self._parsed = False
        self.work_dir = os.path.expanduser(WORK_DIR)
        if args:
            kwargs["description"], args = args[0], args[1:]
        kwargs.setdefault("default_config_files", [os.path.join(self.work_dir, "neon.cfg")])
        kwargs.setdefault("add_config_file_help", False)
        kwargs.setdefault("conflict_handler", "resolve")  # scripts may reuse names of our options beyond neon's
        kwargs.setdefault("config_file_open_func", partial(open, encoding=TEXT))
        super().__init__(*args, **kwargs)
        self.args: Namespace | None = None
        self._add_run_options()
        self._add_file_options()
        self._add_backend_options()
        self._override_defaults(default_overrides or {})

    # -- options -------------------------------------------------------------------------------------------

    def _add_run_options(self) -> None:
        add = self.add_argument
        add("--version", action="version", version=f"%(prog)s {__version__}")
        add("-c", "--config", is_config_file=True, help="read options from this file")
        add("-v", "--verbose", action="count", default=1, help="more log messages; may be repeated")
        add("--no_progress_bar", action="store_true", help="do not show a progress bar")
        run = self.add_argument_group("run")
        add = run.add_argument
        add("-e", "--epochs", type=int, default=10, help="how many times to go over the training data")
        add("-z", "--batch_size", type=int, default=128, help="samples in a minibatch")
        add("-eval", "--eval_freq", type=int, default=None, help="evaluate every so many epochs")
        add("-H", "--history", type=int, default=1, help="how many saved models to keep")
        timing = self.add_argument_group("profile")
        add = timing.add_argument
        add("--profile", action="store_true", help="have model.fit time the model instead of training it")
        add("--profiling_method", choices=("time",), default="time", help="how to measure")
        add("--profile_inference", action="store_true", help="time the forward pass only")
        add("--profile_iterations", type=_count(1), default=50, help="minibatches to time")
        add("--profile_iter_skip", type=_count(0), default=5, help="minibatches before them to leave out")

    def _add_file_options(self) -> None:
        add = self.add_argument_group("files").add_argument
        add("-w", "--data_dir", default=os.path.join(WORK_DIR, "data"), help="folder of data sets")
        add("-s", "--save_path", default=None, help="file to save the model to")
        add("--serialize", type=int, nargs="?", const=1, default=0, help="save every so many epochs")
        add("--model_file", default=None, help="saved model to start from")
        log_file = os.path.join(WORK_DIR, "neon_log.txt")
        add("-l", "--log", dest="logfile", nargs="?", const=log_file, default=None, help="file for log messages")
        add("-o", "--output_file", default=None, help="HDF5 file for costs and metrics")
        add("--report", dest="run_report", default=None, metavar="FILE", help="HTML file for a report of the run")
        add(
            "--tensorboard", dest="event_folder", default=None, metavar="FOLDER",
            help="folder for TensorBoard's event files",
        )  # fmt: skip
        add("--log_token", default="", help="accepted for compatibility")
        add("--manifest", action="append", default=None, help="data manifest as key:path; may be repeated")
        add("--manifest_root", default=None, help="folder that paths in manifests are relative to")

    def _add_backend_options(self) -> None:
        add = self.add_argument_group("backend").add_argument
        add("-b", "--backend", choices=sorted({*Backend.backends, *Backend.loaders}), help="where to compute")
        add("-i", "--device_id", type=int, default=0, help="number of the GPU")
        add("-m", "--max_devices", type=int, default=1, help="how many devices to use")
        add(
            "--mpi", dest="distributed", action="store_true", default=None,
            help="train with all processes that mpiexec started, which is the default, or fail if there is no MPI",
        )  # fmt: skip
        add("-r", "--rng_seed", type=int, default=None, help="seed for random numbers")
        add(
            "-u", "--rounding", type=int, nargs="?", const=True, default=False,
            help="stochastic rounding to so many bits",
        )  # fmt: skip
        add("-d", "--datatype", choices=list(DATATYPES), default="f32", help="type of numbers")
        add(
            "--product_precision", choices=PRECISIONS, default=None,
            help="type to which factors of float32 products may be rounded; default: NEONLIKE_PRODUCT_PRECISION",
        )  # fmt: skip
        add("--caffe", action="store_true", help="sizes and scalings as in Caffe")
        add(
            "--bench", dest="bench_report", nargs="?", const=True, default=None, metavar="FILE",
            help="time every kernel and show the table at the end, or write it to a .txt, .json, .csv or .html file",
        )  # fmt: skip
        # None, not False: scripts pass it to gen_backend, which warns about any value.
        add("--deterministic", action="store_true", default=None, help="deprecated")

    def _override_defaults(self, overrides: dict[str, Any]) -> None:
        known = {action.dest for action in self._actions}
        if unknown := sorted(overrides.keys() - known):
            raise ArgumentError(
                f"NeonArgparser: default_overrides for unknown options {unknown}; known are {sorted(known)}"
            )
        self.set_defaults(**overrides)

    def add_argument(self, *args: Any, **kwargs: Any) -> Any:
        """Add an option; after parsing it has no effect, which is logged."""
        if getattr(self, "_parsed", False):
            logger.warning("NeonArgparser: option %s is added after the arguments were parsed", args[0])
        return super().add_argument(*args, **kwargs)

    def add_yaml_arg(self) -> None:
        """Add the positional argument ``yaml_file``, parsed as an open file."""
        self.add_argument("yaml_file", type=_opened, help="model to train, as a YAML file")

    # -- parsing -------------------------------------------------------------------------------------------

    def unsaid_backend(self) -> str | None:
        """The backend if neither command line nor config file names one; queries the GPU driver."""
        return default_backend()

    def parse_args(  # type: ignore[override]
        self, args: Sequence[str] | bool | None = None, namespace: Any = None, gen_be: bool = True, **kwargs: Any
    ) -> Namespace:
        """Parse the command line, set up the log, check the files and create the backend.

        Parameters
        ----------
        args : list of str, optional
            Arguments; by default those of the process.
        namespace : Namespace, optional
            Object that gets the options as attributes.
        gen_be : bool
            Create the backend (without rounding, which belongs to the optimizer).

        Returns
        -------
        Namespace
            The options, and ``log_thresh``, ``progress_bar``, ``compat_mode`` and ``callback_args`` (for
            ``Callbacks``).
        """
        if isinstance(args, bool):
            args, gen_be = None, bool(args)
        parsed: Namespace = super().parse_args(args, namespace, **kwargs)
        self._parsed = True
        if parsed.backend is None:
            parsed.backend = self.unsaid_backend()
        for option in PATH_OPTIONS:
            if value := getattr(parsed, option):
                setattr(parsed, option, os.path.expanduser(value))
        parsed.progress_bar = not parsed.no_progress_bar
        parsed.compat_mode = "caffe" if parsed.caffe else None
        parsed.datatype = DATATYPES.get(parsed.datatype, parsed.datatype)
        parsed.manifest = _parse_manifest(parsed.manifest)
        ranks = ranks_of(_mpi_mode(parsed))
        if ranks.size > 1:
            silence(ranks)
        _set_up_log(parsed, ranks)
        check_rounding(parsed)
        _check_files(parsed, ranks)
        parsed.callback_args = extract_valid_args(parsed, Callbacks.__init__, startidx=1) | _records(parsed)
        asked = Profile(parsed.profile_inference, parsed.profile_iterations, parsed.profile_iter_skip)
        instead_of_training(asked if parsed.profile else None)
        self.args = parsed
        if gen_be:
            gen_backend(**backend_options(parsed))
        return parsed


def _records(parsed: Namespace) -> dict[str, Any]:
    """The arguments of ``Callbacks`` for reports; options of a script's own with these names are no such arguments."""
    return {
        "report": getattr(parsed, "run_report", None),
        "tensorboard": getattr(parsed, "event_folder", None),
    }


def _opened(path: str) -> IO[str]:
    """Open a text file named on the command line."""
    try:
        return open(path, encoding=TEXT)
    except OSError as error:
        raise ArgumentTypeError(f"cannot open {path!r}: {error.strerror}") from error


def backend_options(parsed: Namespace) -> dict[str, Any]:
    """The arguments of ``gen_backend`` that options of the command line stand for, but stochastic rounding."""
    names = ("backend", "rng_seed", "device_id", "batch_size", "datatype", "max_devices", "compat_mode")
    precision = getattr(parsed, "product_precision", None)
    report = getattr(parsed, "bench_report", None)  # a script's own --bench replaces ours
    bench = {"bench": report} if report else {}
    rounded = {"product_precision": precision} if precision else {}
    return {**{name: getattr(parsed, name) for name in names}, "distributed": _mpi_mode(parsed), **bench, **rounded}


def _mpi_mode(parsed: Namespace) -> bool | None:
    """Argument ``distributed`` of ``gen_backend`` for ``--mpi``."""
    asked = getattr(parsed, "distributed", None)  # a script's own --mpi replaces ours
    return asked if isinstance(asked, bool) else None


def _count(least: int) -> Callable[[str], int]:
    def count(text: str) -> int:
        value = int(text)
        if value < least:
            raise ValueError
        return value

    return count


def _set_up_log(args: Namespace, ranks: Ranks) -> None:
    args.log_thresh = max(logging.DEBUG, logging.ERROR - 10 * args.verbose)
    logger.setLevel(args.log_thresh)
    file = by_first(lambda: _log_file(args.logfile), ranks) if args.logfile else None
    tears_the_bar = file is not None and args.progress_bar
    log_to(file, logging.ERROR if tears_the_bar else logging.NOTSET)
    if args.deterministic:
        logger.warning("--deterministic is deprecated and has no effect: equal seeds give equal results")


def _log_file(path: str) -> RotatingFileHandler:
    """Open the file for log messages, in a folder that is created if missing."""
    file = RotatingFileHandler(
        ensure_dirs_exist(path), maxBytes=LOG_FILE_BYTES, backupCount=LOG_FILES_KEPT, encoding="utf-8"
    )
    file.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    return file


def check_rounding(args: Namespace) -> None:
    """Raise RoundingUnavailable if stochastic rounding is requested from the CPU."""
    if args.rounding and args.backend == "cpu":
        raise RoundingUnavailable("--rounding: the cpu backend has no stochastic rounding; leave it off or use a GPU")


def _check_files(args: Namespace, ranks: Ranks) -> None:
    if args.model_file and not os.access(args.model_file, os.R_OK):
        raise OSError(f"--model_file {args.model_file}: the file does not exist or cannot be read")
    if args.serialize and not args.save_path:
        args.save_path = DEFAULT_MODEL_FILE
    if not args.save_path:
        return
    args.serialize = args.serialize or 1
    by_first(lambda: require_writable("--save_path", args.save_path), ranks)


def _parse_manifest(entries: Any) -> dict[str, str] | None:
    if not entries:
        return None
    found = {}
    for entry in entries:
        key, colon, path = entry.partition(":")
        if not colon:
            raise ArgumentError(f"--manifest {entry}: expected key:path")
        found[key] = os.path.expanduser(path)
    return found
