"""Callbacks that control the training: save the model, keep the best one, stop early, tune batch normalization."""

from __future__ import annotations

import math
import os
import re
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from neonlike.callbacks.callback import Callback, Frequency, recorded_at
from neonlike.checks import brief
from neonlike.distributed.first import by_first
from neonlike.errors import ArgumentError, DTypeError
from neonlike.layers.layer import BatchNorm
from neonlike.logger import logger
from neonlike.models.statistics import average_statistics
from neonlike.util.atomic import refer
from neonlike.util.persist import expand, is_plain, require_writable

if TYPE_CHECKING:
    from neonlike.callbacks.protocol import Records
    from neonlike.data.protocol import DataIterator
    from neonlike.models.model import Model

__public_module__ = "neonlike.callbacks.callbacks"


class SerializeModelCallback(Callback):
    """Save the model at the end of epochs.

    Parameters
    ----------
    save_path : str
        File to write.
    epoch_freq : int
        Interval in epochs.
    history : int
        Number of latest files to keep, as ``<base>_<epoch><ext>``; ``save_path`` is then a link to the newest.

    Raises
    ------
    ArgumentError
        If ``history`` is below 1.

    Examples
    --------
    >>> import os
    >>> import tempfile
    >>> import numpy as np
    >>> from neonlike.backends import gen_backend
    >>> from neonlike.callbacks import Callbacks
    >>> from neonlike.callbacks.callbacks import SerializeModelCallback
    >>> from neonlike.data import ArrayIterator
    >>> from neonlike.initializers import Constant
    >>> from neonlike.layers import GeneralizedCost, Linear
    >>> from neonlike.models import Model
    >>> from neonlike.optimizers import GradientDescentMomentum
    >>> from neonlike.transforms import SumSquared
    >>> be = gen_backend("cpu", batch_size=2)
    >>> model = Model([Linear(1, Constant(0.0))])
    >>> data = ArrayIterator(np.ones((4, 3)), np.ones((4, 1)), make_onehot=False)
    >>> callbacks = Callbacks(model, progress_bar=False)
    >>> folder = tempfile.TemporaryDirectory()
    >>> callbacks.add_callback(SerializeModelCallback(os.path.join(folder.name, "model.prm"), epoch_freq=1))
    >>> cost, descent = GeneralizedCost(SumSquared()), GradientDescentMomentum(0.25, momentum_coef=0.0)
    >>> model.fit(data, cost, descent, num_epochs=2, callbacks=callbacks)
    >>> os.listdir(folder.name)
    ['model.prm']
    >>> folder.cleanup()
    """

    def __init__(self, save_path: str, epoch_freq: Frequency = 1, history: int = 1) -> None:
        super().__init__(epoch_freq=epoch_freq)
        if history < 1:
            raise ArgumentError(f"SerializeModelCallback: history={history}; expected at least 1 file to keep")
        self.save_path = save_path
        self.history = history
        self.checkpoint_files: deque[str] = deque()

    def on_train_begin(self, callback_data: Records, model: Model, epochs: int) -> None:
        """Check that the file can be written, before an epoch is lost.

        Parameters
        ----------
        callback_data, model, epochs
            As of :meth:`~neonlike.callbacks.callbacks.Callback.on_train_begin`.
        """
        by_first(self._check_path)

    def _check_path(self) -> None:
        require_writable(f"{self.classnm}: save_path", self.save_path)
        path = expand(self.save_path)
        if self.history > 1 and os.path.exists(path) and not os.path.isfile(path):
            raise ArgumentError(
                f"{self.classnm}: {path} is no file; history={self.history} puts a link there, so give another name"
            )

    def on_epoch_end(self, callback_data: Records, model: Model, epoch: int) -> None:
        """Save the model.

        Parameters
        ----------
        callback_data, model, epoch
            As of :meth:`~neonlike.callbacks.callbacks.Callback.on_epoch_end`.
        """
        path = expand(self.save_path)
        if self.history == 1:
            model.save_params(path)
            return
        base, extension = os.path.splitext(path)
        file = f"{base}_{epoch}{extension}"
        if file not in self.checkpoint_files:
            self.checkpoint_files.append(file)  # before saving: the saved model must know its own file
        model.save_params(file)
        kept = len(self.checkpoint_files) - self.history
        old = [self.checkpoint_files.popleft() for _ in range(kept)]
        by_first(lambda: self._rotate(path, file, old))

    @staticmethod
    def _rotate(path: str, file: str, old: list[str]) -> None:
        """Let ``path`` refer to the newest ``file``, and remove ``old`` ones."""
        refer(path, file)
        for oldest in old:
            if os.path.exists(oldest):
                os.remove(oldest)

    def progress(self) -> dict[str, Any]:
        """The files kept."""
        return {"files": list(self.checkpoint_files)}

    def set_progress(self, saved: dict[str, Any]) -> None:
        """Include the files of a saved training in the history."""
        base, extension = os.path.splitext(expand(self.save_path))
        ours = re.compile(rf"{re.escape(base)}_\d+{re.escape(extension)}")  # only ours: they are removed later
        self.checkpoint_files = deque(file for file in saved["files"] if ours.fullmatch(file))


