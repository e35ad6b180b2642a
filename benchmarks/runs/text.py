"""Programs over tokens: transformers' Trainer, GPTs in the manner of nanoGPT, a language model without optimizer, a server."""

from __future__ import annotations

import itertools
import queue
import random
import re
import threading
import time
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from clock import args, clock, size
from torch import nn
from torch.utils.data import Dataset


def prepare() -> None:
    """`train.bin` and `val.bin` of uint16 tokens, and a text of words."""
    if args.name in ("hf_trainer", "gpt2_saves", "server"):
        import transformers  # noqa: F401
    rng = np.random.default_rng(0)
    for name, count in (("train", 20_000_000), ("val", 2_000_000)):
        if not (args.data / f"{name}.bin").exists():
            (rng.zipf(1.3, count) % 50257).astype(np.uint16).tofile(args.data / f"{name}.bin")
    if not (args.data / "words.txt").exists():
        words = [
            "".join(random.choices("abcdefghijklmnop", k=random.randint(2, 9))) for _ in range(5000)
        ]
        (args.data / "words.txt").write_text(
            "\n".join(" ".join(random.choices(words, k=12)) + "." for _ in range(40000))
        )


# A GPT in a few lines


class Attention(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        b, t, c = x.shape
        q, k, v = (y.view(b, t, self.heads, -1).transpose(1, 2) for y in self.qkv(x).chunk(3, -1))
        return self.out(
            F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(b, t, c)
        )


class Layer(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.norms = nn.ModuleList([nn.LayerNorm(width), nn.LayerNorm(width)])
        self.attention = Attention(width, heads)
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width), nn.Dropout(0.1)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attention(self.norms[0](x))
        return x + self.mlp(self.norms[1](x))


class GPT(nn.Module):
    def __init__(self, layers: int, width: int, heads: int, vocabulary: int = 50304) -> None:
        super().__init__()
        if args.tiny:
            layers, width, heads, vocabulary = 2, 32, 2, 50304
        self.tokens, self.places = nn.Embedding(vocabulary, width), nn.Embedding(1024, width)
        self.layers = nn.ModuleList([Layer(width, heads) for _ in range(layers)])
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary, bias=False)

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        h = self.tokens(x) + self.places(torch.arange(x.shape[1], device=x.device))
        for layer in self.layers:
            h = layer(h)
        logits = self.head(self.norm(h))
        return F.cross_entropy(logits.view(-1, logits.shape[-1]).float(), y.reshape(-1))


def autocast() -> Any:
    return torch.autocast(args.device, torch.bfloat16)


def text_by_hand() -> None:
    """Sentences are drawn, split and looked up in Python between the steps."""
    lines = (args.data / "words.txt").read_text().splitlines()
    pattern = re.compile(r"\w+|[^\w\s]")
    vocabulary = {
        word: n
        for n, word in enumerate(sorted({w for line in lines for w in pattern.findall(line)}))
    }
    model = GPT(6, 512, 8, len(vocabulary)).to(args.device)
    optimizer = torch.optim.AdamW(model.parameters(), 3e-4)

    def make_batch() -> torch.Tensor:
        rows = []
        for _ in range(size(96, 4)):
            tokens: list[int] = []
            while len(tokens) < 129:
                tokens += [vocabulary[word] for word in pattern.findall(random.choice(lines))]
            rows.append(tokens[:129])
        return torch.tensor(rows).to(args.device)

    with clock.phase("train"):
        for step in itertools.count():
            began = clock.now()
            batch = make_batch()
            clock.waited(began, by_hand=True)
            with autocast():
                loss = model(batch[:, :-1], batch[:, 1:])
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            if step % 20 == 0:
                print(step, loss.item(), flush=True)
            clock.step()


class Windows(Dataset):
    """Windows of tokens, prepared a little in the worker."""

    def __init__(self, length: int, count: int = 20000) -> None:
        self.length, self.count = length, count
        self.data = np.memmap(args.data / "train.bin", dtype=np.uint16, mode="r")

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        window = self.data[index * 900 : index * 900 + self.length].astype(np.int64)
        window[np.random.random(self.length) < 0.1] = 103
        return {
            "input_ids": torch.from_numpy(window % 30522),
            "labels": torch.tensor(int(window.sum() % 2)),
        }


def hf_trainer() -> None:
    """transformers' Trainer with an evaluation every 60 steps, as examples/pytorch/text-classification."""
    from transformers import (
        DistilBertConfig,
        DistilBertForSequenceClassification,
        Trainer,
        TrainingArguments,
    )

    class Counted:
        """A loader whose waits are counted."""

        def __init__(self, loader: Any) -> None:
            self.loader = loader

        def __getattr__(self, name: str) -> Any:
            return getattr(self.loader, name)

        def __len__(self) -> int:
            return len(self.loader)

        def __iter__(self) -> Any:
            began = clock.now()
            for batch in self.loader:
                clock.waited(began)
                yield batch
                began = clock.now()

    class Timed(Trainer):
        def evaluate(self, *some: Any, **more: Any) -> Any:
            with clock.phase("evaluation"):
                return super().evaluate(*some, **more)

        def get_train_dataloader(self) -> Any:
            return Counted(super().get_train_dataloader())

        def get_eval_dataloader(self, *some: Any) -> Any:
            return Counted(super().get_eval_dataloader(*some))

        def training_step(self, *some: Any, **more: Any) -> Any:
            result = super().training_step(*some, **more)
            clock.step()
            return result

    small: dict[str, Any] = size({}, {"dim": 32, "n_heads": 2, "hidden_dim": 64, "n_layers": 2})
    model = DistilBertForSequenceClassification(DistilBertConfig(**small))
    arguments = TrainingArguments(
        output_dir=str(args.data / "trainer"), per_device_train_batch_size=size(32, 4), per_device_eval_batch_size=size(64, 4),
        max_steps=10**6, eval_strategy="steps", eval_steps=size(60, 5), logging_steps=10, save_strategy="no", report_to=[],
        dataloader_num_workers=2, use_cpu=args.device == "cpu", disable_tqdm=True, bf16=args.device == "cuda",
    )  # fmt: skip
    trainer = Timed(
        model, arguments, train_dataset=Windows(128), eval_dataset=Windows(128, size(4000, 60))
    )
    with clock.phase("train"):
        trainer.train()


