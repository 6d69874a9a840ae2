"""Images from folders: classes, sizes, augmentation, files that are no images."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from PIL import Image

from neonlike.data import ImageFolder, Prefetch
from neonlike.data.images import Augmentation
from neonlike.data.protocol import DamagedData
from neonlike.errors import ArgumentError

pytestmark = pytest.mark.engines("any", batch_size=3)


@pytest.fixture
def folder(tmp_path):
    """Seven images, each of one colour: red is its number times 10; those of dogs are blue too."""
    for number in range(7):
        name = "dogs" if number % 3 == 0 else "cats"
        pixels = np.zeros((6, 8, 3), np.uint8)
        pixels[..., 0], pixels[..., 2] = 10 * number, 255 * (name == "dogs")
        (tmp_path / name).mkdir(exist_ok=True)
        Image.fromarray(pixels).save(tmp_path / name / f"{number}.png")
    (tmp_path / "cats" / "notes.txt").write_text("no image")
    return tmp_path


def epoch(iterator):
    """Number and class of each sample."""
    return [
        (round(float(red) / 10), int(label))
        for x, t in iterator
        for red, label in zip(x.get()[0], t.get().argmax(axis=0), strict=True)
    ]


IN_ORDER = [(1, 0), (2, 0), (4, 0), (5, 0), (0, 1), (3, 1), (6, 1)]


def test_classes_are_folders(be, folder):
    images = ImageFolder(folder, 4, 5)
    assert (images.classes, images.nclass, images.ndata, images.shape) == (["cats", "dogs"], 2, 7, (3, 4, 5))
    assert images.shapes() == [(3, 4, 5), (2,)]
    assert epoch(images) == IN_ORDER + IN_ORDER[:2]
    assert epoch(images) == IN_ORDER[2:] + IN_ORDER[:1]
    images.reset()
    x, t = next(iter(images))
    assert x.shape == (60, 3) and t.shape == (2, 3)
    np.testing.assert_array_equal(x.get().reshape(3, 20, 3)[0], np.tile([10, 20, 40], (20, 1)))
    labels = ImageFolder(folder, 4, make_onehot=False)
    _, t = next(iter(labels))
    assert t.dtype == np.int32 and t.shape == (1, 3) and labels.shapes() == [(3, 4, 4), (1,)]


def test_shuffled_epochs_have_all_images_and_follow_the_seed(be, folder):
    images = ImageFolder(folder, 2, shuffle=True)
    first, second = epoch(images), epoch(images)
    assert sorted(first[:7]) == sorted(second[:7]) == sorted(IN_ORDER) and first != second
    be.rng_reset()
    assert epoch(ImageFolder(folder, 2, shuffle=True)) == first
    be.rng_reset()
    assert epoch(Prefetch(ImageFolder(folder, 2, shuffle=True))) == first


def test_an_interrupted_epoch_is_drawn_again(be, folder):
    images = ImageFolder(folder, 2, shuffle=True, flip_enable=True, brightness=(0.5, 1))
    position = images.progress()
    expected = [x.get().copy() for x, _ in images]
    be.rng.uniform(size=10)
    images.set_progress(position)
    np.testing.assert_array_equal(expected, [x.get().copy() for x, _ in images])


# Augmentation ---------------------------------------------------------------------------------------------------------


def gradient(height=6, width=8):
    """Red is the column, green the row."""
    pixels = np.zeros((height, width, 3), np.uint8)
    pixels[..., 0], pixels[..., 1] = np.arange(width) * 10, np.arange(height)[:, None] * 10
    return pixels


@pytest.fixture
def picture(tmp_path):
    path = tmp_path / "picture.png"
    Image.fromarray(gradient()).save(path)
    return str(path)


def read(picture, seed=0, **options):
    return Augmentation(**options).read(picture, np.random.RandomState(seed))


def test_the_middle_is_cut_out(picture):
    expected = gradient().transpose(2, 0, 1)
    np.testing.assert_array_equal(read(picture, height=6, width=8), expected)
    np.testing.assert_array_equal(read(picture, height=6, width=6), expected[:, :, 1:7])
    np.testing.assert_array_equal(
        read(picture, height=3, width=3, scale=(0.5, 0.5)), expected[:, 1:4, 2:5] + np.array([5, 5, 0])[:, None, None]
    )


def test_boxes_lie_anywhere_in_the_image_if_not_in_the_middle():
    cut = Augmentation(height=2, width=2, scale=(0.25, 1.0), center=False, horizontal_distortion=(0.5, 2.0))
    rng = np.random.RandomState(1)
    boxes = np.array([cut.box_in(80, 60, rng) for _ in range(500)])
    left, top, right, bottom = boxes.T
    assert left.min() >= 0 and top.min() >= 0 and right.max() <= 80 + 1e-9 and bottom.max() <= 60 + 1e-9
    aspect = (right - left) / (bottom - top)
    assert aspect.min() < 0.6 and aspect.max() > 1.8 and 0.5 <= aspect.min() and aspect.max() <= 2 + 1e-9
    largest = np.minimum(80, 60 * aspect)
    scale = (right - left) / largest
    assert 0.25 <= scale.min() < 0.3 and 0.95 < scale.max() <= 1 + 1e-9
    across, down = left / (80 - (right - left) + 1e-9), top / (60 - (bottom - top) + 1e-9)
    assert min(across) < 0.1 and max(across) > 0.9 and min(down) < 0.1 and max(down) > 0.9


def test_half_of_the_images_are_mirrored(picture):
    plain = gradient().transpose(2, 0, 1)
    seen = [read(picture, seed, height=6, width=8, flip_enable=True) for seed in range(40)]
    flipped = [np.array_equal(one, plain[:, :, ::-1]) for one in seen]
    assert all(np.array_equal(one, plain) or flip for one, flip in zip(seen, flipped))
    assert 10 < sum(flipped) < 30


def test_photometric_factors(picture):
    plain = gradient().transpose(2, 0, 1).astype(float)
    size = {"height": 6, "width": 8}
    np.testing.assert_allclose(read(picture, brightness=(6, 6), **size), np.clip(plain * 6, 0, 255))
    mean = plain.mean()
    np.testing.assert_allclose(read(picture, contrast=(0.5, 0.5), **size), mean + (plain - mean) / 2, atol=0.51)
    gray = np.tensordot([0.299, 0.587, 0.114], plain, axes=1)
    np.testing.assert_allclose(read(picture, saturation=(0, 0), **size), np.stack([gray] * 3), atol=0.51)
    levels = [read(picture, seed, brightness=(0.5, 1.5), **size)[0, 0, 4] for seed in range(50)]
    assert 20 <= min(levels) < 26 and 54 < max(levels) <= 60


def test_gray(picture):
    out = read(picture, height=6, width=8, channels=1, saturation=(0.1, 3))
    assert out.shape == (1, 6, 8)
    with Image.open(picture) as image:
        np.testing.assert_array_equal(out[0], np.asarray(image.convert("L")))


def test_other_formats_and_transparency(tmp_path):
    for mode, color in (("RGBA", (9, 8, 7, 255)), ("P", 3), ("L", 9), ("1", 1)):
        Image.new(mode, (4, 4), color).save(tmp_path / "x.png")
        assert read(str(tmp_path / "x.png"), height=2, width=2).shape == (3, 2, 2)
    Image.new("RGB", (9, 9), (200, 100, 50)).save(tmp_path / "x.jpg")
    np.testing.assert_allclose(read(str(tmp_path / "x.jpg"), height=3, width=3)[:, 1, 1], [200, 100, 50], atol=4)


# What does not do -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("prefetch", [False, True])
def test_a_damaged_image_is_named(be, folder, prefetch):
    path = folder / "cats" / "4.png"
    path.write_bytes(path.read_bytes()[:45])
    images = ImageFolder(folder, 4)
    with pytest.raises(OSError, match=r"4\.png is no image that Pillow can read, or not a whole one"):
        list(Prefetch(images) if prefetch else images)


def test_hidden_files_and_folders_are_no_images(be, folder):
    """As those that other systems leave beside each file; a folder may be called as an image is."""
    before = ImageFolder(folder, 4)
    inside = folder / before.classes[0]
    (inside / "._0.png").write_bytes(b"attributes")
    (inside / "more.png").mkdir()
    after = ImageFolder(folder, 4)
    assert (after.ndata, after.classes) == (before.ndata, before.classes)
    assert len(list(after)) == len(list(before))


def test_folders_without_images(be, tmp_path):
    with pytest.raises(FileNotFoundError, match=r"no folder .*none"):
        ImageFolder(tmp_path / "none", 4)
    with pytest.raises(FileNotFoundError, match=r"has no images; expected .*<class>"):
        ImageFolder(tmp_path, 4)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"scale": (0.5, 1.5)}, "part of the image"),
        ({"scale": (0, 1)}, "part of the image"),
        ({"scale": 0.5}, "expected a pair"),
        ({"contrast": (2, 1)}, "expected a pair"),
        ({"horizontal_distortion": (0, 1)}, "above 0"),
        ({"channels": 4}, "channels=4"),
        ({"width": -1}, "width=-1"),
    ],
)
def test_options_are_checked(be, folder, options, message):
    with pytest.raises(ArgumentError, match=message):
        ImageFolder(folder, 4, **options)


def test_without_pillow_it_says_so(be, folder, monkeypatch):
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(ImportError, match=r"ImageFolder needs Pillow; .*neonlike\[data\]"):
        ImageFolder(folder, 4)


RAMP = np.linspace(0, 1, 4 * 6).reshape(4, 6)
DEEP = {
    "16 bits": ("deep.png", lambda: np.rint(RAMP * 65535).astype(np.uint16)),
    "16 bits, TIFF": ("deep.tif", lambda: np.rint(RAMP * 65535).astype(np.uint16)),
    "32 bits": ("deep.tif", lambda: np.rint(RAMP * (2**31 - 1)).astype(np.int32)),
    "floats": ("deep.tif", lambda: RAMP.astype(np.float32)),
    "bytes, TIFF": ("deep.tif", lambda: np.rint(RAMP * 255).astype(np.uint8)),
    "bytes": ("deep.png", lambda: np.rint(RAMP * 255).astype(np.uint8)),
}


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("kind", DEEP)
@pytest.mark.parametrize("orientation", [None, 1, 3, 6, 8])
def test_deep_and_turned_images(be, tmp_path, kind, channels, orientation):
    """Scaled to 8 bits, and turned as the tag says: 3 upside down, 6 and 8 by a quarter."""
    (name, levels), tags = DEEP[kind], Image.Exif()
    if orientation:
        tags[0x0112] = orientation
    Image.fromarray(levels()).save(tmp_path / name, exif=tags)
    turned = np.rot90(RAMP, {3: 2, 6: -1, 8: 1}.get(orientation, 0))
    reader = Augmentation(height=turned.shape[0], width=turned.shape[1], channels=channels)
    pixels = reader.read(str(tmp_path / name), np.random.RandomState(0))
    np.testing.assert_array_equal(pixels, np.broadcast_to(np.rint(turned * 255), (channels, *turned.shape)))


def test_floats_of_another_range_are_refused(be, tmp_path):
    Image.fromarray((RAMP * 255).astype(np.float32)).save(tmp_path / "f.tif")
    with pytest.raises(DamagedData, match="floats above 1"):
        Augmentation(height=4, width=6).read(str(tmp_path / "f.tif"), np.random.RandomState(0))
