"""Programs over a folder of JPEGs: classification, features, shards, two loaders at once, a GAN, a diffusion model."""

from __future__ import annotations

import io
import itertools
import multiprocessing
import random
import tarfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
import torchvision
import torchvision.transforms as T
from clock import args, clock, lightning_clock, size
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, Dataset, IterableDataset, get_worker_info
from torchvision.datasets import FakeData, ImageFolder

NORMALIZE = T.Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))


def write_jpeg(job: tuple[Path, int]) -> None:
    path, seed = job
    rng = np.random.default_rng(seed)
    coarse = Image.fromarray(rng.integers(0, 255, (12, 16, 3), dtype=np.uint8))
    smooth = np.asarray(coarse.resize((640, 480), Image.Resampling.BICUBIC), dtype=np.int16)
    noisy = np.clip(smooth + rng.integers(-20, 20, smooth.shape), 0, 255).astype(np.uint8)
    Image.fromarray(noisy).save(path, quality=92)


def prepare() -> None:
    """Folders `train` and `val` of ten classes, as ImageNet has them, and the same in shards."""
    root = args.data / (size("jpegs", "tiny"))
    args.train, args.val, args.shards = root / "train", root / "val", root / "shards"
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
    args.shards.mkdir()
    for number in range(8):
        with tarfile.open(args.shards / f"{number:03d}.tar", "w") as shard:
            for path, _ in jobs[number::8]:
                shard.add(path, arcname=f"{path.parent.name[5:]}-{path.name}")
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


def timm_vit() -> None:
    """huggingface/pytorch-image-models, train.py: its loader, its optimizer, validation after each epoch."""
    import timm
    from timm.data import create_dataset, create_loader
    from timm.optim import create_optimizer_v2

    side, batch = size(224, 32), size(128, 8)
    model = timm.create_model(
        size("vit_small_patch16_224", "vit_tiny_patch16_224"),
        num_classes=10,
        img_size=side,
    ).to(device())
    optimizer = create_optimizer_v2(model, opt="adamw", lr=5e-4, weight_decay=0.05)
    options: dict[str, Any] = {"input_size": (3, side, side), "batch_size": batch, "num_workers": 8, "persistent_workers": True,
                               "device": device(), "use_prefetcher": args.device == "cuda"}  # fmt: skip
    loader = create_loader(create_dataset("", root=str(args.train)), is_training=True, **options)
    evaluation = create_loader(create_dataset("", root=str(args.val)), **options)

    def train_one_epoch() -> None:
        model.train()
        end = clock.now()
        for number, (images, target) in enumerate(loader):
            clock.waited(end)
            with torch.autocast(args.device, torch.bfloat16):
                loss = F.cross_entropy(model(images), target)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if number % 10 == 0:
                print(f"Train: {number} Loss: {loss.item():.3g}", flush=True)
            clock.step()
            end = clock.now()

    while True:
        with clock.phase("train"):
            train_one_epoch()
        with clock.phase("evaluation"):
            validate(evaluation, model, nn.CrossEntropyLoss())


class Gusts(IterableDataset):
    """A remote store that answers at once, and for three seconds of every twenty not at all."""

    def __iter__(self) -> Any:
        while True:
            late = 3 - time.monotonic() % 20
            if late > 0:
                time.sleep(late)
            yield (
                torch.randn(16, 3, *size((128, 128), (32, 32))),
                torch.randint(0, 10, (16,)),
            )


def stalls() -> None:
    model = torchvision.models.resnet50(num_classes=10).to(device())
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    loader = DataLoader(Gusts(), batch_size=None, num_workers=6, pin_memory=True)
    with clock.phase("train"):
        end = clock.now()
        for images, target in loader:
            clock.waited(end)
            images = images.to(device(), non_blocking=True)
            loss = F.cross_entropy(model(images), target.to(device(), non_blocking=True))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            clock.step()
            end = clock.now()


class Shards(IterableDataset):
    """Tar files one after the other, mixed in a buffer, as webdataset reads them."""

    def __init__(self, paths: list[Path]) -> None:
        self.paths, self.transform = paths, transform()

    def samples(self) -> Any:
        worker = get_worker_info()
        for path in itertools.cycle(self.paths[worker.id :: worker.num_workers]):
            with tarfile.open(path, "r|") as shard:
                for member in shard:
                    data = shard.extractfile(member)
                    assert data is not None
                    yield data.read(), int(member.name.split("-")[0])

    def __iter__(self) -> Any:
        buffer: list[Any] = []
        for sample in self.samples():
            buffer.append(sample)
            if len(buffer) > (size(100, 8)):
                data, label = buffer.pop(random.randrange(len(buffer)))
                yield self.transform(Image.open(io.BytesIO(data)).convert("RGB")), label


def webdataset() -> None:
    model = torchvision.models.mobilenet_v3_large(num_classes=10).to(device())
    optimizer = torch.optim.RMSprop(model.parameters(), 1e-3, momentum=0.9)
    loader = DataLoader(
        Shards(sorted(args.shards.glob("*.tar"))),
        size(64, 8),
        num_workers=4,
        pin_memory=True,
    )
    batches = iter(loader)
    with clock.phase("train"):
        for step in itertools.count():
            end = clock.now()
            images, target = next(batches)
            clock.waited(end)
            with torch.autocast(args.device, torch.bfloat16):
                loss = F.cross_entropy(model(images.to(device())), target.to(device()))
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            clock.step()
            if step % 20 == 0:
                print(step, loss.item(), flush=True)


