"""distill_vit.py whose report reads 256 tokens back, and only in the steps that need them."""

import distill_vit
from harness import main

# ~8 ms GEMMs and attention, ~5 ms pointwise: tensor-core work leads (narrow student keeps it modest).
TRUTH = {
    "regime": "mixed",
    "cause": "bf16 GEMMs of narrow layers beside their pointwise traffic",
    "advice": [],
    "not_advice": [
        "readback-traffic",
        "sync-point",
        "pin-memory",
        "dataloader-stall",
        "enable-tf32-or-amp",
        "use-bf16",
        "flash-attention",
        "activation-checkpointing",
    ],
}


class LazyReport(distill_vit.SimilarityReport):
    def observe(self, i, student, teacher):
        if i % self.every == self.every - 1:
            rows = [
                (
                    s.detach().flatten(0, 1)[: self.keep].float().cpu(),
                    t.flatten(0, 1)[: self.keep].float().cpu(),
                )
                for s, t in zip(student, teacher)
            ]
            self.history.append([distill_vit.linear_cka(s, t) for s, t in rows])


def build(cfg):
    return distill_vit.build(cfg, LazyReport())


if __name__ == "__main__":
    main(__file__, TRUTH, build)
