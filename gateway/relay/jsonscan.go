package relay

// byteOrderMark is what a TextDecoder strips from the very start of a text, once.
var byteOrderMark = []byte{0xef, 0xbb, 0xbf}

// jsonScanner checks that a text is one JSON object, as JSON.parse would read it from a TextDecoder,
// and stops at the top-level members `type` and `key`. It is fed in pieces cut anywhere, looks at each
// byte once and builds no tree. The zero value is at the start of a text.
//
// Bytes that are not UTF-8 become replacement characters. Since a decoder never swallows an ASCII
// byte with a broken sequence before it, that changes nothing: outside strings no byte from 0x80 is
// legal, valid or replaced, and inside strings all are, but match none of the texts we look for.
type jsonScanner struct {
	state jsonState
	role  stringRole // while inside a string
	name  jsonMember // the top-level member whose value comes next

	buf     [maxJSONText]byte // the string being captured, escapes resolved
	bufLen  uint8             // bytes in buf; textTooLong if it did not fit
	hexLeft uint8             // digits missing from a \u escape
	hex     uint16            // value of those seen

	literal string // what is missing from true, false or null

	// The bit stack of open containers, 1 for an object. top holds the innermost levels, up to
	// 64 of them, the innermost lowest; lower holds the rest in full words.
	depth int
	top   uint64
	lower []uint64
}

// maxJSONText is the length of the longest text that can matter, a key.
const maxJSONText = keyTextBytes

// textTooLong in bufLen marks a string that outgrew buf and so matters no more.
const textTooLong = maxJSONText + 1

// keptStackWords is what a reset scanner may keep of its bit stack, enough for 4,096 levels.
const keptStackWords = 64

// jsonMember names the top-level members that are of interest.
type jsonMember uint8

const (
	memberNone jsonMember = iota
	memberType
	memberKey
)

type jsonState uint8

const (
	// jsonStart: nothing read, a byte order mark may come. jsonMark1, jsonMark2: inside it.
	jsonStart jsonState = iota
	jsonMark1
	jsonMark2
	// jsonOpen: white space until the object begins.
	jsonOpen
	// jsonFirstName: behind '{', a name or '}'. jsonName: behind ',' in an object, a name.
	jsonFirstName
	jsonName
	// jsonColon: behind a name.
	jsonColon
	// jsonFirstValue: behind '[', a value or ']'. jsonValue: a value.
	jsonFirstValue
	jsonValue
	// jsonAfter: behind a value, ',' or the end of the container.
	jsonAfter
	// jsonString: inside a string. jsonEscape: behind its '\'. jsonHex: inside \uXXXX.
	jsonString
	jsonEscape
	jsonHex
	// Inside a number (jsonnumber.go). What was read so far ends behind: the '-'; a leading 0;
	// other digits; the '.'; digits behind that; the 'e'; its sign; digits behind that.
	jsonMinus
	jsonZero
	jsonInteger
	jsonPoint
	jsonFraction
	jsonE
	jsonESign
	jsonExponent
	// jsonLiteral: inside true, false or null.
	jsonLiteral
	// jsonEnd: the object is complete, white space may follow.
	jsonEnd
	// jsonBroken: not a JSON object. Nothing leaves it.
	jsonBroken
)

func (s *jsonScanner) reset() {
	lower := s.lower[:0]
	if cap(lower) > keptStackWords {
		lower = nil
	}
	*s = jsonScanner{lower: lower}
}

// complete reports whether what was read is exactly one JSON object.
func (s *jsonScanner) complete() bool { return s.state == jsonEnd }

// text returns the string value of the member that scan stopped at, or nil if it is not a string or
// longer than any text that matters. It lives until the next scan.
func (s *jsonScanner) text() []byte {
	if s.bufLen == textTooLong {
		return nil
	}
	return s.buf[:s.bufLen]
}

func (s *jsonScanner) stackBytes() int { return 8 * cap(s.lower) }