def gpt2(layers: int = 12) -> Any:
    from transformers import GPT2Config, GPT2LMHeadModel

    small: dict[str, Any] = size({"n_layer": layers}, {"n_layer": 2, "n_embd": 32, "n_head": 2})
    return GPT2LMHeadModel(GPT2Config(**small)).to(args.device)


def gpt2_saves() -> None:
    """Sequences of random length, and a checkpoint every 150 steps."""
    model = gpt2()
    optimizer = torch.optim.AdamW(model.parameters(), 5e-5)
    for step in itertools.count(1):
        with clock.phase("train"):
            ids = torch.randint(0, 50000, (8, random.randint(8, size(320, 32))), device=args.device)
            with autocast():
                loss = model(ids, labels=ids).loss
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            if step % 20 == 0:
                print(step, loss.item(), flush=True)
            clock.step()
        if step % size(150, 8) == 0:
            with clock.phase("saving"):
                torch.save(
                    {
                        "model": model.state_dict(),
                        "optimizer": optimizer.state_dict(),
                        "step": step,
                    },
                    args.data / "gpt2.pt",
                )


def gpt_bf16() -> None:
    """The GPU is full: weights in bf16, the data lies on the GPU."""
    model = GPT(12, 1024, 16).to(args.device, torch.bfloat16)
    optimizer = torch.optim.AdamW(model.parameters(), 3e-4, fused=args.device == "cuda")
    data = torch.randint(0, 50000, (size(4096, 16), size(1024, 32) + 1), device=args.device)
    with clock.phase("train"):
        for step in itertools.count():
            ids = data[torch.randint(0, len(data), (size(16, 2),))]
            loss = model(ids[:, :-1], ids[:, 1:])
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            if step % 10 == 0:
                print(step, loss.item(), flush=True)
            clock.step()


def compile_shapes() -> None:
    """A compiled model; the batch is another every eight seconds, and it is compiled again."""
    width = size(1024, 32)
    model = nn.Sequential(
        *(nn.Sequential(nn.Linear(width, width), nn.GELU(), nn.LayerNorm(width)) for _ in range(6))
    ).to(args.device)
    torch._dynamo.config.recompile_limit = 64
    compiled = torch.compile(model, dynamic=False)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-4)

    def train_step(rows: int) -> None:
        x = torch.randn(rows, width, device=args.device)
        loss = (compiled(x) - x).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    for rows in itertools.count(size(4096, 8), 64):
        with clock.phase("compile"):
            train_step(rows)
        clock.step()
        until = time.monotonic() + 8
        with clock.phase("train"):
            while time.monotonic() < until:
                train_step(rows)
                clock.step()


def checkpoint_10s() -> None:
    """Every ten seconds the state is copied to the host, and a thread writes it beside the loop."""
    model = GPT(12, 768, 12).to(args.device)
    optimizer = torch.optim.AdamW(model.parameters(), 3e-4)
    data = torch.randint(0, 50000, (1024, size(512, 32) + 1), device=args.device)
    saved, writer = time.monotonic(), None
    for step in itertools.count():
        with clock.phase("train"):
            ids = data[torch.randint(0, len(data), (size(8, 2),))]
            with autocast():
                loss = model(ids[:, :-1], ids[:, 1:])
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            if step % 10 == 0:
                print(step, loss.item(), flush=True)
            clock.step()
        if time.monotonic() - saved > size(10, 2):
            with clock.phase("saving"):
                if writer is not None:
                    writer.join()
                moments = [
                    {k: v.cpu() for k, v in state.items()} for state in optimizer.state.values()
                ]
                state = (
                    {name: tensor.cpu() for name, tensor in model.state_dict().items()},
                    moments,
                )
                writer = threading.Thread(target=torch.save, args=(state, args.data / "beside.pt"))
                writer.start()
            saved = time.monotonic()


def server() -> None:
    """Requests come to a queue in gusts with pauses; what waits is answered as one batch."""
    model = gpt2().eval()
    requests: queue.Queue[Any] = queue.Queue()

    def clients() -> None:
        while True:
            for _ in range(random.randint(1, 40)):
                answer: queue.Queue[Any] = queue.Queue(1)
                requests.put((torch.randint(0, 50000, (16,)), answer))
                time.sleep(random.expovariate(60))
            time.sleep(random.random())

    threading.Thread(target=clients, daemon=True).start()
    while True:
        with clock.phase("inference"):
            began = clock.now()
            batch = [requests.get()]
            clock.waited(began)
            while len(batch) < 8 and not requests.empty():
                batch.append(requests.get())
            ids = torch.stack([prompt for prompt, _ in batch]).to(args.device)
            with torch.inference_mode():
                text = model.generate(
                    ids, max_new_tokens=size(20, 4), do_sample=False, pad_token_id=50256
                ).cpu()
            for (_, answer), row in zip(batch, text, strict=True):
                answer.put(row)
            clock.step()


PROGRAMS = {
    "hf_trainer": hf_trainer, "gpt2_saves": gpt2_saves, "text_by_hand": text_by_hand, "gpt_bf16": gpt_bf16,
    "compile_shapes": compile_shapes, "checkpoint_10s": checkpoint_10s, "server": server,
}  # fmt: skip
