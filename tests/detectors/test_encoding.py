"""Text that was decoded wrongly, and text that speaks about such text."""

from __future__ import annotations

import pytest

from detectors import Encoding, Finding

GERMAN = "Ich möchte wissen, ob die Straße schön für Fußgänger ist."
MOJIBAKE = GERMAN.encode().decode("cp1252", "replace").replace("\ufffd", "")
RAW = "".join(
    f"Ġ{word}" for word in ("the", "old", "harbour", "lies", "behind", "the", "bridge", "and", "waits", "for", "ships")
)


def run(text: str, prompt: str | None = None, size: int = 1_000) -> list[Finding]:
    watch = Encoding(prompt_text=prompt)
    found = [f for start in range(0, len(text), size) for f in watch.feed(text[start : start + size])]
    return [*found, *watch.finish()]


@pytest.mark.parametrize("size", [1, 3, 1_000])
@pytest.mark.parametrize(
    ("text", "code", "onset"),
    [
        ("很抱歉，我无法\ufffd\ufffd问实时数据。", "encoding.replacement_char", 7),
        ("The caf\ufffd is open", "encoding.replacement_char", 7),
        ("an emoji \ud83d and on", "encoding.split_code_point", 9),
        (MOJIBAKE, "encoding.mojibake", 5),
        (RAW, "encoding.raw_tokens", 0),
        ("<｜end▁of▁sentence｜>" + RAW.replace("Ġ", "▁"), "encoding.raw_tokens", 19),
        ("The caf<0xC3><0xA9> is open", "encoding.byte_tokens", 7),
        # a few pairs are enough where they stand inside words
        ("Ich mÃ¶chte fÃ¼r die StraÃŸe gehen.", "encoding.mojibake", 5),
        ("El niÃ±o comiÃ³ ayer.", "encoding.mojibake", 5),
        ("It wasnâ€™t that they couldnâ€™t.", "encoding.mojibake", 7),
        ("â€œYes,â€\u009d she said", "encoding.mojibake", 0),
        ("Well done ðŸŽ‰ðŸŽ‰ all", "encoding.mojibake", 10),
        ("æˆ‘ä»¬åœ¨æ²³è¾¹ æ˜¥å¤©å¿«åˆ°äº†", "encoding.mojibake", 0),
        ("Ð¿Ñ€Ð¸Ð²ÐµÑ‚ всем", "encoding.mojibake", 0),
        # control characters
        ("The answer is\x00 forty-two.", "encoding.control_char", 13),
        ("    a NUL in\x00 code", "encoding.control_char", 12),
    ],
)
def test_it_is_found(text: str, code: str, onset: int, size: int) -> None:
    found = run(text, size=size)
    assert [(f.code, f.severity, f.onset) for f in found] == [(code, "error", onset)]


@pytest.mark.parametrize("size", [1, 1_000])
@pytest.mark.parametrize(
    ("text", "prompt"),
    [
        ("It shows '\ufffd' for bytes that it can not read.", None),
        ("U+FFFD is the replacement character, written \ufffd, and", None),
        ("Your text holds \ufffd in three places.", "Why is there a \ufffd in my file?"),
        ('    assert text == "a\ufffdb"', None),
        ("São Paulo, NÃO, Ângela, Âme, â la carte", None),
        ("It reads Ã¶ where ö should be.", None),
        (
            "```\n" + "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>f<｜tool▁sep｜>{}<｜tool▁call▁end｜>" * 3 + "\n```",
            None,
        ),
        ("Tokens such as Ġthe and Ġof begin with a space, and others do not begin with one at all.", None),
        ("The byte token <0xE2> stands for one byte.", None),
        (GERMAN + " 我们在河边。 🎻 ▁▂▃▄▅▆▇█", None),
        ("A cafÃ© somewhere", None),
        ("Mojibake such as mÃ¶chte or fÃ¼r comes from a wrong encoding.", None),
        ("It reads “Ã¶”, “Ã¼” and “Ã¤” there.", None),
        ("„Spaß“ und „Straß“, groß… und süß—", None),
        ("CAFÉ™ et DÉJÀ™, «École», À « été »", None),
        ("un café”—he said, un thé”—she said, à “” and é”—", None),
        ("São Paulo, SÃO, NÃO, MAÇÃ, Ângela", None),
        ("Tabs\tand\r\nline ends\x0cand form feeds\x0b", None),
        ("\x1b[31mred\x1b[0m and \x1b]0;title, where \x1b is one character", None),
        ("normal\n\t\tset \x01 in a script", None),
        ("a pattern \\(\\[\\w\x07\\] of a shell", None),
        ("a line end of 1975: '\x1e' it was", None),
        ("What is \x02 here?", "Why is there a \x01 in my file?"),
    ],
)
def test_what_speaks_about_it_passes(text: str, prompt: str | None, size: int) -> None:
    assert run(text, prompt, size) == []


