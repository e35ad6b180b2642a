"""Layers of graph networks and of networks on points: messages along edges and what becomes of them."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from cases import Case, Pool, Run
from gathers import as_wide, softmax, spread
from science_parts import BF16, FP16, FP32, Part, learnt, listed, mlp, put, seen
from torch import nn
from torch.nn import functional as F


def ends(nodes: int, edges: int, how: str, p: Pool) -> tuple[torch.Tensor, torch.Tensor]:
    """Sources anywhere, targets as `how` has them."""
    return spread("uniform", nodes, edges, p), spread(how, nodes, edges, p)


def summed(x: torch.Tensor, at: torch.Tensor, rows: int) -> torch.Tensor:
    return x.new_zeros(rows, *x.shape[1:]).index_add(0, at, x)


def gcn(nodes: int, fin: int, fout: int, edges: int, how: str, dtype: torch.dtype, p: Pool) -> Run:
    (source, target), (layer,) = (
        ends(nodes, edges, how, p),
        put(p, nn.Linear(p.n(fin), p.n(fout)), dtype=dtype),
    )
    x, weight = p.leaf(nodes, fin, dtype=dtype), p.randn(edges, 1, dtype=dtype)

    def f(x: torch.Tensor) -> torch.Tensor:
        h = layer(x)
        return F.relu(summed(h.index_select(0, source) * weight, target, len(x)) + h)

    return learnt(p, f, x, of=(layer,))


def sage(batch: int, fan: int, fin: int, fout: int, p: Pool) -> Run:
    """Sampled neighbours lie in a row each: a mean over a dimension."""
    here, there = put(p, nn.Linear(p.n(fin), p.n(fout)), nn.Linear(p.n(fin), p.n(fout), bias=False))
    table, near = p.randn(200000, fin), p.index(200000, batch, fan)
    own = near[:, 0]

    def f() -> torch.Tensor:
        return F.normalize(F.relu(here(table[own]) + there(table[near].mean(1))), dim=-1)

    return learnt(p, f, of=(here, there), fast=True)


def sage_pool(nodes: int, width: int, edges: int, p: Pool) -> Run:
    (source, target) = ends(nodes, edges, "zipf", p)
    pool, last = put(p, nn.Linear(p.n(width), p.n(width)), nn.Linear(2 * p.n(width), p.n(width)))

    def f(x: torch.Tensor) -> torch.Tensor:
        h = F.relu(pool(x))[source]
        top = torch.zeros_like(x).scatter_reduce(0, as_wide(target, h), h, "amax")
        return last(torch.cat((x, top), -1))

    return learnt(p, f, p.leaf(nodes, width), of=(pool, last))


def gat(
    nodes: int, fin: int, heads: int, dim: int, edges: int, how: str, second: bool, p: Pool
) -> Run:
    """Graph attention in its first form, or its second with the activation before the product."""
    source, target = ends(nodes, edges, how, p)
    heads, dim = p.n(heads), p.n(dim)
    (layer,) = put(p, nn.Linear(p.n(fin), heads * dim, bias=False))
    a, b = p.leaf(heads, dim), p.leaf(heads, dim)

    def f(x: torch.Tensor, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        h = layer(x).view(-1, heads, dim)
        if second:
            score = (F.leaky_relu(h[source] + h[target], 0.2) * a).sum(-1)
        else:
            score = F.leaky_relu((h * a).sum(-1)[source] + (h * b).sum(-1)[target], 0.2)
        share = softmax(score, target, len(x))
        return F.elu(summed(h[source] * share[..., None], target, len(x)).flatten(1))

    return learnt(p, f, p.leaf(nodes, fin), a, b, of=(layer,))


def gin(nodes: int, width: int, edges: int, cast: torch.dtype | None, p: Pool) -> Run:
    """With bonds embedded, as molecules have it."""
    source, target = ends(nodes, edges, "local", p)
    w, kind = p.n(width), p.index(5, edges)
    bonds, norm = put(p, nn.Embedding(5, w), nn.BatchNorm1d(w))
    net = mlp(p, w, 2 * w, w)

    def f(x: torch.Tensor) -> torch.Tensor:
        return F.relu(norm(net(1.1 * x + summed(F.relu(x[source] + bonds(kind)), target, len(x)))))

    return learnt(p, f, p.leaf(nodes, width), of=(bonds, norm, net), cast=cast)


def pna(nodes: int, width: int, edges: int, p: Pool) -> Run:
    source, target = ends(nodes, edges, "sorted", p)
    w, degree = p.n(width), torch.rand(p.n(nodes), 1, device=p.device) + 0.5
    before, after = put(p, nn.Linear(2 * w, w), nn.Linear(6 * w, w))

    def f(x: torch.Tensor) -> torch.Tensor:
        m = before(torch.cat((x[source], x[target]), -1))
        at, zero = as_wide(target, m), torch.zeros_like(x)
        mean, square, top = (
            zero.scatter_reduce(0, at, y, how, include_self=False)
            for y, how in ((m, "mean"), (m * m, "mean"), (m, "amax"))
        )
        each = torch.cat((mean, (F.relu(square - mean * mean) + 1e-5).sqrt(), top), -1)
        return after(torch.cat((each, each * degree), -1))

    return learnt(p, f, p.leaf(nodes, width), of=(before, after))


def egnn(nodes: int, width: int, edges: int, p: Pool) -> Run:
    source, target = ends(nodes, edges, "runs", p)
    w = p.n(width)
    edge, move = mlp(p, 2 * w + 1, w, w, act=nn.SiLU), mlp(p, w, 1)

    def f(x: torch.Tensor, place: torch.Tensor) -> torch.Tensor:
        apart = place[source] - place[target]
        far = apart.square().sum(-1, keepdim=True)
        m = F.silu(edge(torch.cat((x.index_select(0, source), x.index_select(0, target), far), -1)))
        place = place + summed(apart / (far.sqrt() + 1) * move(m), target, len(x))
        return torch.cat((x + summed(m, target, len(x)), place), -1)

    return learnt(p, f, p.leaf(nodes, width), p.leaf(nodes, 3), of=(edge, move))


def schnet(nodes: int, width: int, edges: int, waves: int, p: Pool) -> Run:
    """Continuous filters of distances."""
    source, target = ends(nodes, edges, "local", p)
    far, centres = p.randn(edges).abs() * 2, torch.linspace(0, 6, p.n(waves), device=p.device)
    filters = mlp(p, p.n(waves), p.n(width), p.n(width), act=nn.Softplus)

    def f(x: torch.Tensor) -> torch.Tensor:
        waves = torch.exp(-10 * (far[:, None] - centres) ** 2)
        cut = 0.5 * (torch.cos(far * math.pi / 6) + 1) * (far < 6)
        m = x.index_select(0, source) * filters(waves) * cut[:, None]
        return F.softplus(summed(m, target, len(x))) - math.log(2)

    return learnt(p, f, p.leaf(nodes, width), of=(filters,))


def edge_network(nodes: int, width: int, edges: int, kinds: int, p: Pool) -> Run:
    """MPNN's matrix an edge, then a GRU."""
    source, target = ends(nodes, edges, "sorted", p)
    w, bond = p.n(width), p.randn(edges, kinds)
    net, (cell,) = mlp(p, p.n(kinds), w * w), put(p, nn.GRUCell(w, w))

    def f(x: torch.Tensor) -> torch.Tensor:
        m = torch.bmm(x[source].unsqueeze(1), net(bond).view(-1, w, w)).squeeze(1)
        return cell(F.relu(summed(m, target, len(x))), x)

    return learnt(p, f, p.leaf(nodes, width), of=(net, cell), fast=True)


