"""Records that must fit a pydantic model: what does not is not stored, and not believed."""

from typing import Dict

import pydantic
import pydantic.v1
import pytest

from hivemind_c import DHT, get_dht_time
from hivemind_c.dht import BytesWithPublicKey, SchemaValidator, SignatureValidator


class Report(pydantic.BaseModel):
    step: int
    loss: float


class Metrics(pydantic.BaseModel):
    reports: Dict[BytesWithPublicKey, Report]
    total: int


class More(pydantic.BaseModel):
    names: Dict[str, str]


class OldReport(pydantic.v1.BaseModel):
    step: pydantic.v1.conint(ge=0, strict=True)
    loss: float
    note: str = "none"


class OldMetrics(pydantic.v1.BaseModel):
    reports: Dict[BytesWithPublicKey, OldReport]
    total: int

    @pydantic.v1.validator("total")
    def is_even(cls, value):
        if value % 2:
            raise ValueError("it is odd")
        return value


def soon():
    return get_dht_time() + 60


@pytest.fixture
def pair():
    owner = SignatureValidator()
    with DHT(start=True, record_validators=[owner, SchemaValidator(Metrics, prefix="run")]) as first:
        with DHT(first.get_visible_maddrs(), start=True, wait_timeout=30, startup_timeout=90) as second:
            yield first, second, owner.local_public_key


def test_record_that_fits_the_schema_is_stored_and_believed(pair):
    first, second, mark = pair
    assert first.store("run_reports", {"step": 1, "loss": 0.5}, soon(), subkey=mark)
    assert first.get("run_reports", latest=True).value[mark].value == {"step": 1, "loss": 0.5}
    assert first.store("run_total", 3, soon()) and first.get("run_total").value == 3


def test_types_are_strict(pair):
    first, second, mark = pair
    for key, value, subkey in [
        ("run_reports", {"step": "1", "loss": 0.5}, mark),
        ("run_reports", {"step": 1}, mark),
        ("run_reports", {"step": 1, "loss": 0.5}, b"nobody's"),
        ("run_reports", {"step": 1, "loss": 0.5}, "text"),
        ("run_total", 1.5, None),
        ("run_total", 1, mark),
    ]:
        with pytest.raises(ValueError):
            first.store(key, value, soon(), subkey=subkey)


# The programs of hivemind 1.1.12 have such models.
def test_model_of_pydantic_v1_is_a_strict_schema():
    owner = SignatureValidator()
    with DHT(start=True, record_validators=[owner, SchemaValidator(OldMetrics, prefix="run")]) as dht:
        mark = owner.local_public_key
        assert dht.store("run_reports", {"step": 1, "loss": 0.5}, soon(), subkey=mark)
        assert dht.get("run_reports", latest=True).value[mark].value == {"step": 1, "loss": 0.5}
        assert dht.store("run_total", 2, soon()) and dht.store("run_other", "any", soon())
        for key, value, subkey, words in [
            ("run_reports", {"step": "1", "loss": 0.5}, mark, "valid integer"),
            ("run_reports", {"step": 1, "loss": "0.5"}, mark, "type of reports"),
            ("run_reports", {"step": 1}, mark, "field required"),
            ("run_reports", {"step": 1, "loss": 0.5}, b"nobody's", "owner:PEERID"),
            ("run_reports", {"step": 1, "loss": 0.5}, "text", "bytes"),
            ("run_total", 1, None, "it is odd"),
            ("run_total", "2", None, "type of total"),
        ]:
            with pytest.raises(ValueError, match=words):
                dht.store(key, value, soon(), subkey=subkey)


def test_strangers_record_against_the_schema_is_ignored(pair, caplog):
    first, second, _ = pair
    assert second.store("run_total", "many", soon())
    assert first.get("run_total", latest=True) is None
    assert "valid integer" in caplog.text
    assert second.get("run_total").value == "many"


def test_other_keys_are_nobodys_business_unless_told_so():
    with DHT(start=True, record_validators=[SchemaValidator(Metrics)]) as open_, DHT(start=True) as closed:
        closed.add_validators([SchemaValidator(Metrics, allow_extra_keys=False)])
        assert open_.store("other", 1, soon()) and open_.store("total", 1, soon())
        with pytest.raises(ValueError, match="SchemaValidator does not accept"):
            closed.store("other", 1, soon())


def test_schemas_are_merged_into_one():
    with DHT(start=True, record_validators=[SchemaValidator(Metrics), SchemaValidator(More)]) as dht:
        assert len(dht._validators.all) == 1
        with pytest.raises(ValueError):
            dht.store("names", 1, soon(), subkey="a")
        assert dht.store("names", "b", soon(), subkey="a")


def test_only_a_pydantic_model_is_a_schema():
    for wrong in (dict, Report(step=1, loss=1.0), None):
        with pytest.raises(TypeError, match="pydantic.v1.BaseModel"):
            SchemaValidator(wrong)
