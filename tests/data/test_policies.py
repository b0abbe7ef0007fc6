import collections

import numpy as np
import pytest
import scipy.stats
from PIL import Image
from PIL import ImageEnhance
from PIL import ImageOps

from mlp_mixers.data import AutoAugment
from mlp_mixers.data import RandAugment
from mlp_mixers.data import policies

GREY = (128, 128, 128)
NEAREST = Image.Resampling.NEAREST


def photo(rng, height=24, width=30, channels=3):
    """Smooth colours with some noise, so that no operation is idle."""
    y, x = np.mgrid[:height, :width]
    waves = np.stack([np.sin(y / 5), np.cos(x / 7), np.sin((x + y) / 9)], -1)
    image = 110 + 60 * waves + rng.normal(0, 12, waves.shape)
    return image[..., :channels].clip(20, 235).astype(np.uint8)


def affine(picture, *matrix):
    return picture.transform(
        picture.size, Image.Transform.AFFINE, matrix, NEAREST, fillcolor=GREY
    )


def expected(name, picture, level, sign):
    """The paper's operation at `level` = magnitude / 10, by Pillow."""
    pixels = level * 150 / 331
    width, height = picture.size
    enhanced = 0.1 + 1.8 * level
    return {
        "ShearX": lambda p: affine(p, 1, sign * 0.3 * level, 0, 0, 1, 0),
        "ShearY": lambda p: affine(p, 1, 0, 0, sign * 0.3 * level, 1, 0),
        "TranslateX": lambda p: affine(p, 1, 0, sign * pixels * width, 0, 1, 0),
        "TranslateY": lambda p: affine(
            p, 1, 0, 0, 0, 1, sign * pixels * height
        ),
        "Rotate": lambda p: p.rotate(sign * 30 * level, fillcolor=GREY),
        "AutoContrast": ImageOps.autocontrast,
        "Invert": ImageOps.invert,
        "Equalize": ImageOps.equalize,
        "Solarize": lambda p: ImageOps.solarize(p, int(256 * level)),
        "Posterize": lambda p: ImageOps.posterize(p, 4 + int(4 * level)),
        "Contrast": lambda p: ImageEnhance.Contrast(p).enhance(enhanced),
        "Color": lambda p: ImageEnhance.Color(p).enhance(enhanced),
        "Brightness": lambda p: ImageEnhance.Brightness(p).enhance(enhanced),
        "Sharpness": lambda p: ImageEnhance.Sharpness(p).enhance(enhanced),
        "Identity": lambda p: p,
    }[name](picture)


@pytest.mark.parametrize("name", policies.OPERATIONS)
@pytest.mark.parametrize("sign", [-1, 1])
def test_operations_are_pillows(rng, name, sign):
    picture = Image.fromarray(photo(rng))
    operation = policies.OPERATIONS[name]
    for magnitude in (0, 3, 8, 10):
        amount = operation.amount(magnitude, sign)
        result = operation.apply(picture, amount, NEAREST)
        np.testing.assert_array_equal(
            result, expected(name, picture, magnitude / 10, sign)
        )


def distance(name, picture, magnitude, sign):
    operation = policies.GROWING_OPERATIONS[name]
    result = operation.apply(
        picture, operation.amount(magnitude, sign), NEAREST
    )
    return np.abs(np.asarray(result, int) - np.asarray(picture, int)).mean()


@pytest.mark.parametrize("sign", [-1, 1])
@pytest.mark.parametrize(
    "name",
    sorted(
        set(policies.GROWING_OPERATIONS)
        - {"AutoContrast", "Equalize", "Invert", "Identity"}
    ),
)
def test_operations_that_grow(rng, name, sign):
    """Nothing at 0, more at 10 than at 5, the paper's bounds at 10."""
    picture = Image.fromarray(photo(rng))
    none, some, most = (distance(name, picture, m, sign) for m in (0, 5, 10))
    assert none == 0
    assert 0 < some < most
    amount = policies.GROWING_OPERATIONS[name].amount(10, sign)
    bounds = {"Solarize": (0,), "Posterize": (4,)}
    for enhancement in ("Contrast", "Color", "Brightness", "Sharpness"):
        bounds[enhancement] = (0.1, 1.9)
    if name in bounds:
        assert amount == pytest.approx(bounds[name][sign == 1 and -1 or 0])


