"""neon's names: the table, the completed modules, the alias ``neon``, and running a neon script unchanged."""

from __future__ import annotations

import importlib
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import neonlike
from neonlike.compat import contract
from neonlike.compat.contract import NotBuiltYet, availability, resolve
from neonlike.compat.table import CONTRACT, Row
from neonlike.errors import NeonlikeError
from neonlike.optree.dialect import neon_dialect
from tests import ROOT

Zoo = Callable[..., None]


@pytest.fixture
def zoo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Zoo]:
    """A made-up part of neon, ``neon.zoo``: call it with the files that this library has of it."""
    contract.install()
    monkeypatch.setattr(neonlike, "__path__", [*neonlike.__path__, str(tmp_path)])
    rows = {
        "zoo": Row(frozenset({"Cat", "Dog"})),
        "zoo.animals": Row(frozenset({"Cat", "Dog", "Keeper"}), ("zoo", "zoo.people")),
        "zoo.ghosts": Row(frozenset({"Dodo"}), ("zoo",)),
    }
    for key, row in rows.items():
        monkeypatch.setitem(CONTRACT, key, row)

    def write(**files: str) -> None:
        folder = tmp_path / "zoo"
        folder.mkdir(exist_ok=True)
        for name, source in files.items():
            (folder / f"{name}.py").write_text(source)
        importlib.invalidate_caches()

    yield write
    for name in [name for name in sys.modules if name.startswith("neonlike.zoo")]:
        del sys.modules[name]
    vars(neonlike).pop("zoo", None)


def imported(module: str, name: str) -> object:
    """Result of ``from module import name``."""
    namespace: dict[str, object] = {}
    exec(f"from {module} import {name}", namespace)
    return namespace[name]


class TestTable:
    def test_every_module_but_the_root_stands_below_another(self) -> None:
        assert all(key.rpartition(".")[0] in CONTRACT for key in CONTRACT)

    def test_homes_lead_to_an_end(self) -> None:
        def walk(key: str, trail: tuple[str, ...]) -> None:
            assert key not in trail, f"{' -> '.join((*trail, key))} goes round"
            for home in CONTRACT[key].homes if key in CONTRACT else ():
                walk(home, (*trail, key))

        for key in CONTRACT:
            walk(key, ())

    def test_it_has_the_names_that_scripts_import_most(self) -> None:
        assert "gen_backend" in CONTRACT["backends"].names
        assert "NervanaObject" in CONTRACT[""].names
        assert {"Affine", "LSTM", "Sequential"} <= CONTRACT["layers"].names
        assert "LSTM" not in CONTRACT["layers.layer"].names
        assert {"Schedule", "MultiOptimizer"} <= CONTRACT["optimizers"].names


