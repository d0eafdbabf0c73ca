package open

import (
	"crypto/aes"
	"crypto/cipher"
	"encoding/binary"
	"fmt"
)

// MKE on the wire: be64(seq) || AES-256-GCM(key, salt || be64(seq), plaintext, no AAD).
const (
	mkeSeqBytes  = 8
	mkeTagBytes  = 16
	mkeOverhead  = mkeSeqBytes + mkeTagBytes
	mkeSaltBytes = 4
)

// mkeKeys is what both ends of an MKE direction derive from its root.
type mkeKeys struct {
	gcm   cipher.AEAD
	nonce [mkeSaltBytes + mkeSeqBytes]byte // the salt stands, the number is put in
}

func (k *mkeKeys) set(d *direction) {
	var secret [32 + mkeSaltBytes]byte
	d.derive(secret[:], "mke")
	block, err := aes.NewCipher(secret[:32])
	if err == nil {
		k.gcm, err = cipher.NewGCM(block)
	}
	if err != nil {
		panic(fmt.Sprintf("BUG: AES-256-GCM: %v", err))
	}
	copy(k.nonce[:], secret[32:])
	clear(secret[:])
}

func (k *mkeKeys) wipe() { *k = mkeKeys{} }

// at is the nonce of a sequence number, good until the next call.
func (k *mkeKeys) at(seq uint64) []byte {
	binary.BigEndian.PutUint64(k.nonce[mkeSaltBytes:], seq)
	return k.nonce[:]
}

type mkeEncoder struct {
	direction
	mkeKeys
}

func (e *mkeEncoder) Type() Type { return MKE }

func (e *mkeEncoder) AppendEncode(dst, plaintext []byte) ([]byte, error) {
	seq, err := e.take()
	if err != nil {
		return dst, err
	}
	// Seal wants its output to be all of the plaintext's place or none of it, and HeadBytes is made
	// for that: the number goes before, the ciphertext over the plaintext. An array too small for
	// the answer is grown by Seal, which reads before it writes.
	dst = binary.BigEndian.AppendUint64(dst, seq)
	return e.gcm.Seal(dst, e.at(seq), plaintext, nil), nil
}

func (e *mkeEncoder) AppendState(dst []byte) []byte { return e.appendState(dst) }

func (e *mkeEncoder) Restore(state []byte) error {
	e.mkeKeys.wipe()
	if err := e.restore(state, true); err != nil {
		return err
	}
	e.set(&e.direction)
	return nil
}

func (e *mkeEncoder) Wipe() {
	e.direction.wipe()
	e.mkeKeys.wipe()
}

type mkeDecoder struct {
	direction
	mkeKeys
}

func (d *mkeDecoder) Type() Type { return MKE }

func (d *mkeDecoder) Decode(buf []byte) ([]byte, error) {
	if !d.keyed {
		panic("BUG: a codec instance without a key decodes")
	}
	if len(buf) < mkeOverhead {
		return nil, DecodeFailed
	}
	seq := binary.BigEndian.Uint64(buf)
	sealed := buf[mkeSeqBytes:]
	plaintext, err := d.gcm.Open(sealed[:0], d.at(seq), sealed, nil)
	if err != nil {
		return nil, DecodeFailed
	}
	if err := d.accept(seq); err != nil {
		clear(plaintext)
		return nil, err
	}
	return plaintext, nil
}

func (d *mkeDecoder) AppendState(dst []byte) []byte { return d.appendState(dst) }

func (d *mkeDecoder) Restore(state []byte) error {
	d.mkeKeys.wipe()
	if err := d.restore(state, false); err != nil {
		return err
	}
	d.set(&d.direction)
	return nil
}

func (d *mkeDecoder) Wipe() {
	d.direction.wipe()
	d.mkeKeys.wipe()
}
