"""The handwritten digits that scikit-learn carries inside itself."""

from mlp_mixers.data.split import Split

# The one split of the digits, so that results can be compared.
DIGITS_SEED = 0


def load_digits():
    """The handwritten digits that scikit-learn carries inside itself.

    1,797 grey 8x8 images of real digits by 43 writers (UCI, 1998), scaled to
    [0, 1] and split once and for all: 20% test, 10% validation, 70% training,
    with every class in proportion.

    Returns:
        A `Split` of 1,257, 180 and 360 samples, images `(samples, 8, 8, 1)`.
    """
    from sklearn import datasets
    from sklearn.model_selection import train_test_split

    digits = datasets.load_digits()
    images = (digits.images / 16.0).astype("float32")[..., None]
    labels = digits.target.astype("int32")

    def cut(images, labels, size):
        a, b, a_labels, b_labels = train_test_split(
            images,
            labels,
            test_size=size,
            stratify=labels,
            random_state=DIGITS_SEED,
        )
        return (a, a_labels), (b, b_labels)

    rest, test = cut(images, labels, 360)
    train, validation = cut(*rest, 180)
    names = tuple(str(digit) for digit in range(10))
    return Split(train, validation, test, names)
