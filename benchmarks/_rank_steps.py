"""Training steps of one network on one of several ranks, for ``scaling.py``; rank 0 prints the median time as JSON.

``_rank_steps.py WAY NETWORK BATCH STEPS WARM``, with the ways ``ours``, started by mpiexec or alone; ``apart``, ours
where no rank knows of another; and ``torch``, which finds the other ranks by the variables RANK, WORLD_SIZE,
MASTER_ADDR and MASTER_PORT. BATCH is that of all ranks together that know of each other.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from _nets import NETS, Net
from _scaling_nets import LARGE

Step = Callable[[], object]


def ours(net: Net, distributed: bool | None = None) -> tuple[Step, Callable[[], None], bool]:
    """A step as ``Model.fit`` makes it; what waits for all ranks; whether this one is the first."""
    from _nets_ours import Training

    from neonlike.backends import gen_backend
    from neonlike.models.together import Together

    be = gen_backend("cpu", rng_seed=0, batch_size=net.N, distributed=distributed)
    training = Training(be, replace(net, N=be.bsz))
    model = training.model
    together = Together.of(model, model._interrupts)
    model.together = together

    def step() -> None:
        cost = model._train_batch(training.x, training.t, training.layers)
        if together is not None:
            together.agreed(cost)

    return step, be.barrier, be.rank == 0


def apart(net: Net) -> tuple[Step, Callable[[], None], bool]:
    """Our step in a process that shares the machine with others, and nothing else."""
    return ours(net, distributed=False)


def theirs(net: Net) -> tuple[Step, Callable[[], None], bool]:
    """PyTorch's step, in DistributedDataParallel if there are several ranks."""
    from _libraries import set_torch_up
    from _nets_torch import Training, Way

    set_torch_up(int(os.environ["OMP_NUM_THREADS"]), gradients=True)
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel

    ranks = int(os.environ.get("WORLD_SIZE", "1"))
    training: Any = Training(Way("torch"), replace(net, N=net.N // ranks))
    if ranks > 1:
        dist.init_process_group("gloo")
        training.model = DistributedDataParallel(training.model)
    return training.step, dist.barrier if ranks > 1 else lambda: None, os.environ.get("RANK", "0") == "0"


def main(way: str, name: str, batch: int, steps: int, warm: int) -> None:
    """Measure and print."""
    net = replace((NETS | LARGE)[name], N=batch)
    step, wait, is_first = {"ours": ours, "apart": apart, "torch": theirs}[way](net)
    for _ in range(warm):
        step()
    took = []
    for _ in range(steps):
        wait()
        start = time.perf_counter()
        step()
        took.append(time.perf_counter() - start)
    if is_first:
        print(json.dumps({"median": statistics.median(took)}))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], *map(int, sys.argv[3:]))
