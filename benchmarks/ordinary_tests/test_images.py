"""An image pipeline in numpy: gray, normalize, blur, gradient, transpose."""

import numpy as np
import pytest


@pytest.fixture
def image():
    return np.random.default_rng(2).random((1080, 1920, 3), np.float32)


@pytest.fixture
def gray(image):
    return image.mean(axis=2)


def test_to_gray(benchmark, image):
    benchmark(lambda: image @ np.array([0.3, 0.6, 0.1], np.float32))


def test_normalize(benchmark, image):
    benchmark(lambda: (image - 0.5) / 0.25)


def test_box_blur(benchmark, gray):
    benchmark(lambda: (gray[:-2] + gray[1:-1] + gray[2:]) / 3)


def test_gradient(benchmark, gray):
    benchmark(lambda: np.abs(gray[:, 1:] - gray[:, :-1]))


def test_channels_first(benchmark, image):
    benchmark(lambda: np.ascontiguousarray(image.transpose(2, 0, 1)))
