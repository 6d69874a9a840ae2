"""Models quantized for inference: calibration, files, and the way back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from neonlike.backends import gen_backend
from neonlike.data import ArrayIterator
from neonlike.errors import ArgumentError, DTypeError
from neonlike.initializers import Constant, Gaussian
from neonlike.layers import Affine, BinaryAffine, Conv, Pooling
from neonlike.models import Model
from neonlike.optimizers import GradientDescentMomentum
from neonlike.transforms import Rectlin
from tests.models.perceptron import cost

pytestmark = pytest.mark.cpu_only("GPUs do not multiply int8")


def step(layer: Any) -> float:
    return float(layer.int8_step.get().item())


class TestCalibration:
    """Calibration finds the ranges of inputs."""

    def test_largest_inputs_of_all_batches(self, be: Any) -> None:
        be.bsz = 4
        model = Model([Affine(3, Constant(0.5), activation=Rectlin()), Affine(2, Constant(1.0))])
        x = np.zeros((8, 2), np.float32)
        x[1], x[6] = (1, 1), (-6, 2)
        model.quantize(x)
        first, _, second = model.layers.layers_fprop()
        assert (step(first), step(second)) == (np.float32(6 / 127), np.float32(1 / 127))
        model.quantize(ArrayIterator(x[:4]))
        assert step(first) == np.float32(1 / 127)

    def test_arrays_of_images(self, be: Any, rng: Any) -> None:
        be.bsz = 4
        model = Model([Conv((3, 3, 4), init=Gaussian()), Pooling(2), Affine(2, Gaussian())])
        model.initialize((2, 6, 6))
        assert "multiplies float32" in model.explain()
        model.quantize(rng.standard_normal((8, 72)).astype(np.float32))
        assert model.explain().count("multiplies in int8") == 2 and "multiplies float32" not in model.explain()

    def test_a_product_tells_what_it_does_besides(self, be: Any, rng: Any, tmp_path: Path) -> None:
        """Bias and rectifier are in the call of a quantized product, also of a model that is loaded."""
        be.bsz = 4
        first = Affine(3, Gaussian(), bias=Gaussian(), activation=Rectlin(0.1), name="first")
        model = Model([first, Affine(2, Gaussian())])
        x = rng.standard_normal((8, 6)).astype(np.float32)
        model.initialize(6)
        apart, joined = "one call with first_Rectlin", "multiplies in int8; one call with first_bias, first_Rectlin"
        assert apart in model.explain() and joined not in model.explain()
        model.quantize(x)
        assert joined in model.explain() and "computed by first" in model.explain()
        model.save_params(tmp_path / "model.prm")
        again = Model(str(tmp_path / "model.prm"))
        assert np.array_equal(again.get_outputs(ArrayIterator(x)), model.get_outputs(ArrayIterator(x)))
        assert joined in again.explain()
        model.dequantize()
        assert apart in model.explain() and joined not in model.explain()

    def test_inputs_of_zeros(self, be: Any) -> None:
        be.bsz = 4
        model = Model([Affine(3, Constant(0.5), bias=Constant(2.0))])
        model.quantize(np.zeros((4, 2), np.float32))
        assert (model.get_outputs(ArrayIterator(np.zeros((4, 2), np.float32))) == 2).all()

    def test_what_cannot_be_quantized(self, be: Any) -> None:
        be.bsz = 4
        model = Model([Affine(3, Constant(0.5))])
        with pytest.raises(DTypeError, match="calibration is a list"):
            model.quantize([1, 2])
        with pytest.raises(ArgumentError, match="inputs have nan or infinite"):
            model.quantize(np.full((4, 2), np.nan, np.float32))
        assert model.layers.layers[0].int8_step is None
        with pytest.raises(ArgumentError, match="no layer of the network is an Affine"):
            Model([BinaryAffine(3, Gaussian())]).quantize(np.ones((4, 2), np.float32))

    def test_a_backend_of_another_dtype(self) -> None:
        be = gen_backend("cpu", batch_size=4, datatype=np.float64)
        model = Model([Affine(3, Constant(0.5))])
        with pytest.raises(ArgumentError, match=r"int8 is for float32 models on the CPU.*float64"):
            model.quantize(np.ones((4, 2), np.float32))
        assert be.multiplies_int8

    def test_a_backend_that_does_not_multiply_int8(
        self, trained: Model, data: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A quantized model that is loaded there tells in its first pass."""
        trained.quantize(data)
        saved = trained.serialize()
        monkeypatch.setattr(type(trained.be), "multiplies_int8", False)
        with pytest.raises(ArgumentError, match="int8 is for float32 models on the CPU"):
            trained.quantize(data)
        loaded = Model(saved)
        with pytest.raises(ArgumentError, match=r"does not multiply int8.*model.dequantize\(\)"):
            loaded.get_outputs(data)
        loaded.dequantize()
        assert loaded.get_outputs(data).shape == (data.ndata, 3)


class TestTrained:
    """A quantized model that was trained."""

    def test_training_is_refused_until_it_is_dequantized(self, trained: Model, data: Any) -> None:
        before = trained.get_outputs(data)
        trained.quantize(data)
        assert not np.array_equal(trained.get_outputs(data), before)
        with pytest.raises(ArgumentError, match=r"quantized for inference.*model.dequantize\(\)"):
            trained.fit(data, cost(), GradientDescentMomentum(0.1, 0.9), 3)
        trained.dequantize()
        assert np.array_equal(trained.get_outputs(data), before)
        trained.fit(data, cost(), GradientDescentMomentum(0.1, 0.9), 3)
        assert trained.epoch_index == 3

    @pytest.mark.parametrize("name", ["model.prm", "model.p"])
    def test_files_keep_it(self, trained: Model, data: Any, tmp_path: Path, name: str) -> None:
        plain = trained.get_outputs(data)
        trained.save_params(tmp_path / ("plain" + name))
        trained.quantize(data)
        wanted = trained.get_outputs(data)
        trained.save_params(tmp_path / name)
        again = Model(str(tmp_path / name))
        assert np.array_equal(again.get_outputs(data), wanted)
        again.dequantize()
        assert np.array_equal(again.get_outputs(data), plain)
        trained.load_params(tmp_path / ("plain" + name))
        assert np.array_equal(trained.get_outputs(data), plain)

    def test_a_file_in_16_bits_infers_once_dequantized(self, trained: Model, data: Any, tmp_path: Path) -> None:
        plain = trained.get_outputs(data)
        trained.quantize(data)
        trained.save_params(tmp_path / "model.prm")
        trained.be.default_dtype = "bfloat16"
        again = Model(str(tmp_path / "model.prm"))
        halves = ArrayIterator(data.Xdev[0].get())
        with pytest.raises(DTypeError, match=r"float32, got bfloat16; .*call model.dequantize\(\)"):
            again.get_outputs(halves)
        again.dequantize()
        np.testing.assert_allclose(again.get_outputs(halves).astype(float), plain, atol=0.02)
