"""SAC on a batch of simulated quadrotors: simulator, replay and learner all on one GPU."""

import copy
import itertools
import math

import torch
import torch.nn as nn
import torch.nn.functional as F
from harness import main

# H200. Nets 256 wide, minibatch 1024, fp32. One update (sample, target, critics, actor, temperature, three fused Adams,
#   Polyak, forward and backward): ~235 kernels; 6 updates -> 1400; simulator 4 x 45, acting, replay: 210
# GPU: largest product 1024x256x256 = 0.13 GFLOP, 16-32 blocks on 132 SMs, 6-10 us; the rest 2-3 us -> ~6 ms, all underfilled
# host: 1600 launches at 6-8 us (Python, autograd, dispatch) -> 11 ms. Step about 11 ms, the GPU empty for 40-50 % of it.
# Nothing is read back inside the loop; no copies; the replay is 1 M transitions on the device.
TRUTH = {
    "regime": "overhead",
    "cause": "launch: some 1600 kernels of a few microseconds per step, from 6 small SAC updates and the simulator",
    "advice": ["launch-bound-compile"],
    "not_advice": [
        "dataloader-stall",
        "sync-point",
        "pin-memory",
        "enable-tf32-or-amp",
        "tensor-core-alignment",
        "fused-optimizer",
        "flash-attention",
        "channels-last",
    ],
}

OBS, ACT = 13, 4


class QuadrotorVec:
    """n quadrotors that shall hover at the origin. State: position, velocity, quaternion, body rates."""

    dt, substeps, horizon = 0.01, 4, 250
    mass, gravity, arm, torque_ratio = 0.6, 9.81, 0.15, 0.02

    def __init__(self, n, device):
        self.n, self.device = n, device
        self.inertia = torch.tensor([4e-3, 4e-3, 7e-3], device=device)
        self.state = self.fresh()
        self.age = torch.randint(self.horizon, (n,), device=device)

    def fresh(self):
        s = torch.randn(self.n, OBS, device=self.device) * 0.3
        s[:, 6:10] = F.normalize(s[:, 6:10] * 0.3 + torch.eye(4, device=self.device)[0], dim=-1)
        return s

    def derivatives(self, p, v, q, w, force, torque):
        qw, qx, qy, qz = q.unbind(-1)
        lift = torch.stack(
            [2 * (qx * qz + qw * qy), 2 * (qy * qz - qw * qx), 1 - 2 * (qx * qx + qy * qy)], -1
        )
        acc = lift * (force / self.mass)[:, None] - 0.1 * v
        acc[:, 2] -= self.gravity
        wx, wy, wz = w.unbind(-1)
        dq = 0.5 * torch.stack(
            [
                -qx * wx - qy * wy - qz * wz,
                qw * wx + qy * wz - qz * wy,
                qw * wy - qx * wz + qz * wx,
                qw * wz + qx * wy - qy * wx,
            ],
            -1,
        )
        dw = (torque - torch.linalg.cross(w, self.inertia * w)) / self.inertia
        return acc, dq, dw

    @torch.no_grad()
    def step(self, action):
        thrust = self.mass * self.gravity / 4 * (1 + action)
        a, b, c, d = thrust.unbind(-1)
        force = a + b + c + d
        torque = torch.stack(
            [self.arm * (b - d), self.arm * (c - a), self.torque_ratio * (a - b + c - d)], -1
        )
        p, v, q, w = self.state.split([3, 3, 4, 3], -1)
        for _ in range(self.substeps):
            acc, dq, dw = self.derivatives(p, v, q, w, force, torque)
            v = v + self.dt * acc
            p = p + self.dt * v
            w = (w + self.dt * dw).clamp(-20, 20)
            q = F.normalize(q + self.dt * dq, dim=-1)
        nxt = torch.cat([p, v, q, w], -1)
        distance = p.norm(dim=-1)
        reward = 1 - 0.4 * distance - 0.02 * w.norm(dim=-1) - 0.02 * action.square().sum(-1)
        crashed = distance > 4
        self.age += 1
        over = crashed | (self.age >= self.horizon)
        self.age.masked_fill_(over, 0)
        self.state = torch.where(over[:, None], self.fresh(), nxt)
        return nxt, reward, crashed.float()