class TestCompletedModules:
    def test_a_module_without_a_file_shows_what_its_homes_have(self, zoo: Zoo) -> None:
        zoo(__init__="class Cat: pass")
        assert imported("neonlike.zoo.animals", "Cat") is imported("neonlike.zoo", "Cat")

    def test_a_star_imports_all_that_a_module_without_a_file_shows(self, zoo: Zoo) -> None:
        zoo(__init__="class Cat: pass")
        namespace: dict[str, object] = {}
        exec("from neonlike.zoo.animals import *", namespace)
        assert namespace["Cat"] is imported("neonlike.zoo", "Cat")
        assert set(namespace) == {"Cat", "__builtins__"}

    def test_a_real_module_is_completed_from_its_homes(self, zoo: Zoo) -> None:
        zoo(__init__="class Cat: pass", animals="class Dog: pass", people="class Keeper: pass")
        animals = importlib.import_module("neonlike.zoo.animals")
        assert animals.__file__ is not None and animals.__file__.endswith("animals.py")
        assert imported("neonlike.zoo.animals", "Dog") is animals.Dog
        assert imported("neonlike.zoo.animals", "Cat") is imported("neonlike.zoo", "Cat")
        assert imported("neonlike.zoo.animals", "Keeper") is imported("neonlike.zoo.people", "Keeper")

    def test_the_name_in_the_module_itself_wins(self, zoo: Zoo) -> None:
        zoo(__init__="class Cat: pass", animals="class Cat: pass")
        assert imported("neonlike.zoo.animals", "Cat").__module__ == "neonlike.zoo.animals"

    @pytest.mark.parametrize("module", ["neonlike.zoo", "neonlike.zoo.animals"])
    @pytest.mark.parametrize("animals_exist", [True, False])
    def test_a_missing_name_is_named(self, zoo: Zoo, module: str, animals_exist: bool) -> None:
        zoo(__init__="class Cat: pass", **({"animals": ""} if animals_exist else {}))
        dotted = f"{module.replace('neonlike', 'neon')}.Dog"
        with pytest.raises(NotBuiltYet, match=rf"neonlike does not have {dotted} yet"):
            imported(module, "Dog")
        found = importlib.import_module(module)
        assert not hasattr(found, "Dog")
        with pytest.raises(AttributeError, match=f"does not have {dotted} yet"):
            _ = found.Dog

    def test_a_missing_name_appears_once_it_is_defined(self, zoo: Zoo) -> None:
        zoo(__init__="class Cat: pass")
        with pytest.raises(NotBuiltYet):
            imported("neonlike.zoo.animals", "Dog")
        vars(sys.modules["neonlike.zoo"])["Dog"] = dog = type("Dog", (), {})
        assert imported("neonlike.zoo.animals", "Dog") is dog

    def test_a_missing_module_is_named(self, zoo: Zoo) -> None:
        zoo(__init__="class Cat: pass")
        for statement in ("import neonlike.zoo.ghosts", "from neonlike.zoo import ghosts"):
            with pytest.raises(NotBuiltYet, match=r"does not have neon\.zoo\.ghosts yet"):
                exec(statement)

    def test_a_folder_without_init_is_not_a_module(self, zoo: Zoo) -> None:
        zoo()
        with pytest.raises(NotBuiltYet, match=r"does not have neon\.zoo yet"):
            importlib.import_module("neonlike.zoo")

    def test_submodules_are_attributes_of_their_package(self, zoo: Zoo) -> None:
        zoo(__init__="class Cat: pass")
        package = importlib.import_module("neonlike.zoo")
        assert package.animals.Cat is package.Cat
        assert not hasattr(package, "ghosts")

    def test_other_names_fail_as_they_do_in_python(self, zoo: Zoo) -> None:
        zoo(__init__="class Cat: pass", animals="")
        for module in ("neonlike.zoo", "neonlike.zoo.animals"):
            with pytest.raises(ImportError, match="cannot import name 'Unicorn'") as caught:
                imported(module, "Unicorn")
            assert not isinstance(caught.value, NotBuiltYet)
        with pytest.raises(ModuleNotFoundError, match="unicorns"):
            importlib.import_module("neonlike.zoo.unicorns")

    def test_a_modules_own_getattr_is_asked_first(self, zoo: Zoo) -> None:
        lazy = "def __getattr__(name):\n    if name == 'Dog': return 'lazy'\n    raise AttributeError(name)"
        zoo(__init__="class Cat: pass", animals=lazy)
        assert imported("neonlike.zoo.animals", "Dog") == "lazy"
        assert imported("neonlike.zoo.animals", "Cat") is imported("neonlike.zoo", "Cat")

    def test_a_circular_import_is_not_called_missing(self, zoo: Zoo) -> None:
        zoo(__init__="import neonlike.zoo.people\nclass Cat: pass", people="from neonlike.zoo import Cat")
        with pytest.raises(ImportError, match="partially initialized"):
            importlib.import_module("neonlike.zoo")

    def test_an_optional_package_that_is_absent_is_reported_as_such(self, zoo: Zoo) -> None:
        zoo(__init__="", people="import no_such_package", animals="")
        with pytest.raises(ModuleNotFoundError, match="no_such_package"):
            imported("neonlike.zoo.animals", "Keeper")

    def test_the_real_loader_stays_on_the_module(self, zoo: Zoo) -> None:
        zoo(__init__="class Cat: pass")
        package = importlib.import_module("neonlike.zoo")
        assert type(package.__spec__.loader).__name__ == "SourceFileLoader"
        assert package.__loader__ is package.__spec__.loader

    def test_installing_twice_leaves_one_finder(self) -> None:
        contract.install()
        contract.install()
        assert sum(isinstance(finder, contract.ContractFinder) for finder in sys.meta_path) == 1