class _OnLoss(Callback):
    """Base of callbacks that act on a new evaluation loss."""

    def on_train_begin(self, callback_data: Records, model: Model, epochs: int) -> None:
        """Check that a loss will be evaluated."""
        if "cost/loss" not in callback_data:
            raise ArgumentError(
                f"{self.classnm}: needs the loss on an evaluation set; give Callbacks(..., eval_set=..., eval_freq=1)"
            )

    def _new_loss(self, callback_data: Records, epoch: int) -> float | None:
        losses = callback_data["cost/loss"]
        at = recorded_at(losses, epoch)
        return None if at is None else float(losses[at])


class SaveBestStateCallback(_OnLoss):
    """Save the model whenever the loss on the evaluation set is the lowest so far.

    Parameters
    ----------
    path : str
        File to write.

    Examples
    --------
    >>> import os
    >>> import tempfile
    >>> import numpy as np
    >>> from neonlike.backends import gen_backend
    >>> from neonlike.callbacks import Callbacks
    >>> from neonlike.callbacks.callbacks import SaveBestStateCallback
    >>> from neonlike.data import ArrayIterator
    >>> from neonlike.initializers import Constant
    >>> from neonlike.layers import GeneralizedCost, Linear
    >>> from neonlike.models import Model
    >>> from neonlike.optimizers import GradientDescentMomentum
    >>> from neonlike.transforms import SumSquared
    >>> be = gen_backend("cpu", batch_size=2)
    >>> model = Model([Linear(1, Constant(0.0))])
    >>> data = ArrayIterator(np.ones((4, 3)), np.ones((4, 1)), make_onehot=False)
    >>> callbacks = Callbacks(model, progress_bar=False)
    >>> folder = tempfile.TemporaryDirectory()
    >>> callbacks = Callbacks(model, progress_bar=False, eval_set=data, eval_freq=1)
    >>> callbacks.add_callback(SaveBestStateCallback(os.path.join(folder.name, "best.prm")))
    >>> cost, descent = GeneralizedCost(SumSquared()), GradientDescentMomentum(0.25, momentum_coef=0.0)
    >>> model.fit(data, cost, descent, num_epochs=2, callbacks=callbacks)
    >>> os.listdir(folder.name)
    ['best.prm']
    >>> folder.cleanup()
    """

    def __init__(self, path: str) -> None:
        super().__init__(epoch_freq=1)
        self.path = path
        self.best_path = path
        self.best_cost: float | None = None

    def on_train_begin(self, callback_data: Records, model: Model, epochs: int) -> None:
        """Check that a loss will be evaluated, and that the file can be written.

        Parameters
        ----------
        callback_data, model, epochs
            As of :meth:`~neonlike.callbacks.callbacks.Callback.on_train_begin`.
        """
        super().on_train_begin(callback_data, model, epochs)
        by_first(lambda: require_writable(f"{self.classnm}: path", self.path))

    def on_epoch_end(self, callback_data: Records, model: Model, epoch: int) -> None:
        """Save the model if its loss is the lowest.

        Parameters
        ----------
        callback_data, model, epoch
            As of :meth:`~neonlike.callbacks.callbacks.Callback.on_epoch_end`.
        """
        loss = self._new_loss(callback_data, epoch)
        if loss is None:
            return
        best = self.best_cost
        if best is None or math.isnan(best) or loss < best:  # comparisons with nan are false
            self.best_cost = loss
            model.save_params(expand(self.path))

    def progress(self) -> dict[str, Any]:
        """The lowest loss."""
        return {"best_cost": self.best_cost}

    def set_progress(self, saved: dict[str, Any]) -> None:
        """Continue with the lowest loss of the saved training."""
        best = saved["best_cost"]
        self.best_cost = None if best is None else float(best)


