"""Some of the programs that nobody tuned on before they were watched once, on 2026-11-27; written after public scripts and guides."""

from __future__ import annotations

import contextlib
import itertools
import json
import multiprocessing
import queue
import random
import threading
import time
import urllib.request
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from clock import args, clock, size
from torch import nn
from torch.utils.data import DataLoader, Dataset


def prepare() -> None:
    """Nothing is read but what a program writes itself."""


def dev() -> torch.device:
    return torch.device(args.device)


def thread_queue() -> None:
    """A producer thread reads and augments; the loop takes from a bounded queue."""
    batches: queue.Queue[Any] = queue.Queue(maxsize=4)
    pool = np.random.default_rng(0).random(
        (size(512, 32), 3, size(128, 32), size(128, 32)), np.float32
    )

    def produce() -> None:
        rng = np.random.default_rng(1)
        while True:
            rows = pool[rng.integers(0, len(pool), size(48, 4))]
            if rng.random() < 0.5:
                rows = rows[..., ::-1]
            rows = np.ascontiguousarray(
                rows * rng.uniform(0.8, 1.2) + rng.normal(0, 0.05, rows.shape).astype(np.float32),
                np.float32,
            )
            batches.put((torch.from_numpy(rows), torch.from_numpy(rng.integers(0, 20, len(rows)))))

    threading.Thread(target=produce, daemon=True).start()
    w = size(96, 8)
    model = nn.Sequential(nn.Conv2d(3, w, 7, 4), nn.GELU(), *(nn.Sequential(nn.Conv2d(w, w, 3, padding=1), nn.BatchNorm2d(w), nn.GELU()) for _ in range(12)),
                          nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(w, 20)).to(dev())  # fmt: skip
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    with clock.phase("train"):
        for step in itertools.count():
            end = clock.now()
            x, y = batches.get()
            clock.waited(end)
            loss = F.cross_entropy(model(x.to(dev())), y.to(dev()))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if step % 50 == 0:
                print("loss", loss.item(), flush=True)
            clock.step()


def environment(pipe: Any, seed: int) -> None:
    rng = np.random.default_rng(seed)
    state = rng.normal(size=64)
    push = rng.normal(size=(64, 6)) / 8
    while True:
        action = pipe.recv()
        for _ in range(size(60, 2)):
            state = np.tanh(state + push @ action + 0.01 * rng.normal(size=64))
        pipe.send(
            (state.astype(np.float32), float(-np.square(state).mean()), bool(rng.random() < 0.01))
        )


def a2c_pipes() -> None:
    """stable-baselines-like A2C: SubprocVecEnv, rollouts of 16 steps, one update each."""
    count, length = size(12, 2), 16
    context = multiprocessing.get_context("fork")
    pipes = []
    for seed in range(count):
        here, there = context.Pipe()
        context.Process(target=environment, args=(there, seed), daemon=True).start()
        pipes.append(here)
    policy = nn.Sequential(nn.Linear(64, 256), nn.Tanh(), nn.Linear(256, 256), nn.Tanh()).to(dev())
    mean, value, scale = (
        nn.Linear(256, 6).to(dev()),
        nn.Linear(256, 1).to(dev()),
        nn.Parameter(torch.zeros(6, device=dev())),
    )
    parameters = [*policy.parameters(), *mean.parameters(), *value.parameters(), scale]
    optimizer = torch.optim.RMSprop(parameters, 7e-4, alpha=0.99, eps=1e-5)
    observations = np.zeros((count, 64), np.float32)

    def collect_rollouts() -> Any:
        nonlocal observations
        kept = []
        for _ in range(length):
            with torch.no_grad():
                h = policy(torch.as_tensor(observations, device=dev()))
                actions = torch.distributions.Normal(mean(h), scale.exp()).sample()
            for pipe, action in zip(pipes, actions.cpu().numpy(), strict=True):
                pipe.send(action)
            results = [pipe.recv() for pipe in pipes]
            kept.append(
                (
                    observations,
                    actions,
                    np.array([r for _, r, _ in results], np.float32),
                    np.array([d for *_, d in results], np.float32),
                )
            )
            observations = np.stack([s for s, *_ in results])
        return kept

    def train(kept: Any) -> float:
        returns = np.zeros(count, np.float32)
        goals = []
        for _, _, rewards, dones in reversed(kept):
            returns = rewards + 0.99 * returns * (1 - dones)
            goals.append(returns)
        obs = torch.as_tensor(np.concatenate([k[0] for k in kept]), device=dev())
        actions = torch.cat([k[1] for k in kept])
        goal = torch.as_tensor(np.concatenate(goals[::-1]), device=dev())
        h = policy(obs)
        v = value(h).flatten()
        log = torch.distributions.Normal(mean(h), scale.exp()).log_prob(actions).sum(1)
        loss = -(log * (goal - v).detach()).mean() + 0.5 * F.mse_loss(v, goal)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(parameters, 0.5)
        optimizer.step()
        return 0.0

    while True:
        with clock.phase("rollout"):
            kept = collect_rollouts()
        with clock.phase("train"):
            train(kept)
            clock.step()


