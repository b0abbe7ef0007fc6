# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Reading with MLPs
#
# Models such as BERT learn to read by filling in blanks: some words of a text
# are hidden, and the model has to say what they were. *Pay Attention to MLPs*
# (Liu, Dai, So and Le, 2021) does it without attention. In this tutorial you
#
# 1. cut text into tokens, and pack them into rows;
# 2. hide some of them, and write down the loss;
# 3. train a small gMLP, and measure its perplexity;
# 4. look at what its spatial matrices have learned;
# 5. let it fill in blanks in sentences that it has not read;
# 6. meet a task on *pairs* of texts at which it fails, and the tiny attention
#    that helps.
#
# You know what a gating unit is from tutorial 1. Nothing is downloaded: the
# text is Python's own manual, which is part of every Python. It takes two to
# three minutes on two CPU cores. Run
# `python tutorials/04_reading_with_mlps.py`, or open it as a notebook with
# jupytext.

# %%
import mlp_mixers  # before Keras, so that it can pick an installed backend

print(f"mlp_mixers {mlp_mixers.__version__}")

# %%
import pathlib
import sys
import time

import keras
import numpy as np
from keras import ops
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from mlp_mixers import analysis
from mlp_mixers import data
from mlp_mixers.data.sentences import split_sentences
from mlp_mixers.models import GMLPMaskedLM
from mlp_mixers.models import GMLPTextBackbone
from mlp_mixers.models import GMLPTextClassifier
from mlp_mixers.training import AdamW
from mlp_mixers.training import ProgressBar
from mlp_mixers.training import WarmupLinear

PICTURES = pathlib.Path("runs/tutorials")
PICTURES.mkdir(parents=True, exist_ok=True)
keras.utils.set_random_seed(0)
print(f"Keras {keras.__version__} on {keras.backend.backend()}")


def to_numpy(x):
    return ops.convert_to_numpy(x)


def show(figure, name):
    """Saves a picture; a notebook displays it, a script says where it is."""
    path = PICTURES / name
    figure.savefig(path, dpi=120)
    if "ipykernel" in sys.modules:
        from IPython import display

        display.display(display.Image(path))
    else:
        print(f"picture: {path}")


# %% [markdown]
# ## From text to tokens
#
# The documents are the pages that `help("if")` and its like show. A tenth of
# the text is held out, by whole documents.

# %%
text = data.load_text("topics")
for note in text.notes:
    print(note)

# %% [markdown]
# A model reads numbers, so text is cut into pieces from a fixed list, the
# *vocabulary*. Single letters would make long sequences, and whole words an
# endless list. *Byte pair encoding* (BPE) lies between: it begins with the 256
# bytes, finds the pair of neighbours that is most frequent in the text, makes
# it a new token, and so on until the vocabulary has $V$ tokens. Papers take
# about 32,000; for this little text we take 1,024.

# %%
tokenizer = data.Tokenizer.train(text.train, vocabulary_size=1024)
V = tokenizer.vocabulary_size
print("first merges:", tokenizer.tokens(range(260, 276)))
print("last merges: ", tokenizer.tokens(range(V - 8, V)))

example = " The interpreter raises a SyntaxError; nobody likes gobbledygook."
encoding = tokenizer.encode([example])[0]
print(tokenizer.tokens(encoding.ids))
print("word of each token:", encoding.word_ids)

assert tokenizer.decode(encoding.ids) == example
strange = "naïve 🙂\t日本語 <mask>\r\n"
assert tokenizer.decode(tokenizer.encode([strange])[0].ids) == strange
assert tokenizer.mask_id not in tokenizer.encode([strange])[0].ids

# %% [markdown]
# **What to look at.** Frequent words are one token, rare ones fall into
# pieces. Every text comes back exactly, whatever is in it, since all bytes are
# there. (And `<mask>` in a text is six characters, not the special token.)
#
# The space belongs to the word behind it: `" The"` is one token. So spaces
# need no tokens of their own, which would be every second one. But then
# `"The"` without a space is *another* token:

