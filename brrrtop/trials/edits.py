"""The edits that can be made from outside: which apply to a program, their lines, what foretells them."""

from collections.abc import Callable

from msgspec import Struct

from brrrtop.model.trials import Facts, LoaderFacts, Pace

LITTLE = 0.02
"""A loop that waits for data for less of its time has nothing to gain from its loader."""
MOSTLY_WAITS = 0.9
"""A loop that waits for data for more of its time gains less than a ninth from anything else."""


class Edit(Struct, frozen=True):
    line: str
    """Of code, to write by hand."""
    family: str
    """Of a family at most one is made."""
    lacks: Callable[[Facts], str | None]
    """Why it does not apply; None: it does."""
    foretold_by: str | None = None
    """The what-if edit whose prediction is meant."""
    checked: str = "the step is shorter"
    """What `brrrtop compare` will show of it."""
    on_gpu: bool = False
    asked_only: bool = False
    """Tried only where it is named or foretold to win."""


def _nothing(_: Facts) -> None:
    return None


def _precision(facts: Facts) -> str | None:
    if any(model.autocast for model in facts.models):
        return "the model runs under autocast already"
    if not any("float32" in model.dtypes for model in facts.models):
        return "the model has no float32 weights"
    return None


def _tf32(facts: Facts) -> str | None:
    return "the program has set it already" if facts.tf32 else _precision(facts)


def _convolutions(facts: Facts) -> str | None:
    return None if any(m.images for m in facts.models) else "the model has no 2-d convolutions"


def _channels_last(facts: Facts) -> str | None:
    if any(model.channels_last for model in facts.models):
        return "the model is in channels-last already"
    return _convolutions(facts)


def _benchmark(facts: Facts) -> str | None:
    return "the program has set it already" if facts.cudnn_benchmark else _convolutions(facts)


def _compile(facts: Facts) -> str | None:
    if any(model.compiled for model in facts.models):
        return "the model is compiled already"
    return None if facts.models else "the program calls no nn.Module itself"


def _fused(facts: Facts) -> str | None:
    if not facts.optimizers:
        return "no Adam, AdamW, SGD or Adagrad of torch"
    return "the optimizer is fused already" if all(o.fused for o in facts.optimizers) else None


def _attention(facts: Facts) -> str | None:
    if any(model.written_attention for model in facts.models):
        return None
    return "no attention with a switch for it (transformers, timm)"


def _loader(wanted: Callable[[LoaderFacts], bool], reason: str) -> Callable[[Facts], str | None]:
    """Applies where `wanted` is true of some loader."""

    def lacks(facts: Facts) -> str | None:
        if not facts.loaders:
            return "no torch DataLoader"
        return None if any(map(wanted, facts.loaders)) else reason

    return lacks


_WORKERS = _loader(lambda one: not one.workers and not one.iterable,
                   "the loaders have workers, or datasets that cannot be divided")  # fmt: skip
_PINNED = _loader(lambda one: not one.pinned, "the loaders pin already")
_KEPT = _loader(lambda one: one.workers > 0 and not one.persistent,
                "no loader has workers that could persist")  # fmt: skip
