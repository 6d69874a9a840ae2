"""Contrast normalization and ZCA whitening of images (Krizhevsky 2009, appendix A; Coates, Lee, Ng 2011)."""

from __future__ import annotations

import os

import numpy as np

from neonlike.errors import ShapeError
from neonlike.util.persist import load_obj, save_obj


def global_contrast_normalize(X: np.ndarray, scale: float = 1.0, min_divisor: float = 1e-8) -> np.ndarray:
    """Subtract each image's mean and scale the image, a row, to the norm ``scale``.

    Parameters
    ----------
    X : ndarray
        Images in rows, ``(n, features)``.
    scale : float
        Norm of the results.
    min_divisor : float
        Images with a smaller norm, of a single colour, are not scaled.

    Examples
    --------
    >>> import numpy as np
    >>> from neonlike.data.whitening import global_contrast_normalize
    >>> print(global_contrast_normalize(np.array([[1.0, 2.0, 3.0, 2.0]]), scale=2.0).round(3))
    [[-1.414  0.     1.414  0.   ]]
    """
    centred = X - X.mean(axis=1, keepdims=True)
    divisor = np.sqrt(np.square(centred).sum(axis=1, keepdims=True)) / scale
    divisor[divisor < min_divisor] = 1.0
    return centred / divisor


def zca_transform(images: np.ndarray, filter_bias: float = 0.1) -> tuple[np.ndarray, np.ndarray]:
    """Compute the mean ``(features,)`` and matrix ``(features, features)`` that whiten images in rows.

    The matrix is C**(−1/2) with C their covariance, plus ``filter_bias`` on its diagonal.

    Parameters
    ----------
    images : ndarray
        Images in rows, ``(n, features)``.
    filter_bias : float
        Summand on the diagonal, which limits the amplification of noise.
    """
    values, vectors = np.linalg.eigh(np.cov(images.T) + filter_bias * np.eye(images.shape[1]))
    whiten = (vectors / np.sqrt(values)) @ vectors.T
    return images.mean(axis=0), whiten.astype(images.dtype)


def zca_whiten(
    train: np.ndarray, test: np.ndarray, cache: str | os.PathLike[str] | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Whiten training and test images, in rows, with the statistics of the training images.

    Parameters
    ----------
    train, test : ndarray
        Images in rows, ``(n, features)``.
    cache : path, optional
        File for mean and matrix; read if it exists.

    Returns
    -------
    train, test : ndarray
        Whitened images.
    """
    if cache is not None and os.path.exists(cache):
        mean, whiten = load_obj(cache)
        if np.shape(whiten) != (train.shape[1],) * 2:
            raise ShapeError(
                f"zca_whiten: {cache} is of images with {len(mean)} values, but these have {train.shape[1]}; remove it"
            )
    else:
        mean, whiten = zca_transform(train)
        save_obj((mean, whiten), cache)
    return (train - mean) @ whiten, (test - mean) @ whiten
