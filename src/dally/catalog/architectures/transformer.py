"""Transformers: BERT, GPT-2, Llama, ViT, the original encoder-decoder and Transformer-XL."""

from __future__ import annotations

from dally.catalog.layers import Table, Work, activation, attention, conv, embedding, free_tensor, linear
from dally.catalog.layers import normalisation as norm
from dally.core.errors import UserError


def _head_width(hidden: int, heads: int) -> int:
    if hidden % heads:
        raise UserError(f"a width of {hidden} cannot be divided among {heads} heads")
    return hidden // heads


def bert(
    table: Table, layers: int, hidden: int, heads: int, sequence: int = 512, vocabulary: int = 30522
) -> None:
    """BERT's encoder with embeddings and pooler, arXiv 1810.04805; the pre-training heads are left out."""
    words = sequence
    table.row("embeddings.word", "embedding", [embedding(vocabulary, hidden, positions=words)])
    table.row("embeddings.position", "embedding", [embedding(512, hidden, positions=words)])
    table.row(
        "embeddings.token_type", "embedding", [embedding(2, hidden, positions=words), norm(hidden, words)]
    )
    for index in range(layers):
        name = f"encoder.{index}"
        for part in ("query", "key", "value"):
            table.row(f"{name}.attention.{part}", "linear", [linear(hidden, hidden, positions=words)])
        table.row(
            f"{name}.attention.output",
            "linear",
            [
                attention(heads, _head_width(hidden, heads), words),
                linear(hidden, hidden, positions=words),
                norm(hidden, words),
            ],
        )
        table.row(
            f"{name}.intermediate",
            "linear",
            [linear(hidden, 4 * hidden, positions=words), activation(4 * hidden * words)],
        )
        table.row(
            f"{name}.output", "linear", [linear(4 * hidden, hidden, positions=words), norm(hidden, words)]
        )
    table.row("pooler", "linear", [linear(hidden, hidden)])


def gpt2(
    table: Table, layers: int, hidden: int, heads: int, sequence: int = 1024, vocabulary: int = 50257
) -> None:
    """GPT-2 as OpenAI released it; the output projection shares the word embedding's weights."""
    words = sequence
    table.row("wte", "embedding", [embedding(vocabulary, hidden, positions=words)])
    table.row("wpe", "embedding", [embedding(1024, hidden, positions=words)])
    for index in range(layers):
        name = f"h.{index}"
        table.row(
            f"{name}.attn.c_attn",
            "linear",
            [norm(hidden, words), linear(hidden, 3 * hidden, positions=words)],
        )
        table.row(
            f"{name}.attn.c_proj",
            "linear",
            [attention(heads, _head_width(hidden, heads), words), linear(hidden, hidden, positions=words)],
        )
        table.row(
            f"{name}.mlp.c_fc",
            "linear",
            [
                norm(hidden, words),
                linear(hidden, 4 * hidden, positions=words),
                activation(4 * hidden * words),
            ],
        )
        table.row(f"{name}.mlp.c_proj", "linear", [linear(4 * hidden, hidden, positions=words)])
    table.row("ln_f", "norm", [norm(hidden, words)])
    table.row(
        "lm_head (shares wte)", "linear", [_shared(linear(hidden, vocabulary, positions=words, bias=False))]
    )


def _shared(work: Work) -> Work:
    """The same work with weights that another row already counts and exchanges."""
    return Work((), work.flops, work.read, work.written, work.kept, work.launches)


def llama(
    table: Table,
    layers: int,
    hidden: int,
    heads: int,
    inner: int,
    key_heads: int | None = None,
    sequence: int = 4096,
    vocabulary: int = 32000,
) -> None:
    """Llama, arXiv 2302.13971 and 2307.09288: RMS norms, gated linear units, grouped keys in the largest."""
    words, head = sequence, _head_width(hidden, heads)
    keys = (key_heads or heads) * head
    table.row("embed_tokens", "embedding", [embedding(vocabulary, hidden, positions=words)])

    def plain(inputs: int, outputs: int) -> Work:
        return linear(inputs, outputs, positions=words, bias=False)

    rms = norm(hidden, words, shift=False)
    for index in range(layers):
        name = f"layers.{index}"
        table.row(f"{name}.q_proj", "linear", [rms, plain(hidden, hidden)])
        table.row(f"{name}.k_proj", "linear", [plain(hidden, keys)])
        table.row(f"{name}.v_proj", "linear", [plain(hidden, keys)])
        table.row(f"{name}.o_proj", "linear", [attention(heads, head, words), plain(hidden, hidden)])
        table.row(f"{name}.gate_proj", "linear", [rms, plain(hidden, inner)])
        table.row(f"{name}.up_proj", "linear", [plain(hidden, inner), activation(inner * words)])
        table.row(f"{name}.down_proj", "linear", [plain(inner, hidden)])
    table.row("lm_head", "linear", [rms, plain(hidden, vocabulary)])


