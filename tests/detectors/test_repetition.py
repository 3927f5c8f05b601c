"""Loops are found where they begin, and what merely repeats is let through."""

from __future__ import annotations

import json
import random
import re
from pathlib import Path

import pytest

from detectors import Finding, Repetition
from tests.corpus.words import prose

PROSE = (
    "The old harbour engine carries every letter while the narrow bridge opens, and nobody in the village knows why. "
)
PARAGRAPH = prose(random.Random(1), 600) + "\n\n"


def run(text: str, prompt: str | None = None, ids: list[int] | None = None) -> list[Finding]:
    watch = Repetition(prompt_text=prompt)
    return [*watch.feed(text, ids), *watch.finish()]


ROMAN = re.findall(r"\w+", "I II III IV V VI VII VIII IX X XI XII XIII XIV XV XVI XVII XVIII XIX XX")
WORDS = re.findall(
    r"\S+",
    "one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen "
    "eighteen nineteen twenty twenty-one twenty-two",
)
NTHS = re.findall(r"\w+", "first second third fourth fifth sixth seventh eighth ninth tenth eleventh twelfth")

LOOPS = {
    "counted in letters": (
        "".join(f"{c}) wait, let me check.\n" for c in "abcdefghijklmnop"),
        0,
        "repetition.near_loop",
    ),
    "in capitals": (PROSE + "\n" + "".join(f"{c}. Banana\n" for c in "ABCDEFGHIJKLMNOP"), len(PROSE) + 1, ""),
    "in Roman numerals": ("".join(f"Step {c}: let me check that.\n" for c in ROMAN), 0, "repetition.near_loop"),
    "in Roman numerals with empty lines": ("".join(f"{c}. The same again\n\n" for c in ROMAN), 0, ""),
    "in words": ("".join(f"Attempt {w} failed. Let me try again.\n" for w in WORDS), 0, "repetition.near_loop"),
    "in ordinals": (
        "".join(f"- {w}, wait a moment\n" for w in NTHS),
        0,
        "repetition.near_loop",
    ),
    "in a label's letters": (
        "".join(f"Let me check option {c}. It does not work either.\n" for c in "ABCDEFGHIJKLMNOP"),
        0,
        "",
    ),
    "in letters without a mark": (
        "".join(f"Option {c} is wrong, so try the next.\n" for c in "ABCDEFGHIJKLMNOP"),
        0,
        "",
    ),
    "the answer in a box": (PROSE + "\n\nFinal Answer: The final answer is $\\boxed{42}$." * 20, len(PROSE), ""),
    "counting up for ever": (
        "".join(f"{i} bottles of beer on the wall.\n" for i in range(1, 60)),
        0,
        "repetition.near_loop",
    ),
    "counting down past nought": (
        "".join(f"{max(i, 0)} bottles of beer on the wall.\n" for i in range(9, -90, -1)),
        0,
        "repetition.near_loop",
    ),
    "a call within itself": ("x = week_day(" + "week_day(" * 40, 4, "repetition.period"),
    "a member for ever": ('{"a": 1,\n' + '  "name": "Soup",\n' * 30, 9, "repetition.rows"),
    "marks in the middle of a sentence": ("So the old harbour lies behind the narrow bridge and" + "!" * 40, 52, ""),
    "marks without end": ("We did it" + "!" * 60, 9, "repetition.single_token"),
    "one character from the start": ("!" * 40, 0, "repetition.single_token_from_start"),
    "one character late": (PROSE + "G" * 60, len(PROSE), "repetition.single_token"),
    "a letter of another script": (PROSE + "あ" * 80, len(PROSE), "repetition.single_token"),
    "kashidas": ("مرحبا" + "ـ" * 80, 5, "repetition.single_token"),
    "question marks and commas": ("What then? " + "?, " * 40, 11, "repetition.period"),
    "slashes after a sentence": ("I will read the file." + "/" * 80, 21, "repetition.single_token"),
    "a special token": ("<s>" * 20, 0, "repetition.single_token_from_start"),
    "a special token in its brackets": ("<|endoftext|>" * 20, 0, "repetition.single_token_from_start"),
    "a tag and a new line": ("<think>\n" * 12, 0, "repetition.period"),
    "a word": ("- **Callback" + " prevent" * 29, 12, "repetition.single_token"),
    "two words": (PROSE + "forever, and " * 30, len(PROSE), "repetition.period"),
    "a sentence": (PROSE + "I am sorry, I can not do this. " * 10, len(PROSE), "repetition.period"),
    "a paragraph": (PROSE + PARAGRAPH * 7, len(PROSE), "repetition.period"),
    "another script": ("我们在河边。" + "春天快到了，" * 30, 6, "repetition.period"),
    "emoji": ("Well done 🎉" + " 🎻" * 40, 11, "repetition.period"),
    "new lines": ("[1.1]" + "\n" * 100, 5, "repetition.newlines"),
    "a list with equal items": ("".join(f"{i}. Banana\n" for i in range(1, 60)), 0, "repetition.near_loop"),
    "counted steps": (
        "".join(f"Step {i}: wait, let me check that.\n" for i in range(1, 40)),
        0,
        "repetition.near_loop",
    ),
    "addresses counted": ("".join(f"Connecting to 192.168.0.{i}... failed.\n" for i in range(1, 60)), 0, ""),
    "addresses counted past a network": ("Hosts: " + "".join(f"10.0.0.{i}, " for i in range(1, 1_500)), 7, ""),
    "versions counted": ("".join(f"Version 1.0.{i} fixes a bug.\n" for i in range(1, 60)), 0, ""),
    "sections counted": ("".join(f"2.1.{i} The next step\n" for i in range(1, 60)), 0, ""),
    "addresses counted in a sentence": (
        PROSE + "".join(f"Let me try 10.0.0.{i} now, and then the next one. " for i in range(2, 60)),
        len(PROSE),
        "",
    ),
    "in Chinese words": (
        "".join(f"第{ten}{one}步：等等，让我再检查。\n" for ten in ("", "十") for one in "一二三四五六七八九"),
        0,
        "",
    ),
    "in Chinese": ("".join(f"第{i}步：等等，让我再检查一下。\n" for i in range(1, 40)), 0, ""),
    "in Japanese": ("".join(f"{i}番目の手順を確認します。\n" for i in range(1, 40)), 0, ""),
    "in full-width digits": ("".join(f"{chr(0xFF11 + i % 9)}．次の手順を確認します。\n" for i in range(40)), 0, ""),
    "in circles": ("".join(f"{chr(0x2460 + i)} wait, let me check that.\n" for i in range(20)), 0, ""),
    "in Arabic digits": (
        "".join(f"الخطوة {chr(0x661 + i // 9)}{chr(0x661 + i % 9)}: انتظر، دعني أتحقق.\n" for i in range(40)),
        0,
        "",
    ),
    "in Devanagari digits": ("".join(f"चरण {chr(0x967 + i % 9)}: रुको, मुझे जाँचने दो।\n" for i in range(40)), 0, ""),
    "nothing but counters": ("".join(f"{i}. [{i}]\n" for i in range(1, 60)), 0, "repetition.near_loop"),
    "strings in an array": ('{"a": [' + '"monkey",\n    ' * 60, 7, "repetition.rows"),
    "a refrain without end": ("A thousand stories untold, a thousand tales untold,\n" * 20, 0, "repetition.period"),
    "every word twice": ("".join(f" {w} {w}" for w in (PROSE * 3).split()), 0, "repetition.stutter"),
    "every piece twice": ("".join(w[:4] * 2 + w[4:] * 2 for w in ("x" + PROSE * 3).split()), 0, "repetition.stutter"),
    "rows for ever": ("| a | b |\n|---|---|\n" + "| none | none |\n" * 100, 20, "repetition.rows"),
    "empty bullets": (PROSE + "\n- " * 80, len(PROSE), "repetition.rows"),
    "empty numbers": ("".join(f"{i}. \n" for i in range(1, 120)), 0, "repetition.near_loop"),
    "a paragraph cut at its fourth copy": (PROSE + PARAGRAPH * 4, len(PROSE), "repetition.period"),
    "a refrain of syllables for ever": ("Na na na na, hey Jude\n" * 40, 0, "repetition.period"),
    "emoji and signs between": ("Fine. " + "🌞 a 🐙 🦊, " * 20, 6, "repetition.period"),
    "a sentence without gaps": ("حسنا. " + "مسافرين أخبار." * 12, 6, "repetition.period"),
    "zeros for ever": ("[" + "0, " * 3_000, 1, "repetition.period"),
}


