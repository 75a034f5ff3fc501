#!/bin/sh
# noticed.sh aws|gcp|azure COMMAND...: runs a trainer, and sends it SIGTERM when the provider announces that it takes the machine.
# METADATA is the address of the provider's metadata service, PAUSE the seconds between two questions; both have defaults.
provider=$1
shift || exit 2
ask() { curl -sf -m 2 "$@"; }

case $provider in
aws)
    METADATA=${METADATA:-http://169.254.169.254}
    noticed() { # IMDSv2: a token first; until the notice there is no such page (404)
        token=$(ask -X PUT -H "X-aws-ec2-metadata-token-ttl-seconds: 300" "$METADATA/latest/api/token") || return 1
        ask -H "X-aws-ec2-metadata-token: $token" "$METADATA/latest/meta-data/spot/instance-action" | grep -Eq '"(terminate|stop|hibernate)"'
    } ;;
gcp)
    METADATA=${METADATA:-http://metadata.google.internal}
    noticed() { [ "$(ask -H "Metadata-Flavor: Google" "$METADATA/computeMetadata/v1/instance/preempted")" = TRUE ]; } ;; # else FALSE
azure)
    METADATA=${METADATA:-http://169.254.169.254}
    noticed() { ask -H "Metadata: true" "$METADATA/metadata/scheduledevents?api-version=2020-07-01" | grep -Eq '"EventType": *"Preempt"'; } ;;
*)
    echo "noticed.sh: no provider '$provider': give aws, gcp or azure, and the command after it" >&2
    exit 2 ;;
esac

"$@" &
trainer=$!
trap 'kill -TERM $trainer' TERM INT
while kill -0 $trainer 2>/dev/null; do
    noticed && kill -TERM $trainer && break
    sleep "${PAUSE:-5}"
done
wait $trainer
