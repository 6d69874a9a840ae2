"""``be.eval("sig(a*b + c)", a=x, b=y, c=z)``: expressions from texts, for those who come from numexpr."""

from __future__ import annotations

from typing import Any

from neonlike.backends.families.base import Family
from neonlike.errors import ArgumentError, did_you_mean
from neonlike.optree import text as texts
from neonlike.optree.node import Expression, adapt


class TextFamily(Family):
    """A text is parsed once; building its expression again costs what building it in Python costs."""

    def eval(self, text: str, /, out: Any = None, **operands: Any) -> Any:
        """The expression that ``text`` is, of ``operands``; lazy, or computed into ``out``, in one kernel either way.

        It is parsed, not run by Python: names are looked up in ``operands`` alone, and it may hold numbers, the
        operators ``+ - * / // % ** @ & | ^ ~ << >>``, comparisons, also ``0 < a <= b``, constant windows ``a[:, 1]``,
        and calls of the functions in docs/ops.md, whose options are constants: ``sum(a, axis=0)``. So a text from
        elsewhere can do no more than compute.

        Parameters
        ----------
        text : str
        out : tensor, optional
        **operands : tensors, expressions, numbers or arrays
            By the names that the text gives them; all have to be used.

        Returns
        -------
        expression, or ``out``
            A number, if there are only numbers in it.

        Raises
        ------
        ArgumentError
            If the text holds what has no meaning in it, an operand is missing, or one is not used.

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
