"""What each edit wins on public models, measured; and what brrrtop predicted beside it."""

from benchmarks.gains import (  # noqa: F401  they register their models
    fifth,
    fresh,
    language,
    others,
    sixth,
    vision,
)
from benchmarks.gains.loops import MODELS as MODELS
