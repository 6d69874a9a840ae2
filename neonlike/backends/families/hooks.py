"""neon's hooks for other machines and modes; most do nothing on one device, but scripts and layers call them."""

from __future__ import annotations

from typing import Any

from neonlike.backends.families.base import Family


class HooksFamily(Family):
    """Data distribution, data conversion, compatibility modes.

    Attributes
    ----------
    device_type, device_id : int
        0 for the CPU.
    use_pinned_mem, enable_winograd
        Accepted for neon's sake.
    """

    device_type = 0
    device_id = 0
    use_pinned_mem = False
    enable_winograd: Any = True

    def set_caffe_compat(self) -> None:
        """Use Caffe's sizes for pooling and its scaling for dropout."""
        self.compat_mode = "caffe"

    def check_caffe_compat(self) -> bool:
        """True in Caffe mode."""
        return self.compat_mode == "caffe"

    def is_mkl(self) -> bool:
        """False: there is no MKL engine behind this backend."""
        return False

    def distribute_data(self, tensor: Any, layer_parallelism: Any) -> None:
        """Split ``tensor`` over devices; there is one."""

    def revert_tensor(self, tensor: Any) -> None:
        """Undo :meth:`distribute_data`."""

    def convert_data(self, tensor: Any, layer_mkl: Any) -> None:
        """Convert to an engine's layout; there is one layout."""

    def clean_data(self, tensor: Any, layer_mkl: Any) -> None:
        """Drop an engine's copy of ``tensor``."""

    def allocate_new_outputs(self, layer: Any, share_output: Any) -> None:
        """Let ``layer`` allocate its outputs, shared with ``share_output``."""
        layer.allocate(shared_outputs=share_output)

    def allocate_new_deltas(self, delta: Any, in_shape: Any, parallelism: Any) -> Any:
        """``delta`` itself."""
        return delta

    def bibnrnn_layer(
        self, h_buffer_all: Any, h_ff_buffer: Any, W_recur_f: Any, W_recur_b: Any, nsteps: int, nout: int
    ) -> None:
        """Engine object of a bidirectional recurrent layer; none is needed."""

    def relu_layer(self) -> None:
        """Engine object of a relu layer; none is needed."""

    def batchnorm_layer(self, in_shape: Any) -> None:
        """Engine object of a batch normalisation layer; none is needed."""

    def mergesum_layer(self, layer_num: int) -> None:
        """Engine object of a merge-sum container; none is needed."""

    def mergebroadcast_layer(self, layer_num: int) -> None:
        """Engine object of a merge-broadcast container; none is needed."""
