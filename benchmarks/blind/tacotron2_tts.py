"""Tacotron-2-style text-to-speech: conv/BiLSTM encoder, location-sensitive attention, an LSTM decoder
unrolled frame group by frame group under teacher forcing, post-net, stop tokens."""

import torch
from harness import main
from torch import nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

# 72 decoder steps (360 frames, reduction 5), batch 32. One decoder step is about 30 ops forward (two LSTM cells,
# the attention's conv/linears/softmax/bmm, cats, dropouts) and 65 to 70 kernels backward: 7000 launches a step.
# Host: 30 x 10 us x 72 = 22 ms forward, 68 x 6 us x 72 = 29 ms backward, encoder/post-net/optimizer 3 ms: 54 ms.
# GPU: each kernel works on 32 x 512 numbers, 2 to 5 us and a handful of blocks: 20 to 25 ms, all underfilled; real
# work is the post-net (0.3 TFLOP in TF32, 1.5 ms) and adding up the cells' weight gradients (about 1.5 ms).
# So the GPU is idle for about 30 of 54 ms and underfilled most of the rest; work is under 10 %.
TRUTH = {
    "regime": "overhead",
    "cause": "launch: the decoder is unrolled in Python, about 100 tiny kernels per frame group",
    "advice": ["launch-bound-compile"],
    "not_advice": [
        "dataloader-stall",
        "sync-point",
        "enable-tf32-or-amp",
        "flash-attention",
        "pin-memory",
        "tensor-core-alignment",
        "channels-last",
        "host-stall",
    ],
}


class ConvNorm(nn.Sequential):
    def __init__(self, cin, cout, act):
        super().__init__(
            nn.Conv1d(cin, cout, 5, padding=2), nn.BatchNorm1d(cout), act, nn.Dropout(0.1)
        )


