package frame

import (
	"strconv"
	"testing"
)

// registered tells whether the protocol's registry has the code at all.
func registered(code int) bool {
	for r := NoReason + 1; r < BadRequest; r++ {
		if registry[r].code == code {
			return true
		}
	}
	return false
}

func TestRegistryVectors(t *testing.T) {
	var file struct {
		Codes         map[string]map[string]string
		DefaultAction map[string]string `json:"default_action"`
		Unregistered  []int
		Retired       []int
		ReasonTokens  struct {
			MaxBytes       int `json:"max_bytes"`
			Valid, Invalid []string
		} `json:"reason_tokens"`
	}
	readJSON(t, "registry.json", &file)
	known := 0
	for code, reasons := range file.Codes {
		n, _ := strconv.Atoi(code)
		if !registered(n) {
			t.Errorf("%d is not registered", n)
		}
		for word, action := range reasons {
			known++
			r, ok := ReasonOf(n, word)
			if !ok || r.Code() != n || r.String() != word || r.Action().String() != action || !r.Framed() {
				t.Errorf("%d %s: %v, code %d, action %v, want %s", n, word, r, r.Code(), r.Action(), action)
			}
			if got := ActionOf(n, word).String(); got != action {
				t.Errorf("%d %s: action %s, want %s", n, word, got, action)
			}
		}
	}
	for code, action := range file.DefaultAction {
		n, _ := strconv.Atoi(code)
		if got := ActionOf(n, "a_newer_reason").String(); got != action {
			t.Errorf("%d with an unknown reason: %s, want %s", n, got, action)
		}
	}
	for _, n := range append(file.Unregistered, file.Retired...) {
		if registered(n) {
			t.Errorf("%d is registered", n)
		}
		if ActionOf(n, "pair_not_found") != Surface {
			t.Errorf("%d has an action", n)
		}
	}
	if file.ReasonTokens.MaxBytes != maxReasonBytes {
		t.Errorf("reasons of up to %d bytes", maxReasonBytes)
	}
	for _, word := range file.ReasonTokens.Valid {
		if !ValidReason(word) {
			t.Errorf("%q is refused", word)
		}
	}
	for _, word := range file.ReasonTokens.Invalid {
		if ValidReason([]byte(word)) {
			t.Errorf("%q is accepted", word)
		}
	}
	framed, all := 0, 0
	Reasons(func(r Reason) {
		all++
		if r.Framed() {
			framed++
		}
		if !ValidReason(r.String()) || r.Code() < 400 || r.Code() > 599 {
			t.Errorf("reason %d is %d %q", r, r.Code(), r)
		}
	})
	if framed != known || all != framed+4 {
		t.Errorf("%d framed reasons and %d others, want %d and 4", framed, all-framed, known)
	}
}

func TestRetryAfter(t *testing.T) {
	var got []string
	Reasons(func(r Reason) {
		if r.RetryAfter() {
			got = append(got, r.String())
		}
	})
	want := []string{"pool_exhausted", "upstream_capacity", "not_owner", "connection_limit", "rate_limited",
		"state_store_unavailable", "state_store_write_failed"}
	if len(got) != len(want) {
		t.Fatalf("%v, want %v", got, want)
	}
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("%v, want %v", got, want)
		}
	}
}

// Every fault has a text and a reason a peer can be told.
func TestFaults(t *testing.T) {
	for f := Short; f < faults; f++ {
		if f.Error() == "" || !f.Reason().Framed() {
			t.Errorf("fault %d: %q, %v", f, f.Error(), f.Reason())
		}
	}
}