class TestResolve:
    @pytest.mark.parametrize(
        "dotted", ["neon.zoo.animals.Cat", "neonlike.zoo.animals.Cat", "neonlike.zoo.Cat", "Cat"]
    )
    def test_a_saved_type_is_found(self, zoo: Zoo, dotted: str) -> None:
        zoo(__init__="class Cat: pass")
        assert resolve(dotted) is imported("neonlike.zoo", "Cat")

    def test_any_importable_module_will_do(self) -> None:
        assert resolve("collections.OrderedDict") is importlib.import_module("collections").OrderedDict

    @pytest.mark.parametrize("dotted", ["neon.zoo.animals.Dog", "neonlike.zoo.animals.Dog", "Dog"])
    def test_what_is_missing_is_named(self, zoo: Zoo, dotted: str) -> None:
        zoo(__init__="class Cat: pass")
        with pytest.raises(NotBuiltYet, match=r"does not have neon\.zoo\.(animals\.)?Dog yet"):
            resolve(dotted)

    @pytest.mark.parametrize(
        "dotted", ["neon.zoo.Unicorn", "collections.Unicorn", "no_such_module.X", "Unicorn"]
    )
    def test_what_never_was_is_an_import_error(self, zoo: Zoo, dotted: str) -> None:
        zoo(__init__="")
        with pytest.raises(ImportError) as caught:
            resolve(dotted)
        assert not isinstance(caught.value, NotBuiltYet)

    def test_the_error_is_one_of_ours(self) -> None:
        assert issubclass(NotBuiltYet, NeonlikeError) and issubclass(NotBuiltYet, ImportError)


def test_the_list_has_every_row_and_finds_what_there_is(zoo: Zoo) -> None:
    zoo(__init__="class Cat: pass")
    listed = dict(availability())
    assert len(listed) == sum(1 + len(row.names) for row in CONTRACT.values())
    assert listed["neon"] is neonlike
    assert listed["neon.zoo.animals.Cat"] is imported("neonlike.zoo", "Cat")
    assert isinstance(listed["neon.zoo.Dog"], NotBuiltYet)
    assert isinstance(listed["neon.zoo.ghosts"], NotBuiltYet)


def test_the_list_says_which_package_a_name_needs(zoo: Zoo) -> None:
    zoo(__init__="", animals="import no_such_package")
    error = dict(availability())["neon.zoo.animals.Dog"]
    assert isinstance(error, ModuleNotFoundError) and error.name == "no_such_package"


