"""A terminal that shows every colour, where a test does not ask for another, and a pilot without waits."""

import asyncio

import pytest


@pytest.fixture(autouse=True)
def all_colours(monkeypatch) -> None:
    """With fewer, each line goes through one filter more: a fifth of what drawing takes."""
    monkeypatch.setenv("COLORTERM", "truecolor")


@pytest.fixture(autouse=True)
def idle_is_when_no_message_waits(monkeypatch) -> None:
    """Textual's pilot takes a process for idle that needs little CPU for 20 ms: up to a second of
    sleep a key where others are at work. That every widget has read its messages is enough."""

    async def gone_round(min_sleep: float = 0.0, max_sleep: float = 0.0) -> None:
        await asyncio.sleep(0)

    monkeypatch.setattr("textual.app.wait_for_idle", gone_round)
    monkeypatch.setattr("textual.pilot.wait_for_idle", gone_round)
