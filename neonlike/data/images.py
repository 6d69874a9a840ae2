"""Reading of images with Pillow, and random augmentation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from neonlike.data.protocol import DamagedData
from neonlike.errors import ArgumentError, MissingExtra

GRAY = np.array([0.299, 0.587, 0.114], dtype=np.float32)
"""Weights of red, green and blue in brightness (ITU-R BT.601)."""

ORIENTATION, SAMPLE_FORMAT = 0x0112, 339
"""Tags of TIFF and EXIF."""
UNSIGNED, SIGNED = 1, 2
"""Sample formats."""

Range = tuple[float, float]


def need_pillow(who: str) -> Any:
    """Return the module PIL.Image.

    Raises
    ------
    MissingExtra
        If Pillow is not installed.
    """
    try:
        from PIL import Image
    except ImportError as error:
        raise MissingExtra(f"{who} needs Pillow; install it with: pip install 'neonlike[data]'") from error
    return Image


def upright_bytes(picture: Any) -> Any:
    """Convert an image to 8-bit pixels, rotated according to its orientation tag (EXIF).

    Gray levels of 16 and 32 bits are scaled by the maximum of their type, and floats from 0 to 1 by 255; values below 0
    become 0.

    Parameters
    ----------
    picture : PIL.Image.Image
        The opened image.

    Raises
    ------
    ValueError
        If there are floats above 1, or nan: the white level is unknown.
    """
    from PIL import Image, ImageOps

    picture.load()  # loading rotates a TIFF and removes its tag
    mode = picture.mode
    if mode not in ("I", "F") and not mode.startswith("I;16"):
        return ImageOps.exif_transpose(picture)
    levels, tag = np.asarray(picture), picture.getexif().get(ORIENTATION)
    if mode == "F":
        if not (levels <= 1).all():
            raise ValueError("floats above 1, or nan; scale them to 0 to 1, or save bytes")
        white = 1
    elif mode == "I" and picture.format != "PNG":
        unsigned = getattr(picture, "tag_v2", {}).get(SAMPLE_FORMAT, SIGNED) == UNSIGNED
        levels, white = (levels.view(np.uint32), 2**32 - 1) if unsigned else (levels, 2**31 - 1)
    else:
        white = 2**16 - 1
    made = Image.fromarray(np.rint(np.clip(levels / white, 0, 1) * 255).astype(np.uint8))
    if tag:
        made.getexif()[ORIENTATION] = tag
    return ImageOps.exif_transpose(made)


@dataclass(frozen=True)
class Augmentation:
    """Augmentation of an image to one of fixed size; parameters have the names of aeon's configuration.

    A box is cut out of the image and scaled to ``height`` x ``width``. Its size is the largest box of that aspect ratio
    (times ``horizontal_distortion``), times ``scale``. A value is drawn from each range for each image.

    Parameters
    ----------
    height, width : int
        Size of the result in pixels.
    channels : int
        3 for red, green and blue, 1 for gray.
    scale : pair of float
        Side of the box as a fraction of the largest one, above 0 up to 1.
    center : bool
        Center the box; otherwise its position is random.
    flip_enable : bool
        Mirror images with probability 1/2.
    horizontal_distortion : pair of float
        Factor of the box's width.
    brightness, contrast, saturation : pair of float
        Factors of each value, of its distance to the image's mean, and of its distance to the pixel's gray level.

    Examples
    --------
    >>> from neonlike.data.images import Augmentation
    >>> Augmentation(height=32, width=48, channels=1, flip_enable=True).shape
    (1, 32, 48)
    """

    height: int
    width: int
    channels: int = 3
    scale: Range = (1.0, 1.0)
    center: bool = True
    flip_enable: bool = False
    horizontal_distortion: Range = (1.0, 1.0)
    brightness: Range = (1.0, 1.0)
    contrast: Range = (1.0, 1.0)
    saturation: Range = (1.0, 1.0)

    def __post_init__(self) -> None:
        for name in ("scale", "horizontal_distortion", "brightness", "contrast", "saturation"):
            given = getattr(self, name)
            if np.shape(given) != (2,) or not 0 <= given[0] <= given[1]:
                raise ArgumentError(f"{name}={given}: expected a pair (least, most) with 0 <= least <= most")
        if self.scale[0] <= 0 or self.scale[1] > 1:
            raise ArgumentError(f"scale={self.scale}: a box is a part of the image; expected 0 < least <= most <= 1")
        if self.horizontal_distortion[0] <= 0:
            raise ArgumentError(f"horizontal_distortion={self.horizontal_distortion}: expected factors above 0")
        if self.channels not in (1, 3):
            raise ArgumentError(f"channels={self.channels}; expected 3 for colours or 1 for gray")
        if min(self.height, self.width) < 1:
            raise ArgumentError(f"height={self.height}, width={self.width}; expected at least one pixel")

    @property
    def draws(self) -> int:
        """Numbers that :meth:`read` draws for an image, whatever that has."""
        factors = sum(span != (1.0, 1.0) for span in (self.brightness, self.contrast, self.saturation))
        return 2 + (not self.center) * 2 + bool(self.flip_enable) + factors

    def skip(self, images: int, rng: np.random.RandomState) -> None:
        """Draw the numbers of so many images that another rank reads."""
        rng.uniform(size=images * self.draws)

    @property
    def shape(self) -> tuple[int, int, int]:
        """Shape of the resulting images."""
        return self.channels, self.height, self.width

    def box_in(self, width: int, height: int, rng: np.random.RandomState) -> tuple[float, float, float, float]:
        """Draw left, top, right and bottom of a box in an image of ``width`` x ``height``.

        Parameters
        ----------
        width, height : int
            Size of the image in pixels.
        rng : numpy.random.RandomState
            Generator that draws the box.

        Returns
        -------
        tuple of float
            Left, top, right and bottom, in pixels.
        """
        aspect = self.width / self.height * rng.uniform(*self.horizontal_distortion)
        box_width = min(width, height * aspect)
        scale = rng.uniform(*self.scale)
        box_width, box_height = box_width * scale, box_width / aspect * scale
        across, down = (0.5, 0.5) if self.center else rng.uniform(size=2)
        left, top = (width - box_width) * across, (height - box_height) * down
        return left, top, left + box_width, top + box_height

    def photometric(self, pixels: np.ndarray, rng: np.random.RandomState) -> np.ndarray:
        """Randomly change brightness, contrast and saturation of ``(C, H, W)``.

        Parameters
        ----------
        pixels : ndarray
            Image ``(C, H, W)``.
        rng : numpy.random.RandomState
            Generator of the factors.
        """
        changed = pixels
        for name in ("brightness", "contrast", "saturation"):
            if (span := getattr(self, name)) == (1.0, 1.0):
                continue
            factor = np.float32(rng.uniform(*span))
            if name == "saturation" and len(pixels) == 1:
                continue
            towards: Any = 0
            if name == "contrast":
                towards = changed.mean(dtype=np.float32)
            elif name == "saturation":
                towards = np.tensordot(GRAY, changed, axes=1)
            changed = towards + (changed - towards) * factor
        return changed

    def read(self, path: str, rng: np.random.RandomState) -> np.ndarray:
        """Read and augment the image of a file; uint8 ``(C, H, W)``.

        Parameters
        ----------
        path : path
            The file.
        rng : numpy.random.RandomState
            Generator of the box, and of all factors.

        Raises
        ------
        DamagedData
            If Pillow cannot read the whole file, or its floats are not from 0 to 1.
        """
        image = need_pillow("ImageFolder")
        try:
            # by file object: given a name, Pillow maps a rotated TIFF with height and width exchanged
            with open(path, "rb") as file, image.open(file) as opened:
                picture = upright_bytes(opened).convert("RGB" if self.channels == 3 else "L")
        except (OSError, SyntaxError, ValueError) as error:
            if isinstance(error, FileNotFoundError):
                raise
            raise DamagedData(f"{path} is no image that Pillow can read, or not a whole one ({error})") from error
        box = self.box_in(picture.width, picture.height, rng)
        picture = picture.resize((self.width, self.height), image.Resampling.BILINEAR, box)
        pixels = np.asarray(picture, dtype=np.uint8).reshape(self.height, self.width, self.channels).transpose(2, 0, 1)
        if self.flip_enable and rng.uniform() < 0.5:
            pixels = pixels[:, :, ::-1]
        changed = self.photometric(pixels, rng)
        return changed if changed is pixels else np.clip(np.rint(changed), 0, 255).astype(np.uint8)