def mean_teacher() -> None:
    """Labelled and unlabelled images in turns, a teacher that follows the student, evaluation every 60 steps."""
    model, teacher = (torchvision.models.resnet18(num_classes=10).to(device()) for _ in range(2))
    optimizer = torch.optim.SGD(model.parameters(), 0.03, momentum=0.9, nesterov=True)
    batch = size(32, 4)
    labelled = DataLoader(
        ImageFolder(args.val, transform()), batch, shuffle=True, num_workers=2, drop_last=True
    )
    unlabelled = DataLoader(
        ImageFolder(args.train, transform()), 2 * batch, shuffle=True, num_workers=6, drop_last=True
    )
    test = DataLoader(ImageFolder(args.val, val_transform()), 64, num_workers=4)
    first, second = iter(labelled), iter(unlabelled)
    for step in itertools.count(1):
        with clock.phase("train"):
            model.train()
            end = clock.now()
            try:
                x, y = next(first)
            except StopIteration:
                first = iter(labelled)
                x, y = next(first)
            try:
                u, _ = next(second)
            except StopIteration:
                second = iter(unlabelled)
                u, _ = next(second)
            clock.waited(end)
            x, y, u = x.to(device()), y.to(device()), u.to(device())
            with torch.no_grad():
                target = teacher(u).softmax(1)
            loss = F.cross_entropy(model(x), y) + F.mse_loss(
                model(u + 0.1 * torch.randn_like(u)).softmax(1), target
            )
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            with torch.no_grad():
                for old, new in zip(teacher.parameters(), model.parameters(), strict=True):
                    old.mul_(0.99).add_(new, alpha=0.01)
            clock.step()
        if step % size(60, 4) == 0:
            with clock.phase("evaluation"):
                validate(test, teacher, nn.CrossEntropyLoss())


def gan() -> None:
    """pytorch/examples, dcgan/main.py with --dataset fake: two optimizers, losses printed at each step."""

    def up(i: int, o: int) -> list[nn.Module]:
        return [nn.ConvTranspose2d(i, o, 4, 2, 1, bias=False), nn.BatchNorm2d(o), nn.ReLU(True)]

    def down(i: int, o: int) -> list[nn.Module]:
        return [nn.Conv2d(i, o, 4, 2, 1, bias=False), nn.BatchNorm2d(o), nn.LeakyReLU(0.2, True)]

    g = nn.Sequential(
        nn.ConvTranspose2d(100, 512, 4, 1, 0),
        *up(512, 256),
        *up(256, 128),
        *up(128, 64),
        nn.ConvTranspose2d(64, 3, 4, 2, 1),
        nn.Tanh(),
    )
    d = nn.Sequential(
        nn.Conv2d(3, 64, 4, 2, 1),
        *down(64, 128),
        *down(128, 256),
        *down(256, 512),
        nn.Conv2d(512, 1, 4),
        nn.Flatten(0),
    )
    g, d = g.to(device()), d.to(device())
    g_optimizer, d_optimizer = (
        torch.optim.Adam(m.parameters(), 2e-4, betas=(0.5, 0.999)) for m in (g, d)
    )
    dataset = FakeData(
        size(20000, 200),
        (3, 64, 64),
        transform=T.Compose([T.ToTensor(), T.Normalize(0.5, 0.5)]),
    )
    loader = DataLoader(dataset, size(64, 16), shuffle=True, num_workers=4)
    while True:
        with clock.phase("train"):
            end = clock.now()
            for number, (images, _) in enumerate(loader):
                clock.waited(end)
                real = images.to(device())
                ones = torch.ones(len(real), device=device())
                d.zero_grad()
                error_real = F.binary_cross_entropy_with_logits(d(real), ones)
                error_real.backward()
                fake = g(torch.randn(len(real), 100, 1, 1, device=device()))
                error_fake = F.binary_cross_entropy_with_logits(d(fake.detach()), 0 * ones)
                error_fake.backward()
                d_optimizer.step()
                g.zero_grad()
                error_g = F.binary_cross_entropy_with_logits(d(fake), ones)
                error_g.backward()
                g_optimizer.step()
                print(
                    f"[{number}] {(error_real + error_fake).item():.4f} {error_g.item():.4f}",
                    flush=True,
                )
                clock.step()
                end = clock.now()


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


class Rendered(Dataset):
    """Pictures that a little simulation draws."""

    def __len__(self) -> int:
        return size(6400, 64)

    def __getitem__(self, index: int) -> Any:
        rng = np.random.default_rng(index)
        canvas = np.zeros((64, 64, 3), np.float32)
        for _ in range(40):
            y, x = rng.integers(0, 56, 2)
            canvas[y : y + 8, x : x + 8] += rng.random(3, np.float32)
        return torch.from_numpy(canvas).permute(2, 0, 1), index % 10


