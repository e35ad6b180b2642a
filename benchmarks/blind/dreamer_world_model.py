"""DreamerV3-like agent on 64x64 pixels: RSSM world model, actor-critic in imagination, replay on the GPU."""

import torch
import torch.nn.functional as F
from harness import main
from torch import nn

# RSSM, 50 time steps one after another in Python, batch 16: ~45 small ops forward + ~60 backward each = ~5200 launches
#   x ~6.5 us = ~34 ms of host; the kernels have 16 rows, 1 to 5 us each, ~12 ms on the GPU, far below one wave.
# Imagination: 15 steps x ~45 ops on 800 starts, no grad = 700 launches ~4 ms host, ~4 ms GPU.
# Encoder + decoder on 800 frames, TF32: 0.26 TFLOP ~3 ms + pointwise ~2 ms; heads, lambda returns, three optimizers:
#   ~400 launches ~3 ms host. Step ~42 ms; real work ~8 ms, the rest gaps and underfilled kernels: overhead ~75 %.
TRUTH = {
    "regime": "overhead",
    "cause": "launch: the RSSM is unrolled over 50 steps in Python, thousands of kernels of a few us each",
    "advice": ["launch-bound-compile"],
    "not_advice": [
        "dataloader-stall",
        "sync-point",
        "enable-tf32-or-amp",
        "flash-attention",
        "pin-memory",
        "allocation-churn",
        "fused-optimizer",
        "none-healthy",
    ],
}


def symlog(x):
    return torch.sign(x) * torch.log1p(x.abs())


def symexp(x):
    return torch.sign(x) * torch.expm1(x.abs())


class Dense(nn.Module):
    def __init__(self, i, o):
        super().__init__()
        self.lin, self.norm = nn.Linear(i, o, bias=False), nn.LayerNorm(o, eps=1e-3)

    def forward(self, x):
        return F.silu(self.norm(self.lin(x)))


class NormGRU(nn.Module):
    def __init__(self, i, h):
        super().__init__()
        self.lin, self.norm = nn.Linear(i + h, 3 * h, bias=False), nn.LayerNorm(3 * h, eps=1e-3)

    def forward(self, x, h):
        reset, cand, update = self.norm(self.lin(torch.cat([x, h], -1))).chunk(3, -1)
        cand = torch.tanh(torch.sigmoid(reset) * cand)
        update = torch.sigmoid(update - 1)
        return update * cand + (1 - update) * h


class RSSM(nn.Module):
    def __init__(self, embed, actions, deter, hidden, groups, classes):
        super().__init__()
        self.groups, self.classes, self.deter = groups, classes, deter
        self.inp = Dense(groups * classes + actions, hidden)
        self.cell = NormGRU(hidden, deter)
        self.prior = nn.Sequential(Dense(deter, hidden), nn.Linear(hidden, groups * classes))
        self.post = nn.Sequential(Dense(deter + embed, hidden), nn.Linear(hidden, groups * classes))

    def initial(self, n, device):
        return torch.zeros(n, self.deter, device=device), torch.zeros(
            n, self.groups * self.classes, device=device
        )

    def log_probs(self, flat):
        logits = flat.unflatten(-1, (self.groups, self.classes))
        probs = 0.99 * torch.softmax(logits, -1) + 0.01 / self.classes  # unimix
        return torch.log(probs)

    def sample(self, logp):
        gumbel = -torch.log(-torch.log(torch.rand_like(logp).clamp_(1e-6, 1 - 1e-6)))
        index = (logp.detach() + gumbel).argmax(-1, keepdim=True)
        hard = torch.zeros_like(logp).scatter_(-1, index, 1.0)
        probs = logp.exp()
        return (hard + probs - probs.detach()).flatten(-2)  # straight-through

    def img_step(self, h, z, action):
        h = self.cell(self.inp(torch.cat([z, action], -1)), h)
        prior = self.log_probs(self.prior(h))
        return h, prior

    def obs_step(self, h, z, action, embed, first):
        keep = 1.0 - first.unsqueeze(-1)
        h, prior = self.img_step(h * keep, z * keep, action * keep)
        post = self.log_probs(self.post(torch.cat([h, embed], -1)))
        return h, self.sample(post), prior, post

    def observe(self, embed, action, first):
        h, z = self.initial(embed.shape[1], embed.device)
        hs, zs, priors, posts = [], [], [], []
        for t in range(embed.shape[0]):
            h, z, prior, post = self.obs_step(h, z, action[t], embed[t], first[t])
            hs.append(h), zs.append(z), priors.append(prior), posts.append(post)
        return torch.stack(hs), torch.stack(zs), torch.stack(priors), torch.stack(posts)


