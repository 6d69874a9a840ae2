"""Faults in what replaces services that a system lacks: processors, locks, links, homes."""

# ruff: noqa: E501  (one fault, one line: the tables read across)

from __future__ import annotations

from tests.planted.table import Mutant

SYSTEM, ATOMIC, PERSIST = "neonlike/system.py", "neonlike/util/atomic.py", "neonlike/util/persist.py"


def fault(name: str, file: str, old: str, new: str) -> Mutant:
    return Mutant("systems", name, file, old, new)


MUTANTS = (
    fault("all processors are a process's own", SYSTEM, "set(os.sched_getaffinity(0))", "set(range(os.cpu_count() or 1))"),
    fault("no processor where their number is unknown", SYSTEM, "os.cpu_count() or 1", "os.cpu_count() or 0"),
    fault("locks are there where they are not", SYSTEM, 'find_spec("fcntl") is not None', 'find_spec("fcntl") is None'),
    fault("a lock that others share", SYSTEM, "fcntl.flock(file, fcntl.LOCK_EX if wait else fcntl.LOCK_EX", "fcntl.flock(file, fcntl.LOCK_SH if wait else fcntl.LOCK_SH"),
    fault("a link that breaks when its folder moves", ATOMIC, "os.symlink(os.path.basename(file), new)", "os.symlink(os.path.abspath(file), new)"),
    fault("without links the newest file is moved", ATOMIC, "shutil.copyfile(file, new)", "os.replace(file, new)"),
    fault("a failure leaves the new name", ATOMIC, "FileNotFoundError):  # renamed\n            os.remove(new)", "FileNotFoundError):  # renamed\n            pass"),
    fault("a user without a home meets a bare error", PERSIST, "except RuntimeError as error:", "except KeyError as error:"),
)  # fmt: skip