// scan reads b up to its end or to the value of a member of interest: behind a string, of which text
// then tells, and at the first byte of any other value.
func (s *jsonScanner) scan(b []byte) (n int, member jsonMember) {
	for i := 0; i < len(b); i++ {
		c := b[i]
		switch s.state {
		case jsonStart:
			if c == byteOrderMark[0] {
				s.state = jsonMark1
			} else {
				s.state = jsonOpen
				i-- // read again
			}
		case jsonMark1:
			s.state = expect(c == byteOrderMark[1], jsonMark2)
		case jsonMark2:
			s.state = expect(c == byteOrderMark[2], jsonOpen)
		case jsonOpen:
			switch {
			case isJSONSpace(c):
			case c == '{':
				s.open(c)
			default:
				s.state = jsonBroken
			}

		case jsonFirstName, jsonName:
			switch {
			case isJSONSpace(c):
			case c == '"':
				s.beginName()
			case c == '}' && s.state == jsonFirstName:
				s.close()
			default:
				s.state = jsonBroken
			}
		case jsonColon:
			if !isJSONSpace(c) {
				s.state = expect(c == ':', jsonValue)
			}
		case jsonFirstValue, jsonValue:
			switch {
			case isJSONSpace(c):
			case c == ']' && s.state == jsonFirstValue:
				s.close()
			default:
				s.beginValue(c)
				if member := s.name; member != memberNone && s.state != jsonString {
					s.name, s.bufLen = memberNone, textTooLong
					return i + 1, member
				}
			}
		case jsonAfter:
			switch {
			case isJSONSpace(c):
			case c == ',' && s.inObject():
				s.state = jsonName
			case c == ',':
				s.state = jsonValue
			case c == '}' && s.inObject(), c == ']' && !s.inObject():
				s.close()
			default:
				s.state = jsonBroken
			}

		case jsonString:
			n, ended := s.readString(b[i:])
			i += n - 1
			if ended {
				if member := s.endString(); member != memberNone {
					return i + 1, member
				}
			}
		case jsonEscape:
			s.escape(c)
		case jsonHex:
			s.unicodeEscape(c)

		case jsonMinus, jsonZero, jsonInteger, jsonPoint, jsonFraction, jsonE, jsonESign, jsonExponent:
			i += s.readNumber(b[i:]) - 1
		case jsonLiteral:
			if c != s.literal[0] {
				s.state = jsonBroken
			} else if s.literal = s.literal[1:]; s.literal == "" {
				s.state = jsonAfter
			}
		case jsonEnd:
			if !isJSONSpace(c) {
				s.state = jsonBroken
			}
		case jsonBroken:
			return len(b), memberNone
		default:
			panic("BUG: unknown JSON state")
		}
	}
	return len(b), memberNone
}

// expect is the state behind a byte that has to be the one we were waiting for.
func expect(ok bool, next jsonState) jsonState {
	if ok {
		return next
	}
	return jsonBroken
}

// isJSONSpace reports whether c is white space between tokens (RFC 8259 §2).
func isJSONSpace(c byte) bool { return c == ' ' || c == '\n' || c == '\r' || c == '\t' }

// beginValue takes the first byte of a value.
func (s *jsonScanner) beginValue(c byte) {
	switch c {
	case '"':
		s.state, s.role, s.bufLen = jsonString, roleValue, 0
		if s.name != memberNone {
			s.role = roleMember
		}
	case '{', '[':
		s.open(c)
	case '-':
		s.state = jsonMinus
	case '0':
		s.state = jsonZero
	case '1', '2', '3', '4', '5', '6', '7', '8', '9':
		s.state = jsonInteger
	case 't':
		s.state, s.literal = jsonLiteral, "rue"
	case 'f':
		s.state, s.literal = jsonLiteral, "alse"
	case 'n':
		s.state, s.literal = jsonLiteral, "ull"
	default:
		s.state = jsonBroken
	}
}

// open takes the first byte of an object or array.
func (s *jsonScanner) open(c byte) {
	if s.depth > 0 && s.depth%64 == 0 {
		s.lower = append(s.lower, s.top)
	}
	s.depth++
	s.top <<= 1
	s.state = jsonFirstValue
	if c == '{' {
		s.top |= 1
		s.state = jsonFirstName
	}
}

// close takes the last byte of the innermost container.
func (s *jsonScanner) close() {
	s.depth--
	s.top >>= 1
	switch {
	case s.depth == 0:
		s.state = jsonEnd
		return
	case s.depth%64 == 0:
		last := len(s.lower) - 1
		s.top, s.lower = s.lower[last], s.lower[:last]
	}
	s.state = jsonAfter
}

// inObject reports whether the innermost container is an object.
func (s *jsonScanner) inObject() bool { return s.top&1 != 0 }