def categorical_kl(p, q, free=1.0):
    return (p.exp() * (p - q)).sum((-1, -2)).clamp(min=free).mean()


class Replay:
    """Ring buffer of uint8 frames, small enough to stay on the GPU."""

    def __init__(self, size, actions, device):
        self.size, self.device = size, device
        self.image = torch.randint(256, (size, 3, 64, 64), dtype=torch.uint8, device=device)
        self.action = F.one_hot(torch.randint(actions, (size,), device=device), actions).float()
        self.reward = (torch.rand(size, device=device) < 0.02).float()
        self.cont = (torch.rand(size, device=device) > 0.005).float()
        self.first = torch.roll(1 - self.cont, 1)

    def sample(self, batch, length):
        start = torch.randint(self.size - length, (1, batch), device=self.device)
        index = start + torch.arange(length, device=self.device).unsqueeze(1)  # time first
        return {k: getattr(self, k)[index] for k in ("image", "action", "reward", "cont", "first")}


def conv_encoder(c):
    sizes = [3, c, 2 * c, 4 * c, 8 * c]
    layers = []
    for a, b in zip(sizes[:-1], sizes[1:]):
        layers += [nn.Conv2d(a, b, 4, 2, 1), nn.GroupNorm(1, b), nn.SiLU()]
    return nn.Sequential(*layers, nn.Flatten())


def conv_decoder(feat, c):
    sizes = [8 * c, 4 * c, 2 * c, c]
    layers = [nn.Linear(feat, 8 * c * 16), nn.Unflatten(-1, (8 * c, 4, 4))]
    for a, b in zip(sizes[:-1], sizes[1:]):
        layers += [nn.ConvTranspose2d(a, b, 4, 2, 1), nn.GroupNorm(1, b), nn.SiLU()]
    return nn.Sequential(*layers, nn.ConvTranspose2d(c, 3, 4, 2, 1))


def head(feat, hidden, out):
    return nn.Sequential(Dense(feat, hidden), Dense(hidden, hidden), nn.Linear(hidden, out))


