"""One line that names a text task: `glue:...`, `tsv:...`, `squad:...`."""

import difflib
import inspect
import os
import pathlib

import numpy as np

from mlp_mixers.data import tfds as images
from mlp_mixers.data.glue import TASKS
from mlp_mixers.data.glue import load_glue
from mlp_mixers.data.glue import task_named
from mlp_mixers.data.squad import Question
from mlp_mixers.data.squad import check_questions
from mlp_mixers.data.squad import complete_spans
from mlp_mixers.data.squad import load_squad
from mlp_mixers.data.task_data import METRICS
from mlp_mixers.data.task_data import Examples
from mlp_mixers.data.task_data import TaskData
from mlp_mixers.data.task_data import check_fraction
from mlp_mixers.data.task_data import complete_parts
from mlp_mixers.data.task_data import untrained_classes
from mlp_mixers.data.tsv import load_tsv

FORMS = """
    glue:DIR/SST-2           the folder of a task of GLUE
    tsv:TRAIN[,DEV[,TEST]]   TSV or CSV files whose first line names columns
    squad:DIR_OR_FILE        questions and answers as SQuAD's JSON
    tfds:NAME                a data set of tensorflow_datasets: glue/sst2"""
# Names of splits by part; the first one there is read.
SPLITS = {
    "train": ("train",),
    "validation": ("validation", "validation_matched", "val", "valid", "dev"),
    "validation_mismatched": ("validation_mismatched",),
    "test": ("test", "test_matched"),
    "test_mismatched": ("test_mismatched",),
}


def load_task(spec, **options):
    """Loads the text task that one line names.

    Args:
        spec: `glue:DIR`, `tsv:TRAIN`, `tsv:TRAIN,DEV` or `tsv:TRAIN,DEV,TEST`,
            `squad:DIR`, `squad:TRAIN`, `squad:TRAIN,DEV` or
            `squad:TRAIN,DEV,TEST`, or `tfds:NAME`. A `~` at the beginning of a
            path is the home folder.
        **options: Arguments of `load_glue`, `load_tsv`, `load_squad` or
            `load_tfds_task`.

    Returns:
        A `TaskData`.

    Raises:
        ValueError: If there is no such source, or it has no such option.
    """
    source, value = _parse(spec)
    load = SOURCES[source]
    allowed = list(inspect.signature(load).parameters)[1:]
    unknown = sorted(set(options) - set(allowed))
    if unknown:
        close = difflib.get_close_matches(unknown[0], allowed, 1)
        raise ValueError(
            f"The source `{source}` has the options {', '.join(allowed)}."
            + (f" Did you mean `{close[0]}`?" if close else "")
            + f" Received: {', '.join(unknown)}"
        )
    if source in ("tsv", "squad"):
        return load(**_paths(spec, value, options))
    return load(value, **options)


def load_tfds_task(
    name,
    data_dir=None,
    text=None,
    text_pair=None,
    label=None,
    reader="auto",
    download=True,
    memory_limit_gib=4.0,
    validation_fraction=0.1,
    seed=0,
):
    """A text task of tensorflow_datasets.

    Prepared as `array_record`, it is read without TensorFlow. A data set that
    is not there is downloaded and prepared so, unless `reader="tf.data"`.

    `glue/sst2` and the other tasks of GLUE have the classes and metrics of
    `load_glue`. A data set with `question`, `context` and `answers`, as
    `squad/v1.1` and `squad/v2.0`, is a task of spans.

    Args:
        name: `NAME`, `NAME/CONFIG` or `NAME/CONFIG:VERSION`.
        data_dir: Where data sets are prepared; `None` for the usual folder
            of tensorflow_datasets.
        text: Name of the feature with the text; by default that of GLUE, the
            one the data set recommends, or the only one.
        text_pair: Name of the feature with the second text of a pair.
        label: Name of the feature with the label, a class or a number; by
            default the one the data set recommends, or the only one.
        reader: `"data_source"`, `"tf.data"` or `"auto"`, as for `load_tfds`.
        download: Whether to download and prepare a data set that is not
            there.
        memory_limit_gib: Largest size, in GiB, that tf.data may read.
        validation_fraction: Part of the training examples that validates, if
            the data set has no such split.
        seed: Integer, for drawing these.

    Returns:
        A `TaskData`.

    Raises:
        ImportError: If tensorflow_datasets is not installed.
        ValueError: If the data set is unknown, not there, or not one of texts
            with a label.
    """
    check_fraction(validation_fraction)
    if reader not in images.READERS:
        raise ValueError(
            f"`reader` must be one of {images.READERS}. "
            f"Received: reader={reader!r}"
        )
    data_dir = None if data_dir is None else os.path.expanduser(data_dir)
    try:
        builder = images.import_tfds().builder(name, data_dir=data_dir)
    # An AssertionError is what the package raises for a missing version.
    except (AssertionError, ValueError) as error:
        raise ValueError(images.not_found(name, data_dir, error)) from error
    # Before anything is downloaded.
    is_span = not (text or text_pair or label) and _is_span(builder)
    if not is_span:
        keys = _keys(builder, text, text_pair, label)
    if not builder.is_prepared():
        builder = images.prepared(builder, name, data_dir, reader, download)
    records = _records(builder, reader, memory_limit_gib)
    title = builder.name
    if builder.builder_config is not None:
        title = f"{title}/{builder.builder_config.name}"
    if is_span:
        return _span_task(title, records, validation_fraction, seed)
    return _text_task(title, builder, records, keys, validation_fraction, seed)


