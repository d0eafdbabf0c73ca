# Sourced by test and lint: what is checked without running anything. Each
# function prints what is wrong and fails.

# go_files are the sources that people write.
go_files() {
	find . -name '*.go' -not -path '*/testdata/*' -not -path './bench/.bin/*'
}

format() {
	local files
	files=$(gofmt -l $(go_files))
	if [ -n "$files" ]; then
		printf 'not formatted (run gofmt -w):\n%s\n' "$files"
		return 1
	fi
}

# The peers of the benchmarks are a module of their own, with dependencies that
# the product does not have.
vet_peers() {
	(cd bench/peers && go vet ./...)
}

# vet_darwin type-checks packages and their tests for macOS; nothing is run. It
# shows that they are whole there, not that they work.
#
#   TEST_DARWIN=portable   those that do not rest on the reactor (the default:
#                          loop has a poller for Linux only)
#   TEST_DARWIN=all        every package
#   TEST_DARWIN=0          none
vet_darwin() {
	local packages
	packages=$(
		go list -f '{{.ImportPath}} {{join .Deps " "}}' ./... | awk -v all="${TEST_DARWIN:-portable}" '{
			rests = $1 == "sluice/loop"
			for (i = 2; i <= NF; i++)
				rests = rests || $i == "sluice/loop"
			if (all == "all" || !rests)
				print $1
		}'
	)
	GOOS=darwin GOARCH=arm64 CGO_ENABLED=0 go vet $packages
}