def python(*arguments: str, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a fresh interpreter that finds this library, whatever the folder."""
    clean = {key: value for key, value in os.environ.items() if not key.startswith("NEONLIKE_COMPAT")}
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=cwd,
        env={**clean, "PYTHONPATH": str(ROOT), **environment},
        capture_output=True,
        text=True,
        timeout=120,
    )


def succeed(result: subprocess.CompletedProcess[str]) -> str:
    assert result.returncode == 0, result.stderr
    return result.stdout


class TestAlias:
    def test_neon_is_this_library(self, tmp_path: Path) -> None:
        code = (
            "import neonlike, neonlike.compat.neon, neonlike.compat.neon as again, sys, pickle\n"
            "import neon, neon.backends, neon.layers.layer, neon.compat.table as table\n"
            "from neon.backends import gen_backend\n"
            "import neonlike.backends\n"
            "from neon import NervanaObject, logger\n"
            "from neon.backends.nervanacpu import NervanaCPU\n"
            "from neon.layers.layer import Affine as deep\n"
            "from neon.layers import Affine\n"
            "assert neon is neonlike and neon.backends is neonlike.backends is sys.modules['neon.backends']\n"
            "assert gen_backend is neonlike.backends.gen_backend and deep is Affine\n"
            "assert table is sys.modules['neonlike.compat.table']\n"
            "assert sum(type(f).__name__ == 'AliasFinder' for f in sys.meta_path) == 1\n"
            "renamed = pickle.dumps(NervanaCPU, 0).replace(b'cneonlike.', b'cneon.')\n"
            "assert pickle.loads(renamed) is NervanaCPU\n"
        )
        succeed(python("-c", code, cwd=tmp_path))

    def test_what_is_missing_is_named(self, tmp_path: Path) -> None:
        code = (
            "import neonlike.compat.neon\n"
            "for statement in ('from neon.optimizers import Unicorn', 'import neon.unicorns'):\n"
            "    try: exec(statement)\n"
            "    except ImportError as error: print(type(error).__name__, error)\n"
        )
        first, second = succeed(python("-c", code, cwd=tmp_path)).splitlines()
        assert first.startswith("ImportError cannot import name 'Unicorn' from 'neonlike.optimizers'")
        assert second.startswith("ModuleNotFoundError No module named 'neon.unicorns'")

    def test_importing_neonlike_alone_gives_no_neon(self, tmp_path: Path) -> None:
        result = python("-c", "import neonlike, neonlike.compat; import neon", cwd=tmp_path)
        assert result.returncode != 0
        assert "No module named 'neon'" in result.stderr

    def test_a_real_neon_is_not_shadowed(self, tmp_path: Path) -> None:
        (tmp_path / "neon").mkdir()
        (tmp_path / "neon/__init__.py").write_text("real = True")
        for code in ("import neonlike.compat.neon", "import neon, neonlike.compat.neon"):
            result = python("-c", code, cwd=tmp_path)
            assert result.returncode != 0
            assert f"a real package called neon is at {tmp_path / 'neon' / '__init__.py'}" in result.stderr
            assert "NEONLIKE_COMPAT_FORCE=1" in result.stderr

    def test_a_real_neon_gives_way_when_forced(self, tmp_path: Path) -> None:
        (tmp_path / "neon").mkdir()
        (tmp_path / "neon/__init__.py").write_text("real = True")
        code = (
            "import neon; assert neon.real\n"
            "import neonlike.compat.neon, neonlike, neon; assert neon is neonlike\n"
        )
        succeed(python("-c", code, cwd=tmp_path, NEONLIKE_COMPAT_FORCE="1"))

    def test_a_bare_folder_called_neon_is_no_package(self, tmp_path: Path) -> None:
        (tmp_path / "neon").mkdir()
        succeed(python("-c", "import neonlike.compat.neon, neon; assert neon.__version__", cwd=tmp_path))


class TestCommand:
    def test_a_script_runs_as_if_started_by_itself(self, tmp_path: Path) -> None:
        folder = tmp_path / "scripts"
        folder.mkdir()
        (folder / "beside.py").write_text("value = 42")
        (folder / "train.py").write_text(
            "import sys, beside\n"
            "from neon.backends import gen_backend\n"
            "from neon.util.argparser import NeonArgparser\n"
            "be = gen_backend('cpu', batch_size=2, rng_seed=0)\n"
            "assert __name__ == '__main__' and beside.value == 42\n"
            "print(sys.argv, be.bsz)\n"
        )
        command = ("-m", "neonlike.compat", "scripts/train.py", "-e", "3", "--list")
        printed = succeed(python(*command, cwd=tmp_path))
        assert printed == "['scripts/train.py', '-e', '3', '--list'] 2\n"

    def test_the_digits_example_written_for_neon_learns(self, tmp_path: Path) -> None:
        source = (ROOT / "examples" / "digits_mlp.py").read_text(encoding="utf-8")
        script = re.sub(r"\bneonlike\.", "neon.", source)
        assert "from neon.models" in script and "neonlike." not in script
        (tmp_path / "digits.py").write_text(script, encoding="utf-8")
        command = ("-m", "neonlike.compat", "digits.py", "-e", "3", "--no_progress_bar", "-r", "0")
        printed = succeed(python(*command, cwd=tmp_path))
        accuracy = re.search(r"Accuracy on the \d+ test images: ([\d.]+)%", printed)
        assert accuracy is not None and float(accuracy[1]) > 80

    def test_the_scripts_exit_status_is_kept(self, tmp_path: Path) -> None:
        (tmp_path / "stop.py").write_text("import sys, neon\nsys.exit(7)")
        assert python("-m", "neonlike.compat", "stop.py", cwd=tmp_path).returncode == 7

    def test_a_real_neon_beside_the_script_stops_it_unless_forced(self, tmp_path: Path) -> None:
        (tmp_path / "neon.py").write_text("real = True")
        (tmp_path / "script.py").write_text("import neon; print(neon.__name__)")
        result = python("-m", "neonlike.compat", "script.py", cwd=tmp_path)
        assert result.returncode != 0 and "a real package called neon" in result.stderr
        assert succeed(python("-m", "neonlike.compat", "--force", "script.py", cwd=tmp_path)) == "neonlike\n"

    def test_a_neon_in_the_current_folder_does_not_matter(self, tmp_path: Path) -> None:
        (tmp_path / "neon.py").write_text("real = True")
        (tmp_path / "elsewhere").mkdir()
        (tmp_path / "elsewhere/script.py").write_text("import neon; print(neon.__name__)")
        assert succeed(python("-m", "neonlike.compat", "elsewhere/script.py", cwd=tmp_path)) == "neonlike\n"

    def test_the_list_is_the_table(self, tmp_path: Path) -> None:
        lines = succeed(python("-m", "neonlike.compat", "--list", cwd=tmp_path)).splitlines()
        table = dict(line.split(maxsplit=1) for line in lines[:-1])
        assert len(table) == sum(1 + len(row.names) for row in CONTRACT.values())
        assert table["neon.backends.gen_backend"].startswith("neonlike.")
        available = sum(not where.startswith(("missing", "unavailable")) for where in table.values())
        assert lines[-1] == f"{available} of {len(table)} available"
        assert [name for name, where in table.items() if where.startswith("missing")] == []

    @pytest.mark.parametrize(
        ("arguments", "complaint"),
        [((), "name a script, or --list"), (("none.py",), "there is no script none.py")],
    )
    def test_a_wrong_call_says_what_is_wrong(
        self, tmp_path: Path, arguments: tuple[str, ...], complaint: str
    ) -> None:
        result = python("-m", "neonlike.compat", *arguments, cwd=tmp_path)
        assert result.returncode == 2
        assert complaint in result.stderr


MLP_SCRIPT = {
    "neon": "NervanaObject logger",
    "neon.backends": "gen_backend cleanup_backend Autodiff",
    "neon.backends.backend": "Tensor Backend OpTreeNode",
    "neon.backends.nervanacpu": "NervanaCPU CPUTensor",
    "neon.backends.layer_cpu": "ConvLayer DeconvLayer PoolLayer",
    "neon.backends.layer_gpu": "ConvLayer DeconvLayer PoolLayer",
    "neon.backends.layer_mkl": "ConvLayer DeconvLayer PoolLayer",
    "neon.backends.util.check_gpu": "get_compute_capability get_device_count ensure_gpu_capability",
    "neon.backends.util.check_mkl": "get_mkl_lib",
    "neon.layers": "Affine GeneralizedCost Linear Bias Activation Dropout",
    "neon.layers.layer": "Layer Affine Linear",
    "neon.initializers": "Gaussian Uniform Constant GlorotUniform",
    "neon.initializers.initializer": "Initializer Gaussian",
    "neon.transforms": "Rectlin Softmax Logistic Tanh CrossEntropyMulti Misclassification",
    "neon.transforms.activation": "Rectlin",
    "neon.transforms.cost": "CrossEntropyMulti Misclassification Metric",
    "neon.optimizers": "GradientDescentMomentum Schedule",
    "neon.optimizers.optimizer": "get_param_list",
    "neon.models": "Model",
    "neon.models.model": "Model",
    "neon.callbacks": "Callbacks",
    "neon.callbacks.callbacks": "Callbacks Callback",
    "neon.data": "ArrayIterator",
    "neon.data.dataiterator": "ArrayIterator",
    "neon.util.argparser": "NeonArgparser extract_valid_args",
    "neon.util.persist": "save_obj load_obj",
}


@pytest.mark.parametrize("module", MLP_SCRIPT)
def test_what_a_script_for_a_small_network_imports_is_there(module: str) -> None:
    listed = dict(availability())
    names = {f"{module}.{name}" for name in MLP_SCRIPT[module].split()}
    assert {name for name in names if isinstance(listed[name], ImportError)} == set()


def starred(module: str) -> set[str]:
    """Names brought by ``from module import *``, in a separate process without other imports."""
    code = f"import neonlike.compat.neon\nfrom {module} import *\nprint(*vars())"
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    return set(done.stdout.split())


@pytest.mark.parametrize(
    ("module", "submodules"),
    [
        ("transforms", "activation cost transform"),
        ("layers", "container layer recurrent"),
        ("callbacks", "callbacks"),
        ("models.model", ""),
        ("benchmark.benchmark", ""),
        ("backends.layer_mkl", ""),
    ],
)
def test_a_star_brings_neons_names_and_the_submodules(module: str, submodules: str) -> None:
    names = starred(f"neon.{module}")
    assert CONTRACT[module].names | set(submodules.split()) <= names


def test_a_star_outside_of_compat_brings_no_submodules() -> None:
    code = "from neonlike.transforms import *\nprint(*vars())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert "CrossEntropyMulti" in done.stdout.split() and "cost" not in done.stdout.split()


def test_a_star_leaves_out_what_is_not_built(zoo: Zoo) -> None:
    zoo(__init__="class Cat: pass\n_hidden = 1", people="class Keeper: pass")
    namespace: dict[str, object] = {}
    with neon_dialect():
        exec("from neonlike.zoo.animals import *", namespace)
        assert {"Cat", "Keeper"} <= set(namespace) and "Dog" not in namespace
        namespace = {}
        exec("from neonlike.zoo import *", namespace)
    assert {"Cat", "animals"} <= set(namespace) and not {"_hidden", "Dog", "ghosts"} & set(namespace)