class ReplayGPU:
    def __init__(self, capacity, device):
        self.obs = torch.zeros(capacity, OBS, device=device)
        self.nxt = torch.zeros(capacity, OBS, device=device)
        self.act = torch.zeros(capacity, ACT, device=device)
        self.rew = torch.zeros(capacity, device=device)
        self.end = torch.zeros(capacity, device=device)
        self.capacity, self.head, self.size, self.device = capacity, 0, 0, device

    def add(self, obs, act, rew, nxt, end):
        n = len(obs)  # capacity is a multiple of n
        at = slice(self.head, self.head + n)
        self.obs[at], self.act[at], self.rew[at], self.nxt[at], self.end[at] = (
            obs,
            act,
            rew,
            nxt,
            end,
        )
        self.head = (self.head + n) % self.capacity
        self.size = min(self.size + n, self.capacity)

    def sample(self, n):
        k = torch.randint(self.size, (n,), device=self.device)
        return self.obs[k], self.act[k], self.rew[k], self.nxt[k], self.end[k]


def mlp(*sizes):
    layers = []
    for a, b in itertools.pairwise(sizes):
        layers += [nn.Linear(a, b), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


class Actor(nn.Module):
    def __init__(self, hidden):
        super().__init__()
        self.net = mlp(OBS, hidden, hidden, 2 * ACT)

    def forward(self, obs):
        mu, log_std = self.net(obs).chunk(2, -1)
        log_std = -5 + 3.5 * (torch.tanh(log_std) + 1)
        eps = torch.randn_like(mu)
        u = mu + log_std.exp() * eps
        log_prob = -0.5 * eps.square() - log_std - 0.5 * math.log(2 * math.pi)
        log_prob = log_prob - 2 * (math.log(2) - u - F.softplus(-2 * u))
        return torch.tanh(u), log_prob.sum(-1)


class TwinQ(nn.Module):
    def __init__(self, hidden):
        super().__init__()
        self.q1 = mlp(OBS + ACT, hidden, hidden, 1)
        self.q2 = mlp(OBS + ACT, hidden, hidden, 1)

    def forward(self, obs, act):
        x = torch.cat([obs, act], -1)
        return self.q1(x).squeeze(-1), self.q2(x).squeeze(-1)


def build(cfg):
    envs, minibatch, hidden, capacity = cfg.pick((2048, 1024, 256, 1 << 20), (16, 32, 32, 1024))
    updates, gamma, tau, target_entropy = 6, 0.99, 0.005, -float(ACT)
    sim = QuadrotorVec(envs, cfg.device)
    replay = ReplayGPU(capacity, cfg.device)
    actor, critic = Actor(hidden).to(cfg.device), TwinQ(hidden).to(cfg.device)
    target = copy.deepcopy(critic).requires_grad_(False)
    log_alpha = torch.zeros((), device=cfg.device, requires_grad=True)
    opt_actor = torch.optim.Adam(actor.parameters(), lr=3e-4, fused=True)
    opt_critic = torch.optim.Adam(critic.parameters(), lr=3e-4, fused=True)
    opt_alpha = torch.optim.Adam([log_alpha], lr=3e-4, fused=True)
    online, slow = list(critic.parameters()), list(target.parameters())

    def update():
        obs, act, rew, nxt, end = replay.sample(minibatch)
        alpha = log_alpha.detach().exp()
        with torch.no_grad():
            next_act, next_logp = actor(nxt)
            soft_value = torch.min(*target(nxt, next_act)) - alpha * next_logp
            goal = rew + gamma * (1 - end) * soft_value
        q1, q2 = critic(obs, act)
        critic_loss = F.mse_loss(q1, goal) + F.mse_loss(q2, goal)
        opt_critic.zero_grad()
        critic_loss.backward()
        opt_critic.step()

        new_act, logp = actor(obs)
        critic.requires_grad_(False)
        actor_loss = (alpha * logp - torch.min(*critic(obs, new_act))).mean()
        critic.requires_grad_(True)
        opt_actor.zero_grad()
        actor_loss.backward()
        opt_actor.step()

        alpha_loss = -(log_alpha * (logp.detach() + target_entropy)).mean()
        opt_alpha.zero_grad()
        alpha_loss.backward()
        opt_alpha.step()
        with torch.no_grad():
            torch._foreach_lerp_(slow, online, tau)
        return critic_loss.detach()

    def step(i):
        obs = sim.state
        with torch.no_grad():
            act, _ = actor(obs)
        nxt, rew, end = sim.step(act)
        replay.add(obs, act, rew, nxt, end)
        for _ in range(updates):
            loss = update()
        return loss

    return step


if __name__ == "__main__":
    main(__file__, TRUTH, build)
