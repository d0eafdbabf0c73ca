package metric

import "strconv"

// By says who ended a WebSocket: who sent the first close frame, or let go without one.
type By uint8

const (
	ByUs By = iota
	ByPeer

	bys
)

var byNames = [bys]string{ByUs: "us", ByPeer: "peer"}

func (b By) String() string { return byNames[b] }

// A CloseCode is how a WebSocket ended, as a label: a code that has a meaning, or one of the
// three words. There are few, whatever peers send.
type CloseCode uint8

const (
	// CloseNone: end of stream without a close frame. An app was killed, a phone left the network
	// politely, a browser tab was closed by an old browser.
	CloseNone CloseCode = iota
	// CloseReset: the connection broke. A NAT forgot it, a peer crashed, TCP gave up, or we reset
	// a peer that took nothing more.
	CloseReset
	// CloseOther: a code without a registered meaning. Libraries use 3000-4999 as they like.
	CloseOther

	firstCode
)

// codes are those we may send and the registered ones (IANA, WebSocket Close Code Number). 1005
// stands for a close frame without a code; 1004, 1006 and 1015 never arrive.
var codes = [...]uint16{
	1000, 1001, 1002, 1003, 1005, 1007, 1008, 1009, 1010, 1011, 1012, 1013, 1014,
	3000, 3003, 3008,
}

const closeCodes = int(firstCode) + len(codes)

// CloseCodes is the number of values of CloseCode.
const CloseCodes = CloseCode(closeCodes)

// CloseCodeOf sorts the code of a close frame, 1005 if it had none.
func CloseCodeOf(wire uint16) CloseCode {
	for i, c := range codes {
		if c == wire {
			return firstCode + CloseCode(i)
		}
	}
	return CloseOther
}

func (c CloseCode) String() string {
	switch c {
	case CloseNone:
		return "none"
	case CloseReset:
		return "reset"
	case CloseOther:
		return "other"
	}
	return strconv.Itoa(int(codes[c-firstCode]))
}
