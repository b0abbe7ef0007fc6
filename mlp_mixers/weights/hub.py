"""Public weights on the Hugging Face hub, kept in its local cache."""

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
        return hf_hub_download(repo, filename)
    except OSError as error:
        raise ConnectionError(
            f"The weights in {ADDRESS}/{repo} are not in the local cache and "
            "could not be fetched. With a network, try again: they are kept "
            "then. Without one, fetch "
            f"{ADDRESS}/{repo}/resolve/main/{filename} on another machine, "
            "build the model with `load_weights=False` and call "
            "`mlp_mixers.weights.load_checkpoint(model, path)`. The hub says: "
            f"{type(error).__name__}: {error}"
        ) from error
