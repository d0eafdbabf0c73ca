package store

import "sync/atomic"

// A scanner counts the values of a stream of Redis's protocol, RESP 2 and 3,
// wherever it is cut. It belongs to one goroutine but for the count.
type scanner struct {
	values atomic.Int64 // whole ones at the top, pushes and attributes not counted

	skip  int64 // bytes of a string that are still to come, its end of line included
	line  int   // bytes of the first line so far, its type included
	kind  byte
	n     int64 // the number in the line
	minus bool
	plain bool // the line is no number
	digit bool

	open [guardDepth]level // lists that are not complete
	deep int
	bad  bool
}

type level struct {
	left    int64 // values still to come
	counted bool  // it stands for a value itself
}

// scan takes the next bytes. False: this is not the protocol, now or before.
func (s *scanner) scan(b []byte) bool {
	for len(b) > 0 && !s.bad {
		if s.skip > 0 {
			n := min(s.skip, int64(len(b)))
			s.skip -= n
			if b = b[n:]; s.skip == 0 {
				s.complete()
			}
			continue
		}
		c := b[0]
		b = b[1:]
		switch s.line++; {
		case s.line == 1:
			s.begin(c)
		case c == '\n':
			s.line = 0
			s.head()
		case s.line > guardLine:
			s.bad = true
		case c == '\r' || s.plain:
		case c == '-' && s.line == 2:
			s.minus = true
		case '0' <= c && c <= '9' && s.n <= guardBytes:
			s.n, s.digit = s.n*10+int64(c-'0'), true
		default:
			s.bad = true
		}
	}
	return !s.bad
}

// begin takes the type of a value.
func (s *scanner) begin(c byte) {
	s.kind, s.n, s.minus, s.digit = c, 0, false, false
	switch c {
	case '+', '-', ':', '_', '#', ',', '(':
		s.plain = true
	case '$', '!', '=', '*', '~', '%', '>', '|':
		s.plain = false
	default:
		s.bad = true
	}
}

// head acts on a complete first line.
func (s *scanner) head() {
	if s.plain {
		s.complete()
		return
	}
	if !s.digit || s.minus && s.n != 1 {
		s.bad = true // of negative lengths there is only -1, nil
		return
	}
	isList := true
	switch s.kind {
	case '$', '!', '=':
		isList = false
	case '%', '|':
		s.n *= 2
	}
	switch {
	case s.minus:
		s.complete()
	case !isList && s.n <= guardBytes:
		s.skip = s.n + 2
	case !isList || s.n > guardElements || s.deep == guardDepth:
		s.bad = true
	default:
		s.open[s.deep] = level{left: s.n, counted: s.kind != '>' && s.kind != '|'}
		s.deep++
		s.close()
	}
}

// complete ends a value.
func (s *scanner) complete() {
	if s.deep == 0 {
		s.values.Add(1)
		return
	}
	s.open[s.deep-1].left--
	s.close()
}

// close ends the lists that have all their values.
func (s *scanner) close() {
	for s.deep > 0 && s.open[s.deep-1].left == 0 {
		s.deep--
		if !s.open[s.deep].counted {
			continue
		}
		if s.deep == 0 {
			s.values.Add(1)
		} else {
			s.open[s.deep-1].left--
		}
	}
}
