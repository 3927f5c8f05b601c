"""The thresholds of every detector. The numbers were set on the tuning half of tests/corpus and proved on the other.

Lengths are characters unless a name says otherwise. ``copies`` counts the first occurrence too.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Policy:
    """What it takes to condemn an answer.

    ``patience`` multiplies every bar of the repetition detector: 2.0 waits twice as long, 0.5 half.
    """

    # repetition of anything that nothing explains
    token_copies: int = 16  # one token again and again: a character, a word, a special token
    special_copies: int = 8
    whole_copies: int = 8  # the whole answer is one token again and again, and has ended
    phrase_copies: int = 5
    phrase_weight: int = 60  # and at least so many ASCII characters, or half or a quarter as many of other scripts
    word_copies: int = 7
    exclaimed_copies: int = 32  # of the mark that ends a short cry
    emoji_copies: int = 9
    # repetition that a context explains
    quoted_copies: int = 20  # the same string as a list's element
    code_copies: int = 12  # a unit with three or more different words of code, markup or a table
    rich_code_copies: int = 10  # the same with six words or more
    short_code_copies: int = 24  # the same with two words
    literal_copies: int = 64  # NULL, NULL, NULL
    member_copies: int = 9  # the same key with the same value, and no object begins between
    nested_copies: int = 12  # a call within the same call
    empty_row_copies: int = 256  # rows that hold no value
    row_copies: int = 32
    word_copies_in_verse: int = 40
    refrain_copies: int = 20  # a line of which most words are syllables that are sung
    verse_copies: int = 8
    song_copies: int = 16  # a line where the caller asked for a song, a prayer, a chant
    rule_chars: int = 400
    ornament_chars: int = 240
    number_chars: int = 4_000  # an array or a matrix of equal numbers
    stray_number_chars: int = 480  # the same in the middle of a sentence
    opaque_chars: int = 200  # base64, hex, identifiers: no end of a word in them
    newlines: int = 48
    leading_newlines: int = 16
    spaces: int = 512
    asked_copies: int = 1_000  # where the caller asked for repetition and gave no number
    # near-loops: only digits and white space differ
    near_copies: int = 10
    rich_near_copies: int = 6  # the same with seven words or more
    near_output_copies: int = 24  # in a fence, where programs print
    near_row_copies: int = 1_000
    countdown_copies: int = 120  # a verse that counts down to nought
    near_number_chars: int = 60_000
    # white space
    json_blank_chars: int = 64
    newline_flood: int = 48
    blank_chars: int = 1_024
    trailing_blank_chars: int = 192  # behind the last word of a finished answer
    trailing_newlines: int = 24
    # encoding
    mojibake_points: int = 4  # a certain pair counts two, one that may be honest counts one
    patience: float = 1.0


DEFAULT = Policy()