def vit(
    table: Table, layers: int, hidden: int, heads: int, patch: int = 16, image: int = 224, classes: int = 1000
) -> None:
    """Vision Transformer, arXiv 2010.11929, as torchvision defines it."""
    side = image // patch
    patches = side * side
    tokens = patches + 1
    table.row(
        "conv_proj",
        "conv",
        [conv(3, hidden, patch, (side, side), (image, image), bias=True), free_tensor(hidden, hidden)],
    )
    table.row("pos_embedding", "embedding", [free_tensor(tokens * hidden, tokens * hidden)])
    for index in range(layers):
        name = f"encoder.{index}"
        table.row(
            f"{name}.in_proj", "linear", [norm(hidden, tokens), linear(hidden, 3 * hidden, positions=tokens)]
        )
        table.row(
            f"{name}.out_proj",
            "linear",
            [attention(heads, _head_width(hidden, heads), tokens), linear(hidden, hidden, positions=tokens)],
        )
        table.row(
            f"{name}.mlp.0",
            "linear",
            [
                norm(hidden, tokens),
                linear(hidden, 4 * hidden, positions=tokens),
                activation(4 * hidden * tokens),
            ],
        )
        table.row(f"{name}.mlp.3", "linear", [linear(4 * hidden, hidden, positions=tokens)])
    table.row("head", "linear", [norm(hidden, tokens), linear(hidden, classes)])


def transformer(
    table: Table,
    layers: int = 6,
    hidden: int = 512,
    heads: int = 8,
    inner: int = 2048,
    source_vocabulary: int = 37000,
    target_vocabulary: int = 37000,
    sequence: int = 32,
    shared_embeddings: bool = True,
) -> None:
    """The encoder-decoder of arXiv 1706.03762; positions are sinusoids, the output shares the target's embedding."""
    words, head = sequence, _head_width(hidden, heads)

    def plain(inputs: int, outputs: int, *, bias: bool = False) -> Work:
        return linear(inputs, outputs, positions=words, bias=bias)

    def attend(name: str) -> None:
        for part in ("query", "key", "value"):
            table.row(f"{name}.{part}", "linear", [plain(hidden, hidden)])
        table.row(
            f"{name}.output",
            "linear",
            [attention(heads, head, words), plain(hidden, hidden), norm(hidden, words)],
        )

    def feed(name: str) -> None:
        table.row(f"{name}.w_1", "linear", [plain(hidden, inner, bias=True), activation(inner * words)])
        table.row(f"{name}.w_2", "linear", [plain(inner, hidden, bias=True), norm(hidden, words)])

    table.row("source_embedding", "embedding", [embedding(source_vocabulary, hidden, positions=words)])
    for index in range(layers):
        attend(f"encoder.{index}.attention")
        feed(f"encoder.{index}")
    if not shared_embeddings:
        table.row("target_embedding", "embedding", [embedding(target_vocabulary, hidden, positions=words)])
    for index in range(layers):
        attend(f"decoder.{index}.attention")
        attend(f"decoder.{index}.cross")
        feed(f"decoder.{index}")
    table.row("projection (shares embedding)", "linear", [_shared(plain(hidden, target_vocabulary))])


def transformer_xl(
    table: Table,
    layers: int = 16,
    hidden: int = 512,
    heads: int = 8,
    inner: int = 2048,
    sequence: int = 192,
    memory: int = 192,
    vocabulary: int = 267735,
) -> None:
    """Transformer-XL, arXiv 1901.02860, with an adaptive softmax that shares the embedding's weights.

    The adaptive softmax looks at the 19,997 most frequent words for every token; the tail clusters add
    little and are not counted as work, their weights are.
    """
    words, span, frequent, tails = sequence, sequence + memory, 19997, 3
    table.row("word_emb", "embedding", [embedding(vocabulary, hidden, positions=words)])
    table.row("relative_bias", "embedding", [free_tensor(hidden, hidden), free_tensor(hidden, hidden)])
    for index in range(layers):
        name = f"layers.{index}"
        table.row(f"{name}.qkv_net", "linear", [linear(hidden, 3 * hidden, positions=span, bias=False)])
        table.row(f"{name}.r_net", "linear", [linear(hidden, hidden, positions=span, bias=False)])
        # Content and position scores each cost a product of queries and keys.
        scores = attention(heads, _head_width(hidden, heads), words, span)
        table.row(
            f"{name}.o_net",
            "linear",
            [scores, scores, linear(hidden, hidden, positions=words, bias=False), norm(hidden, words)],
        )
        table.row(
            f"{name}.ff.0", "linear", [linear(hidden, inner, positions=words), activation(inner * words)]
        )
        table.row(f"{name}.ff.3", "linear", [linear(inner, hidden, positions=words), norm(hidden, words)])
    table.row(
        "softmax (shares word_emb)",
        "linear",
        [
            _shared(linear(hidden, frequent, positions=words, bias=False)),
            free_tensor(vocabulary, frequent * words),
            linear(hidden, tails, positions=words),
        ],
    )
