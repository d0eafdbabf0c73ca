package http1

// A Body finds the end of a message body, whatever its framing, and takes the
// framing off. The zero value is a body that is done.
type Body struct {
	framing Framing
	left    uint64 // Length only
	chunks  ChunkReader
}

// Start begins a body with the framing of a parsed head.
func (d *Body) Start(h *Head) {
	*d = Body{framing: h.Framing}
	if h.Framing == Length {
		d.left = uint64(h.Length)
	}
}

// Done reports whether the body was read to its end.
func (d *Body) Done() bool {
	switch d.framing {
	case NoBody:
		return true
	case Length:
		return d.left == 0
	case Chunked:
		return d.chunks.state == chunkDone
	}
	return false
}

// Remaining returns how many payload bytes are still to come, -1 if that is not
// known.
func (d *Body) Remaining() int64 {
	switch d.framing {
	case NoBody:
		return 0
	case Length:
		return int64(d.left)
	}
	if d.Done() {
		return 0
	}
	return -1
}

// Next returns the next run of payload at the beginning of b; see
// ChunkReader.Next. Nothing is used of b once the body is done.
func (d *Body) Next(b []byte, lim *Limits) (data []byte, n int, done bool, err *Error) {
	if d.Done() {
		return nil, 0, true, nil
	}
	switch d.framing {
	case Length:
		if uint64(len(b)) > d.left {
			b = b[:d.left]
		}
		d.left -= uint64(len(b))
		return b, len(b), d.left == 0, nil
	case Chunked:
		return d.chunks.Next(b, lim)
	}
	return b, len(b), false, nil // until close
}

// EOF tells what the end of the connection means: nil if the body may end here,
// else ErrBodyCut.
func (d *Body) EOF() *Error {
	if d.Done() || d.framing == UntilClose {
		return nil
	}
	return ErrBodyCut
}
