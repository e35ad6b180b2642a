"""NeRF with coarse and fine networks, after the first public PyTorch ports: plain fp32."""

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from harness import main

# 4096 rays x (64 coarse + 128 fine) = 786 k samples; an 8 x 256 MLP is 0.59 MMAC a sample, so
# 1.19 MFLOP forward and ~3.5 MFLOP in all = 2.75 TFLOP in fp32 on CUDA cores at ~50 = 55 ms.
# Per layer and sample ReLU forward and backward and the bias gradient move ~6 KB: 11 layers
# x 786 k = 52 GB at 4 TB/s = 12 ms; encodings, concatenations, compositing 3 ms. Step ~70 ms,
# 78 % compute; under TF32 the products take ~15 ms (a step of ~30).
TRUTH = {
    "regime": "compute",
    "cause": "the MLPs' products run in true fp32 on CUDA cores: no TF32, no autocast",
    "advice": ["enable-tf32-or-amp"],
    "not_advice": [
        "dataloader-stall",
        "launch-bound-compile",
        "sync-point",
        "channels-last",
        "flash-attention",
        "bigger-batch",
        "fused-optimizer",
        "none-healthy",
    ],
}


class Embedder:
    def __init__(self, num_freqs, device):
        self.freqs = 2.0 ** torch.linspace(0.0, num_freqs - 1, num_freqs, device=device)
        self.out_dim = 3 + 6 * num_freqs

    def __call__(self, x):
        xb = (x[..., None, :] * self.freqs[:, None]).flatten(-2)
        return torch.cat([x, torch.sin(xb), torch.cos(xb)], -1)