# %%
for piece in ("the", " the", "The", " The"):
    ids = tokenizer.encode([piece])[0].ids
    print(f"{piece!r:7} {ids} {tokenizer.tokens(ids)}")

# %% [markdown]
# A word at the beginning of a text should be what it is elsewhere. So this
# library puts one space before every sentence.
#
# Now fill rows of $n = 64$ tokens with whole sentences. A row begins with
# `<cls>` and ends with `<sep>`; what is left over is `<pad>`. A `<sep>` also
# stands where another document begins.

# %%
n = 64
packed = data.pack_documents(text.train, tokenizer, n)  # token_ids (rows, n)
held_out = data.pack_documents(text.validation, tokenizer, n)
print("training:", packed)
print("held out:", held_out)

# A row with many whole words, to look at.
spaced = np.array([t[0] == " " for t in tokenizer.tokens(range(V))])
chosen = int(spaced[packed.token_ids].sum(axis=1).argmax())
print("".join(tokenizer.tokens(packed.token_ids[chosen])))

# %% [markdown]
# ## Hiding tokens
#
# BERT's way, which gMLP takes over: choose 15% of the tokens of a row. Of
# these, 80% become `<mask>`, 10% any other token, and 10% stay as they are;
# the model is asked for all of them. The last two are there because later,
# in use, no text has masks in it: the model should have an opinion on tokens
# that it can see, too.
#
# `MaskedLMBatches` draws anew in every epoch, so that the same row asks other
# questions each time.

# %%
ordinary = ~np.isin(packed.token_ids, tokenizer.special_ids)  # (rows, n)
one_row = data.MaskedLMBatches(
    packed.token_ids[chosen : chosen + 1],
    tokenizer,
    batch_size=1,
    shuffle=False,
)
COLOURS = {
    "becomes <mask>": "#f4a582",
    "becomes another": "#fddbc7",
    "stays, is asked": "#92c5de",
    "is not asked": "white",
}


def cell(corner, colour):
    return Rectangle(corner, 1, 1, facecolor=colour, edgecolor="0.8", lw=0.5)


