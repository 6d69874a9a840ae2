"""Machine code of convolutions by Intel's tiles (AMX)."""

from __future__ import annotations

from pathlib import Path

import pytest

from neonlike.backends.cpu.primitives.conv.hooks import DATA, UPDATE, Kernels
from neonlike.backends.cpu.primitives.conv.kind import Kind
from neonlike.backends.cpu.primitives.conv.plan import OF_TILES
from neonlike.backends.cpu.primitives.conv.update import TILES_OF_UPDATE
from neonlike.kernels.c.pairs import TILES
from tests.support.machine_code import assembly, check_inner_loop, functions_of

pytestmark = [pytest.mark.engines("c"), pytest.mark.cpu_only("the compiled kernels of the CPU")]


def code_of(kernels: Kernels, command: str, folder: Path, **sizes: int | str) -> dict[str, list[str]]:
    """Functions of a convolution's kernel, compiled for a processor with tiles."""
    source = kernels.routine.source(real="float", lanes=OF_TILES.lanes, pairs=TILES, **sizes, **kernels.fields)
    return functions_of(assembly(command, folder, str(source.source), source.headers))


def check_units(lines: list[str]) -> None:
    """Units of work begin with tiles and end with them: no thread keeps them."""
    assert [line.split()[0] for line in lines if line.startswith(("ldtilecfg", "tilerelease"))] == [
        "ldtilecfg", "tilerelease",
    ]  # fmt: skip


@pytest.mark.parametrize("command", ["gcc", "clang"])
@pytest.mark.parametrize("kind", [Kind.DIRECT, Kind.POINTWISE])
def test_forward_pass_and_data_gradient(tmp_path: Path, command: str, kind: Kind) -> None:
    code = code_of(DATA[kind], command, tmp_path, maps=OF_TILES.maps, vectors=OF_TILES.width, half="")
    check_inner_loop(code["add_taps_2_2"])
    check_units(code["take_units"])


@pytest.mark.parametrize("command", ["gcc", "clang"])
def test_gradient_of_filters(tmp_path: Path, command: str) -> None:
    code = code_of(UPDATE[Kind.DIRECT], command, tmp_path, width=2, taps=TILES_OF_UPDATE.width, step=1)
    check_inner_loop(code["add_place_2_2"])
    check_units(code["take_units"])
