"""Keys: the bindings of the screens say all there is to say of them; help and the last line read it there."""

from collections.abc import Iterable, Iterator

from textual.binding import Binding, BindingType

_SIGNS = {
    "question_mark": "?", "full_stop": ".", "comma": ",", "slash": "/", "colon": ":",
    "left": "←", "right": "→", "up": "↑", "down": "↓", "plus": "+", "minus": "-",
    "equals_sign": "=", "greater_than_sign": ">", "less_than_sign": "<", "escape": "esc",
    "left_square_bracket": "[", "right_square_bracket": "]", "left_curly_bracket": "{",
    "right_curly_bracket": "}", "pageup": "PgUp", "pagedown": "PgDn", "home": "Home", "end": "End",
}  # fmt: skip


def key(
    keys: str,
    action: str,
    word: str = "",
    means: str = "",
    *,
    sign: str = "",
    priority: bool = False,
) -> Binding:
    """A binding of some keys.

    Args:
        word: What it does, for the last line of the screen; empty: it is not there.
        means: What it does, for help; empty: another binding says it.
        sign: The keys as they are shown, where that is not the first one of them.
    """
    return Binding(
        keys,
        action,
        word,
        show=bool(word),
        key_display=sign or None,
        priority=priority,
        tooltip=means,
    )


def name_of(key: str) -> str:
    """`ctrl+p` → `Ctrl-P`, `question_mark` → `?`."""
    if "+" in key:
        modifier, plain = key.split("+", 1)
        return f"{modifier.title()}-{_SIGNS.get(plain, plain.upper())}"
    if key.startswith("f") and key[1:].isdigit():
        return key.upper()
    return _SIGNS.get(key, key)


def sign_of(binding: Binding) -> str:
    return binding.key_display or name_of(binding.key.split(",")[0])


def meanings(*owners: type) -> Iterator[tuple[str, str]]:
    """All keys with what they do, by the classes that bind them; those with one meaning together."""
    keys: dict[str, list[str]] = {}
    for binding in _bindings(owners):
        if isinstance(binding, Binding) and binding.tooltip:
            keys.setdefault(binding.tooltip, []).extend(map(name_of, binding.key.split(",")))
    for means, names in keys.items():
        yield "  ".join(dict.fromkeys(names)), means


def _bindings(owners: Iterable[type]) -> Iterator[BindingType]:
    for owner in owners:
        yield from owner.__dict__.get("BINDINGS", ())