@pytest.mark.parametrize(("text", "onset", "code"), LOOPS.values(), ids=LOOPS.keys())
def test_a_loop_is_found_where_it_begins(text: str, onset: int, code: str) -> None:
    found = run(text)
    assert [f.severity for f in found] == ["error"]
    assert abs(found[0].onset - onset) <= found[0].evidence.get("period", 12) * 2
    assert found[0].code == (code or found[0].code)
    assert onset < found[0].detected_at <= len(text)


HONEST = {
    "a table with a long rule": f"| Name | Qty |\n|{'-' * 34}|-----|\n"
    + "".join(f"| row {i} | 0 |\n" for i in range(40)),
    "equal rows": "| a | b |\n|---|---|\n" + "| 0 | 0 |\n" * 20,
    "rules": f"{PROSE}\n{'=' * 120}\n{PROSE}\n{'-' * 200}\n",
    "an array of zeros": json.dumps([0] * 200),
    "a matrix": "\n".join(",".join("0" * 20) for _ in range(20)),
    "base64 of zeros": "data:;base64,iVBORw0KGgo" + "A" * 160 + "9fQ==",
    "addresses": "".join(f"192.168.1.{i}\n" for i in range(1, 255)),
    "addresses and a word": "".join(f"192.168.1.{i} free\n" for i in range(1, 255)),
    "addresses that answer": "".join(f"192.168.1.{i} is alive\n" for i in range(1, 255)),
    "networks": "".join(f"- 10.0.{i}.0/24 for the office\n" for i in range(40)),
    "hosts": "".join(f"192.168.1.{i}\thost{i}.local\n" for i in range(1, 60)),
    "servers": "".join(f"    server 10.0.0.{i}:8080;\n" for i in range(1, 60)),
    "days": "".join(f"{i:02}.03.2026: Frei, keine Termine\n" for i in range(1, 32)),
    "days, the year first": "".join(f"2026.03.{i:02} no meeting today\n" for i in range(1, 32)),
    "replies": "".join(f"64 bytes from 8.8.8.8: icmp_seq={i} ttl=117 time=12.{i * 7 % 10} ms\n" for i in range(60)),
    "a Chinese list": "".join(
        f"{c}、{w}的房间\n" for c, w in zip("一二三四五六七八九十", "春夏秋冬山水花鸟鱼虫", strict=True)
    ),
    "Chinese prices": "".join(f"第{i}间房：{i * 37 % 90 + 10}元\n" for i in range(1, 40)),
    "a Chinese plan": "".join(f"第{i}天：跑步{i * 7 % 9 + 3}公里，然后休息\n" for i in range(1, 31)),
    "a Japanese table": "".join(f"| {i}月 | {i * 7 % 31}日 | 休み |\n" for i in range(1, 13)),
    "a hash of zeros": "commit " + "0" * 40,
    "getters": "".join(f"def get_{w}(self):\n    return self._{w}\n\n" for w in "abcdefghijklmnop"),
    "equal JSON rows": json.dumps([{"id": i, "status": "ok", "value": 0} for i in range(60)], indent=2),
    "a log": "".join(f"2026-01-{i:02} 10:{i:02}:00 INFO heartbeat ok\n" for i in range(10, 60)),
    "laughter": f'"Hahahahahaha ha ha ha ha ha ha ha!" {PROSE}',
    "cries in scripts that are not Latin": "あ" * 18 + "！\nНе" + "е" * 18 + "т!\n" + "오" * 17 + "\n",
    "words drawn out with the Arabic kashida": "قال: الســـــــــــــــــــلام، مرحبـــــــــــــــــــا بكم",
    "laughter in Arabic": "هههههههههههههههههه هذا مضحك جدا",
    "placeholders of a statement": "INSERT INTO t VALUES (" + "?, " * 20 + "?)\nSELECT " + "?, " * 20 + "?;",
    "a row of marks behind a cry": "We did it" + "!" * 22 + " And what then" + "?" * 20 + " 太好了" + "！" * 20,
    "counting down in digits": "".join(
        f"{i} bottles of beer on the wall, {i} bottles of beer.\nTake one down and pass it around, {i - 1} bottles of "
        "beer on the wall.\n\n" for i in range(99, 0, -1)
    ),
    "counting down in words": "".join(
        f"{one} green bottles hanging on the wall,\n{one} green bottles hanging on the wall,\nAnd if one green bottle "
        f"should accidentally fall,\nThere'll be {other} green bottles hanging on the wall.\n\n"
        for one, other in zip(WORDS[9::-1], [*WORDS[8::-1], "no"], strict=True)
    ),
    "parameters of one letter": "".join(f"    {c}: _ArrayLike,\n" for c in "abcdefghijklmnop"),
    "answers to choose from": "".join(
        f"{c}) the {w} one\n" for c, w in zip("abcdefghijklmnop", PROSE.split(), strict=False)
    ),
    "rows without a value": '{"_col0": null}\n' * 120,
    "a test's input": "echo aaaaaaaaaaaaaab | grep -P",
    "a cry": f"Noooooooooo!!!!!!!! {PROSE}",
    "a progress bar": "".join(f"build [{'#' * i}{'.' * (40 - i)}]\n" for i in range(0, 41, 4)),
    "indentation": "if x:\n" + " " * 80 + "y = 1\n",
    "leader dots": "Chapter 1 " + "." * 90 + " 5\n",
    "a numbered list": "".join(f"{i}. the {w} is ready\n" for i, w in enumerate(PROSE.split() * 2)),
    "counting": ", ".join(map(str, range(300))),
    "tests that passed": "".join(f"test_case_{i:03} ... ok\n" for i in range(80)),
    "a refrain of syllables": "Na na na na na na na na, na na na na, hey Jude\n" * 16,
    "syllables": "Na na na na na na na na",
    "syllables in rows": "La la la la la la la la\n" * 3 + "Doo doo doo doo doo doo\n" * 3,
    "a chorus": "(Sha la la la la la la)\nHey hey hey, goodbye\n" * 4,
    "a hallelujah": "Hallelujah, hallelujah, hallelujah, hallelujah,\n" * 4,
    "glued syllables": "Hahahahahahahaha HeyHeyHeyHeyHeyHeyHeyHeyHeyHey nananananananana",
    "a list of symbols": "OTH, OTH, OTH, OTH, OTH, OTH, OTH, OTH,\n" * 1,
    "rows of SQL": "".join(f"INSERT INTO users (id, name) VALUES ({i}, 'user{i}');\n" for i in range(80)),
    "an empty form": "".join(f"{i}.\n" for i in range(1, 21)) + "- \n" * 12,
    "floats that count": "[" + " ".join(f"{i}." for i in range(90)) + "]",
    "a paragraph that comes twice more": PARAGRAPH * 3,
    "a table format": "l l l l l l\n" * 20,
    "a refrain": (f"{PROSE}\nOh come back to me\nOh come back to me\nOh come back to me\n" * 3),
}  # fmt: skip


