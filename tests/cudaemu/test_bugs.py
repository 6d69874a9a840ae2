"""Planted bugs that the emulated GPU must find, with the modes that notice each, and healthy twins that stay clean.

Checking holds for a whole process: all cases run in one with it and in one without.
"""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
from typing import Any

import pytest

from tests import ROOT
from tests.cudaemu.planted_bugs import CASES

pytestmark = [pytest.mark.emulator, pytest.mark.usefixtures("gpu_driver")]

# CUEMU_CHECK and CUEMU_ASYNC
MODES = {"plain": ("0", "0"), "late": ("0", "1"), "checked": ("1", "1")}

FINDS: dict[str, tuple[str, str, str]] = {
    # the outcome where nothing is checked, where streams are late, and with both: a part of its text
    "barrier_missing_after_a_write": ("wrong", "wrong", "read of uninitialised shared memory at kernel.cu:7"),
    "barrier_missing_in_a_loop": ("wrong", "wrong", "race on shared memory between lanes of one warp"),
    "barrier_missing_before_the_next_tile": ("wrong", "wrong", "race on shared memory between"),
    "warp_barrier_missing": ("wrong", "wrong", "read of uninitialised shared memory"),
    "shuffle_taken_for_a_warp_barrier": ("clean", "clean", "race on shared memory between lanes of one warp"),
    "write_past_the_end": (
        "out-of-bounds write 0 bytes past",
        "out-of-bounds write",
        "out-of-bounds global write of 4 bytes",
    ),
    "write_past_the_end_of_a_page": (
        "illegal address",
        "illegal address",
        "out-of-bounds global write of 4 bytes",
    ),
    "read_past_the_end": ("clean", "clean", "out-of-bounds global read of 4 bytes"),
    # The compiler drops the load, as a GPU's does.
    "read_past_the_end_that_changes_nothing": ("clean", "clean", "clean"),
    "shared_array_overrun": ("clean", "clean", "128 bytes from the start of a, which has 128"),
    "shared_memory_not_initialised": ("wrong", "wrong", "read of uninitialised shared memory"),
    "global_memory_not_initialised": ("wrong", "wrong", "read of uninitialised global memory"),
    "vector_load_of_shared_floats": ("illegal address", "illegal address", "misaligned 16-byte read of shared"),
    "vector_load_misaligned": ("illegal address", "illegal address", "misaligned 16-byte read"),
    "atomic_missing": ("clean", "clean", "race on global memory between lanes of one warp"),
    "blocks_write_the_same_output": (
        "wrong|clean",
        "wrong|clean",
        "write-write race on global memory between different blocks",
    ),
    "fence_missing_before_the_last_block": (
        "clean",
        "clean",
        "race on global memory between different blocks",
    ),
    "barrier_in_both_branches": ("clean", "clean", "divergent barrier"),
    "shuffle_that_some_lanes_skip": (
        "deadlock",
        "deadlock",
        "deadlock: of 32 threads 16 wait at __syncthreads()",
    ),
    "argument_of_the_wrong_size": (
        "20 bytes of arguments, the kernel takes 12",
        "20 bytes",
        "20 bytes of arguments",
    ),
    "host_memory_in_a_kernel": ("wrong", "wrong", "not a device address"),
    "memory_used_after_it_was_freed": ("illegal address", "illegal address", "was it freed?|past the end"),
    "more_dynamic_shared_memory_than_there_is": (
        "60000 bytes of dynamic shared memory, 49152 allowed",
        "60000",
        "60000",
    ),
    "more_shared_memory_than_there_is_beside_what_is_declared": (
        "49152 bytes of dynamic shared memory beside 256 that are declared, 49152 allowed",
        "beside 256 that are declared",
        "beside 256 that are declared",
    ),
    "dynamic_shared_memory_overrun": ("clean", "clean", "offset 128 of 128 bytes of dynamic shared memory"),
    "result_read_before_the_stream_is_done": ("clean", "wrong", "wrong"),
    "streams_without_an_event_between": ("clean", "wrong", "wrong"),
    "division_by_zero": ("integer division by zero", "division by zero", "division by zero"),
    "plain_read_of_what_another_block_wrote": (
        "clean",
        "clean",
        "another block wrote in this launch at kernel.cu:4: it needs __ldcg or an acquiring load at kernel.cu:11",
    ),
    "barrier_of_the_grid_missing": ("wrong", "wrong", "race on global memory between different blocks"),
    "fence_missing_before_a_barrier_of_the_grid": (
        "clean",
        "clean",
        "race on global memory between different blocks",
    ),
    "block_arrives_before_its_threads_have_written": (
        "wrong|clean",
        "wrong|clean",
        "race on global memory between different blocks",
    ),
    "barrier_of_the_grid_that_waits_for_one_block_too_few": (
        "wrong",
        "wrong",
        "race on global memory between different blocks",
    ),
    "barrier_of_the_grid_set_back_while_a_block_waits": (
        "a thread waits for what no other does",
        "a thread waits for what no other does",
        "a thread waits for what no other does",
    ),
    "barrier_of_the_grid_in_a_plain_launch": (
        "blocks of a plain launch need not run at the same time",
        "blocks of a plain launch",
        "blocks of a plain launch",
    ),
    "barrier_of_the_grid_that_one_block_skips": (
        "a thread waits for what no other does",
        "a thread waits for what no other does",
        "a thread waits for what no other does|race on global memory between different blocks",
    ),
    "stream_of_a_graph_without_an_event_between": ("clean", "wrong", "wrong"),
    "memory_of_another_device": (
        "points to memory of device 1, it runs on 0",
        "points to memory of device 1",
        "points to memory of device 1",
    ),
    "asynchronous_copy_not_waited_for": ("wrong", "wrong", "read of uninitialised shared memory at kernel.cu:11"),
    "asynchronous_copy_waited_for_by_one_group_too_few": (
        "wrong",
        "wrong",
        "read of uninitialised shared memory at kernel.cu:11",
    ),
    "barrier_missing_after_an_asynchronous_copy": ("wrong", "wrong", "read of uninitialised shared memory"),
    "asynchronous_copy_into_a_tile_that_is_read": ("wrong", "wrong", "read-write race on shared memory"),
    "quarters_of_a_fragment_exchanged": ("wrong", "wrong", "wrong"),
    "fragment_loaded_without_transposing": ("wrong", "wrong", "wrong"),
    "sums_of_a_fragment_stored_in_the_wrong_rows": ("wrong", "wrong", "wrong"),
    "warp_barrier_missing_before_a_fragment_is_loaded": ("clean", "clean", "race on shared memory between lanes"),
    "matrix_instruction_in_a_part_of_a_warp": ("deadlock", "deadlock", "deadlock: of 32 threads 16 wait"),
    "factors_not_rounded_to_tf32": ("wrong", "wrong", "wrong"),
}


