package frame

import "bytes"

// A Transport is what carries the frames of a pair. Only HTTP is served; the rules of the others
// have their parsers here.
type Transport uint8

const (
	HTTP Transport = iota
	WebSocket
	TCP
)

// Bounds of a personalization string, in bytes.
const (
	MaxPersonBytes       = 1024
	MinRandomnessBytes   = 22 // 128 bits in base64url
	personPrefix         = "mte-relay/2/"
	personHTTP, personWS = personPrefix + "http/", personPrefix + "ws/"
	personTCP            = personPrefix + "tcp/"
)

// PersonPrefix is how the personalization strings of a transport begin.
func PersonPrefix(t Transport) string {
	switch t {
	case HTTP:
		return personHTTP
	case WebSocket:
		return personWS
	case TCP:
		return personTCP
	}
	panic("BUG: no such transport")
}

// A PersonFault is the first rule a personalization string breaks (contract, mte-relay §5).
type PersonFault uint8

const (
	PersonTooLarge PersonFault = iota + 1
	PersonWrongPrefix
	PersonRandomness
	PersonControl
)

func (f PersonFault) Error() string {
	switch f {
	case PersonTooLarge:
		return "personalization over 1024 bytes"
	case PersonWrongPrefix:
		return "personalization without the transport's prefix"
	case PersonRandomness:
		return "personalization with less than 22 bytes of randomness"
	case PersonControl:
		return "personalization with a control character"
	}
	return "unknown personalization fault"
}

// CheckPerson judges a personalization string of a pair on its transport: the prefix, at least 22
// bytes of randomness up to the next slash or the end, and optionally a slash and a host. The error
// is a PersonFault.
func CheckPerson(t Transport, person []byte) error {
	prefix := PersonPrefix(t)
	if len(person) > MaxPersonBytes {
		return PersonTooLarge
	}
	if len(person) < len(prefix) || string(person[:len(prefix)]) != prefix {
		return PersonWrongPrefix
	}
	randomness, _, _ := bytes.Cut(person[len(prefix):], []byte{'/'})
	if len(randomness) < MinRandomnessBytes {
		return PersonRandomness
	}
	for _, c := range person {
		if c < 0x20 || c == 0x7f {
			return PersonControl
		}
	}
	return nil
}