@pytest.mark.parametrize("text", HONEST.values(), ids=HONEST.keys())
def test_what_merely_repeats_is_let_through(text: str) -> None:
    assert run(f"{PROSE}\n\n{text}\n\n{PROSE}") == []


ASKED = {
    "a count": ("Write OK 500 times", "OK\n" * 500),
    "a count in words": ("Write 'I must not talk.' one hundred times, one per line.", "I must not talk.\n" * 100),
    "dozens": ("Type the word echo three dozen times", "echo " * 36),
    "zeros": ("a JSON array of 1500 zeros, please", json.dumps([0] * 1_500)),
    "another language": ("Schreibe 80 mal das Wort Apfel", "Apfel " * 80),
    "without a number": ("repeat the word hello forever", "hello " * 300),
    "a repetitive prompt": ("continue: " + "tick tack " * 12, "tick tack " * 40),
    "a line of dashes": ("a line of 900 dashes", "-" * 900),
    "a chant": ("Give me the text of a mantra", "Om mani padme hum. " * 12),
    "lyrics": ("Write song lyrics in the style of the eighties", "Around the world, around the world\n" * 12),
    "a counting song": (
        "Sing the song of the green bottles",
        "".join(f"{i} green bottles on the wall, {i - 1} green bottles fall.\n" for i in range(60, 0, -1)),
    ),
    "a litany": ("Schreib mir ein Gedicht als Litanei", "Herr, erbarme dich unser.\n" * 10),
}