@functools.cache
def outcomes_of_process(check: str) -> dict[str, dict[str, dict[str, str]]]:
    """Every case's outcome, with its bug and without, for each way of running streams."""
    asynchronous = [late for checked, late in MODES.values() if checked == check]
    done = subprocess.run(
        [sys.executable, "-m", "tests.cudaemu.planted_bugs", *asynchronous],
        cwd=ROOT,
        env={**os.environ, "CUEMU_CHECK": check, "CUEMU_THREADS": "1", "CUEMU_ORDER": "forward"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    result: dict[str, dict[str, dict[str, str]]] = json.loads(done.stdout)
    return result


def outcomes(mode: str) -> dict[str, dict[str, str]]:
    check, asynchronous = MODES[mode]
    return outcomes_of_process(check)[asynchronous]


def test_the_table_has_every_planted_bug() -> None:
    assert FINDS.keys() == CASES.keys()


@pytest.mark.parametrize("name", FINDS)
@pytest.mark.parametrize("column", range(len(MODES)), ids=list(MODES))
def test_a_planted_bug_is_found_by_the_modes_that_can(name: str, column: int) -> None:
    found = outcomes(list(MODES)[column])[name]["bug"]
    assert any(part in found for part in FINDS[name][column].split("|")), found


@pytest.mark.parametrize("name", FINDS)
@pytest.mark.parametrize("mode", MODES)
def test_its_healthy_twin_is_clean(name: str, mode: str) -> None:
    assert outcomes(mode)[name]["healthy"] == "clean"


def test_reports_name_kernel_block_thread_and_line() -> None:
    report: Any = outcomes("checked")["write_past_the_end"]["bug"]
    assert "at kernel.cu:3 [kernel k, block (7,0,0), thread (104,0,0)]" in report
    assert "0 bytes past the end of the allocation before, which has 4000" in report
