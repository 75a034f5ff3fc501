"""The text as numbers: a tokenizer, and blocks of tokens that trainers read. Once, on one machine; copy the folder to the others, or run it there too.

    python prepare.py --folder data                  WikiText-103 and the tokenizer of albert-large-v2 (needs: pip install datasets)
    python prepare.py --folder data --text my.txt    your own text, and a tokenizer made for it
    python prepare.py --folder data --tiny           a small text made here, for a first try without a network"""

import argparse
import pathlib
import random

import numpy as np

TINY_SENTENCES = 4000


def tiny_text():
    """Sentences of a small world, the same everywhere: enough for a loss that falls."""
    rng = random.Random(7)
    who, does, what = ["the cat", "a dog", "my friend", "the old man", "she"], ["sees", "likes", "follows", "draws"], ["the house", "a red ball", "the river", "bread"]
    where = ["in the garden", "near the sea", "at night", "every day"]
    return [f"{rng.choice(who)} {rng.choice(does)} {rng.choice(what)} {rng.choice(where)} ." for _ in range(TINY_SENTENCES)]


def own_tokenizer(lines, vocabulary):
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.Unigram())
    tokenizer.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Lowercase()])
    tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizers.Metaspace(), decoders.Metaspace()
    special = ["<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]"]
    tokenizer.train_from_iterator(lines, trainers.UnigramTrainer(vocab_size=vocabulary, special_tokens=special, unk_token="<unk>", show_progress=False))
    names = dict(pad_token="<pad>", unk_token="<unk>", cls_token="[CLS]", sep_token="[SEP]", mask_token="[MASK]")
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, **names)


def wikitext():
    try:
        from datasets import load_dataset
    except ImportError:
        raise SystemExit("WikiText-103 is loaded by datasets, which is not installed: pip install datasets (or use --text or --tiny)") from None
    return [line for line in load_dataset("Salesforce/wikitext", "wikitext-103-v1", split="train")["text"] if line.strip()]


def blocks(tokenizer, lines, length):
    """Rows of `length` tokens, cut from all lines one after the other: [CLS] text [SEP]."""
    inside = length - 2
    stream = np.concatenate([np.asarray(ids, np.int32) for ids in tokenizer(lines, add_special_tokens=False)["input_ids"]])
    rows = stream[: len(stream) // inside * inside].reshape(-1, inside)
    ends = np.full((len(rows), 1), tokenizer.cls_token_id, np.int32), np.full((len(rows), 1), tokenizer.sep_token_id, np.int32)
    return np.concatenate([ends[0], rows, ends[1]], 1)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--folder", type=pathlib.Path, default="data")
    parser.add_argument("--tokenizer", default="albert/albert-large-v2")
    parser.add_argument("--text", type=pathlib.Path)
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("--vocabulary", type=int, default=8000, help="of a tokenizer that is made here")
    parser.add_argument("--length", type=int, help="tokens of a block; 512 by default, 32 with --tiny")
    options = parser.parse_args()
    if options.tiny or options.text:
        lines = tiny_text() if options.tiny else [line for line in options.text.read_text().splitlines() if line.strip()]
        tokenizer = own_tokenizer(lines, 200 if options.tiny else options.vocabulary)
    else:
        from transformers import AutoTokenizer

        lines, tokenizer = wikitext(), AutoTokenizer.from_pretrained(options.tokenizer)
    rows = blocks(tokenizer, lines, options.length or (32 if options.tiny else 512))
    options.folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save_pretrained(options.folder)
    np.save(options.folder / "tokens.npy", rows)
    print(f"{len(rows)} blocks of {rows.shape[1]} tokens and a tokenizer of {len(tokenizer)} are in {options.folder}", flush=True)


if __name__ == "__main__":
    main()
