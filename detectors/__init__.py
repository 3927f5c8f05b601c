"""Detectors of what goes wrong in a model's answer: pure, incremental, usable on their own.

    from detectors import Repetition

    watch = Repetition()
    for piece in pieces:
        for finding in watch.feed(piece):
            print(finding.code, finding.onset)

Every detector keeps the contract in detectors/contract.py. This package imports nothing but the standard library;
detectors.tensor and the in-engine forms, which need torch and an engine, are never imported from here.
"""

from detectors.contract import Detector
from detectors.cross_request import CrossRequest, Prompts
from detectors.empty import Facts, judge_empty
from detectors.encoding import Encoding
from detectors.finding import Finding
from detectors.leak import Leak
from detectors.numeric import Numeric
from detectors.panel import Panel
from detectors.policy import Policy
from detectors.repetition import Repetition
from detectors.stream import StreamIntegrity
from detectors.whitespace import Whitespace

__all__ = [
    "CrossRequest",
    "Detector",
    "Encoding",
    "Facts",
    "Finding",
    "Leak",
    "Numeric",
    "Panel",
    "Policy",
    "Prompts",
    "Repetition",
    "StreamIntegrity",
    "Whitespace",
    "judge_empty",
]
