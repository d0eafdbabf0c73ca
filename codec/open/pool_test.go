package open

import (
	"math/rand/v2"
	"sync"
	"testing"
)

func TestPools(t *testing.T) {
	p := profileFor(t, MinWindow)
	v := load(t)
	state := v.initial(t, p)
	for _, size := range []int{1, 2, 3, 250} {
		s := NewPools(p, size)
		for x := range Type(types) {
			if e, d := s.IdleEncoders(x), s.IdleDecoders(x); e != size || d != size {
				t.Fatalf("%v: %d and %d idle at start, want %d", x, e, d, size)
			}
			seen := map[Encoder]bool{}
			var out []Encoder
			for range size + 2 { // two more than it holds
				e := s.Encoder(x)
				if seen[e] || e.Type() != x {
					t.Fatalf("%v: handed out twice, or of type %v", x, e.Type())
				}
				seen[e] = true
				out = append(out, e)
			}
			if s.IdleEncoders(x) != 0 {
				t.Fatalf("%v: %d idle in an empty pool", x, s.IdleEncoders(x))
			}
			for _, e := range out {
				if err := e.Restore(state); err != nil {
					t.Fatal(err)
				}
				s.PutEncoder(e)
			}
			if s.IdleEncoders(x) != size {
				t.Fatalf("%v: %d idle in a full pool of %d", x, s.IdleEncoders(x), size)
			}
			mustPanic(t, "a pool handed out a keyed instance", func() { s.Encoder(x).AppendState(nil) })

			d := s.Decoder(x)
			s.PutDecoder(d)
			mustPanic(t, "an instance came back twice", func() { s.PutDecoder(d) })
		}
	}
}

// Many goroutines take and give; no value is ever held by two and none is lost.
func TestRingConcurrent(t *testing.T) {
	for _, size := range []int{1, 3, 8} {
		var r ring[*int]
		r.init(size)
		held := make([]sync.Mutex, size)
		index := map[*int]int{}
		for i := range size {
			v := new(int)
			index[v] = i
			if !r.put(v) {
				t.Fatal("full before it was")
			}
		}
		if r.put(new(int)) {
			t.Fatal("took one more than it holds")
		}
		var all sync.WaitGroup
		for g := range uint64(6) {
			all.Go(func() {
				random := rand.New(rand.NewPCG(g, 0))
				var mine []*int
				for range 20000 {
					if random.IntN(2) == 0 && len(mine) < 2 {
						if v, ok := r.get(); ok {
							if !held[index[v]].TryLock() {
								t.Error("one value in two hands")
								return
							}
							mine = append(mine, v)
						}
					} else if len(mine) > 0 {
						v := mine[len(mine)-1]
						held[index[v]].Unlock()
						if r.put(v) {
							mine = mine[:len(mine)-1]
						} else if !held[index[v]].TryLock() {
							t.Error("one value in two hands after a refusal")
							return
						}
					}
					if n := r.len(); n < 0 || n > size {
						t.Errorf("%d in a ring of %d", n, size)
						return
					}
				}
				for _, v := range mine {
					held[index[v]].Unlock()
					for !r.put(v) { // another may be in the middle of taking from the slot
					}
				}
			})
		}
		all.Wait()
		if r.len() != size {
			t.Errorf("%d left of %d", r.len(), size)
		}
		for range size {
			if _, ok := r.get(); !ok {
				t.Error("one is missing")
			}
		}
		if _, ok := r.get(); ok {
			t.Error("one too many")
		}
	}
}

func TestPoolAllocations(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	s := NewPools(profileFor(t, MinWindow), 4)
	if got := testing.AllocsPerRun(100, func() {
		s.PutEncoder(s.Encoder(MKE))
		s.PutDecoder(s.Decoder(MTE))
	}); got != 0 {
		t.Errorf("%v allocations", got)
	}
}