@pytest.mark.parametrize(("prompt", "text"), ASKED.values(), ids=ASKED.keys())
def test_what_was_asked_for_is_let_through(prompt: str, text: str) -> None:
    assert run(text, prompt) == []


def test_asking_raises_the_bar_and_does_not_take_it_away() -> None:
    assert run("OK\n" * 5_000, "Write OK 500 times")
    assert run("I am sorry. " * 300, "List 100 fruits, one a line")
    assert run("A thousand stories untold, a thousand tales untold,\n" * 30, "Write song lyrics")


def test_a_recovery_does_not_clear_it() -> None:
    watch = Repetition()
    found = watch.feed(PROSE + " prevent" * 29)
    clear = watch.doubt
    assert found[0].severity == "error"
    assert watch.feed(" -- sorry, let me say that again: " + PROSE) == ()
    assert watch.finish() == ()
    assert watch.doubt == clear < len(PROSE) + 3 * len(" prevent") + 30


def test_tokens_without_text_are_seen_by_their_ids() -> None:
    watch = Repetition()
    assert watch.feed("Hello", [1, 2]) == ()
    found = [f for _ in range(40) for f in watch.feed("", [32_000])]
    assert [(f.code, f.onset) for f in found] == [("repetition.single_token", 5)]


@pytest.mark.parametrize("size", [1, 3, 40])
def test_a_mark_that_is_a_token_of_its_own_is_no_cry(size: int) -> None:
    assert run("We did it" + "!" * 22, ids=None) == []
    watch = Repetition()
    watch.feed("We did it", [7, 8, 9])
    found = [
        f for start in range(0, 22, size) for f in watch.feed("!" * min(size, 22 - start), [0] * min(size, 22 - start))
    ]
    assert [(f.code, f.onset, f.detected_at) for f in found] == [("repetition.single_token", 9, 25)]
    watch = Repetition()
    watch.feed("We did it", [7, 8, 9])
    assert watch.feed("!!!!!!!!!!!!", [500, 500, 500]) == ()