CONTROLS = [chr(code) for code in (*range(1, 9), *range(14, 27), *range(28, 32), *range(127, 133), *range(134, 160))]


@pytest.mark.parametrize("size", [1, 3, 1_000])
@pytest.mark.parametrize("char", CONTROLS, ids=lambda char: f"U+{ord(char):04X}")
def test_one_control_character_is_a_warning_and_the_third_an_error(char: str, size: int) -> None:
    text = f"It rings{char} once."
    assert [(f.code, f.severity, f.onset) for f in run(text, size=size)] == [("encoding.control_char", "warn", 8)]
    assert [f.severity for f in run(f"{text}{char}", size=size)] == ["warn"]
    found = [(f.severity, f.onset, f.detected_at) for f in run(f"{text}{char} {char} and on", size=size)]
    assert found == [("warn", 8, 9), ("error", 8, 18)]


@pytest.mark.parametrize("size", [1, 2, 5, 1_000])
def test_a_warning_does_not_outlive_what_condemned_the_answer_before_it(size: int) -> None:
    found = run("caf<0xC3><0xA9> and \x07 on", size=size)
    assert [f.code for f in found] == ["encoding.byte_tokens"]
    assert [f.severity for f in run("a\x07b\x00c", size=size)] == ["warn", "error"]


@pytest.mark.parametrize("size", [1, 4, 1_000])
def test_a_warning_holds_nothing(size: int) -> None:
    watch, text = Encoding(), "one\x07 and \x08 two"
    for start in range(0, len(text), size):
        watch.feed(text[start : start + size])
    assert watch.doubt == len(text)
    watch.feed(" and\x07 three")
    assert watch.doubt == len(text) + 4


def test_a_code_point_cut_at_the_end_is_a_warning() -> None:
    found = run("The last sign is \ufffd")
    assert [(f.code, f.severity, f.onset) for f in found] == [("encoding.split_code_point", "warn", 17)]


def test_a_replacement_character_is_held_until_its_neighbour_comes() -> None:
    watch = Encoding()
    assert watch.feed("caf\ufffd") == ()
    assert watch.doubt == 3
    assert [f.code for f in watch.feed(" x")] == ["encoding.replacement_char"]
    assert watch.doubt == 3


def test_an_answer_in_raw_tokens_is_found_however_short() -> None:
    found = run("ĠHelloĠworldĊThisĠisĠaĠtest")
    assert [(f.code, f.onset) for f in found] == [("encoding.raw_tokens", 0)]
    assert run("Ġthe, Ġof and Ġin") == []


def test_spaces_before_the_first_raw_token_do_not_count_however_it_was_cut() -> None:
    text = "a b c d e f g h i j k l " + "Ġx" * 12
    assert {str(run(text, size=size)) for size in (1, 2, 7, 24, 25, 1_000)} == {str(run(text, size=1))}
    assert run(text)[0].onset == 24
