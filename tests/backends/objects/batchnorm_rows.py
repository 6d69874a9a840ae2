"""Reference batch normalisation of arrays in any layout, in float64."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from neonlike.backends.descriptors import TensorDesc

Array = Any
CLOSE = {"float16": 4e-3, "bfloat16": 3e-2, "float32": 2e-5, "float64": 1e-12}
LAYOUTS = {
    "NCHW": (5, 3, 2, 7), "NHWC": (5, 2, 7, 3), "CHWN": (3, 2, 7, 5), "CDHWN": (3, 2, 1, 4, 5), "NC": (33, 4),
    "CN": (4, 33), "NCDHW": (3, 2, 2, 3, 2), "TNC": (3, 5, 2), "HWNC": (2, 3, 4, 1),
}  # fmt: skip


@dataclass
class Rows:
    """Operands of a descriptor, and results in float64; nan in x counts as no element with ``ignore``."""

    desc: TensorDesc
    mode: str
    ignore: bool = False
    seed: int = 0
    offset: float = 1.0

    def __post_init__(self) -> None:
        rng = np.random.default_rng([self.seed, self.desc.size])
        single = "CDHWT" if self.mode == "per_activation" else "C"
        self.axes = tuple(i for i, letter in enumerate(self.desc.layout) if letter not in single)
        self.stats = tuple(1 if i in self.axes else size for i, size in enumerate(self.desc.shape))
        self.x = self.stored(rng.normal(size=self.desc.shape) * 2 + self.offset)
        self.y, self.dy, self.dx = (self.stored(rng.normal(size=self.desc.shape)) for _ in range(3))
        kind = "f8" if self.desc.dtype == np.float64 else "f4"
        names = ("scale", "bias", "dscale", "dbias", "mean", "variance")
        self.columns = {name: rng.uniform(0.5, 1.5, self.stats).astype(kind) for name in names}

    def stored(self, values: Array) -> Array:
        return values.astype(self.desc.dtype)

    def forward(self, alpha: float, beta: float, factor: float, epsilon: float, training: bool) -> dict[str, Array]:
        """y, the running statistics and the batch's."""
        columns = {name: values.astype("f8") for name, values in self.columns.items()}
        x, absent = self.x.astype("f8"), self._absent()
        count = np.maximum((~absent).sum(self.axes, keepdims=True), 1)
        mean = np.where(absent, 0, x).sum(self.axes, keepdims=True) / count
        variance = (np.where(absent, 0, x - mean) ** 2).sum(self.axes, keepdims=True) / count
        found = {"saved_mean": mean, "saved_variance": variance}
        found.update(mean=columns["mean"], variance=columns["variance"])
        if training:
            some = ~absent.all(self.axes, keepdims=True)
            for name, now in (("mean", mean), ("variance", variance)):
                found[name] = np.where(some, (1 - factor) * columns[name] + factor * now, columns[name])
        else:
            mean, variance = columns["mean"], columns["variance"]
        xhat = np.where(absent, 0, (x - mean) / np.sqrt(variance + epsilon))
        result = alpha * (xhat * columns["scale"] + columns["bias"])
        return {**found, "y": result + beta * self.y.astype("f8") if beta else result}

    def backward(self, alphas: tuple[float, float], betas: tuple[float, float], epsilon: float) -> dict[str, Array]:
        """dx, dscale and dbias, with factors of the data and of the parameters."""
        absent, trained = self._absent(), self.forward(1, 0, 0, epsilon, training=True)
        inverse = 1 / np.sqrt(trained["saved_variance"] + epsilon)
        xhat = np.where(absent, 0, (self.x.astype("f8") - trained["saved_mean"]) * inverse)
        dy = self.dy.astype("f8")
        dy = np.where(absent | np.isnan(dy), 0, dy) if self.ignore else dy
        count = np.maximum((~absent).sum(self.axes, keepdims=True), 1)
        dscale, dbias = (values.sum(self.axes, keepdims=True) for values in (xhat * dy, dy))
        dx = np.where(absent, 0, self.columns["scale"] * inverse * (dy - (xhat * dscale + dbias) / count))
        return {
            "dx": alphas[0] * dx + (betas[0] * self.dx.astype("f8") if betas[0] else 0),
            "dscale": alphas[1] * dscale + (betas[1] * self.columns["dscale"] if betas[1] else 0),
            "dbias": alphas[1] * dbias + (betas[1] * self.columns["dbias"] if betas[1] else 0),
        }

    def _absent(self) -> Array:
        return np.isnan(self.x.astype("f8")) & self.ignore

    # The same by an operation object

    def staged(self, be: Any) -> Any:
        """An object whose running statistics are those of ``columns``."""
        op = be.batchnorm_op(self.mode, "ignore" if self.ignore else "propagate").stage(self.desc)
        op.running_mean.set(self.columns["mean"])
        op.running_variance.set(self.columns["variance"])
        return op

    def tensors(self, be: Any, *names: str) -> dict[str, Any]:
        given = {"x": self.x, "y": self.y, "dy": self.dy, "dx": self.dx, **self.columns}
        return {name: be.array(given[name], dtype=given[name].dtype) for name in names}

    def check(self, found: dict[str, Any], wanted: dict[str, Array], what: Any = "") -> None:
        """Equal up to rounding, of the dtype for data, of at least float32 for one value a row."""
        for name, tensor in found.items():
            kind = self.desc.dtype.name if name in ("y", "dx") or self.desc.dtype == np.float64 else "float32"
            values, right = tensor.get().astype("f8"), wanted[name]
            scale = max(1.0, float(np.nanmax(np.abs(right))))
            np.testing.assert_allclose(values, right, rtol=0, atol=CLOSE[kind] * scale, err_msg=f"{name} {what}")
