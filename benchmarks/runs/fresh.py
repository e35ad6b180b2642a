"""Programs that nobody tuned on before they were watched once, on 2026-11-27; written after public scripts and guides."""

from __future__ import annotations

import contextlib
import copy
import io
import itertools
import json
import math
import multiprocessing
import queue
import random
import tarfile
import threading
import time
import urllib.request
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from clock import args, clock, lightning_clock, size
from torch import nn
from torch.utils.data import DataLoader, Dataset


def prepare() -> None:
    """Nothing is read but what a program writes itself."""


def dev() -> torch.device:
    return torch.device(args.device)


def amp() -> Any:
    return torch.autocast(args.device, torch.bfloat16)


class Tones(Dataset):
    """Keyword spotting: a waveform is mixed with noise, shifted, and made a mel spectrogram."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.window = torch.hann_window(400)
        self.mel = torch.rand(201, 64).softmax(0)

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> Any:
        wave = torch.sin(torch.arange(16000) * (index % 35 + 1) / 50) + 0.1 * torch.randn(16000)
        wave = torch.roll(wave, random.randint(-1600, 1600))
        spectrum = torch.stft(wave, 400, 160, window=self.window, return_complex=True).abs() ** 2
        return torch.log(spectrum.T @ self.mel + 1e-6).T[None], index % 35


def speech_j0() -> None:
    model = nn.Sequential(
        nn.Conv2d(1, 64, 3, padding=1), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(64, 128, 3, padding=1), nn.BatchNorm2d(128), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(128, 256, 3, padding=1), nn.BatchNorm2d(256), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(256, 35),
    ).to(dev())  # fmt: skip
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 20, 0.5)
    torch.set_num_threads(1)
    loader = DataLoader(Tones(size(3000, 60)), size(64, 8), shuffle=True)
    for epoch in itertools.count():
        with clock.phase("train"):
            end = clock.now()
            for index, (data, target) in enumerate(loader):
                clock.waited(end)
                data, target = data.to(dev()), target.to(dev())
                loss = F.cross_entropy(model(data), target)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                if index % 20 == 0:
                    print(f"epoch {epoch} {index} {loss.item():.4f}", flush=True)
                clock.step()
                end = clock.now()
        scheduler.step()


class Scenes(Dataset):
    def __init__(self, count: int, side: int) -> None:
        self.count, self.side = count, side

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> Any:
        rng = np.random.default_rng(index)
        image = rng.random((3, self.side, self.side), np.float32)
        mask = np.zeros((self.side, self.side), np.int64)
        for label in range(1, 8):
            y, x = rng.integers(0, self.side * 3 // 4, 2)
            image[:, y : y + self.side // 4, x : x + self.side // 4] += label / 8
            mask[y : y + self.side // 4, x : x + self.side // 4] = label
        return torch.from_numpy(image), torch.from_numpy(mask)


def double(i: int, o: int) -> nn.Module:
    return nn.Sequential(nn.Conv2d(i, o, 3, padding=1, bias=False), nn.BatchNorm2d(o), nn.ReLU(True),
                         nn.Conv2d(o, o, 3, padding=1, bias=False), nn.BatchNorm2d(o), nn.ReLU(True))  # fmt: skip


class Net(nn.Module):
    def __init__(self, w: int) -> None:
        super().__init__()
        self.a, self.b, self.c = double(3, w), double(w, 2 * w), double(2 * w, 4 * w)
        self.d, self.e, self.head = double(6 * w, 2 * w), double(3 * w, w), nn.Conv2d(w, 8, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        a = self.a(x)
        b = self.b(F.max_pool2d(a, 2))
        c = self.c(F.max_pool2d(b, 2))
        d = self.d(torch.cat([F.interpolate(c, scale_factor=2.0), b], 1))
        return self.head(self.e(torch.cat([F.interpolate(d, scale_factor=2.0), a], 1)))


def unet_j2() -> None:
    """milesial/Pytorch-UNet, train.py: a GradScaler, validation several times an epoch from inside the loop."""
    net = Net(size(64, 8)).to(dev())
    optimizer = torch.optim.RMSprop(net.parameters(), 1e-5, weight_decay=1e-8, momentum=0.9)
    scaler = torch.amp.GradScaler(args.device, enabled=args.device == "cuda")
    options: dict[str, Any] = {
        "batch_size": size(16, 2),
        "num_workers": 2,
        "pin_memory": args.device == "cuda",
    }
    train_set, val_set = Scenes(size(1600, 32), size(160, 32)), Scenes(size(320, 8), size(160, 32))
    train_loader = DataLoader(train_set, shuffle=True, **options)
    val_loader = DataLoader(val_set, shuffle=False, drop_last=True, **options)

    @torch.inference_mode()
    def evaluate() -> float:
        net.eval()
        dice = 0.0
        end = clock.now()
        for image, mask in val_loader:
            clock.waited(end)
            image, mask = image.to(dev()), mask.to(dev())
            predicted = F.one_hot(net(image).argmax(1), 8).float()
            truth = F.one_hot(mask, 8).float()
            dice += (2 * (predicted * truth).sum() / (predicted + truth).sum()).item()
            end = clock.now()
        net.train()
        return dice / max(len(val_loader), 1)

    global_step = 0
    for _ in itertools.count():
        with clock.phase("train"):
            net.train()
            end = clock.now()
            for images, masks in train_loader:
                clock.waited(end)
                images = images.to(
                    device=dev(), dtype=torch.float32, memory_format=torch.channels_last
                )
                masks = masks.to(dev())
                with torch.autocast(args.device, enabled=args.device == "cuda"):
                    predicted = net(images)
                    loss = F.cross_entropy(predicted, masks)
                optimizer.zero_grad(set_to_none=True)
                scaler.scale(loss).backward()
                scaler.unscale_(optimizer)
                torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
                scaler.step(optimizer)
                scaler.update()
                global_step += 1
                loss.item()
                clock.step()
                if global_step % size(40, 8) == 0:
                    with clock.phase("evaluation"):
                        print("dice", evaluate(), flush=True)
                end = clock.now()


class Cloud(Dataset):
    """A bucket that answers fast, and for one batch of 32 not for a long time."""

    def __len__(self) -> int:
        return 1 << 20

    def __getitem__(self, index: int) -> Any:
        if index % (32 * size(32, 4)) == 0 and index:
            time.sleep(2.2)
        return torch.randn(3, size(160, 32), size(160, 32)), index % 100


def gusts_j8() -> None:
    import torchvision

    model = torchvision.models.resnet50(num_classes=100).to(
        dev(), memory_format=torch.channels_last
    )
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9, nesterov=True)
    loader = DataLoader(Cloud(), size(32, 4), num_workers=8, pin_memory=args.device == "cuda")
    it = iter(loader)
    with clock.phase("train"):
        while True:
            end = clock.now()
            x, y = next(it)
            clock.waited(end)
            with amp():
                loss = F.cross_entropy(
                    model(x.to(dev(), non_blocking=True)), y.to(dev(), non_blocking=True)
                )
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            clock.step()


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


def write_tars(folder: Path) -> list[Path]:
    from PIL import Image

    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    rng = np.random.default_rng(0)
    for shard in range(4):
        path = folder / f"part-{shard}.tar"
        paths.append(path)
        if path.exists():
            continue
        with tarfile.open(path, "w") as tar:
            for number in range(size(150, 20)):
                image = Image.fromarray(rng.integers(0, 255, (30, 40, 3), dtype=np.uint8)).resize(
                    (320, 240), Image.Resampling.BICUBIC
                )
                jpeg = io.BytesIO()
                image.save(jpeg, "jpeg", quality=90)
                for suffix, data in (
                    ("jpg", jpeg.getvalue()),
                    ("json", json.dumps({"label": number % 10}).encode()),
                ):
                    info = tarfile.TarInfo(f"{number:05d}.{suffix}")
                    info.size = len(data)
                    tar.addfile(info, io.BytesIO(data))
    return paths


def tar_pipeline() -> None:
    """webdataset without workers: shards, samples, a shuffle buffer, decode, batch; each a generator."""
    import torchvision
    from PIL import Image

    paths = write_tars(args.data / "fresh-tars")

    def expand(urls: Any) -> Any:
        for url in urls:
            with tarfile.open(url) as stream:
                sample: dict[str, Any] = {}
                for member in stream:
                    key, suffix = member.name.split(".")
                    if sample.get("__key__", key) != key:
                        yield sample
                        sample = {}
                    sample["__key__"] = key
                    sample[suffix] = stream.extractfile(member).read()  # type: ignore[union-attr]
                yield sample

    def shuffled(samples: Any, size_: int) -> Any:
        buffer: list[Any] = []
        for sample in samples:
            buffer.append(sample)
            if len(buffer) >= size_:
                yield buffer.pop(random.randrange(len(buffer)))

    def decode(samples: Any) -> Any:
        for sample in samples:
            image = (
                Image.open(io.BytesIO(sample["jpg"]))
                .convert("RGB")
                .resize((size(160, 32), size(160, 32)))
            )
            pixels = np.asarray(image, np.float32).transpose(2, 0, 1) / 127.5 - 1
            yield torch.from_numpy(pixels), json.loads(sample["json"])["label"]

    def batched(samples: Any, count: int) -> Any:
        while True:
            rows = list(itertools.islice(samples, count))
            yield torch.stack([a for a, _ in rows]), torch.tensor([b for _, b in rows])

    stream = batched(decode(shuffled(expand(itertools.cycle(paths)), 100)), size(64, 4))
    model = torchvision.models.convnext_tiny(num_classes=10).to(dev())
    optimizer = torch.optim.AdamW(model.parameters(), 4e-3, weight_decay=0.05)
    with clock.phase("train"):
        end = clock.now()
        for x, y in stream:
            clock.waited(end, by_hand=True)
            with amp():
                loss = F.cross_entropy(model(x.to(dev())), y.to(dev()), label_smoothing=0.1)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            clock.step()
            end = clock.now()


class Series(Dataset):
    def __len__(self) -> int:
        return size(4000, 80)

    def __getitem__(self, index: int) -> Any:
        t = np.linspace(0, 20, 257, dtype=np.float32) + index
        wave = np.sin(t) + 0.3 * np.sin(5 * t) + np.random.normal(0, 0.1, t.shape)
        return torch.tensor(wave[:-1, None], dtype=torch.float32), torch.tensor(
            wave[1:, None], dtype=torch.float32
        )


def lightning_saves() -> None:
    import lightning.pytorch as pl
    from lightning.pytorch.callbacks import ModelCheckpoint

    class Forecast(pl.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            width = size(1024, 32)
            self.embed = nn.Linear(1, width)
            self.body = nn.TransformerEncoder(
                nn.TransformerEncoderLayer(
                    width, size(16, 4), 4 * width, batch_first=True, norm_first=True
                ),
                size(10, 2),
            )
            self.head = nn.Linear(width, 1)

        def forward(self, x: Any) -> Any:
            return self.head(self.body(self.embed(x)))

        def training_step(self, batch: Any, _: int) -> Any:
            loss = F.mse_loss(self(batch[0]), batch[1])
            self.log("loss", loss)
            return loss

        def validation_step(self, batch: Any, _: int) -> None:
            self.log("val", F.mse_loss(self(batch[0]), batch[1]), prog_bar=True)

        def configure_optimizers(self) -> Any:
            optimizer = torch.optim.AdamW(self.parameters(), 1e-4)
            return [optimizer], [torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 1000)]

    class Timed(ModelCheckpoint):
        def _save_checkpoint(self, trainer: Any, path: str) -> None:
            with clock.phase("saving"):
                super()._save_checkpoint(trainer, path)

    trainer = pl.Trainer(
        max_epochs=-1, accelerator="gpu" if args.device == "cuda" else "cpu", devices=1, precision="bf16-mixed", logger=False,
        enable_progress_bar=False, enable_model_summary=False, num_sanity_val_steps=0, accumulate_grad_batches=4,
        limit_val_batches=40, val_check_interval=size(200, 10), gradient_clip_val=1.0, default_root_dir=args.data,
        callbacks=[lightning_clock(4), Timed(dirpath=args.data / "lightning", every_n_train_steps=size(20, 3), save_top_k=1)],
    )  # fmt: skip
    options: dict[str, Any] = {
        "batch_size": size(16, 4),
        "num_workers": 4,
        "persistent_workers": True,
    }
    trainer.fit(
        Forecast(), DataLoader(Series(), shuffle=True, **options), DataLoader(Series(), **options)
    )


class Pairs(Dataset):
    def __init__(self, count: int) -> None:
        self.count = count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> Any:
        length = int(min(256, max(12, np.random.default_rng(index).lognormal(4.0, 0.7))))
        return np.random.randint(1000, 30000, length).tolist(), index % 2


def pad(rows: list[Any]) -> Any:
    longest = max(len(ids) for ids, _ in rows)
    ids = torch.tensor([a + [0] * (longest - len(a)) for a, _ in rows])
    return {
        "input_ids": ids,
        "attention_mask": (ids != 0).long(),
        "labels": torch.tensor([b for _, b in rows]),
    }


def accelerate_accum() -> None:
    """examples/by_feature/gradient_accumulation.py of accelerate: BERT on sentence pairs."""
    from accelerate import Accelerator
    from transformers import (
        BertConfig,
        BertForSequenceClassification,
        get_linear_schedule_with_warmup,
    )

    accelerator = Accelerator(
        gradient_accumulation_steps=4,
        cpu=args.device == "cpu",
        mixed_precision="bf16" if args.device == "cuda" else "no",
    )
    small: dict[str, Any] = size(
        {},
        {
            "hidden_size": 32,
            "num_hidden_layers": 2,
            "num_attention_heads": 2,
            "intermediate_size": 64,
        },
    )
    model: Any = BertForSequenceClassification(BertConfig(**small))
    optimizer: Any = torch.optim.AdamW(model.parameters(), 2e-5)
    schedule: Any = get_linear_schedule_with_warmup(optimizer, 100, 100000)
    train_loader: Any = DataLoader(
        Pairs(size(3200, 64)), size(16, 4), shuffle=True, collate_fn=pad, num_workers=1
    )
    eval_loader: Any = DataLoader(Pairs(size(800, 16)), size(32, 4), collate_fn=pad)
    model, optimizer, train_loader, eval_loader, schedule = accelerator.prepare(
        model, optimizer, train_loader, eval_loader, schedule
    )
    while True:
        with clock.phase("train"):
            model.train()
            end = clock.now()
            for batch in train_loader:
                clock.waited(end)
                with accelerator.accumulate(model):
                    loss = model(**batch).loss
                    accelerator.backward(loss)
                    optimizer.step()
                    schedule.step()
                    optimizer.zero_grad()
                if accelerator.sync_gradients:
                    clock.step()
                end = clock.now()
        with clock.phase("evaluation"):
            model.eval()
            right = 0
            end = clock.now()
            for batch in eval_loader:
                clock.waited(end)
                with torch.no_grad():
                    outputs = model(**batch)
                predictions, references = accelerator.gather_for_metrics(
                    (outputs.logits.argmax(-1), batch["labels"])
                )
                right += int((predictions == references).sum())
                end = clock.now()
            print("accuracy", right, flush=True)


class Boxes(Dataset):
    def __len__(self) -> int:
        return size(240, 12)

    def __getitem__(self, index: int) -> Any:
        rng = np.random.default_rng(index)
        h, w = rng.integers(size(300, 64), size(700, 96), 2)
        image = torch.from_numpy(rng.random((3, h, w), np.float32))
        count = int(rng.integers(1, 8))
        corner = rng.random((count, 2)) * [w * 0.6, h * 0.6]
        extent = 10 + rng.random((count, 2)) * [w * 0.3, h * 0.3]
        boxes = torch.from_numpy(np.concatenate([corner, corner + extent], 1).astype(np.float32))
        return image, {"boxes": boxes, "labels": torch.from_numpy(rng.integers(1, 20, count))}


def detection() -> None:
    """references/detection of torchvision: lists of images of any size, train_one_epoch and evaluate."""
    import torchvision

    build = size(
        torchvision.models.detection.fasterrcnn_resnet50_fpn,
        torchvision.models.detection.fasterrcnn_mobilenet_v3_large_320_fpn,
    )
    model = build(weights=None, weights_backbone=None, num_classes=21).to(dev())
    optimizer = torch.optim.SGD(
        [p for p in model.parameters() if p.requires_grad], 0.0005, momentum=0.9, weight_decay=1e-4
    )

    def collate(batch: Any) -> Any:
        return tuple(zip(*batch, strict=True))

    loader = DataLoader(Boxes(), size(4, 2), shuffle=True, num_workers=4, collate_fn=collate)
    test = DataLoader(
        torch.utils.data.Subset(Boxes(), range(size(60, 4))), 1, num_workers=4, collate_fn=collate
    )

    def train_one_epoch(epoch: int) -> None:
        model.train()
        end = clock.now()
        for number, (images, targets) in enumerate(loader):
            clock.waited(end)
            images = [image.to(dev()) for image in images]
            targets = [{k: v.to(dev()) for k, v in t.items()} for t in targets]
            losses = model(images, targets)
            total = sum(losses.values())
            value = total.item()
            optimizer.zero_grad()
            total.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            if number % 10 == 0:
                print(f"Epoch: [{epoch}] [{number}/{len(loader)}] loss: {value:.4f}", flush=True)
            clock.step()
            end = clock.now()

    @torch.inference_mode()
    def evaluate() -> None:
        model.eval()
        results = []
        end = clock.now()
        for images, _ in test:
            clock.waited(end)
            if args.device == "cuda":
                torch.cuda.synchronize()
            outputs = model([image.to(dev()) for image in images])
            results += [{k: v.to("cpu") for k, v in t.items()} for t in outputs]
            end = clock.now()
        print("detections", sum(len(one["boxes"]) for one in results), flush=True)

    for epoch in itertools.count():
        with clock.phase("train"):
            train_one_epoch(epoch)
        with clock.phase("evaluation"):
            evaluate()


def timm_ema() -> None:
    import timm
    from timm.data import Mixup
    from timm.loss import SoftTargetCrossEntropy
    from timm.optim import create_optimizer_v2
    from timm.utils import AverageMeter, ModelEmaV2, dispatch_clip_grad

    model = timm.create_model(size("efficientnet_b0", "mobilenetv3_small_050"), num_classes=100).to(
        dev(), memory_format=torch.channels_last
    )
    ema = ModelEmaV2(model, decay=0.9998)
    optimizer = create_optimizer_v2(model, opt="rmsproptf", lr=0.01, weight_decay=1e-5)
    mixup = Mixup(mixup_alpha=0.2, cutmix_alpha=1.0, num_classes=100)
    loss_fn = SoftTargetCrossEntropy()
    side, batch = size(192, 32), size(96, 4)
    stock = torch.randint(0, 255, (batch * 4, 3, side, side), dtype=torch.uint8)

    class Stock(Dataset):
        def __len__(self) -> int:
            return batch * size(50, 5)

        def __getitem__(self, index: int) -> Any:
            return stock[index % len(stock)], index % 100

    def collate(rows: Any) -> Any:
        return torch.stack([a for a, _ in rows]), torch.tensor([b for _, b in rows])

    options: dict[str, Any] = {
        "batch_size": batch,
        "num_workers": 6,
        "collate_fn": collate,
        "pin_memory": args.device == "cuda",
        "persistent_workers": True,
    }
    loader, val = (
        DataLoader(Stock(), shuffle=True, drop_last=True, **options),
        DataLoader(Stock(), **options),
    )

    def to_gpu(x: torch.Tensor) -> torch.Tensor:
        return (
            x.to(dev(), non_blocking=True)
            .float()
            .sub_(127.0)
            .div_(64.0)
            .contiguous(memory_format=torch.channels_last)
        )

    def train_one_epoch() -> None:
        model.train()
        losses = AverageMeter()
        end = clock.now()
        for number, (x, y) in enumerate(loader):
            clock.waited(end)
            x, y = mixup(to_gpu(x), y.to(dev()))
            with amp():
                loss = loss_fn(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            dispatch_clip_grad(model.parameters(), 1.0)
            optimizer.step()
            ema.update(model)
            if number % 25 == 0:
                losses.update(loss.item(), len(x))
                print(f"Train: {number} Loss: {losses.avg:#.3g}", flush=True)
            clock.step()
            end = clock.now()

    def validate(net: nn.Module) -> None:
        net.eval()
        top = AverageMeter()
        with torch.no_grad():
            end = clock.now()
            for x, y in val:
                clock.waited(end)
                with amp():
                    output = net(to_gpu(x))
                top.update((output.argmax(1) == y.to(dev())).float().mean().item(), len(x))
                end = clock.now()

    for epoch in itertools.count():
        with clock.phase("train"):
            train_one_epoch()
        with clock.phase("evaluation"):
            validate(ema.module)
        with clock.phase("saving"):
            state = {
                "epoch": epoch,
                "state_dict": model.state_dict(),
                "optimizer": optimizer.state_dict(),
                "state_dict_ema": ema.module.state_dict(),
            }
            torch.save(state, args.data / "last.pth.tar")


class DiT(nn.Module):
    def __init__(self, width: int, depth: int) -> None:
        super().__init__()
        self.patch, self.out = nn.Conv2d(4, width, 2, 2), nn.Linear(width, 16)
        self.place = nn.Parameter(torch.zeros(1, 256, width))
        self.time = nn.Sequential(nn.Linear(1, width), nn.SiLU(), nn.Linear(width, width))
        layer = nn.TransformerEncoderLayer(
            width, 8, 4 * width, batch_first=True, norm_first=True, activation="gelu", dropout=0.0
        )
        self.blocks = nn.TransformerEncoder(layer, depth)

    def forward(self, x: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
        tokens = (
            self.patch(x).flatten(2).transpose(1, 2) + self.place + self.time(t[:, None])[:, None]
        )
        y = self.out(self.blocks(tokens)).transpose(1, 2)
        return F.fold(y, 32, 2, stride=2)


def flow_pictures() -> None:
    from PIL import Image

    model = DiT(size(512, 32), size(12, 2)).to(dev())
    average = copy.deepcopy(model).requires_grad_(False)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-4, fused=args.device == "cuda")
    latents = torch.randn(size(8192, 64), 4, 32, 32, device=dev())

    @torch.no_grad()
    def draw(steps: int) -> None:
        average.eval()
        x = torch.randn(16, 4, 32, 32, device=dev())
        for i in range(steps):
            t = torch.full((16,), i / steps, device=dev())
            with amp():
                v = average(x, t)
            x = x + v.float() / steps
        grid = ((x[:, :3].clamp(-2, 2) + 2) * 63).byte().cpu().numpy().transpose(0, 2, 3, 1)
        for i, picture in enumerate(grid):
            Image.fromarray(picture).resize((256, 256)).save(args.data / f"sample-{i}.png")

    for step in itertools.count(1):
        with clock.phase("train"):
            x1 = latents[torch.randint(len(latents), (size(64, 4),), device=dev())]
            x0, t = torch.randn_like(x1), torch.rand(len(x1), device=dev())
            w = t[:, None, None, None]
            with amp():
                v = model((1 - w) * x0 + w * x1, t)
                loss = F.mse_loss(v.float(), x1 - x0)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            torch._foreach_lerp_(list(average.parameters()), list(model.parameters()), 0.001)
            if step % 50 == 0:
                print(step, loss.item(), flush=True)
            clock.step()
        if step % size(80, 6) == 0:
            with clock.phase("generation"):
                draw(size(50, 3))


def wgan_gp() -> None:
    w = size(128, 8)
    critic = nn.Sequential(nn.Conv2d(3, w, 4, 2, 1), nn.LeakyReLU(0.2), nn.Conv2d(w, 2 * w, 4, 2, 1), nn.LeakyReLU(0.2),
                           nn.Conv2d(2 * w, 4 * w, 4, 2, 1), nn.LeakyReLU(0.2), nn.Flatten(), nn.Linear(4 * w * 64, 1)).to(dev())  # fmt: skip
    generator = nn.Sequential(nn.Linear(128, 4 * w * 64), nn.Unflatten(1, (4 * w, 8, 8)), nn.BatchNorm2d(4 * w), nn.ReLU(),
                              nn.ConvTranspose2d(4 * w, 2 * w, 4, 2, 1), nn.BatchNorm2d(2 * w), nn.ReLU(),
                              nn.ConvTranspose2d(2 * w, w, 4, 2, 1), nn.BatchNorm2d(w), nn.ReLU(), nn.ConvTranspose2d(w, 3, 4, 2, 1), nn.Tanh()).to(dev())  # fmt: skip
    d_opt, g_opt = (
        torch.optim.Adam(m.parameters(), 1e-4, betas=(0.0, 0.9)) for m in (critic, generator)
    )
    images = torch.rand(size(4096, 64), 3, 64, 64)
    loader = DataLoader(
        torch.utils.data.TensorDataset(images),
        size(64, 4),
        shuffle=True,
        num_workers=2,
        drop_last=True,
    )

    def forever() -> Any:
        while True:
            yield from loader

    def penalty(real: torch.Tensor, fake: torch.Tensor) -> torch.Tensor:
        a = torch.rand(len(real), 1, 1, 1, device=dev())
        mixed = (a * real + (1 - a) * fake).requires_grad_()
        (grad,) = torch.autograd.grad(critic(mixed).sum(), mixed, create_graph=True)
        return ((grad.flatten(1).norm(dim=1) - 1) ** 2).mean()

    data = forever()
    with clock.phase("train"):
        for iteration in itertools.count():
            for _ in range(5):
                end = clock.now()
                (real,) = next(data)
                clock.waited(end)
                real = real.to(dev())
                fake = generator(torch.randn(len(real), 128, device=dev())).detach()
                loss = critic(fake).mean() - critic(real).mean() + 10 * penalty(real, fake)
                d_opt.zero_grad()
                loss.backward()
                d_opt.step()
                clock.step()
            loss = -critic(generator(torch.randn(size(64, 4), 128, device=dev()))).mean()
            g_opt.zero_grad()
            loss.backward()
            g_opt.step()
            clock.step()
            if iteration % 20 == 0:
                print("g", loss.item(), flush=True)


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


def gp() -> None:
    """The library's regression guide: ExactGP, Adam, predictions on a test set every 100 iterations."""
    import gpytorch

    n = size(3000, 50)
    x = torch.rand(n, 4, device=dev())
    y = torch.sin(6 * x.sum(1)) + 0.1 * torch.randn(n, device=dev())
    test = torch.rand(size(2000, 20), 4, device=dev())

    class Model(gpytorch.models.ExactGP):
        def __init__(self, likelihood: Any) -> None:
            super().__init__(x, y, likelihood)
            self.mean_module = gpytorch.means.ConstantMean()
            self.covar_module = gpytorch.kernels.ScaleKernel(
                gpytorch.kernels.MaternKernel(nu=2.5, ard_num_dims=4)
            )

        def forward(self, z: torch.Tensor) -> Any:
            return gpytorch.distributions.MultivariateNormal(
                self.mean_module(z), self.covar_module(z)
            )

    likelihood = gpytorch.likelihoods.GaussianLikelihood().to(dev())
    model = Model(likelihood).to(dev())
    optimizer = torch.optim.Adam(model.parameters(), 0.05)
    mll = gpytorch.mlls.ExactMarginalLogLikelihood(likelihood, model)
    for round_ in itertools.count():
        with clock.phase("train"):
            model.train()
            likelihood.train()
            for _ in range(size(100, 5)):
                optimizer.zero_grad()
                loss = -mll(model(x), y)
                loss.backward()
                optimizer.step()
                clock.step()
            print(round_, loss.item(), flush=True)
        with clock.phase("evaluation"):
            model.eval()
            likelihood.eval()
            with torch.no_grad(), gpytorch.settings.fast_pred_var():
                for piece in test.split(size(250, 10)):
                    predicted = likelihood(model(piece))
                    predicted.confidence_region()[0].cpu()