SOURCES = {
    "glue": load_glue,
    "tsv": load_tsv,
    "squad": load_squad,
    "tfds": load_tfds_task,
}


def _parse(spec):
    """`(source, what follows the colon)`."""
    if not isinstance(spec, str):
        raise ValueError(
            f"A task is named by a line of text:{FORMS}\nReceived: {spec!r}"
        )
    source, _, value = spec.partition(":")
    if source in SOURCES and value:
        return source, value
    hint = _hint(spec)
    raise ValueError(
        f"There is no such task: {spec!r}."
        + (f" Did you mean {hint}?" if hint else "")
        + f" A task is named by one of{FORMS}"
    )


def _hint(spec):
    """What `spec` may have been meant to be, or `None`."""
    source, colon, value = spec.partition(":")
    if value:
        close = difflib.get_close_matches(source.lower(), SOURCES, 1)
        if close:
            return f"{close[0]}:{value}"
    if colon or source in SOURCES:
        return f"{source}:..." if source in SOURCES else None
    # A first file may be followed by others.
    path = pathlib.Path(spec.split(",")[0]).expanduser()
    if path.suffix.lower() in (".tsv", ".csv"):
        return f"tsv:{spec}"
    if path.suffix.lower() == ".json":
        return f"squad:{spec}"
    if spec and path.is_dir():
        is_squad = any(path.glob("train*.json"))
        return f"{'squad' if is_squad else 'glue'}:{spec}"
    if spec.lower().startswith("squad/"):
        return f"tfds:{spec.lower()}"
    task = task_named(spec)
    if task is not None:
        return f"tfds:glue/{task.key} or glue:DIR/{task.name}"
    close = difflib.get_close_matches(source.lower(), SOURCES, 1)
    return f"{close[0]}:..." if close else None


def _paths(spec, value, options):
    """Arguments of a loader with the paths that the line names."""
    # A comma may be part of the name of a file.
    whole = pathlib.Path(value).expanduser().exists()
    paths = [value] if whole else [part.strip() for part in value.split(",")]
    if len(paths) > 3 or not paths[0]:
        raise ValueError(
            "At most three files are named, separated by commas: TRAIN, DEV "
            f"and TEST, of which the first must be there. Received: {spec!r}"
        )
    named = dict(zip(("train", "validation", "test"), paths))
    named = {part: path for part, path in named.items() if path}
    twice = sorted(set(named) & set(options))
    if twice:
        raise ValueError(
            f"Name the {twice[0]} file in the line or as an option, not both. "
            f"Received: {spec!r}, {twice[0]}={options[twice[0]]!r}"
        )
    return {**named, **options}


def _named_features(builder):
    features = builder.info.features
    return dict(features.items()) if hasattr(features, "items") else {}


def _is_span(builder):
    return {"question", "context", "answers"} <= set(_named_features(builder))


def _glue_task(builder):
    """The `GlueTask` that a builder is of, or `None`."""
    if builder.name != "glue" or builder.builder_config is None:
        return None
    # MNLI has configurations of its own for matched and mismatched examples.
    return TASKS.get(builder.builder_config.name.split("_")[0])


def _keys(builder, text, text_pair, label):
    """Names of the features with the texts and the label: `(texts, label)`."""
    features = images.import_tfds().features
    named = _named_features(builder)
    known = [k for k, f in named.items() if isinstance(f, features.Text)]
    task = _glue_task(builder)
    hints = builder.info.supervised_keys or ()
    if text is not None:
        texts = [text] + ([text_pair] if text_pair is not None else [])
    elif task is not None:
        texts = list(task.features)
    elif len(hints) == 2 and hints[0] in known:
        texts = [hints[0]]
    else:
        texts = known if len(known) == 1 else []
    labels = [k for k, f in named.items() if _is_label(f)]
    if label is None and len(hints) == 2 and hints[1] in labels:
        label = hints[1]
    if label is None:
        label = "label" if "label" in labels else (labels + [None])[0]
    fine = texts and all(k in known for k in texts) and label in labels
    if not fine or (text_pair is not None and text is None):
        described = (f"{k}: {feature!r}" for k, feature in named.items())
        raise ValueError(
            f"{builder.info.full_name} needs a feature with the text, and one "
            "with a class label or a number. Where they cannot be told, name "
            "them with `text`, `text_pair` and `label`. Received: features "
            f"{', '.join(described) or repr(builder.info.features)}; "
            f"text={text!r}, text_pair={text_pair!r}, label={label!r}"
        )
    return texts, label