class Encoder(nn.Module):
    def __init__(self, symbols, dim):
        super().__init__()
        self.embedding = nn.Embedding(symbols, dim)
        self.convs = nn.Sequential(*[ConvNorm(dim, dim, nn.ReLU()) for _ in range(3)])
        self.lstm = nn.LSTM(dim, dim // 2, batch_first=True, bidirectional=True)

    def forward(self, text, lengths):
        x = self.convs(self.embedding(text).transpose(1, 2)).transpose(1, 2)
        x = pack_padded_sequence(x, lengths, batch_first=True)
        x, _ = self.lstm(x)
        return pad_packed_sequence(x, batch_first=True, total_length=text.size(1))[0]


class LocationAttention(nn.Module):
    def __init__(self, rnn_dim, memory_dim, dim, filters=32, kernel=31):
        super().__init__()
        self.query_layer = nn.Linear(rnn_dim, dim, bias=False)
        self.memory_layer = nn.Linear(memory_dim, dim, bias=False)
        self.location_conv = nn.Conv1d(2, filters, kernel, padding=kernel // 2, bias=False)
        self.location_dense = nn.Linear(filters, dim, bias=False)
        self.v = nn.Linear(dim, 1, bias=False)

    def forward(self, query, memory, processed, weights_cat, mask):
        q = self.query_layer(query.unsqueeze(1))
        loc = self.location_dense(self.location_conv(weights_cat).transpose(1, 2))
        energies = self.v(torch.tanh(q + loc + processed)).squeeze(-1)
        energies = energies.masked_fill(mask, -1e9)
        weights = F.softmax(energies, dim=1)
        return torch.bmm(weights.unsqueeze(1), memory).squeeze(1), weights


class Decoder(nn.Module):
    def __init__(self, mels, reduction, memory_dim, prenet_dim, rnn_dim, att_dim):
        super().__init__()
        self.mels, self.r, self.rnn_dim = mels, reduction, rnn_dim
        self.prenet = nn.ModuleList(
            [nn.Linear(mels * reduction, prenet_dim), nn.Linear(prenet_dim, prenet_dim)]
        )
        self.attention_rnn = nn.LSTMCell(prenet_dim + memory_dim, rnn_dim)
        self.attention = LocationAttention(rnn_dim, memory_dim, att_dim)
        self.decoder_rnn = nn.LSTMCell(rnn_dim + memory_dim, rnn_dim)
        self.to_mel = nn.Linear(rnn_dim + memory_dim, mels * reduction)
        self.to_gate = nn.Linear(rnn_dim + memory_dim, 1)

    def forward(self, memory, mels, mask):
        b, length, _ = memory.shape
        groups = mels.transpose(1, 2).reshape(b, -1, self.mels * self.r)
        inputs = F.pad(groups, (0, 0, 1, 0))[:, :-1].transpose(0, 1)  # shifted by one group
        for layer in self.prenet:
            inputs = F.dropout(F.relu(layer(inputs)), 0.5, training=True)
        processed = self.attention.memory_layer(memory)

        att_h = att_c = dec_h = dec_c = memory.new_zeros(b, self.rnn_dim)
        weights = cumulative = memory.new_zeros(b, length)
        context = memory.new_zeros(b, memory.size(2))
        outputs, gates, alignments = [], [], []
        for x in inputs:
            att_h, att_c = self.attention_rnn(torch.cat((x, context), -1), (att_h, att_c))
            att_h = F.dropout(att_h, 0.1, self.training)
            weights_cat = torch.stack((weights, cumulative), 1)
            context, weights = self.attention(att_h, memory, processed, weights_cat, mask)
            cumulative = cumulative + weights
            dec_h, dec_c = self.decoder_rnn(torch.cat((att_h, context), -1), (dec_h, dec_c))
            dec_h = F.dropout(dec_h, 0.1, self.training)
            hidden = torch.cat((dec_h, context), -1)
            outputs.append(self.to_mel(hidden))
            gates.append(self.to_gate(hidden).squeeze(1))
            alignments.append(weights)
        out = torch.stack(outputs, 1).view(b, -1, self.mels).transpose(1, 2)
        return out, torch.stack(gates, 1), torch.stack(alignments, 1)


class Tacotron2(nn.Module):
    def __init__(self, symbols, mels, reduction, dim, prenet, rnn, att):
        super().__init__()
        self.encoder = Encoder(symbols, dim)
        self.decoder = Decoder(mels, reduction, dim, prenet, rnn, att)
        sizes = [mels, dim, dim, dim, dim]
        self.postnet = nn.Sequential(
            *[ConvNorm(a, b, nn.Tanh()) for a, b in zip(sizes, sizes[1:])],
            nn.Conv1d(dim, mels, 5, padding=2),
        )

    def forward(self, text, lengths, mask, mels):
        coarse, gates, alignments = self.decoder(self.encoder(text, lengths), mels, mask)
        return coarse, coarse + self.postnet(coarse), gates, alignments


def make_batches(cfg, count, batch, chars, frames, mels, reduction, symbols):
    batches = []
    for _ in range(count):
        lengths = torch.randint(chars * 2 // 3, chars + 1, (batch,)).sort(descending=True).values
        lengths[0] = chars
        text = torch.randint(1, symbols, (batch, chars))
        mask = torch.arange(chars)[None] >= lengths[:, None]
        text[mask] = 0
        mel = torch.randn(batch, mels, frames).cumsum(-1).mul_(0.1).clamp_(-4, 4)
        gate = torch.zeros(batch, frames // reduction)
        gate[:, -2:] = 1.0
        tensors = [text, mask, mel, gate]
        if cfg.cuda:
            tensors = [t.pin_memory() for t in tensors]
        batches.append((lengths, *tensors))
    return batches


def build(cfg):
    torch.set_float32_matmul_precision("high")
    torch.backends.cudnn.allow_tf32 = True
    batch, chars, frames, reduction = cfg.pick((32, 120, 360, 5), (2, 12, 20, 5))
    mels, symbols = cfg.pick((80, 148), (8, 20))
    dim, prenet, rnn, att = cfg.pick((512, 256, 512, 128), (16, 8, 16, 8))
    model = Tacotron2(symbols, mels, reduction, dim, prenet, rnn, att).to(cfg.device)
    optimizer = torch.optim.Adam(
        model.parameters(), lr=1e-3, betas=(0.9, 0.999), eps=1e-6, weight_decay=1e-6, fused=cfg.cuda
    )
    warm = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda s: min(1.0, (s + 1) / 4000))
    batches = make_batches(cfg, 4, batch, chars, frames, mels, reduction, symbols)

    def step(i):
        lengths, *rest = batches[i % len(batches)]
        text, mask, mel, gate = (t.to(cfg.device, non_blocking=True) for t in rest)
        coarse, fine, gates, _ = model(text, lengths, mask, mel)
        loss = (
            F.mse_loss(coarse, mel)
            + F.mse_loss(fine, mel)
            + F.binary_cross_entropy_with_logits(gates, gate)
        )
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        warm.step()
        return loss.detach()

    return step


if __name__ == "__main__":
    main(__file__, TRUTH, build)
