DATA = """
import torch
from torch.utils.data import DataLoader, Dataset, TensorDataset
from torch.utils.data.dataloader import _BaseDataLoaderIter as Base
data = TensorDataset(torch.arange(32.))
original = Base.__next__
"""


def test_a_running_iteration_is_seen_from_its_middle(script):
    marks, left, same, worker = script(
        DATA
        + """
class Slow(Dataset):
    def __len__(self): return 10
    def __getitem__(self, i):
        time.sleep(.01)
        hooked = Base.__dict__["__next__"] is not original
        import gc
        return torch.tensor([i, int(hooked), len(gc.callbacks)])
rows = []; c, n = control(); watched(c)
loader = DataLoader(Slow(), batch_size=1, num_workers=2)
running = iter(loader)
for i, row in enumerate(running):
    if i == 3: c.hook()
    rows.append(row)
first = len(n.of(2))
for row in loader: rows.append(row)  # these workers were forked with the probes in place
c.unhook()
workers = [int(r[0][1]) + int(r[0][2]) for r in rows]
same = Base.__dict__["__next__"] is original
answer([[(m[2] - m[1], m[3], m[4]) for m in n.of(2)], first, same, workers])
"""
    )
    assert left == 7, "six batches and the end of the iteration"
    assert len(marks) == 7 + 11 and same
    assert all("workers=2" in name and "dataset=Slow" in name for _, _, name in marks)
    assert max(wait for wait, _, _ in marks) > 2_000_000
    assert set(worker) == {0}, "a loader worker carries no probe"


def test_evaluation_is_what_happens_between_batches_without_gradients(script):
    evaluation, span, prefetch = script(
        DATA
        + """
m = torch.nn.Linear(1, 1); o = torch.optim.SGD(m.parameters(), lr=.1); m(torch.ones(1)).backward()
c, n = control("steps", "loader"); c.hook()
train = iter(DataLoader(data)); next(train); o.step()
t0 = time.time_ns()
with torch.no_grad():
    for _ in DataLoader(data, batch_size=8): time.sleep(.002)
t1 = time.time_ns()
next(train); o.step()
marks = n.of(8); n.marks.clear()
for _ in range(3):  # a prefetcher that draws with gradients off
    with torch.no_grad(): next(train)
    o.step()
answer([[m[2] - m[1] for m in marks], t1 - t0, len(n.of(8))])
"""
    )
    assert 0.8 * span < sum(evaluation) < 1.2 * span
    assert prefetch == 0


def test_the_trainers_own_exceptions_pass_through(script):
    assert script(
        DATA
        + """
class Bad(Dataset):
    def __len__(self): return 3
    def __getitem__(self, i):
        if i == 1: raise KeyboardInterrupt
        if i == 2: raise ValueError("mine")
        return i
c, n = control("loader"); c.hook(); seen = []
for start in (0, 1, 2):
    try: next(iter(DataLoader(Bad(), sampler=[start])))
    except BaseException as fault: seen.append(type(fault).__name__)
answer([seen, len(n.of(2)), c.fence.faults])
"""
    ) == [["KeyboardInterrupt", "ValueError"], 3, {}]
