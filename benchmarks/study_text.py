"""What studies of language models share: one tokenizer for all runs."""

from mlp_mixers import data


def prepare_tokenizer(text, path, vocabulary_size):
    """Trains a tokenizer on the text, unless the file is there.

    Args:
        text: File or folder of plain text.
        path: `pathlib.Path` of the tokenizer.
        vocabulary_size: Number of its tokens, at most.
    """
    if path.exists():
        return
    documents = data.load_text(f"text:{text}").train
    path.parent.mkdir(parents=True, exist_ok=True)
    data.Tokenizer.train(documents, vocabulary_size).save(path)