def test_the_growing_enhancement_has_both_signs():
    operation = policies.GROWING_OPERATIONS["Color"]
    assert operation.amount(4, 1) == pytest.approx(1.36)
    assert operation.amount(4, -1) == pytest.approx(0.64)


@pytest.mark.parametrize("policy", ["imagenet", "cifar10"])
def test_tables_are_complete(policy):
    table = policies.POLICIES[policy]
    assert len(table) == 25
    for pair in table:
        assert len(pair) == 2
        for name, rate, magnitude in pair:
            assert name in policies.OPERATIONS
            assert 0 <= rate <= 1
            assert magnitude in range(10)


def test_facts_about_the_tables():
    """Five pairs of ImageNet's are there twice; these are all of them."""
    counts = collections.Counter(policies.POLICIES["imagenet"])
    assert sorted(counts.values()) == [1] * 15 + [2] * 5
    names = {
        policy: {name for pair in table for name, *_ in pair}
        for policy, table in policies.POLICIES.items()
    }
    every = set(policies.OPERATIONS) - {"Identity"}
    assert names["imagenet"] == every - {
        *("ShearY", "TranslateX", "TranslateY", "Brightness")
    }
    assert names["cifar10"] == every - {"ShearX"}


@pytest.mark.parametrize("policy", ["imagenet", "cifar10"])
def test_autoaugment_draws_what_the_table_says(rng, policy):
    """Every result is one that some pair of the table can give."""
    image = photo(rng)
    picture = Image.fromarray(image)
    weights = collections.Counter()
    for pair in policies.POLICIES[policy]:
        outcomes = [(picture, 1 / 25)]
        for name, rate, magnitude in pair:
            after = [(p, w * (1 - rate)) for p, w in outcomes]
            for p, w in outcomes:
                for sign in (-1, 1):
                    changed = expected(name, p, magnitude / 10, sign)
                    after.append((changed, w * rate / 2))
            outcomes = after
        for p, w in outcomes:
            weights[np.asarray(p).tobytes()] += w
    augmentation = AutoAugment(policy)
    draws = 3000
    found = collections.Counter(
        augmentation(image, rng).tobytes() for _ in range(draws)
    )
    assert set(found) <= {key for key, weight in weights.items() if weight > 0}
    # Rare outcomes count with the most frequent one, so that each class has
    # its ten samples.
    common = [key for key, weight in weights.items() if weight * draws > 10]
    common.sort(key=weights.get)
    observed = [found[key] for key in common[:-1]]
    chances = [weights[key] for key in common[:-1]]
    observed.append(draws - sum(observed))
    chances.append(1 - sum(chances))
    expectation = np.array(chances) * draws
    assert scipy.stats.chisquare(observed, expectation).pvalue > 1e-3


def test_randaugment_draws_operations_equally(rng):
    image = photo(rng)
    picture = Image.fromarray(image)
    weights = collections.Counter()
    for name in policies.RANDAUGMENT_OPERATIONS:
        operation = policies.GROWING_OPERATIONS[name]
        for sign in (-1, 1):
            amount = operation.amount(7, sign)
            result = operation.apply(picture, amount, NEAREST)
            weights[np.asarray(result).tobytes()] += 1 / 28
    augmentation = RandAugment(num_layers=1, magnitude=7)
    found = collections.Counter(
        augmentation(image, rng).tobytes() for _ in range(2000)
    )
    assert set(found) <= set(weights)
    observed = [found[key] for key in weights]
    expectation = [2000 * weight for weight in weights.values()]
    assert scipy.stats.chisquare(observed, expectation).pvalue > 1e-3


