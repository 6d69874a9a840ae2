"""Sources of CUDA kernels of expressions, also for the CPU's tensors: only layouts count."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from neonlike.kernels.build.source import KernelSource
from neonlike.kernels.codegen.emit import make_kernel
from neonlike.kernels.cuda.device import Capabilities
from neonlike.kernels.cuda.launch import CudaKernel
from neonlike.kernels.planning.graph import linearize
from neonlike.kernels.planning.plan import StageKind
from neonlike.kernels.planning.planner import make_plan

DEVICE: Any = SimpleNamespace(capabilities=Capabilities("sm_90", 132))


def cuda_source(expression: Any, out: Any, aligned: bool = True) -> KernelSource:
    """The kernel that assigns ``expression``, which is one stage, to ``out``; ``aligned``: as if all memory were."""
    graph = linearize(((out, expression),))
    plan = make_plan(graph)
    (stage,) = plan.stages
    kernel = make_kernel(plan, stage, graph)
    axes = stage.axes if stage.kind is StageKind.REDUCE else None
    compiled = CudaKernel(DEVICE, kernel, axes, "")
    tensors = [graph.leaves[a.index] for a in kernel.inputs] + [graph.targets[a.index] for a in kernel.outputs]
    arrays = [tensor.asnumpyarray() for tensor in tensors]
    return compiled.source(compiled.fit(stage.space.of(graph), arrays, aligned))
