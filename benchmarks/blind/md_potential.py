"""SchNet-like interatomic potential, trained on energies and forces (forces by autograd)."""

import gc
import random

import torch
import torch.nn.functional as F
from harness import main
from torch import nn

# Host: ~0.14 M live Atom/Frame objects of the parsed trajectory + ~0.2 M of the libraries' own; one full
# gc.collect() walks them all, 150-250 ns each (cache misses) = 50-85 ms, every step. Launches: energy, forces
# (create_graph) and double backward ~600 kernels = ~7 ms; 128 Frame objects < 1 ms.
# GPU: 128 x 32 x 32 pairs x 128 fp32 = 67 MB a tensor, ~35 us a pointwise kernel (L2 helps); ~300 such
# kernels and ~40 TF32 GEMMs (131072 x 128 x 128, ~30 us): ~11 ms.
# Step 60-95 ms, GPU busy 12-18 %. Without the collect ~12 ms: -80 %.
TRUTH = {
    "regime": "overhead",
    "cause": "gc: a full gc.collect() every step, for frames and calculators that refer to each other",
    "advice": ["gc-pause"],
    "not_advice": [
        "dataloader-stall",
        "fuse-pointwise",
        "enable-tf32-or-amp",
        "flash-attention",
        "fused-optimizer",
        "pin-memory",
        "sync-point",
        "low-precision-storage",
    ],
}


class Atom:
    def __init__(self, symbol, tag):
        self.symbol = symbol
        self.tag = tag
        self.neighbors = None


class Calculator:
    """Holds the results of one structure and the structure they belong to."""

    def __init__(self, frame, energy, forces):
        self.frame = frame
        self.results = {"energy": energy, "forces": forces}


class Frame:
    def __init__(self, index, atoms):
        self.index = index
        self.atoms = atoms
        self.calc = None


class ShiftedSoftplus(nn.Module):
    def forward(self, x):
        return F.softplus(x) - 0.6931472


class Interaction(nn.Module):
    def __init__(self, n_feat, n_rbf):
        super().__init__()
        self.filter = nn.Sequential(
            nn.Linear(n_rbf, n_feat), ShiftedSoftplus(), nn.Linear(n_feat, n_feat)
        )
        self.to_msg = nn.Linear(n_feat, n_feat, bias=False)
        self.update = nn.Sequential(
            nn.Linear(n_feat, n_feat), ShiftedSoftplus(), nn.Linear(n_feat, n_feat)
        )

    def forward(self, x, rbf, envelope):
        w = self.filter(rbf) * envelope  # (b, n, n, f)
        msg = (w * self.to_msg(x)[:, None, :, :]).sum(2)
        return x + self.update(msg)


class Potential(nn.Module):
    def __init__(self, n_feat, n_rbf, n_layers, cutoff):
        super().__init__()
        self.cutoff = cutoff
        self.species = nn.Embedding(10, n_feat)
        self.layers = nn.ModuleList(Interaction(n_feat, n_rbf) for _ in range(n_layers))
        self.readout = nn.Sequential(
            nn.Linear(n_feat, n_feat // 2), ShiftedSoftplus(), nn.Linear(n_feat // 2, 1)
        )
        self.register_buffer("centers", torch.linspace(0.0, cutoff, n_rbf))
        self.gamma = (n_rbf / cutoff) ** 2

    def forward(self, pos, z, off_diagonal):
        delta = pos[:, :, None, :] - pos[:, None, :, :]
        r = (delta.square().sum(-1, keepdim=True) + 1e-6).sqrt()
        rbf = torch.exp(-self.gamma * (r - self.centers) ** 2)
        ramp = (r / self.cutoff).clamp(max=1.0)
        envelope = 0.5 * (torch.cos(torch.pi * ramp) + 1.0) * off_diagonal
        x = self.species(z)
        for layer in self.layers:
            x = layer(x, rbf, envelope)
        return self.readout(x).sum(dim=(1, 2))


def build(cfg):
    n_frames, n_atoms, batch = cfg.pick((4_000, 32, 128), (200, 6, 4))
    n_feat, n_rbf, n_layers = cfg.pick((128, 32, 3), (16, 8, 2))
    torch.set_float32_matmul_precision("high")
    rng = random.Random(5)
    device = cfg.device

    # The trajectory as the reader left it: one object per atom.
    symbols = ["H", "H", "H", "C", "C", "N", "O"]
    trajectory = [
        Frame(k, [Atom(rng.choice(symbols), j) for j in range(n_atoms)]) for k in range(n_frames)
    ]
    with device:
        grid = torch.stack(
            torch.meshgrid(torch.arange(4.0), torch.arange(4.0), torch.arange(2.0), indexing="ij"),
            -1,
        ).view(-1, 3)[:n_atoms]
        positions = 1.6 * grid + 0.15 * torch.randn(n_frames, n_atoms, 3)
        numbers = torch.randint(1, 10, (n_frames, n_atoms))
        energies = torch.randn(n_frames)
        forces = torch.randn(n_frames, n_atoms, 3)
        off_diagonal = (1.0 - torch.eye(n_atoms)).view(1, n_atoms, n_atoms, 1)
        model = Potential(n_feat, n_rbf, n_layers, cutoff=5.0)
        mae = torch.zeros(2)
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-4, amsgrad=True, fused=True)
    ema = torch.optim.swa_utils.AveragedModel(
        model, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.999)
    )

    def attach(chosen, energy, force):
        """Give every frame of the batch its prediction, ASE fashion."""
        done = []
        for k, e, f in zip(chosen, energy.unbind(0), force.unbind(0)):
            frame = Frame(k, trajectory[k].atoms)
            frame.calc = Calculator(frame, e, f)
            done.append(frame)
        return done

    def step(i):
        first = (i * batch) % (n_frames - batch)
        part = slice(first, first + batch)
        pos = positions[part].clone().requires_grad_(True)
        energy = model(pos, numbers[part], off_diagonal)
        (grad,) = torch.autograd.grad(energy.sum(), pos, create_graph=True)
        loss_e = F.smooth_l1_loss(energy / n_atoms, energies[part])
        loss_f = F.mse_loss(-grad, forces[part])
        loss = 0.05 * loss_e + 0.95 * loss_f
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 10.0)
        optimizer.step()
        ema.update_parameters(model)
        with torch.no_grad():
            mae.lerp_(torch.stack([loss_e.detach(), loss_f.detach()]), 0.02)
        attach(range(first, first + batch), energy.detach(), -grad.detach())
        # Frames and calculators point at each other and keep their tensors alive.
        gc.collect()
        return loss.detach()

    return step


if __name__ == "__main__":
    main(__file__, TRUTH, build)
