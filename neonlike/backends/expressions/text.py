"""Expressions from texts, for users of numexpr: ``be.eval("sig(a*b + c)", a=x, b=y, c=z)``."""

from __future__ import annotations

from typing import Any

from neonlike.backends.family import Family
from neonlike.errors import ArgumentError, did_you_mean
from neonlike.optree import text as texts
from neonlike.optree.node import Expression, adapt


class TextFamily(Family):
    """``eval``: a text is parsed once; rebuilding its expression costs as much as in Python.

    Examples
    --------
    >>> from neonlike.backends import gen_backend
    >>> be = gen_backend("cpu")
    >>> be.eval("a + 1", a=be.array([[1., 2.]])).tolist()
    [[2.0, 3.0]]
    """

    def eval(self, text: str, /, out: Any = None, **operands: Any) -> Any:
        """Build the expression in ``text`` from ``operands``; lazy, or computed into ``out``, by one kernel either way.

        The text is parsed, not executed by Python: names refer to ``operands`` alone, and it may contain numbers, the
        operators ``+ - * / // % ** @ & | ^ ~ << >>``, comparisons, also ``0 < a <= b``, constant windows ``a[:, 1]``,
        and calls of the functions in docs/ops.md with constant options: ``sum(a, axis=0)``. So an untrusted text can
        only compute.

        Parameters
        ----------
        text : str
            Formula in Python's syntax.
        out : tensor, optional
            Receives the result at once.
        **operands : tensors, expressions, numbers or arrays
            Values for the names in the text; all have to be used.

        Returns
        -------
        expression, or ``out``
            A number, if the text has only numbers.

        Raises
        ------
        ArgumentError
            If the text has unsupported parts, or an operand is missing or unused.

        Examples
        --------
        >>> from neonlike.backends import gen_backend
        >>> be = gen_backend('cpu')
        >>> x = be.array([[-1., 0., 2.]])
        >>> be.eval("where(0 <= a < 2, a + 1, -a)", a=x).asnumpyarray().tolist()
        [[1.0, 1.0, -2.0]]
        """
        self.check_open("eval")
        if not isinstance(text, str):
            raise ArgumentError(f"eval: the text must be a string, got {type(text).__name__}")
        formula = texts.parse(text)
        for name in formula.names:
            if name not in operands:
                raise ArgumentError(_missing(name, operands))
        if len(operands) > len(formula.names):
            unused = ", ".join(name for name in operands if name not in formula.names)
            raise ArgumentError(f"eval: {unused} is given, and the text has no such name; leave it out")
        built = formula.build(
            {n: o if isinstance(o, Expression) else adapt(f"eval: {n}", o, self) for n, o in operands.items()}
        )
        return built if out is None else self._finish(built, out)


def _missing(name: str, operands: dict[str, Any]) -> str:
    if name in texts.functions():
        return f"eval: {name} is a function; call it: {name}(...), or pass an operand of that name"
    return f"eval: there is no operand {name}; pass it by name: {name}=...{did_you_mean(name, operands)}"