def hops(nodes: int, width: int, edges: int, p: Pool) -> Run:
    """Two products with a sparse matrix by its rows, before training."""
    source, target = ends(nodes, edges, "zipf", p)
    many = p.n(nodes)
    value = torch.rand(len(source), device=p.device) / 8
    near = torch.sparse_coo_tensor(torch.stack((target, source)), value, (many, many))
    rows = near.coalesce().to_sparse_csr()
    return seen(lambda x: torch.cat((x, y := rows @ x, rows @ y), -1), p.randn(nodes, width))


def relations(nodes: int, width: int, edges: int, kinds: int, bases: int, p: Pool) -> Run:
    """RGCN by shared bases: transformed first, taken by node and kind."""
    source, target = ends(nodes, edges, "hashed", p)
    kind, share, w = p.index(kinds, edges), p.leaf(kinds, bases), p.leaf(bases, width, width)
    near = torch.rand(len(source), 1, device=p.device)

    def f(x: torch.Tensor, share: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        mixed = torch.einsum("rb,bio->rio", share, w)
        h = torch.einsum("ni,rio->nro", x, mixed)
        return summed(h[source, kind] * near, target, len(x)).relu()

    return learnt(p, f, p.leaf(nodes, width), share, w, fast=True)


def graph_transformer(nodes: int, heads: int, dim: int, edges: int, p: Pool) -> Run:
    """Attention along edges, in fp16 by autocast."""
    source, target = ends(nodes, edges, "sorted", p)
    heads, dim = p.n(heads), p.n(dim)
    w = heads * dim
    three, norm = put(p, nn.Linear(w, 3 * w), nn.LayerNorm(w))
    x = p.like(torch.empty(p.n(nodes), w)).requires_grad_()

    def f(x: torch.Tensor) -> torch.Tensor:
        q, k, v = three(norm(x)).view(-1, 3, heads, dim).unbind(1)
        score = (q.index_select(0, target) * k.index_select(0, source)).sum(-1) / math.sqrt(dim)
        share = softmax(score.float(), target, len(x)).to(v.dtype)
        return x + summed(v.index_select(0, source) * share[..., None], target, len(x)).flatten(1)

    return learnt(p, f, x, of=(three, norm), cast=FP16)


def diff_pool(batch: int, nodes: int, width: int, groups: int, p: Pool) -> Run:
    near = torch.rand(p.shape(batch, nodes, nodes), device=p.device)
    w = p.n(width)
    embed, assign = put(p, nn.Linear(w, w), nn.Linear(w, p.n(groups)))

    def f(x: torch.Tensor) -> torch.Tensor:
        share = assign(near @ x).softmax(-1)
        z = F.relu(embed(near @ x))
        loss = torch.norm(near - share @ share.transpose(1, 2))
        return share.transpose(1, 2) @ z + loss + (share.transpose(1, 2) @ near @ share).mean()

    return learnt(p, f, p.leaf(batch, nodes, width), of=(embed, assign))


def readout(nodes: int, width: int, graphs: int, p: Pool) -> Run:
    """Weighed sum over the nodes of each molecule, a head and its loss with missing labels."""
    at, w = spread("sorted", graphs, nodes, p), p.n(width)
    gate, head = mlp(p, w, w, 1), mlp(p, w, w, 12)
    many = p.n(graphs)
    label, known = p.mask(graphs, 12).float()[:, :1], p.mask(graphs, 1)

    def f(x: torch.Tensor) -> torch.Tensor:
        out = head(summed(x * softmax(gate(x), at, many), at, many))
        loss = F.binary_cross_entropy_with_logits(out, label.expand_as(out), reduction="none")
        return (loss * known).sum() / known.sum()

    return learnt(p, f, p.leaf(nodes, width), of=(gate, head))


def links(nodes: int, width: int, pairs: int, p: Pool) -> Run:
    """True and drawn edges scored by an MLP of products."""
    (a, b), net = ends(nodes, pairs, "zipf", p), mlp(p, p.n(width), p.n(width), 1)

    def f(x: torch.Tensor) -> torch.Tensor:
        drawn = torch.randint_like(b, len(x))
        yes, no = net(x[a] * x[b]), net(x[a] * x[drawn])
        return -(F.logsigmoid(yes) + F.logsigmoid(-no)).mean()

    return learnt(p, f, p.leaf(nodes, width), of=(net,), fast=True)


def mesh_edges(nodes: int, width: int, edges: int, dtype: torch.dtype, p: Pool) -> Run:
    """MeshGraphNet's block of edges."""
    source, target = ends(nodes, edges, "local", p)
    w = p.n(width)
    net, (norm,) = mlp(p, 3 * w, w, w), put(p, nn.LayerNorm(w))

    def f(x: torch.Tensor, e: torch.Tensor) -> torch.Tensor:
        e = e + norm(net(torch.cat((e, x[source], x[target]), -1)))
        return summed(e, target, len(x))

    return learnt(p, f, p.leaf(nodes, width), p.leaf(edges, width), of=(net, norm), cast=dtype)


def triplets(edges: int, width: int, many: int, p: Pool) -> Run:
    """DimeNet's messages by angles."""
    source, target = spread("local", edges, many, p), spread("sorted", edges, many, p)
    w, angle = p.leaf(width, 8, width), p.randn(many)
    turn = put(p, nn.Linear(8, 8, bias=False))[0]

    def f(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        basis = turn(torch.cos(angle[:, None] * torch.arange(8, device=x.device)))
        m = torch.einsum("wj,wl,ijl->wi", basis, x[source], w)
        return summed(m, target, len(x))

    return learnt(p, f, p.leaf(edges, width), w, of=(turn,), fast=True)


def painn(nodes: int, width: int, edges: int, p: Pool) -> Run:
    """Scalars and vectors of atoms."""
    source, target = ends(nodes, edges, "local", p)
    w, way, waves = p.n(width), F.normalize(p.randn(edges, 3, 1), dim=1), p.randn(edges, 3, width)
    net = mlp(p, w, w, 3 * w, act=nn.SiLU)

    def f(s: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        a, b, c = (net(s)[source].view(-1, 3, w) * waves).unbind(1)
        v = v + summed(v[source] * a[:, None] + way * b[:, None], target, len(s))
        return torch.cat((v, (s + summed(c, target, len(s)))[:, None]), 1)

    return learnt(p, f, p.leaf(nodes, width), p.leaf(nodes, 3, width), of=(net,))


def tensor_product(edges: int, width: int, left: int, right: int, out: int, p: Pool) -> Run:
    """NequIP's: features by spherical harmonics, weighed a channel."""
    mixing = torch.randn(left, right, out, device=p.device)

    def f(x: torch.Tensor, y: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return torch.einsum("eci,ej,ijk,ec->eck", x, y, mixing, w)

    return learnt(p, f, p.leaf(edges, width, left), p.leaf(edges, right), p.leaf(edges, width))


def edge_conv(
    batch: int, points: int, width: int, near: int, cast: torch.dtype | None, p: Pool
) -> Run:
    """DGCNN: neighbours anew in each layer."""
    w, k = p.n(width), p.n(near)
    (conv,) = put(p, nn.Conv2d(2 * w, 64, 1, bias=False))
    norm = put(p, nn.BatchNorm2d(64))[0]

    def f(x: torch.Tensor) -> torch.Tensor:
        square = x.square().sum(-1)
        far = square[:, :, None] - 2 * x @ x.transpose(1, 2) + square[:, None]
        at = far.topk(k, -1, largest=False).indices
        y = x[torch.arange(len(x), device=x.device)[:, None, None], at]
        both = torch.cat((y - x[:, :, None], x[:, :, None].expand_as(y)), -1)
        return F.leaky_relu(norm(conv(both.permute(0, 3, 1, 2))), 0.2).amax(-1)

    return learnt(p, f, p.leaf(batch, points, width), of=(conv, norm), cast=cast)


def triples(rows: int, width: int, batch: int, others: int, p: Pool) -> Run:
    """RotatE against drawn tails."""
    table, turn = p.leaf(rows, 2 * width), p.leaf(1000, width)
    head, kind, tail = p.index(rows, batch), p.index(1000, batch), p.index(rows, batch, others)
    half = table.shape[1] // 2
    turn = turn[:, :half].detach().requires_grad_()

    def f(table: torch.Tensor, turn: torch.Tensor) -> torch.Tensor:
        re, im = F.embedding(head, table).chunk(2, -1)
        angle = F.embedding(kind, turn)
        re, im = re * angle.cos() - im * angle.sin(), re * angle.sin() + im * angle.cos()
        there = F.embedding(tail, table)
        away = torch.stack((re[:, None] - there[..., :half], im[:, None] - there[..., half:]))
        score = 12 - away.norm(dim=0).sum(-1)
        return -F.logsigmoid(-score).mean(-1)

    return learnt(p, f, table, turn)


def light_gcn(users: int, items: int, width: int, edges: int, batch: int, p: Pool) -> Run:
    """One hop over users and items and the ranks of pairs."""
    u, i = spread("zipf", users, edges, p), spread("hashed", items, edges, p)
    share = torch.rand(len(u), 1, device=p.device)
    a, b, c = p.index(users, batch), p.index(items, batch), p.index(items, batch)

    def f(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        xs = (x + summed(y[i] * share, u, len(x))) / 2
        ys = (y + summed(x[u] * share, i, len(y))) / 2
        return -F.logsigmoid((xs[a] * (ys[b] - ys[c])).sum(-1)).mean()

    return learnt(p, f, p.leaf(users, width), p.leaf(items, width))


PARTS: tuple[Part, ...] = (
    (gcn, (169343, 128, 128, 1166243, "sorted", FP32)), (gcn, (2708, 1433, 16, 13264, "uniform", FP32)),
    (gcn, (89250, 500, 256, 450000, "zipf", BF16)), (sage, (1024, 25, 100, 256)),
    (sage, (8192, 10, 256, 47)), (sage_pool, (50000, 128, 300000)),
    (gat, (2708, 1433, 8, 8, 13264, "sorted", False)), (gat, (8000, 50, 4, 256, 60000, "zipf", False)),
    (gat, (30000, 128, 8, 16, 600000, "uniform", True)), (gin, (13000, 300, 28000, None)),
    (gin, (130000, 300, 280000, FP16)), (pna, (23000, 80, 50000)),
    (egnn, (9216, 128, 160000)), (schnet, (36000, 128, 400000, 50)), (schnet, (1344, 64, 27000, 25)),
    (edge_network, (2300, 64, 4700, 5)), (hops, (400000, 100, 2000000)), (relations, (14541, 100, 272115, 24, 5)),
    (graph_transformer, (60000, 8, 16, 700000)), (diff_pool, (64, 150, 64, 38)), (readout, (131000, 256, 5120)),
    (links, (576289, 64, 65536)), (mesh_edges, (15000, 128, 90000, None)), (mesh_edges, (40962, 512, 80000, BF16)),
    (triplets, (60000, 64, 200000)), (painn, (3000, 128, 60000)), (tensor_product, (60000, 32, 3, 5, 3)),
    (tensor_product, (24000, 64, 5, 5, 7)), (edge_conv, (32, 1024, 3, 20, None)), (edge_conv, (8, 2048, 64, 20, FP16)),
    (triples, (14541, 500, 512, 128)), (light_gcn, (52643, 91599, 64, 1000000, 8192)),
)  # fmt: skip


def cases() -> Iterator[Case]:
    yield from listed(PARTS)
