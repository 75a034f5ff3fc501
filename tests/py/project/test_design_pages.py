"""The specifications on the design pages: they are short, and their numbers and tables are those of the code."""

import itertools
import re
import struct

import numpy
import pytest

import hivemind_c
from hivemind_c.compression.base import CompressionType, SerializedTensor
from hivemind_c.compression.codecs import BUILT_IN
from test_book import ROOT
from test_constants import COMMENT, code  # noqa: F401 (a fixture)

DESIGN, CSRC = ROOT / "docs/design", ROOT / "csrc"


def page_of(name):
    return (DESIGN / f"{name}.md").read_text()


def value_of(code, name):
    """The value of NAME, or of "file.c:NAME" where several files have one of that name."""
    file, _, short = name.rpartition(":")
    values = code.values(short, [file] if file else ["csrc"])
    assert len(values) == 1, f"{name} has no value in csrc, or several: {values}"
    return values.pop()


# ---- values on the pages ----

UNITS = {"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "bytes": 1}
SECONDS = {"ms": 0.001, "s": 1.0, "minutes": 60.0}
WORDS = dict(zip("one two three four five six seven eight nine ten eleven twelve".split(), itertools.count(1)))
PER_SECOND = {"MS": 1000, "US": 1_000_000}


def said_as(name, words):
    """The number that words such as "1,024", "64 KiB", "2^36" or "1.5 s" mean for a constant of this name."""
    number, _, unit = words.partition(" ")
    base, _, power = number.replace(",", "").partition("^")
    value = WORDS.get(base.lower()) or float(base)
    value = value ** float(power) if power else value
    if unit in SECONDS:
        suffix = name.rsplit("_", 1)[-1]
        assert suffix.upper() in PER_SECOND, f"{name} is no time, and the page says {words}"
        return value * SECONDS[unit] * PER_SECOND[suffix.upper()]
    return value * UNITS[unit] if unit else value


def rows_under(page, heading):
    """The cells of each row of the first table under a heading."""
    part = page[page.index(f"\n{heading}\n") :]
    table = re.search(r"(?:^\|.*\|\n)+", part, re.M)[0]
    return [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in table.splitlines()[2:]]


def test_words_of_a_page_are_read_as_numbers():
    said = {"A_MS": "1.5 s", "B": "2 KiB", "C": "2^36", "D_US": "2 ms", "E": "two"}
    assert [said_as(name, words) for name, words in said.items()] == [1500, 2048, 1 << 36, 2000, 2]
    with pytest.raises(AssertionError):
        said_as("E", "2 s")


#: page: {a number within its rules: the constant that it is}
NUMBERS = {
    "dht": {
        r"contacts nearest to the target; .* \| (\d+) contacts": "dht.c:ANSWER_CONTACTS",
        r"20 contacts, (1\.5 MiB)": "dht.c:ANSWER_BYTES_MAX",
        r"the last may be missing \| (\d+) \|": "HV_FINDS_MAX",
        r"addresses of the sender \| (1 MiB)": "dht_put.c:MESSAGE_BYTES_MAX",
        r"wait at most (2 ms)": "ask.c:HOLD_US",
        r"the oldest answer is (15 s) old": "HEARD_LATELY_MS",
        r"^4\. At most (two) contacts": "HV_ROUTE_PER_NETWORK",
        r"times as long, to (10 minutes)": "LONGEST_BACKOFF_MS",
        r"first (five) buckets": "HV_ROUTE_REGIONS",
        r"and of the (16) nearest contacts": "DENSITY_SAMPLE",
        r"turned nobody away for (20 minutes)": "LEFT_OUT_MS",
        r"with its first contact, (10 s) later": "LOOK_AGAIN_US",
        r"begins with the (20) nearest": "CONTACTS_ASKED",
        r"after (three) round trips": "ask.c:TIMES",
        r"at least (50 ms)": "ask.c:LEAST_US",
        r"\((400 ms) if unknown\)": "ask.c:UNKNOWN_US",
        r"waits (four) times as long": "lookup.c:PATIENCE",
        r"late nodes, at least (1 s)": "LEAST_PATIENCE_US",
        r"named (four) that failed": "BAD_GUIDE",
        r"up to (100) contacts": "OWN_MAX",
        r"nearest `num_replicas` \+ (3) answers": "BELIEVED_MORE",
        r"(Four) more lookups": "DHT_REGIONS",
        r"for (three minutes)": "SPOTS_US",
        r"Other stores of (30 s)": "SHORT_US",
        r"at half of the lease, at least every (10 minutes)": "dht_published.c:AGAIN_US",
        r"keeps one for (10 s)": "FRESH_US",
        r"must live (2 s) longer": "HV_STORE_SLACK_MS",
        r"leased for at most (60 s)": "HV_STORE_OF_ITSELF_MS",
        r"`num_replicas` \| 5 \(at most (20)\)": "HV_STORE_REPLICAS_MAX",
    },
    "wire": {
        r"one sentence \| (256 bytes)": "HV_MSG_TEXT_MAX",
        r"the caller's address \| (64) cards": "HV_CARDS_MAX",
        r"bytes, sent back \| (1 MiB)": "HV_MSG_BLOB_MAX",
        r"back, the receipt \| (4 MiB)": "HV_BULK_PAYLOAD_MAX",
        r"Founds \| .* \| (32) contacts": "HV_CONTACTS_MAX",
        r"Stored \| .* \| (2,048) records": "HV_RECORDS_MAX",
        r"its members and view \| (4 MiB)": "HV_BULK_PAYLOAD_MAX",
        r"Begin \| .* \| (256) members": "HV_MATCH_MEMBERS_MAX",
        r"sums of a zone \| (1 KiB)": "HV_ZONE_MSG_BYTES_MAX",
        r"Unknown fields are skipped, up to (32)": "UNKNOWN_MAX",
        r"one block of at most (8 MiB)": "HV_WIRE_BUDGET",
        r"all but the last have at least (16 KiB)": "HV_STREAM_PIECE_MIN",
        r"a peer called \| (512) calls": "HV_LOOP_PEER_CALLS_MAX",
        r"512 calls, (64) streams": "HV_LOOP_PEER_STREAMS_MAX",
        r"the first message \| (10 s)": "HV_LOOP_GREETING_MS",
        r"the answer was read \| (30 s)": "HV_LOOP_ANSWER_MS",
        r"of this message \| 1 to (65,535)": "HV_VERSIONS_MAX",
        r"dials the other for (1 s)": "HV_SPOKEN_APART_LEAST_US",
        r"each time, at most (5 minutes)": "HV_SPOKEN_APART_US",
        r"A node remembers (1,024) peers": "HV_SPOKEN_ROOM",
        r"logs (16) such sentences": "HV_SPOKEN_TOLD_MAX",
    },
    "codecs": {
        r"weights from 0 to (2\^64)": "HV_CODEC_WEIGHT_MAX",
        r"value times weight is at most (2\^119)": "HV_CODEC_ADDEND_MAX",
        r"program to program \| (2\^36) elements": "HV_CODEC_COUNT_MAX",
        r"one payload, (4 MiB)": "HV_BULK_PAYLOAD_MAX",
        r"beyond ±(2\^126) becomes": "HV_TAME",
        r"std \(at most (2\^110)\)": "STD_MAX",
        r"a unit is (4,096) elements": "HV_UNIT",
        r"in pieces of (4,096 bytes)": "HV_PIECE",
    },
    "matchmaking": {
        r"hosts to avoid \| (16) hosts": "HV_MATCH_AVOID_MAX",
        r"for all members \| (64 KiB)": "HV_MATCH_GATHER_MAX",
        r"; (1 MiB) per group": "HV_MATCH_GATHERS_MAX",
        r"leader, gather data \| (256) members": "HV_ROUND_MEMBERS_MAX",
        r"my place \| (64) at a time": "SUMMONS_MAX",
        r"do not expect me \| (64) peers": "match.c:DEPARTURES_MAX",
        r"declares itself each (20 s)": "DECLARE_AGAIN_MS",
        r"at least each (15 s)": "LOOK_MOST_MS",
        r"For its first (3 s)": "MATCH_SETTLE_MS",
        r"counts for (60 s) after": "DECLARED_MS",
        r"silent for (3 s)": "MATCH_SILENCE_MS",
        r"answer JOIN in (2 s)": "MATCH_ANSWER_MS",
        r"ends within (1 s)": "HV_MATCH_GRACE_MS",
        r"absent peers after (0\.3 s)": "SUMMON_FIRST_MS",
        r"for (1\.5 s) after": "CATCH_UP_MS",
        r"its return, for (0\.3 s)": "HV_ROSTER_COMES_MS",
        r"behind counts for (3 s)": "AT_FRESH_MS",
        r"a client's for (15 s)": "AT_CLIENT_MS",
        r"at most (2,048 bytes)": "HV_MATCH_SETUP_MAX",
        r"^- (Four) more strangers": "MATCH_STRANGERS_ASKED",
        r"or (three) were doubted": "MATCH_DOUBTED_MAX",
        r"Such a host is not asked for (2 s)": "AGAIN_FIRST_MS",
        r"keeps (16) gatherings": "MATCH_GATHERINGS_MAX",
    },
}


@pytest.mark.parametrize("name", NUMBERS)
def test_numbers_in_rules_are_the_codes(name, code):
    page = page_of(name)
    for pattern, constant in NUMBERS[name].items():
        found = re.findall(pattern, page, re.M)
        assert len(found) == 1, f"{name}: {pattern} is there {len(found)} times"
        value, said = value_of(code, constant), said_as(constant, found[0])
        assert said == pytest.approx(value), f"{name}: {constant} is {value}, and the page says {found[0]}"


# ---- tables ----


def defaults_in_code():
    """{option: default} of the functions of core/dht that fill in what a config leaves at 0."""
    text = "".join((CSRC / "core/dht" / name).read_text() for name in ("dht.c", "route.c", "store.c"))
    return {name: int(value) for name, value in re.findall(r"(?:c->|route->config\.)(\w+) = (\d+);", text)}


def test_defaults_of_the_dht_are_the_codes():
    cells = itertools.chain.from_iterable(rows_under(page_of("dht"), "## Defaults"))
    said = {name.strip("`"): said_as(name.strip("`"), words.split(" (")[0]) for name, words in zip(*[cells] * 2)}
    known = defaults_in_code()
    assert len(said) == 12 and said == {name: pytest.approx(known[name]) for name in said}


def test_quotas_of_the_dht_are_the_codes():
    store = (CSRC / "core/dht/store.c").read_text()
    assert "Quotas: 65,536 records and 256 MiB; a bringer has a quarter, a signer a sixteenth." in page_of("dht")
    assert "default_quota(&c->whole, 65536, (size_t)256 << 20);" in store
    for account, part in (("peer", 4), ("signer", 16)):
        words = f"&c->per_{account}, c->whole.records / {part} + 1, c->whole.bytes / {part} + 1"
        assert f"default_quota({words});" in store


def test_messages_of_the_wire_are_those_of_the_proto():
    proto = (CSRC / "proto/hivemind.proto").read_text()
    before, kinds, after = re.search(r"message Envelope \{(.*?)oneof kind \{(.*?)\}(.*?)\n\}", proto, re.S).groups()
    said = {}
    for numbers, names, *_ in rows_under(page_of("wire"), "## Messages"):
        numbers, names = numbers.split(", "), names.split(", ")
        assert len(numbers) == len(names)
        said.update(zip(names, map(int, numbers)))
    assert said == {name: int(number) for name, number in re.findall(r"(\w+) \w+ = (\d+);", kinds)}
    fields = {name: int(number) for name, number in re.findall(r"`(\w+)` \((\d+)\)", page_of("wire"))}
    assert fields == {name: int(number) for name, number in re.findall(r"(\w+) = (\d+);", before + after)}


def test_echo_on_the_page_has_its_bytes():
    parts = re.search(r"An Echo of `hi` is `([^`]+)`, `([^`]+)`, `([^`]+)`", page_of("wire")).groups()
    echo = next(int(row[0]) for row in rows_under(page_of("wire"), "## Messages") if row[1] == "Echo")
    assert bytes.fromhex("".join(parts)) == bytes([1 << 3, 1, echo << 3 | 2, 4, 1 << 3 | 2, 2]) + b"hi"


def coders(code):
    """{name: (codec, bits, bytes of parameters, elements of a block or "row", bytes of a scale)} of kern/codec_*.c."""
    numbers = re.findall(r"HV_CODEC_(\w+) = (\d+)", (CSRC / "kern/codec.h").read_text())
    tables = "".join(COMMENT.sub("", path.read_text()) for path in CSRC.glob("kern/codec_*.c"))
    for symbol, number in numbers:
        body = re.search(rf"const hv_coder hv_coder_{symbol.lower()} = \{{(.*?)\}};", tables, re.S)[1]
        fields = dict(re.findall(r"\.(\w+)\s*=\s*([^,]+?)\s*(?:,|$)", body))
        words = [fields.get(field, "0") for field in ("bits", "params", "block", "scale")]
        sizes = [code.evaluate(one, "csrc/kern/codec.h") for one in words]
        sizes[2] = "row" if "by_row" in fields else sizes[2]
        yield fields["name"].strip('"'), (int(number), *sizes)


def numbers_in_tensors():
    """{codec: CompressionType} of the built-in compressions."""
    for one in BUILT_IN:
        yield one.codec_name, int(one.compression_type)
        if one.flat_codec_name:
            yield one.flat_codec_name, int(one.compression_type)


def test_codecs_of_the_page_are_the_codes(code):
    said, in_tensors = {}, {}
    for codec, name, number, *sizes in rows_under(page_of("codecs"), "## The codecs"):
        name = name.strip("`")
        sizes = [0 if words in ("", "source") else words if words == "row" else int(words) for words in sizes]
        said[name], in_tensors[name] = (int(codec), *sizes), int(number)
    assert said == dict(coders(code)) and len(said) == 10
    assert in_tensors == dict(numbers_in_tensors()) and set(in_tensors.values()) == set(map(int, CompressionType))


def test_chunk_has_the_layout_of_the_page():
    sizes = [row[:2] for row in rows_under(page_of("codecs"), "## A chunk") if row[1]]
    offsets = [sum(int(size) for _, size in sizes[:i]) for i in range(len(sizes) + 1)]
    assert [int(offset) for offset, _ in sizes] == offsets[:-1] and offsets[-1] == 32
    values = numpy.arange(5000, dtype=numpy.float32)
    chunk = hivemind_c.BlockwiseQuantization().compress(values).buffer
    magic, version, codec, dtype, zero, count, body, _ = struct.unpack_from("<4sBBBBQQQ", chunk)
    assert (magic, version, codec, dtype, zero, count, body) == (b"HVc1", 1, 6, 1, 0, 5000, 32 + 16)
    assert len(chunk) == body + 5000


def test_serialized_tensor_has_the_form_of_the_page():
    form = re.search(r"`SerializeToString\(\)` of Python: `([^`]+)`", page_of("codecs"))[1]
    assert form == SerializedTensor._HEAD.format
    dimensions = re.search(r"dimensions, two lengths, 0 \| at most (\d+);", page_of("codecs"))[1]
    assert int(dimensions) == SerializedTensor.DIMS_MAX


def test_waits_of_gifts_are_those_of_the_core():
    header = (ROOT / "csrc/core/state/gift.h").read_text()
    waits = dict(re.findall(r"X\((\w+), (\d+),", header))
    rows = rows_under(page_of("hub"), "### States of trainers that nobody can dial")
    told = {name: ms for names, values, _ in rows for name, ms in zip(names.split(", "), values.split(", "))}
    assert told == waits and len(waits) == 12
    assert int(re.search(r"HV_GIFT_REST = (\d+)", header)[1]) == 4 and "none for 4 t" in page_of("hub")


def test_waits_of_an_epoch_are_those_of_the_core():
    header = (ROOT / "csrc/core/epoch/epoch.h").read_text()
    waits = dict(re.findall(r"X\((\w+), (\d+),", header))
    told = {name: longest for name, longest, *_ in rows_under(page_of("epoch"), "## Waits")}
    assert list(told) == list(waits) and len(waits) == 14
    for name, us in waits.items():
        assert us == "0" or re.search(rf"\b{int(us) // 1_000_000} s\b", told[name]), name


# ---- length ----

LIMITED = """averaging codecs defences denials dht gpu hub local-steps log lone-peers matchmaking
optimizer progress reach records rows-and-ranks several-gpus several-gpus-nccl state state-on-demand wire""".split()
WORDS_MAX = dict.fromkeys(LIMITED, 1600)
WORDS_MAX["architecture"] = 1300
WORDS_MAX["invitations"] = WORDS_MAX["strangers"] = 1600
WORDS_MAX["epoch"] = 2500
#: pages without a limit, and why
ANY_LENGTH = {
    "change-the-wire": "steps for contributors, no specification",
    "gpu-figures": "tables of measurements",
    "older-flags": "a table of names, no specification",
    "lineage": "a concept on one short page, no messages of its own",
    "round": "written before the round is designed anew",
    "source-map": "a row for each file of the tree",
    "style": "rules for contributors, no specification",
}


@pytest.mark.parametrize("name", WORDS_MAX)
def test_specification_is_short(name):
    assert len(page_of(name).split()) <= WORDS_MAX[name]


def test_each_design_page_has_a_limit_or_a_reason():
    assert {*WORDS_MAX, *ANY_LENGTH} == {page.stem for page in DESIGN.glob("*.md")}
    assert not set(WORDS_MAX) & set(ANY_LENGTH)


# ---- the map of the source ----


def test_source_map_names_each_file():
    """In Python below the name of the file's folder, because many files have plain words as names."""
    page = (ROOT / "docs/design/source-map.md").read_text()
    text = page[page.index("```text") : page.rindex("```")]
    shim = text[text.index("python/hivemind_c/") :]
    rows = dict(re.findall(r"(?ms)^  (\w+)/ (.*?)(?=^  \w+/ |^\w+/ |\Z)", shim))
    missing = []
    for folder in ("csrc", "cuda", "python/hivemind_c"):
        for path in sorted((ROOT / folder).rglob("*")):
            parts = path.relative_to(ROOT).parts
            if path.suffix not in (".c", ".h", ".cpp", ".cu", ".py", ".proto") or {"build", "__pycache__"} & set(parts):
                continue
            where = rows.get(parts[2], shim) if parts[0] == "python" else text
            if path.stem != "__init__" and not re.search(rf"\b{path.stem}\b", where):
                missing.append("/".join(parts))
    assert missing == []


# A reader of a record finds the line that decided.
def test_table_of_orders_names_the_file_that_makes_each():
    core, page = ROOT / "csrc/core/epoch", (ROOT / "docs/design/records.md").read_text()
    rows = re.findall(r"^\| ([A-Z_, ]+) \| `(epoch\w*\.c)` \|$", page.split("## From a line")[1], re.M)
    assert len(rows) == 6
    for names, file in rows:
        code = (core / file).read_text()
        missing = [name for name in names.split(", ") if not re.search(rf"\bHV_EPOCH_{name}\b", code)]
        assert not missing, f"{file} makes no {missing}"
