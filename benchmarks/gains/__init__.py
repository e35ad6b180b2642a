"""What each edit wins on public models, measured; and what brrrtop predicted beside it."""

from benchmarks.gains import fresh, language, others, vision  # noqa: F401  they register their models
from benchmarks.gains.loops import MODELS as MODELS
