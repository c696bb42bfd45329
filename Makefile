# One command for each thing people do. Everything these need, they install below target/.

NVRTC_VERSION := 12.8.93
VENV := target/venv
EMULATOR := target/emulator
PYTHON := target/python
# Tests of Python in two processes, each of which takes from the other when it has none left.
PYTEST := $(PYTHON)/bin/python -m pytest --quiet --numprocesses 2 --dist worksteal
NEXTEST := $(shell cargo nextest --version >/dev/null 2>&1 && echo yes)
# Tests that need a GPU have `device` in their path. They run on the emulator here, on a real GPU in the GPU bundle.
DEVICE_TESTS := device
# Property tests draw the same cases in every run of make; `cargo test` draws others each time.
export PROPTEST_RNG_SEED ?= 1
# Python keeps the bytecode of what it imports, whatever the environment says: without it, torch and PyG take 12 s to import
# in each of the processes that tests start, with it 5.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: test check lint unit kernels doctest emulated emulator-test installed python races wheel bench docs fuzz soak gpu-bundle clean

test:
	@MAKE=$(MAKE) scripts/stages.sh lint unit kernels doctest docs emulated python races

# For daily work: format, lints and tests of the crates that changed.
check:
	scripts/check.sh

lint:
	cargo fmt --all --check
	cargo clippy --workspace --all-targets --quiet -- -D warnings

# Without a GPU: every CPU path and every refusal.
unit:
	$(if $(NEXTEST),cargo nextest run --workspace,cargo test --workspace --lib --bins --tests --quiet)

# Kernels through the real compiler, but for those that it compiled before.
kernels: $(VENV)/nvrtc.stamp
	HEADWATER_CACHE=$(CURDIR)/target/compiled-kernels HEADWATER_REAL_NVRTC=$$(cat $(VENV)/nvrtc.stamp) cargo test --workspace --test it --quiet -- --exact nvrtc::every_kernel_compiles

doctest:
	cargo test --workspace --doc --quiet

# The same device tests on emulated devices, under AddressSanitizer and UBSan. Some take all memory of their device, so two
# never share a process at a time.
emulated: emulator-test
	CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_RUNNER=$(CURDIR)/emulator/run-sanitized.sh \
	HEADWATER_EMULATOR=$(CURDIR)/$(EMULATOR) \
	$(if $(NEXTEST),cargo nextest run --workspace -E 'test($(DEVICE_TESTS))',cargo test --workspace --lib --tests --quiet $(DEVICE_TESTS) -- --test-threads=1)

emulator-test:
	emulator/test.sh $(EMULATOR)-selftest $(EMULATOR)-plain $(EMULATOR)

$(VENV)/nvrtc.stamp:
	mkdir -p target
	python3 -m venv $(VENV)
	$(VENV)/bin/pip install --quiet --disable-pip-version-check nvidia-cuda-nvrtc-cu12==$(NVRTC_VERSION)
	echo $(CURDIR)/$$(ls -d $(VENV)/lib/python3*/site-packages/nvidia/cuda_nvrtc/lib/libnvrtc.so.12) > $@

# The wheel, installed with torch and PyG into an environment of its own, with the profile of tests.
installed: $(PYTHON)/stamp
	rm -rf target/wheels/dev
	$(PYTHON)/bin/maturin build --quiet --profile dev --interpreter $(PYTHON)/bin/python --out target/wheels/dev
	$(PYTHON)/bin/pip install --quiet --force-reinstall --no-deps target/wheels/dev/*.whl

# Its tests, those marked `gpu` on the emulator too. Small models are slower with threads, which wait for CPUs that others have.
python races: export OMP_NUM_THREADS ?= 1
python: installed
	$(PYTEST)
	$(MAKE) -s -j2 -C emulator OUT=$(CURDIR)/$(EMULATOR)-plain
	HEADWATER_EMULATOR=$(CURDIR)/$(EMULATOR)-plain emulator/run.sh $(PYTEST) -m gpu

# Tests of streams on an emulator that holds their work back, takes it in another order than it was queued in, and looks for
# races (emulator/README.md). ORDER seeds the order.
ORDER ?= 1
races: export HWEMU_ORDER = $(ORDER)
races: export HEADWATER_EMULATOR = $(CURDIR)/$(EMULATOR)-plain
races: installed
	$(MAKE) -s -j2 -C emulator OUT=$(CURDIR)/$(EMULATOR)-plain
	scripts/race-tests.sh
	HWEMU_COUNT_RACES=1 emulator/run.sh $(PYTEST) -m streams

$(PYTHON)/stamp: python/requirements.txt
	scripts/python-environment.sh $(PYTHON)
	touch $@

# One wheel for every Python from 3.10 on, with any torch or none.
wheel: $(PYTHON)/stamp
	$(PYTHON)/bin/maturin build --profile dist --interpreter $(PYTHON)/bin/python --out target/wheels

# Figures for this machine. On a GPU machine without Rust use the bundle.
bench:
	cargo run --release -- bench gather

docs:
	RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps

# A short run of each fuzz target. Needs cargo-fuzz, which needs a nightly toolchain. Leaks are not looked for: the thread
# that reads ahead may outlive a refused input by a moment.
FUZZ_SECONDS := 20
fuzz:
	@command -v cargo-fuzz >/dev/null || cargo install cargo-fuzz --locked --quiet
	cd fuzz && for target in $$(cargo +nightly fuzz list); do mkdir -p corpus/$$target; cargo +nightly fuzz run $$target $$(ls -d corpus/$$target seeds/$$target 2>/dev/null) -- -max_total_time=$(FUZZ_SECONDS) -detect_leaks=0 || exit 1; done

# Kills, faults, fuzzing, and hours of loaders and training, divided into so many minutes, builds aside (docs/testing.md).
SOAK_MINUTES ?= 30
soak: installed $(VENV)/nvrtc.stamp
	cargo build --release
	python3 -m soak --minutes $(SOAK_MINUTES) $(SOAK)

# What a GPU machine without Rust needs to run the GPU suite and the benchmarks: target/gpu/run.sh.
gpu-bundle:
	scripts/gpu-bundle.sh target/gpu

clean:
	cargo clean
