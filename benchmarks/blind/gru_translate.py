"""Seq2seq translation: bidirectional GRU encoder, Bahdanau attention decoder unrolled in Python (tutorial style)."""

import random

import torch
import torch.nn as nn
import torch.nn.functional as F
from harness import main
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence
from torch.utils.data import DataLoader, IterableDataset

# H200, 96 sentences, 32 source and 32 target words, hidden 512, fp32 with TF32 on:
# decoder step: ~22 kernels forward, ~45 backward, of 3 to 6 us (96 x 32 x 512 energies are 6 MB; GEMMs of 96 rows, under one wave):
# 32 x 67 = 2100 launches at ~8 us of host (autograd included) = 17 ms, against 8 ms of kernels, most of them underfilled.
# cuDNN encoder, packed: 2 x 2 x 32 steps of small kernels, 2 to 3 ms, underfilled; head 3072 x 512 x 12000 TF32 0.11 TF = 0.5 ms,
# cross entropy 0.2 ms, Adam 25 M parameters 0.2 ms. Step about 21 ms: idle 45 to 55 %, underfilled 25 %, useful work under 25 %.
TRUTH = {
    "regime": "overhead",
    "cause": "launch: the attention decoder runs word by word in Python, thousands of kernels of a few microseconds",
    "advice": ["launch-bound-compile"],
    "not_advice": [
        "dataloader-stall",
        "sync-point",
        "enable-tf32-or-amp",
        "channels-last",
        "flash-attention",
        "tensor-core-alignment",
        "pin-memory",
        "activation-checkpointing",
    ],
}

PAD, SOS, EOS = 0, 1, 2


class Encoder(nn.Module):
    def __init__(self, vocab, emb, hidden, dropout=0.3):
        super().__init__()
        self.embedding = nn.Embedding(vocab, emb, padding_idx=PAD)
        self.dropout = nn.Dropout(dropout)
        self.gru = nn.GRU(emb, hidden, num_layers=1, bidirectional=True, batch_first=True)
        self.bridge = nn.Linear(2 * hidden, hidden)

    def forward(self, src, lengths):
        packed = pack_padded_sequence(
            self.dropout(self.embedding(src)), lengths, batch_first=True, enforce_sorted=True
        )
        outputs, h = self.gru(packed)
        outputs, _ = pad_packed_sequence(outputs, batch_first=True, total_length=src.shape[1])
        return outputs, torch.tanh(self.bridge(torch.cat([h[0], h[1]], dim=1)))


class BahdanauAttention(nn.Module):
    def __init__(self, hidden):
        super().__init__()
        self.query_layer = nn.Linear(hidden, hidden, bias=False)
        self.key_layer = nn.Linear(2 * hidden, hidden, bias=False)
        self.energy_layer = nn.Linear(hidden, 1, bias=False)

    def forward(self, query, proj_key, value, mask):
        query = self.query_layer(query).unsqueeze(1)
        scores = self.energy_layer(torch.tanh(query + proj_key)).squeeze(2)
        scores = scores.masked_fill(mask, float("-inf"))
        alphas = F.softmax(scores, dim=-1)
        return torch.bmm(alphas.unsqueeze(1), value).squeeze(1)


class Decoder(nn.Module):
    def __init__(self, vocab, emb, hidden, dropout=0.3):
        super().__init__()
        self.embedding = nn.Embedding(vocab, emb, padding_idx=PAD)
        self.attention = BahdanauAttention(hidden)
        self.rnn = nn.GRUCell(emb + 2 * hidden, hidden)
        self.pre_output = nn.Linear(3 * hidden + emb, hidden, bias=False)
        self.dropout = nn.Dropout(dropout)

    def forward_step(self, prev_embed, hidden, proj_key, encoded, mask):
        context = self.attention(hidden, proj_key, encoded, mask)
        hidden = self.rnn(torch.cat([prev_embed, context], dim=1), hidden)
        pre = torch.cat([prev_embed, hidden, context], dim=1)
        return hidden, self.pre_output(self.dropout(pre))

    def forward(self, target, hidden, encoded, mask, word_dropout):
        proj_key = self.attention.key_layer(encoded)
        embedded = self.embedding(target)
        outputs = []
        for t in range(target.shape[1]):
            prev = embedded[:, t]
            if t and random.random() < word_dropout:
                prev = self.dropout(prev)
            hidden, out = self.forward_step(prev, hidden, proj_key, encoded, mask)
            outputs.append(out)
        return torch.stack(outputs, dim=1)


class EncoderDecoder(nn.Module):
    def __init__(self, vocab, emb, hidden):
        super().__init__()
        self.encoder = Encoder(vocab, emb, hidden)
        self.decoder = Decoder(vocab, emb, hidden)
        self.generator = nn.Linear(hidden, vocab, bias=False)

    def forward(self, src, lengths, trg, word_dropout):
        encoded, hidden = self.encoder(src, lengths)
        return self.generator(self.decoder(trg, hidden, encoded, src == PAD, word_dropout))


class Bitext(IterableDataset):
    """Batches bucketed by length, longest sentence first."""

    def __init__(self, vocab, batch, words):
        self.vocab, self.batch, self.words = vocab, batch, words

    def __iter__(self):
        info = torch.utils.data.get_worker_info()
        g = torch.Generator().manual_seed(info.id if info else 0)
        while True:
            lengths = (
                torch.randint(self.words * 3 // 4, self.words + 1, (self.batch,), generator=g)
                .sort(descending=True)
                .values
            )
            lengths[0] = self.words
            src = torch.randint(3, self.vocab, (self.batch, self.words), generator=g)
            src[torch.arange(self.words)[None] >= lengths[:, None]] = PAD
            trg = torch.randint(3, self.vocab, (self.batch, self.words + 1), generator=g)
            trg[:, 0] = SOS
            trg[:, -1] = EOS
            yield src, lengths, trg


def build(cfg):
    torch.set_float32_matmul_precision("high")
    random.seed(0)
    vocab, emb, hidden = cfg.pick((12000, 256, 512), (60, 16, 24))
    batch, words = cfg.pick((96, 32), (4, 6))
    model = EncoderDecoder(vocab, emb, hidden).to(cfg.device)
    for p in model.parameters():
        nn.init.uniform_(p, -0.08, 0.08)
    loader = DataLoader(
        Bitext(vocab, batch, words),
        batch_size=None,
        num_workers=cfg.pick(2, 0),
        pin_memory=cfg.cuda,
    )
    batches = iter(loader)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-4)
    criterion = nn.CrossEntropyLoss(ignore_index=PAD)

    def step(i):
        src, lengths, trg = next(batches)  # the lengths stay on the host, as packing wants them
        src = src.to(cfg.device, non_blocking=True)
        trg = trg.to(cfg.device, non_blocking=True)
        logits = model(src, lengths, trg[:, :-1], word_dropout=0.1)
        loss = criterion(logits.flatten(0, 1), trg[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return loss.detach()

    return step


if __name__ == "__main__":
    main(__file__, TRUTH, build)
