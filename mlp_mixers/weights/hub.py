"""Public weights on the Hugging Face hub, kept in its local cache."""

import contextlib

ADDRESS = "https://huggingface.co"


def fetch(repo, filename="model.safetensors"):
    """Downloads a file of a repository, once.

    Args:
        repo: `owner/name` on the hub.
        filename: Name of the file there.

    Returns:
        Path of the file in the hub's cache (`HF_HOME`), where it stays.

    Raises:
        ConnectionError: If it is not in the cache and cannot be had, with
            what to do then.
    """
    from huggingface_hub import hf_hub_download
    from huggingface_hub import try_to_load_from_cache

    # The hub's own download asks the network first, for half a minute where
    # there is none; published weights do not change.
    cached = try_to_load_from_cache(repo, filename)
    if isinstance(cached, str):
        return cached
    try:
        with _quiet():
            return hf_hub_download(repo, filename)
    except OSError as error:
        raise ConnectionError(
            f"The weights in {ADDRESS}/{repo} are not in the local cache and "
            "could not be fetched. With a network, try again: they are kept "
            "then. Without one, fetch "
            f"{ADDRESS}/{repo}/resolve/main/{filename} on another machine. In "
            "Python, build the model with `load_weights=False` and call "
            "`mlp_mixers.weights.load_checkpoint(model, path)`; for a recipe, "
            f"give --from {filename} and the --preset. "
            f"The hub says: {type(error).__name__}"
        ) from error


@contextlib.contextmanager
def _quiet():
    """Without the hub's log of every try: what comes of them is said once."""
    from huggingface_hub.utils import logging

    before = logging.get_verbosity()
    logging.set_verbosity_error()
    try:
        yield
    finally:
        logging.set_verbosity(before)
