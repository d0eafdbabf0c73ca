package gateway

import (
	"testing"

	"sluice/gateway/config"
	"sluice/gateway/metric"
	"sluice/gateway/store"
)

// MAX_PAIRS bounds the pairs of a node that stands alone. Those in Redis are not
// counted, so the figure is not shown as a part of it.
func TestAdminViewPairs(t *testing.T) {
	t.Parallel()
	f := func(redis *store.Redis, most float64) {
		t.Helper()
		b := viewBuilder{g: &Gateway{cfg: &config.Config{MTE: config.MTE{MaxPairs: 1000}}, redis: redis}, now: metric.Take(), used: map[string]bool{}}
		if got := b.encrypting().Tables[0].Rows[0].Cells[0].Most; got != most {
			t.Errorf("of %v, want of %v", got, most)
		}
	}
	f(nil, 1000)
	f(new(store.Redis), 0)
}
