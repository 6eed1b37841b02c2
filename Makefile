# eksbg: build, test, lint, demo. Everything a fresh clone needs is Go, make and,
# for `make interop`, apt.
GO            ?= go
BIN           := $(CURDIR)/bin
GOLANGCI_LINT := v2.15.0
VERSION       ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
LDFLAGS       := -s -w -X main.version=$(VERSION)

.PHONY: build test lint demo interop fuzz e2e bench generate clean

build: ## bin/eksbg
	$(GO) build -trimpath -ldflags '$(LDFLAGS)' -o $(BIN)/eksbg ./cmd/eksbg

test: ## every test, with the race detector
	$(GO) test -race -timeout 20m ./...

lint: $(BIN)/golangci-lint-$(GOLANGCI_LINT) ## gofmt, vet, and the import directions of the house
	@test -z "$$(gofmt -l cmd internal e2e)" || { gofmt -l cmd internal e2e; echo 'run gofmt -w on these'; exit 1; }
	$(BIN)/golangci-lint-$(GOLANGCI_LINT) run ./...
	cd e2e && $(BIN)/golangci-lint-$(GOLANGCI_LINT) run ./...

$(BIN)/golangci-lint-$(GOLANGCI_LINT):
	@mkdir -p $(BIN)
	GOBIN=$(BIN)/.lint $(GO) install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$(GOLANGCI_LINT)
	mv $(BIN)/.lint/golangci-lint $@
	rmdir $(BIN)/.lint

demo: build ## a whole hot upgrade in the sandbox
	$(BIN)/eksbg demo

interop: build ## the stock AWS CLI and kubectl drive the sandbox
	./scripts/interop.sh

fuzz: ## every fuzz target for FUZZTIME (10s)
	./scripts/fuzz.sh $(FUZZTIME)

# The first run builds etcd, kube-apiserver and kube-controller-manager, for minutes; the
# binary stays in $$XDG_CACHE_HOME/eksbg-e2e. EKSBG_E2E_LOGS=DIR keeps logs.
e2e: ## the same scenarios on real control planes
	cd e2e && $(GO) test -race -timeout 40m ./kubernetes ./cluster
	cd e2e && $(GO) test -count=1 -timeout 40m . # go test does not see that the eksbg that it builds is another one

bench: ## measures eksbg against real control planes, into docs/performance.md
	cd e2e && $(GO) run ./bench -page ../docs/performance.md

generate: ## docs/schema and golden files
	$(GO) test ./internal/planfile ./internal/ui/... ./cmd/eksbg -update

clean: ## what make made
	rm -rf $(BIN) out
