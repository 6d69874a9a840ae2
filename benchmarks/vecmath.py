"""The C math header against NumPy and against a plain loop over the C library's functions, on one core in cache.

All loops are compiled with the flags of generated kernels; NumPy brings vector code of its own for some functions.
``python benchmarks/vecmath.py --help`` lists the options.
"""

from __future__ import annotations

import argparse
import ctypes
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import _machine  # noqa: F401 (makes neonlike importable from a checkout)
import numpy as np
from _cases import Case, Contender
from harness import Session, arguments, some_of

HEADERS = Path(__file__).resolve().parent.parent / "neonlike" / "kernels" / "templates" / "c"
SIZE = 4096
OURS, LIBRARY = "vecmath.h", "C library"
TYPES = {"f32": (np.float32, "float", "f", 1e-6), "f64": (np.float64, "double", "", 1e-14)}
"""dtype, C type, suffix of the C library's functions, tolerance."""

LEFT, RIGHT, UNIT, FAR = (0.01, 3.0), (-3.0, 3.0), (-0.95, 0.95), (-1e8, 1e8)
"""Where positive and other operands are sampled, those from -1 to 1, and those too large for the usual sine."""


def _erf(x: Any, out: Any = None) -> Any:
    from scipy.special import erf

    return erf(x, out)


def _sigmoid(x: Any, out: Any = None) -> Any:
    return np.reciprocal(np.add(np.exp(np.negative(x, out), out), 1, out), out)


def _sigmoid2(x: Any, out: Any = None) -> Any:
    return np.reciprocal(np.add(np.exp2(np.negative(x, out), out), 1, out), out)


def _softplus(x: Any, out: Any = None) -> Any:
    return np.logaddexp(x, 0, out)


FUNCTIONS: dict[str, tuple[Callable[..., Any], str, tuple[tuple[float, float], ...]]] = {
    **{name: (getattr(np, name), f"{name}@(A)", (RIGHT,)) for name in ("exp", "exp2", "expm1")},
    **{name: (getattr(np, name), f"{name}@(A)", (LEFT,)) for name in ("log", "log2", "log1p")},
    **{name: (getattr(np, name), f"{name}@(A)", (RIGHT,)) for name in ("sin", "cos", "tan", "tanh")},
    "atan": (np.arctan, "atan@(A)", (RIGHT,)),
    "erf": (_erf, "erf@(A)", (RIGHT,)),
    "sigmoid": (_sigmoid, "1 / (1 + exp@(-A))", (RIGHT,)),
    "pow": (np.power, "pow@(A, B)", (LEFT, RIGHT)),
    "rint": (np.rint, "rint@(A)", (RIGHT,)),
    "sin_far": (np.sin, "sin@(A)", (FAR,)),
    "sigmoid2": (_sigmoid2, "1 / (1 + exp2@(-A))", (RIGHT,)),
    "softplus": (_softplus, "(A > 0 ? A : 0) + log1p@(exp@(-fabs@(A)))", (RIGHT,)),
    "asin": (np.arcsin, "asin@(A)", (UNIT,)),
    "acos": (np.arccos, "acos@(A)", (UNIT,)),
    "atan2": (np.arctan2, "atan2@(A, B)", (RIGHT, RIGHT)),
    "hypot": (np.hypot, "hypot@(A, B)", (RIGHT, RIGHT)),
    "sinh": (np.sinh, "sinh@(A)", (RIGHT,)),
    "cosh": (np.cosh, "cosh@(A)", (RIGHT,)),
    "asinh": (np.arcsinh, "asinh@(A)", (RIGHT,)),
    "acosh": (np.arccosh, "acosh@(A)", ((1.1, 4.0),)),
    "atanh": (np.arctanh, "atanh@(A)", (UNIT,)),
    "log10": (np.log10, "log10@(A)", (LEFT,)),
    "cbrt": (np.cbrt, "cbrt@(A)", (LEFT,)),
    "fmod": (np.fmod, "fmod@(A, B)", (RIGHT, LEFT)),
}
"""Name -> NumPy's form, that of the C library (@: its suffix), where the operands are sampled."""

BOUNDED = ("sin", "cos", "tan", "pow")
"""Functions whose fast form is measured, which kernels take for most numbers; ``sin_far`` takes any."""


