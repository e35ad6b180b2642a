"""Language, speech and vision transformers: Hugging Face, nanoGPT, pytorch/examples, Lightning."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from benchmarks.gains.loops import Step, Tools, public
from benchmarks.gains.networks import NanoGPT, RNNModel, WordTransformer

SMALL = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 2,
         "vocab_size": 1000}  # fmt: skip
Example = Callable[[Tools, Any], dict[str, torch.Tensor]]


def hugging(
    t: Tools, auto: str, kind: str, example: Example, tiny: dict[str, Any], **options: Any
) -> Step:
    """A model of transformers with random weights; `example` draws its keyword arguments."""
    import transformers

    config = transformers.AutoConfig.for_model(kind, **{**options, **(tiny if t.tiny else {})})
    attention = {"attn_implementation": "sdpa" if t.sdpa else "eager"} if t.public.written else {}
    model = getattr(transformers, auto).from_config(config, **attention)
    batches = t.feed(lambda: (example(t, config),))
    return t.train(model, batches, lambda m, x: m(**x).loss)


def words(t: Tools, config: Any, length: int, masked: bool = False) -> dict[str, torch.Tensor]:
    tokens = t.randint(config.vocab_size, t.batch, t.pick(length, 32))
    result = {"input_ids": tokens, "labels": tokens}
    return {**result, "attention_mask": torch.ones_like(tokens)} if masked else result


def classes(t: Tools, config: Any, length: int) -> dict[str, torch.Tensor]:
    result = words(t, config, length, masked=True)
    return {**result, "labels": t.randint(config.num_labels, t.batch)}


def pairs(t: Tools, config: Any) -> dict[str, torch.Tensor]:
    result = words(t, config, 256)
    return {**result, "labels": t.randint(config.vocab_size, t.batch, t.pick(128, 16))}


def spectrum(t: Tools, config: Any) -> dict[str, torch.Tensor]:
    frames = 2 * config.max_source_positions
    labels = t.randint(config.vocab_size, t.batch, t.pick(64, 8))
    return {"input_features": t.randn(t.batch, config.num_mel_bins, frames), "labels": labels}


def waves(t: Tools, config: Any) -> dict[str, torch.Tensor]:
    labels = 1 + t.randint(config.vocab_size - 1, t.batch, t.pick(60, 10))
    return {"input_values": t.randn(t.batch, t.pick(80_000, 16_000)), "labels": labels}


def scenes(t: Tools, config: Any) -> dict[str, torch.Tensor]:
    side = t.pick(512, 64)
    labels = t.randint(config.num_labels, t.batch, side, side)
    return {"pixel_values": t.randn(t.batch, 3, side, side), "labels": labels}


def nanogpt(
    t: Tools, layers: int, heads: int, width: int, block: int, vocab: int, dropout: float
) -> Step:
    layers, block, vocab = t.pick(layers, 2), t.pick(block, 32), t.pick(vocab, 65)
    model = NanoGPT(layers, heads, t.pick(width, 16 * heads), block, vocab, dropout, t.sdpa)
    batches = t.feed(lambda: (t.randint(vocab, t.batch, block), t.randint(vocab, t.batch, block)))
    return t.train(model, batches, lambda m, x, y: m(x, y), 1e-3, clip=1.0)


def wlm_lstm(t: Tools) -> Step:
    """word_language_model: hidden states go from batch to batch, the update is written by hand."""
    vocab, width, length = t.pick(33_278, 500), t.pick(650, 32), t.pick(35, 8)
    hidden = [torch.zeros(2, t.batch, width, device=t.device) for _ in range(2)]

    def loss(m: Any, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        output, after = m(x, tuple(h.detach() for h in hidden))
        hidden[:] = after
        return F.nll_loss(output, y)

    batches = t.feed(
        lambda: (t.randint(vocab, length, t.batch), t.randint(vocab, length * t.batch))
    )
    return t.train(RNNModel(vocab, width, 2, 0.5), batches, loss, 1e-2, clip=0.25)


def wlm_transformer(t: Tools) -> Step:
    vocab, width, length = t.pick(33_278, 500), t.pick(200, 32), t.pick(35, 8)
    batches = t.feed(
        lambda: (t.randint(vocab, length, t.batch), t.randint(vocab, length * t.batch))
    )
    model = WordTransformer(vocab, width, 2, 2, 0.2)
    return t.train(
        model, batches, lambda m, x, y: F.nll_loss(m(x).view(-1, vocab), y), 1e-2, clip=0.25
    )


def lightning_demo(t: Tools) -> Step:
    from lightning.pytorch.demos import Transformer

    vocab = t.pick(33_278, 500)
    batches = t.feed(lambda: (t.randint(vocab, t.batch, 35), t.randint(vocab, t.batch, 35)))
    model: nn.Module = Transformer(vocab_size=vocab)
    return t.train(model, batches, lambda m, x, y: F.nll_loss(m(x, y), y.view(-1)), 0.1, clip=0.25)


def _hf(
    name: str, batch: int, auto: str, kind: str, example: Example, tiny: dict[str, Any],
    options: dict[str, Any] | None = None, **facts: Any,
) -> None:  # fmt: skip
    maker = partial(hugging, auto=f"AutoModelFor{auto}", kind=kind, example=example, tiny=tiny)
    public(f"hf_{name}", partial(maker, **(options or {})), batch, **facts)


_gpt2 = {"n_layer": 2, "n_embd": 64, "n_head": 2, "vocab_size": 1000}
_whisper = {"d_model": 64, "encoder_layers": 1, "decoder_layers": 1, "encoder_attention_heads": 2,
            "decoder_attention_heads": 2, "encoder_ffn_dim": 64, "decoder_ffn_dim": 64,
            "max_source_positions": 100}  # fmt: skip
_hf("gpt2_eager", 16, "CausalLM", "gpt2", partial(words, length=512), _gpt2, {"use_cache": False},
    written=True)  # fmt: skip
_hf("bert_base", 16, "MaskedLM", "bert", partial(words, length=256, masked=True), SMALL)
_hf("bert_base_eager", 32, "MaskedLM", "bert", partial(words, length=512, masked=True), SMALL,
    precision="bf16", written=True)  # fmt: skip
_hf("t5_small", 32, "Seq2SeqLM", "t5", pairs, {"d_model": 64, "num_layers": 2, "d_ff": 64, "num_heads": 2,
    "d_kv": 32}, {"d_model": 512, "use_cache": False, "decoder_start_token_id": 0, "pad_token_id": 0})  # fmt: skip
_hf("whisper_tiny", 16, "SpeechSeq2Seq", "whisper", spectrum, _whisper, {"use_cache": False})
_hf("segformer_b0", 16, "SemanticSegmentation", "segformer", scenes, {}, {"num_labels": 150})
_hf("vit_base", 64, "ImageClassification", "vit",
    lambda t, c: {"pixel_values": t.randn(t.batch, 3, 224, 224), "labels": t.randint(2, t.batch)},
    {"hidden_size": 64, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2},
    precision="bf16", written=True)  # fmt: skip
_shakespeare = {"layers": 6, "heads": 6, "width": 384, "block": 256, "vocab": 65, "dropout": 0.2}
_openai = {"layers": 12, "heads": 12, "width": 768, "block": 1024, "vocab": 50_304, "dropout": 0.0}
_laptop = {"layers": 4, "heads": 4, "width": 128, "block": 64, "vocab": 65, "dropout": 0.0}
public("nanogpt_124m", partial(nanogpt, **_openai), 12, precision="bf16")
public("nanogpt_124m_written", partial(nanogpt, **_openai), 12, precision="bf16", written=True)
public("nanogpt_char_written", partial(nanogpt, **_shakespeare), 64, precision="bf16", written=True)
public("nanogpt_char_fp32", partial(nanogpt, **_shakespeare), 64)
public("nanogpt_laptop", partial(nanogpt, **_laptop), 12, waits=True)
public("example_wlm_lstm", wlm_lstm, 20, optimizer="hand")
public("example_wlm_transformer", wlm_transformer, 20, optimizer="hand")
public("lightning_demo", lightning_demo, 64, optimizer="sgd")
