# make help lists the targets. Everything a target needs it finds or installs
# itself; nothing but Go and python3 is asked of the machine, and for the tests what
# .ci/packages lists.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
export CGO_ENABLED ?= 0
# What one checkout has compiled serves the others, wherever they are.
export GOFLAGS := $(strip $(filter-out -trimpath,$(GOFLAGS)) -trimpath)

BIN := .tmp/bin
GOFILES = $$(git ls-files -co --exclude-standard '*.go')
# Which interpreter's pip resolves for which version of Python; make python-lock.
PYTHONS ?= 3.9=python3.9 3.10=python3.10 3.11=python3.11 3.12=python3.12 3.13=python3.13 3.14=python3.14
PROTOS := process/process.proto filesystem/filesystem.proto
# How many packages are tested at once: many tests wait more than they compute.
PARALLEL ?= $(shell echo $$(( $$(getconf _NPROCESSORS_ONLN) * 2 )))
# For make test: -run, -short, -count, and packages. For make stress: -slice, and packages.
TESTFLAGS ?=
STRESSFLAGS ?=
# make vet vets the tests. Under load Go's ten minutes are too few for a package.
GOTEST := go test -vet=off -timeout=30m -p $(PARALLEL)
BENCHFLAGS ?=
# KUBERNETES is the engine of pods, a module of its own.
KUBERNETES := internal/cloud/engine/kubernetes
# FRAMEWORKS are the examples for agents' frameworks, another module of its own.
FRAMEWORKS := examples/frameworks

# STILTED matches words that readers stumble over, in comments and pages.
STILTED := \b(is|are) (what|who|whom|where|when|why)\b|\btells (whether|that)\b|\bany more\b|\bto be had\b|\bso many of\b|\bof which\b|\bthat it is of\b|\b(says?|knows?|gives?|has|have|holds?|sees?|shows?|do|does|gets?|makes?|reads?|takes?|needs?|keeps?|with|of|from|in|for|to|by|at|about|and) what\b
# What make release builds, and where to. CARRIED is where Go finds what it puts into them.
RELEASES ?= linux/amd64 linux/arm64 darwin/amd64 darwin/arm64 windows/amd64 windows/arm64
RELEASE ?= .tmp/release
CARRIED := internal/cloud/linuxprogram
# What make image builds. IMAGEFLAGS go to internal/packaging/image.
IMAGE ?= e2bctl:dev
IMAGE_ARCHITECTURES ?= amd64 arm64
IMAGEFLAGS ?=
# Where the client and the command are vetted, though no engine of their own is there.
CLIENTS := freebsd/amd64 linux/386
CLIENT := ./api/... ./sandbox ./sandbox/agent ./sandbox/chart ./sandbox/otel ./sandbox/template ./state ./cli/e2bctl
# What make storm chooses by, and how long it lasts.
SEED ?= $(shell date +%s)
STORM_TIME ?= 5m
# How long make fuzz runs each of the fuzz targets.
FUZZTIME ?= 10s
# make short leaves out the packages whose tests start a cloud, one a line in what
# this go list prints, those that run whole programs of other projects, and those that
# compile.
NEEDS_CLOUD := /(sandbox/sandboxtest|internal/cloud|internal/cloud/engine/room)$$
SLOW := /(internal(/(interop|readme|realservice|e2e|bench|testrun))?|internal/cloud(/(engine|kernel|linuxprogram|pyenv).*)?|sandbox/local|examples/.*)$$
SHORT = $$(go list -f '{{.ImportPath}}{{range .TestImports}} {{.}}{{end}}{{range .XTestImports}} {{.}}{{end}}' ./... | \
	awk '$$1 ~ "$(SLOW)" { next } { for (i = 2; i <= NF; i++) if ($$i ~ "$(NEEDS_CLOUD)") next; print $$1 }')

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "%-16s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: build
build: ## build the command to .tmp/bin/e2bctl
	@mkdir -p $(BIN)
	go build -o $(BIN)/e2bctl ./cli/e2bctl

.PHONY: kubernetes
kubernetes: build ## and .tmp/bin/e2bctl-kubernetes, which has the engine of pods
	cd $(KUBERNETES) && go build -o $(CURDIR)/$(BIN)/e2bctl-kubernetes ./e2bctl-kubernetes

.PHONY: image
image: ## build the container image IMAGE, for the server in a cluster and for pods, to .tmp/image.tar; IMAGEFLAGS=--push pushes it
	@mkdir -p .tmp/image; built=(); \
	for arch in $(IMAGE_ARCHITECTURES); do \
		export CGO_ENABLED=0 GOOS=linux GOARCH=$$arch; \
		go build -trimpath -buildvcs=false -ldflags='-s -w' -o .tmp/image/program-$$arch ./$(CARRIED)/contained; \
		(cd $(KUBERNETES) && go build -trimpath -ldflags='-s -w' -o $(CURDIR)/.tmp/image/e2bctl-$$arch ./e2bctl-kubernetes); \
		built+=(--binary .tmp/image/e2bctl-$$arch --program .tmp/image/program-$$arch); \
	done; \
	unset GOOS GOARCH; go run ./internal/packaging/image "$${built[@]}" --name $(IMAGE) --output .tmp/image.tar $(IMAGEFLAGS)