def _is_label(feature):
    """Whether a feature is a class, or a single real number."""
    features = images.import_tfds().features
    if isinstance(feature, features.ClassLabel):
        return bool(feature.names)
    return (
        type(feature) in (features.Scalar, features.Tensor)
        and feature.shape == ()
        and np.dtype(feature.np_dtype).kind == "f"
    )


def _records(builder, reader, memory_limit_gib):
    """`{part: records}`, where a record is a dictionary of arrays."""
    there = builder.info.splits
    splits = {
        part: next((name for name in names if name in there), None)
        for part, names in SPLITS.items()
    }
    splits = {part: name for part, name in splits.items() if name}
    if not splits:
        raise ValueError(
            f"{builder.info.full_name} has no split that is known here. "
            f"Received: splits {', '.join(there) or 'none'}"
        )
    if images.choose_reader(builder, reader) == "data_source":
        return {
            part: builder.as_data_source(name) for part, name in splits.items()
        }
    images.check_size(builder, splits.values(), memory_limit_gib)
    # TensorFlow would take all memory of a GPU that another backend needs.
    os.environ.setdefault("TF_FORCE_GPU_ALLOW_GROWTH", "true")
    # One file after the other; otherwise their records are interleaved.
    config = images.import_tfds().ReadConfig(
        interleave_cycle_length=1, try_autocache=False
    )
    return {
        part: builder.as_dataset(
            split=name, shuffle_files=False, read_config=config
        ).as_numpy_iterator()
        for part, name in splits.items()
    }


def _rows(records):
    """The records one by one; a data source has no end of its own."""
    if not hasattr(records, "__getitem__"):
        return records
    return (records[i] for i in range(len(records)))


def _text(value):
    """A string; the two readers give bytes or strings."""
    return value.decode("utf-8") if isinstance(value, bytes) else str(value)


def _text_task(title, builder, records, keys, fraction, seed):
    """A `TaskData` of a classification or regression."""
    texts, label = keys
    feature = _named_features(builder)[label]
    names = tuple(getattr(feature, "names", None) or ())
    task = _glue_task(builder)
    kind = "classification" if names else "regression"
    parts = {}
    for part, rows in records.items():
        parts[part] = _examples(rows, texts, label, feature)
        count = len(parts[part])
        hidden = parts[part].labels is None
        if count == 0:
            raise ValueError(f"The {part} part of {title} has no examples")
        if hidden and not part.startswith("test"):
            raise ValueError(
                f"Every {part} example of {title} needs a label. "
                f"Received: {count:,} examples, some without"
            )
    metrics = METRICS["regression"] if not names else ("accuracy",)
    if task is not None and task.kind == kind:
        metrics = task.metrics
    parts, cut = complete_parts(parts, fraction, seed)
    return TaskData(
        name=title,
        kind=kind,
        class_names=names,
        metrics=metrics,
        parts=parts,
        notes=(*cut, *untrained_classes(parts, names)),
    )


def _examples(records, texts, label, feature):
    """`Examples` out of records; labels `None` if some are secret."""
    columns = [[] for _ in texts]
    labels, ids = [], []
    for row, record in enumerate(_rows(records)):
        for column, key in zip(columns, texts):
            column.append(_text(record[key]))
        labels.append(record[label])
        # In GLUE, the number of the line in the file.
        ids.append(str(record.get("idx", row)))
    if getattr(feature, "names", None):
        labels = np.array(labels, "int32")
        secret = (labels < 0).any()  # they are written as -1
    else:
        # The shortest decimal that 32 bits stand for: 3.8, not 3.79999995.
        bits = np.dtype(feature.np_dtype).type
        labels = np.array([float(str(bits(x))) for x in labels], "float64")
        secret = (labels == -1).all()
    second = columns[1] if len(columns) == 2 else None
    return Examples(columns[0], second, None if secret else labels, ids)


def _span_task(title, records, fraction, seed):
    """A `TaskData` of spans."""
    parts, notes, groups = {}, [], None
    for part, rows in records.items():
        kept, examples, remarks = check_questions(
            [_question(record, k) for k, record in enumerate(_rows(rows))],
            part,
        )
        if not len(examples):
            raise ValueError(
                f"The {part} part of {title} has no question that can be "
                f"used. Received: {'; '.join(remarks) or 'no questions'}"
            )
        parts[part] = examples
        notes += [f"{part}: {remark}" for remark in remarks]
        if part == "train":
            groups = [question.groups for question in kept]
    if "train" not in parts:
        notes.append("there is no training part: nothing to train with")
    return complete_spans(title, parts, notes, groups, fraction, seed)


def _question(record, row):
    """A `Question` out of a record."""
    context = _text(record["context"])
    answers = record["answers"]
    return Question(
        id=_text(record.get("id", str(row))),
        text=_text(record["question"]),
        context=context,
        answers=[
            (_text(text), int(start))
            for text, start in zip(answers["text"], answers["answer_start"])
        ],
        is_impossible=bool(record.get("is_impossible", False)),
        groups=(_text(record.get("title", "")), context),
    )