def seq2seq() -> None:
    """examples/pytorch/translation/run_translation_no_trainer.py: T5, eval by generate, save each time."""
    from transformers import T5Config, T5ForConditionalGeneration

    config: dict[str, Any] = size(
        {"d_model": 512, "d_ff": 2048, "num_layers": 6, "num_heads": 8},
        {"d_model": 32, "d_ff": 64, "num_layers": 2, "num_heads": 2, "d_kv": 16},
    )
    model = T5ForConditionalGeneration(
        T5Config(vocab_size=32128, decoder_start_token_id=0, **config)
    ).to(dev())
    optimizer = torch.optim.AdamW(model.parameters(), 5e-5)

    class Translations(Dataset):
        def __len__(self) -> int:
            return size(3200, 40)

        def __getitem__(self, index: int) -> Any:
            rng = np.random.default_rng(index)
            return rng.integers(2, 32000, rng.integers(10, 100)), rng.integers(
                2, 32000, rng.integers(10, 100)
            )

    def collate(rows: Any) -> Any:
        def padded(parts: Any, fill: int) -> torch.Tensor:
            return nn.utils.rnn.pad_sequence([torch.from_numpy(p) for p in parts], True, fill)

        source = padded([a for a, _ in rows], 0)
        return {
            "input_ids": source,
            "attention_mask": (source != 0).long(),
            "labels": padded([b for _, b in rows], -100),
        }

    loader = DataLoader(
        Translations(), size(32, 4), shuffle=True, collate_fn=collate, num_workers=2
    )
    test = DataLoader(
        torch.utils.data.Subset(Translations(), range(size(96, 8))), size(32, 4), collate_fn=collate
    )
    completed = 0
    while True:
        with clock.phase("train"):
            model.train()
            end = clock.now()
            for batch in loader:
                clock.waited(end)
                batch = {k: v.to(dev()) for k, v in batch.items()}
                with amp():
                    loss = model(**batch).loss
                loss.backward()
                optimizer.step()
                optimizer.zero_grad()
                completed += 1
                clock.step()
                if completed % size(60, 6) == 0:
                    model.eval()
                    with clock.phase("evaluation"), torch.no_grad():
                        end = clock.now()
                        for held in test:
                            clock.waited(end)
                            tokens = model.generate(held["input_ids"].to(dev()), attention_mask=held["attention_mask"].to(dev()),
                                                    max_new_tokens=size(40, 4), num_beams=2, min_new_tokens=size(30, 2)).cpu()  # fmt: skip
                            labels = np.where(
                                held["labels"].numpy() != -100, held["labels"].numpy(), 0
                            )
                            _ = [
                                set(a.tolist()) & set(b.tolist())
                                for a, b in zip(tokens, labels, strict=True)
                            ]
                            end = clock.now()
                    with clock.phase("saving"):
                        torch.save(model.state_dict(), args.data / "t5.bin")
                        torch.save(optimizer.state_dict(), args.data / "t5-optimizer.bin")
                    model.train()
                end = clock.now()


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


