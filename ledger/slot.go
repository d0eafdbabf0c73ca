package ledger

// A Slot is the right of one socket to exist. The zero value holds none. It
// belongs to its socket and is returned once, when the descriptor is closed.
type Slot struct{ held bool }

// TakeSlot takes a slot if the ceiling allows it, or, with over set, in any
// case: an upgrade that replaces a socket of the same identity is admitted
// above the ceiling while the old socket closes.
func (l *Ledger) TakeSlot(s *Slot, over bool) bool {
	if s.held {
		panic("BUG: a slot taken twice")
	}
	for {
		n := l.sockets.Load()
		if n >= l.lim.Sockets && !over {
			return false
		}
		if l.sockets.CompareAndSwap(n, n+1) {
			s.held = true
			return true
		}
	}
}

// ReturnSlot gives the slot back. A slot that is not held is a bug.
func (l *Ledger) ReturnSlot(s *Slot) {
	if !s.held {
		panic("BUG: a slot returned twice")
	}
	s.held = false
	l.sockets.Add(-1)
}

// Full reports whether the ceiling is reached, Above whether it is exceeded.
func (l *Ledger) Full() bool  { return l.sockets.Load() >= l.lim.Sockets }
func (l *Ledger) Above() bool { return l.sockets.Load() > l.lim.Sockets }
