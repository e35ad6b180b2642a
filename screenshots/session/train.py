"""Trains a photo classifier from a folder of JPEG files."""

import os
import sys

import torch
from PIL import Image
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset
from torchvision import transforms as T
from torchvision.models import resnet50

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


class Photos(Dataset):
    def __init__(self, root, size):
        self.files = sorted(os.path.join(root, name) for name in os.listdir(root))
        self.transform = T.Compose([T.RandomResizedCrop(size), T.RandomHorizontalFlip(), T.ToTensor()])

    def __len__(self):
        return 1000 * len(self.files)

    def __getitem__(self, i):
        image = Image.open(self.files[i % len(self.files)]).convert("RGB")
        return self.transform(image), i % 100


def main(root, batch, size):
    photos = Photos(root, size)
    loader = DataLoader(photos, batch, shuffle=True, num_workers=2, pin_memory=True)
    model = resnet50(num_classes=100).to(DEVICE, memory_format=torch.channels_last)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    for step, (images, labels) in enumerate(loader):
        images = images.to(DEVICE, non_blocking=True)
        labels = labels.to(DEVICE, non_blocking=True)
        with torch.autocast(DEVICE, torch.bfloat16):
            loss = F.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 100 == 0:
            print(f"step {step} loss {loss.item():.3f}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