_AHEAD = _loader(lambda one: one.workers > 0, "no loader has workers")
_BATCH = _loader(lambda _: True, "")
_INPUT = "less of the time is `input`"
EDITS: dict[str, Edit] = {
    "loader-workers": Edit("DataLoader(..., num_workers={workers})", "workers", _WORKERS,
                           "loader-ready", _INPUT),
    "bf16": Edit('with torch.autocast("cuda", torch.bfloat16):  # round model(x)', "precision", _precision,
                 "bf16", "products run in bf16", on_gpu=True),
    "tf32": Edit('torch.set_float32_matmul_precision("high")', "precision", _tf32, "tf32",
                 "products run in tf32", on_gpu=True),
    "compile": Edit("model = torch.compile(model)", "compile", _compile, "compile",
                    "fewer kernels a step, less `launch`"),
    "compile-reduce-overhead": Edit('model = torch.compile(model, mode="reduce-overhead")', "compile",
                                    _compile, "compile-reduce-overhead", "less `launch`", on_gpu=True),
    "channels-last": Edit("model.to(memory_format=torch.channels_last); x = x.to(memory_format=...)",
                          "layout", _channels_last, "channels-last", "convolutions take less time"),
    "fused-optimizer": Edit("torch.optim.{optimizer}(..., fused=True)", "optimizer", _fused,
                            "fused-optimizer", "fewer kernels in the optimizer"),
    "sdpa": Edit('attn_implementation="sdpa" (transformers), timm.layers.set_fused_attn(True)', "attention",
                 _attention, "sdpa", "attention takes less time"),
    "loader-pinned": Edit("DataLoader(..., pin_memory=True)", "pinned", _PINNED, "pinned-copies",
                          "copies from pageable memory are gone", on_gpu=True),
    "loader-persistent": Edit("DataLoader(..., persistent_workers=True)", "persistent", _KEPT, None, _INPUT),
    "loader-prefetch": Edit("DataLoader(..., prefetch_factor=4)", "prefetch", _AHEAD, None, _INPUT),
    "cudnn-benchmark": Edit("torch.backends.cudnn.benchmark = True", "convolutions", _benchmark, None,
                            "convolutions take less time", on_gpu=True),
    "gc-freeze": Edit("gc.collect(); gc.freeze()  # after the first steps", "gc", _nothing, "quiet-host",
                      "fewer pauses of the collector"),
    "double-batch": Edit("DataLoader(..., batch_size=2 * batch_size)  # changes the training", "batch",
                         _BATCH, "double-batch", "more samples a second"),
    "compile-dynamic": Edit("model = torch.compile(model, dynamic=True)", "compile", _compile, None,
                            "less `launch`", asked_only=True),
}  # fmt: skip
"""By id, in the order in which they are tried where nothing is foretold."""
ARGUMENTS: dict[str, dict[str, str]] = {
    "transformers": {
        "bf16": "TrainingArguments(bf16=True)",
        "tf32": "TrainingArguments(tf32=True)",
        "compile": "TrainingArguments(torch_compile=True)  # sets TF32 too, unless tf32=False",
        "compile-reduce-overhead":
            'TrainingArguments(torch_compile=True, torch_compile_mode="reduce-overhead")',
        "fused-optimizer": 'TrainingArguments(optim="adamw_torch_fused")',
        "loader-workers": "TrainingArguments(dataloader_num_workers={workers})",
        "loader-pinned": "TrainingArguments(dataloader_pin_memory=True)",
        "loader-persistent": "TrainingArguments(dataloader_persistent_workers=True)",
        "loader-prefetch": "TrainingArguments(dataloader_prefetch_factor=4)",
        "double-batch": "TrainingArguments(per_device_train_batch_size=2 * ...)  # changes the training",
    },
    "lightning": {
        "bf16": 'Trainer(precision="bf16-mixed")',
        "cudnn-benchmark": "Trainer(benchmark=True)",
    },
}  # fmt: skip
"""Of libraries that run the loop: the arguments of theirs that make an edit."""
CHANGES_TRAINING = "double-batch"
"""An offer: never among the best edits, never in a pair."""
NEEDS_WORKERS = ("loader-persistent", "loader-prefetch")


def reasons_against(facts: Facts, base: Pace, on_gpu: bool) -> dict[str, str]:
    """Edits that are not worth a trial of this program, each with the reason."""
    reasons = {}
    for name, edit in EDITS.items():
        lacks = edit.lacks(facts)
        of_loader = name.partition("-")[0] == "loader"
        if lacks is None and edit.on_gpu and not on_gpu:
            lacks = "the program uses no GPU"
        if lacks is None and edit.asked_only:
            lacks = "only where --edits names it"
        if lacks is None and of_loader and base.waits < LITTLE:
            lacks = f"the loop waits for data {100 * base.waits:.1f} % of the time"
        if lacks is None and not of_loader and base.waits > MOSTLY_WAITS:
            lacks = f"{100 * base.waits:.0f} % of the time is waiting for data"
        if lacks is not None:
            reasons[name] = lacks
    return reasons


def line_of(name: str, facts: Facts, workers: int) -> str:
    optimizer = facts.optimizers[0].name if facts.optimizers else "AdamW"
    trainer = facts.models[0].trainer if facts.models else None
    line = ARGUMENTS.get(trainer or "", {}).get(name, EDITS[name].line)
    return line.format(workers=workers, optimizer=optimizer)
