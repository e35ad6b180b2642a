OWNER = """
import torch
from torch.autograd.profiler import profile as owner
from torch.profiler import profile, schedule
def work(): return torch.ones(3) + 1
before = dict(vars(owner))
c, n = control("neighbour")
"""


def test_the_agent_yields_before_a_profiler_prepares_and_resumes_after_it(script):
    assert script(
        OWNER
        + """
log = n.calls; early = torch.profiler.profile(); prepare = owner._prepare_trace
def noisy(self): log.append("prepare"); return prepare(self)
owner._prepare_trace = noisy; before = dict(vars(owner))
c.hook(); c.hook()
with early: work()
with torch.autograd.profiler.profile(): work()
c.unhook(); log.append("off")
with profile(): work()
answer([log, dict(vars(owner)) == before])
"""
    ) == [["yield", "prepare", "resume", "yield", "prepare", "resume", "off", "prepare"], True]


def test_a_scheduled_profiler_owns_cupti_from_its_warm_up(script):
    assert script(
        OWNER
        + """
c.hook()
with profile(schedule=schedule(wait=1, warmup=1, active=1, repeat=1)) as p:
    work(); n.calls.append("wait"); p.step()
    work(); n.calls.append("warm-up"); p.step()
    work(); n.calls.append("active"); p.step()
answer(n.calls)
"""
    ) == ["wait", "yield", "warm-up", "active", "resume"]
