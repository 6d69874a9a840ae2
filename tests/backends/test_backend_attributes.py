"""Setting an attribute of a backend has an effect or is refused."""

from __future__ import annotations

import numpy as np
import pytest

from neonlike.backends import Backend
from neonlike.backends.nervanacpu import NervanaCPU
from neonlike.errors import FixedAttribute, MissingAttribute
from neonlike.optree.dialect import neon_dialect

pytestmark = [pytest.mark.backend]


@pytest.mark.engines("numpy")
def test_a_name_that_is_none(be: Backend) -> None:
    misspelt = {"bsx": "bsz", "product_precison": "product_precision", "enable_winogrand": "enable_winograd"}
    for name, close in misspelt.items():
        with pytest.raises(MissingAttribute, match=rf"has no attribute {name} to set.*{close}"):
            setattr(be, name, 3)
        assert not hasattr(be, name)
    with pytest.raises(AttributeError):
        be.batch_size = 3
    be._mine = 3
    assert be._mine == 3


@pytest.mark.engines("numpy")
def test_neons_programs_set_their_own(be: Backend, caplog: pytest.LogCaptureFixture) -> None:
    with neon_dialect():
        be.batch_size = 12
        be.warmup = True
    assert be.batch_size == 12 and be.warmup is True
    assert caplog.text.count("has no effect") == 2
    be.batch_size = 13  # it is there now
    del be.batch_size, be.warmup


@pytest.mark.engines("numpy")
@pytest.mark.parametrize("name", ["device_id", "compute_capability", "stream", "use_pinned_mem", "warmup"])
def test_what_says_what_is(be: Backend, name: str) -> None:
    before = getattr(be, name)
    with pytest.raises(FixedAttribute, match=f"{name} says what is"):
        setattr(be, name, 1)
    assert getattr(be, name) is before or getattr(be, name) == before


@pytest.mark.engines("numpy")
def test_what_may_be_set(be: Backend) -> None:
    kept = be.bsz, be.enable_winograd, be.rng, be.compat_mode
    be.bsz, be.enable_winograd, be.compat_mode = 7, 4, "caffe"
    be.rng = np.random.RandomState(3)
    assert (be.bsz, be.enable_winograd, be.compat_mode) == (7, 4, "caffe") and be.check_caffe_compat()
    be.bsz, be.enable_winograd, be.rng, be.compat_mode = kept


@pytest.mark.cpu_only("a class of the CPU's")
def test_a_class_of_a_programs_own_has_its_attributes() -> None:
    class Own(NervanaCPU):
        backend_name = ""

        def __init__(self) -> None:
            super().__init__(rng_seed=1)
            self.counted = 0

    own = Own()
    own.counted = 2
    with pytest.raises(MissingAttribute, match=r"Own has no attribute countd to set.*counted"):
        own.countd = 3
    own.cleanup_backend()