def draw_tokens(axis, ids, colours, columns=16):
    """A row of tokens as lines of coloured cells."""
    for i, (token, colour) in enumerate(zip(tokenizer.tokens(ids), colours)):
        x, y = i % columns, -(i // columns)
        axis.text(
            x,
            y,
            token.replace(" ", "·"),
            ha="center",
            va="center",
            fontsize=6,
            family="monospace",
            parse_math=False,
        )
        axis.add_patch(cell((x - 0.5, y - 0.5), colour))
    axis.set_xlim(-0.5, columns - 0.5)
    axis.set_ylim(-((len(ids) - 1) // columns) - 0.5, 0.5)
    axis.set_axis_off()


figure = Figure(figsize=(9, 4.6), layout="constrained")
for axis, epoch in zip(figure.subplots(3, 1), range(3)):
    one_row.epoch = epoch
    inputs, labels, weights = one_row[0]
    ids = inputs["token_ids"][0]  # (n,)
    asked = inputs["mask_positions"][0][weights[0] > 0]
    colours = ["white"] * n
    for place, was in zip(asked, labels[0]):
        if ids[place] == tokenizer.mask_id:
            colours[place] = COLOURS["becomes <mask>"]
        elif ids[place] != was:
            colours[place] = COLOURS["becomes another"]
        else:
            colours[place] = COLOURS["stays, is asked"]
    draw_tokens(axis, ids, colours)
    axis.set_title(f"epoch {epoch}", fontsize=8, loc="left")
figure.legend(
    handles=[cell((0, 0), colour) for colour in COLOURS.values()],
    labels=list(COLOURS),
    loc="outside lower center",
    ncols=4,
    fontsize=7,
)
show(figure, "04_masking.png")

# %%
batches = data.MaskedLMBatches(
    packed,
    tokenizer,
    batch_size=32,
    drop_remainder=True,  # a smaller last batch would be compiled anew
)
counts = {"becomes <mask>": 0, "becomes another": 0, "stays, is asked": 0}
for i in range(len(batches)):
    inputs, labels, weights = batches[i]
    now = np.take_along_axis(
        inputs["token_ids"], inputs["mask_positions"], axis=1
    )  # (b, P)
    hidden = (weights > 0) & (now == tokenizer.mask_id)
    same = (weights > 0) & (now == labels)
    counts["becomes <mask>"] += hidden.sum()
    counts["stays, is asked"] += same.sum()
    counts["becomes another"] += ((weights > 0) & ~hidden & ~same).sum()
total = sum(counts.values())
share = total / (ordinary.sum() * len(batches) * 32 / packed.rows)
print(f"{share:.1%} of the ordinary tokens are asked for; of these")
for name, count in counts.items():
    print(f"  {count / total:5.1%} {name}")

# %% [markdown]
# **What to look at.** Special tokens are never asked for. Each row has the same
# number of *places* for questions, $P = 10$, so that arrays have one shape;
# rows with fewer have weight 0 at the rest.
#
# ## The loss
#
# From the last features $h$ (one row of $d$ numbers for each token), the logits
# are $h E^\top$, where $E \in \mathbb{R}^{V \times d}$ is the embedding that
# the tokens came in by. The loss is the mean cross-entropy over what is asked,
# with the weights $w$ (1, or 0 at places left over):
#
# $$\mathcal L = \frac{\sum w \cdot \mathrm{ce}}{\sum w}.$$
#
# Here is the model: three blocks of width $d = 64$, with $e = 256$ inside.

# %%
SIZES = {
    "vocabulary_size": V,
    "sequence_length": n,
    "hidden_dim": 64,
    "intermediate_dim": 256,
}
model = GMLPMaskedLM(
    GMLPTextBackbone(num_layers=3, **SIZES), tokenizer=tokenizer
)
print(f"{model.count_params():,} parameters")

inputs, labels, w = batches[0]  # labels, w: (b, P)
E = to_numpy(model.backbone.token_embedding.embeddings)  # (V, d)
backbone_inputs = {k: inputs[k] for k in ("token_ids", "padding_mask")}
h = model.backbone.predict_on_batch(backbone_inputs)  # (b, n, d)
at_places = np.take_along_axis(
    h, inputs["mask_positions"][..., None], axis=1
)  # (b, P, d)
logits = at_places @ E.T  # (b, P, V)


def cross_entropy(logits, labels):
    """-log of the probability of each label."""
    log_total = np.log(np.exp(logits).sum(axis=-1))  # (b, P)
    chosen = np.take_along_axis(logits, labels[..., None], axis=-1)[..., 0]
    return log_total - chosen


loss = (w * cross_entropy(logits, labels)).sum() / w.sum()

epochs = 9
steps = epochs * len(batches)
model.compile(
    AdamW(
        WarmupLinear(5e-3, steps, warmup_steps=steps // 10),
        weight_decay=0.01,
        epsilon=1e-6,
        global_clipnorm=1.0,
    )
)
of_model = model.test_on_batch(inputs, labels, w, return_dict=True)
print(f"loss by hand {loss:.4f}, of the model {of_model['loss']:.4f}")
np.testing.assert_allclose(of_model["loss"], loss, rtol=1e-4)

# %% [markdown]
# **Why only at the masked places?** Because logits are the largest array of a
# language model by far. In numbers of four bytes:

# %%
P = labels.shape[1]
print("logits               everywhere   at the places asked for")
for name, batch, length, places, size in (
    ("this model", 32, n, P, V),
    ("the paper's", 256, 512, 77, 32000),
):
    everywhere = 4 * batch * length * size / 2**20
    asked_for = 4 * batch * places * size / 2**20
    print(f"{name:20s} {everywhere:7,.0f} MiB   {asked_for:7,.0f} MiB")

# %% [markdown]
# ## Perplexity
#
# The exponential of the loss is the *perplexity*: the number of tokens between
# which a model wavers, on average. Who has no idea wavers between all $V$. Who
# knows only how frequent each token is does better. That is the *unigram*
# baseline, two lines with NumPy:

# %%
validation = data.MaskedLMBatches(held_out, tokenizer, 32, fixed=True)
answers = np.concatenate(
    [
        labels[w > 0]
        for _, labels, w in (validation[i] for i in range(len(validation)))
    ]
)

frequency = np.bincount(packed.token_ids[ordinary], minlength=V) + 1.0
unigram = np.exp(-np.log(frequency / frequency.sum())[answers].mean())

untrained = model.evaluate(validation, verbose=0, return_dict=True)
print(f"no idea: {V}, the untrained model: {untrained['perplexity']:.0f}")
print(f"unigram: {unigram:.0f}")

# %% [markdown]
# Now train. Held-out rows are masked once and for all, so that they ask the
# same questions in each epoch.

# %%
start = time.perf_counter()
history = model.fit(
    batches,
    epochs=epochs,
    validation_data=validation,
    callbacks=[ProgressBar()],
    verbose=0,
).history
print(f"{time.perf_counter() - start:.0f} s")
perplexity = history["val_perplexity"][-1]
print(f"held-out perplexity: {perplexity:.1f} (unigram {unigram:.0f})")
assert perplexity < unigram / 3

# %%
figure = Figure(figsize=(5.6, 3.4), layout="constrained")
axis = figure.subplots()
for name, label in (
    ("perplexity", "training"),
    ("val_perplexity", "held out"),
):
    axis.plot(range(1, epochs + 1), history[name], marker="o", label=label)
axis.axhline(V, color="0.5", ls=":", label="no idea")
axis.axhline(unigram, color="0.5", ls="--", label="unigram")
axis.set(xlabel="epoch", ylabel="perplexity", yscale="log")
axis.grid(alpha=0.3)
axis.legend(fontsize=8)
show(figure, "04_perplexity.png")

# %% [markdown]
# **What to look at.** In the first epoch the model learns no more than how
# frequent tokens are: $W$ starts near zero, so every token is alone, and behind
# a `<mask>` there is nothing to see. Then the connections open, and
# perplexity falls to about 30: the model wavers between thirty tokens where the
# unigram wavers between 400. The two curves end close together, so three blocks
# and nine epochs have not learned the text by heart; longer training and
# larger models go lower.
#
# Three warnings before you compare perplexities. They depend on the vocabulary:
# with larger tokens there are fewer and harder questions. They depend on the
# text, and a manual repeats itself. And a tenth of the questions here are about
# tokens in plain sight. Compare only what was asked the same questions. (The
# paper's models reach 3 to 4 with 32,000 tokens, on other text, with about a
# thousand times the parameters and far longer training.)
#
# ## What the spatial matrices have learned
#
# In tutorial 2 every pair of places had a weight in $W$. For text that would
# be odd: a sentence may begin anywhere in a row. The authors found that their
# language models learn matrices whose diagonals are constant, and from then on
# built them so:
#
# $$W_{ij} = w_{(n-1) + (j-i)}.$$
#
# Such a matrix is called *Toeplitz*. What token $i$ takes from token $j$
# depends on their distance only, there are $2n-1$ numbers to learn in place of
# $n^2$, and the product is a convolution that is as long as the row.

# %%
matrices = analysis.spatial_weights(model)  # name -> (heads, n, n)
for name, matrix in matrices.items():
    W = matrix[0]
    for k in range(1 - n, n):
        assert np.ptp(np.diagonal(W, k)) == 0
    by_distance = [
        (abs(W[32, 32 - k]) + abs(W[32, 32 + k])) / 2 for k in range(32)
    ]
    line = "  ".join(f"{by_distance[k]:.3f}" for k in (0, 1, 2, 3, 5, 10, 30))
    print(f"{name}: |W| at distance 0, 1, 2, 3, 5, 10, 30: {line}")
show(analysis.plot_spatial_matrices(model), "04_toeplitz.png")

# %% [markdown]
# **What to look at.** Most of the weight is near the diagonal, and in most
# blocks at distance one: in so short a training, tokens have learned to ask
# their neighbours. Where both neighbours have the same sign, the token takes
# their sum; where the signs differ, it takes the *difference* between what
# follows and what goes before, and so learns on which side something stands.
# (Your blocks may look otherwise: in a run on TensorFlow all three were like
# that, in one on PyTorch the last one gathered from the eight tokens before.)
#
# The second surprise is at the far ends. A distance of 60 exists between the
# first and the last few tokens of a row only, so these weights are no
# distances but places: a way to tell the ends from the middle.
#
# ## Filling in blanks


# %%
def print_filled(sentences, true_tokens=None):
    for i, candidates in enumerate(model.fill_mask(sentences, top_k=4)):
        guesses = "  ".join(
            f"{c.token!r} {c.probability:.2f}" for c in candidates
        )
        truth = f"[{true_tokens[i]!r}]  " if true_tokens else ""
        print(f"{sentences[i]}\n    {truth}{guesses}")


print_filled(
    [
        'The call "f(x<mask> returns an object.',
        "It is an error <mask> the name is not found.",
        "Changed in version 3<mask>8: Added support for it.",
        "This method is <mask> when the object is created.",
        "The value <mask> the expression is a string.",
        "The capital of France is <mask>.",
    ]
)

# %%
rng = np.random.default_rng(0)
candidates = [
    f" {sentence}"
    for document in text.validation
    for sentence in split_sentences(document)
    if 40 < len(sentence) < 90 and sentence[0].isupper()
]
sentences, true_tokens = [], []
for i in rng.permutation(len(candidates))[:6]:
    encoding = tokenizer.encode([candidates[i]])[0]
    words = encoding.word_ids
    # Tokens that are whole words, so that nothing of them is left to see.
    whole = [
        k
        for k in range(1, len(words) - 1)
        if words.count(words[k]) == 1
        and tokenizer.token(encoding.ids[k])[0] == " "
    ]
    k = rng.choice(whole)
    begin, end = encoding.offsets[k]
    sentences.append(
        f"{candidates[i][:begin]}<mask>{candidates[i][end:]}".strip()
    )
    true_tokens.append(tokenizer.token(encoding.ids[k]))
print_filled(sentences, true_tokens)

# %% [markdown]
# **What to look at.** Look at the *kind* of what is offered. Behind "is" stands
# a participle, between the numbers of a version a point: short patterns are
# learned. What the sentence is about is not. "France" is nothing to it, and the
# bracket that was opened two tokens before is mostly forgotten. When it is
# unsure, it offers what is frequent.
#
# Six sentences are six sentences. By kind of token, over everything behind a
# `<mask>` in the held-out text:

# %%
LITTLE = (
    " the a an of to in is are be and or that this it for by with as not if"
)


def kind(token):
    if not any(c.isalnum() for c in token):
        return "brackets and other signs"
    if token in [f" {word}" for word in LITTLE.split()]:
        return "little words (the, of, is ...)"
    if token[0] == " ":
        return "other tokens behind a space"
    return "tokens without a space"


right = {}
for i in range(len(validation) - 1):  # the last batch has another size
    inputs, labels, w = validation[i]
    guesses = model.predict_on_batch(inputs).argmax(axis=-1)  # (b, P)
    now = np.take_along_axis(
        inputs["token_ids"], inputs["mask_positions"], axis=1
    )
    # Without those that became another or stayed, in plain sight.
    masked = (w > 0) & (now == tokenizer.mask_id)
    for guess, label in zip(guesses[masked], labels[masked]):
        right.setdefault(kind(tokenizer.token(label)), []).append(
            guess == label
        )
for name, hits in sorted(right.items(), key=lambda item: -np.mean(item[1])):
    print(f"{name:32s} {np.mean(hits):4.0%} right of {len(hits):,}")

# %% [markdown]
# **What to look at.** About a third is right, and no kind is easy. Signs and
# little words, which the neighbours decide, come before the words that carry
# the meaning.
#
# ## Two texts at once
#
# Many tasks ask about a *pair* of texts: does this one follow from that one,
# does it answer the question? Both go into one row,
# `<cls> first <sep> second <sep>`, and a linear map of the features of `<cls>`
# gives the answer. The paper found the plain gMLP behind there, and not in
# tasks on single texts. Can we see that?
#
# Take eight words from the beginning of a sentence, and ask two questions, one
# of each sort:
#
# - **in order?** One text: are its words in their order, or shuffled?
# - **same words?** Two texts: are the words of the second, which are shuffled,
#   those of the first, or those of another sentence?
#
# The second cannot be answered from one of the texts: each sentence stands on
# either side, with either answer, equally often. Nor from the length, since the
# other sentence has as many tokens. Only comparing helps.


# %%
def beginnings(documents):
    """Eight words of each sentence, by number of tokens."""
    words = [s.split() for d in documents for s in split_sentences(d)]
    found = dict.fromkeys(" ".join(w[:8]) for w in words if len(w) >= 8)
    by_length = {}
    for eight, encoding in zip(
        found, tokenizer.encode([f" {eight}" for eight in found])
    ):
        if len(encoding.ids) <= 14:
            by_length.setdefault(len(encoding.ids), []).append(eight.split())
    return {k: v for k, v in by_length.items() if len(v) > 1}


def make_examples(documents, count, rng):
    """Texts or pairs of both tasks, with labels 1, 0, 1, 0 ..."""
    by_length = beginnings(documents)
    sentences = [(k, i) for k, v in by_length.items() for i in range(len(v))]
    one, first, second = [], [], []
    for _ in range(count // 2):
        length, i = sentences[rng.integers(len(sentences))]
        same_length = by_length[length]
        j = (i + rng.integers(1, len(same_length))) % len(same_length)
        a, b = same_length[i], same_length[j]
        one += [a, rng.permutation(a)]
        first += [a, a]
        second += [rng.permutation(a), rng.permutation(b)]
    one, first, second = (
        [" ".join(words) for words in texts] for texts in (one, first, second)
    )
    return one, (first, second), np.array([1, 0] * (count // 2))


rng = np.random.default_rng(0)
task_steps = 240
train_one, train_pairs, train_labels = make_examples(
    text.train, 32 * task_steps, rng
)
test_one, test_pairs, test_labels = make_examples(text.validation, 600, rng)
for i in range(4):
    print(f"in order?   {train_labels[i]}  {train_one[i]}")
for i in range(4):
    print(
        f"same words? {train_labels[i]}  {train_pairs[0][i]}  |  "
        f"{train_pairs[1][i]}"
    )

# %% [markdown]
# Two models of equal size. The aMLP has a tiny attention of width $a = 40$ in
# each block (tutorial 1), and for that one block less; the paper's aMLP-base
# also has 36 blocks where gMLP-base has 48.


# %%
def build(kind):
    blocks, attention_dim = {"gMLP": (3, None), "aMLP": (2, 40)}[kind]
    backbone = GMLPTextBackbone(
        num_layers=blocks, attention_dim=attention_dim, **SIZES
    )
    return GMLPTextClassifier(backbone, num_classes=2, tokenizer=tokenizer)


models = {kind: build(kind) for kind in ("gMLP", "aMLP")}
sizes = {kind: model.count_params() for kind, model in models.items()}
for kind, classifier in models.items():
    print(f"{kind}: {sizes[kind]:,} parameters")
    classifier.compile(
        AdamW(
            WarmupLinear(3e-3, task_steps, warmup_steps=task_steps // 10),
            weight_decay=0.01,
            epsilon=1e-6,
            global_clipnorm=1.0,
        )
    )
assert abs(sizes["gMLP"] / sizes["aMLP"] - 1) < 0.02


def train(kind, texts, seed):
    """Trains a compiled model from the start that the seed gives it.

    The same model each time, so that it is compiled once: only its weights and
    those of its optimiser begin anew.
    """
    keras.utils.set_random_seed(seed)
    classifier = models[kind]
    classifier.set_weights(build(kind).get_weights())
    for variable in classifier.optimizer.variables:
        variable.assign(np.zeros(variable.shape, variable.dtype))
    inputs = classifier.encode(texts, length=32)  # each (examples, 32)
    classifier.fit(inputs, train_labels, batch_size=32, verbose=0)
    return classifier


def accuracy(classifier, texts):
    inputs = classifier.encode(texts, length=32)
    return classifier.evaluate(inputs, test_labels, 100, verbose=0)[1]


start = time.perf_counter()
accuracies = {}
for task, train_texts, test_texts in (
    ("in order?", train_one, test_one),
    ("same words?", train_pairs, test_pairs),
):
    for kind in models:
        accuracies[task, kind] = [
            accuracy(train(kind, train_texts, seed), test_texts)
            for seed in range(3)
        ]
        seeds = "  ".join(f"{value:.3f}" for value in accuracies[task, kind])
        mean = np.mean(accuracies[task, kind])
        print(f"{task:12s} {kind}  mean {mean:.3f}   seeds {seeds}")
print(f"{time.perf_counter() - start:.0f} s")

# %% [markdown]
# **What to look at.** On single texts the two are level, at about 94%, and the
# three seeds lie within a point: order is a matter of neighbours, which $W$
# weighs. On pairs the gMLP *guesses*, and the aMLP of the same size is right
# in some three of four. (With 600 questions, chance alone moves a number by two
# points.) What passes through $W$ depends on how far apart two tokens are, and
# equal words are another distance apart in every pair. What passes through
# attention depends on what the tokens are.
#
# Before you take that for more than it is:
#
# - The question was *made* so that nothing but comparing helps. Real tasks have
#   other hints. In the paper gMLP-base is two points behind aMLP-base on MNLI,
#   where sentences are judged in pairs, eleven on SQuAD 2.0, where questions
#   are answered from a text, and a little *ahead* on the single sentences of
#   SST-2. Larger gMLPs have smaller gaps.
# - It says "not in 240 steps from random weights", not "never". The gate is a
#   product, so it can compare. But a gMLP of four blocks that had read the
#   manual first, as above, was at 50% too, after five times as many steps.
# - Harder questions leave both behind. Asked whether a given word is in a
#   sentence, both were between 50 and 54% after 600 steps; asked the same about
#   four words, the aMLP came to 60% in 400 and the gMLP to 54%.
#
# ## What the attention looks at
#
# The last model that was trained is an aMLP that compares. Take its attention
# weights for one held-out pair. A square marks equal words.


# %%
def attention_maps(classifier, pair):
    """The attention weights of each block: list of (n, n)."""
    encode = data.TextEncoder(tokenizer, n)
    first, second = ([part] for part in pair)
    length = int(encode(first, second)["padding_mask"].sum())
    inputs = encode(first, second, length=length)  # nothing padded
    x = classifier.backbone.token_embedding(inputs["token_ids"])  # (1, n, d)
    maps = []
    for block in classifier.backbone.blocks:
        q, k, _ = ops.split(
            block.attention.qkv_dense(block.norm(x)), 3, axis=-1
        )  # (1, n, a) each
        scores = q @ ops.transpose(k, (0, 2, 1)) / q.shape[-1] ** 0.5
        maps.append(to_numpy(ops.softmax(scores, axis=-1))[0])  # (n, n)
        x = block(x)
    return maps, inputs["token_ids"][0]


amlp = models["aMLP"]
pairs = [
    pair for pair, label in zip(zip(*test_pairs), test_labels) if label == 1
]
maps, ids = attention_maps(amlp, pairs[0])
names = [token.replace(" ", "·") for token in tokenizer.tokens(ids)]
sep = int(np.flatnonzero(ids == tokenizer.sep_id)[0])
equal = ids[:, None] == ids[None, :]  # (n, n)
across = np.zeros_like(equal)
across[1:sep, sep + 1 : -1] = across[sep + 1 : -1, 1:sep] = True
figure = Figure(figsize=(9.6, 5), layout="constrained")
for axis, A, name in zip(figure.subplots(1, 2), maps, ("block_0", "block_1")):
    axis.imshow(A, cmap="viridis", vmin=0, vmax=np.percentile(A, 99))
    y, x = np.nonzero(equal & across)
    axis.plot(x, y, "s", ms=7, mfc="none", mec="w")
    axis.axhline(sep, color="w", lw=0.5)
    axis.axvline(sep, color="w", lw=0.5)
    axis.set_xticks(range(len(ids)), names, rotation=90, fontsize=6)
    axis.set_yticks(range(len(ids)), names, fontsize=6)
    axis.set(title=name, xlabel="looked at", ylabel="looks")
show(figure, "04_attention.png")

# %% [markdown]
# One picture can deceive, so count over a hundred pairs: of what a token gives
# to the other text, how much goes to tokens equal to it, and how much would,
# if it gave every token of that text the same? And which tokens get the most,
# where 1 is what each would get if all got the same?

# %%
shares = [[], []]
received = [{}, {}]  # token -> what it got, each time it was there
chance = []
for pair in pairs[:100]:
    maps, ids = attention_maps(amlp, pair)
    sep = int(np.flatnonzero(ids == tokenizer.sep_id)[0])
    equal = ids[1:sep, None] == ids[None, sep + 1 : -1]  # first x second
    chance.append(equal.mean())
    for block_shares, block_received, A in zip(shares, received, maps):
        for i, got in zip(ids, len(ids) * A.mean(axis=0)):
            block_received.setdefault(tokenizer.token(i), []).append(got)
        to_second = A[1:sep, sep + 1 : -1]
        to_first = A[sep + 1 : -1, 1:sep]
        both = to_second[equal].sum() + to_first[equal.T].sum()
        block_shares.append(both / (to_second.sum() + to_first.sum()))
print(f"{np.mean(chance):.0%} would go to equal tokens if all got the same")
for i, block_shares in enumerate(shares):
    print(f"block_{i}: {np.mean(block_shares):.0%} goes to equal tokens")
    means = {t: np.mean(g) for t, g in received[i].items() if len(g) >= 20}
    most = sorted(means, key=means.get, reverse=True)[:8]
    print("   most: ", "  ".join(f"{t!r} {means[t]:.1f}" for t in most))

# %% [markdown]
# **What to look at.** The paper shows attention maps, after training on MNLI,
# that *align* the two sentences: words look at their counterparts across
# `<sep>`. There is nothing of that here. The squares are no brighter than the
# rest: equal tokens get about what they would get by chance, or less. What you
# see are columns: certain tokens get the attention of nearly all the others, on
# both sides of `<sep>`. In a run on PyTorch, `" the"` got eight times its share
# in the second block. So this little model seems to pick out a few frequent
# words by what they are, and to judge by them, which would explain why it is
# right in three of four pairs and not in all. A map that aligns would be the
# better answer; two blocks and 240 steps did not come that far.
#
# ## Summary
#
# - Byte pair encoding cuts any text into tokens and gives it back exactly. A
#   word takes the space before it along.
# - A masked language model is asked for 15% of the tokens, others in each
#   epoch. Its loss is $\sum w \cdot \mathrm{ce} / \sum w$, and the logits are
#   computed at these places only.
# - Perplexity is the exponential of the loss. Beside it belong $V$ and the
#   unigram's, the vocabulary and the text.
# - In a language model $W$ is Toeplitz: distances count, not places.
# - Comparing two texts is hard for a fixed $W$, and a tiny attention helps.
# - `python -m recipes.mlm` pretrains on any text from the command line, and
#   `python -m recipes.finetune` goes on from there to tasks such as GLUE.
#
# ## Exercises
#
# Solutions are in `tutorials/solutions/04_reading_with_mlps.py`.
#
# 1. *The product without the matrix.* Compute $W v$ from the $2n-1$ values
#    without ever writing down $W$, and from it the gate $f(Z_2)$. Check it
#    against `SpatialGatingUnit(toeplitz=True)`.
# 2. *Whole words.* `MaskedLMBatches(whole_words=True)` hides words with all
#    their tokens. How many of the tokens that are asked for had a visible part
#    of their word beside them before? Train both ways, ask both ways: what
#    happens to the perplexity, and is that a worse model?
# 3. *Padding.* By default, padded tokens are kept out of everything;
#    `mask_padding=False` does as the paper does. How far do the features of a
#    text move when `<pad>` is put behind it, with either?
