def test_a_probe_that_fails_three_times_is_taken_out_and_reported(script):
    losses, faults, frames, off, collections = script(
        """
        import torch
        from torch.optim.optimizer import _global_optimizer_post_hooks as hooks
        c, n = control("steps", "gc"); c.hook()
        def broken(*_): raise ZeroDivisionError("ours")
        n.step = broken
        w = torch.nn.Parameter(torch.ones(2)); o = torch.optim.SGD([w], lr=.1); losses = []
        for i in range(5):
            l = (w * w).sum(); l.backward(); o.step(); losses.append(l.item())
            if i == 2: c._round(time.time_ns())
        import gc; gc.collect()
        c._round(time.time_ns())
        status = [f for f in n.frames if f[0] == 13 and "upkeep_ns" not in f[1]]
        answer([len(losses), c.fence.faults, status, len(hooks), len(n.collections)])
        """
    )
    assert losses == 5 and faults == {"steps": 3} and off == 0
    assert [body["says"][:19] for _, body in frames] == ["the steps probe is "]
    assert "ZeroDivisionError: ours" in frames[0][1]["says"]
    assert collections >= 2, "the others stay"


def test_ten_faults_in_all_switch_the_agent_off(script):
    ended, hooked, calls, says = script(
        """
        import gc
        c, n = control(); before = list(gc.callbacks); c.hook()
        for i in range(10): c.fence.caught(f"place {i // 2}", ValueError("x"))
        c._round(time.time_ns())
        says = [f[1]["says"] for f in n.frames if f[0] == 13 and "says" in f[1]]
        answer([c.ended, gc.callbacks != before, n.calls, says])
        """
    )
    assert ended and not hooked and calls == ["stop"] and "agent is off" in says[-1]


def test_interrupts_of_the_trainer_are_not_held_back(script):
    assert (
        script(
            """
        c, n = control()
        def interrupted(): raise KeyboardInterrupt
        try: c.fence.guard("x", interrupted)()
        except KeyboardInterrupt: answer(c.fence.faults)
        """
        )
        == {}
    )


def test_what_somebody_wrapped_after_us_goes_on_working(script):
    assert script(
        """
        import io, torch
        c, n = control("saving"); c.hook(); ours = torch.save
        def theirs(*a): return ours(*a)
        torch.save = theirs
        c.unhook(); marks = len(n.marks); torch.save({}, io.BytesIO())
        answer([torch.save is theirs, len(n.marks) - marks])
        """
    ) == [True, 0]


def test_losses_are_the_same_bits_with_and_without_probes(script):
    with_probes, without, steps = script(
        """
        import torch
        from torch.utils.data import DataLoader, TensorDataset
        def run(each):
            torch.manual_seed(7)
            nn = torch.nn; model = nn.Sequential(nn.Linear(16, 32), nn.Dropout(.2), nn.Linear(32, 1))
            o = torch.optim.AdamW(model.parameters(), lr=1e-2); losses = []
            data = TensorDataset(torch.randn(256, 16), torch.randn(256, 1))
            for epoch in range(2):
                for x, y in DataLoader(data, batch_size=16, shuffle=True, num_workers=epoch):
                    l = nn.functional.mse_loss(model(x), y)
                    o.zero_grad(); l.backward(); o.step()
                    losses.append(l.item().hex()); each(len(losses))
            return losses
        plain = run(lambda i: None)
        c, n = control(); watched(c)
        def each(i):
            if i % 5 == 1: c.hook()
            c.stacks.sample(time.time_ns())
            if i % 11 == 10: c.unhook()
        answer([run(each), plain, len(n.steps)])
        """
    )
    assert with_probes == without and steps > 20
