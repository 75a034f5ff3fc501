"""A schema for what peers tell of themselves, each under a key of its own."""

from typing import Dict

import hivemind
from hivemind.dht.crypto import RSASignatureValidator
from hivemind.dht.schema import BytesWithPublicKey, SchemaValidator
from hivemind.optim.progress_tracker import TrainingProgressSchema
from pydantic import BaseModel, StrictFloat, confloat, conint


class LocalMetrics(BaseModel):
    step: conint(ge=0, strict=True)
    samples_per_second: confloat(ge=0.0, strict=True)
    loss: StrictFloat


class MetricSchema(BaseModel):
    metrics: Dict[BytesWithPublicKey, LocalMetrics]


def make_validators(run_id):
    signature = RSASignatureValidator()
    return [
        SchemaValidator(MetricSchema, prefix=run_id),
        SchemaValidator(TrainingProgressSchema, prefix=run_id),
        signature,
    ], signature


validators, signature = make_validators("albert")
dht = hivemind.DHT(start=True, record_validators=validators)
now = hivemind.get_dht_time()
good = dict(step=3, samples_per_second=10.5, loss=8.25)
assert dht.store(
    "albert_metrics",
    subkey=signature.local_public_key,
    value=LocalMetrics(**good).model_dump(),
    expiration_time=now + 60,
)
for wrong in (dict(good, step=-1), dict(good, loss="low"), 7):
    try:
        dht.store("albert_metrics", subkey=signature.local_public_key, value=wrong, expiration_time=now + 60)
    except ValueError:
        pass
    else:
        raise AssertionError(f"{wrong} was stored")
assert [LocalMetrics(**entry.value).loss for entry in dht.get("albert_metrics", latest=True).value.values()] == [8.25]
dht.shutdown()
