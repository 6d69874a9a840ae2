"""Names, descriptions and the way back from a description to an object."""

from __future__ import annotations

import copy
import importlib
import logging
import sys

import numpy as np
import pytest

from neonlike.data import ArrayIterator
from neonlike.errors import ArgumentError, BackendUnavailable
from neonlike.initializers import Array, Gaussian, Uniform
from neonlike.layers import Dropout, GeneralizedCost, Linear
from neonlike.models import Model
from neonlike.nervanaobject import NervanaObject, build, differs, get_args, load_class, public_path
from neonlike.optimizers import GradientDescentMomentum, MultiOptimizer, RMSProp, Schedule, StepSchedule
from neonlike.optree.dialect import neon_dialect
from neonlike.transforms import CrossEntropyMulti, Misclassification, PrecisionRecall


class Thing(NervanaObject):
    """Something to describe."""

    def __init__(self, size, colour="red", inner=None, parts=(), name=None):
        super().__init__(name)
        self.size, self.colour, self.inner, self.parts = size, colour, inner, parts


class Forgetful(NervanaObject):
    """Does not keep its argument."""

    def __init__(self, lost=1):
        super().__init__()


def test_names_count_the_objects_of_a_class_and_are_unique():
    class Counted(NervanaObject):
        pass

    names = [Counted().name for _ in range(3)]
    assert names == ["Counted_0", "Counted_1", "Counted_2"]
    assert Counted(name="mine").name == "mine"


def test_get_args_gives_defaults_and_none_for_required():
    def function(a, b=2, *args, c=3, **kwargs):
        return a, b, args, c, kwargs

    assert get_args(function) == {"a": None, "b": 2, "c": 3}
    assert list(get_args(Thing)) == ["size", "colour", "inner", "parts", "name"]


def test_every_logger_can_display(capsys):
    mine = logging.getLogger("a.script")
    mine.addHandler(handler := logging.StreamHandler(sys.stdout))
    try:
        mine.display("%d of %d", 1, 2)
        mine.setLevel(logging.CRITICAL)
        mine.display("silenced")
    finally:
        mine.removeHandler(handler)
    assert capsys.readouterr().out == "1 of 2\n"


def test_a_description_holds_what_differs_from_the_defaults():
    thing = Thing(3, inner=Thing(1, name="in"), name="out")
    described = thing.get_description()
    assert described["type"] == f"{__name__}.Thing"
    assert set(described["config"]) == {"size", "inner", "name"}
    assert described["config"]["inner"]["config"] == {"size": 1, "name": "in"}
    assert thing._desc is described
    assert "size" not in thing.get_description(skip=["size"])["config"]


def test_a_forgotten_argument_is_left_out_with_a_warning(caplog):
    described = Forgetful().get_description()
    assert described["config"] == {}
    assert "'lost'" in caplog.text


def test_gen_class_rebuilds_nested_objects():
    described = Thing(3, inner=Thing(1, "blue")).get_description()
    described["config"]["parts"] = [Thing(7).get_description(), "plain"]
    made = Thing.gen_class(described["config"])
    assert made.size == 3 and made.colour == "red"
    assert isinstance(made.inner, Thing) and made.inner.colour == "blue"
    assert isinstance(made.parts[0], Thing) and made.parts[0].size == 7 and made.parts[1] == "plain"


def test_objects_in_lists_are_described_too():
    described = Thing(1, parts=[Thing(2), 3, (Thing(4),)], name="outer").get_description()
    first, second, third = described["config"]["parts"]
    assert (first["config"]["size"], second, third[0]["config"]["size"]) == (2, 3, 4)


def test_gen_class_takes_a_description_without_config():
    pdict = {"size": 1, "inner": {"type": "neonlike.initializers.initializer.Uniform"}}
    assert isinstance(Thing.gen_class(pdict).inner, Uniform)


def test_load_class_takes_both_prefixes_and_bare_names():
    for name in ("neon.layers.layer.Linear", "neonlike.layers.layer.Linear", "Linear"):
        assert load_class(name) is Linear
    assert load_class(f"{__name__}.Thing") is Thing


@pytest.mark.parametrize(
    "name",
    ["os.system", "subprocess.Popen", "builtins.dict", "antigravity.fly", "this.C", "neonlike.util.persist.Path",
     "neonlike.experiments.argparser.NeonArgparser", "neonlike.experiments.argparser.RotatingFileHandler",
     "neonlike.util.argparser.NeonArgparser", "neonlike.util.argparser.RotatingFileHandler", "neonlike.__main__.main",
     "neonlike.models.model.Model", "neonlike.callbacks.callbacks.Callbacks", "neonlike.layers.layer.np.ndarray",
     "neonlike.layers.core.base.NeonlikeError", f"{__name__}.Path", "..", "", None, 3],
)  # fmt: skip
def test_a_description_brings_only_parts_of_networks_to_life(name):
    before = set(sys.modules)
    with pytest.raises(ArgumentError, match="load_class"):
        load_class(name)
    with pytest.raises(ArgumentError, match="load_class"):
        Thing.gen_class({"size": 1, "inner": {"type": name, "config": {}}})
    assert all(module.startswith("neonlike.") for module in set(sys.modules) - before)


