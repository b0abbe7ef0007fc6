import pickle

import numpy as np
import pytest

from mlp_mixers.data import ImageBatches
from mlp_mixers.data import KerasCVRandAugment
from mlp_mixers.data import keras_cv as module


@pytest.fixture(scope="module")
def augmentation():
    pytest.importorskip("keras_cv")
    return KerasCVRandAugment(magnitude=0.7)


def photo(height=16, width=20):
    rng = np.random.default_rng(0)
    return rng.integers(20, 230, (height, width, 3)).astype(np.uint8)


def draw(augmentation, image, seed):
    return augmentation(image, np.random.default_rng(seed))


def test_draws_follow_from_the_generator_alone(augmentation):
    image = photo()
    first = [draw(augmentation, image, seed) for seed in range(40)]
    assert {result.dtype for result in first} == {np.dtype("uint8")}
    assert {result.shape for result in first} == {image.shape}
    assert len({result.tobytes() for result in first}) > 30
    for seed in reversed(range(40)):
        np.testing.assert_array_equal(
            draw(augmentation, image, seed), first[seed]
        )


def test_images_of_any_size(augmentation):
    for shape in ((9, 30), (16, 20), (31, 8)):
        image = photo(*shape)
        assert draw(augmentation, image, 1).shape == image.shape


def test_a_copy_for_another_process_draws_the_same(augmentation):
    copy = pickle.loads(pickle.dumps(augmentation))
    for seed in range(5):
        np.testing.assert_array_equal(
            draw(copy, photo(), seed), draw(augmentation, photo(), seed)
        )


def test_batches_with_workers_repeat(augmentation):
    images = np.stack([photo()] * 6)
    results = []
    for workers, size in ((1, 6), (2, 2)):
        batches = ImageBatches(
            images,
            np.arange(6),
            size,
            shuffle=False,
            first_epoch=3,
            augmentation=augmentation,
            workers=workers,
        )
        parts = [batches[i][0] for i in range(len(batches))]
        results.append(np.concatenate(parts))
        batches.close()
    np.testing.assert_array_equal(*results)
    assert len({image.tobytes() for image in results[0]}) == 6


def test_no_layer_keeps_a_random_state_of_its_own(augmentation):
    """All that is random in the traced function is free of state."""
    draw(augmentation, photo(), 0)
    graph = augmentation._function.get_concrete_function().graph
    kinds = {operation.type for operation in graph.get_operations()}
    parts = {
        field.name: part for field, part in graph.as_graph_def().ListFields()
    }
    for function in parts["library"].function:
        kinds |= {node.op for node in function.node_def}
    random = {kind for kind in kinds if "Random" in kind}
    assert random
    assert all(kind.startswith("Stateless") for kind in random)


def test_without_operations_an_image_stays():
    pytest.importorskip("keras_cv")
    # A draw from [0, 1) is never above 1, and above 0 nearly always.
    none = KerasCVRandAugment(num_layers=1, rate=0.0)
    image = photo()
    for seed in range(5):
        np.testing.assert_array_equal(draw(none, image, seed), image)


def test_colours_alone_move_no_pixel():
    """Without geometry, one colour everywhere stays one colour."""
    pytest.importorskip("keras_cv")
    colours = KerasCVRandAugment(num_layers=1, geometric=False)
    image = np.full((8, 8, 3), (90, 140, 200), np.uint8)
    results = [draw(colours, image, seed) for seed in range(30)]
    assert any((result != image).any() for result in results)
    for result in results:
        assert (result == result[:1, :1]).all()


def test_wrong_images(augmentation, rng):
    for image in (np.zeros((4, 4, 1), np.uint8), np.zeros((4, 4, 3))):
        with pytest.raises(ValueError, match="needs 8-bit RGB"):
            augmentation(image, rng)


def test_wrong_arguments():
    for name in ("magnitude", "magnitude_std", "rate"):
        with pytest.raises(ValueError, match=f"{name}=2"):
            KerasCVRandAugment(**{name: 2})
    with pytest.raises(ValueError, match="num_layers=0"):
        KerasCVRandAugment(num_layers=0)


@pytest.mark.parametrize("missing", ["keras_cv", "tensorflow"])
def test_where_it_is_not_installed(monkeypatch, missing):
    def import_module(name):
        if name == missing:
            raise ImportError(name)
        return None

    monkeypatch.setattr(module.importlib, "import_module", import_module)
    with pytest.raises(ImportError, match="pip install keras-cv tensorflow"):
        KerasCVRandAugment()
