# Targets for people; each is a short command or a script of scripts/.
# `make` alone says what there is.

VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
GO ?= go
IMAGE ?= sluice:$(VERSION)
BENCH_FLAGS ?=

.DEFAULT_GOAL := help
.PHONY: help run fleet build test accept soak fuzz bench lint suites deps image clean

help: ## what there is
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-8s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

run: build ## build and serve both roles on loopback (4000 and 8080)
	@scripts/run

fleet: build ## three nodes, Redis and nginx on loopback
	@scripts/fleet

build: ## the static binary bin/sluice
	CGO_ENABLED=0 $(GO) build -trimpath -ldflags '-s -w -X sluice/gateway.Version=$(VERSION)' -o bin/sluice ./gateway/sluice

test: ## format, vet, unit, end-to-end and race tests, a moment of fuzzing
	@scripts/test

accept: ## the acceptance tests at full size and the suites (long)
	@scripts/accept

soak: ## the model-based test for SOAK_MINUTES=60
	@scripts/soak

fuzz: ## every fuzz target for FUZZTIME=10m
	@scripts/fuzz

bench: ## the tables of bench/README.md in one run (BENCH_FLAGS=-short for a smoke run)
	@scripts/deps bench
	$(GO) run ./bench $(BENCH_FLAGS)

lint: ## checks that run nothing
	@scripts/lint

suites: build ## the black-box suites of ../shared/suites
	@scripts/suites

deps: ## what tests and benchmarks need from Debian
	@scripts/deps

image: ## the container image
	docker build --build-arg VERSION=$(VERSION) -t $(IMAGE) -t sluice:latest .

clean: ## what was built
	rm -rf bin bench/.bin
