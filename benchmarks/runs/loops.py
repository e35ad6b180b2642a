"""Programs whose data is not a file: games, tensors that lie on the GPU."""

from __future__ import annotations

import itertools
import math
import random
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from clock import args, clock, size
from torch import nn


def prepare() -> None:
    """Nothing is read."""


class CartPole:
    """The environment of every tutorial, in Python."""

    def reset(self) -> list[float]:
        self.state, self.age = [random.uniform(-0.05, 0.05) for _ in range(4)], 0
        return self.state

    def step(self, action: int) -> tuple[list[float], float, bool]:
        x, v, angle, spin = self.state
        push, sine, cosine = (10.0 if action else -10.0), math.sin(angle), math.cos(angle)
        drive = (push + 0.05 * spin * spin * sine) / 1.1
        turn = (9.8 * sine - cosine * drive) / (0.5 * (4 / 3 - 0.1 * cosine * cosine / 1.1))
        gain = drive - 0.05 * turn * cosine / 1.1
        self.state = [x + 0.02 * v, v + 0.02 * gain, angle + 0.02 * spin, spin + 0.02 * turn]
        self.age += 1
        done = abs(self.state[0]) > 2.4 or abs(self.state[2]) > 0.2095 or self.age >= 500
        return self.state, 1.0, done


def ppo() -> None:
    """vwxyzjn/cleanrl, ppo.py: a rollout of many environments on the CPU, then epochs of minibatches."""
    count, length = size(64, 4), size(128, 8)
    environments = [CartPole() for _ in range(count)]
    actor = nn.Sequential(
        nn.Linear(4, 256), nn.Tanh(), nn.Linear(256, 256), nn.Tanh(), nn.Linear(256, 2)
    ).to(args.device)
    critic = nn.Sequential(
        nn.Linear(4, 256), nn.Tanh(), nn.Linear(256, 256), nn.Tanh(), nn.Linear(256, 1)
    ).to(args.device)
    optimizer = torch.optim.Adam([*actor.parameters(), *critic.parameters()], 2.5e-4, eps=1e-5)
    observed = torch.tensor([one.reset() for one in environments], device=args.device)

    def collect(observed: torch.Tensor) -> Any:
        rows = []
        for _ in range(length):
            with torch.no_grad():
                chances = torch.distributions.Categorical(logits=actor(observed))
                actions = chances.sample()
                rows.append(
                    [observed, actions, chances.log_prob(actions), critic(observed).flatten()]
                )
            unique_nodes, rewards, ends = [], [], []
            for one, action in zip(environments, actions.cpu().numpy(), strict=True):
                state, reward, done = one.step(int(action))
                unique_nodes.append(one.reset() if done else state)
                rewards.append(reward)
                ends.append(float(done))
            observed = torch.tensor(unique_nodes, device=args.device)
            rows[-1] += [
                torch.tensor(rewards, device=args.device),
                torch.tensor(ends, device=args.device),
            ]
        return [torch.stack(column) for column in zip(*rows, strict=True)], observed

    def advantages(rewards: torch.Tensor, ends: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
        gains, last = torch.zeros_like(rewards), torch.zeros(count, device=args.device)
        for t in range(length - 2, -1, -1):
            delta = rewards[t] + 0.99 * values[t + 1] * (1 - ends[t]) - values[t]
            gains[t] = last = delta + 0.99 * 0.95 * (1 - ends[t]) * last
        return gains

    while True:
        with clock.phase("rollout"):
            (states, actions, chances, values, rewards, ends), observed = collect(observed)
        with clock.phase("train"):
            gains = advantages(rewards, ends, values)
            goals, flat = (gains + values).flatten(), gains.flatten()
            for _ in range(4):
                for index in torch.randperm(count * length, device=args.device).chunk(4):
                    now = torch.distributions.Categorical(logits=actor(states.flatten(0, 1)[index]))
                    ratio = (
                        now.log_prob(actions.flatten()[index]) - chances.flatten()[index]
                    ).exp()
                    gain = (flat[index] - flat[index].mean()) / (flat[index].std() + 1e-8)
                    loss = (
                        torch.max(-gain * ratio, -gain * ratio.clamp(0.8, 1.2)).mean()
                        - 0.01 * now.entropy().mean()
                    )
                    loss = (
                        loss
                        + 0.5
                        * (critic(states.flatten(0, 1)[index]).flatten() - goals[index])
                        .square()
                        .mean()
                    )
                    optimizer.zero_grad()
                    loss.backward()
                    nn.utils.clip_grad_norm_(actor.parameters(), 0.5)
                    optimizer.step()
                    clock.step()
            print("return", float(goals.mean()), flush=True)


def item_eval() -> None:
    """A loss that is read back and logged at each step, and a test set that needs no loader."""
    width = size(2048, 32)
    model = nn.Sequential(
        nn.Linear(512, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 100)
    ).to(args.device)
    optimizer = torch.optim.SGD(model.parameters(), 0.01, momentum=0.9)
    x, y = (
        torch.randn(size(200_000, 600), 512, device=args.device),
        torch.randint(0, 100, (size(200_000, 600),), device=args.device),
    )
    history = []

    def evaluate() -> float:
        model.eval()
        losses, hits = [], []
        with torch.no_grad():
            for i in range(0, len(x), 500):
                output = model(x[i : i + 500])
                losses.append(F.cross_entropy(output, y[i : i + 500]).item())
                hits.append(
                    (output.topk(5).indices == y[i : i + 500, None]).any(1).float().mean().item()
                )
        model.train()
        return float(np.mean(hits))

    for step in itertools.count(1):
        with clock.phase("train"):
            index = torch.randint(0, len(x), (512,), device=args.device)
            loss = F.cross_entropy(model(x[index]), y[index])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            history.append(
                {"step": step, "loss": loss.item(), "norm": float(model[0].weight.norm())}
            )
            clock.step()
        if step % 800 == 0:
            with clock.phase("evaluation"):
                print(step, history[-1], evaluate(), flush=True)


PROGRAMS = {"ppo": ppo, "item_eval": item_eval}
