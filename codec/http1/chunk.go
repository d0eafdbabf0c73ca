package http1

// A ChunkReader takes a chunked body apart (RFC 9112 §7.1). It keeps nothing of
// the bytes it is given, so the body may be cut anywhere. Extensions are checked
// and dropped; so are trailer fields, which nobody here has a use for and which
// must not become header fields (RFC 9110 §6.5.1). The zero value is ready.
type ChunkReader struct {
	left   uint64 // payload bytes of the current chunk still to come
	debt   int    // bytes of extensions not yet paid for by payload
	bytes  int    // of the trailer section
	fields int    // lines of the trailer section
	digits uint8  // of the current size
	state  chunkState
}

type chunkState uint8

// Where in a chunked body the next byte stands. The states between chunkSize
// and chunkSizeLF follow the grammar of extensions:
// *( BWS ";" BWS name [ BWS "=" BWS ( token / quoted-string ) ] ).
const (
	chunkSize chunkState = iota
	chunkSizeBlank
	chunkNameStart
	chunkName
	chunkNameBlank
	chunkValueStart
	chunkValue
	chunkValueBlank
	chunkQuoted
	chunkQuotedPair
	chunkQuotedEnd
	chunkSizeLF  // CR of the size line seen
	chunkData    // left > 0
	chunkDataCR  // data complete
	chunkDataLF  // CR behind data seen
	trailerStart // at the beginning of a line behind the last chunk
	trailerName
	trailerValue
	trailerLF    // CR of a trailer field seen
	chunkFinalLF // CR of the empty line seen
	chunkDone
)

// Next reads from b up to the end of one run of payload. data is that run, a
// part of b; it may be empty. n is how many bytes were used, data included; call
// again with b[n:] until that is empty or done is true. done means that the
// whole body was read: what stands behind n belongs to the next message. n is
// less than len(b) only if data is not empty or the body is done.
func (d *ChunkReader) Next(b []byte, lim *Limits) (data []byte, n int, done bool, err *Error) {
	for n < len(b) {
		if d.state == chunkData {
			k := len(b) - n
			if uint64(k) >= d.left {
				k = int(d.left)
				d.state = chunkDataCR
			}
			d.left -= uint64(k)
			d.debt = max(d.debt-k, 0)
			return b[n : n+k], n + k, false, nil
		}
		if err = d.step(b[n], lim); err != nil {
			return nil, n, false, err
		}
		n++
		if d.state == chunkDone {
			return nil, n, true, nil
		}
	}
	return nil, n, d.state == chunkDone, nil
}

// step takes one byte that is not payload.
func (d *ChunkReader) step(c byte, lim *Limits) *Error {
	switch d.state {
	case chunkSize:
		return d.sizeByte(c)
	case chunkSizeLF:
		if c != '\n' {
			return ErrChunkLine
		}
		d.state = chunkData
		if d.left == 0 {
			d.state = trailerStart
		}
		d.digits = 0
	case chunkDataCR:
		if c != '\r' {
			return ErrChunkEnd
		}
		d.state = chunkDataLF
	case chunkDataLF:
		if c != '\n' {
			return ErrChunkEnd
		}
		d.state = chunkSize
	case trailerStart, trailerName, trailerValue, trailerLF, chunkFinalLF:
		return d.trailerByte(c, lim)
	case chunkDone:
		panic("BUG: http1: byte given to a finished chunked body")
	default:
		return d.extensionByte(c)
	}
	return nil
}

func (d *ChunkReader) sizeByte(c byte) *Error {
	var v byte
	switch {
	case '0' <= c && c <= '9':
		v = c - '0'
	case 'a' <= c|0x20 && c|0x20 <= 'f':
		v = c | 0x20 - 'a' + 10
	case d.digits == 0:
		return ErrChunkSize
	case c == '\r':
		d.state = chunkSizeLF
		return nil
	case c == ';':
		d.state = chunkNameStart
		return d.charge()
	case c == ' ' || c == '\t':
		d.state = chunkSizeBlank
		return d.charge()
	case c == '\n':
		return ErrChunkLine
	default:
		return ErrChunkSize
	}
	// 2^59 is the first value that would reach the top bit: no sum of ours may
	// ever turn negative.
	if d.digits == maxChunkDigits || d.left >= 1<<59 {
		return ErrChunkTooLarge
	}
	d.digits++
	d.left = d.left<<4 | uint64(v)
	return nil
}

