"""Callbacks that write pictures."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from neonlike.callbacks.adversarial import require_gan
from neonlike.callbacks.callback import Callback, Frequency
from neonlike.distributed.first import by_first
from neonlike.errors import ArgumentError, ShapeError
from neonlike.util.atomic import replacing
from neonlike.util.persist import ensure_dirs_exist, expand
from neonlike.util.plot import curves, running_median
from neonlike.util.png import encode_png, grid

if TYPE_CHECKING:
    from neonlike.callbacks.protocol import Records


class GANPlotCallback(Callback):
    """Write image grids after each epoch of a GAN: data in ``<filename>_data_NNN.png``, samples in ``_noise_NNN.png``.

    ``<filename>_data_NNN.png`` shows the epoch's last data, and ``<filename>_noise_NNN.png`` the generator's samples.
    ``<filename>_training.png`` plots the discriminator's negative cost, with its running median, over the generator's
    updates so far.

    Parameters
    ----------
    filename : str
        Path without number and extension; its folder is created.
    hw : int
        Height and width of an image.
    nchan : int
        Channels of an image: 1 (grey) or 3 (RGB).
    num_samples : int
        Number of images.
    sym_range : bool
        Whether values lie in [-1, 1] instead of [0, 1]; values outside are clipped.
    padding : int
        Pixels between images, before scaling.
    plot_width, plot_height : int
        Maximum size in pixels; images are enlarged by an integer factor.
    dpi : float
        Dots per inch, stored in the file.
    font_size : int
        Unused, since the pictures have no text; kept for compatibility.
    epoch_freq : int
        Interval in epochs.

    Raises
    ------
    ArgumentError
        If a size is out of range.

    Examples
    --------
    >>> from neonlike.backends import gen_backend
    >>> from neonlike.callbacks.plotting_callbacks import GANPlotCallback
    >>> be = gen_backend("cpu", batch_size=2)
    >>> callback = GANPlotCallback("plots/digits", hw=2, num_samples=4, padding=1)
    >>> callback.picture(be.zeros((4, 4)).get()).shape  # 5 x 5 pixels, enlarged 119 times
    (595, 595)
    """

    def __init__(
        self,
        filename: str,
        hw: int = 28,
        nchan: int = 1,
        num_samples: int = 16,
        sym_range: bool = False,
        padding: int = 2,
        plot_width: int = 1200,
        plot_height: int = 600,
        dpi: float = 60.0,
        font_size: int = 10,
        epoch_freq: Frequency = 1,
    ) -> None:
        super().__init__(epoch_freq=epoch_freq)
        if nchan not in (1, 3):
            raise ArgumentError(f"GANPlotCallback: nchan={nchan}; an image has 1 channel (grey) or 3 (RGB)")
        if num_samples < 1 or hw < 1 or padding < 0:
            raise ArgumentError(
                f"GANPlotCallback: num_samples={num_samples} and hw={hw} must be at least 1, padding={padding} "
                "at least 0"
            )
        self.filename, self.hw, self.nchan, self.num_samples = filename, hw, nchan, num_samples
        self.sym_range, self.padding = sym_range, padding
        self.plot_width, self.plot_height, self.dpi, self.font_size = plot_width, plot_height, dpi, font_size

    def on_train_begin(self, callback_data: Records, model: Any, epochs: int) -> None:
        """Check that the model generates images of this size, and create the folder.

        Parameters
        ----------
        callback_data, model, epochs
            As of :meth:`~neonlike.callbacks.callbacks.Callback.on_train_begin`.
        """
        require_gan(self, model)
        size, shape = self.nchan * self.hw**2, model.layers.generator.out_shape
        if np.prod(shape) != size:
            raise ShapeError(
                f"GANPlotCallback: hw={self.hw} and nchan={self.nchan} make images of {size} values, but the "
                f"generator's have shape {shape}"
            )
        by_first(lambda: ensure_dirs_exist(expand(self.filename)))
        self._course: list[tuple[int, float]] = []

    def on_minibatch_end(self, callback_data: Records, model: Any, epoch: int, minibatch: int) -> None:
        """Record the training's progress.

        Parameters
        ----------
        callback_data, model, epoch, minibatch
            As of :meth:`~neonlike.callbacks.callbacks.Callback.on_minibatch_end`.
        """
        self._course.append((model.gen_iter, -model.cost_dis.item()))

    def on_epoch_end(self, callback_data: Records, model: Any, epoch: int) -> None:
        """Write all files, of what rank 0 has.

        Parameters
        ----------
        callback_data, model, epoch
            As of :meth:`~neonlike.callbacks.callbacks.Callback.on_epoch_end`.
        """
        by_first(lambda: self._write_all(model, epoch))

    def _write_all(self, model: Any, epoch: int) -> None:
        self._write("training", self.training_picture())
        for name, batch in (("data", model.data_batch), ("noise", model.noise_batch)):
            self._write(f"{name}_{epoch:03d}", self.picture(batch.get()))

    def _write(self, name: str, picture: np.ndarray) -> None:
        with replacing(f"{expand(self.filename)}_{name}.png") as file:
            file.write(encode_png(picture, self.dpi))

    def training_picture(self) -> np.ndarray:
        """Plot the discriminator's negative cost and its running median over the generator's updates.

        Returns
        -------
        ndarray
            uint8 ``(plot_height, plot_width, 3)``; minibatches with non-finite cost are left out.
        """
        course = np.array([point for point in self._course if math.isfinite(point[1])]).reshape(-1, 2)
        if not len(course):
            return np.full((self.plot_height, self.plot_width, 3), 255, np.uint8)
        x, y = course.T
        smooth = running_median(y, 2 * (len(y) // 40) + 3)
        return curves(x, [y, smooth], max(self.plot_width, 64), max(self.plot_height, 64))

    def picture(self, batch: np.ndarray) -> np.ndarray:
        """Arrange the first images of a batch in a grid.

        Parameters
        ----------
        batch : ndarray
            ``(nchan*hw*hw, N)``.

        Returns
        -------
        ndarray
            uint8, ``(height, width)`` or ``(height, width, 3)``.
        """
        values = batch[:, : self.num_samples].T.reshape(-1, self.nchan, self.hw, self.hw).astype(np.float64)
        if self.sym_range:
            values = (values + 1) / 2
        pixels = np.rint(np.nan_to_num(values).clip(0, 1) * 255).astype(np.uint8)
        images = pixels[:, 0] if self.nchan == 1 else pixels.transpose(0, 2, 3, 1)
        return grid(images, self.padding, self.plot_width, self.plot_height)
