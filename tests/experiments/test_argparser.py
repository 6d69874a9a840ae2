"""The command line: options, precedence, checks, the backend and the log."""

from __future__ import annotations

import logging
import sys
from argparse import Namespace

import numpy as np
import pytest

from neonlike.backends import gen_backend
from neonlike.callbacks.callbacks import Callbacks
from neonlike.data import ArrayIterator
from neonlike.distributed.ranks import ALONE
from neonlike.errors import ArgumentError, BackendUnavailable
from neonlike.experiments import argparser
from neonlike.experiments.argparser import NeonArgparser, extract_valid_args
from neonlike.initializers import Gaussian
from neonlike.layers import GeneralizedCost, Linear
from neonlike.logger import logger
from neonlike.models import Model, timing
from neonlike.nervanaobject import NervanaObject
from neonlike.optimizers import GradientDescentMomentum
from neonlike.transforms import SumSquared
from tests.support.logs import nobody_configured_logging
from tests.support.ranks import OneOf


@pytest.fixture(autouse=True)
def surroundings(tmp_path, monkeypatch):
    """A home of its own; the log as it was."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    handlers, level = list(logger.handlers), logger.level
    yield
    for handler in logger.handlers:
        if handler not in handlers:
            handler.close()
    logger.handlers[:] = handlers
    logger.setLevel(level)


def parse(*arguments, gen_be=False, **kwargs):
    return NeonArgparser("A test", **kwargs).parse_args(list(arguments), gen_be=gen_be)


def test_defaults(tmp_path):
    args = parse()
    expected = {
        "verbose": 1, "progress_bar": True, "epochs": 10, "save_path": None, "serialize": 0, "model_file": None,
        "logfile": None, "output_file": None, "eval_freq": None, "history": 1, "log_token": "", "manifest": None,
        "manifest_root": None, "backend": "cpu", "device_id": 0, "max_devices": 1, "rng_seed": None,
        "rounding": False, "datatype": np.float32, "batch_size": 128, "compat_mode": None, "deterministic": None,
        "distributed": None,
        "profile": False, "profiling_method": "time", "profile_inference": False, "profile_iterations": 50,
        "profile_iter_skip": 5, "data_dir": str(tmp_path / "home" / "nervana" / "data"), "log_thresh": 30,
    }  # fmt: skip
    assert {name: getattr(args, name) for name in expected} == expected


@pytest.mark.parametrize(("capability", "backend"), [(0.0, "cpu"), (3.5, "cpu"), (5.0, "gpu"), (9.0, "gpu")])
def test_scripts_compute_on_a_gpu_that_can_be_used(monkeypatch, capability, backend):
    asked = []
    monkeypatch.setattr(argparser, "get_compute_capability", lambda: asked.append(True) or capability)
    assert parse("-b", "cpu").backend == "cpu"
    assert parse(default_overrides={"backend": "cpu"}).backend == "cpu"
    assert asked == [], "the driver is asked only where nobody says where to compute"
    assert parse().backend == backend


def test_options_short_and_long(tmp_path):
    args = parse("-e", "3", "-eval", "2", "-z", "64", "-r", "7", "-d", "f64", "-H", "4", "-s", "m.p", "--caffe",
                 "--no_progress_bar", "-b", "cpu", "-i", "0", "-m", "2", "-w", "~/d", "-o", "x.h5", "--serialize", "5",
                 "--log_token", "t", "--manifest", "train:a.tsv", "--manifest", "val:b:c", "-vv")  # fmt: skip
    assert (args.epochs, args.eval_freq, args.batch_size, args.rng_seed, args.history) == (3, 2, 64, 7, 4)
    assert parse("-d", "bf16").datatype == "bfloat16"
    assert args.datatype is np.float64 and args.compat_mode == "caffe" and args.progress_bar is False
    assert args.data_dir == str(tmp_path / "home" / "d")
    assert (args.save_path, args.serialize, args.output_file) == ("m.p", 5, "x.h5")
    assert args.manifest == {"train": "a.tsv", "val": "b:c"} and args.verbose == 3 and args.log_thresh == 10


def test_the_process_arguments_are_the_default(monkeypatch):
    monkeypatch.setattr(sys, "argv", ["script.py", "--epochs", "4"])
    parser = NeonArgparser("A test")
    assert parser.parse_args(gen_be=False).epochs == 4
    assert parser.parse_args(False).epochs == 4, "gen_be may come first, as in old scripts"
    assert parser.args.epochs == 4 and NervanaObject.be is None
    assert parser.description == "A test"


def test_own_options_and_overridden_defaults():
    parser = NeonArgparser(default_overrides={"batch_size": 32, "epochs": 2, "verbose": 2})
    parser.add_argument("--depth", type=int, default=9)
    args = parser.parse_args(["--epochs", "5"], gen_be=False)
    assert (args.batch_size, args.epochs, args.depth, args.log_thresh) == (32, 5, 9, 20)
    with pytest.raises(ArgumentError, match="bach_size"):
        NeonArgparser(default_overrides={"bach_size": 32})


def test_bench_mode(tmp_path):
    assert parse().bench_report is None and NervanaObject.be is None
    parse("--bench", str(tmp_path / "report.csv"), gen_be=True)
    NervanaObject.be.ones((2, 2)).get()
    assert NervanaObject.be.bench is not None
    NervanaObject.be.cleanup_backend()
    assert (tmp_path / "report.csv").exists()


def test_an_option_of_the_script_takes_the_place_of_one_of_the_same_name():
    parser = NeonArgparser()
    parser.add_argument("--bench", choices=("fast", "slow"), default="slow")
    assert parser.parse_args(["--bench", "fast"]).bench == "fast"
    assert NervanaObject.be.bench is None


def test_command_line_beats_config_file_beats_defaults(tmp_path):
    config = tmp_path / "my.cfg"
    config.write_text("epochs = 6\nbatch_size = 16\nrng_seed = 3\n")
    args = parse("-c", str(config), "--epochs", "7", default_overrides={"rng_seed": 1, "history": 2})
    assert (args.epochs, args.batch_size, args.rng_seed, args.history) == (7, 16, 3, 2)


def test_the_config_file_in_the_home_folder(tmp_path):
    folder = tmp_path / "home" / "nervana"
    folder.mkdir(parents=True)
    (folder / "neon.cfg").write_text("epochs = 8\n")
    assert parse().epochs == 8
    assert parse(default_config_files=[]).epochs == 10


def test_a_backend_is_made(caplog):
    args = parse("-z", "16", "-r", "5", "-d", "f64", "--caffe", gen_be=True)
    be = NervanaObject.be
    assert (be.bsz, be.rng_seed, be.default_dtype, be.compat_mode) == (16, 5, np.float64, "caffe")
    be.cleanup_backend()
    NervanaObject.be = None
    assert NervanaObject.be is None
    gen_backend(**extract_valid_args(args, gen_backend))
    assert (NervanaObject.be.bsz, NervanaObject.be.rng_seed) == (16, 5)
    assert "deprecated" not in caplog.text, "nobody asked for --deterministic"


def test_callback_args_are_for_callbacks(be, tmp_path):
    args = parse("-s", "m.p", "--no_progress_bar")
    assert set(args.callback_args) == {"output_file", "eval_freq", "progress_bar", "save_path", "serialize", "history",
                                       "model_file", "log_token", "report", "tensorboard"}  # fmt: skip
    assert args.callback_args["serialize"] == 1 and args.callback_args["progress_bar"] is False
    Callbacks(Model([Linear(2, Gaussian())]), **args.callback_args)


def test_records_of_a_run(be, tmp_path):
    args = parse("--report", "run.html", "--tensorboard", "logs")
    assert (args.callback_args["report"], args.callback_args["tensorboard"]) == ("run.html", "logs")
    parser = NeonArgparser("own")
    parser.add_argument("--report", action="store_true")
    own = parser.parse_args(["--report"], gen_be=False)
    assert own.report is True and own.callback_args["report"] is None, "an option of a script's own"


def test_extract_valid_args():
    args = Namespace(a=1, b=2, d=4)

    class Thing:
        def __init__(self, a, c=0, *, d=None, **rest):
            pass

    assert extract_valid_args(args, Thing.__init__, startidx=1) == {"a": 1, "d": 4}
    assert extract_valid_args(args, Thing) == {"a": 1, "d": 4}


class TestFiles:
    """Paths are checked before the training starts."""

    def test_serialize_without_a_path_has_one(self):
        for given in (["--serialize"], ["--serialize", "1"]):
            args = parse(*given)
            assert (args.serialize, args.save_path) == (1, "neon_model.pkl")

    def test_the_folder_of_the_save_path_is_made(self, tmp_path):
        args = parse("-s", "new/folder/m.p")
        assert (tmp_path / "new" / "folder").is_dir() and args.serialize == 1
        assert not (tmp_path / "new" / "folder" / "m.p").exists()

    def test_a_path_that_cannot_be_written(self, tmp_path, monkeypatch):
        with pytest.raises(OSError, match="cannot be written"):
            parse("-s", str(tmp_path))
        (tmp_path / "file").write_text("")
        with pytest.raises(OSError, match="file"):
            parse("-s", "file/m.p")

    def test_a_model_file_that_is_not_there(self, tmp_path):
        with pytest.raises(OSError, match=r"nothing\.p"):
            parse("--model_file", "nothing.p")
        (tmp_path / "m.p").write_text("")
        assert parse("--model_file", "m.p").model_file == "m.p"

    def test_a_manifest_without_a_key(self):
        with pytest.raises(ArgumentError, match="key:path"):
            parse("--manifest", "train.tsv")


def test_rounding_needs_another_backend():
    with pytest.raises(NotImplementedError, match="cpu"):
        parse("--rounding")
    assert parse("-b", "mkl", "-u", "12").rounding == 12 and parse("-b", "mkl", "-u").rounding is True


@pytest.mark.parametrize("arguments", [["--epochs", "many"], ["-b", "abacus"], ["-d", "f128"], ["--unknown"]])
def test_unusable_options_end_the_script(arguments, capsys):
    with pytest.raises(SystemExit) as ended:
        parse(*arguments)
    assert ended.value.code == 2 and "error:" in capsys.readouterr().err


def test_version_and_help(capsys):
    from neonlike import __version__

    for option in ("--version", "--help"):
        with pytest.raises(SystemExit) as ended:
            parse(option)
        assert ended.value.code == 0
    out = capsys.readouterr().out
    assert __version__ in out and "A test" in out and "--batch_size" in out


def test_the_gpu_is_offered_and_says_what_is_missing(monkeypatch):
    monkeypatch.setitem(sys.modules, "pycuda", None)
    assert parse("-b", "gpu").backend == "gpu"
    with pytest.raises(BackendUnavailable, match="needs PyCUDA, which is not installed: pip install"):
        parse("-b", "gpu", gen_be=True)


class TestProfile:
    @pytest.fixture(autouse=True)
    def train_afterwards(self):
        yield
        timing.instead_of_training(None)

    def fit(self, *arguments):
        args = parse("-z", "8", *arguments, gen_be=True)
        data = ArrayIterator(np.ones((32, 4), np.float32), np.arange(32) % 2, nclass=2)
        model = Model([Linear(nout=2, init=Gaussian(), name="deep")])
        cost = GeneralizedCost(costfunc=SumSquared())
        model.fit(data, cost=cost, optimizer=GradientDescentMomentum(0.1, 0.9), num_epochs=args.epochs,
                  callbacks=Callbacks(model, progress_bar=False))  # fmt: skip
        return model

    def test_the_model_is_timed_instead_of_trained(self, caplog):
        model = self.fit("--profile", "--profile_iterations", "3", "--profile_iter_skip", "1", "-e", "7")
        assert model.epoch_index == 0, "it was not trained"
        for words in ("3 minibatches after 1", "Median", "iteration", "bprop deep", "data_loading"):
            assert words in caplog.text, words

    def test_inference_alone(self, caplog):
        self.fit("--profile", "--profile_inference", "--profile_iterations", "2")
        assert "fprop deep" in caplog.text and "bprop" not in caplog.text

    def test_without_the_option_it_trains(self, caplog):
        self.fit("--profile", "--profile_iterations", "2")
        assert self.fit("-e", "2").epoch_index == 2

    @pytest.mark.parametrize("arguments", [["--profile_iterations", "0"], ["--profile_iter_skip", "-1"],
                                           ["--profiling_method", "guess"]])  # fmt: skip
    def test_nonsense_is_refused(self, arguments, capsys):
        with pytest.raises(SystemExit):
            parse("--profile", *arguments)
        assert arguments[0] in capsys.readouterr().err


def test_options_added_after_parsing_come_too_late(caplog):
    parser = NeonArgparser()
    parser.parse_args([], gen_be=False)
    parser.add_argument("--late")
    assert "--late" in caplog.text


def test_deterministic_is_deprecated(caplog):
    parse("--deterministic")
    assert "deprecated" in caplog.text


class TestRanks:
    """Options of programs that several ranks run."""

    @pytest.mark.parametrize(("given", "asked"), [((), None), (("--mpi",), True)])
    def test_mpi_is_asked_for(self, monkeypatch, given, asked):
        """By the option alone, for a backend of the parser, or of the script."""
        seen = []
        monkeypatch.setattr(argparser, "ranks_of", lambda distributed: seen.append(distributed) or ALONE)
        monkeypatch.setattr(argparser, "gen_backend", lambda distributed, **rest: seen.append(distributed))
        args = parse(*given, gen_be=True)
        assert seen == [asked, asked] and extract_valid_args(args, gen_backend)["distributed"] is asked

    def test_a_scripts_own_option_stays_its_own(self):
        parser = NeonArgparser()
        parser.add_argument("--mpi", dest="distributed", default="no")
        assert parser.parse_args(["--mpi", "yes"], gen_be=False).distributed == "yes"

    def test_the_log_file_is_that_of_rank_0(self, tmp_path, monkeypatch):
        monkeypatch.setattr(argparser, "silence", lambda ranks: None)
        for rank in (1, 0):
            ranks = OneOf(rank, 2)
            monkeypatch.setattr(ranks, "tell", lambda thing, what="": [thing, None])
            monkeypatch.setattr(argparser, "ranks_of", lambda distributed, ranks=ranks: ranks)
            args = parse("-l", str(tmp_path / f"{rank}.txt"), "-s", str(tmp_path / f"{rank}" / "m.p"))
            assert args.logfile == str(tmp_path / f"{rank}.txt") and args.log_thresh == 30 and args.serialize == 1
        assert {path.name for path in tmp_path.iterdir()} == {"0.txt", "0"}


def test_a_yaml_file_is_opened(tmp_path, capsys):
    parser = NeonArgparser()
    parser.add_yaml_arg()
    path = tmp_path / "model.yaml"
    path.write_text("epochs: 3 # größer", encoding="utf-8")
    with parser.parse_args([str(path), "-e", "1"], gen_be=False).yaml_file as file:
        assert file.name == str(path) and file.read() == "epochs: 3 # größer"
    with pytest.raises(SystemExit):
        parser.parse_args([str(tmp_path / "none.yaml")], gen_be=False)
    assert "cannot open" in capsys.readouterr().err


class TestLog:
    """Thresholds and the log file."""

    def test_verbosity_sets_the_threshold(self, capsys):
        with nobody_configured_logging():
            parse()
            logger.info("hidden")
            logger.warning("shown")
            logger.display("plain")
            parse("-v")
            logger.info("shown too")
        assert capsys.readouterr().err == "WARNING: shown\nplain\nINFO: shown too\n"

    def test_a_log_file(self, tmp_path, capsys):
        with nobody_configured_logging():
            args = parse("-l", "logs/run.txt")
            logger.warning("for the file")
            logger.display("for both")
        assert capsys.readouterr().err == "for both\n", "warnings would tear the progress bar"
        text = (tmp_path / "logs" / "run.txt").read_text()
        assert "WARNING for the file" in text and "for both" in text and args.logfile == "logs/run.txt"

    def test_a_log_file_without_a_bar(self, capsys):
        with nobody_configured_logging():
            parse("-l", "run.txt", "--no_progress_bar")
            logger.warning("for both")
        assert "for both" in capsys.readouterr().err

    def test_the_default_log_file(self, tmp_path):
        assert parse("-l").logfile == str(tmp_path / "home" / "nervana" / "neon_log.txt")
        assert logger.handlers and any(isinstance(h, logging.FileHandler) for h in logger.handlers)