def late_eval() -> None:
    """An epoch ends six seconds after the loop is warm; then it is evaluated for four, and goes on."""
    width = size(1024, 32)
    model = nn.Sequential(nn.Linear(256, width), nn.GELU(), *(nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)) for _ in range(6)),
                          nn.Linear(width, 256)).to(dev())  # fmt: skip
    optimizer = torch.optim.AdamW(model.parameters(), 1e-4)
    data = torch.randn(size(65536, 256), 256)
    loader = DataLoader(
        torch.utils.data.TensorDataset(data), size(1024, 32), shuffle=True, num_workers=2
    )

    def step(x: torch.Tensor) -> None:
        loss = F.mse_loss(model(x), x)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    def validate(until: float) -> None:
        model.eval()
        errors = []
        with torch.no_grad():
            while since_ready_s() < until:
                end = clock.now()
                for (x,) in DataLoader(
                    torch.utils.data.TensorDataset(data[: size(16384, 64)]), size(1024, 32)
                ):
                    clock.waited(end)
                    errors.append(F.mse_loss(model(x.to(dev())), x.to(dev())).item())
                    end = clock.now()
        model.train()
        print("val", sum(errors) / len(errors), flush=True)

    evaluated = False
    while True:
        with clock.phase("train"):
            end = clock.now()
            for (x,) in loader:
                clock.waited(end)
                step(x.to(dev()))
                clock.step()
                if not evaluated and since_ready_s() > 6:
                    break
                end = clock.now()
        if not evaluated and since_ready_s() > 6:
            evaluated = True
            with clock.phase("evaluation"):
                validate(10)