def sage_in_loop() -> None:
    from torch_geometric.nn import SAGEConv

    nodes, features = size(300_000, 2000), size(128, 16)
    degree = 15
    rng = np.random.default_rng(0)
    neighbours = rng.integers(0, nodes, (nodes, degree))
    x, y = torch.randn(nodes, features), torch.randint(0, 47, (nodes,))

    class Sage(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.convs = nn.ModuleList(
                [SAGEConv(features, 256), SAGEConv(256, 256), SAGEConv(256, 47)]
            )

        def forward(self, h: torch.Tensor, edges: torch.Tensor) -> torch.Tensor:
            for conv in self.convs[:-1]:
                h = F.dropout(conv(h, edges).relu(), 0.5, self.training)
            return self.convs[-1](h, edges)

    def sample_neighbours(seeds: np.ndarray) -> Any:
        frontier, sources, targets = seeds, [], []
        for fan in (10, 5, 5):
            picked = neighbours[frontier][:, :fan]
            sources.append(picked.ravel())
            targets.append(np.repeat(frontier, fan))
            frontier = np.unique(picked)
        every = np.concatenate([seeds, *sources, *targets])
        unique, _first, inverse = np.unique(every, return_index=True, return_inverse=True)
        n, m = len(seeds), sum(len(s) for s in sources)
        edges = np.stack([inverse[n : n + m], inverse[n + m :]])
        return torch.from_numpy(unique), torch.from_numpy(edges), torch.from_numpy(inverse[:n])

    model = Sage().to(dev())
    optimizer = torch.optim.Adam(model.parameters(), 0.003)
    for epoch in itertools.count():
        with clock.phase("train"):
            model.train()
            order = rng.permutation(nodes)[: size(512, 32) * 60].reshape(-1, size(512, 32))
            for seeds in order:
                end = clock.now()
                ids, edges, rows = sample_neighbours(seeds)
                batch = x[ids].to(dev()), edges.to(dev()), rows.to(dev())
                goal = y[torch.from_numpy(seeds)].to(dev())
                clock.waited(end, by_hand=True)
                optimizer.zero_grad()
                loss = F.cross_entropy(model(batch[0], batch[1])[batch[2]], goal)
                loss.backward()
                optimizer.step()
                clock.step()
        print(epoch, loss.item(), flush=True)


def http_generate() -> None:
    from transformers import LlamaConfig, LlamaForCausalLM

    config: dict[str, Any] = size({"hidden_size": 1024, "intermediate_size": 2816, "num_hidden_layers": 12, "num_attention_heads": 16},
                                  {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2})  # fmt: skip
    model = (
        LlamaForCausalLM(LlamaConfig(vocab_size=32000, **config))
        .to(dev(), size(torch.bfloat16, torch.float32))
        .eval()
    )

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            clock.waited(self.server.idle_since)  # type: ignore[attr-defined]
            ids = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["ids"]
            with torch.no_grad():
                out = model.generate(
                    torch.tensor([ids], device=dev()),
                    max_new_tokens=size(24, 3),
                    do_sample=True,
                    top_p=0.9,
                    pad_token_id=0,
                )
            body = json.dumps({"ids": out[0].tolist()}).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)
            clock.step()

        def log_message(self, *_: Any) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    port = server.server_address[1]

    def client() -> None:
        rng = random.Random(0)
        while True:
            data = json.dumps(
                {"ids": [rng.randrange(32000) for _ in range(rng.randint(8, 60))]}
            ).encode()
            with contextlib.suppress(OSError):
                urllib.request.urlopen(
                    urllib.request.Request(f"http://127.0.0.1:{port}", data), timeout=20
                ).read()
            time.sleep(rng.expovariate(4))

    context = multiprocessing.get_context("fork")
    context.Process(target=client, daemon=True).start()
    with clock.phase("inference"):
        while True:
            server.idle_since = clock.now()  # type: ignore[attr-defined]
            server.handle_request()


