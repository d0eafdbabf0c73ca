# Sourced by the other scripts: run named steps, time them, sum them up.
#
#   step NAME COMMAND [ARG...]   runs the command; its failure is remembered
#   must NAME COMMAND [ARG...]   the same, but a failure ends the script
#   skipped NAME WHY             says that something was left out
#   closing                      prints the summary; its status is the script's

step_failures=0
step_summary=()

step() {
	local name=$1 began=$SECONDS status=0
	shift
	echo "== $name"
	"$@" || status=$?
	if [ "$status" -eq 0 ]; then
		step_summary+=("$(printf '%-8s %4ds  %s' ok $((SECONDS - began)) "$name")")
	else
		step_summary+=("$(printf '%-8s %4ds  %s (status %d)' FAILED $((SECONDS - began)) "$name" "$status")")
		step_failures=$((step_failures + 1))
	fi
	return 0
}

must() {
	local before=$step_failures
	step "$@"
	if [ "$step_failures" -gt "$before" ]; then
		closing
		exit 1
	fi
}

skipped() {
	step_summary+=("$(printf '%-8s        %s: %s' skipped "$1" "$2")")
}

closing() {
	echo
	printf '%s\n' "${step_summary[@]}"
	if [ "$step_failures" -gt 0 ]; then
		echo "$step_failures failed after ${SECONDS}s"
		return 1
	fi
	echo "all ok after ${SECONDS}s"
}

# raise_files lifts the descriptor limit as far as this user may.
raise_files() {
	ulimit -n "$(ulimit -Hn)" 2>/dev/null || true
}
