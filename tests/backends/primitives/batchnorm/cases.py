"""Reference batch normalisation in float64, one row after the other, and operands for it."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np

Array = Any
EPS = 1e-3
STATISTICS = ("xsum", "xvar", "gmean", "gvar")
TOLERANCE = {"float16": 5e-4, "float32": 1e-6, "float64": 1e-13}
"""Of results about as large as 1, relative where they are larger."""


def times(a: Array, b: Array, binary: bool) -> Array:
    """a * b, or a * sgn(b) * 2**round(log2|b|)."""
    if not binary:
        return a * b
    with np.errstate(divide="ignore"):
        return a * np.where(b == 0, 0, np.sign(b) * 2.0 ** np.round(np.log2(np.abs(b))))


@dataclass(frozen=True)
class Forward:
    """Settings of a forward call, and its results in float64."""

    eps: float = EPS
    rho: float = 0.9
    given: bool = False
    accumbeta: float = 0.0
    alpha: float = 1.0
    relu: bool = False
    binary: bool = False
    inference: bool = False

    def of(self, case: Case) -> dict[str, Array]:
        out = {name: case.rows[name].astype(np.float64) for name in STATISTICS}
        out["y"] = np.empty(case.x.shape)
        for r, values in enumerate(case.x.astype(np.float64)):
            if self.inference:
                mean, var = out["gmean"][r], out["gvar"][r]
            else:
                if not self.given:
                    out["xsum"][r] = math.fsum(values)
                mean = out["xsum"][r] / len(values)
                var = np.mean(times(values - mean, values - mean, self.binary))
                out["xvar"][r] = var
                out["gmean"][r] = self.rho * out["gmean"][r] + (1 - self.rho) * mean
                out["gvar"][r] = self.rho * out["gvar"][r] + (1 - self.rho) * var
            xhat = times(values - mean, 1 / np.sqrt(var + self.eps), self.binary)
            result = times(xhat, case.rows["gamma"][r].astype(np.float64), self.binary) + case.rows["beta"][r]
            if self.relu:
                result = np.maximum(result, 0)
            out["y"][r] = self.alpha * result
            if self.accumbeta:
                out["y"][r] += self.accumbeta * case.y[r].astype(np.float64)
        return out

    def arguments(self) -> dict[str, Any]:
        wanted = dict(vars(self))
        wanted["compute_batch_sum"] = not wanted.pop("given")
        return wanted


@dataclass(frozen=True)
class Backward:
    """Settings of a backward call, and its results in float64."""

    eps: float = EPS
    alpha_data: float = 1.0
    beta_data: float = 0.0
    alpha_param: float = 1.0
    beta_param: float = 0.0
    binary: bool = False
    masked: bool = False

    def of(self, case: Case) -> dict[str, Array]:
        out = {name: np.empty((len(case.x), 1)) for name in ("grad_gamma", "grad_beta")}
        out["delta_out"] = np.empty(case.x.shape)
        for r, values in enumerate(case.x.astype(np.float64)):
            size = len(values)
            error = case.delta[r].astype(np.float64)
            if self.masked:
                error = np.where(case.y[r] > 0, error, 0)
            inverse = 1 / np.sqrt(case.rows["xvar"][r].astype(np.float64) + self.eps)
            xhat = times(values - case.rows["xsum"][r].astype(np.float64) / size, inverse, self.binary)
            dgamma, dbeta = np.sum(xhat * error), np.sum(error)
            inner = error - (times(xhat, dgamma, self.binary) + dbeta) / size
            dx = times(times(inner, case.rows["gamma"][r].astype(np.float64), self.binary), inverse, self.binary)
            out["delta_out"][r] = self.alpha_data * dx
            out["grad_gamma"][r], out["grad_beta"][r] = self.alpha_param * dgamma, self.alpha_param * dbeta
            if self.beta_data:
                out["delta_out"][r] += self.beta_data * case.out[r].astype(np.float64)
            if self.beta_param:
                out["grad_gamma"][r] += self.beta_param * case.rows["grad_gamma"][r].astype(np.float64)
                out["grad_beta"][r] += self.beta_param * case.rows["grad_beta"][r].astype(np.float64)
        return out

    def arguments(self) -> dict[str, Any]:
        wanted = dict(vars(self))
        del wanted["masked"]
        return wanted


@dataclass
class Case:
    """Random operands of (nfm, M) in a dtype; statistics and parameters in the dtype computed in."""

    nfm: int
    M: int
    dtype: str = "float32"
    seed: int = 0
    offset: float = 3.0
    rows: dict[str, Array] = field(init=False)

    def __post_init__(self) -> None:
        rng = np.random.default_rng([self.seed, self.nfm, self.M])
        full, self.dtype = (self.nfm, self.M), np.dtype(self.dtype).name
        self.x = (rng.normal(size=full) * rng.uniform(0.5, 2, (self.nfm, 1)) + self.offset).astype(self.dtype)
        self.y, self.delta, self.out = (rng.normal(size=full).astype(self.dtype) for _ in range(3))
        wide = "float64" if self.dtype == "float64" else "float32"
        names = (*STATISTICS, "gamma", "beta", "grad_gamma", "grad_beta")
        self.rows = {name: rng.uniform(0.6, 1.9, (self.nfm, 1)).astype(wide) for name in names}
        self.rows["gamma"] *= rng.choice([-1, 1], (self.nfm, 1)).astype(wide)
        self.rows["xsum"] = (self.x.sum(axis=1, keepdims=True, dtype="f8") + 0.01 * self.M).astype(wide)

    def forward(self, be: Any, how: Forward, **changed: Any) -> dict[str, Array]:
        """Call it on fresh tensors; return the contents of the tensors that it may change."""
        given = {"x": self.x, "y": self.y, **{n: self.rows[n] for n in (*STATISTICS, "gamma", "beta")}}
        tensors = {name: be.array(values, dtype=values.dtype) for name, values in given.items()}
        tensors.update(changed)
        assert be.compound_fprop_bn(**tensors, **how.arguments()) is None
        return {name: tensors[name].get() for name in (*STATISTICS, "y")}

    def backward(self, be: Any, how: Backward, **changed: Any) -> dict[str, Array]:
        given = {"x": self.x, "delta_in": self.delta, "delta_out": self.out}
        given.update({n: self.rows[n] for n in ("xsum", "xvar", "gamma", "grad_gamma", "grad_beta")})
        if how.masked:
            given["y"] = self.y
        tensors = {name: be.array(values, dtype=values.dtype) for name, values in given.items()}
        tensors.update(changed)
        assert be.compound_bprop_bn(**tensors, **how.arguments()) is None
        return {name: tensors[name].get() for name in ("delta_out", "grad_gamma", "grad_beta")}


def agree(got: dict[str, Array], wanted: dict[str, Array], dtype: str, what: Any = "") -> None:
    """Compare up to rounding: in the dtype for data, in the dtype of the computation for one value a row."""
    for name, right in wanted.items():
        data = name in ("y", "delta_out")
        tolerance = TOLERANCE[dtype if data or dtype == "float64" else "float32"]
        scale = np.maximum(1, np.abs(right)) if data else max(1.0, float(np.max(np.abs(right), initial=0)))
        worst = np.max(np.abs(got[name] - right) / scale, initial=0)
        assert worst <= tolerance, f"{name} is off by {worst} {what}"


def replaced(case: Case, **arrays: Array) -> Case:
    """A copy of ``case`` with other operands."""
    copied = Case(case.nfm, case.M, case.dtype, case.seed, case.offset)
    vars(copied).update(arrays)
    return copied


FLAGS = [
    Forward(given=given, accumbeta=accumbeta, relu=relu, binary=binary, inference=inference, alpha=alpha)
    for given, accumbeta, relu, binary, inference, alpha in itertools.product(
        (False, True), (0.0, 0.75), (False, True), (False, True), (False, True), (1.0, -1.5)
    )
]
BACK_FLAGS = [
    Backward(EPS, *blend, binary, masked)
    for blend, binary, masked in itertools.product(
        ((1, 0, 1, 0), (0.5, 0, 3, 0), (-2, 0.25, 0.5, 2), (1, 1, 1, 1)), (False, True), (False, True)
    )
]
SHAPES = [(1, 1), (1, 2), (2, 3), (3, 16), (5, 33), (70, 3), (65, 130), (3, 2048), (2, 2049 + 64)]