def encode() -> None:
    from sentence_transformers import SentenceTransformer, models
    from transformers import BertConfig, BertModel, BertTokenizerFast

    folder = args.data / "sentence-model"
    words = [
        "".join(random.Random(i).choices("abcdefghijklmnopqrstuvwxyz", k=2 + i % 7))
        for i in range(6000)
    ]
    if not (folder / "config.json").exists():
        folder.mkdir(parents=True, exist_ok=True)
        vocabulary = [
            "[PAD]",
            "[UNK]",
            "[CLS]",
            "[SEP]",
            "[MASK]",
            *dict.fromkeys(words),
            *(f"##{c}" for c in "abcdefghijklmnopqrstuvwxyz"),
            *"abcdefghijklmnopqrstuvwxyz",
        ]
        vocabulary = list(dict.fromkeys(vocabulary))
        (folder / "vocab.txt").write_text("\n".join(vocabulary))
        BertTokenizerFast(str(folder / "vocab.txt")).save_pretrained(folder)
        small: dict[str, Any] = size({"hidden_size": 384, "num_hidden_layers": 6, "num_attention_heads": 12, "intermediate_size": 1536},
                                     {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64})  # fmt: skip
        BertModel(BertConfig(vocab_size=len(vocabulary), **small)).save_pretrained(folder)
    transformer = models.Transformer(str(folder), max_seq_length=128)
    pooling = models.Pooling(size(384, 32))
    model = SentenceTransformer(modules=[transformer, pooling], device=args.device)
    for name in ("preprocess", "tokenize"):
        if hasattr(model, name):
            inner = getattr(model, name)

            def timed(*some: Any, _inner: Any = inner, **more: Any) -> Any:
                end = clock.now()
                try:
                    return _inner(*some, **more)
                finally:
                    clock.waited(end, by_hand=True)

            setattr(model, name, timed)
            break
    forward = model.forward

    def counted(*some: Any, **more: Any) -> Any:
        result = forward(*some, **more)
        clock.step()
        return result

    model.forward = counted
    rng = random.Random(1)
    while True:
        sentences = [
            " ".join(rng.choices(words, k=rng.randint(5, 90))) for _ in range(size(4000, 40))
        ]
        with clock.phase("inference"):
            vectors = model.encode(sentences, batch_size=size(64, 8), show_progress_bar=False)
        with clock.phase("saving"):
            np.save(args.data / "vectors.npy", vectors)


def since_ready_s() -> float:
    return 0.0 if clock._ready_ns is None else (time.time_ns() - clock._ready_ns) / 1e9


class Slower(Dataset):
    def __init__(self, late: Any) -> None:
        self.late = late

    def __len__(self) -> int:
        return 1 << 20

    def __getitem__(self, index: int) -> Any:
        if self.late.value:
            time.sleep(0.012)
        return torch.randn(3, size(128, 32), size(128, 32)), index % 10


def late_loader() -> None:
    """The store gets slow eight seconds after the loop is warm, and stays so."""
    import torchvision

    late = multiprocessing.get_context("fork").Value("i", 0)
    model = torchvision.models.resnet34(num_classes=10).to(dev())
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    loader = DataLoader(
        Slower(late),
        size(32, 4),
        num_workers=4,
        pin_memory=args.device == "cuda",
        prefetch_factor=2,
        multiprocessing_context="fork",
    )
    with clock.phase("train"):
        end = clock.now()
        for x, y in loader:
            clock.waited(end)
            loss = F.cross_entropy(
                model(x.to(dev(), non_blocking=True)), y.to(dev(), non_blocking=True)
            )
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            clock.step()
            late.value = int(since_ready_s() > 8)
            end = clock.now()


PROGRAMS = {
    one.__name__: one
    for one in (late_loader, thread_queue, encode, a2c_pipes, http_generate, sage_in_loop)
}
