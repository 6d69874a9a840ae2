"""The sequences of ``_sequences.py`` as one writes them in PyTorch, eager or compiled, in float32 or float64."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from _libraries import Array
from _nets import EPS, MOMENTUM, RHO
from _nets_torch import Training, Way
from _sequences import BARE_RATE, CONV, MLP, RNN, Made, Operands


def _arrays(*tensors: Any) -> list[Array]:
    return [tensor.detach().numpy() for tensor in tensors]


def mlp(way: Way, operands: Operands) -> Made:
    """The optimizer is the fused one, or a compiled one."""
    made = Training(way, MLP)
    return Made({"step": made.step}, lambda: made.result()[1:])


def calls(way: Way, operands: Operands) -> Made:
    """Into existing tensors; the bias is part of the product."""
    torch = way.torch
    x, W, b = (way.tensor(array) for array in operands.values())
    z, dW, db, v, vb = torch.zeros(len(W), x.shape[1], dtype=way.dtype), *map(torch.zeros_like, (W, b, W, b))

    def update(parameter: Any, gradient: Any, velocity: Any) -> None:
        velocity.mul_(MOMENTUM).add_(gradient, alpha=-BARE_RATE)
        parameter.add_(velocity)

    def plain() -> None:
        torch.addmm(b, W, x, out=z)
        torch.relu_(z)
        torch.mm(z, x.T, out=dW)
        torch.sum(z, 1, keepdim=True, out=db)
        update(W, dW, v)
        update(b, db, vb)

    def functional() -> None:
        made = torch.relu(torch.addmm(b, W, x))
        # With mul_ and add_ as above, torch.compile of PyTorch 2.13 computes something else.
        for parameter, gradient, velocity in ((W, made @ x.T, v), (b, made.sum(1, keepdim=True), vb)):
            moved = MOMENTUM * velocity - BARE_RATE * gradient
            velocity.copy_(moved)
            parameter.add_(moved)

    run = way.wrap(functional) if way.compiled else plain

    def step() -> None:
        with torch.no_grad():
            run()

    return Made({"step": step}, lambda: [after - operands[n] for n, after in zip("Wb", _arrays(W, b))])


def conv(way: Way, operands: Operands) -> Made:
    """Images (N, C, H, W) in memory in this order, or channels last."""
    torch, F = way.torch, way.torch.nn.functional
    x, filters = way.images(operands["I"], (3, 0, 1, 2)), way.images(operands["F"], (3, 0, 1, 2))
    gamma, beta, V = (way.tensor(operands[n].squeeze(), trained=True) for n in ("gamma", "beta", "V"))
    errors = way.tensor(operands["E"].T)
    mean, var = torch.zeros(CONV.K, dtype=way.dtype), torch.zeros(CONV.K, dtype=way.dtype)
    trained, found = (x, filters, gamma, beta, V), dict[str, Any]()

    def forward() -> Any:
        maps = F.conv2d(x, filters, None, 1, CONV.window // 2)
        maps = F.relu(F.batch_norm(maps, mean, var, gamma, beta, True, 1 - RHO, EPS))
        return F.linear(F.max_pool2d(maps, 2).flatten(1), V)

    run = way.wrap(forward)

    def step() -> None:
        found.clear()  # memory of the last results can be used again
        found["out"] = run()
        found["gradients"] = torch.autograd.grad(found["out"], trained, errors)

    def result() -> list[Array]:
        _, dF, dgamma, dbeta, dV = _arrays(*found["gradients"])
        (out,) = _arrays(found["out"])
        return [out.T, dV, dgamma[:, None], dbeta[:, None], dF.transpose(1, 2, 3, 0).reshape(-1, CONV.K)]

    return Made({"step": step}, result)


def rnn(way: Way, operands: Operands) -> Made:
    """``torch.nn.RNN``, which torch.compile leaves as it is: compiled, its steps are a loop."""
    torch, F, cell = way.torch, way.torch.nn.functional, RNN.cell
    by_step = lambda array: array.reshape(len(array), cell.steps, RNN.N).transpose(1, 2, 0)  # noqa: E731
    x, errors = way.tensor(by_step(operands["x"]), trained=True), way.tensor(by_step(operands["E"]))
    V = way.tensor(operands["V"], trained=True)
    layer = torch.nn.RNN(cell.features, cell.hidden).to(way.dtype)
    W_input, W_recur, b, b_zero = layer.parameters()
    with torch.no_grad():
        for parameter, name in ((W_input, "W_input"), (W_recur, "W_recur"), (b, "b")):
            parameter.copy_(torch.from_numpy(operands[name].reshape(parameter.shape)))
        b_zero.zero_()
    trained, found = (V, x, W_input, W_recur, b), dict[str, Any]()

    def loop() -> Any:
        gates = F.linear(x, W_input, b)
        h = torch.zeros(RNN.N, cell.hidden)
        steps = []
        for t in range(cell.steps):
            h = torch.tanh(gates[t] + F.linear(h, W_recur))
            steps.append(h)
        return F.linear(torch.stack(steps), V)

    run = way.wrap(loop) if way.compiled else lambda: F.linear(layer(x)[0], V)

    def step() -> None:
        found.clear()
        found["out"] = run()
        found["gradients"] = torch.autograd.grad(found["out"], trained, errors)

    def result() -> list[Array]:
        dV, dx, dW_input, dW_recur, db = _arrays(*found["gradients"])
        columns = lambda array: array.transpose(2, 0, 1).reshape(array.shape[2], -1)  # noqa: E731
        return [columns(*_arrays(found["out"])), dV, columns(dx), dW_input, dW_recur, db[:, None]]

    return Made({"step": step}, result)


STEPS: dict[str, Callable[[Way, Operands], Made]] = {"mlp": mlp, "calls": calls, "conv": conv, "rnn": rnn}
