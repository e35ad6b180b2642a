"""An edit as a patch: `git apply` takes it, only what it is about changes, what is unsafe is refused."""

import ast
import subprocess

import pytest

from brrrtop.text.patch import CannotEdit, patch

PROGRAM = '''"""Ünïcode before every column."""
import torch
from torch.utils.data import DataLoader


def main(data, held_out, device):
    model = Net().to(device)
    optimizer = torch.optim.AdamW(
        model.parameters(),
        lr=1e-3,  # as published
    )
    train_loader = DataLoader(data, batch_size=64, num_workers=0)
    test_loader = DataLoader(held_out)
    total = 0.0
    for x, y in train_loader:
        x = x.to(device)
        loss = criterion(model(x), y)
        total += loss.item()
        loss.backward()
        optimizer.step()
'''
EDITS = {
    "loader-ready": ["num_workers=15", "persistent_workers=True"],
    "pinned-copies": ["pin_memory=True", "non_blocking=True"],
    "compile": ["model = torch.compile(model)"],
    "compile-reduce-overhead": ['model = torch.compile(model, mode="reduce-overhead")'],
    "channels-last": ["model = model.to(memory_format=torch.channels_last)"],
    "fused-optimizer": ["fused=True"],
    "tf32": ['torch.set_float32_matmul_precision("high")'],
    "bf16": ['    with torch.autocast("cuda", torch.bfloat16):', "            loss = criterion("],
    "no-sync": ["total += loss.detach()"],
}


def test_of_two_loaders_the_one_that_shuffles_is_trained_on():
    two = "a = DataLoader(d, num_workers=4)\nb = DataLoader(e, 8, shuffle=True, num_workers=4)\n"
    made = patch(two, "train.py", "loader-ready", "DataLoader(..., num_workers=16)", near=9)
    assert (
        made.line == 2
        and "+b = DataLoader(e, 8, shuffle=True, num_workers=16, persistent" in made.diff
    )


@pytest.mark.parametrize("edit", EDITS)
def test_git_takes_the_patch_and_only_the_edit_is_in_it(edit, tmp_path):
    made = patch(PROGRAM, "job/train.py", edit, "DataLoader(..., num_workers=15)", near=15)
    file = tmp_path / "job" / "train.py"
    file.parent.mkdir()
    file.write_text(PROGRAM)
    apply = ["git", "apply", "-p0", "-"]
    subprocess.run(apply, input=made.diff, text=True, cwd=tmp_path, check=True)
    changed = file.read_text()
    ast.parse(changed)
    added = [line[1:] for line in made.diff.splitlines()[2:] if line.startswith("+")]
    for words in EDITS[edit]:
        assert any(words in line for line in added), made.diff
    assert len(added) <= 5 and changed.count("held_out)") == 1
    assert made.diff.splitlines()[2].startswith("@@ ")
    assert PROGRAM.splitlines()[made.line - 1] in made.diff


@pytest.mark.parametrize(
    ("edit", "program", "reason"),
    [
        ("loader-ready", "x = 1\n", "no DataLoader"),
        ("loader-ready", "a = DataLoader(d, num_workers=args.workers)\n", "comes from elsewhere"),
        ("loader-ready", "a = DataLoader(d, **options)\n", "come from a dictionary"),
        ("loader-ready", "a = DataLoader(d, 8, True, None, None, 0)\n", "by its place"),
        ("loader-ready", "a = DataLoader(d)\nb = DataLoader(e)\n", "which one waits"),
        (
            "loader-ready",
            "a = DataLoader(d, shuffle=False)\nb = DataLoader(e)\n",
            "which one waits",
        ),
        ("loader-ready", "a = DataLoader((d))\n", "not understood"),
        ("compile", "o = torch.optim.SGD(self.parameters())\nself(x)\n", "used elsewhere"),
        ("compile", "o = torch.optim.SGD(m.parameters())\n", "used elsewhere"),
        ("fused-optimizer", "a = torch.optim.SGD(p, fused=True)\n", "has it already"),
        ("no-sync", "y = x.item()\n", "used as a number"),
        ("bf16", "while 1:\n    if a:\n        y = model(x)\n    loss.backward()\n", "plain"),
        ("double-batch", "x = 1\n", "changes the training"),
        ("tf32", "x = (\n", "cannot parse"),
    ],
)
def test_what_is_not_safe_is_refused_with_the_reason(edit, program, reason):
    with pytest.raises(CannotEdit, match=reason):
        patch(program, "a.py", edit)