@pytest.mark.parametrize("times", range(2, 10))
@pytest.mark.parametrize("before", ["", PARAGRAPH])
def test_every_word_several_times(times: int, before: str) -> None:
    text = prose(random.Random(8), 900)
    assert run(before + "".join(f" {word}" * times for word in text.split()))


def test_a_text_that_goes_round_in_circles() -> None:
    rng = random.Random(2)
    phrases = [
        "a masterpiece of art and beauty", "where the beauty of the city is found", "a city of light and of love",
        "and the river runs through it all", "in the heart of the old town",
    ]  # fmt: skip
    circling = ", ".join(rng.choice(phrases[:4]) for _ in range(70))
    start = prose(rng, 900)
    found = run(start + circling)
    assert [f.code for f in found] == ["repetition.circles"]
    assert abs(found[0].onset - len(start)) < 300
    assert found[0].detected_at <= len(start) + 1_024 + 2 * 512
    assert run(start + circling, "Repeat these phrases at random 70 times") == []
    assert run(start + circling[:600] + prose(rng, 3_000)) == []


def test_a_short_answer_of_one_token_is_judged_at_its_end() -> None:
    watch = Repetition()
    assert watch.feed("\n" * 10) == ()
    assert [f.code for f in watch.finish()] == ["repetition.newlines"]


@pytest.mark.parametrize("char", ["G", "%", "?", "$", "ß", "的"])
def test_a_row_that_an_answer_ends_in_is_judged_at_its_end(char: str) -> None:
    assert [f.onset for f in run("So the harbour lies behind it. " + char * 13)] == [31]
    assert run("So the harbour lies behind it. " + char * 13 + " And so on.") == []
    assert run("So the harbour lies behind it. " + char * 9) == []


STUTTERED = ["The", "answer", "to", "your", "question", "is", "that", "the", "capital", "of", "France", "is", "Paris."]


