"""The command ``neon model.yaml``: trains or times a model described by a YAML file."""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Sequence
from typing import Any

from neonlike import console, data
from neonlike.backends import gen_backend
from neonlike.callbacks import Callbacks
from neonlike.checks import shown
from neonlike.errors import ArgumentError, NeonlikeError
from neonlike.experiments.argparser import NeonArgparser, backend_options, check_rounding
from neonlike.experiments.yaml_parse import create_objects, load_yaml
from neonlike.models import Model
from neonlike.nervanaobject import get_args
from neonlike.util.display_information import (
    display_cpu_information,
    display_model_params,
    display_platform_information,
)

__all__ = ["main", "program"]

ABOUT = "Trains the model that a YAML file describes, or with --profile times it."
DEFAULTS = {"backend": "cpu", "epochs": 1, "batch_size": 128}
"""Defaults for values missing from both the command line and the file."""
TALKATIVE = 3
"""Verbosity (-v twice) from which machine and hyperparameters are shown."""


class ParserBesideYaml(NeonArgparser):
    """Leaves the backend open if the command line does not name it, so that the YAML file may."""

    def unsaid_backend(self) -> str | None:
        """None: a backend that the command line does not name is the file's."""
        return None


def parse(argv: Sequence[str] | None = None) -> tuple[Namespace, dict[str, Any]]:
    """Parse options and the YAML file; the file supplies run settings missing from the command line."""
    # None marks values that the command line and config files leave open: the YAML file comes before the defaults.
    parser = ParserBesideYaml(ABOUT, prog="neon", default_overrides=dict.fromkeys((*DEFAULTS, "data_dir")))
    parser.add_yaml_arg()
    args = parser.parse_args(argv, gen_be=False)
    with args.yaml_file as file:
        root = load_yaml(file)
    args.yaml_file = file.name
    said = {"backend": root.get("backend"), "epochs": root.get("epochs"), "batch_size": root.get("batchsize")}
    for option, default in DEFAULTS.items():
        if getattr(args, option) is None:
            setattr(args, option, default if said[option] is None else said[option])
    check_rounding(args)
    return args, root


def dataset_of(root: dict[str, Any], data_dir: str | None = None) -> Any:
    """The data set named in a YAML file, by its class in ``neonlike.data``, ignoring case.

    Raises
    ------
    ArgumentError
        If it names none, or an unknown one.
    """
    entry = root.get("dataset")
    name = entry.get("name") if isinstance(entry, dict) else entry
    if not isinstance(name, str):
        raise ArgumentError(f"dataset: expected a mapping with a name, such as {{name: mnist}}, got {shown(entry)}")
    things = {key: getattr(data, key, None) for key in dir(data)}
    known = {key: thing for key, thing in things.items() if _is_data_set(thing)}
    found: Any = {key.lower(): one for key, one in known.items()}.get(name.lower())
    if found is None:
        raise ArgumentError(f"dataset: there is no data set {name!r}; there are {', '.join(known)}")
    arguments: dict[str, Any] = {"path": data_dir} if data_dir and "path" in get_args(found) else {}
    return found(**arguments)


def _is_data_set(thing: Any) -> bool:
    return isinstance(thing, type) and hasattr(thing, "gen_iterators") and thing.__name__ != "Dataset"


def train(args: Namespace, root: dict[str, Any]) -> Model:
    """Build and train the model that the file describes."""
    gen_backend(stochastic_round=args.rounding, **backend_options(args))
    if args.verbose >= TALKATIVE:
        display_platform_information()
        display_cpu_information()
        display_model_params(args, root)
    model, cost, optimizer = create_objects(root)
    if cost is None or optimizer is None:
        raise ArgumentError("the YAML file needs a cost and an optimizer to train with")
    if args.model_file:
        model.load_params(args.model_file)
    parts = dataset_of(root, args.data_dir)
    given = {**args.callback_args, "model_file": None}  # loaded already
    callbacks = Callbacks(model, eval_set=parts.valid_iter, **given)
    model.fit(parts.train_iter, cost, optimizer, args.epochs, callbacks)  # with --profile it times
    return model


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit status."""
    try:
        train(*parse(argv))
    except (NeonlikeError, OSError) as error:
        print(f"neon: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


def program() -> int:
    """The command ``neon``."""
    return console.run(main)
