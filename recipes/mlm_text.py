"""Rows of masked text for `recipes.mlm`: held out, and in words."""

from mlp_mixers import data
from recipes.runs import counted


def held_out_batches(documents, tokenizer, length, settings, seed=0):
    """Text that is measured, masked once and for all."""
    return data.MaskedLMBatches(
        data.pack_documents(documents, tokenizer, length),
        tokenizer,
        settings.batch_size,
        seed,
        rate=settings.mask_rate,
        whole_words=settings.whole_words,
        fixed=True,
    )


def described(packed):
    """What rows hold, in words."""
    size = packed.characters / packed.tokens
    return (
        f"{counted(packed.documents, 'document')}, "
        f"{counted(packed.sentences, 'sentence')} "
        f"({packed.cut_sentences:,} cut), "
        f"{counted(packed.characters, 'character')}, "
        f"{counted(packed.tokens, 'token')} ({size:.2f} characters each), "
        f"{counted(packed.rows, 'row')} of {packed.token_ids.shape[1]}, "
        f"{packed.fill:.1%} filled"
    )