def source() -> str:
    """A loop over every function in both forms."""
    lines = ['#include "vecmath_more.h"', "#include <math.h>"]
    for kind, (_, number, suffix, _) in TYPES.items():
        for name, (_, library, domains) in FUNCTIONS.items():
            function = f"{name}_bounded" if name in BOUNDED else name.removesuffix("_far")
            ours = f"nl_{function}_{kind}(" + ", ".join("AB"[: len(domains)]) + ")"
            for prefix, text in (("own", ours), ("library", library.replace("@", suffix))):
                value = text.replace("A", "a[i]").replace("B", "b[i]")
                operands = "".join(f"const {number} *restrict {x}, " for x in "ab"[: len(domains)])
                lines.append(f"void {prefix}_{name}_{kind}({operands}{number} *restrict y, long n)")
                lines.append(f"{{ for (long i = 0; i < n; i++) y[i] = {value}; }}")
    return "\n".join(lines) + "\n"


def make_case(library: ctypes.CDLL, name: str, kind: str, rng: np.random.Generator) -> Case:
    """One function in one type."""
    in_numpy, _, domains = FUNCTIONS[name]
    dtype, _, _, tolerance = TYPES[kind]
    operands = [rng.uniform(*domain, SIZE).astype(dtype) for domain in domains]

    def contender(label: str, prefix: str) -> Contender:
        out = np.empty(SIZE, dtype)
        function = getattr(library, f"{prefix}_{name}_{kind}")
        pointers = [ctypes.c_void_p(array.ctypes.data) for array in (*operands, out)]
        run = lambda: function(*pointers, ctypes.c_long(SIZE))  # noqa: E731
        return Contender(label, run, lambda: [out], ours=label == OURS)

    target = np.empty(SIZE, dtype)
    contenders = [
        Contender("numpy", lambda: in_numpy(*operands, out=target), lambda: [target]),
        contender(OURS, "own"),
        contender(LIBRARY, "library"),
    ]
    text = f"{name}, {np.dtype(dtype).name}"
    reference = lambda: [in_numpy(*(a.astype(np.float64) for a in operands))]  # noqa: E731
    nbytes = (len(operands) + 1) * target.nbytes
    return Case(f"{name}_{kind}", text, SIZE, contenders, reference, nbytes, tolerance)


def largest_error(library: ctypes.CDLL, name: str, kind: str, rng: np.random.Generator) -> str:
    """Units in the last place, of a million numbers, against NumPy in the next wider type."""
    in_numpy, _, domains = FUNCTIONS[name]
    dtype, wide = TYPES[kind][0], np.float64 if kind == "f32" else np.longdouble
    operands = [rng.uniform(*domain, 1_000_000).astype(dtype) for domain in domains]
    out = np.empty_like(operands[0])
    pointers = [ctypes.c_void_p(array.ctypes.data) for array in (*operands, out)]
    getattr(library, f"own_{name}_{kind}")(*pointers, ctypes.c_long(out.size))
    try:
        exact = in_numpy(*(a.astype(wide) for a in operands))
    except TypeError:  # SciPy has no long double
        return "-"
    return f"{np.max(np.abs(out - exact) / np.spacing(np.abs(exact.astype(dtype)))):.2f}"


def summary(session: Session, names: list[str], errors: dict[str, str]) -> list[str]:
    """Nanoseconds an element and our largest error, a line for each function."""
    columns = ("numpy", LIBRARY, OURS)
    lines = [f"{'ns an element':<14}" + "".join(f"{column:>12}" for column in columns) + f"{'ulp':>8}"]
    for name in names:
        found = [session.find(name, SIZE, column) for column in columns]
        cells = [f"{r.median / SIZE * 1e9:.2f}" if r and r.median is not None else "-" for r in found]
        lines.append(f"{name:<14}" + "".join(f"{cell:>12}" for cell in cells) + f"{errors[name]:>8}")
    return lines


def parse(argv: list[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = arguments(f"{__doc__}".partition("\n")[0])
    text = f"some of {', '.join(FUNCTIONS)}"
    parser.add_argument("--only", type=some_of(FUNCTIONS), default=list(FUNCTIONS), metavar="NAME,NAME", help=text)
    return parser.parse_args(argv)


def main(argv: list[str] | None = None) -> int:
    """Run what the command line asks for; the exit status is 1 if a result of ours was wrong."""
    from neonlike.errors import BackendUnavailable
    from neonlike.kernels.c.compile import build

    options = parse(argv)
    try:
        library = build(source(), "vecmath_benchmark", headers=[HEADERS / "vecmath", HEADERS])
    except BackendUnavailable as error:
        print(f"nothing to measure: {error}", file=sys.stderr)
        return 0
    session = Session("vecmath", options)
    rng = np.random.default_rng(0)
    cases = [(name, kind) for kind in TYPES for name in options.only]
    for name, kind in cases:
        session.run(make_case(library, name, kind, rng))
    errors = {f"{name}_{kind}": largest_error(library, name, kind, rng) for name, kind in cases}
    return session.finish(summary(session, list(errors), errors))


if __name__ == "__main__":
    sys.exit(main())
