"""Recurrent layers against PyTorch's, where it is installed, with its order of gates and layout mapped to ours."""

from __future__ import annotations

from typing import Any

import pytest

from neonlike.initializers import Gaussian
from neonlike.layers import BiLSTM, BiRNN
from neonlike.transforms import Logistic, Tanh
from tests.support.float64.recurrent_loops import make, ready
from tests.support.numbers import close

torch = pytest.importorskip("torch")

NIN, NOUT, T, N = 4, 3, 5, 6
LENGTHS = [5, 3, 2, 1, 5, 4]
ORDER = {1: [0], 4: [0, 1, 3, 2]}
"""Where each of PyTorch's gates, i f g o, is among ours, i f o g."""
pytestmark = [pytest.mark.samples(N), pytest.mark.peers("torch")]


def in_columns(x: Any) -> Any:
    """(steps, N, features) as (features, steps * N)."""
    return x.detach().numpy().transpose(2, 0, 1).reshape(x.shape[2], -1)


def our_order(weight: Any) -> Any:
    """Rows of a weight (gates * NOUT, ...) in our order of gates."""
    gates = weight.detach().numpy().reshape(-1, NOUT, weight.shape[1] if weight.dim() > 1 else 1)
    return gates[ORDER[len(gates)]].reshape(-1, gates.shape[2])


def layers(kind: str, both: bool) -> tuple[Any, Any]:
    """PyTorch's layer with random weights, and ours with the same."""
    theirs = {"rnn": torch.nn.RNN, "lstm": torch.nn.LSTM}[kind](NIN, NOUT, bidirectional=both).double()
    if both:
        gate = {"gate_activation": Logistic()} if kind == "lstm" else {}
        ours = {"rnn": BiRNN, "lstm": BiLSTM}[kind](NOUT, Gaussian(), activation=Tanh(), **gate)
    else:
        ours = make(kind, NOUT)
    ready(ours, (NIN, T))
    for way, suffix in (("_f", ""), ("_b", "_reverse")) if both else (("", ""),):
        getattr(ours, f"W_input{way}").set(our_order(getattr(theirs, f"weight_ih_l0{suffix}")))
        getattr(ours, f"W_recur{way}").set(our_order(getattr(theirs, f"weight_hh_l0{suffix}")))
        bias = getattr(theirs, f"bias_ih_l0{suffix}") + getattr(theirs, f"bias_hh_l0{suffix}")
        getattr(ours, f"b{way}").set(our_order(bias))
    return theirs, ours


@pytest.mark.parametrize("kind", ["rnn", "lstm"])
@pytest.mark.parametrize("both", [False, True], ids=["one way", "both ways"])
@pytest.mark.parametrize("lengths", [None, LENGTHS], ids=["whole", "lengths"])
def test_rnn_and_lstm(be64: Any, kind: str, both: bool, lengths: Any) -> None:
    """Sequences of different lengths are PyTorch's packed sequences."""
    torch.manual_seed(1)
    theirs, ours = layers(kind, both)
    x = torch.randn(T, N, NIN, dtype=torch.float64, requires_grad=True)
    e = torch.randn(T, N, NOUT * (1 + both), dtype=torch.float64)
    if lengths is None:
        wanted, state = theirs(x)
    else:
        packed = torch.nn.utils.rnn.pack_padded_sequence(x, lengths, enforce_sorted=False)
        wanted, state = theirs(packed)
        wanted, _ = torch.nn.utils.rnn.pad_packed_sequence(wanted, total_length=T)
    wanted.backward(e)
    ours.set_lengths(lengths)
    close(ours.fprop(be64.array(in_columns(x))), in_columns(wanted))
    close(ours.bprop(be64.array(in_columns(e))), in_columns(x.grad))
    if not both:
        states = state if kind == "lstm" else [state]
        for mine, its in zip(ours.get_state(), states, strict=True):
            close(mine, its[0].detach().numpy().T)
    for way, suffix in (("_f", ""), ("_b", "_reverse")) if both else (("", ""),):
        close(getattr(ours, f"dW_input{way}"), our_order(getattr(theirs, f"weight_ih_l0{suffix}").grad))
        close(getattr(ours, f"dW_recur{way}"), our_order(getattr(theirs, f"weight_hh_l0{suffix}").grad))
        close(getattr(ours, f"db{way}"), our_order(getattr(theirs, f"bias_ih_l0{suffix}").grad))


def test_gru(be64: Any) -> None:
    """By PyTorch's autograd: its own GRU applies the reset gate after the product, neon's before."""
    torch.manual_seed(1)
    ours = ready(make("gru", NOUT), (NIN, T))
    W, U, b = (torch.tensor(p.get().copy(), requires_grad=True) for p in (ours.W_input, ours.W_recur, ours.b))
    x, e = torch.randn(T, NIN, N, dtype=torch.float64, requires_grad=True), torch.randn(T, NOUT, N, dtype=torch.float64)
    h, states = torch.zeros(NOUT, N, dtype=torch.float64), []
    for step in x:
        r, z, n = (W @ step + b).split(NOUT)
        r, z = torch.sigmoid(r + U[:NOUT] @ h), torch.sigmoid(z + U[NOUT : 2 * NOUT] @ h)
        h = (1 - z) * h + z * torch.tanh(n + U[2 * NOUT :] @ (r * h))
        states.append(h)
    torch.stack(states).backward(e)
    columns = lambda t: t.detach().numpy().transpose(1, 0, 2).reshape(t.shape[1], -1)  # noqa: E731
    close(ours.fprop(be64.array(columns(x))), columns(torch.stack(states)))
    close(ours.bprop(be64.array(columns(e))), columns(x.grad))
    for mine, its in ((ours.dW_input, W), (ours.dW_recur, U), (ours.db, b)):
        close(mine, its.grad.numpy())
