"""Examples that rows of the op table have by their domains: all of them run, and show what NumPy computes."""

from __future__ import annotations

import pytest

from neonlike import autograd
from neonlike.backends import Backend
from neonlike.optree.op_examples import of_elements
from neonlike.optree.ops import OPS, Kind
from tests.support.doctests import failure, session_of

KINDS = Kind.ELEMENTWISE, Kind.REDUCTION
METHODS = {f"be.{name}": name for spec in OPS.values() if spec.kind in KINDS for name in spec.builders}
OF_VARIABLES = ("add", "div", "exp", "pow", "sigmoid", "sqrt")

pytestmark = [pytest.mark.cpu_only("shows the CPU's values"), pytest.mark.engines("numpy")]


def test_methods_of_rows_have_examples_that_run(be: Backend) -> None:
    sessions = (session_of(getattr(Backend, name), method) for method, name in METHODS.items())
    assert [said for session in sessions if (said := failure(session))] == []


def test_functions_of_variables_have_examples_that_run(be: Backend) -> None:
    assert [said for name in OF_VARIABLES if (said := failure(session_of(getattr(autograd, name), name)))] == []


def test_an_example_names_operands_and_result() -> None:
    assert of_elements(OPS["sub"], "be.subtract").splitlines()[-4:] == [
        ">>> a = be.array([[-2.5, 0.0, 2.5]], dtype='float64')",
        ">>> b = be.array([[2.5, 0.75, 2.5]], dtype='float64')",
        ">>> be.subtract(a, b).get().round(4).tolist()",
        "[[-5.0, -0.75, 0.0]]",
    ]


def test_a_wrong_example_fails() -> None:
    def wrong() -> None:
        """Add.

        >>> 1 + 1
        3
        """

    assert "Expected" in failure(session_of(wrong, "wrong"))
    assert failure(session_of(len, "len")) == "len has no example"
