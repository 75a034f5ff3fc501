# The everyday commands. Each installs what is missing first, and is quick when nothing is.
#   make demo    three trainers on this machine train one network; one joins late, one is killed; WEB=1 shows it in a browser, too
#   make demo-nat  four trainers behind four NATs and a hub, in network namespaces (as root); one is killed
#   make quickstart  a first swarm, or (with the INITIAL_PEERS that another's prints) another peer of it
#   make test    C, C under sanitizers, Python: about 20 minutes on two cores
#   make times   tests/times.txt anew, of the newest make test: where a part may take longer
#   make test-long PART=slow    what takes longer, in parts of half an hour at most; docs/explanation/how-it-is-tested.md
#   make check   the C tests alone
#   make build   the extension, in place (python/_hivemind_c.abi3.so) with its libraries for PowerSGD and GPUs (python/hivemind_c/*.so)
#   make deps    system packages only; make venv: .venv too; make browser: chromium, which only tests want
#   make wheel   dist/hivemind_c-*.whl, with all it needs inside, a current gRPC among it (13 minutes, once); make wheel-test tries it in a clean environment (minutes); make sdist
#   make partition  a cable is pulled between two network namespaces (as root)
#   make siege      strangers of ten networks attack a peer in every way at once (as root)
#   make soak       a DHT of real processes, busy for five minutes: memory, files and threads stay flat (MINUTES=5)
#   make book    docs/ and the READMEs as a book: build/site/index.html
#   make pages   the pages that are made from docstrings, the C header and figures: run it after a change of those
#   make pictures  the terminals that the book shows, taken anew of the real programs (minutes)
#   make churn   16 processes average 50 times; in each round a third of them is killed, and started anew (minutes)
#   make pythons    the node's tests on every other Python found, with the extension as it is built
#   make versions WITH=lowest    the optimizer's and the strategy's tests with other versions of torch and Lightning (minutes; docs/explanation/how-it-is-tested.md)
#   make grpc       builds a current gRPC core into .grpc, which each later build takes (13 minutes on two cores, once)
#   make test-grpc  the network's C tests on that gRPC, built aside if it is missing; SUITE=experimental: on Debian's
#   make asan | tsan | fuzz T=wire | bench | fmt    as in csrc/Makefile
#   make gpu     on a machine with a GPU: checks and figures in one report, gpu-results/report.md (PART=correct|rounds|kernels|training|sanitizer|inside)
#   make clean   everything built; .venv stays

JOBS ?= $(shell nproc 2>/dev/null || echo 2)
WARN := -Wextra -Wshadow -Wstrict-prototypes -Wpointer-arith -Wvla -Werror
PY   := .venv/bin/python
CSRC := $(MAKE) --no-print-directory -j$(JOBS) -C csrc

demo: build
	@WEB=$(WEB) $(PY) examples/demo/demo.py

demo-nat: build
	@$(PY) examples/demo/nat.py $(HOMES)

quickstart: build
	@HIVEMIND_COMMAND="make quickstart" $(PY) examples/quickstart.py

# Tests wait more than they compute: for other processes, and for the seconds of rules. So there are two for each processor.
WORKERS ?= $(shell expr 2 '*' $(JOBS))
test: build browser
	@$(PY) scripts/times.py run C -- $(CSRC) -j$(WORKERS) check bench asan ASAN_KINDS="unit contract fuzz"
	@TEST_TIMES=1 $(PY) -m pytest -q -n $(WORKERS) --dist worksteal tests
# The newest run of make test becomes the table that its parts are held against.
times:
	@$(PY) scripts/times.py accept

check: deps
	@$(CSRC) check

# Each part takes half an hour on two cores, or less.
PARTS := slow asan tsan fuzz run seeds large churn partition siege soak wheel pythons grpc
test-long:
	@$(if $(filter $(PARTS),$(PART)),$(MAKE) --no-print-directory long-$(PART),echo "say which: make test-long PART=$(firstword $(PARTS)); there are: $(PARTS)" && exit 2)
