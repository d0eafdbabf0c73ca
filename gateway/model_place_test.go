package gateway_test

import (
	"bytes"
	"errors"
	"fmt"
	"sync"
)

// A stream is what one destination is owed of one source.
type stream struct {
	last  int  // received last; -1 none
	from  int  // the first that is owed; earlier ones may come, in order
	owed  int  // messages below this one are owed
	lossy bool // the source, or what was for the destination, is gone: a prefix may come
}

// A place is a destination's identity: sockets come and go, it stays.
type place struct {
	mu      sync.Mutex
	name    string
	streams map[uint32]*stream
	empties int                // empty messages owed
	holes   map[[2]uint32]bool // skipped: a replaced socket still has them to read
	olds    int                // replaced sockets that have not ended
	lossy   bool
	begun   bool // something was received
}

// owe notes a message of src that must arrive.
func (p *place) owe(src uint32, seq int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	st := p.streams[src]
	if st == nil {
		st = &stream{last: -1, from: seq}
		p.streams[src] = st
	}
	st.owed = seq + 1
}

// receive judges a message that came at a socket which has seen seen of each source.
func (p *place) receive(m wsMessage, seen map[uint32]int) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(m.data) == 0 {
		if !p.begun && p.olds == 0 {
			return nil // it belongs to a message of before this place was there
		}
		if p.empties--; p.empties < 0 && !p.lossy && p.olds == 0 {
			return errors.New("an empty message too many")
		}
		return nil
	}
	var src uint32
	var seq int
	if len(m.data) < modelHead {
		return fmt.Errorf("not of us: %v", m)
	}
	if _, err := fmt.Sscanf(string(m.data[:17]), "%08x:%08x", &src, &seq); err != nil {
		return fmt.Errorf("not of us: %v", m)
	}
	flag := m.data[modelHead-1]
	if want := modelPayload(src, seq, len(m.data)-modelHead, flag); !bytes.Equal(m.data, want) || m.op != opText+seq&1 {
		return fmt.Errorf("message %d of source %d is not whole: %v", seq, src, m)
	}
	if flag == flagEmpty {
		p.empties++
	}
	if last, ok := seen[src]; ok && seq <= last {
		return fmt.Errorf("message %d of source %d behind %d at one socket", seq, src, last)
	}
	seen[src] = seq
	st := p.streams[src]
	if st == nil {
		// Of before this place was owed anything by the source.
		st = &stream{last: -1, from: 1 << 30}
		p.streams[src] = st
	}
	hole := [2]uint32{src, uint32(seq)}
	switch {
	case p.holes[hole]:
		delete(p.holes, hole)
		return nil
	case st.last < 0 && seq <= st.from, seq == st.last+1 && st.last >= 0:
	case seq > st.last+1 && p.olds > 0:
		// What lies between is still to be read at replaced sockets.
		for i := max(st.last+1, min(st.from, seq)); i < seq; i++ {
			p.holes[[2]uint32{src, uint32(i)}] = true
		}
	default:
		return fmt.Errorf("message %d of source %d behind %d (owed from %d to %d)", seq, src, st.last, st.from, st.owed)
	}
	st.last, p.begun = seq, true
	return nil
}

// settled reports whether everything owed has arrived.
func (p *place) settled() (bool, string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.olds > 0 {
		return false, p.name + ": a replaced socket has not ended"
	}
	for src, st := range p.streams {
		if !st.lossy && st.owed > 0 && st.last != st.owed-1 {
			return false, fmt.Sprintf("%s: source %d: %d of %d", p.name, src, st.last+1, st.owed)
		}
	}
	if !p.lossy && (p.empties != 0 || len(p.holes) > 0) {
		return false, fmt.Sprintf("%s: %d empty messages and %v missing", p.name, p.empties, p.holes)
	}
	return true, ""
}

// loses makes everything of src, or of everybody with 0, optional from here on.
func (p *place) loses(src uint32) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lossy = true
	for s, st := range p.streams {
		if s == src || src == 0 {
			st.lossy = true
		}
	}
}
