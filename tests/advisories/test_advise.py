"""Advice as a whole: its order, what silences it, and words that follow from the window."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from brrrtop.advisories.advise import Advice, advise, leading, rank
from brrrtop.advisories.context import context_of
from brrrtop.analysis.facts.stack_samples import place
from brrrtop.model.advice import Advisory, WhatIf
from brrrtop.session.analyze import analyze
from brrrtop.sources.registry import open_source
from brrrtop.views.whatif import speeds
from collectors.vocabulary import MarkClass

from .cases import large, looped, memory, small
from .scenarios import ADD, FUSED_ADAM, GEFORCE, GEMM, MUL, NCCL, SGEMM, Scene, healthy
from .test_edits_host import an_update_for_each_parameter, many_small_kernels
from .test_trust import a_first_compile, many_records_lost

ITEM_SYNC = Path(__file__).parents[1] / "recordings" / "h200" / "item_sync.brrr"


def advised(scene: Scene) -> Advice:
    return advise(scene.judged())


def test_warming_up_silences_everything_else() -> None:
    assert list(a_first_compile().advice()) == ["warming-up"]
    assert advised(a_first_compile()).whatif == ()


def test_lost_records_silence_everything_else() -> None:
    assert list(many_records_lost().advice()) == ["records-lost"]


def test_what_no_edit_helps_leads_where_it_is_the_verdict() -> None:
    graphs = Advisory("cuda-graphs", "says", 0.9, 0.53, {}, "try", "", saves=0.53)
    frees = Advisory("allocation-churn", "says", 0.8, 0.4, {}, "try", "")
    assert leading([graphs, frees], "allocator") == [frees, graphs]
    assert leading([graphs, frees], "launch") == [graphs, frees]


def test_no_activity_no_advice() -> None:
    assert advised(Scene()) == Advice()


def edit_advice(kind: str, low: float, saves: float) -> Advisory:
    return Advisory(kind, "", 0.7, saves + 0.1, {}, "", "", saves, low)


def test_what_may_lose_comes_after_what_wins_for_sure_however_little() -> None:
    sure, bold = edit_advice("sync-point", 0.005, 0.02), edit_advice("fuse-pointwise", -0.1, 0.4)
    bound = Advisory("gc-pause", "", 0.5, 0.03, {}, "", "")
    offer = edit_advice("bigger-batch", 0.4, 0.5)
    ranked = sorted((offer, bold, bound, sure), key=rank)
    assert {one.kind for one in ranked[:2]} == {"sync-point", "gc-pause"}
    assert [one.kind for one in ranked[2:]] == ["bigger-batch", "fuse-pointwise"]


def test_a_bigger_batch_is_an_offer_after_all_that_wins() -> None:
    """A loop of host-device waits: twice the batch wins more a sample, and leaves each wait in it."""
    given = analyze(open_source(str(ITEM_SYNC))).advisories
    by_kind = {one.kind: one for one in given}
    assert (by_kind["bigger-batch"].saves or 0) > (by_kind["sync-point"].saves or 0) > 0.05
    assert [one.kind for one in given][:2] == ["sync-point", "bigger-batch"]
    assert by_kind["bigger-batch"].says.startswith(
        "it changes the training: twice the batch takes 1.08×"
    )


def test_an_edit_that_more_than_doubles_a_step_is_told_in_times() -> None:
    row = WhatIf("compile", 35.7e6, -2.92, -4.9, -0.59, None, "model = torch.compile(model)")
    assert speeds(row) == ("0.26×", "0.17–0.63×")
    assert speeds(replace(row, saves=0.8, saves_low=0.7, saves_high=0.99)) == ("5.0×", "≥ 3.3×")
    advice = analyze(open_source(str(ITEM_SYNC))).advisories
    assert any("compile (2.8× slower)" in one.waste for one in advice)
    assert not any("-2" in one.waste for one in advice)


def test_each_edit_that_was_simulated_names_its_advice() -> None:
    advice = advised(an_update_for_each_parameter())
    kinds = {one.kind for one in advice.given}
    named = {row.edit: row.advisory for row in advice.whatif}
    assert named["fused-optimizer"] == "fused-optimizer"
    assert named["compile"] == "launch-bound-compile"
    assert {kind for kind in named.values() if kind} <= kinds


def test_an_edit_that_is_not_worth_it_is_a_row_and_no_advice() -> None:
    advice = advised(healthy())
    assert [one.kind for one in advice.given] == ["none-healthy"]
    assert advice.whatif and all(row.advisory is None for row in advice.whatif)


def test_the_advice_of_an_edit_has_its_price() -> None:
    advice = advised(many_small_kernels())
    row = next(row for row in advice.whatif if row.edit == "compile")
    given = next(one for one in advice.given if one.kind == row.advisory)
    assert given.saves == pytest.approx(row.saves, abs=1e-4)
    assert given.saves_at_most == pytest.approx(min(row.saves_high, 0.99), abs=1e-4)
    assert given.saves_low == round(row.saves_low, 4)


def test_edits_that_win_nothing_are_named_as_a_waste() -> None:
    def body(s: Scene) -> None:
        for _ in range(20):
            s.kernel(SGEMM, 400.0)

    advice = looped(body).advice()
    assert "by simulation: compile-reduce-overhead, compile" in advice["enable-tf32-or-amp"].waste


def test_what_wins_nothing_is_said_once_and_not_of_a_bucket_that_takes_time() -> None:
    def body(s: Scene) -> None:
        s.idle(1_200.0, MarkClass.INPUT, "DataLoader(num_workers=4)")
        for _ in range(20):
            s.kernel(SGEMM, 400.0)

    judged = looped(body).judged()
    given = advise(judged).given
    assert sum("by simulation" in one.waste for one in given) == 1
    context = context_of(judged)
    assert context.idle("input") >= 0.05
    nothing = WhatIf("loader-ready", 8e6, 0.0, -0.02, 0.02, None, "")
    price = replace(context.simulated, rows=(nothing, replace(nothing, edit="no-sync")))
    assert replace(context, simulated=price).waste == "by simulation: no-sync"


@pytest.mark.parametrize("hello", [{"origin": "nsys"}, {"origin": "jax"}, {"torch": None}])
def test_a_program_without_pytorch_gets_no_advice_of_pytorchs(hello: dict[str, object]) -> None:
    def body(s: Scene) -> None:
        small(s, 100, name="void cutlass::Kernel<sgemm>(Params)")

    judged = looped(body).judged()
    assert advise(judged).given
    facts = replace(judged.facts, window=replace(judged.facts.window, hello=hello))
    other = advise(replace(judged, facts=facts))
    assert (other.given, other.whatif) == ((), ())


@pytest.mark.parametrize("engine", ["vllm", "an engine's range"])
def test_an_inference_server_gets_words_of_its_own(engine: str) -> None:
    """Its range says so, though a kernel of it is called as one of an update is."""
    scene = Scene()
    if engine == "vllm":
        small(scene, 300, name="void vllm::rms_norm_kernel<c10::BFloat16>(c10::BFloat16*)")
    else:
        small(scene, 300)
        scene.kernel(FUSED_ADAM, 2.0)
        scene.idle(10, MarkClass.ANNOTATION, "step[DECODE bs=32]")
    advice = advised(scene)
    says = " ".join(one.says + one.suggests for one in advice.given)
    says += " ".join(row.line for row in advice.whatif)
    assert "enforce_eager=False" in says and "max_num_seqs" in says
    for word in ("DataLoader(", "learning rate", "torch.compile", "total += loss"):
        assert word not in " ".join(one.says + one.suggests for one in advice.given)


def test_nobody_is_told_to_train_what_has_no_backward_pass() -> None:
    (given,) = advised(healthy()).given
    assert given.kind == "none-healthy" and "no edit known here wins 5%" in given.says
    assert given.suggests == "stop tuning and train"
    inference = Scene()
    large(inference, 100)
    (given,) = advised(inference).given
    assert given.kind == "none-healthy" and "train" not in given.suggests
    for update in ([], [FUSED_ADAM]):
        reads = looped(
            lambda s, update=update: [
                s.kernel(name, 60.0, late=80.0).sync(10.0) for name in [ADD] * 30 + update
            ]
        )
        advice = advised(reads)
        for lines in (one.suggests for one in advice.given), (row.line for row in advice.whatif):
            says = " ".join(lines)
            assert ("total += loss.detach()" in says, "back once" in says) == (
                bool(update), not update,
            )  # fmt: skip


def test_geforce_is_told_of_16_bit_and_not_of_tf32() -> None:
    scene = looped(lambda s: [s.kernel(SGEMM, 400.0) for _ in range(20)], scene=Scene(GEFORCE))
    assert "float32_matmul_precision" not in scene.advice()["enable-tf32-or-amp"].suggests


def test_a_bigger_batch_is_forecast_by_what_it_promises() -> None:
    given = memory(looped(small), used=0.3).advice()["bigger-batch"]
    assert given.saves == pytest.approx(1 - given.evidence["predicted_step_ratio"] / 2, abs=0.006)
    assert "twice the batch takes 1.00× as long; 70% of the memory is free" in given.says


@pytest.mark.parametrize(
    ("line", "text"),
    [
        ("aten::item", "aten::item"),
        ("cudaStreamSynchronize", "cudaStreamSynchronize"),
        ("nb/train.py:8 main > t.py:9 go | if x.item():", "nb/train.py:8 (`if x.item():`)"),
    ],
)
def test_a_line_that_waits_is_named_with_its_source_apart(line: str, text: str) -> None:
    assert place(line) == text


def test_exposed_exchanges_are_not_told_to_use_buckets_of_gradients() -> None:
    def exposed(name: str, hidden: str) -> Advisory:
        def body(s: Scene) -> None:
            s.kernel(GEMM, 9_000.0, blocks=132)
            s.kernel(hidden, 8_000.0, blocks=24, stream=21, beside=True)
            s.kernel(name, 3_000.0, blocks=24, stream=20)

        return looped(body).advice()["exposed-communication"]

    exchange = "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)"
    expert = "void deep_ep::intranode::combine<__nv_bfloat16, 8, 768, 4096>(P)"
    for name in (exchange, expert):
        advice = exposed(name, NCCL)
        assert advice.evidence["exchanged_share"] == 1.0
        assert "all_to_all" in str(advice.suggests) and "bucket" not in str(advice.suggests)
        assert "all-to-all or send and receive" in advice.says
    advice = exposed(NCCL, exchange)
    assert advice.evidence["exchanged_share"] == 0.0
    assert "bucket_cap_mb" in str(advice.suggests) and "all-to-all" not in advice.says


def test_what_the_verdict_names_is_advised_on_though_the_host_is_as_slow() -> None:
    """Without the collectives the GPU would wait for the host: a bound, and no gain that is foretold."""

    def body(s: Scene) -> None:
        s.kernel(GEMM, 300.0, late=20.0).kernel(NCCL, 900.0, blocks=24, stream=20, late=5.0)
        s.kernel(ADD, 2.0, late=60.0)

    judged = looped(body, steps=6).judged()
    assert judged.estimate.cause == "exposed_comm"
    given = {one.kind: one for one in advise(judged).given}
    rows = {row.edit: row for row in advise(judged).whatif}
    bounded, row = given["exposed-communication"], rows["overlap-communication"]
    assert row.saves_low < 0
    assert (bounded.saves, bounded.saves_at_most) == (None, pytest.approx(row.saves_high, abs=1e-3))


def test_untraced_time_is_no_idle_time() -> None:
    """Bursts: the pause between them belongs to nobody."""
    scene = Scene()
    scene.observed = []
    for _ in range(2):
        began = scene.now
        healthy(scene, steps=2)
        scene.observed.append((began, scene.now))
        scene.idle(500_000)
    assert list(scene.advice()) == ["none-healthy"]


def test_waits_are_to_be_removed_before_a_model_is_compiled() -> None:
    def with_waits(s: Scene) -> None:
        for _ in range(5):
            small(s, 200, name=MUL)
            s.sync(1.0)

    result = looped(with_waits).advice()["launch-bound-compile"]
    assert str(result.suggests).startswith("remove the waits first")


def test_nothing_is_compiled_that_many_waits_would_cut_to_pieces() -> None:
    """Each value that the loop reads breaks the graph, and each piece is entered anew."""

    def with_waits(s: Scene) -> None:
        for _ in range(40):
            small(s, 4, name=MUL)
            s.sync(1.0)

    assert "launch-bound-compile" not in looped(with_waits).advice()


def test_idle_before_work_that_was_launched_long_ago_is_no_waits_to_win() -> None:
    """As before graphs: the host waits for most of the time, and the device idles with a full queue."""

    def body(s: Scene) -> None:
        for _ in range(6):
            s.kernel(ADD, 60.0, late=80.0)
            for _ in range(4):
                s.now += 400.0  # less than launches are ahead
                large(s, 1, 100.0)
            s.sync(1_900.0)

    scene = looped(body)
    account = scene.judged().estimate.account
    own = account.idle_total_ns - account.idle_ns["device"]
    assert account.idle_ns["device"] > 0.3 * account.duration_ns
    text = scene.advice().get("sync-point")
    promised = (text.saves or 0.0) if text else 0.0
    assert promised <= own / account.duration_ns + 1e-4
