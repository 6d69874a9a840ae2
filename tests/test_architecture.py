"""The architecture, read from the source text: import arrows point down, files and functions stay short.

The checks work on any folder, so that the planted violations at the end can prove that they bite.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest

from tests import ROOT

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib  # which pytest brings on Python 3.10

PACKAGE = "neonlike"
SOURCE = ROOT / PACKAGE
BENCHMARKS = SOURCE.parent / "benchmarks"
MAX_FILE_LINES = 600
MAX_FUNCTION_LINES = 40
"""Without the docstring."""

GROUND_FLOOR = ("attached", "checks", "console", "errors", "logger", "markup", "settings", "system", "version")
"""Usable by everything, and using nothing of the package but each other."""

STOREYS: tuple[tuple[str, ...], ...] = (
    ("optree",),
    ("nervanaobject",),
    ("distributed",),
    ("kernels",),
    ("backends",),
    ("autograd",),
    ("initializers", "transforms", "optimizers", "util"),
    ("data",),
    ("layers",),
    ("exchange",),
    ("models", "callbacks", "report", "visualizations"),
    ("benchmark", "experiments"),
    ("compat",),
)
"""From the bottom up; a module may import from its own storey and from those below it. A package is in one storey."""

INNER: dict[str, tuple[tuple[str, ...], ...]] = {
    "kernels": (("planning",), ("codegen",), ("build",), ("run",), ("bench",), ("numpy_engine",), ("c",), ("cuda",)),
    "layers": (("core",), ("norm",), ("dense",), ("images",), ("recurrent",), ("container",), ("blueprint",)),
    "backends.cpu": (("primitives",),),
    "backends.gpu": (("memory",), ("device",), ("ranks",), ("tensors",), ("products",), ("primitives",)),
    "backends": (
        ("geometry",), ("tensors",), ("expressions",), ("primitives",), ("objects",), ("machine",), ("cpu", "gpu"),
        ("util",),
    ),
}  # fmt: skip
"""Folders of a package that has storeys of its own, from the bottom up."""
BESIDE_FOLDERS = {
    "kernels": {"__init__.py"},
    "layers": {"__init__.py", "layer.py"},
    "backends.cpu": {"__init__.py", "backend.py", "memory.py", "tensor.py"},
    "backends.gpu": {"__init__.py", "backend.py", "doctor.py", "host_stage.py", "selftest.py"},
}
"""Modules of such a package that stand beside its folders, above them: what puts together what they have.