class NeRF(nn.Module):
    def __init__(self, D, W, input_ch, input_ch_views, skips=(4,)):
        super().__init__()
        self.skips = skips
        self.pts_linears = nn.ModuleList(
            [nn.Linear(input_ch, W)]
            + [nn.Linear(W + input_ch if j in skips else W, W) for j in range(D - 1)]
        )
        self.views_linear = nn.Linear(W + input_ch_views, W // 2)
        self.feature_linear = nn.Linear(W, W)
        self.alpha_linear = nn.Linear(W, 1)
        self.rgb_linear = nn.Linear(W // 2, 3)

    def forward(self, pts, views):
        h = pts
        for j, layer in enumerate(self.pts_linears):
            h = F.relu(layer(h))
            if j in self.skips:
                h = torch.cat([pts, h], -1)
        alpha = self.alpha_linear(h)
        h = torch.cat([self.feature_linear(h), views], -1)
        h = F.relu(self.views_linear(h))
        return torch.cat([self.rgb_linear(h), alpha], -1)


def raw2outputs(raw, z_vals, rays_d, noise_std):
    dists = z_vals[..., 1:] - z_vals[..., :-1]
    dists = torch.cat([dists, torch.full_like(dists[..., :1], 1e10)], -1)
    dists = dists * rays_d.norm(dim=-1, keepdim=True)
    rgb = torch.sigmoid(raw[..., :3])
    sigma = F.relu(raw[..., 3] + noise_std * torch.randn_like(raw[..., 3]))
    alpha = 1.0 - torch.exp(-sigma * dists)
    trans = torch.cumprod(torch.cat([torch.ones_like(alpha[:, :1]), 1.0 - alpha + 1e-10], -1), -1)[
        :, :-1
    ]
    weights = alpha * trans
    return (weights[..., None] * rgb).sum(-2), weights


def sample_pdf(bins, weights, n):
    weights = weights + 1e-5
    pdf = weights / weights.sum(-1, keepdim=True)
    cdf = torch.cumsum(pdf, -1)
    cdf = torch.cat([torch.zeros_like(cdf[..., :1]), cdf], -1)
    u = torch.rand(*cdf.shape[:-1], n, device=cdf.device)
    inds = torch.searchsorted(cdf, u, right=True)
    below = (inds - 1).clamp(min=0)
    above = inds.clamp(max=cdf.shape[-1] - 1)
    cdf_lo, cdf_hi = torch.gather(cdf, -1, below), torch.gather(cdf, -1, above)
    bin_lo, bin_hi = torch.gather(bins, -1, below), torch.gather(bins, -1, above)
    denom = cdf_hi - cdf_lo
    denom = torch.where(denom < 1e-5, torch.ones_like(denom), denom)
    return bin_lo + (u - cdf_lo) / denom * (bin_hi - bin_lo)


def get_rays(side, focal, n_views, device):
    """Origins and directions of all pixels of cameras on a circle around the object."""
    ii, jj = np.meshgrid(np.arange(side), np.arange(side), indexing="xy")
    dirs = np.stack(
        [(ii - side / 2) / focal, -(jj - side / 2) / focal, -np.ones_like(ii, float)], -1
    )
    rays = []
    for a in np.linspace(0, 2 * np.pi, n_views, endpoint=False):
        rot = np.array([[np.cos(a), 0, np.sin(a)], [0, 1, 0], [-np.sin(a), 0, np.cos(a)]])
        d = (dirs @ rot.T).reshape(-1, 3)
        rays.append(np.stack([np.broadcast_to(rot @ [0, 0, 4.0], d.shape), d], 1))
    return torch.tensor(np.concatenate(rays), dtype=torch.float32, device=device)


def build(cfg):
    device = cfg.device
    N_rand, N_samples, N_importance = cfg.pick((4096, 64, 64), (32, 8, 8))
    D, W = cfg.pick((8, 256), (8, 32))
    side, n_views = cfg.pick((200, 40), (16, 2))
    near, far = 2.0, 6.0

    embed_pts, embed_dirs = Embedder(10, device), Embedder(4, device)
    coarse = NeRF(D, W, embed_pts.out_dim, embed_dirs.out_dim).to(device)
    fine = NeRF(D, W, embed_pts.out_dim, embed_dirs.out_dim).to(device)
    grad_vars = [*coarse.parameters(), *fine.parameters()]
    optimizer = torch.optim.Adam(grad_vars, lr=5e-4, betas=(0.9, 0.999))
    sched = torch.optim.lr_scheduler.ExponentialLR(optimizer, gamma=0.1 ** (1 / 250_000))

    rays = get_rays(side, 1.4 * side, n_views, device)
    colors = torch.rand(len(rays), 3, device=device)
    order = torch.randperm(len(rays), device=device)
    t_vals = torch.linspace(0.0, 1.0, N_samples, device=device)
    psnr = torch.zeros((), device=device)

    def run_network(net, pts, viewdirs):
        dirs = viewdirs[:, None].expand(pts.shape)
        flat = net(embed_pts(pts.reshape(-1, 3)), embed_dirs(dirs.reshape(-1, 3)))
        return flat.view(*pts.shape[:-1], 4)

    def render(rays_o, rays_d):
        viewdirs = F.normalize(rays_d, dim=-1)
        z = (near * (1 - t_vals) + far * t_vals).expand(len(rays_o), N_samples)
        mids = 0.5 * (z[:, 1:] + z[:, :-1])
        upper = torch.cat([mids, z[:, -1:]], -1)
        lower = torch.cat([z[:, :1], mids], -1)
        z = lower + (upper - lower) * torch.rand_like(z)
        pts = rays_o[:, None] + rays_d[:, None] * z[..., None]
        rgb0, weights = raw2outputs(run_network(coarse, pts, viewdirs), z, rays_d, 1.0)
        z_mid = 0.5 * (z[:, 1:] + z[:, :-1])
        z_new = sample_pdf(z_mid, weights[:, 1:-1].detach(), N_importance)
        z, _ = torch.sort(torch.cat([z, z_new], -1), -1)
        pts = rays_o[:, None] + rays_d[:, None] * z[..., None]
        rgb, _ = raw2outputs(run_network(fine, pts, viewdirs), z, rays_d, 1.0)
        return rgb, rgb0

    def step(i):
        at = (i * N_rand) % (len(rays) - N_rand)
        pick = order[at : at + N_rand]
        batch, target = rays[pick], colors[pick]
        rgb, rgb0 = render(batch[:, 0], batch[:, 1])
        loss_fine = F.mse_loss(rgb, target)
        loss = loss_fine + F.mse_loss(rgb0, target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        sched.step()
        psnr.copy_(-10.0 * torch.log10(loss_fine.detach()))
        return loss.detach()

    return step


if __name__ == "__main__":
    main(__file__, TRUTH, build)
