package open

import "encoding/binary"

const (
	rootBytes  = 32
	stateBytes = 1 + rootBytes + 8 + 8 // version, root, next, bitmap

	stateVersion = 1
	profileLabel = "mte-open-1"
)

// direction is what an instance of either type and either end is made of: the state and the lease.
// Its methods are the half of Encoder and Decoder that does not depend on the type.
type direction struct {
	lease
	root [rootBytes]byte
	window
	keyed bool
}

// appendState appends the state: 49 bytes.
func (d *direction) appendState(dst []byte) []byte {
	if !d.keyed {
		panic("BUG: state of a codec instance without a key")
	}
	dst = append(dst, stateVersion)
	dst = append(dst, d.root[:]...)
	dst = binary.BigEndian.AppendUint64(dst, d.next)
	return binary.BigEndian.AppendUint64(dst, d.seen)
}

// restore takes root and window from a state; the type's keys are derived by the caller.
func (d *direction) restore(state []byte, encoder bool) error {
	d.wipe()
	if len(state) != stateBytes || state[0] != stateVersion {
		return StateInvalid
	}
	next := binary.BigEndian.Uint64(state[1+rootBytes:])
	seen := binary.BigEndian.Uint64(state[1+rootBytes+8:])
	w := window{next: next, seen: seen, size: d.size}
	if encoder && (seen != 0 || next > endSeq) || !encoder && !w.possible() {
		return StateInvalid
	}
	copy(d.root[:], state[1:])
	d.window, d.keyed = w, true
	return nil
}

func (d *direction) wipe() {
	clear(d.root[:])
	d.next, d.seen, d.keyed = 0, 0, false
}

// take hands out an encoder's next sequence number.
func (d *direction) take() (uint64, error) {
	if !d.keyed {
		panic("BUG: a codec instance without a key encodes")
	}
	if d.next >= endSeq {
		return 0, EncodeFailed
	}
	seq := d.next
	d.next++
	return seq, nil
}

// derive fills key with what HKDF-Expand makes of the root under a label.
func (d *direction) derive(key []byte, label string) { hkdfExpand(key, d.root[:], []byte(label)) }

// appendInitialState appends the state of a direction in which nothing was said yet.
func appendInitialState(dst []byte, entropy *[32]byte, nonce uint64, personalization []byte) []byte {
	if nonce>>63 != 0 {
		panic("BUG: a nonce with its top bit set")
	}
	var salt [len(profileLabel) + 8]byte
	copy(salt[:], profileLabel)
	binary.BigEndian.PutUint64(salt[len(profileLabel):], nonce)
	at := len(dst)
	dst = append(dst, make([]byte, stateBytes)...)
	dst[at] = stateVersion
	prk := hmacSum(salt[:], entropy[:])
	hkdfExpand(dst[at+1:][:rootBytes], prk[:], personalization)
	clear(prk[:])
	return dst
}
