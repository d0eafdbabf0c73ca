package open

import (
	"crypto/aes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"hash"
	"slices"
)

// MTE on the wire: be32(seq) || AES-256-CTR(encKey, counter block be64(seq) || 0^8, tokens). Token i
// is plaintext[i] || R[7i .. 7i+7), where R is the key stream of AES-256-CTR under
// T = HMAC-SHA256(authKey, be64(seq) || plaintext) from a zero counter block.
const (
	mteSeqBytes   = 4
	tokenBytes    = 8
	tokenTagBytes = tokenBytes - 1

	// Tokens are made in groups whose part of R is whole blocks, so that any group can be made first.
	groupTokens = 128
	groupBlocks = groupTokens * tokenTagBytes / aes.BlockSize
)

// mteKeys is what both ends of an MTE direction derive from its root, and the scratch they need.
type mteKeys struct {
	auth hash.Hash // keyed with authKey; Reset is cheap, keying is not
	enc  ctr       // encKey
	tag  ctr       // T of the message in work
	t    [sha256.Size]byte
	seq  [8]byte
	r    [groupTokens*tokenTagBytes + 1]byte // the group's part of R; read in words of 8
	some [groupTokens]byte                   // the group's plaintext
}

func (k *mteKeys) set(d *direction) {
	var secret [64]byte
	d.derive(secret[:], "mte")
	k.enc.setKey((*[32]byte)(secret[:32]))
	k.auth = hmac.New(sha256.New, secret[32:])
	k.auth.Reset()
	clear(secret[:])
}

func (k *mteKeys) wipe() {
	k.auth = nil
	k.enc.wipe()
	k.tag.wipe()
	clear(k.t[:])
	clear(k.seq[:])
	clear(k.r[:])
	clear(k.some[:])
}

// begin starts T of a message.
func (k *mteKeys) begin(seq uint64) {
	binary.BigEndian.PutUint64(k.seq[:], seq)
	k.auth.Reset()
	k.auth.Write(k.seq[:])
}

// finish keys R with T.
func (k *mteKeys) finish() {
	k.auth.Sum(k.t[:0])
	k.tag.setKey(&k.t)
}

// group fills k.r with R for count tokens from groupTokens*i.
func (k *mteKeys) group(i, count int) {
	r := k.r[:count*tokenTagBytes]
	clear(r)
	k.tag.xor(r, r, 0, uint64(i)*groupBlocks)
}

// token is token j of the group in k.r for the plaintext byte p, as a little endian word.
func (k *mteKeys) token(j int, p byte) uint64 {
	return binary.LittleEndian.Uint64(k.r[tokenTagBytes*j:])<<8 | uint64(p)
}

type mteEncoder struct {
	direction
	mteKeys
}

func (e *mteEncoder) Type() Type { return MTE }

func (e *mteEncoder) AppendEncode(dst, plaintext []byte) ([]byte, error) {
	if len(plaintext) == 0 {
		return dst, EncodeFailed
	}
	seq, err := e.take()
	if err != nil {
		return dst, err
	}
	e.begin(seq)
	e.auth.Write(plaintext)
	e.finish()

	n := len(plaintext)
	dst = slices.Grow(dst, mteSeqBytes+tokenBytes*n)
	dst = binary.BigEndian.AppendUint32(dst, uint32(seq))
	at := len(dst)
	dst = dst[:at+tokenBytes*n]
	out := dst[at:]
	// From the last token to the first: a plaintext that lies HeadBytes into the output is read
	// before its place is written.
	for g := (n - 1) / groupTokens; g >= 0; g-- {
		first := g * groupTokens
		count := min(n-first, groupTokens)
		e.group(g, count)
		for i := first + count - 1; i >= first; i-- {
			binary.LittleEndian.PutUint64(out[tokenBytes*i:], e.token(i-first, plaintext[i]))
		}
	}
	e.enc.xor(out, out, seq, 0)
	return dst, nil
}

func (e *mteEncoder) AppendState(dst []byte) []byte { return e.appendState(dst) }

func (e *mteEncoder) Restore(state []byte) error {
	e.mteKeys.wipe()
	if err := e.restore(state, true); err != nil {
		return err
	}
	e.set(&e.direction)
	return nil
}

func (e *mteEncoder) Wipe() {
	e.direction.wipe()
	e.mteKeys.wipe()
}

type mteDecoder struct {
	direction
	mteKeys
}

func (d *mteDecoder) Type() Type { return MTE }

func (d *mteDecoder) Decode(buf []byte) ([]byte, error) {
	if !d.keyed {
		panic("BUG: a codec instance without a key decodes")
	}
	if len(buf) < mteSeqBytes+tokenBytes || (len(buf)-mteSeqBytes)%tokenBytes != 0 {
		return nil, DecodeFailed
	}
	seq := uint64(binary.BigEndian.Uint32(buf))
	tokens := buf[mteSeqBytes:]
	n := len(tokens) / tokenBytes
	d.enc.xor(tokens, tokens, seq, 0)
	err := d.verify(seq, tokens)
	if err == nil {
		err = d.accept(seq)
	}
	if err != nil {
		clear(tokens) // nobody sees a plaintext that was not taken
		return nil, err
	}
	for i := range n {
		tokens[i] = tokens[tokenBytes*i]
	}
	return tokens[:n], nil
}

// verify rebuilds every token and compares all of them, in a time that depends on their number only.
func (d *mteDecoder) verify(seq uint64, tokens []byte) error {
	n := len(tokens) / tokenBytes
	d.begin(seq)
	for first := 0; first < n; first += groupTokens {
		some := d.some[:min(n-first, groupTokens)]
		for j := range some {
			some[j] = tokens[tokenBytes*(first+j)]
		}
		d.auth.Write(some)
	}
	d.finish()
	var diff uint64
	for first := 0; first < n; first += groupTokens {
		count := min(n-first, groupTokens)
		d.group(first/groupTokens, count)
		for j := range count {
			token := tokens[tokenBytes*(first+j):]
			diff |= binary.LittleEndian.Uint64(token) ^ d.token(j, token[0])
		}
	}
	if diff != 0 {
		return DecodeFailed
	}
	return nil
}

func (d *mteDecoder) AppendState(dst []byte) []byte { return d.appendState(dst) }

func (d *mteDecoder) Restore(state []byte) error {
	d.mteKeys.wipe()
	if err := d.restore(state, false); err != nil {
		return err
	}
	d.set(&d.direction)
	return nil
}

func (d *mteDecoder) Wipe() {
	d.direction.wipe()
	d.mteKeys.wipe()
}