@pytest.mark.parametrize(
    "described",
    [{"type": "Linear", "config": [1]}, {"type": "Linear", "config": {"nout": 1, "evil": 2}}, {"type": "Affine"}, []],
)
def test_what_is_no_description_is_refused(described):
    with pytest.raises(ArgumentError):
        build(described)


def test_building_leaves_the_description_as_it_is():
    described = Thing(3, inner=Thing(1)).get_description()
    described["config"]["parts"] = [Thing(7).get_description()]
    before = copy.deepcopy(described)
    made = build(described)
    assert made.inner.size == 1 and made.parts[0].size == 7
    assert described == before


@pytest.mark.parametrize("name", ["neon.layers.layer.Nothing", "no.such.module.X", "NoSuchClassAnywhere"])
def test_load_class_names_what_is_missing(name):
    with pytest.raises(ArgumentError, match=name.rpartition(".")[2]):
        load_class(name)


@pytest.mark.parametrize(
    "module", ["layers", "layers.layer", "layers.container", "initializers", "transforms", "transforms.cost",
               "optimizers", "optimizers.optimizer", "models", "callbacks.callbacks", "data", "benchmark"],
)  # fmt: skip
def test_the_public_path_of_every_class_leads_back_to_it(module):
    loaded = importlib.import_module(f"neonlike.{module}")
    classes = [getattr(loaded, name) for name in loaded.__all__]
    classes = [cls for cls in classes if getattr(cls, "from_description", False)]
    assert classes or module == "models"
    for cls in classes:
        assert load_class(public_path(cls)) is cls


def test_saved_types_are_the_paths_of_the_reference(be):
    assert Linear(3, Gaussian()).modulenm == "neonlike.layers.layer.Linear"
    assert GradientDescentMomentum(0.1, 0.9).modulenm == "neonlike.optimizers.optimizer.GradientDescentMomentum"


def test_in_neons_dialect_saved_types_are_neons(be):
    class Mine(NervanaObject):
        pass

    layer = Linear(3, Gaussian())
    with neon_dialect():
        assert layer.modulenm == "neon.layers.layer.Linear"
        description = layer.get_description()
        assert Mine().modulenm == f"{__name__}.Mine"
    assert description["config"]["init"]["type"] == "neon.initializers.initializer.Gaussian"
    again = build(description)
    assert type(again) is Linear and again.nout == 3


def test_optimizers_come_back_from_their_description():
    original = GradientDescentMomentum(0.1, 0.9, wdecay=0.01, schedule=StepSchedule([2], [0.5]), nesterov=True)
    config = original.get_description()["config"]
    assert set(config) == {"learning_rate", "momentum_coef", "wdecay", "schedule", "nesterov", "name"}
    again = GradientDescentMomentum.gen_class(config)
    assert (again.wdecay, again.nesterov, again.schedule.step_config) == (0.01, True, [2])
    assert "schedule" not in RMSProp().get_description()["config"]
    assert isinstance(RMSProp(schedule=Schedule()).get_description()["config"]["schedule"], dict)


def test_multioptimizer_comes_back_from_its_description():
    original = MultiOptimizer({"default": RMSProp(), "Bias": GradientDescentMomentum(0.1, 0.0)})
    described = original.get_description()
    again = load_class(described["type"]).gen_class(described["config"])
    assert isinstance(again.optimizer_mapping["default"], RMSProp)
    assert again.optimizer_mapping["Bias"].learning_rate == 0.1


def test_differs_understands_arrays_and_tensors(be):
    a = np.arange(3)
    assert not differs(a, a) and not differs(a, a.copy()) and differs(a, a + 1) and differs(a, None)
    assert differs(be.zeros((1, 1)), 0.0)


def test_array_initializer_describes_its_values_on_the_host(be):
    values = np.arange(6.0).reshape(2, 3)
    config = Array(be.array(values)).get_description()["config"]
    assert isinstance(config["val"], np.ndarray)
    np.testing.assert_array_equal(config["val"], values)


@pytest.mark.parametrize(
    ("make", "where"),
    [
        (lambda: GeneralizedCost(CrossEntropyMulti()), "GeneralizedCost"),
        (lambda: Misclassification(), "Misclassification"),
        (lambda: PrecisionRecall(3), "PrecisionRecall"),
        (lambda: Dropout(), "Dropout"),
        (lambda: ArrayIterator(np.zeros((2, 2))), "ArrayIterator"),
        (lambda: Model([Linear(2, Gaussian())]).initialize(3), "Model.initialize"),
        (lambda: RMSProp().optimize([], 0), "RMSProp.optimize"),
    ],
)
def test_what_needs_a_backend_says_so_before_there_is_one(make, where):
    assert NervanaObject.be is None
    with pytest.raises(BackendUnavailable, match=rf"^{where}: there is no backend; .*gen_backend"):
        make()


def test_an_argument_without_a_default_is_described_though_it_is_none():
    class Needs(NervanaObject):
        def __init__(self, init, other=None, name=None):
            super().__init__(name)
            self.init, self.other = init, other

    described = Needs(None, name="n").get_description()
    assert described["config"] == {"init": None, "name": "n"}
    assert Needs.gen_class(described["config"]).init is None
