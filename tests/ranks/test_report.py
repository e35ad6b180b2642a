"""`analyze` over several files: one report, as JSON and text; and what it refuses."""

import json
import shutil
from pathlib import Path

import pytest
from msgspec.structs import replace

from brrrtop.cli.files import files_of, open_job, read_all
from brrrtop.cli.main import main
from brrrtop.cli.options import Options
from brrrtop.errors import BadInput
from brrrtop.sources.recording import RecordingSource, RecordingWriter
from collectors.protocol.frames import Kind
from tests.ranks.reads import TRACES, files


def test_text_has_eighty_columns_and_the_sentence(capsys):
    assert main(["analyze", *map(str, files("dlrm"))]) == 0
    text = capsys.readouterr().out
    assert max(map(len, text.splitlines())) <= 80
    flowed = " ".join(text.split())
    assert "Rank 7 is last in 5 of 8 collectives, yet not slow: it began 7.51 ms after" in flowed
    assert "transfer 217 µs in all" in flowed


def test_gates_see_the_straggler():
    assert main(["analyze", str(TRACES / "ddp-sleep"), "--fail-if", "advisory == straggler"]) == 5
    assert main(["analyze", str(TRACES / "ddp"), "--fail-if", "advisory == straggler"]) == 0


def test_a_broken_rank_has_a_row_and_other_files_are_left_out(tmp_path, capsys):
    first, _ = files("ddp-sleep")
    shutil.copy(first, tmp_path / "rank0.json.gz")
    (tmp_path / "rank1.json.gz").write_bytes(b"")
    (tmp_path / "settings.json").write_text('{"lr": 1}')
    assert main(["analyze", str(tmp_path), "--json"]) == 0
    out = capsys.readouterr()
    rows = {row["rank"]: row for row in json.loads(out.out)["ranks"]}
    assert rows[1]["split"]["compute"] is None and "is empty" in rows[1]["why"]
    assert rows[0]["why"] is None
    assert "settings.json" in out.err


def test_two_files_of_one_rank_are_refused(tmp_path, capsys):
    first, _ = files("ddp-sleep")
    shutil.copy(first, tmp_path / "a.json.gz")
    shutil.copy(first, tmp_path / "b.json.gz")
    assert main(["analyze", str(tmp_path)]) == 1
    assert "rank 0 is there twice: a.json.gz and b.json.gz" in capsys.readouterr().err


def test_an_empty_folder_says_what_it_lacks(tmp_path, capsys):
    assert main(["analyze", str(tmp_path)]) == 1
    assert "has no recording or trace in it" in capsys.readouterr().err


@pytest.mark.parametrize("opened", [read_all, open_job])
def test_files_of_jobs_of_different_sizes_are_refused(opened):
    mixed = [str(files("ddp-sleep")[0]), str(files("dlrm")[1])]
    with pytest.raises(BadInput, match=r"several jobs: rank0\S+ is of 2 ranks, rank1\S+ of 8"):
        opened(mixed, Options(files=tuple(mixed)))


def as_of_job(recording: Path, target: Path, job: str) -> str:
    """The recording again, as the agent of a rank of that job would have begun it."""
    source = RecordingSource(recording)
    with RecordingWriter(target) as writer:
        for frame in source.frames():
            is_hello = frame.kind == Kind.HELLO
            writer.write(replace(frame, body=frame.body | {"job": job}) if is_hello else frame)
    source.close()
    return str(target)


@pytest.mark.parametrize("opened", [read_all, open_job])
def test_files_of_two_jobs_of_one_size_are_refused(opened, tmp_path):
    first, second = files("ddp-hidden")
    mixed = [
        as_of_job(first, tmp_path / "rank0.brrr", "29500 none -"),
        as_of_job(second, tmp_path / "rank1.brrr", "29400 none -"),
    ]
    with pytest.raises(BadInput, match=r"several jobs, or .* is of 29500 none -, .* of 29400 none"):
        opened(mixed, Options(files=tuple(mixed)))


def test_files_of_one_job_are_one(tmp_path):
    names = [as_of_job(file, tmp_path / file.name, "29500 none -") for file in files("ddp-hidden")]
    job = read_all(names, Options(files=tuple(names))).job
    assert job is not None and job.waited_for is not None and job.waited_for.rank == 1


def test_every_kind_of_trace_in_a_folder_is_a_rank(tmp_path):
    names = ["rank0.brrr", "rank1.json", "rank2.json.gz", "rank3.sqlite", "rank4.xplane.pb"]
    for name in (*names, "notes.txt"):
        (tmp_path / name).write_bytes(b"")
    chosen = files_of(Options(files=(str(tmp_path),)))
    assert [Path(file).name for file in chosen] == names
