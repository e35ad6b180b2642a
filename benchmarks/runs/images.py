"""Programs over a folder of JPEGs: classification, and features of a model that is there."""

from __future__ import annotations

import itertools
import multiprocessing
import random
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torchvision
import torchvision.transforms as T
from clock import args, clock, size
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader
from torchvision.datasets import ImageFolder

NORMALIZE = T.Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))


def write_jpeg(job: tuple[Path, int]) -> None:
    path, seed = job
    rng = np.random.default_rng(seed)
    coarse = Image.fromarray(rng.integers(0, 255, (12, 16, 3), dtype=np.uint8))
    smooth = np.asarray(coarse.resize((640, 480), Image.Resampling.BICUBIC), dtype=np.int16)
    noisy = np.clip(smooth + rng.integers(-20, 20, smooth.shape), 0, 255).astype(np.uint8)
    Image.fromarray(noisy).save(path, quality=92)


def prepare() -> None:
    """Folders `train` and `val` of ten classes, as ImageNet has them."""
    root = args.data / (size("jpegs", "tiny"))
    args.train, args.val = root / "train", root / "val"
    if (root / "done").exists():
        return
    jobs = []
    for part, count in (
        (args.train, size(3000, 60)),
        (args.val, size(600, 20)),
    ):
        for index in range(count):
            folder = part / f"class{index % 10}"
            folder.mkdir(parents=True, exist_ok=True)
            jobs.append((folder / f"{index}.jpg", index))
    with multiprocessing.Pool() as pool:
        pool.map(write_jpeg, jobs, chunksize=20)
    (root / "done").touch()


def device() -> torch.device:
    return torch.device(args.device)


def transform() -> T.Compose:
    return T.Compose(
        [T.RandomResizedCrop(size(224, 32)), T.RandomHorizontalFlip(), T.ToTensor(), NORMALIZE]
    )


def val_transform() -> T.Compose:
    side = size(224, 32)
    return T.Compose([T.Resize(side * 8 // 7), T.CenterCrop(side), T.ToTensor(), NORMALIZE])


# pytorch/examples, imagenet/main.py


def train(
    loader: Any, model: nn.Module, criterion: Any, optimizer: Any, amp: bool, epoch: int
) -> None:
    model.train()
    losses = 0.0
    end = clock.now()
    for i, (images, target) in enumerate(loader):
        clock.waited(end)
        images = images.to(device(), non_blocking=True)
        target = target.to(device(), non_blocking=True)
        with torch.autocast(args.device, torch.bfloat16, enabled=amp):
            output = model(images)
            loss = criterion(output, target)
        losses += loss.item()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        clock.step()
        if i % 10 == 0:
            print(
                f"Epoch: [{epoch}][{i + 1}/{len(loader)}] Loss {losses / (i + 1):.4e}", flush=True
            )
        end = clock.now()


@torch.no_grad()
def validate(loader: Any, model: nn.Module, criterion: Any) -> float:
    model.eval()
    right, count = 0.0, 0
    end = clock.now()
    for images, target in loader:
        clock.waited(end)
        images = images.to(device(), non_blocking=True)
        target = target.to(device(), non_blocking=True)
        output = model(images)
        criterion(output, target).item()
        right += (output.argmax(1) == target).float().sum().item()
        count += len(target)
        end = clock.now()
    return right / count


def imagenet(arch: str, workers: int, batch: int, amp: bool = False, evaluate: bool = True) -> None:
    batch = size(batch, 8)
    model = torchvision.models.get_model(arch, num_classes=10).to(device())
    criterion = nn.CrossEntropyLoss().to(device())
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9, weight_decay=1e-4)
    options: dict[str, Any] = {"batch_size": batch, "num_workers": workers, "pin_memory": True}
    train_loader = DataLoader(ImageFolder(args.train, transform()), shuffle=True, **options)
    val_loader = DataLoader(ImageFolder(args.val, val_transform()), **options)
    for epoch in itertools.count():
        with clock.phase("train"):
            train(train_loader, model, criterion, optimizer, amp, epoch)
        if not evaluate:
            continue
        with clock.phase("evaluation"):
            accuracy = validate(val_loader, model, criterion)
        print(f" * Acc@1 {100 * accuracy:.3f}", flush=True)
        with clock.phase("saving"):
            state = {"state_dict": model.state_dict(), "optimizer": optimizer.state_dict()}
            torch.save(state, args.data / f"{args.name}.pth.tar")


class SlowDisk(ImageFolder):
    """A network file system: each read takes its time, and now and then a long time."""

    def __getitem__(self, index: int) -> Any:
        time.sleep(0.004 + 0.01 * random.random() + (1.5 if random.random() < 0.002 else 0))
        return super().__getitem__(index)


def resnet18_slow4() -> None:
    model = torchvision.models.resnet18(num_classes=10).to(device())
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    dataset = SlowDisk(args.train, transform())
    loader = DataLoader(
        dataset,
        size(64, 8),
        shuffle=True,
        num_workers=4,
        pin_memory=True,
        persistent_workers=True,
    )
    for epoch in itertools.count():
        with clock.phase("train"):
            train(loader, model, nn.CrossEntropyLoss(), optimizer, False, epoch)


def embeddings() -> None:
    """Features of a folder, for a search index."""
    model = torchvision.models.resnet50(num_classes=10)
    model.fc = nn.Identity()
    model.eval().to(device())
    loader = DataLoader(
        ImageFolder(args.train, val_transform()),
        size(128, 8),
        num_workers=8,
        pin_memory=True,
    )
    while True:
        features = []
        with clock.phase("inference"), torch.inference_mode():
            end = clock.now()
            for images, _ in loader:
                clock.waited(end)
                features.append(model(images.to(device())).cpu())
                clock.step()
                end = clock.now()
        with clock.phase("saving"):
            np.save(args.data / "features.npy", torch.cat(features).numpy())


PROGRAMS = {
    "imagenet_j4": lambda: imagenet("resnet18", 4, 128),
    "resnet18_slow4": resnet18_slow4,
    "embeddings": embeddings,
}
