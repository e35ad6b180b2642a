"""A word-level LSTM language model that saves a whole checkpoint every eight steps."""

# Arithmetic (H200), step without saving: 96 x 128 = 12288 words, head 1024 x 20000: 1.5 TFLOP 2.6 ms, its
# loss 8 GB 2.1 ms, cuDNN LSTM 2 x 1024: input GEMMs 2 ms, 128 recurrent steps 7 ms, rest 1 ms: 15 ms.
# Checkpoint: 37M parameters in fp32 with both Adam moments 448 MB: pageable device-to-host copy 0.1 s, zip
# writer with checksums at about 1 GB/s 0.45 s: 0.55 s every 8 steps = 69 ms a step.
# Sum about 84 ms a step on average; the GPU is idle 80 % of it.

import shutil
import tempfile
from pathlib import Path

import torch
import torch.nn as nn
import torch.nn.functional as F
from harness import main

TRUTH = {
    "regime": "overhead",
    "cause": "checkpoint: torch.save of model and optimizer every eight steps in the training loop",
    "advice": ["checkpoint-stall"],
    "not_advice": [
        "dataloader-stall",
        "launch-bound-compile",
        "enable-tf32-or-amp",
        "channels-last",
        "flash-attention",
        "tensor-core-alignment",
        "fused-optimizer",
        "pin-memory",
    ],
}

EVERY = 8


class LockedDropout(nn.Module):
    """One dropout mask for all time steps."""

    def __init__(self, p):
        super().__init__()
        self.p = p

    def forward(self, x):
        mask = torch.empty(x.size(0), 1, x.size(2), device=x.device).bernoulli_(1 - self.p)
        return x * (mask / (1 - self.p)).to(x.dtype)


class RNNModel(nn.Module):
    def __init__(self, ntoken, nhid, nlayers):
        super().__init__()
        self.encoder = nn.Embedding(ntoken, nhid)
        nn.init.uniform_(self.encoder.weight, -0.1, 0.1)
        self.lockdrop = LockedDropout(0.3)
        self.rnn = nn.LSTM(nhid, nhid, nlayers, batch_first=True)
        self.decoder = nn.Linear(nhid, ntoken)
        self.decoder.weight = self.encoder.weight

    def forward(self, words, hidden):
        x = self.lockdrop(self.encoder(words))
        hidden = tuple(h.to(x.dtype) for h in hidden)  # autocast returned it in half precision
        output, hidden = self.rnn(x, hidden)
        return self.decoder(self.lockdrop(output)), hidden


def build(cfg, every=EVERY):
    ntoken, nhid, nlayers = cfg.pick((20000, 1024, 2), (100, 16, 2))
    bsz, bptt = cfg.pick((96, 128), (4, 8))
    model = RNNModel(ntoken, nhid, nlayers).to(cfg.device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=1.2e-6, fused=True)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2000, 0.5)
    corpus = torch.randint(ntoken, (bsz, 8 * bptt + 1)).to(cfg.device)
    blank = torch.zeros(nlayers, bsz, nhid, device=cfg.device)
    run = {"hidden": (blank, blank)}
    folder = Path(tempfile.mkdtemp(prefix="lstm_lm_"))
    cfg.at_exit(lambda: shutil.rmtree(folder, ignore_errors=True))

    def save_checkpoint(i):
        path = folder / "last.pt.new"
        state = {
            "step": i,
            "model": model.state_dict(),
            "optimizer": optimizer.state_dict(),
            "scheduler": scheduler.state_dict(),
        }
        torch.save(state, path)
        path.replace(folder / "last.pt")

    def step(i):
        at = (i % 8) * bptt
        words, targets = corpus[:, at : at + bptt], corpus[:, at + 1 : at + bptt + 1]
        hidden = tuple(h.detach() for h in run["hidden"])
        with cfg.amp():
            logits, run["hidden"] = model(words, hidden)
            loss = F.cross_entropy(logits.flatten(0, 1), targets.flatten())
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.25)
        optimizer.step()
        scheduler.step()
        if (i + 1) % every == 0:
            save_checkpoint(i)
        return loss.detach()

    return step


# Eight steps hold exactly one checkpoint.
RECORDING = {"timed_steps": 32, "active_steps": 8}

if __name__ == "__main__":
    main(__file__, TRUTH, build, **RECORDING)