long-slow: build browser
	@$(PY) -m pytest -q -n $(WORKERS) -m long tests
long-asan: asan
long-tsan: tsan
long-fuzz: deps
	@$(CSRC) fuzz T=all SECS=120
long-run long-seeds long-large: deps
	@$(CSRC) -s swarm-fast
	@$(PLAY_$(@:long-%=%))
PLAY_run := csrc/build/swarm-fast run --seeds 1-10000
PLAY_seeds := csrc/build/swarm-fast average --nodes 12 --epochs 6 --seeds 1-20000
PLAY_large := csrc/build/swarm-fast average --nodes 64 --epochs 50 --seeds 1-30
long-churn: churn
long-partition: partition
long-siege: siege
long-soak: soak
long-wheel: wheel wheel-test
long-pythons: pythons
long-grpc: test-grpc

partition: build
	@$(PY) -m pytest -q -s tests/partition/check_partition.py

siege: build
	@$(PY) -m pytest -q -s tests/partition/check_siege.py

MINUTES ?= 5
soak: build
	@PYTHONPATH=python $(PY) tests/soak/soak_dht.py --minutes $(MINUTES)

churn: build
	@CHURN_PEERS=16 CHURN_ROUNDS=50 $(PY) -m pytest -q -s -o faulthandler_timeout=1800 tests/py/averaging/test_averager_churn.py

grpc: venv
	@$(PY) scripts/build_grpc.py
	@$(CSRC) clean
	@$(MAKE) --no-print-directory build

test-grpc: venv
	@scripts/newer_grpc.sh $(SUITE)

pythons: build
	@$(PY) scripts/pythons.py $(PYTHONS)

versions: build
	@$(PY) scripts/versions.py $(if $(ON),--python $(ON)) $(WITH)

# Neither deps nor venv: a machine with a GPU may have no network. WHEEL=path brings gRPC; REHEARSE=1 needs no GPU.
PYTHON  ?= python3
RESULTS ?= gpu-results
gpu:
	@$(PYTHON) scripts/gpu.py --results "$(RESULTS)" $(if $(WHEEL),--wheel "$(WHEEL)") $(if $(REHEARSE),--rehearse) $(PART)

book: venv
	@$(PY) scripts/book.py build/site && echo build/site/index.html

pages: build
	@for script in api c_api settings sequences; do PYTHONPATH=python $(PY) scripts/$$script.py || exit 1; done; $(PY) -m benchmarks.plots.performance

pictures: build
	@$(PY) scripts/pictures.py

deps:
	@scripts/setup.sh system
venv:
	@scripts/setup.sh venv
browser:
	@scripts/setup.sh browser

build: venv
	@$(CSRC) -s lib
	@CFLAGS="$(WARN)" $(PY) setup.py -q build_ext --inplace

wheel: venv
	@rm -f dist/*.whl
	@$(PY) scripts/wheel.py dist
wheel-test: venv
	@$(PY) -m pytest -q tests/wheel/check_wheel.py
sdist: venv
	@$(PY) -c "import setuptools.build_meta as backend; print('dist/' + backend.build_sdist('dist'))" | tail -n 1

fmt: venv
asan tsan fuzz bench: deps
asan tsan fuzz bench fmt:
	@$(CSRC) $@ $(if $(T),T=$(T)) $(if $(SECS),SECS=$(SECS))

clean:
	@$(CSRC) clean
	@rm -rf build dist *.egg-info python/*.egg-info python/*.so python/*/*.so
	@find python tests examples -name __pycache__ -prune -exec rm -rf {} +

.PHONY: demo demo-nat quickstart test times check test-long grpc test-grpc $(PARTS:%=long-%) partition siege churn soak pythons versions gpu book pages pictures deps venv browser build wheel wheel-test sdist asan tsan fuzz bench fmt clean
