# Backstitch: what a person runs. `make help` lists it.

PATH := $(PATH):/usr/sbin:/sbin
BACKSTITCH = $(or $(CARGO_TARGET_DIR),target)/release/backstitch
HARNESS = ../shared/tools/peers/bench.py
export PATH

.PHONY: help build run run-deps lint-deps test test-posix test-fsx ablate semantics soak fuzz bench figures tour lint deps

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

build: ## Build the backstitch command
	cargo build --release --locked --bin backstitch

run: run-deps build ## A power cut in the middle of unpacking a source tree, with and without soft updates (2 minutes)
	BACKSTITCH_BIN=$(BACKSTITCH) scripts/demo.sh

test: deps build ## Everything a change needs (10 to 20 minutes on 2 cores)
	BACKSTITCH_BIN=$(abspath $(BACKSTITCH)) scripts/test.sh

test-posix: deps build ## pjdfstest with pauses of a second, on our mount and the kernel's (needs root, 4 minutes)
	BACKSTITCH_BIN=$(abspath $(BACKSTITCH)) NAPTIME=1 cargo test --locked -p backstitch-tests --test end-to-end posix:: -- --nocapture

test-fsx: deps build ## fsx with 200,000 operations
	BACKSTITCH_BIN=$(abspath $(BACKSTITCH)) FSX_OPS=200000 cargo test --locked -p backstitch-tests --test end-to-end fsx:: -- --nocapture

soak: deps build ## Hours of kills, random operations, explorations and fault sweeps; seeds are printed (ROUNDS=n rounds, PARTS="torn faults" those only)
	BACKSTITCH_BIN=$(abspath $(BACKSTITCH)) scripts/soak.sh $(PARTS)

ablate: build ## Each rule switched off in turn, and the tables of docs/GUARANTEES.md made anew (an hour; PIECES="soft sync" those only)
	BACKSTITCH_BIN=$(abspath $(BACKSTITCH)) scripts/ablate.py $(PIECES)

semantics: build ## What programs can rely on under each mechanism, measured, and the table of docs/GUARANTEES.md made anew
	BACKSTITCH_BIN=$(abspath $(BACKSTITCH)) scripts/semantics.sh

fuzz: ## Every fuzz target for a minute (SECONDS_EACH=n, TARGETS="mount fsck" those only, SEED=n); needs a nightly compiler
	scripts/install-deps.sh --fuzz
	scripts/fuzz.sh $(TARGETS)

bench: deps build ## Ours beside fuse2fs and the kernel; where the peers' harness is there, beside FUSE's floor and the bars (BENCH=--full: all, 5 runs)
	if [ -e "$(HARNESS)" ] && [ "$$(id -u)" = 0 ]; then \
	    BACKSTITCH_BIN=$(abspath $(BACKSTITCH)) python3 benches/peers/bars.py $(BENCH); \
	else \
	    BACKSTITCH_BIN=$(abspath $(BACKSTITCH)) python3 benches/peers/run.py $(BENCH); \
	fi

figures: build ## The papers' tables and figures beside ours, as a page: figures/figures.html (5 minutes; FIGURES="--papers 003" those only)
	$(BACKSTITCH) bench figures --plot figures $(FIGURES)
	@echo "Open figures/figures.html"

tour: build ## The pictures and answers of docs/tour made anew, from traces (seconds)
	BACKSTITCH_BIN=$(abspath $(BACKSTITCH)) scripts/tour.py

lint: lint-deps ## Formatting, clippy, documentation, licences and sources of the dependencies
	cargo fmt --all --check
	cargo clippy --workspace --all-targets --locked -- -D warnings
	RUSTDOCFLAGS=-Dwarnings cargo doc --workspace --no-deps --locked
	cargo fetch --locked
	cargo deny --offline check licenses bans sources

run-deps:
	scripts/install-deps.sh --run

lint-deps:
	scripts/install-deps.sh --lint

deps: ## Install the Debian packages and tools that tests and benchmarks use
	scripts/install-deps.sh