A package that is not listed has modules below its folders, too; that these make no circle is all that is asked of them.
"""
APART = {
    ("kernels.c", "kernels.cuda"), ("kernels.cuda", "kernels.c"),
    ("backends.cpu", "backends.gpu"), ("backends.gpu", "backends.cpu"),
}  # fmt: skip
"""Folders that import nothing of each other, though one stands above the other."""

TESTS = ROOT / "tests"
TESTS_APART = {
    "backends/replays": "backends/replays.py and watched.py",
    "cudaemu": "the emulated GPU",
    "fuzz": "random programs",
    "gpu_check": "the program that tries a GPU",
    "packages": "what is installed, and where it runs",
    "planted": "faults for mutants.py",
}
"""Folders of tests that neither the package nor the repository has, and what they are about."""

PROJECT = tomllib.loads((SOURCE.parent / "pyproject.toml").read_text(encoding="utf-8"))["project"]
BASE_DEPENDENCIES = {re.split("[<>=]", requirement)[0].lower() for requirement in PROJECT["dependencies"]}
"""What `import neonlike` may need; every other package is imported inside the function that uses it."""

THIRD_PARTY = {"optree": {"numpy", "ml_dtypes"}, "kernels": {"numpy", "jinja2"}}
"""Storeys that may use less than the base dependencies, even inside functions."""

GPU_PACKAGES = {"pycuda", "skcuda"}

REWRITES = {
    "checks": "has the arguments of methods checked",
    "kernels.c.fastbuild": "has the extension build nodes and repeat calls, and takes that back",
    "optree.operators": "gives expressions their operators, row by row",
    "optree.methods": "gives expressions the methods of rows that are registered",
    "optree.autodiff": "sets the size at which dead entries of its table are dropped",
    "autograd.methods": "gives variables the operators and methods of expressions",
    "backends.taken": "makes a tensor whose contents may be taken over one whose may not",
    "compat.calls": "lets neon's arguments be given",
    "compat.op_collection": "fills neon's lists of ops from the table",
    "logger": "gives every logger neon's level",
}
"""Modules that change classes after these were defined, and why; no other may."""
INNARDS = {"__self__", "__func__", "__wrapped__", "__closure__", "__code__", "__globals__", "__defaults__", "gi_frame"}
"""Attributes by which the objects within functions are dug out."""
DIGS = {
    "kernels.c.fastbuild": "puts back the functions that the extension stood before",
    "backends.watched": "looks whether a method is the library's",
    "backends.expressions.activation": "asks whether a transform's method is the library's",
    "backends.primitives.rnn.formula": "knows a transform by its method",
    "autograd.ops.common": "keys gradient rules by their code",
    "compat.calls": "wraps class methods",
}
"""Modules that look into functions, and why; no other may: what a closure has is not for those who call it."""


def storey(module: str) -> int:
    """The height of a dotted name inside the package; -1 is the ground, the package itself is the roof."""
    package = module.partition(".")[2].partition(".")[0]
    if package in GROUND_FLOOR:
        return -1
    heights = {name: height for height, names in enumerate(STOREYS) for name in names}
    return heights.get(package, len(STOREYS))


def inner_fault(importer: str, target: str) -> bool:
    """Whether a folder inside a storey imports from one above it, or from one that it has nothing to do with."""
    for package, storeys in INNER.items():
        start = f"{PACKAGE}.{package}."
        if importer.startswith(start) and target.startswith(start):
            here, there = (name.removeprefix(start).split(".")[0] for name in (importer, target))
            heights = {name: height for height, names in enumerate(storeys) for name in names}
            if (f"{package}.{here}", f"{package}.{there}") in APART:
                return True
            if package not in BESIDE_FOLDERS and not heights.keys() >= {here, there}:
                return False
            return heights.get(there, len(heights)) > heights.get(here, len(heights))
    return False


def absolute(node: ast.ImportFrom, importer: str, is_package: bool) -> str:
    """The absolute module that ``from ... import`` names."""
    if not node.level:
        return node.module or ""
    package = importer.split(".") if is_package else importer.split(".")[:-1]
    base = package[: len(package) - node.level + 1]
    return ".".join([*base, node.module] if node.module else base)


@lru_cache(maxsize=1)
def nodes_of(tree: ast.AST) -> list[ast.AST]:
    """All nodes of a tree; several checks look through them one after the other."""
    return [*ast.walk(tree)]


def imports(tree: ast.AST, importer: str, is_package: bool) -> Iterator[tuple[ast.AST, str]]:
    """Every import with its dotted target, those inside functions and `import_module("...")` too."""
    for node in nodes_of(tree):
        if isinstance(node, ast.Import):
            yield from ((node, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            module = absolute(node, importer, is_package)
            yield from ((node, f"{module}.{alias.name}") for alias in node.names)
        elif isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
            function = node.func
            name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
            if name in ("import_module", "__import__") and isinstance(node.args[0].value, str):
                yield node, node.args[0].value


def top_level(tree: ast.Module) -> set[int]:
    """The ids of the nodes that run on import: everything outside functions and `if TYPE_CHECKING`."""
    found: set[int] = set()
    pending: list[ast.AST] = [tree]
    while pending:
        node = pending.pop()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            continue
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            pending.extend(node.orelse)
            continue
        found.add(id(node))
        pending.extend(ast.iter_child_nodes(node))
    return found


def import_faults(tree: ast.Module, importer: str, is_package: bool) -> Iterator[str]:
    """The imports of one module that the architecture forbids, as sentences with a line number."""
    on_import = top_level(tree)
    component = importer.split(".")[1] if "." in importer else ""
    for node, target in imports(tree, importer, is_package):
        line = getattr(node, "lineno", 0)
        top = target.split(".")[0]
        if top == PACKAGE:
            if storey(target) > storey(importer) or inner_fault(importer, target):
                yield f"{line}: imports {target}, which stands above {importer}"
        elif top in GPU_PACKAGES:
            if not importer.startswith(f"{PACKAGE}.backends.gpu"):
                yield f"{line}: imports {top}, which belongs under {PACKAGE}/backends/gpu only"
        elif top not in sys.stdlib_module_names:
            if top not in THIRD_PARTY.get(component, {top}):
                yield f"{line}: imports {top}, which {component} does not know"
            elif top not in BASE_DEPENDENCIES and id(node) in on_import:
                yield f"{line}: imports {top} for everybody; it is optional, import it where it is used"


def outermost_functions(tree: ast.Module) -> Iterator[ast.AST]:
    """The functions and methods that are within no other."""
    pending: list[ast.AST] = [tree]
    for node in pending:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node
        elif not isinstance(node, ast.expr):
            pending += ast.iter_child_nodes(node)


def rewrite_faults(tree: ast.Module) -> Iterator[str]:
    """The classes that functions change after their definition."""
    found: dict[int, str] = {}
    for node in (node for function in outermost_functions(tree) for node in ast.walk(function)):
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") in ("setattr", "delattr"):
            if _is_class(node.args[0]) or getattr(node.args[0], "id", "") in ("cls", "owner", "kind"):
                found[node.lineno] = ast.unparse(node.args[0])
        elif isinstance(node, ast.Assign | ast.AugAssign | ast.AnnAssign):
            for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                owner = target.value if isinstance(target, ast.Attribute) and target.attr != "be" else None
                if owner is not None and (target.attr == "__class__" or _is_class(owner)):
                    found[node.lineno] = ast.unparse(target)
    yield from (f"{line}: rewrites {what}, see REWRITES" for line, what in sorted(found.items()))


def _is_class(node: ast.expr) -> bool:
    """Whether an expression is a class by its name, or the class of something."""
    if isinstance(node, ast.Call):
        return getattr(node.func, "id", "") == "type"
    name = node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")
    return name in ("cls", "__class__") or bool(re.match("_?[A-Z]+[a-z]", name))


def dig_faults(tree: ast.Module) -> Iterator[str]:
    """The looks into functions."""
    for node in nodes_of(tree):
        name = node.attr if isinstance(node, ast.Attribute) else ""
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") in ("getattr", "hasattr", "attrgetter"):
            name = next((str(one.value) for one in node.args if isinstance(one, ast.Constant)), "")
        if name in INNARDS:
            yield f"{node.lineno}: digs for {name} of a function, see DIGS"


def docstring_lines(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    if ast.get_docstring(function) is None:
        return 0
    return (function.body[0].end_lineno or 0) - function.body[0].lineno + 1


def length_faults(source: str, tree: ast.Module) -> Iterator[str]:
    """The file and the functions that are too long."""
    if (lines := len(source.splitlines())) > MAX_FILE_LINES:
        yield f"1: {lines} lines, more than {MAX_FILE_LINES}"
    for node in nodes_of(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            length = (node.end_lineno or node.lineno) - node.lineno + 1 - docstring_lines(node)
            if length > MAX_FUNCTION_LINES:
                yield f"{node.lineno}: {node.name} has {length} lines, more than {MAX_FUNCTION_LINES}"


def faults(root: Path) -> list[str]:
    """Faults under a package folder, as ``file:line: fault``."""
    found = []
    for path in sorted(root.rglob("*.py")):
        relative = path.relative_to(root.parent)
        is_package = path.name == "__init__.py"
        importer = ".".join(relative.parts[:-1] if is_package else relative.with_suffix("").parts)
        source = path.read_text(encoding="utf-8")
        tree = ast.parse(source)
        sentences = [*import_faults(tree, importer, is_package), *length_faults(source, tree)]
        within = importer.partition(".")[2]
        sentences += [] if within in REWRITES else rewrite_faults(tree)
        sentences += [] if within in DIGS else dig_faults(tree)
        found += [f"{relative.as_posix()}:{sentence}" for sentence in sentences]
    return found


def imported(root: Path, scripts: bool = False) -> dict[str, set[str]]:
    """Module -> modules below ``root`` that it imports, inside functions and for types too.

    ``root`` is a package, or a folder of scripts, which import each other by their bare names.
    """
    trees = {}
    for path in root.rglob("*.py"):
        parts = path.relative_to(root if scripts else root.parent).with_suffix("").parts
        is_package = parts[-1] == "__init__"
        trees[".".join(parts[:-1] if is_package else parts)] = (ast.parse(path.read_text("utf-8")), is_package)
    found = {}
    for name, (tree, is_package) in trees.items():
        targets = {target for _, target in imports(tree, name, is_package)}
        modules = {target if target in trees else target.rpartition(".")[0] for target in targets}
        found[name] = (modules & set(trees)) - {name}
    return found


def circles(root: Path, scripts: bool = False) -> set[str]:
    """Modules that import themselves by way of others. A package may import its own modules."""
    arrows = imported(root, scripts)

    def above(module: str) -> set[str]:
        reached: set[str] = set()
        pending = [module]
        while pending:
            new = arrows[pending.pop()] - reached
            reached |= new
            pending += new
        return reached

    return {module for module in arrows if module in above(module)}


def test_modules_do_not_import_each_other() -> None:
    assert circles(SOURCE) == set()


def test_benchmarks_do_not_import_each_other() -> None:
    arrows = imported(BENCHMARKS, scripts=True)
    assert "harness" in arrows["expressions"], "the benchmarks are not where this test looks"
    assert circles(BENCHMARKS, scripts=True) == set()


@pytest.mark.parametrize(
    "back", ["from neonlike.optree.a import x\n", "def f():\n    from neonlike.optree import a\n",
             "if TYPE_CHECKING:\n    from neonlike.optree.a import x\n", "import neonlike.optree.a\n"]
)  # fmt: skip
def test_a_circle_is_found(back: str, tmp_path: Path) -> None:
    folder = tmp_path / PACKAGE / "optree"
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text("from neonlike.optree import a\n")
    (folder / "a.py").write_text("from neonlike.optree.b import y\nfrom neonlike.optree import c\n")
    (folder / "b.py").write_text(back)
    (folder / "c.py").write_text("x = 1\n")
    assert circles(tmp_path / PACKAGE) == {"neonlike.optree.a", "neonlike.optree.b"}
    (folder / "b.py").write_text("from neonlike.optree.c import x\n")
    assert circles(tmp_path / PACKAGE) == set()


@pytest.mark.parametrize(
    "back", ["from a import x\n", "def f():\n    import a\n", "if TYPE_CHECKING:\n    from a import x\n"]
)
def test_a_circle_of_scripts_is_found(back: str, tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("from b import y\nfrom neonlike.optree import c\n")
    (tmp_path / "b.py").write_text(back)
    (tmp_path / "c.py").write_text("from neonlike.optree import a\n")
    assert circles(tmp_path, scripts=True) == {"a", "b"}
    (tmp_path / "b.py").write_text("import c\n")
    assert circles(tmp_path, scripts=True) == set()


def folders_without_a_subject(tests: Path) -> set[str]:
    """Folders of tests that are no folder of the package or of the repository, and in none of TESTS_APART."""
    folders = {path.parent.relative_to(tests) for path in tests.rglob("test_*.py")}
    apart = {Path(name) for name in TESTS_APART}
    unknown = (folder for folder in folders if apart.isdisjoint({folder, *folder.parents}))
    return {str(folder) for folder in unknown if not ((SOURCE / folder).is_dir() or (ROOT / folder).is_dir())}


def test_tests_lie_in_the_folders_of_what_they_test() -> None:
    assert folders_without_a_subject(TESTS) == set()
    assert [name for name in TESTS_APART if not (TESTS / name).is_dir() or (SOURCE / name).is_dir()] == []


def test_a_folder_of_tests_without_a_subject_is_found(tmp_path: Path) -> None:
    for name in ("layers/core", "layers/odd", "fuzz/deep", "benchmarks"):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "test_it.py").touch()
    assert folders_without_a_subject(tmp_path) == {"layers/odd"}


@pytest.mark.parametrize("folder", ["tests", "benchmarks", "examples", "docs"])
def test_other_files_stay_short_too(folder: str) -> None:
    files = sorted((SOURCE.parent / folder).rglob("*.py"))
    assert len(files) > 3, f"{folder} is not where this test looks"
    lengths = {path.name: len(path.read_text("utf-8").splitlines()) for path in files}
    assert {name: lines for name, lines in lengths.items() if lines > MAX_FILE_LINES} == {}


def test_templates_stay_short_too() -> None:
    files = [path for path in (SOURCE / "kernels" / "templates").rglob("*") if path.is_file()]
    assert len(files) > 100, "the templates are not where this test looks"
    lengths = {path.name: len(path.read_text("utf-8").splitlines()) for path in files}
    assert {name: lines for name, lines in lengths.items() if lines > MAX_FILE_LINES} == {}


def test_the_package_keeps_its_architecture() -> None:
    assert len(list(SOURCE.rglob("*.py"))) > 3, "the sources are not where this test looks"
    assert faults(SOURCE) == []


@pytest.mark.parametrize(("allowed", "look"), [(REWRITES, rewrite_faults), (DIGS, dig_faults)], ids=["change", "look"])
def test_what_may_change_classes_or_look_into_functions_does(allowed: dict[str, str], look: Any) -> None:
    for module in allowed:
        source = SOURCE / f"{module.replace('.', '/')}.py"
        assert [*look(ast.parse(source.read_text(encoding="utf-8")))], f"{module} need not be listed"


def test_no_merge_left_its_markers() -> None:
    marker = re.compile(r"^(<{7}|={7}|>{7})( |$)", re.MULTILINE)
    assert marker.search("one\n<<<<<<< HEAD\n")
    left = [str(path) for path in SOURCE.rglob("*.py") if marker.search(path.read_text(encoding="utf-8"))]
    assert left == []


def test_every_folder_of_the_package_has_a_storey() -> None:
    known = {name for names in STOREYS for name in names} | set(GROUND_FLOOR)
    folders = {path.parent.name for path in SOURCE.glob("*/__init__.py")}
    assert folders <= known
    for name, storeys in INNER.items():
        package = SOURCE / name.replace(".", "/")
        found = {path.parent.name for path in package.glob("*/__init__.py")}
        assert found == {folder for names in storeys for folder in names}
        beside = {path.name for path in package.glob("*.py")}
        assert beside == BESIDE_FOLDERS.get(name, beside)


PLANTED = {
    "plain upward": ("optree/node.py", "from neonlike.layers import Linear\n", "neonlike.layers.Linear"),
    "one storey up": ("optree/a.py", "import neonlike.kernels.planning.plan\n", "neonlike.kernels.planning.plan"),
    "inside a function": ("kernels/p.py", "def f():\n    import neonlike.backends\n", "2: imports neonlike."),
    "from the package": ("backends/b.py", "from neonlike import models\n", "neonlike.models"),
    "the package's roof": ("layers/l.py", "from neonlike import NervanaObject\n", "neonlike.NervanaObject"),
    "relative": ("kernels/sub/emit.py", "from ...backends import tensor\n", "neonlike.backends.tensor"),
    "relative in a package": ("kernels/__init__.py", "from ..layers import x\n", "neonlike.layers.x"),
    "by a string": ("data/d.py", "m = __import__('neonlike.models')\n", "neonlike.models"),
    "by importlib": ("data/d.py", "m = importlib.import_module('neonlike.models')\n", "neonlike.models"),
    "up inside a storey": (
        "kernels/planning/p.py",
        "from neonlike.kernels.run.stage import Run\n",
        "neonlike.kernels.run.stage.Run, which stands above",
    ),
    "up inside the GPU backend": (
        "backends/gpu/memory/m.py",
        "from neonlike.backends.gpu.device.device import GpuDevice\n",
        "neonlike.backends.gpu.device.device.GpuDevice, which stands above",
    ),
    "a backend's top": ("backends/cpu/primitives/p.py", "import neonlike.backends.cpu.tensor\n", "cpu.tensor"),
    "up inside the backends": (
        "backends/tensors/t.py",
        "from neonlike.backends.primitives.lrn import LrnFamily\n",
        "neonlike.backends.primitives.lrn.LrnFamily, which stands above",
    ),
    "a family that knows a backend": ("backends/primitives/conv/f.py", "import neonlike.backends.cpu.x\n", "cpu.x"),
    "a backend in another": ("backends/gpu/primitives/p.py", "import neonlike.backends.cpu.primitives.x\n", "cpu."),
    "an engine in another": ("kernels/cuda/l.py", "from neonlike.kernels.c.lines import X\n", "kernels.c.lines"),
    "a utility that knows models": ("util/u.py", "def f():\n    import neonlike.models\n", "neonlike.models, which"),
    "a utility that knows experiments": (
        "util/u.py",
        "from neonlike.experiments.argparser import NeonArgparser\n",
        "neonlike.experiments.argparser.NeonArgparser, which stands above",
    ),
    "neon's names from below": ("util/u.py", "from neonlike.compat import contract\n", "neonlike.compat.contract"),
    "from the ground": ("logger.py", "from neonlike.optree import ops\n", "neonlike.optree.ops"),
    "for types only": (
        "optree/t.py",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from neonlike.backends import Tensor\n",
        "neonlike.backends.Tensor",
    ),
    "pycuda on the CPU": ("backends/cpu/c.py", "def f():\n    import pycuda.driver\n", "imports pycuda"),
    "a template in the language": ("optree/j.py", "def f():\n    import jinja2\n", "optree does not know"),
    "an optional package": ("data/h.py", "import h5py\n", "it is optional"),
    "a guarded one": ("data/h.py", "try:\n    import h5py\nexcept ImportError:\n    pass\n", "optional"),
    "a class rewritten": ("layers/l.py", "def f(cls):\n    setattr(cls, 'x', 1)\n", "2: rewrites cls"),
    "a named class": ("layers/l.py", "def f():\n    Layer.fprop = None\n", "2: rewrites Layer.fprop"),
    "a class of a module": ("layers/l.py", "def f():\n    base.Layer.count += 1\n", "2: rewrites base.Layer.count"),
    "the class of a thing": ("layers/l.py", "def f(x):\n    delattr(type(x), 'y')\n", "2: rewrites type(x)"),
    "another class for a thing": ("layers/l.py", "def f(x):\n    x.__class__ = int\n", "2: rewrites x.__class__"),
    "a bound method's object": ("kernels/run/r.py", "def f(g):\n    return g.__self__.size\n", "2: digs for __self__"),
    "a closure, by its name": ("kernels/r.py", "def f(g):\n    return getattr(g, '__closure__', ())\n", "__closure__"),
    "a long file": ("layers/big.py", "x = 1\n" * (MAX_FILE_LINES + 1), f"{MAX_FILE_LINES + 1} lines"),
    "a long function": ("util/f.py", "def f():\n" + "    x = 1\n" * MAX_FUNCTION_LINES, "f has 41 lines"),
}


@pytest.mark.parametrize("planted", PLANTED.values(), ids=PLANTED)
def test_a_planted_violation_is_found(planted: tuple[str, str, str], tmp_path: Path) -> None:
    name, source, expected = planted
    path = tmp_path / PACKAGE / name
    path.parent.mkdir(parents=True)
    path.write_text(source)
    found = faults(tmp_path / PACKAGE)
    assert len(found) == 1, found
    assert found[0].startswith(f"{PACKAGE}/{name}:")
    assert expected in found[0]


ALLOWED = {
    "downward": ("layers/l.py", "from neonlike.backends import gen_backend\nimport numpy as np\n"),
    "down inside a storey": ("kernels/c/s.py", "from neonlike.kernels.planning.plan import Plan\n"),
    "beside the folders": ("backends/tensors/t.py", "from neonlike.backends.tensor import Tensor\n"),
    "the folders from beside": ("backends/parts.py", "from neonlike.backends.machine.hooks import HooksFamily\n"),
    "the same storey": ("optimizers/o.py", "from neonlike.util.persist import load_class\n"),
    "the ground from below": ("optree/n.py", "from neonlike.errors import ShapeError\nimport numpy as np\n"),
    "pycuda on the GPU": ("backends/gpu/g.py", "import pycuda.driver\n"),
    "an optional package where it is used": ("data/h.py", "def f():\n    import h5py\n"),
    "a whole experiment": ("experiments/yaml_parse.py", "def f():\n    from neonlike.models import Model\n"),
    "a long docstring": ("util/f.py", f'def f():\n    """One.\n\n{"    More." * 99}    """\n    return 1\n'),
    "a class while it is defined": ("layers/l.py", "class A: pass\nA.x = 1\nsetattr(A, 'y', 2)\n"),
    "an object's attribute": ("layers/l.py", "def f(self, x):\n    x.owner.y = 1\n    setattr(self, 'y', 2)\n"),
    "the current backend": ("layers/l.py", "def f(be):\n    NervanaObject.be = be\n"),
    "what may rewrite": ("checks.py", "def f(cls):\n    setattr(cls, 'x', cls.y)\n"),
    "files at the limit": ("util/f.py", "def f():\n" + "    x = 1\n" * (MAX_FUNCTION_LINES - 1)),
}


@pytest.mark.parametrize("allowed", ALLOWED.values(), ids=ALLOWED)
def test_what_the_architecture_allows_is_not_reported(allowed: tuple[str, str], tmp_path: Path) -> None:
    name, source = allowed
    path = tmp_path / PACKAGE / name
    path.parent.mkdir(parents=True)
    path.write_text(source)
    assert faults(tmp_path / PACKAGE) == []