def pinn_lbfgs() -> None:
    """Burgers' equation: Adam is not used; each step of L-BFGS evaluates its closure many times."""
    net = nn.Sequential(
        nn.Linear(2, 64),
        nn.Tanh(),
        *(nn.Sequential(nn.Linear(64, 64), nn.Tanh()) for _ in range(5)),
        nn.Linear(64, 1),
    ).to(dev())
    optimizer = torch.optim.LBFGS(net.parameters(), 0.5, max_iter=8, history_size=20)
    inside = torch.rand(size(10000, 100), 2, device=dev(), requires_grad=True)
    begin = torch.rand(size(500, 20), 2, device=dev()) * torch.tensor([1.0, 0.0], device=dev())
    goal = -torch.sin(math.pi * begin[:, :1])

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        u = net(inside)
        (first,) = torch.autograd.grad(u.sum(), inside, create_graph=True)
        (second,) = torch.autograd.grad(first[:, 0].sum(), inside, create_graph=True)
        residual = first[:, 1:] + u * first[:, :1] - 0.003 * second[:, :1]
        loss = residual.square().mean() + (net(begin) - goal).square().mean()
        loss.backward()
        return loss

    with clock.phase("train"):
        for number in itertools.count():
            loss = optimizer.step(closure)
            if number % 20 == 0:
                print("loss", float(loss), flush=True)
                for p in net.parameters():
                    p.data.add_(1e-3 * torch.randn_like(p))
            clock.step()


PROGRAMS = {
    one.__name__: one
    for one in (
        late_loader, late_eval, speech_j0, unet_j2, gusts_j8, thread_queue, tar_pipeline, seq2seq, lightning_saves, accelerate_accum,
        detection, flow_pictures, encode, a2c_pipes, http_generate, timm_ema, sage_in_loop, wgan_gp, gp, pinn_lbfgs,
    )
}  # fmt: skip