def test_the_fourteen_operations_of_randaugment():
    assert len(set(policies.RANDAUGMENT_OPERATIONS)) == 14
    assert set(policies.RANDAUGMENT_OPERATIONS) == (
        set(policies.OPERATIONS) - {"Invert"}
    )


def test_magnitude_zero_changes_little(rng):
    """What grows from nothing is nothing at 0; two operations remain."""
    image = photo(rng)
    augmentation = RandAugment(num_layers=1, magnitude=0)
    same = sum(
        np.array_equal(augmentation(image, rng), image) for _ in range(700)
    )
    assert scipy.stats.binomtest(same, 700, 12 / 14).pvalue > 1e-3


def test_noise_on_the_magnitude(rng):
    image = photo(rng)
    noisy = RandAugment(1, magnitude=5, magnitude_std=1.0)
    plain = RandAugment(1, magnitude=5)
    kinds = [
        len({augmentation(image, rng).tobytes() for _ in range(300)})
        for augmentation in (plain, noisy)
    ]
    assert kinds[0] <= 2 * 14
    assert kinds[1] > 80


@pytest.mark.parametrize(
    "augmentation",
    [
        AutoAugment(),
        AutoAugment("cifar10", growing=True, interpolation="bilinear"),
        RandAugment(),
        RandAugment(3, 5, 0.5, growing=False, interpolation="bicubic"),
    ],
)
@pytest.mark.parametrize("channels", [1, 3])
def test_images_stay_images_and_draws_repeat(rng, augmentation, channels):
    image = photo(rng, channels=channels)[:, ::-1]  # not contiguous
    before = image.copy()
    results = [augmentation(image, np.random.default_rng(s)) for s in range(30)]
    np.testing.assert_array_equal(image, before)
    assert len({result.tobytes() for result in results}) > 10
    for seed, result in enumerate(results):
        assert (result.shape, result.dtype) == (image.shape, np.uint8)
        again = augmentation(image, np.random.default_rng(seed))
        np.testing.assert_array_equal(again, result)


def test_color_leaves_grey_alone(rng):
    image = photo(rng, channels=1)
    picture = policies.to_picture(image)
    for factor in (0.1, 1.9):
        result = policies.OPERATIONS["Color"].apply(picture, factor, NEAREST)
        np.testing.assert_array_equal(policies.to_array(result), image)


def test_grey_fills_grey_images_too():
    picture = policies.to_picture(np.zeros((8, 8, 1), np.uint8))
    moved = policies.OPERATIONS["TranslateX"].apply(picture, 0.5, NEAREST)
    np.testing.assert_array_equal(np.asarray(moved)[:, 4:], 128)
    np.testing.assert_array_equal(np.asarray(moved)[:, :4], 0)


@pytest.mark.parametrize("augmentation", [AutoAugment(), RandAugment()])
def test_wrong_images(rng, augmentation):
    with pytest.raises(ValueError, match="8-bit pixels.*float32"):
        augmentation(np.zeros((4, 4, 3), "float32"), rng)
    with pytest.raises(ValueError, match=r"one channel.*\(4, 4, 2\)"):
        augmentation(np.zeros((4, 4, 2), np.uint8), rng)
    with pytest.raises(ValueError, match="An image must be an array"):
        augmentation(np.zeros((4, 4), np.uint8), rng)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: AutoAugment("svhn"), "cifar10, imagenet.*policy='svhn'"),
        (lambda: AutoAugment(interpolation="area"), "interpolation='area'"),
        (lambda: RandAugment(0), "num_layers=0"),
        (lambda: RandAugment(magnitude=11), "magnitude=11"),
        (lambda: RandAugment(magnitude="9"), "magnitude='9'"),
        (lambda: RandAugment(magnitude_std=-1), "magnitude_std=-1"),
    ],
)
def test_wrong_arguments(make, message):
    with pytest.raises(ValueError, match=message):
        make()