class EarlyStopCallback(_OnLoss):
    """Stop the training based on a function of the losses.

    Parameters
    ----------
    stop_func : callable
        Called as ``stop_func(state, loss) -> (new state, finished)``; the first state is None.

    Examples
    --------
    >>> import numpy as np
    >>> from neonlike.backends import gen_backend
    >>> from neonlike.callbacks import Callbacks
    >>> from neonlike.callbacks.callbacks import EarlyStopCallback
    >>> from neonlike.data import ArrayIterator
    >>> from neonlike.initializers import Constant
    >>> from neonlike.layers import GeneralizedCost, Linear
    >>> from neonlike.models import Model
    >>> from neonlike.optimizers import GradientDescentMomentum
    >>> from neonlike.transforms import SumSquared
    >>> be = gen_backend("cpu", batch_size=2)
    >>> model = Model([Linear(1, Constant(0.0))])
    >>> data = ArrayIterator(np.ones((4, 3)), np.ones((4, 1)), make_onehot=False)
    >>> callbacks = Callbacks(model, progress_bar=False)
    >>> callbacks = Callbacks(model, progress_bar=False, eval_set=data, eval_freq=1)
    >>> callbacks.add_callback(EarlyStopCallback(lambda state, loss: (state, loss < 0.01)))
    >>> cost, descent = GeneralizedCost(SumSquared()), GradientDescentMomentum(0.25, momentum_coef=0.0)
    >>> model.fit(data, cost, descent, num_epochs=2, callbacks=callbacks)
    >>> model.completed_epochs  # the loss was below 0.01 after the first
    1
    """

    def __init__(self, stop_func: Callable[[Any, float], tuple[Any, bool]]) -> None:
        super().__init__(epoch_freq=1)
        if not callable(stop_func):
            raise DTypeError(f"EarlyStopCallback: stop_func={brief(stop_func)} is no function (state, loss)")
        self.stop_func = stop_func
        self.stop_state: Any = None

    def on_epoch_end(self, callback_data: Records, model: Model, epoch: int) -> None:
        """Call the function, and mark the model as finished if it returns so.

        Parameters
        ----------
        callback_data, model, epoch
            As of :meth:`~neonlike.callbacks.callbacks.Callback.on_epoch_end`.
        """
        loss = self._new_loss(callback_data, epoch)
        if loss is None:
            return
        answer = self.stop_func(self.stop_state, loss)
        if not isinstance(answer, tuple | list) or len(answer) != 2:
            raise DTypeError(f"EarlyStopCallback: stop_func returned {brief(answer)}, no pair (state, finished)")
        self.stop_state, finished = answer
        if finished:
            model.finished = True
            logger.info("Early stopping after epoch %d with state %s", epoch, self.stop_state)

    def progress(self) -> dict[str, Any]:
        """The state of the function, if files can store it."""
        return {"state": self.stop_state} if is_plain(self.stop_state) else {}

    def set_progress(self, saved: dict[str, Any]) -> None:
        """Continue with the state of the saved training."""
        self.stop_state = saved.get("state", self.stop_state)


class BatchNormTuneCallback(Callback):
    """Replace the running statistics of batch normalization by statistics of a data set under the current weights.

    Statistics are means over minibatches; the variance is corrected by n / (n − 1) for n minibatches. With several
    ranks they are means over all shares of minibatches.

    Parameters
    ----------
    tune_set : iterator
        Data for the statistics; it is reset first.
    epoch_freq : int
        Interval in epochs.

    Examples
    --------
    >>> import numpy as np
    >>> from neonlike.backends import gen_backend
    >>> from neonlike.callbacks import Callbacks
    >>> from neonlike.callbacks.callbacks import BatchNormTuneCallback
    >>> from neonlike.data import ArrayIterator
    >>> from neonlike.initializers import Constant
    >>> from neonlike.layers import BatchNorm, GeneralizedCost, Linear
    >>> from neonlike.models import Model
    >>> from neonlike.optimizers import GradientDescentMomentum
    >>> from neonlike.transforms import SumSquared
    >>> be = gen_backend("cpu", batch_size=2)
    >>> model = Model([Linear(1, Constant(0.5)), BatchNorm()])
    >>> data = ArrayIterator(np.ones((4, 3)), np.ones((4, 1)), make_onehot=False)
    >>> callbacks = Callbacks(model, progress_bar=False)
    >>> callbacks.add_callback(BatchNormTuneCallback(data))
    >>> cost, descent = GeneralizedCost(SumSquared()), GradientDescentMomentum(0.25, momentum_coef=0.0)
    >>> model.fit(data, cost, descent, num_epochs=2, callbacks=callbacks)
    >>> norm = model.layers.layers[1]
    >>> float(norm.gmean.item()) == float(model.layers.layers[0].W.get().sum())  # the mean of W · 1
    True
    """

    def __init__(self, tune_set: DataIterator, epoch_freq: Frequency = 1) -> None:
        super().__init__(epoch_freq=epoch_freq)
        self.tune_set = tune_set

    def on_epoch_end(self, callback_data: Records, model: Model, epoch: int) -> None:
        """Run the data set through the network.

        Parameters
        ----------
        callback_data, model, epoch
            As of :meth:`~neonlike.callbacks.callbacks.Callback.on_epoch_end`.
        """
        layers = [layer for layer in model.layers.layers_fprop() if isinstance(layer, BatchNorm)]
        if not layers:
            return
        rates, batches = [layer.rho for layer in layers], 0
        self.tune_set.reset()
        try:
            for x, _ in self.tune_set:
                for layer in layers:
                    layer.rho = batches / (batches + 1)  # so that all minibatches have equal weight
                model.fprop(x)
                batches += 1
        finally:
            for layer, rho in zip(layers, rates, strict=True):
                layer.rho = rho
        average_statistics(model)
        if batches > 1:
            for layer in layers:
                layer.gvar[:] = layer.gvar * (batches / (batches - 1))