// charge counts one byte of an extension.
func (d *ChunkReader) charge() *Error {
	if d.debt++; d.debt > maxExtensionDebt {
		return ErrChunkOverhead
	}
	return nil
}

func (d *ChunkReader) extensionByte(c byte) *Error {
	blank := c == ' ' || c == '\t'
	token := classOf[c]&classToken != 0
	next := chunkDone // stands for: not allowed here
	switch d.state {
	case chunkSizeBlank, chunkValueBlank:
		// A blank belongs to the extension behind it; one in front of the line's
		// end belongs to nothing.
		if blank {
			next = d.state
		} else if c == ';' {
			next = chunkNameStart
		}
	case chunkNameStart:
		if blank {
			next = chunkNameStart
		} else if token {
			next = chunkName
		}
	case chunkName, chunkNameBlank:
		switch {
		case token && d.state == chunkName:
			next = chunkName
		case blank:
			next = chunkNameBlank
		case c == '=':
			next = chunkValueStart
		case c == ';':
			next = chunkNameStart
		case c == '\r' && d.state == chunkName:
			next = chunkSizeLF
		}
	case chunkValueStart:
		switch {
		case blank:
			next = chunkValueStart
		case c == '"':
			next = chunkQuoted
		case token:
			next = chunkValue
		}
	case chunkValue, chunkQuotedEnd:
		switch {
		case token && d.state == chunkValue:
			next = chunkValue
		case blank:
			next = chunkValueBlank
		case c == ';':
			next = chunkNameStart
		case c == '\r':
			next = chunkSizeLF
		}
	case chunkQuoted:
		switch {
		case c == '"':
			next = chunkQuotedEnd
		case c == '\\':
			next = chunkQuotedPair
		case classOf[c]&classValue != 0:
			next = chunkQuoted
		}
	case chunkQuotedPair:
		if classOf[c]&classValue != 0 {
			next = chunkQuoted
		}
	default:
		panic("BUG: http1: unknown state in a chunked body")
	}
	if next == chunkDone {
		return ErrChunkExtension
	}
	d.state = next
	return d.charge()
}

// trailerByte takes one byte behind the last chunk. Trailer fields obey the same
// syntax as header fields; only their sum is bounded, they are not kept.
func (d *ChunkReader) trailerByte(c byte, lim *Limits) *Error {
	if d.bytes++; d.bytes > lim.HeadBytes {
		return ErrTrailerTooLarge
	}
	switch d.state {
	case trailerStart:
		switch {
		case c == '\r':
			d.state = chunkFinalLF
		case c == ' ' || c == '\t':
			return ErrFold
		case c == '\n':
			return ErrChunkLine
		case classOf[c]&classToken == 0:
			return ErrFieldName
		default:
			if d.fields++; d.fields > lim.Fields {
				return ErrTooManyFields
			}
			d.state = trailerName
		}
	case trailerName:
		if c == ':' {
			d.state = trailerValue
		} else if classOf[c]&classToken == 0 {
			return ErrFieldName
		}
	case trailerValue:
		switch {
		case c == '\r':
			d.state = trailerLF
		case c == '\n':
			return ErrChunkLine
		case classOf[c]&classValue == 0:
			return ErrFieldValue
		}
	case trailerLF:
		if c != '\n' {
			return ErrChunkLine
		}
		d.state = trailerStart
	case chunkFinalLF:
		if c != '\n' {
			return ErrChunkLine
		}
		d.state = chunkDone
	}
	return nil
}
