"""Models for tests of the torch engine, of no weights worth the name: one that follows a script, one that is random.

Their tokenizer has the 256 bytes and a few words. ``missing()`` says which packages are not installed.
"""

from __future__ import annotations

import importlib.util
import threading
import time
from typing import Any

WORDS = ["Hel", "lo", '{"', '":', "true", "Par", "is"]
TEMPLATE = (
    "{% for m in messages %}<{{ m.role }}>{{ m.content }}\n{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}"
)


def missing() -> str:
    lacking = [name for name in ("torch", "transformers", "xgrammar") if importlib.util.find_spec(name) is None]
    return f"not installed: {', '.join(lacking)}" if lacking else ""


def new_tokenizer() -> Any:
    """Byte-level BPE: each word is one token."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    vocabulary = {char: i for i, char in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    merges: list[tuple[str, str]] = []
    for word in WORDS:
        for end in range(2, len(word) + 1):
            if word[:end] not in vocabulary:
                merges.append((word[: end - 1], word[end - 1 : end]))
                vocabulary[word[:end]] = len(vocabulary)
    tokenizer = Tokenizer(models.BPE(vocabulary, merges))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<end>")
    fast.chat_template = TEMPLATE
    return fast


class Script:
    """A model that says its steps, one a call, whatever it reads: tokens as text, or pauses (seconds), an Event (it
    waits for it), an exception (it raises it). Afterwards it says its stop token."""

    def __init__(self, tokenizer: Any, *steps: Any) -> None:
        import torch
        from transformers import LlamaConfig

        self.torch = torch
        self.config = LlamaConfig(vocab_size=len(tokenizer), num_hidden_layers=1, max_position_embeddings=4096)
        self.device = torch.device("cpu")
        self.calls = 0
        self._tokenizer = tokenizer
        self._steps = list(steps)
        self._lock = threading.Lock()

    def __call__(self, ids: Any, *, cache: Any, use_cache: bool, logits_to_keep: int) -> Any:
        with self._lock:
            self.calls += 1
            at = cache.said = getattr(cache, "said", -1) + 1
        steps = self._steps[at:]
        step = steps[0] if steps else self._tokenizer.eos_token
        while not isinstance(step, str):
            if isinstance(step, BaseException):
                raise step
            if isinstance(step, threading.Event):
                step.wait(10)
            else:
                time.sleep(step)
            at = cache.said = at + 1
            step = self._steps[at] if at < len(self._steps) else self._tokenizer.eos_token
        token = self._tokenizer.convert_tokens_to_ids(self._tokenizer.tokenize(step))[0]
        logits = self.torch.full((1, 1, self.config.vocab_size), -9.0)
        logits[0, 0, token] = 9.0
        return type("Output", (), {"logits": logits})


def random_model(tokenizer: Any, seed: int = 0) -> Any:
    """A Llama of two layers and no training."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        max_position_embeddings=2048,
        eos_token_id=tokenizer.eos_token_id,
        bos_token_id=None,
        pad_token_id=None,
    )
    return LlamaForCausalLM(config).eval()
