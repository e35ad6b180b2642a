"""Which scripts the estimator's constants were set with, and which it met afterwards."""

from __future__ import annotations

import hashlib

SET_WITH = frozenset(
    (
        "decode diffusion fp8 gpt_bf16 graph lora mixed moe naive_attention pointwise_chain"
        " recommender slow_loader speech tiny_mlp vision"
    ).split()
)
"""Counted before the constants were chosen. Up to commit cc116f0 every one was chosen with these in view."""
IN_VIEW = frozenset(
    "gpt_bf16_compiled item_sync misaligned_gemm resnet50_fp32 unpinned_h2d".split()
)
"""Their traces were at hand while constants were chosen, without counters: what kernels they run
and what regime they were built to have could be seen, what limits a kernel could not."""

STUDIED = frozenset(
    (
        "accumulate bert clickrate contrastive histograms item_sync llama misaligned_gemm mobile"
        " resnet50_fp32 scan serving unpinned_h2d vit volume wavenet windows"
    ).split()
)
"""Their misses were read before mechanisms were mended (RESULTS.md): what they score since is no first
meeting. Up to commit cc116f0 `sides.at_most_even` alone was chosen with some of their counters in view;
those of `offsets`, some of `sides` and of `judging` rest on all that was counted since."""
FIRST_ROUND = frozenset(
    (
        "cell_unet clip_pretrain conformer_ctc distill_vit dit_latent dlrm_ctr dpo_gpt2 fno_darcy"
        " latent_ode lstm_lm mae_pretrain mlm_pretrain moe_decoder nmt_docs pinn_reaction"
        " ppo_walkers sr_train ssm_scan t2_mapping tabular_resnet video_r3d weather_shift"
        " written_out_decoder yolo_simota"
    ).split()
)
"""Of benchmarks/blind, by writers who had seen neither the estimator nor its tests. Scored once
before anything of them was read (benchmarks/results/h200-blind.json), and studied since."""
SECOND_ROUND = frozenset(
    (
        "alphazero_per bart_denoiser captioner_regional latent_vae_previews lora_reinforce"
        " md_potential nerf_hierarchical pair_stack sasrec_sampled speech_bestrq speech_tokens"
        " stylegan_lowmem swin_change_s2 wrn_cutmix_fp16"
    ).split()
)
"""The same, by two more such writers, after what the first round had shown was mended: at first sight
they met an estimator and advisories with those mends in. Studied since, too."""
THIRD_ROUND = frozenset(
    (
        "alibi_longdoc chest_xray cifar_vit_foreach credit_ft_transformer detr_objects"
        " gat_products gpt_fp16_scaler gru_translate load_mixer mesh_graph_net music_gpt_fp32"
        " nfnet_agc piano_gru protein_mlm qlora_llama reranker sd_unet_ema sensor_pageable"
        " swiglu_odd_vocab t5_summarize whisper_finetune wide_resnet_nchw_amp"
    ).split()
)
"""The same, by three more such writers, met by an estimator and advisories with both rounds' mends in.
Studied since, too."""
FOURTH_ROUND = frozenset(
    (
        "bert_span_fp16 convtasnet_separation deep_kernel_gp deeplab_fp32 edge_graph_transformer"
        " effnetv2_s_fp16 grpo_rollout hashgrid_sdf llama_long_bf16 llava_checkpointed"
        " muon_small_batch nbeats_ensemble pointnet2_cls qknorm_gqa_compiled raft_small_flow"
        " resnet50_imagenet_bf16 rotate_wiki rwkv_bytes_eager sac_quadrotor sage_fullgraph"
        " tgat_sampler two_tower vit_sun397_f1 vit_vqgan"
    ).split()
)
"""The same, by four more such writers, met by the trees of `learned`, which had seen none of them. Studied since, too."""
FIFTH_ROUND = frozenset(
    (
        "alignn_molecules audiotext_barlow birdsong_multires crops_timeseries ct_vit3d"
        " deeponet_heat dreamer_world_model eend_diarization fanout_sage_bf16 gkd_student"
        " graphormer_gap ijepa_vit landcover_vitdet line_ocr linear_scvae maps_gan patch_forecaster"
        " patchtst_electricity sae_llm_residual speech_mask_fp16 stereo_volume tacotron2_tts"
        " two_tower_retrieval xlmv_retrieval"
    ).split()
)
"""The same, by four more, met by trees that had seen the four rounds before and the sweeps beside them; nineteen
of them counted, whole steps by CUPTI (`counting`)."""
ROUNDS = {
    "first": FIRST_ROUND,
    "second": SECOND_ROUND,
    "third": THIRD_ROUND,
    "fourth": FOURTH_ROUND,
    "fifth": FIFTH_ROUND,
}
BLIND = frozenset().union(*ROUNDS.values())
PARTS = ("set with", "held out, studied", *(f"written blind, {name} round" for name in ROUNDS))


def held_out(name: str) -> bool:
    """Whether a script is none of those that the constants were set with."""
    return name not in SET_WITH


def part_of(name: str) -> str:
    """One of PARTS. A script that nobody placed here passes for studied: the less is claimed of it."""
    sets = (SET_WITH, STUDIED, *ROUNDS.values())
    return next((p for p, some in zip(PARTS, sets, strict=True) if name in some), PARTS[1])


def told(name: str) -> str:
    """How much of a script had been seen, for the table."""
    if name in SET_WITH:
        return "set with"
    seen = "studied" if name in STUDIED else ""
    rounds = enumerate(ROUNDS.values(), 1)
    seen = next((f"blind {n}" for n, some in rounds if name in some), seen)
    if name in IN_VIEW:
        return f"trace in view, {seen}" if seen else "trace in view"
    return seen or "held out"


HALVES = ("tune", "held")
"""Of the kernels of a sweep. Constants were chosen with the counters of the first in view; the second was
scored once before it was read (RESULTS.md says with what result), and has been in view since."""


def half_of(script: str, kernel: str, blocks: int, threads: int) -> str:
    """One of HALVES, the same on every machine and in every session.

    Equal launches of a script are in the same half, or what was learnt from one would be met again
    in the other.

    Args:
        kernel: The short name (`brrrtop.kernel_names`).
        threads: Of a block.
    """
    case = f"{script}|{kernel}|{blocks}|{threads}"
    return HALVES[hashlib.sha256(case.encode()).digest()[0] & 1]
