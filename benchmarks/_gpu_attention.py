"""Attention of ``gpu.py``: ours and PyTorch's ``scaled_dot_product_attention``, which chooses among its kernels.

Sizes and reference are those of ``attention.py``: the first and the last head are compared in float64.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import attention
from _cases import Case, Contender
from _gpu_contenders import TOLERANCES, Field, Set, contender, stored
from _gpu_conv import Made, _spoil
from _gpu_libraries import Library
from attention import BOTH, Heads

PASSES = ("fprop", BOTH)
HEADS = (
    (Heads("16x64", "4096", 1, 16, 64, 4096, 4096), 4),
    (Heads("16x64", "causal 4096", 1, 16, 64, 4096, 4096, True), 4),
    (Heads("16x128", "causal 2048", 1, 16, 128, 2048, 2048, True), 8),
    (Heads("8x64", "512", 1, 8, 64, 512, 512), 64),
)
"""With their samples; a quick run takes the second."""
EMULATED = ((Heads("2x8", "causal 12", 1, 2, 8, 12, 12, True), 2),)
"""For an emulated GPU."""


def heads(quick: bool, emulated: bool) -> tuple[tuple[Heads, int], ...]:
    """What a run measures."""
    if emulated:
        return EMULATED
    return HEADS[1:2] if quick else HEADS


def attention_case(what: Heads, N: int, which: str, precision: str, field: Field) -> Case:
    """A pass of some heads of ``N`` samples."""
    problem = attention.Problem(what, N, which)
    dtype = stored(precision)
    for name in ("Q", "K", "V", "E"):
        setattr(problem, name, getattr(problem, name).astype(dtype))

    def made(library: Library, name: str, make: Any) -> Contender:
        run, results = make(library, problem, precision)
        each = contender(library, name, [Set(run, results, partial(_spoil, library, results))], make is _ours)
        return Contender(
            name, each.run, lambda: problem.sample(*each.result()), each.reset, make is _ours, each.elapsed
        )

    found = [made(field.ours, "neonlike", _ours)]
    refused = {name: why for name, why in field.absent.items() if name == "torch"}
    if torch := field.peers.get("torch"):
        found.append(made(torch, "torch", _torch))
    flops = what.flops(N) if which == "fprop" else 7 * what.flops(N) // 2  # backward computes the scores again
    nbytes = what.nbytes(N) * dtype.itemsize // 4 // (2 if which == "fprop" else 1)
    text = f"attention {which} {precision}, {what.text}, N = {N}"
    return Case(
        f"{what.text} {which}", text, problem.E.size, found, problem.reference, nbytes, TOLERANCES[precision], refused,
        flops=flops,
    )  # fmt: skip


def _ours(library: Any, problem: attention.Problem, precision: str) -> Made:
    be, what = library.be, problem.layer
    layer = be.attention_layer(
        problem.Q.dtype, problem.N, what.heads, what.queries, what.size, keys=what.keys, causal=what.causal
    )
    Q, K, V, E = (library.put(array) for array in (problem.Q, problem.K, problem.V, problem.E))
    out, lse = be.empty(layer.dimO, dtype=E.dtype), be.empty(layer.dimL)
    if problem.direction == "fprop":
        return lambda: be.fprop_attention(layer, Q, K, V, out), lambda: [out]
    gradients = [be.empty_like(tensor) for tensor in (Q, K, V)]

    def both() -> None:
        be.fprop_attention(layer, Q, K, V, out, lse)
        be.bprop_attention(layer, Q, K, V, out, lse, E, *gradients)

    return both, lambda: [out, *gradients]


def _torch(library: Any, problem: attention.Problem, precision: str) -> Made:
    torch, last, causal = library.torch, list[Any](), problem.layer.causal
    function = torch.nn.functional.scaled_dot_product_attention
    backward = problem.direction == BOTH
    with torch.inference_mode(False):
        Q, K, V, E = (library.put(array).clone() for array in (problem.Q, problem.K, problem.V, problem.E))
        for tensor in (Q, K, V):
            tensor.requires_grad_(backward)

    def run() -> None:
        torch.backends.cuda.matmul.allow_tf32 = precision == "tf32"
        with torch.inference_mode(not backward), torch.set_grad_enabled(backward):
            out = function(Q, K, V, is_causal=causal)
            gradients = torch.autograd.grad(out, (Q, K, V), E) if backward else ()
        last[:] = [made.detach() for made in (out, *gradients)]

    return run, lambda: last