.PHONY: release
release: ## build e2bctl for Linux, macOS and Windows to .tmp/release; those for macOS and Windows contain the program of containers
	@mkdir -p $(RELEASE); trap 'rm -f $(CARRIED)/linux_*.gz' EXIT; \
	for arch in amd64 arm64; do \
		CGO_ENABLED=0 GOOS=linux GOARCH=$$arch go build -trimpath -buildvcs=false -ldflags='-s -w' -o $(RELEASE)/contained-linux-$$arch ./$(CARRIED)/contained; \
		gzip -9nc $(RELEASE)/contained-linux-$$arch >$(CARRIED)/linux_$$arch.gz; \
	done; \
	for system in $(RELEASES); do \
		file=$(RELEASE)/e2bctl-$${system/\//-}; if [ "$${system%/*}" = windows ]; then file+=.exe; fi; echo "$$file"; \
		CGO_ENABLED=0 GOOS=$${system%/*} GOARCH=$${system#*/} go build -tags release -trimpath -ldflags='-s -w' -o "$$file" ./cli/e2bctl; \
	done

.PHONY: packages
packages: release ## archives, wheels of pip, packages of npm, .deb, .rpm and checksums of what make release builds, to .tmp/packages
	@export SOURCE_DATE_EPOCH=$$(git log -1 --format=%ct); rm -rf .tmp/release/manual; \
	go run ./cli/manual -man .tmp/release/manual/man -completions .tmp/release/manual/completions; \
	go run ./internal/packaging/release -output .tmp/packages -carried $(RELEASE)/contained-linux-amd64 -distributions -manual .tmp/release/manual/man -completions .tmp/release/manual/completions \
		$(foreach system,$(RELEASES),$(RELEASE)/e2bctl-$(subst /,-,$(system))$(if $(findstring windows,$(system)),.exe)); \
	ls -l .tmp/packages

.PHONY: check
check: format words vet lint checkgenerate test frameworks ## everything: format, English, vet, lint, generated code fresh, tests

.PHONY: short
short: format words build ## what an edit needs, in under a minute: format, English, vet for this system, tests that need no sandbox
	go vet ./...
	@$(PREPARED); go test -short -vet=off -timeout=5m $(TESTFLAGS) $(SHORT)

.PHONY: format
format: ## fail when a file is not gofmt-ed
	@files=$$(gofmt -l $(GOFILES)); if [ -n "$$files" ]; then echo "not gofmt-ed: $$files" >&2; exit 1; fi

OTHERS = $(addsuffix /amd64,$(filter-out $(shell go env GOOS),linux darwin windows))
.PHONY: vet
vet: $(BIN)/lint ## go vet's checks for Linux, macOS and Windows, but for this system's, which are among the linters; the client also for FreeBSD and 32 bits
	$(BIN)/lint systems $(OTHERS) -- ./...
	$(BIN)/lint systems $(CLIENTS) -- $(CLIENT)

# Go knows whether it is up to date. It is the same for every commit and checkout,
# because go vet remembers for each tool what it found.
.PHONY: $(BIN)/lint
$(BIN)/lint:
	@mkdir -p $(BIN)
	cd internal/tools && go build -trimpath -buildvcs=false -o ../../$@ ./lint

.PHONY: words
words: ## look for stilted English in comments and pages, committed or not
	@! { git grep --untracked -nE '(//|#|""").*($(STILTED))' -- '*.go' '*.py' ':!internal/gen' || :; git grep --untracked -nE '$(STILTED)' -- '*.md' || :; } | grep . || { echo "say it in plain English: reports whether, no longer, available, a number of, a noun in place of what and of which" >&2; exit 1; }

.PHONY: lint
lint: words $(BIN)/lint ## run the linters of internal/tools/lint, go vet's among them, and look for stilted English
	go vet -vettool=$(BIN)/lint -every-package ./...
	cd internal/tools && go vet -vettool=../../$(BIN)/lint -every-package ./... && go test -count=1 -vet=off ./lint
	cd $(KUBERNETES) && go vet -vettool=$(CURDIR)/$(BIN)/lint -every-package ./... && go test -count=1 -vet=off ./...
	cd internal/packaging/linux && go vet -vettool=$(CURDIR)/$(BIN)/lint -every-package ./... && go test -count=1 -vet=off ./...

# It is not among the linters, because its tests need the prepared Python.
.PHONY: frameworks
frameworks: deps $(BIN)/lint ## lint and test the module of examples/frameworks, whose frameworks only it needs
	@$(PREPARED); cd $(FRAMEWORKS) && go vet -vettool=$(CURDIR)/$(BIN)/lint -every-package ./... && go test -vet=off ./...

.PHONY: generate
generate: ## write internal/gen from internal/proto, and the example's wheel
	cd internal/tools && go run ./protogen -I ../proto -o ../gen -module github.com/e2bctl/e2bctl/internal/gen $(PROTOS)
	go generate ./examples/...

.PHONY: checkgenerate
checkgenerate: ## fail when internal/gen is not what internal/proto says
	@rm -rf .tmp/gen && mkdir -p .tmp/gen
	cd internal/tools && go run ./protogen -I ../proto -o ../../.tmp/gen -module github.com/e2bctl/e2bctl/internal/gen $(PROTOS)
	@for f in process filesystem; do diff -r .tmp/gen/$$f internal/gen/$$f || { echo "internal/gen is stale: run make generate" >&2; exit 1; }; done

.PHONY: manual
manual: ## write cli/manual from the commands, and pages for man to .tmp/man
	go run ./cli/manual -markdown cli/manual -man .tmp/man

.PHONY: python-lock
python-lock: ## resolve the sandboxes' Python packages anew (PYTHONS="3.9=python3.9 ...")
	cd internal/tools && for list in requirements full; do \
		go run ./pylock -in ../cloud/pyenv/$$list.in -out ../cloud/pyenv/$$list.txt $(PYTHONS); done

.PHONY: interop-update
interop-update: ## move the SDKs and libraries that the interop tests run to their newest release
	internal/interop/update $(filter-out 3.9=% 3.10=%,$(PYTHONS))

.PHONY: setup
setup: build ## prepare the Python environment that sandboxes run
	$(BIN)/e2bctl local setup || echo "going on with the python3 of this machine"

.PHONY: deps
deps: build ## fetch everything that the tests need: packages of the machine (.ci/packages), Go modules, Python, npm
	@.ci/deps || { [ -z "$${CI:-}" ] && echo "going on without what is missing: tests that need it are skipped"; }

.PHONY: deps-engines
deps-engines: build ## and what make check-engines needs beside that: Docker, WebAssembly, and gVisor that go builds
	@if [ "$$(id -u)" != 0 ]; then echo "not root: the tests of engines do not run"; exit; fi; \
	.ci/deps engines || { [ -z "$${CI:-}" ] && echo "going on without what is missing: tests that need it are skipped"; }

.PHONY: deps-kubernetes
deps-kubernetes: build ## and what make check-kubernetes needs beside that: etcd, containerd, and Kubernetes that go builds, in 15 minutes of processor time
	@if [ "$$(id -u)" != 0 ]; then echo "not root: the tests with a cluster do not run"; exit; fi; \
	.ci/deps kubernetes || { [ -z "$${CI:-}" ] && echo "going on without what is missing: tests that need it are skipped"; }

.PHONY: demo
demo: setup ## build everything and do a real job in a local sandbox
	go run ./examples/quickstart -local -out examples/quickstart/out

.PHONY: bench bench-kubernetes
bench-kubernetes: deps-kubernetes # as root
	cd $(KUBERNETES) && E2BCTL_TEST_KUBERNETES=1 go test -run '^$$' -bench . -benchtime 3x -v $(BENCHFLAGS) .

HISTORY = internal/bench/history
BENCH = go build -o $(BIN)/bench ./internal/bench && $(BIN)/bench -e2bctl $(BIN)/e2bctl

ifeq ($(ROWS),kubernetes)
bench: bench-kubernetes
else
bench: setup ## measure, print a table and keep the results (ROWS=quick in 90 seconds, ROWS=kubernetes for a cluster; without ROWS also WebAssembly with the help of npm and gVisor that go builds; BENCHFLAGS="-readme internal/bench/README.md" puts the table there)
ifneq ($(ROWS),quick)
	$(BIN)/e2bctl local setup --engine wasm
	$(BIN)/e2bctl local setup --engine gvisor
endif
	$(BENCH) -history $(HISTORY) -commit "$$(git describe --always --dirty)" $(if $(filter quick,$(ROWS)),-quick,-wasm -gvisor) $(BENCHFLAGS)
endif

.PHONY: bench-compare
bench-compare: ## tell what changed between the last make bench and the ones before it on the same kind of machine
	go run ./internal/bench -compare $(HISTORY)

.PHONY: profile
profile: setup ## write profiles of the rows whose name contains ROW to .tmp/profile: server and client for go tool pprof, the whole machine for perf report
	@[ -n "$(ROW)" ] || { echo "make profile needs a row, such as ROW='list of'"; exit 2; }
	$(BENCH) -profile .tmp/profile -only '$(ROW)' $(BENCHFLAGS)

# The prepared Python comes first in PATH, as tests of kernels start python3.
PREPARED = python=$$($(BIN)/e2bctl local setup || command -v python3); export PATH="$${python%/*}:$$PATH"
TESTRUN = $(PREPARED); \
	go build -o $(BIN)/testrun ./internal/testrun; $(BIN)/testrun

.PHONY: test
test: deps ## run the whole suite, with -race where it helps and a C compiler is there, and as root also as an ordinary user (TESTFLAGS="-run TestX ./sandbox")
	@$(TESTRUN) -p $(PARALLEL) $(TESTFLAGS)

.PHONY: test-times
test-times: ## print what took longest in the last make test
	@go build -o $(BIN)/testrun ./internal/testrun; $(BIN)/testrun times

.PHONY: stress
stress: deps ## repeat each test that has processes or sockets ten times on a busy machine; go on where the last time ended (STRESSFLAGS="-slice 10m ./internal/e2e")
	@$(TESTRUN) stress $(STRESSFLAGS)

.PHONY: check-engines
check-engines: deps-engines ## test the engines that take a daemon, which root starts, packages of npm, or a runsc that go builds
	@if [ "$$(id -u)" != 0 ]; then echo "not root: the tests of engines do not run"; exit; fi; \
	.ci/engines-tests engines $(GOTEST) $(TESTFLAGS)

.PHONY: check-kubernetes
check-kubernetes: deps-kubernetes ## run the tests with a Kubernetes cluster, which root starts
	@if [ "$$(id -u)" != 0 ]; then echo "not root: the tests with a cluster do not run"; exit; fi; \
	.ci/engines-tests kubernetes $(GOTEST) $(TESTFLAGS)

.PHONY: cover
cover: deps ## measure what the tests of each package cover; summary in .tmp/cover.txt, profile in .tmp/cover.out
	@$(PREPARED); \
	$(GOTEST) -covermode=atomic -coverprofile=.tmp/cover.out $(TESTFLAGS) ./...
	@awk 'NR > 1 { package = $$1; sub("/[^/]*$$", "", package); all[package] += $$2; if ($$3 > 0) covered[package] += $$2 } \
		END { for (package in all) printf "%5.1f%%  %s\n", 100 * covered[package] / all[package], package }' \
		.tmp/cover.out | sort -k 2 >.tmp/cover.txt
	@cat .tmp/cover.txt

.PHONY: soak
soak: deps ## run what takes too long for every test: all with -race, a million cells, kills at each write of the store and of servers at any moment, all clients, a storm, and all engines
	@$(TESTRUN) -p $(PARALLEL) -allrace
	SOAK=1 go test -vet=off -count=1 -timeout=30m -run '^TestKilled$$' ./internal/cloud/store
	SOAK=1 go test -vet=off -count=1 -timeout=60m -run '^Test(KilledWhile|ErrorThenRun$$)' ./internal/e2e
	SOAK=1 go test -vet=off -count=1 -timeout=180m -run '^TestMany(Cells|Sandboxes)$$' ./internal/e2e
	SOAK=1 go test -vet=off -count=1 -timeout=30m -run '^TestManyHandles$$' ./sandbox
	SOAK=1 go test -vet=off -count=1 -timeout=60m -run '^Test(KernelRequests|Escape)$$' ./internal/cloud/engine/room
	SOAK=1 go test -vet=off -count=1 -timeout=60m -run '^TestClients$$' ./internal/interop
	SOAK=1 go test -vet=off -count=1 -timeout=60m -run '^TestRandomDeltas$$' ./sandbox/agent
	SOAK=1 go test -vet=off -count=1 -timeout=60m -run '^TestMuchOutput$$' ./cli/internal/mcpserver
	$(MAKE) storm
	$(MAKE) check-engines

.PHONY: storm
storm: build ## use sandboxes at random, under kills, cuts, full disks and cancelled calls, and compare what is seen with what must be true; SEED=N chooses as another run did
	@$(PREPARED); STORM=$(SEED) STORM_TIME=$(STORM_TIME) go test -vet=off -count=1 -timeout=60m -v -run '^TestStorm$$' ./internal/e2e

.PHONY: fuzz
fuzz: deps ## run every fuzz target for FUZZTIME (10s)
	@$(PREPARED); \
	git grep -l '^func Fuzz' -- '*_test.go' | xargs -n 1 dirname | sort -u | while read -r directory; do \
		targets=$$(go test -vet=off -list '^Fuzz' "./$$directory"); \
		for target in $$(grep '^Fuzz' <<<"$$targets"); do \
			echo "$$directory $$target"; \
			go test -vet=off -run '^$$' -fuzz "^$$target\$$" -fuzztime '$(FUZZTIME)' "./$$directory" </dev/null; \
		done; \
	done