@pytest.mark.parametrize(
    "text",
    [
        " ".join(f"{w} {w}" for w in STUTTERED),
        "".join(f" {w} {w}" for w in STUTTERED),
        "".join(f"{w}{w}" for w in STUTTERED),
        "II'll'll check check the the weather weather for for you you..",
        "我们我们需要需要考虑考虑这个这个问题问题，，今天今天下午下午在在河边河边见面见面。。",
    ],
)
def test_a_short_answer_that_stutters_is_judged_at_its_end(text: str) -> None:
    for size in (1, 4, 1_000):
        watch = Repetition()
        found = [f for at in range(0, len(text), size) for f in watch.feed(text[at : at + size])]
        assert [(f.code, f.onset) for f in [*found, *watch.finish()]] == [("repetition.stutter", 0)]
    assert run("It says: " + text[: len(text) // 2] + " and so on, as it were.") == []


@pytest.mark.parametrize(
    "text",
    [
        "Row, row, bye bye now now. Knock knock! Who is it, who is it? Moo moo, quack quack!",
        "tick tick tock tock tick tick tock tock tick tick tock tock tick tick",
        "高高兴兴、开开心心、快快乐乐、平平安安、干干净净",
        "AABBCCDDEEFFGGHHIIJJKKLLMMNNOOPPQQRRSSTTUU1122334455",
        "0011223344556677889900112233445566778899",
    ],
)
def test_a_short_answer_of_pairs_may_be_right(text: str) -> None:
    assert run(text) == []


def test_a_song_that_grows_is_let_through_where_one_was_asked_for() -> None:
    nouns = re.findall(r"\w+", "house malt rat cat dog cow maiden man priest cock farmer horse")
    lines = [f"that worried and chased and carried the {noun}" for noun in nouns]
    song = "\n\n".join("This is what it was\n" + "\n".join(reversed(lines[:n])) for n in range(1, 13))
    assert run(song, "Write a nursery rhyme that grows, like The House That Jack Built") == []


def test_a_refrain_behind_the_first_lines_of_an_answer() -> None:
    verse = "She stood there in the rain,\nand asked me to remain,\nI said I could not stay,\nso I went away,\n"
    assert run(verse + "Let it be, let it be now\n" * 6 + "And then the day came.") == []
    assert run(verse + "Let it be, let it be now\n" * 12)


def test_a_loop_is_held_from_its_third_copy_on() -> None:
    unit = PARAGRAPH
    for copies in (2, 3):
        watch = Repetition()
        text = PROSE + unit * copies + "And now"
        for start in range(0, len(text), 4):
            watch.feed(text[start : start + 4])
            assert watch.doubt <= len(PROSE) + 2 * len(unit) or start + 4 > len(PROSE) + copies * len(unit)
        watch.finish()
        assert watch.doubt == len(text)


def test_the_state_is_bounded() -> None:
    from tests.detectors.footprint import footprint

    watch = Repetition()
    for i in range(4_000):
        watch.feed(f"{PROSE[i % 50 :]} {i * i} ")
    assert footprint(watch) < 64_000


def test_recorded_loops_of_real_engines(shared: Path) -> None:
    from tests.detectors.recorded import chat_text

    loops = sorted(shared.glob("recordings/*/loop_list100_stream.response"))
    loops += sorted(shared.glob("recordings/*/loop_poem_stream.response"))
    loops.append(shared / "recordings/vllm/chat_stream_json_loop_cut.response")
    too_short = {"llamacpp/loop_poem_stream"}  # it ends in the third of its long copies
    for path in loops:
        name = f"{path.parent.name}/{path.stem}"
        found = run(chat_text(path), "Please answer.")
        assert bool(found) == (name not in too_short), name


@pytest.mark.parametrize(
    "answer", ["Yes.", "", "The harbour lies north of the town, and ships pass it at dawn.", "a\n" * 3]
)
def test_a_prompt_is_read_only_where_something_repeats(answer: str) -> None:
    """It may be a megabyte, and reading it costs milliseconds."""
    watched = Repetition(prompt_text="Tell me of the harbour, please.")
    for word in re.findall(r"\s*\S+\s*", answer):
        assert not watched.feed(word)
    assert not watched.finish()
    assert not watched._asked._read
