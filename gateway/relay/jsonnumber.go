package relay

// Classes of the bytes that can stand in a number.
const (
	numberOther uint8 = iota
	numberZero
	numberDigit // 1 to 9
	numberSign
	numberPoint
	numberE
	numberClasses
)

var numberClass = [256]uint8{
	'0': numberZero,
	'1': numberDigit, '2': numberDigit, '3': numberDigit, '4': numberDigit, '5': numberDigit,
	'6': numberDigit, '7': numberDigit, '8': numberDigit, '9': numberDigit,
	'+': numberSign, '-': numberSign,
	'.': numberPoint,
	'e': numberE, 'E': numberE,
}

// numberNext is the grammar of RFC 8259 §6: a row for each state inside a number, in their order, and
// in it the state behind a byte of each class. jsonAfter means that the number ended before the byte;
// what may not follow it is for that state to say.
var numberNext = [...][numberClasses]jsonState{
	/*               other        0             1-9           + -         .           e E */
	/* minus    */ {jsonBroken, jsonZero, jsonInteger, jsonBroken, jsonBroken, jsonBroken},
	/* zero     */ {jsonAfter, jsonAfter, jsonAfter, jsonAfter, jsonPoint, jsonE},
	/* integer  */ {jsonAfter, jsonInteger, jsonInteger, jsonAfter, jsonPoint, jsonE},
	/* point    */ {jsonBroken, jsonFraction, jsonFraction, jsonBroken, jsonBroken, jsonBroken},
	/* fraction */ {jsonAfter, jsonFraction, jsonFraction, jsonAfter, jsonAfter, jsonE},
	/* e        */ {jsonBroken, jsonExponent, jsonExponent, jsonESign, jsonBroken, jsonBroken},
	/* sign     */ {jsonBroken, jsonExponent, jsonExponent, jsonBroken, jsonBroken, jsonBroken},
	/* exponent */ {jsonAfter, jsonExponent, jsonExponent, jsonAfter, jsonAfter, jsonAfter},
}

// readNumber takes bytes inside a number, up to the end of b at most, and returns how many. A table
// instead of branches, since numbers are what a branch predictor cannot learn.
func (s *jsonScanner) readNumber(b []byte) (n int) {
	state := s.state
	for n < len(b) {
		state = numberNext[state-jsonMinus][numberClass[b[n]]]
		if state < jsonMinus || state > jsonExponent {
			break // the byte is not part of it; if the number broke, that does not matter
		}
		n++
	}
	s.state = state
	return n
}