def lightning() -> None:
    import lightning.pytorch as pl

    class Network(pl.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.net = torchvision.models.resnet18(num_classes=10)

        def training_step(self, batch: Any, _: int) -> Any:
            images, target = batch
            return F.cross_entropy(self.net(images), target)

        def validation_step(self, batch: Any, _: int) -> None:
            images, target = batch
            self.log("val_loss", F.cross_entropy(self.net(images), target))

        def configure_optimizers(self) -> Any:
            return torch.optim.AdamW(self.parameters(), 1e-3)

    options: dict[str, Any] = {
        "batch_size": size(64, 8),
        "num_workers": 2,
        "persistent_workers": True,
        "pin_memory": True,
    }
    trainer = pl.Trainer(
        max_epochs=-1, accelerator="gpu" if args.device == "cuda" else "cpu", devices=1, precision="bf16-mixed", logger=False,
        enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False, num_sanity_val_steps=0,
        limit_val_batches=0.3, default_root_dir=args.data, callbacks=[lightning_clock()],
    )  # fmt: skip
    trainer.fit(
        Network(),
        DataLoader(Rendered(), shuffle=True, **options),
        DataLoader(Rendered(), **options),
    )


class Block(nn.Module):
    def __init__(self, i: int, o: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.GroupNorm(8, i),
            nn.SiLU(),
            nn.Conv2d(i, o, 3, padding=1),
            nn.GroupNorm(8, o),
            nn.SiLU(),
            nn.Conv2d(o, o, 3, padding=1),
        )
        self.skip = nn.Conv2d(i, o, 1)
        self.time = nn.Linear(1, o)

    def forward(self, x: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
        return self.skip(x) + self.body(x) + self.time(t)[:, :, None, None]


class Unet(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.head, self.tail = nn.Conv2d(3, width, 3, padding=1), nn.Conv2d(width, 3, 3, padding=1)
        self.down = nn.ModuleList(
            [Block(width, 2 * width), Block(2 * width, 4 * width), Block(4 * width, 4 * width)]
        )
        self.up = nn.ModuleList(
            [Block(8 * width, 4 * width), Block(6 * width, 2 * width), Block(3 * width, width)]
        )

    def forward(self, x: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
        x, t = self.head(x), t[:, None].float()
        kept = []
        for block in self.down:
            kept.append(x)
            x = block(F.avg_pool2d(x, 2), t)
        for block, skip in zip(self.up, reversed(kept), strict=True):
            x = F.interpolate(x, scale_factor=2.0)
            x = block(torch.cat([x, skip], 1), t)
        return self.tail(x)


def diffusion() -> None:
    """A denoiser with an average of its weights, and samples drawn from it every 100 steps."""
    model, average = (Unet(size(96, 16)).to(device()) for _ in range(2))
    optimizer = torch.optim.AdamW(model.parameters(), 2e-4)
    loader = DataLoader(
        Rendered(),
        size(64, 8),
        shuffle=True,
        num_workers=8,
        drop_last=True,
        persistent_workers=True,
    )
    noise_left = torch.linspace(0.9999, 0.01, 1000, device=device())

    @torch.no_grad()
    def sample() -> torch.Tensor:
        x = torch.randn(16, 3, 64, 64, device=device())
        for t in range(999, -1, size(-20, -250)):
            noise = average(x, torch.full((16,), t, device=device()))
            x = (x - (1 - noise_left[t]).sqrt() * noise) / noise_left[t].sqrt().clamp(min=0.1)
        return x.cpu()

    step = 0
    while True:
        with clock.phase("train"):
            end = clock.now()
            for images, _ in loader:
                clock.waited(end)
                images = images.to(device())
                t = torch.randint(0, 1000, (len(images),), device=device())
                noise, left = torch.randn_like(images), noise_left[t][:, None, None, None]
                with torch.autocast(args.device, torch.bfloat16):
                    loss = F.mse_loss(
                        model(left.sqrt() * images + (1 - left).sqrt() * noise, t).float(), noise
                    )
                optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                with torch.no_grad():
                    for old, new in zip(average.parameters(), model.parameters(), strict=True):
                        old.lerp_(new, 0.001)
                clock.step()
                step += 1
                if step % size(100, 5) == 0:
                    with clock.phase("generation"):
                        sample()
                end = clock.now()


PROGRAMS = {
    "imagenet_j4": lambda: imagenet("resnet18", 4, 128),
    "resnet50_amp_j8": lambda: imagenet("resnet50", 8, 128, amp=True),
    "timm_vit_j8": timm_vit,
    "resnet18_j0": lambda: imagenet("resnet18", 0, 32, evaluate=False),
    "resnet50_j1": lambda: imagenet("resnet50", 1, 32, evaluate=False),
    "resnet18_slow4": resnet18_slow4,
    "resnet50_j16": lambda: imagenet("resnet50", 16, 128, evaluate=False),
    "stalls": stalls,
    "webdataset": webdataset,
    "mean_teacher": mean_teacher,
    "gan": gan,
    "embeddings": embeddings,
    "lightning": lightning,
    "diffusion": diffusion,
}
