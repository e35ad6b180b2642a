"""latent_ode.py with the forward and backward pass in one CUDA graph."""

import latent_ode
import torch
from harness import main

# One graph launch per step: ~3600 kernels back to back, 2.5-3.5 us each = ~12 ms; still microscopic.
TRUTH = {
    "regime": "overhead",
    "cause": "launch: replayed as one graph; the kernels stay too small to fill the GPU",
    "advice": [],
    "not_advice": [
        *latent_ode.TRUTH["not_advice"],
        "cuda-graphs",
        "sync-point",
    ],
}


def build(cfg):
    model, optimizer, series, times = latent_ode.setup(cfg)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9999)
    static = series[0].clone()

    def forward_backward():
        loss = (model(static, times) - static).square().mean()
        loss.backward()
        return loss.detach()

    if cfg.cuda:
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                optimizer.zero_grad()
                forward_backward()
        torch.cuda.current_stream().wait_stream(side)
        optimizer.zero_grad()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            static_loss = forward_backward()  # the gradients live in the graph's pool

    def step(i):
        static.copy_(series[i % 4])
        if cfg.cuda:
            graph.replay()
            loss = static_loss
        else:
            optimizer.zero_grad()
            loss = forward_backward()
        optimizer.step()
        scheduler.step()
        return loss.clone()

    return step


if __name__ == "__main__":
    main(__file__, TRUTH, build)
