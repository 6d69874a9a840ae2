"""Agreement of the ranks on NCCL: all use it, or none does. No rank can decide alone, for the others would wait."""

from __future__ import annotations

import platform
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

from neonlike.backends.gpu.ranks.nccl import text_of

BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")
"""Another text on each machine, whose names may be the same."""


class Offer(NamedTuple):
    """Facts about a rank that the others need.

    Attributes
    ----------
    lack : str
        The reason why it cannot use NCCL; empty if it can.
    version : int
        Its version of NCCL; 0 without one.
    machine, bus : str
        Machine, and number of the GPU's slot there.
    """

    lack: str
    version: int
    machine: str
    bus: str


def machine() -> str:
    """The name of this machine, unlike those of others."""
    try:
        boot = BOOT_ID.read_text(encoding="ascii").strip()
    except OSError:
        boot = ""
    return f"{platform.node()} {boot}"


def obstacle(offers: Sequence[Offer]) -> str:
    """The reason why the ranks that make these ``offers`` cannot use NCCL together; empty if they can."""
    for rank, offer in enumerate(offers):
        if offer.lack:
            return f"rank {rank} has no NCCL ({offer.lack})"
    for rank, offer in enumerate(offers):
        if offer.version != offers[0].version:
            return f"rank {rank} has NCCL {text_of(offer.version)}, rank 0 {text_of(offers[0].version)}"
    places: dict[tuple[str, str], int] = {}
    for rank, offer in enumerate(offers):
        first = places.setdefault((offer.machine, offer.bus), rank)
        if first != rank:
            return f"ranks {first} and {rank} share the GPU {offer.bus}, which NCCL does not allow"
    return ""