def build(cfg):
    torch.set_float32_matmul_precision("high")
    batch, length, horizon = cfg.pick((16, 50, 15), (2, 4, 3))
    deter, hidden, groups, classes, c = cfg.pick((512, 512, 32, 32, 32), (16, 16, 4, 4, 4))
    actions, gamma, lam = 6, 0.997, 0.95
    feat, embed = deter + groups * classes, 8 * c * 16

    with cfg.device:
        encoder, rssm = conv_encoder(c), RSSM(embed, actions, deter, hidden, groups, classes)
        decoder, reward_head, cont_head = (
            conv_decoder(feat, c),
            head(feat, hidden, 1),
            head(feat, hidden, 1),
        )
        actor, critic, slow = (
            head(feat, hidden, actions),
            head(feat, hidden, 1),
            head(feat, hidden, 1),
        )
    world = nn.ModuleList([encoder, rssm, decoder, reward_head, cont_head])
    slow.load_state_dict(critic.state_dict())
    slow.requires_grad_(False)
    replay = Replay(cfg.pick(20_000, 64), actions, cfg.device)
    opt_w = torch.optim.Adam(world.parameters(), lr=1e-4, eps=1e-8, fused=True)
    opt_a = torch.optim.Adam(actor.parameters(), lr=3e-5, eps=1e-5, fused=True)
    opt_c = torch.optim.Adam(critic.parameters(), lr=3e-5, eps=1e-5, fused=True)
    scale = torch.ones((), device=cfg.device)

    def update(opt, params, loss, clip):
        opt.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(params, clip)
        opt.step()

    def train_world(data):
        t, b = data["reward"].shape
        image = data["image"].flatten(0, 1).float() / 255.0
        e = encoder(image - 0.5).view(t, b, -1)
        h, z, prior, post = rssm.observe(e, data["action"], data["first"])
        f = torch.cat([h, z], -1)
        recon = decoder(f.flatten(0, 1))
        loss_img = (recon - image).square().sum((1, 2, 3)).mean()
        loss_rew = (reward_head(f).squeeze(-1) - symlog(data["reward"])).square().mean()
        loss_cont = F.binary_cross_entropy_with_logits(cont_head(f).squeeze(-1), data["cont"])
        loss_dyn, loss_rep = (
            categorical_kl(post.detach(), prior),
            categorical_kl(post, prior.detach()),
        )
        loss = loss_img + loss_rew + loss_cont + 0.5 * loss_dyn + 0.1 * loss_rep
        update(opt_w, world.parameters(), loss, 1000.0)
        return h.detach().flatten(0, 1), z.detach().flatten(0, 1), loss.detach()

    @torch.no_grad()
    def imagine(h, z):
        feats, acts = [torch.cat([h, z], -1)], []
        for _ in range(horizon):
            logits = actor(feats[-1])
            gumbel = -torch.log(-torch.log(torch.rand_like(logits).clamp_(1e-6, 1 - 1e-6)))
            a = torch.zeros_like(logits).scatter_(
                -1, (logits + gumbel).argmax(-1, keepdim=True), 1.0
            )
            h, prior = rssm.img_step(h, z, a)
            z = rssm.sample(prior)
            feats.append(torch.cat([h, z], -1)), acts.append(a)
        return torch.stack(feats), torch.stack(acts)

    def train_behaviour(h, z):
        feats, acts = imagine(h, z)
        with torch.no_grad():
            reward = symexp(reward_head(feats[1:]).squeeze(-1))
            disc = gamma * torch.sigmoid(cont_head(feats[1:]).squeeze(-1))
            value = symexp(slow(feats).squeeze(-1))
            ret, out = value[-1], []
            for t in reversed(range(horizon)):
                ret = reward[t] + disc[t] * ((1 - lam) * value[t + 1] + lam * ret)
                out.append(ret)
            ret = torch.stack(out[::-1])
            ordered = ret.flatten().sort().values
            n = ordered.numel()
            spread = ordered[int(0.95 * (n - 1))] - ordered[int(0.05 * (n - 1))]
            scale.mul_(0.99).add_(spread, alpha=0.01)
            adv = (ret - value[:-1]) / scale.clamp(min=1.0)
            weight = torch.cumprod(torch.cat([torch.ones_like(disc[:1]), disc[:-1]]), 0)
        logp = F.log_softmax(actor(feats[:-1]), -1)
        entropy = -(logp.exp() * logp).sum(-1)
        loss_a = -(weight * ((logp * acts).sum(-1) * adv + 3e-4 * entropy)).mean()
        update(opt_a, actor.parameters(), loss_a, 100.0)
        loss_c = (weight * (critic(feats[:-1]).squeeze(-1) - symlog(ret)).square()).mean()
        update(opt_c, critic.parameters(), loss_c, 100.0)
        with torch.no_grad():
            torch._foreach_lerp_(list(slow.parameters()), list(critic.parameters()), 0.02)

    def step(i):
        h, z, loss = train_world(replay.sample(batch, length))
        train_behaviour(h, z)
        return loss

    return step


if __name__ == "__main__":
    main(__file__, TRUTH, build)
