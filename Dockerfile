# hivemind_c with PyTorch and Lightning on the CPU:
#   docker build -t hivemind_c .
#   docker run --rm --network host hivemind_c                      the quickstart: a swarm begins
#   docker run --rm --network host -e INITIAL_PEERS=... hivemind_c  joins the swarm whose line was printed
#   docker build --target hub -t hivemind_hub .                    the hub, without torch
#   docker run -d --network host -v states:/states hivemind_hub --run_id my_run
# On a GPU, with driver 530 or later: --build-arg TORCH_INDEX=https://download.pytorch.org/whl/cu126, and docker run --gpus all.
# The address that a container sees is its bridge's, which others cannot reach: hence --network host.
FROM debian:12-slim AS build
COPY scripts/setup.sh /source/scripts/
RUN apt-get update && /source/scripts/setup.sh system && rm -rf /var/lib/apt/lists/*
ARG TORCH_INDEX=https://download.pytorch.org/whl/cpu
WORKDIR /source
COPY requirements.txt ./
RUN python3 -m venv .venv && .venv/bin/pip install -q --extra-index-url $TORCH_INDEX -r requirements.txt
COPY . .
RUN .venv/bin/python scripts/wheel.py /wheels

FROM python:3.12-slim-bookworm AS hub
COPY --from=build /wheels /wheels
RUN pip install --no-cache-dir "$(ls /wheels/*.whl)[monitor]" && rm -r /wheels
RUN useradd --create-home hub && mkdir /states && chown hub /states
USER hub
ENV XDG_STATE_HOME=/states
VOLUME /states
EXPOSE 31337
ENTRYPOINT ["hivemind-hub", "--checkpoints", "/states"]

FROM python:3.12-slim-bookworm
ARG TORCH_INDEX=https://download.pytorch.org/whl/cpu
COPY --from=build /wheels /wheels
RUN pip install --no-cache-dir --extra-index-url $TORCH_INDEX torch numpy lightning "$(ls /wheels/*.whl)[monitor]" && rm -r /wheels
RUN useradd --create-home trainer
USER trainer
WORKDIR /home/trainer
COPY examples/quickstart.py examples/cluster/train.py ./
EXPOSE 31337
CMD ["python", "quickstart.py"]
